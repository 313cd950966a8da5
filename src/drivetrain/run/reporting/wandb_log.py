"""Weights & Biases as a reader of a run's events; the package is an extra, imported when asked for."""

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
        raise BadInputError(
            "--wandb needs a package that is not installed; run pip install wandb, or leave --wandb out."
        )
    if os.environ.get("WANDB_MODE", "online") == "online" and not _is_logged_in():
        raise BadInputError(
            "--wandb finds no W&B login; run wandb login, or set WANDB_MODE=offline to log without one."
        )


def _is_logged_in() -> bool:
    import wandb

    return bool(wandb.login(prompt=False))


def shareable_config(recipe: Recipe) -> dict[str, Any]:
    """The recipe's plain values; paths below the home directory begin with ~, for others read them too."""
    return {name: _without_home(value) for name, value in plain_values(recipe).items()}


class WandbLog:
    """One W&B record per run; its id lies in the run directory, so that a continued run goes on with it."""

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
        # A continued run repeats the updates after its checkpoint, which W&B's own step does not allow.
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
    """Which W&B record is this run's: the one it began with, else a new one."""
    path = directory.path / _RECORD_FILE
    with suppress(OSError, ValueError, KeyError):
        stored = read_json(path)
        return {"id": str(stored["id"]), "project": str(stored["project"])}
    record = {"id": uuid.uuid4().hex[:8], "project": os.environ.get("WANDB_PROJECT") or _DEFAULT_PROJECT}
    write_json(path, record)
    return record


def _group_of(directory: RunDirectory) -> str | None:
    """The folds of one cross-validation stand together."""
    job = directory.path.resolve().parent
    return job.name if (job / CROSSVAL_RECORD).is_file() else None


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested numbers and texts under names with slashes; anything else is for the run directory alone."""
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
