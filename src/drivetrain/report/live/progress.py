"""What the events of a run say about its progress, without reading every line of a long run."""

import math
from collections.abc import Sequence
from typing import Any

from drivetrain.catalogue.metrics import MAIN_METRICS, higher_is_better
from drivetrain.store.metrics_file import event_of

__all__ = ["Progress", "finite"]

# Events are appended in this form (store/metrics_file.py); most lines of a long run begin so.
_TRAIN = b'{"event": "train"'
_POINTS = 48


class Progress:
    """The newest values of a run and a thinned curve of its training loss."""

    def __init__(self) -> None:
        self.update = 0
        self.elapsed_s = 0.0
        self.loss: float | None = None
        self.images_per_second: float | None = None
        self.has_summary = False
        self.points: list[tuple[int, float]] = []
        self._last: dict[str, float] = {}
        self._best: dict[str, float] = {}

    def add(self, lines: Sequence[bytes]) -> None:
        """Takes in new lines: all events but trainings, and of those so many that a curve can be drawn."""
        trainings = [place for place, line in enumerate(lines) if line.startswith(_TRAIN)]
        step = max(1, len(trainings) // _POINTS)
        drawn = {*trainings[::step], *trainings[-1:]}
        skipped = set(trainings) - drawn
        for place, line in enumerate(lines):
            if place not in skipped:
                self._take(event_of(line.decode(errors="replace")))
        while len(self.points) > 2 * _POINTS:
            self.points = [*self.points[:-1:2], self.points[-1]]

    def metric(self, best_by: str | None) -> str | None:
        """The metric that chooses the best checkpoint; None before the first validation."""
        names = [best_by] if best_by else list(MAIN_METRICS.values())
        return next((name for name in names if name in self._last), None)

    def last(self, metric: str | None) -> float | None:
        """The newest value of a validation metric."""
        return self._last.get(metric or "")

    def best(self, metric: str | None) -> float | None:
        """The best value of a validation metric."""
        return self._best.get(metric or "")

    def _take(self, entry: dict[str, Any] | None) -> None:
        if entry is None:
            return
        self.update = max(self.update, entry.get("update", 0))
        self.elapsed_s = max(self.elapsed_s, finite(entry.get("elapsed_seconds")) or 0.0)
        if entry["event"] == "train":
            self._take_training(entry)
        elif entry["event"] == "validation":
            self._take_validation(entry)
        elif entry["event"] == "summary":
            self.has_summary = True
            self.elapsed_s = max(self.elapsed_s, finite(entry.get("time_to_train_seconds")) or 0.0)

    def _take_training(self, entry: dict[str, Any]) -> None:
        self.loss = finite(entry.get("loss"))
        self.images_per_second = finite(entry.get("images_per_second"))
        if self.loss is not None:
            self.points.append((entry.get("update", 0), self.loss))

    def _take_validation(self, entry: dict[str, Any]) -> None:
        for name, value in entry.items():
            number = finite(value)
            if number is None:
                continue
            self._last[name] = number
            better = max if higher_is_better(name) else min
            self._best[name] = better(self._best.get(name, number), number)


def finite(value: object) -> float | None:
    """A finite number, or None."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        return None
