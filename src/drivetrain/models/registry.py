"""The models there are, by name, without importing torch: one family is one file and one entry here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from drivetrain.errors import BadInputError
from drivetrain.suggest import did_you_mean

_EXTERNAL_SYNTAX = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model before it is built; the sizes are those it is made for."""

    name: str
    factory: str
    """`module:function`, imported when the model is built."""
    channels: int
    image_size: int
    num_classes: int
    min_image_size: int
    description: str


@dataclass(frozen=True)
class _Family:
    """One file of this package; `variants` maps the names of its factory functions to descriptions."""

    module: str
    channels: int
    image_size: int
    num_classes: int
    min_image_size: int
    variants: Mapping[str, str]

    def models(self) -> list[ModelInfo]:
        return [
            ModelInfo(
                name=name,
                factory=f"drivetrain.models.{self.module}:{name}",
                channels=self.channels,
                image_size=self.image_size,
                num_classes=self.num_classes,
                min_image_size=self.min_image_size,
                description=description,
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
)

_MODELS = {info.name: info for family in _FAMILIES for info in family.models()}


def model_names() -> list[str]:
    """The names `--model` knows."""
    return list(_MODELS)


def find_models(pattern: str | None) -> list[ModelInfo]:
    """The models a shell pattern matches, whatever the case; a bare word matches inside a name."""
    if pattern is None:
        return list(_MODELS.values())
    folded = pattern.lower()
    if not any(character in folded for character in "*?["):
        folded = f"*{folded}*"
    return [info for info in _MODELS.values() if fnmatchcase(info.name.lower(), folded)]


def model_info(name: str) -> ModelInfo:
    """The registered model of this name."""
    if name not in _MODELS:
        raise BadInputError(
            f"--model {name} is not known.{did_you_mean(name, _MODELS)} "
            f"Models: {', '.join(_MODELS)}, or package.module:factory for your own."
        )
    return _MODELS[name]


def is_external_model(name: str) -> bool:
    """Whether a name points at a user's own factory (`package.module:factory`)."""
    return ":" in name


def has_factory_form(name: str) -> bool:
    """Whether a name has the form package.module:factory."""
    return _EXTERNAL_SYNTAX.fullmatch(name) is not None


def check_model_name(name: str) -> None:
    """Refuses a name that cannot be a model; a user's own factory is checked for its form alone."""
    if not is_external_model(name):
        model_info(name)
    elif not has_factory_form(name):
        raise BadInputError(
            f"--model {name} does not have the form package.module:factory, as in my_models:create_net."
        )


def check_image_size(info: ModelInfo, image_size: int) -> None:
    """Refuses images that a registered model's layers would shrink to nothing."""
    if image_size < info.min_image_size:
        raise BadInputError(
            f"--image-size {image_size} is too small for {info.name}; "
            f"the smallest that works is --image-size {info.min_image_size}."
        )
