"""Which answer belongs to an address; a name in an address is only ever looked up in a list."""

from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qsl, urlsplit

from drivetrain.report.live.access import Access
from drivetrain.report.live.answers import Answer, html_answer, json_answer, refusal
from drivetrain.report.live.catalogue import Catalogue
from drivetrain.report.live.find import same_id
from drivetrain.report.live.pages import Pages, asset

__all__ = ["Request", "Routes", "StreamOf"]

_KINDS = {
    "list.js": "text/javascript; charset=utf-8",
    "list.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_MOST_FIELDS = 40
_MOVED = '<!doctype html><meta http-equiv="refresh" content="0;url={0}"><a href="{0}">Go on</a>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What counts of a request: the address, and the headers that say who asks."""

    target: str
    hosts: list[str]
    cookies: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOf:
    """The changes of these runs, as they happen; of all runs if None."""

    ids: frozenset[str] | None


class Routes:
    """Answers requests."""

    def __init__(self, catalogue: Catalogue, *, pages: Pages, access: Access) -> None:
        self._catalogue = catalogue
        self._pages = pages
        self._access = access

    @property
    def token(self) -> str | None:
        """The token that a reader needs; None if none is needed."""
        return self._access.token

    def answer(self, request: Request) -> Answer | StreamOf:
        """The answer to a request; whoever may not read learns nothing about the runs."""
        if not self._access.knows_host(request.hosts):
            return refusal(403, "This server answers only to the addresses 127.0.0.1 and localhost.")
        parts = _split(request.target)
        if parts is None:
            return _NOTHING_HERE
        path, query = parts
        token = dict(query).get("token")
        if token is not None and self._access.is_token(token):
            return self._welcome(path)
        if not self._access.has_token(request.cookies):
            return refusal(403, "Open the address with the token that `drivetrain report --live` printed.")
        return self._answer(path.split("/")[1:], query)

    def _welcome(self, path: str) -> Answer:
        """The same page again, with the token in a cookie instead of its address.

        A redirect would not do: a browser that came from another site does not send the cookie along with it.
        """
        page = html_answer(_MOVED.format(escape(path)))
        return Answer(
            body=page.body,
            kind=page.kind,
            headers=(*page.headers, ("Set-Cookie", self._access.new_cookie())),
        )

    def _answer(self, names: list[str], query: list[tuple[str, str]]) -> Answer | StreamOf:
        chosen = [same_id(value) for name, value in query if name == "run"]
        match names:
            case [""]:
                return Answer(body=asset("list.html"), kind="text/html; charset=utf-8")
            case ["favicon.ico"]:
                return _file("icon.svg")
            case ["assets", name]:
                return _file(name)
            case ["run", name]:
                return self._pages.page([same_id(name)])
            case ["compare"]:
                return self._pages.page(chosen)
            case ["api", "runs"]:
                return json_answer({"runs": self._catalogue.rows()})
            case ["api", "run", name]:
                return self._pages.contents([same_id(name)])
            case ["api", "compare"]:
                return self._pages.contents(chosen)
            case ["events"]:
                return StreamOf(ids=frozenset(chosen) or None)
            case _:
                return _NOTHING_HERE


def _file(name: str) -> Answer:
    return Answer(body=asset(name), kind=_KINDS[name]) if name in _KINDS else _NOTHING_HERE


def _split(target: str) -> tuple[str, list[tuple[str, str]]] | None:
    """The path and the fields of an address; None if it is none of this server."""
    if not target.startswith("/"):
        return None
    try:
        parts = urlsplit(target)
        fields = parse_qsl(
            parts.query, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="surrogateescape"
        )
    except ValueError:
        return None
    return parts.path, fields


_NOTHING_HERE = refusal(404, "There is nothing at this address; the address / lists the runs.")
