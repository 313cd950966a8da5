"""The best validation so far."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Best:
    """Which update validated best; a tie keeps the earlier one."""

    metric: str
    value: float | None = None
    update: int | None = None

    def offer(self, update: int, value: float) -> bool:
        """Takes a new value; True when it is better than all before."""
        if self.value is not None and value <= self.value:
            return False
        self.update, self.value = update, value
        return True

    def as_json(self) -> dict[str, Any]:
        return {"metric": self.metric, "value": self.value, "update": self.update}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Best":
        return cls(metric=stored["metric"], value=stored["value"], update=stored["update"])
