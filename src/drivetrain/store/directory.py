"""The run directory: its file names, its default path, and checks before it is written or read."""

import os
import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.store.checkpoint_paths import checkpoint_paths
from drivetrain.store.identity import identity_hash

DEFAULT_PARENT = Path("runs")
PYTHON_DATA = "python:data"
CROSSVAL_RECORD = "crossval.json"
REPORT_NAME = "report.html"
# Files that a run writes into its directory; nothing else in it is ever removed.
_OWN_NAMES = (
    ".lock",
    ".*.partial",
    "recipe.yaml",
    "identity.json",
    "plan.json",
    "data.json",
    "data_files.json",
    "fingerprint.json",
    "own_data.json",
    "metrics.jsonl",
    "updates.npz",
    "checkpoints",
    "predictions",
    "examples",
    "origins.json",
    "environment.json",
    "export",
    "tensorboard",
    "wandb",
    "wandb.json",
    "curves.png",
    "profile.json",
    "profile.png",
    "bad_samples.json",
    "confusion*.csv",
    "confusion*.png",
    "evaluation-*.json",
    "images*.csv",
    "README.md",
    REPORT_NAME,
    "rank-*.log",
    "heartbeats",
)


class RunDirectory:
    """The files of one run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.yaml"
        self.identity = path / "identity.json"
        self.plan = path / "plan.json"
        self.data = path / "data.json"
        self.data_files = path / "data_files.json"
        self.fingerprint = path / "fingerprint.json"
        self.own_data = path / "own_data.json"
        self.metrics = path / "metrics.jsonl"
        self.updates = path / "updates.npz"
        self.checkpoints = path / "checkpoints"
        self.predictions = path / "predictions"
        self.examples = path / "examples"
        self.origins = path / "origins.json"
        self.environment = path / "environment.json"
        self.tensorboard = path / "tensorboard"
        self.curves = path / "curves.png"
        self.heartbeats = path / "heartbeats"
        self.log = self.rank_log(0)

    def rank_log(self, rank: int) -> Path:
        """The log file of a rank."""
        return self.path / f"rank-{rank}.log"

    @property
    def holds_run(self) -> bool:
        return self.recipe.is_file() and self.identity.is_file()

    @property
    def keeps_progress(self) -> bool:
        """Whether there is a checkpoint or an event of a training."""
        has_events = self.metrics.is_file() and self.metrics.stat().st_size > 0
        return has_events or bool(checkpoint_paths(self.checkpoints))

    @property
    def binds(self) -> bool:
        """Whether the next command must continue the run here; a run without progress may be replaced."""
        return self.holds_run and self.keeps_progress

    @property
    def recipe_to_continue(self) -> Path | None:
        """The recipe of the run that the next command continues here; None if it may begin afresh."""
        return self.recipe if self.binds else None


def default_run_path(name: str, identity: Mapping[str, Any]) -> Path:
    """runs/<recipe>-<hash>: the same request finds the same directory."""
    return DEFAULT_PARENT / f"{name}-{identity_hash(identity)}"


def check_writable(path: Path, *, option: str = "--output-dir", works: str = "runs/mine") -> None:
    """Refuses a folder that cannot be created or written, without creating it."""
    try:
        problem = _why_not_writable(path)
    except (OSError, ValueError) as error:
        problem = f"it cannot be used ({getattr(error, 'strerror', None) or error})"
    if problem is not None:
        raise BadInputError(f"{option} {path}: {problem}; try {option} {works}.")


def _why_not_writable(path: Path) -> str | None:
    if path.exists() and not path.is_dir():
        return f"{path} is a file"
    existing = path
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is not a directory"
    longest = os.pathconf(existing, "PC_NAME_MAX")
    if any(len(os.fsencode(part)) > longest for part in path.parts):
        return f"a name in it is too long (at most {longest} bytes)"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"{existing} cannot be written"


def make_directory(directory: RunDirectory) -> None:
    """Makes a run's directory."""
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"--output-dir {directory.path} cannot be created: {error.strerror}; try --output-dir runs/mine."
        ) from error


def foreign_entries(path: Path) -> list[str]:
    """The names in a directory that are not files of a run."""
    if not path.is_dir():
        return []
    return sorted(entry.name for entry in path.iterdir() if not _is_own(entry.name))


def clear_directory(path: Path) -> None:
    """Removes the files of a run, and nothing else."""
    for entry in list(path.iterdir()):
        if not _is_own(entry.name) or entry.name == ".lock":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _is_own(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _OWN_NAMES)


def open_run(path: str | Path) -> RunDirectory:
    """Opens an existing run for commands that read one, such as `evaluate` and `predict`."""
    directory = RunDirectory(Path(path))
    if directory.path.is_file():
        raise BadInputError(f"RUN {path} is a file, not a run directory; `drivetrain runs` lists the runs.")
    if not directory.path.is_dir():
        raise BadInputError(f"RUN {path} does not exist; `drivetrain runs` lists the runs there are.")
    if (directory.path / CROSSVAL_RECORD).is_file():
        raise BadInputError(
            f"RUN {path} is a cross-validation; name one of its folds, such as {path}/fold-0."
        )
    if not directory.recipe.is_file():
        raise BadInputError(f"RUN {path} holds no recipe.yaml, so it is not a run; see `drivetrain runs`.")
    return directory
