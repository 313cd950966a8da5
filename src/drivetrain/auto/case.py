"""One case for the rules: what is known of the data and the device, what was typed, what was decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drivetrain.catalogue.data_sets import dataset_info, default_share, held_out_count
from drivetrain.catalogue.tasks import task_info
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.recipe.fields import alternatives, default_values

_EIGHT_BITS = 8

__all__ = ["Case", "Decision", "DeviceFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the rules need to know of the device that will train."""

    name: str
    is_accelerator: bool
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An option that a rule set, and why."""

    field: str
    value: Any
    reason: str


@dataclass(slots=True, kw_only=True)
class Case:
    """What the rules look at, and the decisions so far. A typed option is never decided.

    `typed` has the typed options by field; a value of None was typed as `none`.
    """

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
        return field in self.typed or any(self.typed.get(name) is not None for name in same)

    def value(self, field: str) -> Any:
        """What an option is so far: typed, decided, or its default."""
        if field in self.typed:
            return self.typed[field]
        decided = self.decisions.get(field)
        return default_values()[field] if decided is None else decided.value

    @property
    def is_dense(self) -> bool:
        """Whether every pixel has a label."""
        return task_info(self.fingerprint.task).has_dense_labels

    @property
    def reads_8_bits(self) -> bool:
        """Whether images are read as whole numbers from 0 to 255; a white level scales 16 bits to them."""
        return self.fingerprint.bits == _EIGHT_BITS or self.fingerprint.white_level is not None

    @property
    def train_samples(self) -> int:
        """Images of the training set: without those that are held out, and at most as many as were asked."""
        images = self.fingerprint.samples["train"]
        return min(images - self._held_out(), self.value("limit_train_samples") or images)

    @property
    def validation_samples(self) -> int:
        """Images of one validation."""
        images = self._held_out() or self.fingerprint.samples.get("validation", 0)
        return min(images, self.value("limit_validation_samples") or images)

    def _held_out(self) -> int:
        images, share = self.fingerprint.samples["train"], self.value("validation_fraction")
        if self.value("folds") is not None:
            return min(images - 1, -(-images // int(self.value("folds"))))
        if share is None:
            has_validation = "validation" in self.fingerprint.samples
            share = default_share(dataset_info(self.fingerprint.dataset), has_validation=has_validation)
        return held_out_count(images, fraction=float(share))

    @property
    def global_batch(self) -> int:
        """Samples of one weight update, by what was typed or decided."""
        if self.value("global_batch_size"):
            return int(self.value("global_batch_size"))
        accumulation = self.value("gradient_accumulation_count") or 1
        return int(self.value("micro_batch_size")) * int(self.value("replicas")) * int(accumulation)

    @property
    def epoch_samples(self) -> int:
        """Images that one epoch trains on: the training set, unless its number of updates was typed."""
        updates = self.value("weight_updates_per_epoch")
        if updates is not None and int(updates) > 0:
            return int(updates) * self.global_batch
        return self.train_samples

    @property
    def shorter_side_px(self) -> int:
        """The median of the shorter sides, as near as the medians of height and width tell."""
        return int(min(self.fingerprint.height_px.median, self.fingerprint.width_px.median))

    @property
    def one_size_px(self) -> tuple[int, int] | None:
        """Height and width, if all images have the same."""
        height, width = self.fingerprint.height_px, self.fingerprint.width_px
        if height.smallest != height.largest or width.smallest != width.largest:
            return None
        return int(height.largest), int(width.largest)
