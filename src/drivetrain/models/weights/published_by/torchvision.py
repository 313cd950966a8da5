"""The weights of torchvision's models, in torch.hub's folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.models.weights.files import read_weights
from drivetrain.models.weights.origins import Origin, UrlFile

# Their weights come from another program; with them, torchvision builds these models with another input.
_OWN_INPUT = ("inception_v3", "googlenet")
_SWITCH = "transform_input"


class TorchvisionWeights:
    """The weights of the package torchvision: a model's default ones."""

    def origin_of(self, name: str, *, params: Mapping[str, Any]) -> Origin:
        """The address that torchvision's record of the default weights names."""
        from torchvision.models import get_model_weights

        if name in _OWN_INPUT and _SWITCH not in params:
            raise BadInputError(
                f"--pretrained: the weights of torchvision/{name} need another normalisation, which the "
                f"model does itself with --model-params '{{{_SWITCH}: true}}'; add that."
            )
        weights = getattr(get_model_weights(name), "DEFAULT", None)
        if weights is None:
            raise BadInputError(
                f"--pretrained: torchvision publishes no weights of {name}; give --pretrained FILE."
            )
        return UrlFile(weights.url, has_checksum=True)

    def tensors_of(
        self,
        path: Path,
        name: str,  # noqa: ARG002
        *,
        image_size: int,  # noqa: ARG002
        task: TaskName,  # noqa: ARG002
        params: Mapping[str, Any],  # noqa: ARG002
    ) -> Mapping[str, Tensor]:
        """The tensors of the file; those with older names are translated when they are loaded."""
        return read_weights(str(path), option="--pretrained")[0]
