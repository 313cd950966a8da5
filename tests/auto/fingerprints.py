"""Fingerprints of data that do not exist, the rules' decisions about them, and a clock that is no clock."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drivetrain.auto.case import Case, DeviceFacts
from drivetrain.auto.decide import decide
from drivetrain.data.fingerprint.fingerprint import Asymmetry, Fingerprint, ObjectSizes, Spread

__all__ = ["ACCELERATOR", "CPU", "KINDS", "FakeTimer", "case_of", "decided", "photographs", "with_sizes"]

CPU = DeviceFacts(name="a CPU", is_accelerator=False, cores=4)
ACCELERATOR = DeviceFacts(name="an accelerator", is_accelerator=True, cores=8)

_FACTORS = {"cifar_resnet20": 1.0, "cifar_resnet8": 0.3, "mnist_cnn": 0.1, "resnet34": 3.6, "resnet50": 4.1}


class FakeTimer:
    """Seconds of a sample that grow with its pixels, the model and its width; remembers what it timed."""

    def __init__(self, *, pixel_s: float) -> None:
        self._pixel_s = pixel_s
        self.timed: list[dict[str, Any]] = []

    def __call__(self, options: Mapping[str, Any]) -> float:
        self.timed.append(dict(options))
        side = options.get("image_size") or options.get("tile_size") or 64
        factor = _FACTORS.get(str(options.get("model")), 1.8) * (options.get("model_width") or 64) / 64
        return float(self._pixel_s * factor * int(side) ** 2)


def photographs(**changes: Any) -> Fingerprint:
    """800 colour photographs of four classes, of many sizes; left and right mean the same."""
    known: dict[str, Any] = {
        "dataset": "image-folder",
        "task": "classification",
        "samples": {"train": 800},
        "measured": 800,
        "channels": 3,
        "bits": 8,
        "height_px": Spread(200.0, 375.0, 500.0),
        "width_px": Spread(220.0, 500.0, 640.0),
        "class_names": ("ant", "bee", "cat", "dog"),
        "class_counts": (200, 200, 200, 200),
        "pixel_shares": (),
        "objects": None,
        "mean": (0.48, 0.45, 0.4),
        "std": (0.25, 0.24, 0.26),
        "asymmetry": Asymmetry(left_right=0.04, up_down=0.7, quarter_turn=0.6),
        "unreadable": (),
        "duplicates": None,
        "groups": None,
    }
    return Fingerprint(**{**known, **changes})


def with_sizes(found: Fingerprint, *, height: float, width: float) -> Fingerprint:
    """The same data, all of one size."""
    return replace(found, height_px=Spread(*[height] * 3), width_px=Spread(*[width] * 3))


def _small(**changes: Any) -> Fingerprint:
    return with_sizes(photographs(**changes), height=28.0, width=28.0)


_GREY: dict[str, Any] = {"channels": 1, "mean": (0.13,), "std": (0.3,)}
_MASKS: dict[str, Any] = {
    "dataset": "mask-folder",
    "task": "segmentation",
    "samples": {"train": 90, "validation": 30},
    "class_names": ("background", "cell"),
    "class_counts": (90, 88),
    "pixel_shares": (0.9, 0.1),
    "objects": ObjectSizes(diameter_px=Spread(3.0, 20.0, 90.0), per_image=12.0),
    "asymmetry": Asymmetry(left_right=0.02, up_down=0.05, quarter_turn=0.01),
}
_NO_ASYMMETRY: dict[str, Any] = {"asymmetry": None}
_MASKED = photographs(**_MASKS)

KINDS: dict[str, Fingerprint] = {
    "photographs": photographs(),
    "own validation": photographs(samples={"train": 1000, "validation": 300, "test": 10}),
    "unbalanced": photographs(class_counts=(760, 20, 19, 1)),
    "ten images": photographs(samples={"train": 10}, class_counts=(4, 2, 3, 1), **_NO_ASYMMETRY),
    "two images": photographs(samples={"train": 2}, class_counts=(1, 1, 0, 0), **_NO_ASYMMETRY),
    "one validation image": photographs(samples={"train": 3, "validation": 1}, class_counts=(3, 0, 0, 0)),
    "a class without images": photographs(class_counts=(400, 400, 0, 0)),
    "huge": photographs(samples={"train": 100_000}, class_counts=(25_000,) * 4, measured=1000),
    "huge and unbalanced": photographs(samples={"train": 3_000_000}, class_counts=(2_999_997, 1, 1, 1)),
    "grey files in colour": photographs(read_channels=3, **_GREY),
    "medium images": with_sizes(photographs(), height=60.0, width=52.0),
    "wide images": with_sizes(photographs(), height=100.0, width=2000.0),
    "tiny images": _small(samples={"train": 50_000, "validation": 10_000}),
    "tiny grey images": _small(samples={"train": 60_000, "validation": 10_000}, read_channels=3, **_GREY),
    "tiny and not square": with_sizes(photographs(), height=20.0, width=40.0),
    "tiny of many sizes": photographs(height_px=Spread(9.0, 30.0, 70.0), width_px=Spread(5.0, 33.0, 80.0)),
    "minute": with_sizes(photographs(), height=5.0, width=4.0),
    "mnist": _small(
        dataset="mnist", samples={"train": 60_000, "validation": 10_000}, read_channels=1, **_GREY
    ),
    "cifar10": with_sizes(photographs(dataset="cifar10"), height=32.0, width=32.0),
    "packed": photographs(dataset="packed"),
    "masks": _MASKED,
    "masks of one size": with_sizes(_MASKED, height=256.0, width=320.0),
    "odd masks of one size": with_sizes(_MASKED, height=123.0, width=77.0),
    "large masks of one size": with_sizes(_MASKED, height=1024.0, width=2048.0),
    "small masks": photographs(
        **_MASKS | {"height_px": Spread(20.0, 30.0, 41.0), "width_px": Spread(20, 31, 44)}
    ),
    "two masks": photographs(**_MASKS | {"samples": {"train": 2}, "class_counts": (2, 1)} | _NO_ASYMMETRY),
    "masks that are all background": photographs(
        **_MASKS | {"objects": None, "class_counts": (90, 0), "pixel_shares": (1.0, 0.0)}
    ),
    "grey masks": photographs(**_MASKS | _GREY | {"read_channels": 1}),
    "grey 16-bit masks": photographs(**_MASKS | _GREY | {"read_channels": 1, "bits": 16}),
    "street scenes": with_sizes(
        photographs(
            **_MASKS
            | {
                "class_names": tuple(f"class {n}" for n in range(12)),
                "class_counts": (90,) * 12,
                "pixel_shares": (1 / 12,) * 12,
                "asymmetry": Asymmetry(left_right=0.1, up_down=1.7, quarter_turn=1.2),
            }
        ),
        height=360.0,
        width=480.0,
    ),
    "isbi2012": with_sizes(
        photographs(
            **_MASKS
            | _GREY
            | {"dataset": "isbi2012", "samples": {"train": 30}, "class_counts": (30, 30), "read_channels": 1}
            | _NO_ASYMMETRY
        ),
        height=512.0,
        width=512.0,
    ),
}


def decided(
    found: Fingerprint,
    typed: Mapping[str, Any] | None = None,
    *,
    pixel_s: float = 1e-7,
    left_s: float = 600.0,
    device: DeviceFacts = CPU,
) -> Case:
    """What the rules decide, with times that grow with pixels."""
    return decide(
        found, device=device, typed=typed or {}, time=FakeTimer(pixel_s=pixel_s), left_s=lambda: left_s
    )


def case_of(found: Fingerprint, typed: Mapping[str, Any] | None = None, *, device: DeviceFacts = CPU) -> Case:
    """A case without any decision."""
    return Case(fingerprint=found, device=device, typed=typed or {})
