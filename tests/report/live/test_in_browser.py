"""The live pages in a real browser: what changes appears by itself, also from a server that came back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drivetrain.report.collect.pages import contents_of
from drivetrain.report.contents import PageContents
from drivetrain.report.page.render import render_page
from tests.deadlines import HANG_S, wait_until
from tests.report.live.served import add_event, served, write_run
from tests.report.page.browsers import OpenPage, open_pages

pytestmark = pytest.mark.browser

# A page without a run, for which the opener need not wait.
BLANK = "data:text/html,<script>window.drivetrainPage = true</script>"
HANG_MS = HANG_S * 1000
NASTY = "\"><img src=x onerror=window.ran=1><script>window.ran=1<!--'&"


@pytest.fixture(scope="module")
def opener() -> Iterator[OpenPage]:
    with open_pages() as open_page:
        yield open_page


def _joined(root: Path, **options: Any) -> Any:
    def render(contents: PageContents, client: str) -> str:
        return render_page(contents, client=client)

    return served(root, collect=lambda paths: contents_of(paths, live=True), render=render, **options)


def _waits_for_points(page: Any, count: int) -> None:
    most = "Math.max(...drivetrainPage.charts().flatMap(c => c.lines.map(l => l.points)))"
    # Not by wait_for_function, which evaluates text in the page: its content policy forbids that.
    wait_until(lambda: page.evaluate(most) == count, what=f"a chart of {count} points")


def test_a_new_point_appears_without_reload_and_after_a_restart(opener: OpenPage, tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", updates=range(1, 6))
    complaints: list[str] = []
    with _joined(tmp_path) as first:
        port = first.server_port
        page = opener(f"http://127.0.0.1:{port}/run/a", width=1440, scheme="light", complaints=complaints)
        page.evaluate("window.isTheSame = true")
        _waits_for_points(page, 5)
        add_event(run, "train", update=6, loss=0.1)
        _waits_for_points(page, 6)
        assert complaints == []
    add_event(run, "train", update=7, loss=0.1)
    with _joined(tmp_path, port=port):
        _waits_for_points(page, 7)
        add_event(run, "train", update=8, loss=0.1)
        _waits_for_points(page, 8)
        assert page.evaluate("window.isTheSame")


def test_the_list_follows_its_runs_and_shows_names_as_they_are(opener: OpenPage, tmp_path: Path) -> None:
    run = write_run(tmp_path / NASTY, model=NASTY, dataset=NASTY)
    write_run(tmp_path / "plain")
    complaints: list[str] = []
    with _joined(tmp_path) as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        page = opener(f"{address}run/plain", width=1440, scheme="dark", complaints=complaints)
        page.get_by_role("link", name="All runs").click()
        line = page.locator("tbody tr", has=page.get_by_role("link", name=NASTY))
        line.wait_for(timeout=HANG_MS)
        assert "2 of 10 updates" in line.inner_text()
        add_event(run, "train", update=7, loss=0.1)
        page.get_by_text("7 of 10 updates").wait_for(timeout=HANG_MS)
        write_run(tmp_path / "later")
        page.get_by_role("link", name="later").wait_for(timeout=HANG_MS)
        page.get_by_label("Filter").fill("toy later")
        assert page.locator("tbody tr").count() == 1
        page.get_by_label("Filter").fill("")
        for name in (NASTY, "plain"):
            page.get_by_label(f"compare {name}", exact=True).check()
        page.get_by_role("button", name="Compare 2 runs").click()
        page.wait_for_url("**/compare?*", timeout=HANG_MS)
        wait_until(lambda: page.evaluate("!!window.drivetrainPage"))
        assert page.evaluate("window.ran") is None
        page.goto(address)
        line.get_by_role("link").click()
        page.wait_for_url("**/run/*", timeout=HANG_MS)
        wait_until(lambda: page.evaluate("!!window.drivetrainPage"))
        assert page.evaluate("window.ran") is None
    assert complaints == []


def test_a_token_opens_a_page_once_and_for_all(opener: OpenPage, tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    complaints: list[str] = []
    with _joined(tmp_path, host="0.0.0.0") as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        page = opener(BLANK, width=768, scheme="light", complaints=complaints)
        page.goto(f"{address}?token={server.routes.token}")
        page.wait_for_url(address, timeout=HANG_MS)
        page.get_by_role("link", name="a", exact=True).click()
        page.wait_for_url(f"{address}run/a", timeout=HANG_MS)
        page.get_by_text("All runs").wait_for(timeout=HANG_MS)
        assert page.evaluate("document.cookie") == ""
        assert complaints == []


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_the_list_fits_its_window(opener: OpenPage, tmp_path: Path, width: int) -> None:
    for number in range(3):
        write_run(tmp_path / f"a-run-with-a-rather-long-name-{number}" / ("x" * 60))
    with _joined(tmp_path) as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        page = opener(f"{address}run/{_first(server)}", width=width, scheme="light", complaints=[])
        page.goto(address)
        page.locator("tbody tr").first.wait_for(timeout=HANG_MS)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def _first(server: Any) -> str:
    return str(next(iter(server.catalogue._found)))
