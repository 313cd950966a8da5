"""Answers with the headers that keep a page from doing anything but what it is for."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

__all__ = ["Answer", "html_answer", "json_answer", "refusal", "script_hashes", "secure_headers"]

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status, a body and its type, and headers of its own."""

    status: int = 200
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def secure_headers(policy: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """The headers of every answer; `policy` replaces parts of the content policy."""
    parts = {**_POLICY, **(policy or {})}
    written = "; ".join(f"{name} {value}" for name, value in parts.items())
    return [("Content-Security-Policy", written), *_HEADERS.items()]


def refusal(status: int, sentence: str, *headers: tuple[str, str]) -> Answer:
    """A sentence in the place of what was asked for."""
    return Answer(status=status, body=f"{sentence}\n".encode(errors="replace"), headers=headers)


def json_answer(value: Any) -> Answer:
    """A value as JSON; letters outside of ASCII are escaped, so that any file name can be written."""
    return Answer(body=json.dumps(value).encode(), kind="application/json")


def html_answer(text: str, *, hashes: Iterable[str] = ()) -> Answer:
    """A page; beside the server's own files only the inline scripts with these hashes run in it."""
    allowed = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in hashes)])
    policy = {"script-src": allowed, "style-src": "'self' 'unsafe-inline'"}
    return Answer(
        body=text.encode(errors="replace"),
        kind="text/html; charset=utf-8",
        headers=tuple(secure_headers(policy)),
    )


def script_hashes(page: str) -> list[str]:
    """The hashes of the inline scripts of a page, as a content policy names them."""
    reader = _Scripts()
    reader.feed(page)
    reader.close()
    texts = ["".join(parts) for parts in reader.scripts]
    return [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]


class _Scripts(HTMLParser):
    """Collects the texts of scripts that a browser would run."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.scripts: list[list[str]] = []
        self._is_inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("type") or "text/javascript"
        self._is_inside = tag == "script" and kind in ("text/javascript", "module")
        if self._is_inside:
            self.scripts.append([])

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = self._is_inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            self.scripts[-1].append(data)
