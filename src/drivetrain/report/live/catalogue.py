"""All runs in a folder with their newest rows, and who waits for changes of them."""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.report.live.find import Found, find_runs
from drivetrain.report.live.rows import FollowedJob, FollowedRun, Row, unreadable_row
from drivetrain.store.lock import held_locks

__all__ = ["Catalogue", "News"]

# New directories are looked for less often than changes in known ones, and in a large folder rarely.
_SEARCH_EVERY_S = 2.0
_QUICK_SEARCH_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The rows that changed since a number, the ids of runs that are gone, and the number as of now."""

    rows: list[Row]
    gone: list[str]
    number: int


class Catalogue:
    """Follows every run in a folder."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise BadInputError(
                f"--live {root} is not a folder; name the one that holds your runs, such as --live runs, "
                "which the first `drivetrain train` creates."
            )
        self.root = root.resolve()
        self._found: dict[str, Found] = {}
        self._runs: dict[str, FollowedRun] = {}
        self._jobs: dict[str, FollowedJob] = {}
        self._rows: dict[str, Row] = {}
        self._changed_at: dict[str, int] = {}
        self._number = 0
        self._next_search_s = 0.0
        self._following = threading.Lock()
        self._news = threading.Condition()
        self._is_closed = False
        self._search()

    def path_of(self, run_id: str) -> Path | None:
        """The directory of a run by its id; an id is only looked up, never made into a path."""
        found = self._found.get(run_id)
        return None if found is None else found.path

    def row_of(self, run_id: str) -> Row | None:
        """The newest row of a run, read now; None if there is no such run."""
        with self._following:
            found = self._found.get(run_id)
            return None if found is None else self._row(found, held_locks())

    def rows(self) -> list[Row]:
        """The rows that are known, in the order of their names."""
        with self._news:
            return [self._rows[name] for name in self._found if name in self._rows]

    def poll(self) -> None:
        """Looks for changes once; what changed is told to those who wait."""
        if time.monotonic() >= self._next_search_s:
            self._search()
        held = held_locks()
        # A cross-validation reads its folds itself.
        for found in [found for found in self._found.values() if found.parent is None]:
            with self._following:
                self._row(found, held)

    def wait(self, since: int, *, only: Collection[str] | None = None, timeout_s: float) -> News:
        """Waits until a run has changed since a number; after the timeout, the news are empty."""
        deadline_s = time.monotonic() + timeout_s
        with self._news:
            while True:
                changed = [name for name, number in self._changed_at.items() if number > since]
                wanted = [name for name in changed if only is None or name in only]
                left_s = deadline_s - time.monotonic()
                if wanted or self._is_closed or left_s <= 0:
                    return News(
                        rows=[self._rows[name] for name in wanted if name in self._rows],
                        gone=[name for name in wanted if name not in self._rows],
                        number=self._number,
                    )
                self._news.wait(left_s)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Lets everybody who waits go on."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()

    def _search(self) -> None:
        begin_s = time.monotonic()
        found = {run.id: run for run in find_runs(self.root)}
        took_s = time.monotonic() - begin_s
        with self._following:
            gone = self._found.keys() - found.keys()
            for name in gone:
                self._runs.pop(name, None)
                self._jobs.pop(name, None)
            self._found = found
        self._next_search_s = begin_s + took_s + _SEARCH_EVERY_S * max(1.0, took_s / _QUICK_SEARCH_S)
        for name in gone:
            self._tell(name, None)

    def _row(self, found: Found, held: frozenset[int] | None) -> Row:
        """Reads what is new of a run and tells it."""
        try:
            row = self._read_row(found, held)
        except Exception:
            # Whatever a damaged file holds, the other runs are still followed.
            row = unreadable_row(found)
        self._tell(found.id, row)
        return row

    def _read_row(self, found: Found, held: frozenset[int] | None) -> Row:
        if found.is_job:
            job = self._jobs.setdefault(found.id, FollowedJob(found))
            folds = [self._row(fold, held) for fold in self._found.values() if fold.parent == found.id]
            return job.row(held, folds)
        return self._runs.setdefault(found.id, FollowedRun(found)).row(held)

    def _tell(self, name: str, row: Row | None) -> None:
        with self._news:
            if self._rows.get(name) == row:
                return
            if row is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = row
            self._number += 1
            self._changed_at[name] = self._number
            self._news.notify_all()
