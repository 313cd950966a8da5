"""The networks of a suite: those of the published comparison by default, and their short names.

A network that gets another name in the catalogue changes its name here and nowhere else. Imports no torch.
"""

from collections.abc import Mapping

from drivetrain.catalogue.models import check_model_name

__all__ = ["DEFAULT_NETWORKS", "check_networks", "short_name"]

_SHORT_NAMES: Mapping[str, str] = {
    "vgg16": "vgg16",
    "vgg19": "vgg19",
    "xception": "xcep",
    "resnet50v1": "r50",
    "resnet101v1": "r101",
    "resnet152v1": "r152",
    "resnet50v2": "r50v2",
    "resnet101v2": "r101v2",
    "resnet152v2": "r152v2",
    "inception_v3": "incv3",
    "keras/InceptionResNetV2": "incresv2",
    "mobilenet": "mob1",
    "mobilenet_v2": "mob2",
    "mobilenet_v3_small": "mob3s",
    "mobilenet_v3_large": "mob3l",
    "densenet121": "dens121",
    "densenet169": "dens169",
    "densenet201": "dens201",
    "efficientnet_b0": "eff0",
    "efficientnet_b1": "eff1",
    "efficientnet_b2": "eff2",
}

DEFAULT_NETWORKS = tuple(_SHORT_NAMES)


def short_name(model: str) -> str:
    """The name of a network in a figure; a network that is not among them keeps its own."""
    return _SHORT_NAMES.get(model, model)


def check_networks(names: tuple[str, ...]) -> None:
    """Raises for a typed name that no model has; a missing package of a library counts as well."""
    for name in names:
        check_model_name(name)
