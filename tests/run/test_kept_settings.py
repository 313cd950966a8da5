"""Threads and the compile choice of a run stay as they were at its first start, on every layout."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.core.files import write_json
from drivetrain.ranks.find_place import OWN_LAUNCHER
from drivetrain.recipe.load import ResolvedRecipe, resolve_recipe
from drivetrain.run import kept_settings
from drivetrain.run.kept_settings import keep_settings
from drivetrain.store.directory import RunDirectory

STAGES: dict[str, Any] = {"stages": 2, "global_batch_size": 64, "micro_batch_size": 16}
RANKS: dict[str, Any] = {"replicas": 4, "micro_batch_size": 8, "global_batch_size": 32}


@pytest.fixture(autouse=True)
def of_four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_settings, "cores", lambda: 4)


def _resolved(**options: Any) -> ResolvedRecipe:
    return resolve_recipe(overrides={"dataset": "digits", "model": "cifar_resnet8", **options})


def _run(
    path: Path, *, threads: object = 3, device_type: str = "cpu", compiles: object = None
) -> RunDirectory:
    write_json(path / "environment.json", {"threads": threads, "device_type": device_type})
    if compiles is not None:
        write_json(path / "plan.json", {"compile": {"asked": "auto", "on": compiles, "reason": ""}})
    return RunDirectory(path)


def _new_warnings(resolved: ResolvedRecipe, kept: ResolvedRecipe) -> list[str]:
    return [warning for warning in kept.warnings if warning not in resolved.warnings]


def test_the_threads_of_the_first_start_are_used_again(tmp_path: Path) -> None:
    resolved = _resolved()
    kept = keep_settings(resolved, _run(tmp_path))
    assert kept.recipe.num_threads == 3
    assert _new_warnings(resolved, kept) == []
    assert keep_settings(_resolved(num_threads=2), _run(tmp_path)).recipe.num_threads == 2


@pytest.mark.parametrize(("threads", "device_type"), [(3, "cuda"), ("many", "cpu"), (None, "cpu")])
def test_threads_are_free_where_bits_do_not_depend_on_them_or_nobody_knows(
    tmp_path: Path, threads: object, device_type: str
) -> None:
    assert keep_settings(_resolved(), _run(tmp_path, threads=threads, device_type=device_type)) == _resolved()
    assert keep_settings(_resolved(), RunDirectory(tmp_path / "none")) == _resolved()


def test_more_threads_than_cores_are_kept_and_explained(tmp_path: Path) -> None:
    resolved = _resolved(**RANKS)
    kept = keep_settings(resolved, _run(tmp_path))
    assert kept.recipe.num_threads == 3
    (said,) = _new_warnings(resolved, kept)
    assert said.startswith("each of the 4 ranks uses 3 threads, as when the run started")
    assert "--num-threads 1 is faster" in said
    assert _new_warnings(resolved, keep_settings(resolved, _run(tmp_path, threads=1))) == []


@pytest.mark.parametrize("layout", [RANKS, STAGES, {"recomputation": True}])
def test_a_compiled_run_goes_on_compiled_on_other_layouts(tmp_path: Path, layout: dict[str, Any]) -> None:
    assert keep_settings(_resolved(**layout), _run(tmp_path, compiles=True)).recipe.compile == "on"
    assert keep_settings(_resolved(**layout), _run(tmp_path, compiles=False)).recipe.compile == "auto"


def test_a_whole_model_keeps_its_choice_later(tmp_path: Path) -> None:
    assert keep_settings(_resolved(), _run(tmp_path, compiles=True)).recipe.compile == "auto"


@pytest.mark.parametrize(("compile_mode", "was_on"), [("on", False), ("off", True)])
def test_a_typed_choice_holds_and_is_explained_once(tmp_path: Path, compile_mode: str, was_on: bool) -> None:
    resolved = _resolved(compile=compile_mode)
    run = _run(tmp_path, compiles=was_on)
    kept = keep_settings(keep_settings(resolved, run), run)
    assert kept.recipe.compile == compile_mode
    (said,) = _new_warnings(resolved, kept)
    assert said.startswith(f"--compile {compile_mode}: the run was {'' if was_on else 'un'}compiled so far")
    assert _new_warnings(resolved, keep_settings(resolved, _run(tmp_path, compiles=not was_on))) == []


def test_stages_that_cannot_be_compiled_say_what_that_means(tmp_path: Path) -> None:
    resolved = _resolved(**STAGES, pipeline_schedule="zero-bubble")
    kept = keep_settings(resolved, _run(tmp_path, compiles=True))
    assert kept.recipe.compile == "auto"
    assert "zero-bubble does not allow" in _new_warnings(resolved, kept)[-1]


def test_a_run_that_was_compiled_goes_on_without_it_where_every_layer_is_checked(tmp_path: Path) -> None:
    resolved = _resolved(fp_exceptions=True)
    kept = keep_settings(resolved, _run(tmp_path, compiles=True, threads=None))
    assert kept.recipe.compile == "auto"
    (said,) = _new_warnings(resolved, kept)
    assert "--fp-exceptions False keeps them" in said


def test_threads_of_another_processor_are_not_kept(tmp_path: Path) -> None:
    run = _run(tmp_path)
    write_json(run.environment, {"threads": 3, "device_type": "cpu", "processor": "another"})
    assert keep_settings(_resolved(), run) == _resolved()


def test_ranks_of_another_launcher_keep_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": 20000}
    for name, value in {**place, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, str(value))
    run = _run(tmp_path, compiles=True)
    assert keep_settings(_resolved(**RANKS), run) == _resolved(**RANKS)
    monkeypatch.setenv(OWN_LAUNCHER, "1")
    assert keep_settings(_resolved(**RANKS), run).recipe.num_threads == 3
