"""A page is one small document that holds all it needs and lets nothing else run."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser

from drivetrain.report.page.embedding import embedded_json
from drivetrain.report.page.render import render_page
from tests.report.page.made_contents import classifier, compared, page_of, segmentation

NASTY = "</title><script>alert(1)</script>\"'&\udcff"
MOST_BYTES = 3_000_000


class _Elements(HTMLParser):
    """The elements of a document, and the texts of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.texts:
            self.texts[self._inside][-1] += data


def _policy_of(elements: _Elements) -> dict[str, str]:
    metas = [values for tag, values in elements.elements if tag == "meta"]
    text = next(one["content"] for one in metas if one.get("http-equiv") == "Content-Security-Policy")
    rules = (rule.partition(" ") for rule in unescape(text or "").split("; "))
    return {name: value for name, _, value in rules}


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def test_the_contents_are_in_the_page() -> None:
    page = page_of(segmentation())
    data, script = _Elements(render_page(page)).texts["script"]
    assert data == embedded_json(page)
    assert json.loads(data)["runs"][0]["name"] == "cells"
    assert "drivetrainPage" in script


def test_only_its_own_scripts_and_styles_may_run() -> None:
    elements = _Elements(render_page(page_of(classifier())))
    policy = _policy_of(elements)
    assert policy["default-src"] == policy["connect-src"] == "'none'"
    assert policy["img-src"] == "data:"
    assert policy["script-src"] == _source(elements.texts["script"][1])
    assert policy["style-src"] == _source(elements.texts["style"][0])


def test_a_live_page_has_its_client_and_may_talk_to_its_server() -> None:
    client = "console.log(1 < 2 && '&');"
    elements = _Elements(render_page(page_of(classifier()), client=client))
    policy = _policy_of(elements)
    assert elements.texts["script"][2] == client
    assert policy["connect-src"] == "'self'"
    assert _source(client) in policy["script-src"].split()


def test_nothing_comes_from_elsewhere() -> None:
    elements = _Elements(render_page(compared()))
    addresses = [
        value
        for _, values in elements.elements
        for name, value in values.items()
        if name in ("src", "href", "action", "srcset", "data")
    ]
    assert addresses == ["data:,"]


def test_names_with_markup_stay_names() -> None:
    text = render_page(page_of(classifier(name=NASTY), title=NASTY))
    elements = _Elements(text)
    assert [tag for tag, _ in elements.elements].count("script") == 2
    assert elements.texts["title"] == [NASTY.replace("\udcff", "?")]
    assert re.search(r"<script>alert", text) is None
    assert text.encode()


def test_pages_are_small() -> None:
    assert len(render_page(compared()).encode()) < MOST_BYTES
    assert len(render_page(page_of(segmentation())).encode()) < MOST_BYTES / 10
