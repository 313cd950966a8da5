"""The weights of transformers' models: repositories of the Hugging Face hub, and folders like them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from drivetrain.catalogue.tasks import TaskName, task_info
from drivetrain.core.errors import BadInputError
from drivetrain.models.libraries.params import attempt
from drivetrain.models.libraries.transformers import Transformers
from drivetrain.models.weights.files import FOLDER_FILES
from drivetrain.models.weights.origins import HubFile, Origin
from drivetrain.models.weights.quietly import quiet_transformers


class TransformersWeights:
    """The weights of a repository, or of a folder that `save_pretrained` wrote."""

    def origin_of(self, name: str, *, params: Mapping[str, Any]) -> Origin:  # noqa: ARG002
        """The repository or the folder itself."""
        if Path(name).expanduser().is_dir():
            return _Folder(Path(name).expanduser())
        if name in Transformers().names():
            raise BadInputError(
                f"--pretrained: hf/{name} is a type of network, which has no weights of its own; name a "
                "repository, as in --model hf/google/vit-base-patch16-224, or give --pretrained FILE."
            )
        return HubFile(name, FOLDER_FILES)

    def tensors_of(
        self,
        path: Path,
        name: str,
        *,
        image_size: int,  # noqa: ARG002
        task: TaskName,
        params: Mapping[str, Any],
    ) -> Mapping[str, Tensor]:
        """The weights in a model of transformers, which translates older names."""
        with quiet_transformers():
            model, said = attempt(
                lambda: _auto_class(task).from_pretrained(
                    path.parent, local_files_only=True, output_loading_info=True, **params
                ),
                name=f"hf/{name}",
            )
        tensors: dict[str, Tensor] = model.state_dict()
        return {key: value for key, value in tensors.items() if key not in said["missing_keys"]}


def _auto_class(task: TaskName) -> Any:
    import transformers

    if task_info(task).has_dense_labels:
        return transformers.AutoModelForSemanticSegmentation
    return transformers.AutoModelForImageClassification


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def cached(self) -> Path | None:
        """The file in the folder."""
        return next((self.path / name for name in FOLDER_FILES if (self.path / name).is_file()), None)

    def size_bytes(self) -> int | None:
        """Unknown: there is nothing to download."""
        return None

    def download(self) -> None:
        """Fails: the folder is all there is."""
        raise FileNotFoundError(f"it has none of {', '.join(FOLDER_FILES)}")

    @property
    def how_to_place(self) -> str:
        """What the folder lacks."""
        return f"save the weights as {self.path / FOLDER_FILES[0]}"
