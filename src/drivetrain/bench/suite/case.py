"""The cases of a suite: which there are, and the command that measures each. Imports no torch."""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal, get_args

from drivetrain.bench.result import plain_number
from drivetrain.core.errors import BadInputError

__all__ = [
    "DATASET",
    "VARIANTS",
    "WORKS",
    "Case",
    "SuiteSettings",
    "Variant",
    "Work",
    "all_cases",
    "series_name",
]

Work = Literal["infer", "train"]
Variant = Literal["eager", "captured", "compiled"]
WORKS: tuple[Work, ...] = get_args(Work)
VARIANTS: tuple[Variant, ...] = get_args(Variant)

# As in the published comparison: images and classes of CIFAR-10, enlarged, and Adam.
DATASET = "cifar10"
_TRAINING = ("--optimizer", "adam", "--learning-rate", "0.001")
_MOST_STEPS = 2000
_TRAIN_VARIANTS: dict[Variant, tuple[str, ...]] = {
    "eager": ("--compile", "off", "--capture", "off"),
    "captured": ("--compile", "off", "--capture", "auto"),
    "compiled": ("--compile", "on", "--capture", "auto"),
}
_INFER_VARIANTS: dict[Variant, tuple[str, ...]] = {
    "eager": ("--compile", "off"),
    "captured": ("--compile", "off", "--captured"),
    "compiled": ("--compile", "on"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSettings:
    """What all cases of a suite have in common; a folder holds results of one set of settings."""

    image_size: int = 224
    precision: str = "auto"
    num_threads: int | None = None
    warmup_steps: int = 4
    repeats: int = 3
    seconds: float = 1.0

    def __post_init__(self) -> None:
        for option, value, works in (("--image-size", self.image_size, 224), ("--repeats", self.repeats, 3)):
            if value < 1:
                raise BadInputError(f"{option} {value} must be at least 1; {option} {works} works.")
        if self.warmup_steps < 0:
            raise BadInputError(f"--warmup-steps {self.warmup_steps} must be at least 0; 4 works.")
        if not 0 < self.seconds < math.inf:
            raise BadInputError(
                f"--seconds {plain_number(self.seconds)} must be a number above 0; --seconds 1 works."
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)

    def options(self) -> list[str]:
        """The options of `bench train` and `bench infer` for these settings."""
        threads = [] if self.num_threads is None else ["--num-threads", str(self.num_threads)]
        return [
            *("--dataset", DATASET),
            *("--image-size", str(self.image_size)),
            *("--precision", self.precision),
            *threads,
            *("--warmup-steps", str(self.warmup_steps)),
            *("--steps", str(_MOST_STEPS)),
            *("--repeats", str(self.repeats)),
            *("--seconds", str(plain_number(self.seconds))),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: a network at a batch size, trained or not, on a device in one variant of execution."""

    device: str
    variant: Variant
    work: Work
    model: str
    batch_size: int

    @property
    def key(self) -> str:
        """The name of the case's files."""
        model = re.sub(r"[^\w.-]", "-", self.model)
        if model != self.model:
            # Two names may differ only in the characters that no file name has.
            model += f"-{hashlib.sha256(self.model.encode()).hexdigest()[:6]}"
        return f"{self.device.replace(':', '')}-{self.variant}-{self.work}-{model}-{self.batch_size}"

    @property
    def title(self) -> str:
        """The case in words."""
        return f"{self.work} {self.model} batch {self.batch_size}, {series_name(self.device, self.variant)}"

    def arguments(self, settings: SuiteSettings) -> list[str]:
        """The arguments of `drivetrain` that measure the case."""
        common = ["--model", self.model, *settings.options(), "--device", self.device]
        if self.work == "infer":
            own = ["--batch-sizes", str(self.batch_size), *_INFER_VARIANTS[self.variant]]
        else:
            size = ["--micro-batch-size", str(self.batch_size)]
            own = [*size, "--data", "device", *_TRAINING, *_TRAIN_VARIANTS[self.variant]]
        return ["bench", self.work, *common, *own]


def series_name(device: str, variant: str) -> str:
    """The name of all cases on one device in one variant."""
    return f"{device} {variant}"


def all_cases(
    *,
    devices: Sequence[str],
    variants: Sequence[Variant],
    works: Sequence[Work],
    models: Sequence[str],
    batch_sizes: Sequence[int],
) -> list[Case]:
    """All cases, one series after the other; updates are captured on CUDA devices only."""
    for size in batch_sizes:
        if size < 1:
            raise BadInputError(f"--batch-sizes {size} must be at least 1; --batch-sizes 1 32 works.")
    cases = [
        Case(device=device, variant=variant, work=work, model=model, batch_size=size)
        for device, variant, model, size, work in product(
            dict.fromkeys(devices),
            dict.fromkeys(variants),
            dict.fromkeys(models),
            dict.fromkeys(batch_sizes),
            dict.fromkeys(works),
        )
        if variant != "captured" or device.startswith("cuda")
    ]
    if not cases:
        raise BadInputError(
            f"--variants captured needs a CUDA device, not --device {' '.join(devices)}; --variants eager "
            "works."
        )
    return cases
