"""The named models and the image sizes they accept, without torch; a family is one file and one entry."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from drivetrain.catalogue.data_sets import dataset_task
from drivetrain.catalogue.libraries import is_library_model, library_of, library_task
from drivetrain.catalogue.tasks import DEFAULT_TASK, TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

_EXTERNAL_SYNTAX = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def padded_size(size: int, *, depth: int) -> int:
    """The side to which a network that halves the image `depth` times pads it."""
    before, after = missing_to_multiple(size, multiple=2**depth)
    return before + size + after


def missing_to_multiple(size: int, *, multiple: int) -> tuple[int, int]:
    """Padding before and after a dimension that makes it a multiple; an odd pixel goes after."""
    missing = -size % multiple
    return missing // 2, missing - missing // 2


def nearest_sizes(size: int, *, smallest: int, step: int) -> tuple[int, int]:
    """The largest of smallest, smallest + step, ... that is at most `size`, and the next one."""
    below = smallest + (size - smallest) // step * step
    return below, below + step


@dataclass(frozen=True)
class ModelInfo:
    """A named model before it is built, with the image shape that it was designed for.

    `image_size` is the side of the output. A model with an output margin reads that many more pixels on
    each side of it, as the U-Net without padding does.
    """

    name: str
    factory: str
    """`module:function`, imported when the model is built."""
    channels: int
    image_size: int
    num_classes: int
    min_image_size: int
    description: str
    task: TaskName = DEFAULT_TASK
    output_margin: int = 0
    image_size_step: int = 1
    """The valid image sizes are min_image_size, min_image_size + image_size_step, ..."""


@dataclass(frozen=True)
class _Family:
    """One file of `drivetrain.models.zoo`; `variants` maps its factory functions to descriptions."""

    module: str
    channels: int
    image_size: int
    num_classes: int
    min_image_size: int
    variants: Mapping[str, str]
    task: TaskName = DEFAULT_TASK
    output_margin: int = 0
    image_size_step: int = 1

    def models(self) -> list[ModelInfo]:
        return [
            ModelInfo(
                name=name,
                factory=f"drivetrain.models.zoo.{self.module}:{name}",
                channels=self.channels,
                image_size=self.image_size,
                num_classes=self.num_classes,
                min_image_size=self.min_image_size,
                description=description,
                task=self.task,
                output_margin=self.output_margin,
                image_size_step=self.image_size_step,
            )
            for name, description in self.variants.items()
        ]


_FAMILIES = (
    _Family(
        module="toy_model",
        channels=3,
        image_size=32,
        num_classes=10,
        min_image_size=27,
        variants={"toy_model": "two small convolutions, to try things out"},
    ),
    _Family(
        module="mnist_cnn",
        channels=1,
        image_size=28,
        num_classes=10,
        min_image_size=10,
        variants={"mnist_cnn": "two convolutions with dropout, for handwritten digits"},
    ),
    _Family(
        module="cifar_resnet",
        channels=3,
        image_size=32,
        num_classes=10,
        min_image_size=1,
        variants={
            f"cifar_resnet{depth}": f"residual network of {depth} layers for small images"
            for depth in (8, 20, 32, 44, 56)
        },
    ),
    _Family(
        module="resnet",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=1,
        variants={
            f"resnet{depth}": f"residual network of {depth} layers for photographs"
            for depth in (18, 34, 50, 101, 152)
        },
    ),
    _Family(
        module="lenet",
        channels=3,
        image_size=32,
        num_classes=10,
        min_image_size=4,
        variants={"lenet": "two convolutions and three dense layers, for small images"},
    ),
    _Family(
        module="photographs.alexnet",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=63,
        variants={"alexnet": "five convolutions and three dense layers, for photographs"},
    ),
    _Family(
        module="photographs.inception_v3",
        channels=3,
        image_size=299,
        num_classes=1000,
        min_image_size=75,
        variants={"inception_v3": "blocks of parallel convolutions, for photographs"},
    ),
    _Family(
        module="photographs.resnet_v1",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=1,
        variants={
            f"resnet{depth}v1": f"residual network of {depth} layers with biases, as Keras has it"
            for depth in (50, 101, 152)
        },
    ),
    _Family(
        module="photographs.resnet_v2",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=1,
        variants={
            f"resnet{depth}v2": f"residual network of {depth} layers with norms before convolutions"
            for depth in (50, 101, 152)
        },
    ),
    _Family(
        module="photographs.vgg",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=32,
        variants={f"vgg{depth}": f"plain network of {depth} layers, for photographs" for depth in (16, 19)},
    ),
    _Family(
        module="photographs.xception",
        channels=3,
        image_size=299,
        num_classes=1000,
        min_image_size=7,
        variants={"xception": "separable convolutions with residual connections, for photographs"},
    ),
    _Family(
        module="photographs.mobilenet",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=31,
        variants={"mobilenet": "depthwise and 1x1 convolutions, for small devices"},
    ),
    _Family(
        module="photographs.mobilenet_v2",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=1,
        variants={"mobilenet_v2": "inverted residual blocks, for small devices"},
    ),
    _Family(
        module="photographs.mobilenet_v3",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=1,
        variants={
            f"mobilenet_v3_{size}": f"inverted residual blocks with squeeze-and-excitation, {size}"
            for size in ("small", "large")
        },
    ),
    _Family(
        module="photographs.densenet",
        channels=3,
        image_size=224,
        num_classes=1000,
        min_image_size=29,
        variants={
            f"densenet{depth}": f"densely connected network of {depth} layers for photographs"
            for depth in (121, 169, 201)
        },
    ),
    *(
        _Family(
            module="photographs.efficientnet",
            channels=3,
            image_size=image_size,
            num_classes=1000,
            min_image_size=1,
            variants={f"efficientnet_{size}": f"EfficientNet {size.upper()}, for {image_size} pixels"},
        )
        for size, image_size in (("b0", 224), ("b1", 240), ("b2", 260), ("b3", 300))
    ),
    _Family(
        module="unet",
        channels=1,
        image_size=388,
        num_classes=2,
        min_image_size=4,
        variants={
            "unet": "segmentation: the U-Net without padding, up-convolutions of 2 x 2",
            "unet_medical": "segmentation: the U-Net without padding, up-convolutions of 3 x 3",
        },
        task="segmentation",
        output_margin=92,
        image_size_step=16,
    ),
    _Family(
        module="unet_same",
        channels=1,
        image_size=256,
        num_classes=2,
        min_image_size=1,
        variants={"unet_same": "segmentation: a padded U-Net for any image size; depth, width and norm vary"},
        task="segmentation",
    ),
)


_MODELS = {info.name: info for family in _FAMILIES for info in family.models()}


def model_names() -> list[str]:
    """The names that `--model` accepts."""
    return list(_MODELS)


def find_models(pattern: str | None) -> list[ModelInfo]:
    """The models that match a shell pattern, ignoring case; a word without wildcards matches anywhere."""
    if pattern is None:
        return list(_MODELS.values())
    folded = pattern.lower()
    if not any(character in folded for character in "*?["):
        folded = f"*{folded}*"
    return [info for info in _MODELS.values() if fnmatchcase(info.name.lower(), folded)]


def model_info(name: str) -> ModelInfo:
    """The entry of a named model; raises BadInputError for an unknown name."""
    if name not in _MODELS:
        raise BadInputError(
            f"--model {name} is not a known model.{did_you_mean(name, _MODELS)} "
            f"Models: {', '.join(_MODELS)}, a library's model such as timm/resnet18, or "
            "package.module:factory for your own."
        )
    return _MODELS[name]


def is_external_model(name: str) -> bool:
    """Whether a model is not one of Drivetrain's own: a user's factory, or a library's model."""
    return ":" in name or is_library_model(name)


def has_factory_form(name: str) -> bool:
    """Whether a name has the form package.module:factory."""
    return _EXTERNAL_SYNTAX.fullmatch(name) is not None


def output_margin_of(name: str) -> int:
    """Pixels on each side that a model reads but its output does not cover; 0 for a user's own model."""
    return 0 if is_external_model(name) else model_info(name).output_margin


def check_model_name(name: str) -> None:
    """Refuses unknown names; of a user's own factory only the form, of a library's model only the library."""
    if is_library_model(name):
        library_of(name).require_package()
    elif not is_external_model(name):
        model_info(name)
    elif not has_factory_form(name):
        raise BadInputError(
            f"--model {name} does not have the form package.module:factory, as in my_models:create_net."
        )


def check_image_size(info: ModelInfo, image_size: int) -> None:
    """Refuses images that a named model would shrink to nothing, or cannot halve evenly."""
    if image_size < info.min_image_size:
        raise BadInputError(
            f"--image-size {image_size} is too small for {info.name}; "
            f"the smallest that works is --image-size {info.min_image_size}."
        )
    below, above = nearest_sizes(image_size, smallest=info.min_image_size, step=info.image_size_step)
    if image_size != below:
        raise BadInputError(
            f"Images or tiles of {image_size} pixels do not fit {info.name}; the nearest sizes that work are "
            f"--image-size (or --tile-size) {below} and {above}."
        )


def nearest_image_size(name: str, image_size: int) -> int:
    """The valid image size nearest to `image_size`; a user's own model is assumed to accept any size."""
    if is_external_model(name):
        return image_size
    info = model_info(name)
    wished = max(image_size, info.min_image_size)
    below, above = nearest_sizes(wished, smallest=info.min_image_size, step=info.image_size_step)
    return below if wished - below <= above - wished else above


def model_task(name: str) -> TaskName | None:
    """The task of a model; None where its name does not tell it, as for a user's own."""
    if is_library_model(name):
        return library_task(name)
    return None if is_external_model(name) else model_info(name).task


def named_task(*, dataset: str, model: str) -> TaskName | None:
    """The task given by the names of data set and model; None if both are a user's own."""
    return dataset_task(dataset) or model_task(model)
