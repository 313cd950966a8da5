"""What a run may become when it goes on, and what it may not."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.pool import RankPool
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.params import OptimizerParams
from drivetrain.recipe.schema import Recipe, field_note
from drivetrain.store.identity import check_same_identity, identity_hash, identity_of
from tests.program.harness import worst_error
from tests.run.rank_runs import losses, train_in_ranks, train_next_update, weights

pytestmark = pytest.mark.usefixtures("no_pictures")

GLOBAL_BATCH = 16
WHOLE = {"micro_batch_size": 8}
HALVES = {"micro_batch_size": 4, "dbn_replica_group_size": 2}
OTHER_SETS = {"micro_batch_size": 4}


def _recipe(**options: Any) -> Recipe:
    recipe = resolve_recipe(overrides={"dataset": "digits", "replicas": 2, **options}).recipe
    assert isinstance(recipe, Recipe)
    return recipe


def _identity(**options: Any) -> dict[str, Any]:
    return identity_of(_recipe(**options), global_batch=GLOBAL_BATCH)


def _old_identity(**options: Any) -> dict[str, Any]:
    """As it was written when the settings themselves were part of it."""
    values = _recipe(**options).model_dump(mode="json")
    later = (
        "backbone_rate",
        "best_by",
        "file_column",
        "freeze_norm",
        "group_by",
        "head_first_epochs",
        "ignore_class",
        "input_kind",
        "label_column",
        "label_table",
        "layer_decay",
        "memory_format",
        "normalisation",
        "pretrained",
        "random_flips",
        "split_scheme",
    )
    fixed = {name: values[name] for name in values if not field_note(name).may_change and name not in later}
    settings = {name: values[name] for name in ("micro_batch_size", "dbn_replica_group_size")}
    return {**fixed, **settings, "global_batch_size": GLOBAL_BATCH}


def _write_plan(path: Path, *, buffers: int) -> None:
    path.mkdir(parents=True)
    (path / "plan.json").write_text(json.dumps({"model": {"buffers": buffers}}))


def test_the_normalised_set_stands_for_the_settings_that_make_it() -> None:
    assert _identity(**WHOLE) == _identity(**HALVES)
    assert _identity(**WHOLE)["normalised_set"] == 8
    assert _identity(**OTHER_SETS) != _identity(**WHOLE)
    assert "micro_batch_size" not in _identity(**WHOLE)


def test_directories_keep_the_names_they_had() -> None:
    text = json.dumps(_old_identity(**WHOLE), sort_keys=True)
    assert identity_hash(_identity(**WHOLE)) == hashlib.sha256(text.encode()).hexdigest()[:8]
    assert identity_hash(_identity(**HALVES)) == identity_hash(_identity(**WHOLE))
    assert identity_hash(_identity(**OTHER_SETS)) != identity_hash(_identity(**WHOLE))


@pytest.mark.parametrize("stored", [_identity(**HALVES), _old_identity(**HALVES), _old_identity(**WHOLE)])
def test_new_and_old_identities_of_equal_sets_are_the_same(stored: dict[str, Any], tmp_path: Path) -> None:
    _write_plan(tmp_path / "run", buffers=1)
    check_same_identity(stored, _identity(**WHOLE), path=tmp_path / "run")
    with pytest.raises(BadInputError, match=r"\(--micro-batch-size x --dbn-replica-group-size\) but the run"):
        check_same_identity(stored, _identity(**OTHER_SETS), path=tmp_path / "run")
    with pytest.raises(BadInputError, match="--seed is 3"):
        check_same_identity(stored, _identity(seed=3, **WHOLE), path=tmp_path / "run")


@pytest.mark.parametrize("folder", ["run", "run/fold-0"])
def test_without_batch_norm_the_sets_are_free(folder: str, tmp_path: Path) -> None:
    _write_plan(tmp_path / folder, buffers=0)
    for stored in (_identity(**WHOLE), _old_identity(**WHOLE)):
        check_same_identity(stored, _identity(**OTHER_SETS), path=tmp_path / "run")


def test_a_run_whose_plan_is_lost_counts_as_one_with_batch_norm(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError,
        match=r"product of both 8 .one replica: give --micro-batch-size 8 --dbn-replica-group-size 1",
    ):
        check_same_identity(_identity(**WHOLE), _identity(**OTHER_SETS), path=tmp_path)


def test_what_an_older_version_did_not_know_was_as_by_default(tmp_path: Path) -> None:
    older = _old_identity(**WHOLE)
    del older["stable_norm"], older["dbn_replica_group_size"]
    check_same_identity(older, _identity(**WHOLE), path=tmp_path)
    with pytest.raises(BadInputError, match=r"--stable-norm is True but the run in .* with False"):
        check_same_identity(older, _identity(stable_norm=True, **WHOLE), path=tmp_path)


def test_an_option_added_later_names_another_directory_only_if_it_is_used(tmp_path: Path) -> None:
    older, default = _old_identity(**WHOLE), _identity(memory_format="auto", **WHOLE)
    asked = _identity(memory_format="contiguous", **WHOLE)
    assert identity_hash(default) == identity_hash(_identity(**WHOLE)) != identity_hash(asked)
    check_same_identity(older, default, path=tmp_path)
    with pytest.raises(BadInputError, match=r"--memory-format is contiguous but the run in .* with auto"):
        check_same_identity(older, asked, path=tmp_path)


def test_what_became_free_since_is_not_compared(tmp_path: Path) -> None:
    check_same_identity({**_identity(**WHOLE), "replicas": 7}, _identity(**WHOLE), path=tmp_path)


def test_data_made_in_python_stay_what_they_were(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="the content of the data"):
        check_same_identity({**_identity(**WHOLE), "own_data": "1"}, _identity(**WHOLE), path=tmp_path)


CONSTANT: dict[str, Any] = {"num_epochs": 3, "lr_schedule": "const"}
FIRST = 3


@pytest.mark.parametrize("is_old", [False, True])
def test_a_group_goes_on_as_one_process_with_all_its_samples(
    rank_pool: RankPool, tmp_path: Path, is_old: bool
) -> None:
    layouts = {"halves": {"ranks": 2, **HALVES}, "whole": {"ranks": 1, **WHOLE}}
    halves, whole = train_next_update(rank_pool, tmp_path, first=FIRST, layouts=layouts, **CONSTANT)
    assert abs(losses(halves)[FIRST] - losses(whole)[FIRST]) <= 1e-5
    # One update at a rate of 0.01: a wrong gradient would be seen, a value past a kink would not.
    assert worst_error(weights(halves), weights(whole)) <= 1e-3
    if is_old:
        _make_old(halves / "identity.json", **HALVES)
    with pytest.raises(BadInputError, match="--micro-batch-size"):
        train_in_ranks(rank_pool, halves, ranks=2, **CONSTANT, **OTHER_SETS)
    status, *_ = train_in_ranks(rank_pool, halves, ranks=1, **CONSTANT, **WHOLE)
    assert status == "finished"


def _make_old(path: Path, **settings: int) -> None:
    identity = json.loads(path.read_text())
    del identity["normalised_set"]
    path.write_text(json.dumps({**identity, **settings}))


def test_a_model_without_batch_norm_goes_on_with_any_micro_batch(rank_pool: RankPool, tmp_path: Path) -> None:
    options = {**CONSTANT, "model": "mnist_cnn", "image_size": 12}
    layouts = {"whole": {"ranks": 1, **WHOLE}, "others": {"ranks": 2, **OTHER_SETS}}
    whole, others = train_next_update(rank_pool, tmp_path, first=FIRST, layouts=layouts, **options)
    assert abs(losses(whole)[FIRST] - losses(others)[FIRST]) <= 1e-5
    assert worst_error(weights(whole), weights(others)) <= 1e-5
    train_in_ranks(rank_pool, others, ranks=2, **options, **OTHER_SETS)
    assert len(losses(others)) > FIRST + 1


def test_the_advice_can_be_typed(tmp_path: Path) -> None:
    """An empty list is left out; others are words with spaces between them."""
    plain, weighted = _identity(), _identity(class_weights=["1", "2"])
    with pytest.raises(BadInputError, match=r"is 1 2 but .* with its default; leave out --class-weights,"):
        check_same_identity(plain, weighted, path=tmp_path)
    with pytest.raises(BadInputError, match=r"with 1 2; give --class-weights 1 2,"):
        check_same_identity(weighted, plain, path=tmp_path)


def test_mappings_are_written_as_the_command_line_takes_them() -> None:
    stored, asked = (
        identity_of(Recipe(optimizer_params=OptimizerParams(momentum=momentum)), global_batch=32)
        for momentum in (0.8, 0.7)
    )
    with pytest.raises(BadInputError) as caught:
        check_same_identity(stored, asked, path=Path("run"))
    said = str(caught.value)
    assert said.startswith("--optimizer-params is '{\"momentum\": 0.7}' but the run in run was started with ")
    assert "; give --optimizer-params '{\"momentum\": 0.8}', " in said
