"""Collects what a page holds from run directories and cross-validations, without torch."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.core.version import VERSION
from drivetrain.report.collect.budget import PictureBudget
from drivetrain.report.collect.comparison import comparison_of
from drivetrain.report.collect.crossvalidations import crossvalidation_contents
from drivetrain.report.collect.curves import curves_of
from drivetrain.report.collect.fitting import fit
from drivetrain.report.collect.runs import training_contents
from drivetrain.report.collect.stored_run import StoredRun, read_run
from drivetrain.report.contents import Curve, PageContents, RunContents
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.directory import open_run

__all__ = ["contents_of", "run_contents"]

_MAX_POINTS = 2000
_FEWEST_POINTS = 50
# Runs that each have as many points as a page of one run.
_RUNS_IN_FULL = 4
# The most bytes of pictures, as data URIs, in a page, which may have 3 MB.
_PICTURE_BYTES = 1_800_000
# What the other parts of a further run take.
_BYTES_OF_A_RUN = 30_000


def contents_of(paths: Sequence[Path], *, live: bool = False) -> PageContents:
    """The page of one run, or of several with a comparison; raises BadInputError for other folders."""
    if not paths:
        raise BadInputError("RUN names no run; `drivetrain runs` lists the runs there are.")
    folders = list(dict.fromkeys(paths))
    for path in folders:
        _require_run(path)
    points = max(_FEWEST_POINTS, min(_MAX_POINTS, _MAX_POINTS * _RUNS_IN_FULL // len(folders)))
    share = max(0, _PICTURE_BYTES - _BYTES_OF_A_RUN * len(folders[1:])) // len(folders)
    collected = [_collected(path, max_points=points, picture_bytes=share) for path in folders]
    runs = [contents for contents, _ in collected]
    _tell_apart(runs, folders)
    contents = PageContents(
        title=runs[0]["name"] if len(runs) == 1 else f"{len(runs)} runs",
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        version=VERSION,
        runs=runs,
    )
    if len(runs) > 1:
        contents["comparison"] = comparison_of([(run, contents["name"]) for contents, run in collected])
    if len(runs) > 1:
        shorter = partial(_shorter_curves, [run for _, run in collected])
        fit(contents, shorter, points=points, full=_MAX_POINTS)
    if live:
        contents["live"] = True
    return contents


def run_contents(path: Path, *, max_points: int | None = _MAX_POINTS) -> RunContents:
    """One run or cross-validation; each series has at most about `max_points` points, or all with None."""
    _require_run(path)
    return _collected(path, max_points=max_points, picture_bytes=_PICTURE_BYTES)[0]


def _collected(
    path: Path, *, max_points: int | None, picture_bytes: int
) -> tuple[RunContents, StoredRun | CrossvalDirectory]:
    """What the page shows of a run, and the run, whose events are read only once."""
    job, budget = CrossvalDirectory(path), PictureBudget(bytes_left=picture_bytes)
    if job.holds_job:
        return crossvalidation_contents(path, max_points=max_points, budget=budget), job
    run = read_run(path)
    return training_contents(run, max_points=max_points, budget=budget), run


def _shorter_curves(runs: Sequence[StoredRun | CrossvalDirectory], points: int) -> list[list[Curve]]:
    return [_curves(run, points) for run in runs]


def _curves(run: StoredRun | CrossvalDirectory, points: int) -> list[Curve]:
    if isinstance(run, CrossvalDirectory):
        none = PictureBudget(bytes_left=0)
        return crossvalidation_contents(run.path, max_points=points, budget=none)["curves"]
    return run.part("The curves", lambda run: curves_of(run, max_points=points)) or []


def _require_run(path: Path) -> None:
    if not CrossvalDirectory(path).holds_job:
        open_run(path)


def _tell_apart(runs: Sequence[RunContents], paths: Sequence[Path]) -> None:
    """Gives runs whose folders have the same name the whole path as their name."""
    names = [run["name"] for run in runs]
    for run, path in zip(runs, paths, strict=True):
        if names.count(run["name"]) > 1:
            run["name"] = str(path)
