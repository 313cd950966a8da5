"""The network that trained weights belong to: of a run everything about it is known, of a file nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivetrain.catalogue.data_sets import dataset_task
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json
from drivetrain.data.source import DataSpec
from drivetrain.recipe.fields import default_values, option_name
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.store.directory import RunDirectory

__all__ = ["network_of_weights"]

_OF_NETWORK = ("model", "model_width", "model_params", "model_edit")


def network_of_weights(typed: Mapping[str, Any], *, dataset: str) -> dict[str, Any]:
    """The options that make a network fit the weights to start from, without those that were typed.

    Empty where the network starts at random, or where its name was typed.
    """
    option = next((name for name in ("init_from", "pretrained") if isinstance(typed.get(name), str)), None)
    if option is None:
        return {}
    given = f"{option_name(option)} {typed[option]}"
    place = Path(str(typed[option])).expanduser()
    if not place.exists():
        raise BadInputError(f"{given} does not exist; give a run directory or a .safetensors file.")
    if "model" in typed:
        return {}
    directory = _run_of(place)
    if directory is None:
        raise BadInputError(
            f"{given} does not say which network its weights belong to; name it with --model, for example "
            "--model resnet18."
        )
    stored, spec = read_recipe_yaml(directory.recipe), _spec_of(directory, given=given)
    if str(stored["model"]).startswith("__main__:"):
        raise BadInputError(
            f"{given} was trained with {stored['model']}, which only its own program knows; move the network "
            "into a file, and name it with --model my_models:create_net."
        )
    _require_task(spec, dataset=dataset, given=given)
    options = {name: stored[name] for name in _OF_NETWORK if stored.get(name) != default_values()[name]}
    options |= {"model": stored["model"], "normalisation": _normalisation(spec, model=str(stored["model"]))}
    return {name: value for name, value in options.items() if name not in typed}


def _run_of(place: Path) -> RunDirectory | None:
    """The run that is meant, by its directory or by one of its checkpoints."""
    candidates = (RunDirectory(place), RunDirectory(place.parent.parent))
    return next((run for run in candidates if run.holds_run and _is_part(place, run)), None)


def _is_part(place: Path, run: RunDirectory) -> bool:
    return place in (run.path, run.checkpoints / place.name)


def _spec_of(directory: RunDirectory, *, given: str) -> DataSpec:
    try:
        return DataSpec.from_json(read_json(directory.data))
    except (OSError, ValueError, TypeError) as error:
        raise BadInputError(
            f"{given}: {directory.data} cannot be read, so the images of that run are unknown; name the "
            "network with --model, and how images are normalised with --normalisation."
        ) from error


def _require_task(spec: DataSpec, *, dataset: str, given: str) -> None:
    wanted = dataset_task(dataset)
    if wanted not in (None, spec.task):
        raise BadInputError(
            f"{given} was trained for {spec.task}, but --dataset {dataset} is for {wanted}; give a run that "
            f"was trained for {wanted}."
        )


def _normalisation(spec: DataSpec, *, model: str) -> Any:
    """How the run normalised images; its values are averaged for images of another number of channels."""
    if spec.normalisation != "per-channel":
        return spec.normalisation
    return {"mean": list(spec.mean), "std": list(spec.std), "of": model}
