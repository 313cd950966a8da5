"""The best validation so far, and the metric that chooses it."""

import math
from dataclasses import dataclass
from typing import Any

from drivetrain.catalogue.metrics import MAIN_METRICS, direction, higher_is_better, shown_metric
from drivetrain.recipe.schema import Recipe

__all__ = ["Best", "best_metric"]


def best_metric(recipe: Recipe, *, task: str) -> str:
    """The metric by which the best validation of a run is chosen."""
    return recipe.best_by or MAIN_METRICS[task]


@dataclass(slots=True)
class Best:
    """The update with the best validation; of equal ones the earliest."""

    metric: str
    value: float | None = None
    update: int | None = None

    def offer(self, update: int, value: float | None) -> bool:
        """Takes a new value; True if it is better than all before. NaN and infinity never are."""
        if value is None or not math.isfinite(value) or not self._is_better(value):
            return False
        self.update, self.value = update, value
        return True

    def _is_better(self, value: float) -> bool:
        if self.value is None:
            return True
        return value > self.value if higher_is_better(self.metric) else value < self.value

    def as_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "direction": direction(self.metric),
            "value": self.value,
            "update": self.update,
        }

    def sentence(self) -> str:
        """Which update is best and by which metric, for README.md and figures."""
        words, way = shown_metric(self.metric), direction(self.metric)
        if self.value is None:
            return f"none, as no validation gave a finite {words} ({way})"
        return f"update {self.update}, chosen by {words}: {self.value:.4f} ({way})"

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Best":
        return cls(metric=stored["metric"], value=stored["value"], update=stored["update"])
