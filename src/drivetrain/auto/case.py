"""One case for the rules: what is known of the data and the device, what was typed, what was decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.recipe.fields import alternatives, default_values

__all__ = ["Case", "Decision", "DeviceFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the rules need to know of the device that will train."""

    name: str
    is_accelerator: bool
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An option that a rule set, and why."""

    field: str
    value: Any
    reason: str


@dataclass(slots=True, kw_only=True)
class Case:
    """What the rules look at, and the decisions so far. A typed option is never decided."""

    fingerprint: Fingerprint
    device: DeviceFacts
    typed: Mapping[str, Any]
    decisions: dict[str, Decision] = field(default_factory=dict)

    def decide(self, field: str, value: Any, reason: str) -> None:
        """Sets an option, unless it or another way to set the same thing was typed."""
        if not self.is_typed(field):
            self.decisions[field] = Decision(field=field, value=value, reason=reason)

    def is_typed(self, field: str) -> bool:
        """Whether the user set an option, or an alternative to it."""
        same = next((group for group in alternatives() if field in group), (field,))
        return any(name in self.typed for name in same)

    def value(self, field: str) -> Any:
        """What an option is so far: typed, decided, or its default."""
        if field in self.typed:
            return self.typed[field]
        decided = self.decisions.get(field)
        return default_values()[field] if decided is None else decided.value

    @property
    def train_samples(self) -> int:
        """Images to train on: without those that are held out of a data set without validation images."""
        samples, held_out = self.fingerprint.samples, self.value("validation_fraction")
        if held_out is None:
            held_out = 0 if samples.get("validation") else 0.2
        return max(1, samples["train"] - round(samples["train"] * float(held_out)))

    @property
    def validation_samples(self) -> int:
        """Images of one validation."""
        return self.fingerprint.samples.get("validation") or self.fingerprint.samples["train"] - (
            self.train_samples
        )

    @property
    def shorter_side_px(self) -> int:
        """The median of the shorter sides, as near as the medians of height and width tell."""
        return int(min(self.fingerprint.height_px.median, self.fingerprint.width_px.median))

    @property
    def has_one_size(self) -> bool:
        """Whether all images have the same height and width."""
        height, width = self.fingerprint.height_px, self.fingerprint.width_px
        return height.smallest == height.largest and width.smallest == width.largest
