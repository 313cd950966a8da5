"""The segmentation models of segmentation_models_pytorch, named ARCHITECTURE:ENCODER."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.models.libraries.library import LibraryModel
from drivetrain.models.libraries.params import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    attempt,
    refuse_option_keywords,
    unknown_name,
)

_OPTIONS = {
    "in_channels": "--channels",
    "classes": "--num-classes",
    "encoder_weights": "--pretrained",
    "encoder_name": "--model smp/ARCHITECTURE:ENCODER",
    "arch": "--model smp/ARCHITECTURE:ENCODER",
}
_TIMM_ENCODER = "tu-"
# The package keeps the normalisation of an encoder in a file on a hub; these differ from ImageNet's.
_OWN_NORMALISATION = {
    "inception": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "xception": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "dpn": ((124 / 255, 117 / 255, 104 / 255), (1 / (0.0167 * 255),) * 3),
}


class Smp:
    """The models of the package segmentation_models_pytorch."""

    def names(self) -> list[str]:
        """Every architecture with every encoder; those of timm (tu-NAME) are accepted but not listed."""
        return [f"{arch}:{encoder}" for arch in _architectures() for encoder in _encoders()]

    def facts(self, name: str, *, params: Mapping[str, Any]) -> LibraryModel:
        """What architecture and encoder say; a depth or output stride in `params` changes the sizes."""
        refuse_option_keywords(params, _OPTIONS)
        arch, encoder = _parts(name)
        mean, std = _normalisation(encoder)
        return LibraryModel(
            name=f"smp/{name}",
            channels=3,
            num_classes=2,
            image_size=256,
            task="segmentation",
            mean=mean,
            std=std,
            image_size_step=_size_step(_architectures()[arch], params),
            min_image_size=32,
            description=f"{_architectures()[arch].__name__} with the encoder {encoder}",
        )

    def build(
        self,
        name: str,
        *,
        channels: int,
        image_size: int,  # noqa: ARG002
        num_classes: int,
        task: TaskName,  # noqa: ARG002
        params: Mapping[str, Any],
    ) -> nn.Module:
        """The model with random weights, also in its encoder."""
        import segmentation_models_pytorch as smp

        refuse_option_keywords(params, _OPTIONS)
        arch, encoder = _parts(name)
        shape = {"encoder_weights": None, "in_channels": channels, "classes": num_classes}
        model: nn.Module = attempt(
            lambda: smp.create_model(arch, encoder_name=encoder, **shape, **params), name=f"smp/{name}"
        )
        return model


def _architectures() -> Mapping[str, Any]:
    import segmentation_models_pytorch as smp

    classes: Mapping[str, Any] = smp.MODEL_ARCHITECTURES_MAPPING
    return classes


def _encoders() -> list[str]:
    from segmentation_models_pytorch.encoders import get_encoder_names

    return list(get_encoder_names())


def _parts(name: str) -> tuple[str, str]:
    """Architecture and encoder of a name; each is looked up on its own."""
    arch, colon, encoder = name.partition(":")
    if not colon:
        raise BadInputError(
            f"--model smp/{name} names no encoder; write smp/ARCHITECTURE:ENCODER, as in smp/unet:resnet34."
        )
    if arch not in _architectures():
        raise unknown_name(name, _nearby(name), prefix="smp", what=f"known: there is no architecture {arch}")
    is_of_timm = encoder.startswith(_TIMM_ENCODER)
    if encoder not in _encoders() and not (is_of_timm and _is_in_timm(encoder)):
        raise unknown_name(name, _nearby(name), prefix="smp", what=f"known: there is no encoder {encoder}")
    return arch, encoder


def _nearby(name: str) -> list[str]:
    """Names that share a known part with `name`: only the other part can be misspelt."""
    arch, _, encoder = name.partition(":")
    archs = [arch] if arch in _architectures() else list(_architectures())
    encoders = [encoder] if encoder in _encoders() else _encoders()
    return [f"{one}:{other}" for one in archs for other in encoders]


def _is_in_timm(encoder: str) -> bool:
    import timm

    name = encoder.removeprefix(_TIMM_ENCODER)
    is_tagged = "." in name
    return bool(name in timm.list_pretrained() if is_tagged else timm.is_model(name))


def _normalisation(encoder: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if encoder.startswith(_TIMM_ENCODER):
        from timm.models import get_pretrained_cfg

        entry = get_pretrained_cfg(encoder.removeprefix(_TIMM_ENCODER))
        return tuple(entry.mean), tuple(entry.std)
    known = next((own for start, own in _OWN_NORMALISATION.items() if encoder.startswith(start)), None)
    return known or (IMAGENET_MEAN, IMAGENET_STD)


def _size_step(architecture: Any, params: Mapping[str, Any]) -> int:
    """What the side of an image must be a multiple of."""
    if not getattr(architecture, "requires_divisible_input_shape", True):
        return 1
    defaults = inspect.signature(architecture).parameters

    def value(key: str) -> Any:
        return params.get(key, defaults[key].default) if key in defaults else None

    most: int = 2 ** int(value("encoder_depth"))
    return min(most, int(value("encoder_output_stride") or most))
