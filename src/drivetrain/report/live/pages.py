"""The pages of runs and what they hold, collected once for each version of a run."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from drivetrain.core.version import VERSION
from drivetrain.report.contents import PageContents
from drivetrain.report.live.answers import Answer, html_answer, json_answer, refusal, script_hashes
from drivetrain.report.live.catalogue import Catalogue
from drivetrain.report.live.find import has_outward_link
from drivetrain.report.live.rows import Row

__all__ = ["Collect", "Pages", "Render", "asset"]

Collect = Callable[[Sequence[Path]], PageContents]
Render = Callable[[PageContents, str], str]

_MOST_KEPT = 8
_MOST_COMPARED = 20
_Key = tuple[tuple[str, str], ...]


def asset(name: str) -> bytes:
    """A file of the server itself."""
    return files("drivetrain.report.live").joinpath("assets", name).read_bytes()


class Pages:
    """Collects and draws the pages of runs; `render` draws contents with the script of a live page."""

    def __init__(self, catalogue: Catalogue, *, collect: Collect, render: Render) -> None:
        self._catalogue = catalogue
        self._collect = collect
        self._render = render
        self._client = asset("live.js").decode()
        self._kept: OrderedDict[_Key, PageContents] = OrderedDict()
        self._collecting = threading.Lock()

    def page(self, ids: Sequence[str]) -> Answer:
        """The page of one run or of several ones compared."""
        contents = self._contents(ids)
        if isinstance(contents, Answer):
            return contents
        return html_answer(self._render(contents, self._client), hashes=self._hashes)

    def contents(self, ids: Sequence[str]) -> Answer:
        """What the page holds, as JSON."""
        contents = self._contents(ids)
        return contents if isinstance(contents, Answer) else json_answer(contents)

    def _contents(self, ids: Sequence[str]) -> PageContents | Answer:
        chosen = list(dict.fromkeys(ids))
        if not 0 < len(chosen) <= _MOST_COMPARED:
            return refusal(400, f"Name 1 to {_MOST_COMPARED} runs, such as /compare?run=first&run=second.")
        paths = [self._catalogue.path_of(name) for name in chosen]
        rows = [self._catalogue.row_of(name) for name in chosen]
        known = [path for path in paths if path is not None]
        shown = [row for row in rows if row is not None]
        if len(known) < len(chosen) or len(shown) < len(chosen):
            return refusal(404, "There is no such run here; the address / lists the runs there are.")
        if any(has_outward_link(path, self._catalogue.root) for path in known):
            return refusal(404, "This run is not shown: a link in its folder leads out of the served folder.")
        # One at a time: several pages of one run are collected once, and training keeps its CPU cores.
        with self._collecting:
            return self._kept_or_new(known, shown)

    def _kept_or_new(self, paths: list[Path], rows: list[Row]) -> PageContents:
        key = tuple((row["id"], row["version"]) for row in rows)
        if key not in self._kept:
            self._kept[key] = self._new(paths, rows)
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def _new(self, paths: list[Path], rows: list[Row]) -> PageContents:
        contents = self._collect(paths)
        contents["live"] = True
        contents["versions"] = {row["id"]: row["version"] for row in rows}
        if len(contents["runs"]) == len(rows):
            for run, row in zip(contents["runs"], rows, strict=True):
                run["state"] = row["state"]
        return contents

    @cached_property
    def _hashes(self) -> list[str]:
        """The scripts that may run, taken from a page without data: nothing in data can add one."""
        empty = PageContents(title="", created="", version=VERSION, runs=[], live=True)
        return script_hashes(self._render(empty, self._client))
