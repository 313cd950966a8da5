"""The networks among which the budget chooses, those that compute most first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drivetrain.auto.case import Case
from drivetrain.catalogue.libraries import is_library_model
from drivetrain.catalogue.models import is_external_model, model_info, nearest_image_size
from drivetrain.catalogue.tasks import task_info

__all__ = ["Network", "is_tiny", "networks_for"]

# Images of at most this side go to networks that keep their resolution; ResNets for photographs shrink an
# image 32 times.
TINY_SIDE_PX = 48
_SIDES_PX = (224, 192, 160, 128, 96, 64)
_TILE_SIDES_PX = (512, 384, 256, 192, 128, 64)
# Segmentation networks of libraries halve an image five times at most.
_LIBRARY_STEP = 32
# Larger images are trained on tiles.
_LARGEST_WHOLE_PX = 512
# More layers need more images: with fewer, ResNet-18 generalises as well and computes less.
_SAMPLES_FOR_34_LAYERS = 5_000
_SAMPLES_FOR_50_LAYERS = 50_000
_BATCHES_PER_PASS = 10
_LARGEST_BATCH, _SMALLEST_BATCH, _DENSE_BATCH = 128, 8, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network with the size of its images, as options of the recipe, and the work of an image.

    `work` compares networks of one list only.
    """

    options: dict[str, Any]
    work: float

    def __str__(self) -> str:
        side = self.options.get("image_size") or self.options.get("tile_size")
        width = self.options.get("model_width")
        return (
            f"{self.options['model']}{f' of width {width}' if width else ''}"
            f"{f' on {side} pixels' if side else ''}"
        )


def networks_for(case: Case) -> list[Network]:
    """The candidates; a typed model, width or size leaves only those that have it."""
    dense = task_info(case.fingerprint.task).has_dense_labels
    found = _dense(case) if dense else _tiny(case) if is_tiny(case) else _photographs(case)
    # Options that were typed make several candidates the same.
    return _distinct(sorted(found, key=lambda network: -network.work))


def _distinct(networks: list[Network]) -> list[Network]:
    return [
        network
        for place, network in enumerate(networks)
        if all(network.options != before.options for before in networks[:place])
    ]


def is_tiny(case: Case) -> bool:
    return case.shorter_side_px <= TINY_SIDE_PX


def _dense(case: Case) -> Iterator[Network]:
    for width, sized in ((w, s) for w in (48, 32, 16) for s in _dense_sizes(case)):
        side = sized.get("tile_size") or case.shorter_side_px
        own: dict[str, Any] = {"model": "unet_same", "model_width": width}
        own["model_params"] = {"norm": "batch", "depth": _depth(side)}
        yield Network(
            options=_model_options(case, own) | sized | {"micro_batch_size": _dense_batch(case)},
            work=width**1.8 * side**2,
        )


def _dense_sizes(case: Case) -> list[dict[str, Any]]:
    """The whole image where all have one size that fits, otherwise tiles."""
    if case.is_typed("image_size") or case.is_typed("tile_size"):
        return [{}]
    height, width = case.fingerprint.height_px, case.fingerprint.width_px
    sides = [int(height.largest), int(width.largest)]
    if case.has_one_size and all(
        side <= _LARGEST_WHOLE_PX and side == _accepted(case, side) for side in sides
    ):
        return [{}]
    smallest = int(min(height.smallest, width.smallest))
    fitting = [side for side in _TILE_SIDES_PX if side <= max(smallest, _TILE_SIDES_PX[-1])]
    return [{"tile_size": _accepted(case, side)} for side in fitting[:3]]


def _accepted(case: Case, side: int) -> int:
    """The nearest side that a typed model takes; the rules' own takes any."""
    model = str(case.value("model"))
    if not case.is_typed("model"):
        return side
    if is_library_model(model):
        return max(1, side // _LIBRARY_STEP) * _LIBRARY_STEP
    return nearest_image_size(model, side)


def _depth(side: int) -> int:
    """Poolings of a U-Net: its deepest layer still has about 8 pixels on a side, and never more than 5."""
    return max(2, min(5, (side // 8).bit_length() - 1))


def _dense_batch(case: Case) -> int:
    return max(2, min(_DENSE_BATCH, case.train_samples // 2))


def _tiny(case: Case) -> Iterator[Network]:
    side = None if case.has_one_size else _even(case.shorter_side_px)
    ladder: list[tuple[str, int | None, float]] = [
        ("cifar_resnet20", 64, 16.0),
        ("cifar_resnet20", 32, 4.0),
        ("cifar_resnet20", None, 1.0),
        ("cifar_resnet8", None, 0.3),
    ]
    if case.fingerprint.channels == 1 and case.shorter_side_px >= model_info("mnist_cnn").min_image_size:
        ladder.append(("mnist_cnn", None, 0.1))
    for model, width, work in ladder:
        own = {"model": model} | ({"model_width": width} if width else {})
        yield Network(options=_model_options(case, own) | _sized(case, side) | _batch(case), work=work)


def _photographs(case: Case) -> Iterator[Network]:
    ladder: list[tuple[str, int | None, float]] = [("resnet18", None, 1.8), ("resnet18", 32, 0.5)]
    if case.train_samples >= _SAMPLES_FOR_34_LAYERS:
        ladder.append(("resnet34", None, 3.6))
    if case.train_samples >= _SAMPLES_FOR_50_LAYERS:
        ladder.append(("resnet50", None, 4.1))
    own_sides = [side for side in _SIDES_PX if side <= case.shorter_side_px]
    for side in own_sides or [_SIDES_PX[-1]]:
        for model, width, work in ladder:
            own = {"model": model} | ({"model_width": width} if width else {})
            yield Network(
                options=_model_options(case, own) | _sized(case, side) | _batch(case), work=work * side**2
            )


def _model_options(case: Case, own: dict[str, Any]) -> dict[str, Any]:
    """A candidate's model, unless one was typed: then its own width and parameters belong to it too."""
    if case.is_typed("model"):
        return {"model": case.value("model")}
    return {field: value for field, value in own.items() if not case.is_typed(field)} | {
        "model": own["model"]
    }


def _sized(case: Case, side: int | None) -> dict[str, Any]:
    """The size of the images; a library's model brings its own."""
    model = str(case.value("model"))
    if side is None or case.is_typed("image_size") or (case.is_typed("model") and is_library_model(model)):
        return {}
    if case.is_typed("model") and not is_external_model(model):
        return {"image_size": nearest_image_size(model, side)}
    return {"image_size": side}


def _batch(case: Case) -> dict[str, Any]:
    """A power of two that leaves several updates in a pass over the images."""
    wished = max(_SMALLEST_BATCH, min(_LARGEST_BATCH, case.train_samples // _BATCHES_PER_PASS))
    return {"micro_batch_size": 1 << (wished.bit_length() - 1)}


def _even(side: int) -> int:
    return max(8, side // 8 * 8)
