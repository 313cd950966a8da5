"""Image classifiers and segmentation models of transformers: a type, a cached repository, or a folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import interpolate

from drivetrain.catalogue.tasks import TaskName, task_info
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import nearest_names
from drivetrain.models.libraries.library import LibraryModel
from drivetrain.models.libraries.one_output import return_one
from drivetrain.models.libraries.params import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    attempt,
    refuse_option_keywords,
    unknown_name,
)

_OPTIONS = {
    "num_labels": "--num-classes",
    "num_channels": "--channels",
    "image_size": "--image-size",
}
_SIDE, _CHANNELS = 224, 3
_TASKS: tuple[TaskName, ...] = ("classification", "segmentation")
# These need other inputs than an image, or another model inside; pp_lcnet returns no logits.
_NOT_OF_IMAGES = frozenset(
    {"imagegpt", "perceiver", "shieldgemma2", "siglip2", "timm_wrapper", "upernet", "tipsv2_dpt", "pp_lcnet"}
)
# Names of blocks that a configuration derives from its depth, and which another depth would not have.
_DEPTHS = frozenset({"num_hidden_layers", "depths"})
_OF_DEPTHS = frozenset({"stage_names", "out_features", "out_indices"})
_PROCESSOR_FILE = "preprocessor_config.json"


class Transformers:
    """The models of the package transformers."""

    def names(self) -> list[str]:
        """The types of models; repositories in the local cache and folders are names too."""
        return sorted(_types())

    def facts(self, name: str, *, params: Mapping[str, Any]) -> LibraryModel:
        """What the model's configuration says, and that of its image processor if it is found."""
        config = _config(name, params)
        tasks = _types().get(config.model_type, [])
        processor = _processor(name)
        mean, std = _channel_values(processor)
        return LibraryModel(
            name=f"hf/{name}",
            channels=getattr(_of_images(config), "num_channels", _CHANNELS),
            num_classes=config.num_labels,
            image_size=_side(processor, _of_images(config)),
            task=tasks[0] if len(tasks) == 1 else None,
            mean=mean,
            std=std,
            description=f"{' and '.join(tasks)} with {config.model_type}",
            origin=None if name in _types() else name,
        )

    def build(
        self,
        name: str,
        *,
        channels: int,
        image_size: int,
        num_classes: int,
        task: TaskName,
        params: Mapping[str, Any],
    ) -> nn.Module:
        """The model with random weights for the task; a mask gets the size of its image."""
        config = _config(name, params)
        _require_task(name, config, task=task)
        config.num_labels = num_classes
        config.architectures = [_class_name(config, task)]
        images = _of_images(config)
        _set_channels(images, channels, name=name)
        if hasattr(images, "image_size"):
            is_number = isinstance(images.image_size, int)
            images.image_size = image_size if is_number else [image_size, image_size]
        model = attempt(lambda: _auto_class(task).from_config(config), name=f"hf/{name}")
        _install_hooks(model)
        return return_one(model, _full_size_logits if task_info(task).has_dense_labels else _logits)


def _install_hooks(model: nn.Module) -> None:
    """Installs the hooks that collect hidden states now; transformers 5 would in the first forward pass.

    A rehearsal undoes what a first pass does to the model's attributes, and they would be installed twice.
    """
    try:
        from transformers.utils.output_capturing import maybe_install_capturing_hooks
    except ImportError:
        return
    maybe_install_capturing_hooks(model)


def _logits(output: Any, _images: Tensor) -> Tensor:
    logits: Tensor = output.logits
    return logits


def _full_size_logits(output: Any, images: Tensor) -> Tensor:
    return interpolate(output.logits, size=images.shape[-2:], mode="bilinear", align_corners=False)


def _types() -> dict[str, list[TaskName]]:
    """The types of models that take images, and the tasks of each."""
    found: dict[str, list[TaskName]] = {}
    for task in _TASKS:
        for name in _class_names(task):
            found.setdefault(name, []).append(task)
    return {name: tasks for name, tasks in found.items() if name not in _NOT_OF_IMAGES}


def _class_names(task: TaskName) -> Mapping[str, Any]:
    """For each type of model, the class of a task, or several of them."""
    from transformers.models.auto import modeling_auto

    names: Mapping[str, Any] = (
        modeling_auto.MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES
        if task_info(task).has_dense_labels
        else modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    )
    return names


def _config(name: str, params: Mapping[str, Any]) -> Any:
    """The configuration of a type, or of a folder or cached repository, changed by `params`."""
    from transformers import AutoConfig

    refuse_option_keywords(params, _OPTIONS)
    if name not in _types() and _local_file(name, "config.json") is None:
        raise unknown_name(
            name,
            _types(),
            prefix="hf",
            what=f"a type of transformers, a repository in the local cache (`hf download {name}` fetches "
            "one), or a folder with a config.json",
        )
    config = attempt(
        lambda: (
            AutoConfig.for_model(name)
            if name in _types()
            else AutoConfig.from_pretrained(name, local_files_only=True)
        ),
        name=f"hf/{name}",
    )
    if config.model_type not in _types():
        raise BadInputError(
            f"--model hf/{name} is a {config.model_type}, which neither classifies nor segments images; "
            "`drivetrain models list --from hf` lists the types that do."
        )
    return _changed(config, params, name=name)


def _changed(config: Any, params: Mapping[str, Any], *, name: str) -> Any:
    known = {word for word in config.to_dict() if not word.startswith("_")}
    for word in params:
        if word not in known:
            raise BadInputError(
                f"--model-params {word} is not a key of the configuration of hf/{name}."
                f"{nearest_names(word, known)}"
            )
    values = config.to_dict()
    if not _DEPTHS.isdisjoint(params):
        values = {word: value for word, value in values.items() if word not in _OF_DEPTHS}
    return attempt(lambda: type(config).from_dict({**values, **params}), name=f"hf/{name}")


def _of_images(config: Any) -> Any:
    """The configuration of the part that reads images, where a model also reads text."""
    return getattr(config, "vision_config", None) or config


def _set_channels(config: Any, channels: int, *, name: str) -> None:
    if hasattr(config, "num_channels"):
        config.num_channels = channels
    elif channels != _CHANNELS:
        raise BadInputError(
            f"--model hf/{name} takes images of {_CHANNELS} channels only, and the data have {channels}; "
            "hf/vit takes any number."
        )


def _require_task(name: str, config: Any, *, task: TaskName) -> None:
    if task in _types()[config.model_type]:
        return
    able = ", ".join(f"hf/{other}" for other, tasks in sorted(_types().items()) if task in tasks)
    raise BadInputError(f"--model hf/{name} has no model for {task} in transformers; these have: {able}.")


def _class_name(config: Any, task: TaskName) -> str:
    """The class of the model; of several for a task (one with a teacher's second head), the plain one."""
    name = _class_names(task)[config.model_type]
    return name if isinstance(name, str) else str(name[0])


def _auto_class(task: TaskName) -> Any:
    import transformers

    if task_info(task).has_dense_labels:
        return transformers.AutoModelForSemanticSegmentation
    return transformers.AutoModelForImageClassification


def _local_file(name: str, file: str) -> Path | None:
    """A file of a model's folder, or of its repository in the hub's local cache."""
    inside = Path(name).expanduser() / file
    if inside.is_file():
        return inside
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, file)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def _processor(name: str) -> dict[str, Any]:
    """What the configuration of the image processor says; nothing for a bare type."""
    path = None if name in _types() else _local_file(name, _PROCESSOR_FILE)
    if path is None:
        return {}
    values: dict[str, Any] = attempt(lambda: dict(json.loads(path.read_text())), name=f"hf/{name}")
    return values


def _channel_values(processor: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of the channels; a processor that does not normalise leaves pixels from 0 to 1."""
    if not processor.get("do_normalize", True):
        return (0.0,) * _CHANNELS, (1.0,) * _CHANNELS
    mean, std = (processor.get(key) for key in ("image_mean", "image_std"))
    return _per_channel(mean, IMAGENET_MEAN), _per_channel(std, IMAGENET_STD)


def _per_channel(value: Any, default: tuple[float, ...]) -> tuple[float, ...]:
    if isinstance(value, int | float):
        return (float(value),) * _CHANNELS
    return tuple(map(float, value)) if value else default


def _side(processor: Mapping[str, Any], config: Any) -> int:
    crops = processor.get("do_center_crop", "crop_size" in processor)
    size = processor.get("crop_size") if crops else processor.get("size")
    size = size or getattr(config, "image_size", None) or _SIDE
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge") or _SIDE
    return int(size[0] if isinstance(size, list | tuple) else size)
