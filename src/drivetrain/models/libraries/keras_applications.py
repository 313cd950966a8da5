"""The classifiers of keras.applications, on Keras's torch backend."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from drivetrain.catalogue.tasks import TaskName
from drivetrain.models.from_keras.model import lower_model
from drivetrain.models.from_keras.package import import_keras
from drivetrain.models.from_keras.python_random import seeded_python
from drivetrain.models.libraries.library import LibraryModel
from drivetrain.models.libraries.params import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    attempt,
    refuse_option_keywords,
    unknown_name,
)

__all__ = ["KerasApplications"]

_OPTIONS = {
    "classes": "--num-classes",
    "input_shape": "--image-size and --channels",
    "weights": "--pretrained",
    "include_top": "--num-classes",
    "input_tensor": "--image-size",
}
_CLASSES, _COLOURS = 1000, 3
# The sides of the images of their weights; the code of Keras holds them in the bodies of functions.
_SIDES = {
    "EfficientNetB1": 240,
    "EfficientNetB2": 260,
    "EfficientNetB3": 300,
    "EfficientNetB4": 380,
    "EfficientNetB5": 456,
    "EfficientNetB6": 528,
    "EfficientNetB7": 600,
    "EfficientNetV2B1": 240,
    "EfficientNetV2B2": 260,
    "EfficientNetV2B3": 300,
    "EfficientNetV2S": 384,
    "EfficientNetV2M": 480,
    "EfficientNetV2L": 480,
    "InceptionResNetV2": 299,
    "InceptionV3": 299,
    "NASNetLarge": 331,
    "Xception": 299,
}
_SIDE = 224
_SMALLEST = {"Inception": 75, "Xception": 71}
_SMALLEST_SIDE = 32
_Colours = tuple[float, float, float]
# What `preprocess_input` of their modules does, and the layers for it that a model begins with.
_CENTRED: tuple[_Colours, _Colours] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_IMAGENET: tuple[_Colours, _Colours] = (IMAGENET_MEAN, IMAGENET_STD)
_MEAN_REMOVED: tuple[_Colours, _Colours] = (
    (123.68 / 255, 116.779 / 255, 103.939 / 255),
    (1 / 255, 1 / 255, 1 / 255),
)
_AS_BYTES: tuple[_Colours, _Colours] = ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))
_NORMALISATIONS = {
    "ConvNeXt": _IMAGENET,
    "DenseNet": _IMAGENET,
    "EfficientNetV2B": _IMAGENET,
    "EfficientNetB": _AS_BYTES,
    r"ResNet\d+$": _MEAN_REMOVED,
    "VGG": _MEAN_REMOVED,
}


class KerasApplications:
    """The models of keras.applications; layers have the names that they have in Keras."""

    def names(self) -> list[str]:
        """The functions of keras.applications that make a model."""
        applications = import_keras().applications
        return sorted(name for name in dir(applications) if inspect.isfunction(getattr(applications, name)))

    def facts(self, name: str, *, params: Mapping[str, Any]) -> LibraryModel:
        """Side and normalisation of the images that the weights of the original were trained on."""
        refuse_option_keywords(params, _OPTIONS)
        if name not in self.names():
            raise unknown_name(name, self.names(), prefix="keras", what="a model of keras.applications")
        mean, std = _of_start(_NORMALISATIONS, name, otherwise=_CENTRED)
        return LibraryModel(
            name=f"keras/{name}",
            channels=_COLOURS,
            num_classes=_CLASSES,
            image_size=_SIDES.get(name, _SIDE),
            task="classification",
            mean=mean,
            std=std,
            min_image_size=_of_start(_SMALLEST, name, otherwise=_SMALLEST_SIDE),
            description=_description(name),
        )

    def build(
        self,
        name: str,
        *,
        channels: int,
        image_size: int,
        num_classes: int,
        task: TaskName,  # noqa: ARG002
        params: Mapping[str, Any],
    ) -> nn.Module:
        """The model as a torch module, with random weights and without a softmax at its end."""
        make = getattr(import_keras().applications, name)
        shape = {"input_shape": _in_keras(channels, image_size), "classes": num_classes, "weights": None}
        # Images are normalised before they reach the model.
        has_own = "include_preprocessing" in inspect.signature(make).parameters
        plain = {"include_preprocessing": False} if has_own else {}
        with seeded_python(int(torch.randint(1 << 62, ()))):
            model = attempt(
                lambda: make(**shape, classifier_activation=None, **{**plain, **params}), name=f"keras/{name}"
            )
        return lower_model(model, sample_shape=(channels, image_size, image_size)).module


def _in_keras(channels: int, side: int) -> tuple[int, int, int]:
    is_last = import_keras().config.image_data_format() == "channels_last"
    return (side, side, channels) if is_last else (channels, side, side)


def _of_start(table: Mapping[str, Any], name: str, *, otherwise: Any) -> Any:
    """The entry whose pattern matches the start of a name."""
    return next((value for pattern, value in table.items() if re.match(pattern, name)), otherwise)


def _description(name: str) -> str:
    lines = (getattr(import_keras().applications, name).__doc__ or "").strip().splitlines()
    return lines[0].strip() if lines else ""
