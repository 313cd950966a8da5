"""The classifiers of timm: every architecture, and every set of weights as NAME.TAG."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import nn

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.models.libraries.library import LibraryModel
from drivetrain.models.libraries.params import attempt, refuse_option_keywords, unknown_name

_OPTIONS = {
    "in_chans": "--channels",
    "img_size": "--image-size",
    "num_classes": "--num-classes",
    "pretrained": "--pretrained",
    "checkpoint_path": "--pretrained FILE",
}
_CLASSES = 1000


class Timm:
    """The models of the package timm."""

    def names(self) -> list[str]:
        """The architectures, and NAME.TAG for each of their weights."""
        return _names()

    def facts(self, name: str, *, params: Mapping[str, Any]) -> LibraryModel:
        """What the entry of a model's weights says; `params` change none of it."""
        refuse_option_keywords(params, _OPTIONS)
        _require_values(params)
        entry = _entry(name)
        channels, _, side = entry.input_size
        return LibraryModel(
            name=f"timm/{name}",
            channels=channels,
            num_classes=entry.num_classes or _CLASSES,
            image_size=side,
            task="classification",
            mean=tuple(entry.mean),
            std=tuple(entry.std),
            min_image_size=1 if entry.min_input_size is None else entry.min_input_size[-1],
            description=_description(name),
            license=entry.license,
            origin=entry.hf_hub_id or entry.url or None,
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
        """The model with random weights; one of a fixed size is built for `image_size`."""
        import timm

        refuse_option_keywords(params, _OPTIONS)
        size = size_arguments(name, image_size=image_size)
        shape = {"in_chans": channels, "num_classes": num_classes, **size}
        model: nn.Module = attempt(
            lambda: timm.create_model(name, pretrained=False, **shape, **params), name=f"timm/{name}"
        )
        return model


def _require_values(params: Mapping[str, Any]) -> None:
    """Refuses keywords without a value: timm would drop them without a word."""
    for word, value in params.items():
        if value is None:
            raise BadInputError(
                f"--model-params {word} has no value; write '{{{word.partition(':')[0]}: ...}}', with a "
                "space after the colon."
            )


def size_arguments(name: str, *, image_size: int) -> dict[str, int]:
    """The keywords that build a model of a fixed size for images of another one."""
    entry = _entry(name)
    is_other = bool(entry.fixed_input_size) and image_size != entry.input_size[-1]
    return {"img_size": image_size} if is_other else {}


@cache
def _names() -> list[str]:
    import timm

    tagged = [name for name in timm.list_pretrained() if "." in name]
    return [*timm.list_models(), *tagged]


def _entry(name: str) -> Any:
    """timm's own record of a model's weights: input size, normalisation, licence."""
    from timm.models import get_pretrained_cfg, is_model

    if not is_model(name.partition(".")[0]) or ("." in name and name not in _names()):
        known = [other for other in _names() if ("." in other) == ("." in name)]
        raise unknown_name(name, known, prefix="timm", what="a model of timm")
    return get_pretrained_cfg(name)


def _description(name: str) -> str:
    from timm.models import model_entrypoint

    lines = (model_entrypoint(name.partition(".")[0]).__doc__ or "").strip().splitlines()
    return lines[0].strip() if lines else ""
