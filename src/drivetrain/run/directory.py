"""The run directory: where a run lives, and the interface between the commands."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivetrain.errors import BadInputError
from drivetrain.recipe.schema import Recipe, field_note

DEFAULT_PARENT = Path("runs")
SUMMARY_EVENT = "summary"


class RunDirectory:
    """The files of one run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.yaml"
        self.identity = path / "identity.json"
        self.plan = path / "plan.json"
        self.data = path / "data.json"
        self.metrics = path / "metrics.jsonl"
        self.updates = path / "updates.npz"
        self.checkpoints = path / "checkpoints"
        self.predictions = path / "predictions"
        self.tensorboard = path / "tensorboard"
        self.curves = path / "curves.png"
        self.log = path / "rank-0.log"

    @property
    def holds_run(self) -> bool:
        return self.recipe.is_file()


def identity_of(recipe: Recipe, *, global_batch: int) -> dict[str, Any]:
    """What must not change while a run continues; a layout is free as long as the global batch stays."""
    values = recipe.model_dump(mode="json")
    fixed = {name: value for name, value in values.items() if not field_note(name).may_change}
    return {**fixed, "global_batch_size": global_batch}


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Eight characters that stand for an identity."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def default_run_path(name: str, identity: Mapping[str, Any]) -> Path:
    """runs/<recipe>-<hash>: the same request finds the same directory."""
    return DEFAULT_PARENT / f"{name}-{identity_hash(identity)}"


def check_same_identity(stored: Mapping[str, Any], asked: Mapping[str, Any], *, path: Path) -> None:
    """Refuses to continue a run as something else; names the first field that differs."""
    for name in sorted(set(stored) | set(asked)):
        if stored.get(name) != asked.get(name):
            option = "--" + name.replace("_", "-")
            raise BadInputError(
                f"{option} is {_shown(asked.get(name))} but the run in {path} was started with "
                f"{_shown(stored.get(name))}; give {option} {_shown(stored.get(name))}, another "
                f"--output-dir, "
                "or --overwrite to start afresh."
            )


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def check_writable(path: Path) -> None:
    """Refuses an output directory that cannot be made or written, without making it."""
    if path.exists() and not path.is_dir():
        raise BadInputError(
            f"--output-dir {path} is a file; name a directory, such as --output-dir {path}-run."
        )
    existing = path
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise BadInputError(
            f"--output-dir {path}: {existing} is not a directory; try --output-dir runs/mine."
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise BadInputError(f"--output-dir {path}: {existing} cannot be written; try --output-dir runs/mine.")


def open_run(path: str | Path) -> RunDirectory:
    """An existing run, for the commands that read one."""
    directory = RunDirectory(Path(path))
    if not directory.path.is_dir():
        raise BadInputError(f"RUN {path} does not exist; `drivetrain runs` lists the runs there are.")
    if not directory.holds_run:
        raise BadInputError(f"RUN {path} holds no recipe.yaml, so it is not a run; see `drivetrain runs`.")
    return directory
