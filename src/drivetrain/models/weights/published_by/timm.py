"""The weights of timm's models: most in repositories of the Hugging Face hub, some at other addresses."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.models.libraries.params import attempt
from drivetrain.models.libraries.timm import size_arguments
from drivetrain.models.weights.files import read_weights
from drivetrain.models.weights.origins import HubFile, Origin, UrlFile

_HUB_NAMES = ("model.safetensors", "pytorch_model.bin")


class TimmWeights:
    """The weights of the package timm: those of NAME.TAG, or a name's default ones."""

    def origin_of(self, name: str, *, params: Mapping[str, Any]) -> Origin:  # noqa: ARG002
        """The place that timm's record of the weights names."""
        from timm.models import get_pretrained_cfg

        record: Any = get_pretrained_cfg(name)
        if record is not None and record.hf_hub_id:
            repository, _, revision = record.hf_hub_id.partition("@")
            return HubFile(repository, _names(record.hf_hub_filename), revision or None)
        if record is not None and record.url:
            return UrlFile(record.url)
        raise BadInputError(
            f"--pretrained: timm publishes no weights of {name}; `drivetrain models list --from timm "
            f"'{name.partition('.')[0]}*'` lists those that it has as NAME.TAG, or give --pretrained FILE."
        )

    def tensors_of(
        self,
        path: Path,
        name: str,
        *,
        image_size: int,
        task: TaskName,  # noqa: ARG002
        params: Mapping[str, Any],
    ) -> Mapping[str, Tensor]:
        """The weights in a model of timm, which translates and resamples them for the image size."""
        import timm

        found, _ = read_weights(str(path), option="--pretrained")
        model: nn.Module = attempt(
            lambda: timm.create_model(
                name,
                pretrained=True,
                pretrained_cfg_overlay={"state_dict": found},
                **size_arguments(name, image_size=image_size),
                **params,
            ),
            name=f"timm/{name}",
        )
        return model.state_dict()


def _names(given: str | None) -> tuple[str, ...]:
    """The names that timm tries: the safe form of a file first."""
    if not given:
        return _HUB_NAMES
    if not given.endswith(".bin"):
        return (given,)
    return (f"{given.removesuffix('.bin').replace('_pytorch_model', '_model')}.safetensors", given)
