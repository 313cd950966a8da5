"""The networks among which the budget chooses, those that compute most first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drivetrain.auto.case import Case
from drivetrain.auto.rules.sizes import Size, is_tiny, sizes_for
from drivetrain.catalogue.models import model_info

__all__ = ["Network", "networks_for"]

# More layers need more images: with fewer, ResNet-18 generalises as well and computes less.
_SAMPLES_FOR_34_LAYERS = 5_000
_SAMPLES_FOR_50_LAYERS = 50_000
_WITHOUT_WIDTH = ("resnet50", "mnist_cnn")
_DENSE_WIDTHS = (48, 32, 16)
_DEEPEST, _SHALLOWEST = 5, 2
# The side of a U-Net's deepest layer, in pixels.
_DEEPEST_SIDE_PX = 8

_Ladder = list[tuple[dict[str, Any], float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network with the size of its images, as options of the recipe, and the work of an image.

    `work` compares networks of one list only. `reasons` has those of single options.
    """

    options: dict[str, Any]
    work: float
    side_px: int
    size_in_words: str
    reasons: dict[str, str]

    def __str__(self) -> str:
        width = self.options.get("model_width")
        return f"{self.options['model']}{f' of width {width}' if width else ''} on {self.size_in_words}"


def networks_for(case: Case) -> list[Network]:
    """The candidates; a typed model, width or size leaves only those that have it."""
    sizes = sizes_for(case)
    found = (_network(own, size, work=work) for size in sizes for own, work in _ladder(case, size))
    distinct: dict[str, Network] = {}
    for network in found:
        distinct.setdefault(str(sorted(network.options.items())), network)
    return sorted(distinct.values(), key=lambda network: -network.work)


def _network(own: dict[str, Any], size: Size, *, work: float) -> Network:
    reasons = dict.fromkeys(size.options, size.reason)
    if "model_params" in own:
        depth = own["model_params"]["depth"]
        reasons["model_params"] = (
            f"after {depth} poolings, about {max(1, size.side_px >> depth)} pixels of {size.side_px} are "
            "left; batch norm allows a high rate"
        )
    return Network(
        options=own | size.options,
        work=work * size.side_px**2,
        side_px=size.side_px,
        size_in_words=str(size),
        reasons=reasons,
    )


def _ladder(case: Case, size: Size) -> _Ladder:
    """Models with their work for one pixel."""
    if case.is_typed("model"):
        return [({"model": case.value("model")}, 1.0)]
    ladder = list(_dense(size) if case.is_dense else _tiny(case) if is_tiny(case) else _photographs(case))
    if case.is_typed("model_width"):
        ladder = [(own, work) for own, work in ladder if own["model"] not in _WITHOUT_WIDTH]
    dropped = [field for field in ("model_width", "model_params") if case.is_typed(field)]
    return [({f: v for f, v in own.items() if f not in dropped}, work) for own, work in ladder]


def _dense(size: Size) -> Iterator[tuple[dict[str, Any], float]]:
    for width in _DENSE_WIDTHS:
        params = {"norm": "batch", "depth": _depth(size.side_px)}
        # An estimate, only for the order in which to time: full-width layers use a device better.
        yield {"model": "unet_same", "model_width": width, "model_params": params}, width**1.8


def _depth(side: int) -> int:
    return max(_SHALLOWEST, min(_DEEPEST, (side // _DEEPEST_SIDE_PX).bit_length() - 1))


def _tiny(case: Case) -> Iterator[tuple[dict[str, Any], float]]:
    yield {"model": "cifar_resnet20", "model_width": 64}, 16.0
    yield {"model": "cifar_resnet20", "model_width": 32}, 4.0
    yield {"model": "cifar_resnet20"}, 1.0
    yield {"model": "cifar_resnet8"}, 0.3
    if case.fingerprint.channels == 1 and case.shorter_side_px >= model_info("mnist_cnn").min_image_size:
        yield {"model": "mnist_cnn"}, 0.1


def _photographs(case: Case) -> Iterator[tuple[dict[str, Any], float]]:
    yield {"model": "resnet18"}, 1.8
    yield {"model": "resnet18", "model_width": 32}, 0.5
    if case.train_samples >= _SAMPLES_FOR_34_LAYERS:
        yield {"model": "resnet34"}, 3.6
    if case.train_samples >= _SAMPLES_FOR_50_LAYERS:
        yield {"model": "resnet50"}, 4.1
