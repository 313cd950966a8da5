"""Logs the events of a run to Weights & Biases; the optional package is imported only with --wandb."""

import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from drivetrain.catalogue.metrics import logged_name
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.core.files import read_json, write_json
from drivetrain.recipe.fields import plain_values
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import CROSSVAL_RECORD, RunDirectory

__all__ = ["WandbLog", "require_wandb", "shareable_config"]

_DEFAULT_PROJECT = "drivetrain"
_RECORD_FILE = "wandb.json"


def require_wandb() -> None:
    """Refuses --wandb without the package or a login, before anything is written."""
    if find_spec("wandb") is None:
        raise BadInputError("--wandb needs the package wandb; run pip install wandb, or leave --wandb out.")
    if os.environ.get("WANDB_MODE", "online") == "online" and not _is_logged_in():
        raise BadInputError(
            "--wandb finds no W&B login; run wandb login, or set WANDB_MODE=offline to log without one."
        )


def _is_logged_in() -> bool:
    import wandb

    return bool(wandb.login(prompt=False))


def shareable_config(recipe: Recipe) -> dict[str, Any]:
    """The options of a recipe; paths in the home directory start with ~, as W&B pages may be public."""
    return {name: _without_home(value) for name, value in plain_values(recipe).items()}


class WandbLog:
    """One W&B run per training run; its id is kept in wandb.json, so that a continued run appends to it."""

    def __init__(self, recipe: Recipe, *, directory: RunDirectory, folder: Path) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        record = _record_of(directory)
        try:
            self._run = wandb.init(
                project=record["project"],
                name=directory.path.resolve().name,
                group=_group_of(directory),
                id=record["id"],
                resume="allow",
                dir=str(folder),
                config=shareable_config(recipe),
                allow_val_change=True,
                settings=wandb.Settings(console="off", silent=recipe.verbosity == "quiet"),
            )
        except wandb.Error as error:
            raise RunFailedError(
                f"W&B could not start ({' '.join(str(error).split())}); run `wandb login`, or set "
                "WANDB_MODE=offline to sync later."
            ) from error
        # W&B's own step must only increase, but a continued run repeats the updates after its checkpoint; so
        # `update` is a metric of its own and the x axis of all others.
        self._run.define_metric("update")
        self._run.define_metric("*", step_metric="update")

    def event(self, kind: str, update: int, values: Mapping[str, Any]) -> None:
        if kind == "summary":
            self._run.summary.update(_flat(values))
            return
        numbers = {
            f"{kind}/{logged_name(name)}": value for name, value in values.items() if _is_number(value)
        }
        self._run.log({"update": update, **numbers})

    def close(self) -> None:
        self._run.finish()


def _record_of(directory: RunDirectory) -> dict[str, str]:
    """Id and project of the W&B run: those in wandb.json, else new ones."""
    path = directory.path / _RECORD_FILE
    with suppress(OSError, ValueError, KeyError):
        stored = read_json(path)
        return {"id": str(stored["id"]), "project": str(stored["project"])}
    record = {"id": uuid.uuid4().hex[:8], "project": os.environ.get("WANDB_PROJECT") or _DEFAULT_PROJECT}
    write_json(path, record)
    return record


def _group_of(directory: RunDirectory) -> str | None:
    """The W&B group: the name of the cross-validation that the run is a fold of."""
    job = directory.path.resolve().parent
    return job.name if (job / CROSSVAL_RECORD).is_file() else None


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested numbers and texts to names with slashes; drops all other values."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}/")
        elif _is_number(value) or isinstance(value, str):
            flat[prefix + name] = value
    return flat


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _without_home(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_home(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_home(entry) for entry in value]
    if not isinstance(value, str):
        return value
    home = str(Path.home())
    is_below = len(home) > 1 and (value == home or value.startswith(home + os.sep))
    return "~" + value[len(home) :] if is_below else value
