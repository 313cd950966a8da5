"""A chromium that opens pages for tests, or the reason why there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# As root and without a screen; nothing that asks the network for anything.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HEIGHT = 900


class OpenPage(Protocol):
    """Opens an address in a window of a width; what the browser complains about is added to `complaints`."""

    def __call__(self, address: str, *, width: int, scheme: str, complaints: list[str]) -> Any: ...


@contextmanager
def open_pages() -> Iterator[OpenPage]:
    """A browser for some tests; skips them if playwright or chromium is missing."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install -e .[browser]"
    )
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, NAMES)), None)
        if found is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("there is no chromium; `make test-browser` installs one")
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        contexts: list[Any] = []

        def open_page(address: str, *, width: int, scheme: str, complaints: list[str]) -> Any:
            while contexts:
                contexts.pop().close()
            contexts.append(
                browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
            )
            page = contexts[0].new_page()
            page.on(
                "console",
                lambda message: complaints.append(message.text)
                if message.type in ("error", "warning")
                else None,
            )
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(address)
            page.wait_for_function("window.drivetrainPage")
            return page

        yield open_page
        browser.close()
