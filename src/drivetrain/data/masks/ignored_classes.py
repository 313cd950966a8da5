"""`--ignore-class`: pixels of some classes get the label `IGNORED`, and the classes after them move up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedImages, MaskedSplits
from drivetrain.data.source import IGNORED, DataSpec

__all__ = ["IgnoringImages", "without_classes"]

_LEAST_CLASSES = 2
_MOST_NAMED = 12
_LABELS = 256


@dataclass(frozen=True, slots=True)
class IgnoringImages:
    """Masked images whose labels are looked up in a table of 256 new ones."""

    masked: MaskedImages
    table: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.masked)

    def name(self, index: int) -> str:
        """What a message calls the image."""
        return self.masked.name(index)

    def size(self, index: int) -> tuple[int, int]:
        """Height and width."""
        return self.masked.size(index)

    def whole(self, index: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """The image and its mask."""
        image, mask = self.masked.whole(index)
        return image, self.table[mask]


def without_classes(splits: MaskedSplits, names: Sequence[str]) -> MaskedSplits:
    """The same images, without the classes called `names`."""
    if not names:
        return splits
    spec = splits.spec
    _require_classes(names, spec=spec)
    kept = [index for index, name in enumerate(spec.class_names) if name not in names]
    table = np.full(_LABELS, IGNORED, dtype=np.uint8)
    table[kept] = np.arange(len(kept))

    def looked_up(masked: MaskedImages | None) -> MaskedImages | None:
        if isinstance(masked, HeldMaskedImages):
            return replace(masked, masks=table[masked.masks])
        return None if masked is None else IgnoringImages(masked, table)

    train = looked_up(splits.train)
    assert train is not None
    return replace(
        splits,
        train=train,
        validation=looked_up(splits.validation),
        test=looked_up(splits.test),
        spec=replace(
            spec,
            num_classes=len(kept),
            class_names=tuple(spec.class_names[index] for index in kept),
            mask_values=tuple(spec.mask_values[index] for index in kept) if spec.mask_values else (),
            ignored_classes=tuple(name for name in spec.class_names if name in names),
        ),
    )


def _require_classes(names: Sequence[str], *, spec: DataSpec) -> None:
    known = spec.class_names
    for name in names:
        if name not in known:
            raise BadInputError(
                f"--ignore-class {name} is not a class of the masks.{did_you_mean(name, known)} "
                f"Classes: {first_names(list(known), most=_MOST_NAMED)}."
            )
    left = [name for name in known if name not in names]
    if len(left) < _LEAST_CLASSES:
        what = f"only {left[0]}" if left else "none"
        raise BadInputError(
            f"--ignore-class {','.join(names)} leaves {what} of the {len(known)} classes "
            f"({first_names(list(known), most=_MOST_NAMED)}); leave at least {_LEAST_CLASSES} to tell apart."
        )
