"""The weights of smp's encoders: repositories of the Hugging Face hub. Its decoders have none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.models.libraries.params import attempt
from drivetrain.models.weights.files import read_weights
from drivetrain.models.weights.origins import HubFile, Origin, UrlFile
from drivetrain.models.weights.published_by.timm import TimmWeights

_FILES = ("model.safetensors",)
_USUAL = "imagenet"
_TIMM_ENCODER = "tu-"
_OF_ENCODERS = {"encoder_depth": "depth", "encoder_output_stride": "output_stride"}


class SmpWeights:
    """The weights of encoders trained on ImageNet, or of timm's models as encoders (tu-NAME)."""

    def origin_of(self, name: str, *, params: Mapping[str, Any]) -> Origin:
        """The repository or address that the package's record of the encoder names."""
        encoder = name.partition(":")[2]
        if encoder.startswith(_TIMM_ENCODER):
            return TimmWeights().origin_of(encoder.removeprefix(_TIMM_ENCODER), params=params)
        from segmentation_models_pytorch.encoders import encoders

        published = encoders[encoder]["pretrained_settings"]
        if not published:
            raise BadInputError(
                f"--pretrained: smp publishes no weights of the encoder {encoder}; give --pretrained FILE."
            )
        record = published.get(_USUAL) or next(iter(published.values()))
        if "url" in record:
            return UrlFile(record["url"])
        return HubFile(record["repo_id"], _FILES, record["revision"])

    def tensors_of(
        self,
        path: Path,
        name: str,
        *,
        image_size: int,  # noqa: ARG002
        task: TaskName,  # noqa: ARG002
        params: Mapping[str, Any],
    ) -> Mapping[str, Tensor]:
        """The weights in an encoder, which leaves out what belongs to the classifier of its network."""

        encoder = name.partition(":")[2]
        shape = {key: params[word] for word, key in _OF_ENCODERS.items() if word in params}
        found, _ = read_weights(str(path), option="--pretrained")
        filled = attempt(lambda: _filled_encoder(encoder, found, shape), name=f"smp/{name}")
        return {f"encoder.{key}": value for key, value in filled.state_dict().items()}


def _filled_encoder(name: str, found: Mapping[str, Tensor], shape: Mapping[str, int]) -> nn.Module:
    from segmentation_models_pytorch.encoders import get_encoder

    if name.startswith(_TIMM_ENCODER):
        overlay = {"state_dict": dict(found)}
        of_timm: nn.Module = get_encoder(name, weights=True, pretrained_cfg_overlay=overlay, **shape)
        return of_timm
    encoder: nn.Module = get_encoder(name, weights=None, **shape)
    # Their own method takes out the classifier of the network that was trained.
    encoder.load_state_dict(dict(found))
    return encoder
