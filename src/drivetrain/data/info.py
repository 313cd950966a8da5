"""What is known of the named data sets without opening them."""

from dataclasses import dataclass

from drivetrain.errors import BadInputError
from drivetrain.suggest import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """Size and shape of a named data set, for the plan and for `drivetrain data list`."""

    name: str
    train_samples: int
    validation_samples: int
    channels: int
    height: int
    width: int
    num_classes: int
    class_names: tuple[str, ...]
    generated: bool
    needs_files: bool
    default_validation_fraction: float
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCounts:
    """How many samples a recipe trains, validates and tests on."""

    train: int
    validation: int
    test: int


_TEN_DIGITS = tuple(str(digit) for digit in range(10))

_DATASETS = (
    DatasetInfo(
        name="digits",
        train_samples=1797,
        validation_samples=0,
        channels=1,
        height=8,
        width=8,
        num_classes=10,
        class_names=_TEN_DIGITS,
        generated=False,
        needs_files=False,
        default_validation_fraction=0.2,
        description="scikit-learn's handwritten digits, part of the installation",
    ),
    DatasetInfo(
        name="mnist",
        train_samples=60000,
        validation_samples=10000,
        channels=1,
        height=28,
        width=28,
        num_classes=10,
        class_names=_TEN_DIGITS,
        generated=False,
        needs_files=True,
        default_validation_fraction=0.0,
        description="handwritten digits, from the four idx files in --data-dir",
    ),
    DatasetInfo(
        name="synthetic",
        train_samples=1024,
        validation_samples=256,
        channels=3,
        height=32,
        width=32,
        num_classes=10,
        class_names=_TEN_DIGITS,
        generated=True,
        needs_files=False,
        default_validation_fraction=0.0,
        description="patterns in noise, generated in any size, shape and number of classes",
    ),
)


def dataset_names() -> tuple[str, ...]:
    """The names `--dataset` knows, in alphabetical order."""
    return tuple(info.name for info in _DATASETS)


def dataset_info(name: str) -> DatasetInfo:
    """What is known of the data set `--dataset` names."""
    for info in _DATASETS:
        if info.name == name:
            return info
    known = dataset_names()
    raise BadInputError(
        f"--dataset {name} is no known data set.{did_you_mean(name, known, prefix='--dataset ')} "
        f"There are {', '.join(known)}, and package.module:factory for your own."
    )


def is_external_dataset(name: str) -> bool:
    """Whether `--dataset` names a user's own factory, as package.module:factory."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))


def generated_validation_samples(train_samples: int) -> int:
    """How many validation samples go with the training samples of a generated source."""
    return max(1, train_samples // 4)


def held_out_count(samples: int, *, fraction: float) -> int:
    """How many of the training samples `--validation-fraction` takes away from training."""
    if fraction == 0:
        return 0
    count = max(1, round(fraction * samples))
    if count >= samples:
        raise BadInputError(
            f"--validation-fraction {fraction} of {samples} samples leaves none for training; use a smaller "
            "one, or 0 for no validation samples."
        )
    return count


def sample_counts(
    info: DatasetInfo,
    *,
    dataset_size: int | None = None,
    validation_fraction: float | None = None,
    limit_train_samples: int | None = None,
    limit_validation_samples: int | None = None,
) -> SampleCounts:
    """The sizes of the splits by the rules of `open_data`, without touching data."""
    train = dataset_size or info.train_samples
    own = generated_validation_samples(train) if info.generated else info.validation_samples
    fraction = info.default_validation_fraction if validation_fraction is None else validation_fraction
    held_out = held_out_count(train, fraction=fraction)
    validation, test = (held_out, own) if held_out else (own, 0)
    return SampleCounts(
        train=min(train - held_out, limit_train_samples or train),
        validation=min(validation, limit_validation_samples or validation),
        test=test,
    )
