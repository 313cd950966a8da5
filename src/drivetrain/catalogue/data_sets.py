"""The named data sets: sizes, shapes, classes, origin and licence, without opening their files."""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain.catalogue.tasks import DEFAULT_TASK, TaskName, task_info
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

# Class names of the data sets whose files do not contain them.
TEN_DIGITS = tuple(str(digit) for digit in range(10))
_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
    lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal
    shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR10 = tuple(_CIFAR10.split())
CIFAR100 = tuple(_CIFAR100.split())
MEMBRANE = "membrane"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """Size and shape of a named data set, for the plan and for `drivetrain data list`.

    A number is 0 if it is known only from the files.
    """

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
    origin: str
    licence: str
    task: TaskName = DEFAULT_TASK

    @property
    def is_sized(self) -> bool:
        """Whether the number of samples is known without the files."""
        return self.train_samples > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCounts:
    """Number of training, validation and test samples of a recipe."""

    train: int
    validation: int
    test: int


_AUGMENTED_BY_DEFAULT = ("cifar10", "imagenet")


_OWN_FILES, _OWN_LICENCE = "your own files", "your own"


_MEMBRANE_AND_CELL = ("membrane", "cell")


_DATASETS = (
    DatasetInfo(
        name="cifar10",
        train_samples=50000,
        validation_samples=10000,
        channels=3,
        height=32,
        width=32,
        num_classes=10,
        class_names=CIFAR10,
        generated=False,
        needs_files=True,
        default_validation_fraction=0.0,
        description="small photographs, read from the binary or python files in --data-dir",
        origin="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; its authors ask to be cited (Krizhevsky 2009)",
    ),
    DatasetInfo(
        name="cifar100",
        train_samples=50000,
        validation_samples=10000,
        channels=3,
        height=32,
        width=32,
        num_classes=100,
        class_names=CIFAR100,
        generated=False,
        needs_files=True,
        default_validation_fraction=0.0,
        description="small photographs with fine labels, read from the binary or python files in --data-dir",
        origin="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; its authors ask to be cited (Krizhevsky 2009)",
    ),
    DatasetInfo(
        name="digits",
        train_samples=1797,
        validation_samples=0,
        channels=1,
        height=8,
        width=8,
        num_classes=10,
        class_names=TEN_DIGITS,
        generated=False,
        needs_files=False,
        default_validation_fraction=0.2,
        description="scikit-learn's handwritten digits, part of the installation",
        origin="scikit-learn (UCI optical recognition of handwritten digits)",
        licence="CC BY 4.0",
    ),
    DatasetInfo(
        name="image-folder",
        train_samples=0,
        validation_samples=0,
        channels=3,
        height=0,
        width=0,
        num_classes=0,
        class_names=(),
        generated=False,
        needs_files=True,
        default_validation_fraction=0.2,
        description="--data-dir DIR with DIR/CLASS/*.jpg, or DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg",
        origin=_OWN_FILES,
        licence=_OWN_LICENCE,
    ),
    DatasetInfo(
        name="image-table",
        train_samples=0,
        validation_samples=0,
        channels=3,
        height=0,
        width=0,
        num_classes=0,
        class_names=(),
        generated=False,
        needs_files=True,
        default_validation_fraction=0.2,
        description="images whose classes stand in a table: --data-dir DIR with DIR/labels.csv, whose header "
        "may be file,label",
        origin=_OWN_FILES,
        licence=_OWN_LICENCE,
    ),
    DatasetInfo(
        name="imagenet",
        train_samples=1281167,
        validation_samples=50000,
        channels=3,
        height=224,
        width=224,
        num_classes=1000,
        class_names=tuple(str(index) for index in range(1000)),
        generated=False,
        needs_files=True,
        default_validation_fraction=0.2,
        description="ILSVRC 2012 photographs, from DIR/train/CLASS and DIR/val/CLASS in --data-dir DIR",
        origin="https://www.image-net.org (needs an account)",
        licence="non-commercial research and education, terms at image-net.org",
    ),
    DatasetInfo(
        name="isbi2012",
        train_samples=30,
        validation_samples=0,
        channels=1,
        height=512,
        width=512,
        num_classes=2,
        class_names=_MEMBRANE_AND_CELL,
        generated=False,
        needs_files=True,
        default_validation_fraction=0.2,
        description="electron micrographs of a fly's nerve cord, from train-volume.tif and train-labels.tif "
        "in --data-dir",
        origin="https://imagej.net/events/isbi-2012-segmentation-challenge",
        licence="free to use for generating or testing non-commercial image segmentation software; cite "
        "Cardona et al. 2010, PLoS Biol 8(10):e1000502",
        task="segmentation",
    ),
    DatasetInfo(
        name="mask-folder",
        train_samples=0,
        validation_samples=0,
        channels=3,
        height=0,
        width=0,
        num_classes=0,
        class_names=(),
        generated=False,
        needs_files=True,
        default_validation_fraction=0.2,
        description="images with masks: --data-dir DIR with DIR/images/x.png and DIR/masks/x.png, or x.png "
        "and x_mask.png",
        task="segmentation",
        origin=_OWN_FILES,
        licence=_OWN_LICENCE,
    ),
    DatasetInfo(
        name="mnist",
        train_samples=60000,
        validation_samples=10000,
        channels=1,
        height=28,
        width=28,
        num_classes=10,
        class_names=TEN_DIGITS,
        generated=False,
        needs_files=True,
        default_validation_fraction=0.0,
        description="handwritten digits, from the four idx files in --data-dir",
        origin="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0",
    ),
    DatasetInfo(
        name="packed",
        train_samples=0,
        validation_samples=0,
        channels=3,
        height=0,
        width=0,
        num_classes=0,
        class_names=(),
        generated=False,
        needs_files=True,
        default_validation_fraction=0.2,
        description="an image folder packed by `drivetrain data pack`, in --data-dir",
        origin=_OWN_FILES,
        licence=_OWN_LICENCE,
    ),
    DatasetInfo(
        name="synthetic",
        train_samples=1024,
        validation_samples=256,
        channels=3,
        height=32,
        width=32,
        num_classes=10,
        class_names=TEN_DIGITS,
        generated=True,
        needs_files=False,
        default_validation_fraction=0.0,
        description="patterns in noise, generated in any size, shape and number of classes",
        origin="generated",
        licence="free of any",
    ),
    DatasetInfo(
        name="synthetic-em",
        train_samples=48,
        validation_samples=12,
        channels=1,
        height=128,
        width=128,
        num_classes=2,
        class_names=_MEMBRANE_AND_CELL,
        generated=True,
        needs_files=False,
        default_validation_fraction=0.0,
        description="cells and membranes as an electron microscope shows them, generated in any size",
        origin="generated",
        licence="free of any",
        task="segmentation",
    ),
)


_ALIASES = {"gc-imagenet": "imagenet"}


def dataset_names() -> tuple[str, ...]:
    """The names `--dataset` knows, in alphabetical order."""
    return tuple(info.name for info in _DATASETS)


def dataset_info(name: str) -> DatasetInfo:
    """The entry of a named data set; raises BadInputError for an unknown name."""
    meant = _ALIASES.get(name, name)
    for info in _DATASETS:
        if info.name == meant:
            return info
    known = dataset_names()
    raise BadInputError(
        f"--dataset {name} is not a known data set.{did_you_mean(name, known, prefix='--dataset ')} "
        f"Data sets: {', '.join(known)}, or package.module:factory for your own."
    )


def is_external_dataset(name: str) -> bool:
    """Whether `--dataset` names a user's own factory, as package.module:factory."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))


def folder_warnings(name: str, *, folder: str | None) -> list[str]:
    """Says if `--data-dir` names a folder that the data set does not read."""
    if folder is None or is_external_dataset(name) or dataset_info(name).needs_files:
        return []
    return [f"--data-dir {folder} has no effect: --dataset {dataset_info(name).name} needs no files."]


def is_folder_of_files(name: str) -> bool:
    """Whether the data set is a user's own folder, such as image-folder, not a fixed, published set."""
    return not is_external_dataset(name) and dataset_info(name).origin == _OWN_FILES


def dataset_task(name: str) -> TaskName | None:
    """The task of a data set; None for a user's own factory, whose task is known once it is opened."""
    return None if is_external_dataset(name) else dataset_info(name).task


def is_augmented_by_default(name: str) -> bool:
    """Whether a classification data set is augmented unless --augment says otherwise."""
    return not is_external_dataset(name) and dataset_info(name).name in _AUGMENTED_BY_DEFAULT


def default_augmentation(name: str) -> str:
    """The default of --augment for a data set, as text; a user's own counts as classification."""
    of_task = task_info(dataset_task(name) or DEFAULT_TASK).default_augmentation
    return str(is_augmented_by_default(name)) if of_task is None else of_task


def generated_validation_samples(train_samples: int) -> int:
    """Number of validation samples of a generated data set: a quarter of its training samples."""
    return max(1, train_samples // 4)


def default_share(info: DatasetInfo, *, has_validation: bool) -> float:
    """The default validation fraction: 0 if the data set has validation samples of its own."""
    return 0.0 if has_validation else info.default_validation_fraction


def held_out_count(samples: int, *, fraction: float) -> int:
    """Number of training samples that `--validation-fraction` holds out for validation."""
    if fraction == 0:
        return 0
    count = max(1, round(fraction * samples))
    if count >= samples:
        if samples == 1:
            raise BadInputError(
                f"--validation-fraction {fraction} of a single sample leaves none for training; "
                "--validation-fraction 0 --remainder pad trains on it and validates on none."
            )
        raise BadInputError(
            f"--validation-fraction {fraction} of {samples} samples leaves none for training; "
            f"--validation-fraction 0.2 holds {held_out_count(samples, fraction=0.2)} out, and 0 none."
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
    """The sizes of the splits by the rules of `open_data`, without opening the data set."""
    train = dataset_size or info.train_samples
    own = generated_validation_samples(train) if info.generated else info.validation_samples
    share = (
        default_share(info, has_validation=own > 0) if validation_fraction is None else validation_fraction
    )
    held_out = held_out_count(train, fraction=share)
    validation, test = (held_out, own) if held_out else (own, 0)
    return SampleCounts(
        train=min(train - held_out, limit_train_samples or train),
        validation=min(validation, limit_validation_samples or validation),
        test=test,
    )


def background_class(class_names: Sequence[str]) -> int:
    """The index of the background class: `membrane` if there is one, else the first class."""
    return class_names.index(MEMBRANE) if MEMBRANE in class_names else 0
