import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.run.small_training import TrainSmall, train_small_run, train_to_share

import drivetrain
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json
from drivetrain.inference.evaluate.evaluate import _no_such_split, evaluate_run
from drivetrain.inference.model.restore import find_checkpoints, weights_sentence
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import open_run


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> drivetrain.RunResult:
    return train_to_share(train_small_run, tmp_path_factory.mktemp("evaluate") / "run")


@pytest.fixture
def trained(trained_once: drivetrain.RunResult, tmp_path: Path) -> drivetrain.RunResult:
    """The small recipe's run, finished in `run` of the test's folder."""
    shutil.copytree(trained_once.directory, tmp_path / "run")
    return trained_once


def test_the_newest_checkpoint_measures_as_in_training(tmp_path: Path, trained: drivetrain.RunResult) -> None:
    (row,) = drivetrain.evaluate(tmp_path / "run")
    assert row["update"] == 18
    assert row["samples"] == 40
    assert row["accuracy"] == trained.metrics["validation"]["accuracy"]
    assert row["loss"] == pytest.approx(trained.metrics["validation"]["loss"], rel=1e-6)
    assert read_json(tmp_path / "run" / "evaluation-validation.json")["evaluations"] == [row]


@pytest.mark.usefixtures("trained")
def test_all_the_best_and_one_by_number(tmp_path: Path) -> None:
    kept = sorted(int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir())
    rows = drivetrain.evaluate(tmp_path / "run", checkpoint="all", split="train")
    assert [row["update"] for row in rows] == kept
    assert {row["samples"] for row in rows} == {100}
    (best,) = drivetrain.evaluate(tmp_path / "run", checkpoint="best")
    (named,) = drivetrain.evaluate(tmp_path / "run", checkpoint=str(best["update"]))
    assert named == best


def test_it_says_whose_weights_it_takes(
    tmp_path: Path, train_small: TrainSmall, capsys: pytest.CaptureFixture[str], no_pictures: None
) -> None:
    train_small(tmp_path / "run", max_updates=2)
    checkpoints = find_checkpoints(open_run(tmp_path / "run"), "newest")
    with Reporter() as reporter:
        for which in ("newest", "2", "best", "all"):
            evaluate_run(tmp_path / "run", reporter=reporter, checkpoint=which)
    lines = capsys.readouterr().out.splitlines()
    said = [line for line in lines if line.startswith(("using the weights of", "best checkpoint"))]
    assert said[:2] == [weights_sentence(checkpoints[0])] * 2
    assert [line.split()[0] for line in said] == ["using", "using", "best"]


@pytest.mark.usefixtures("trained")
def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"--checkpoint 77 .*newest"):
        drivetrain.evaluate(tmp_path / "run", checkpoint="77")
    with pytest.raises(BadInputError, match="--split test does not exist in digits; --split validation"):
        drivetrain.evaluate(tmp_path / "run", split="test")
    with pytest.raises(BadInputError, match="does not exist"):
        drivetrain.evaluate(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="not a run"):
        drivetrain.evaluate(tmp_path / "empty")


@pytest.mark.parametrize(("data_dir", "where"), [(None, "imagenet"), ("photos", "--data-dir photos")])
def test_all_of_a_divided_set_is_asked_for_by_its_parts(data_dir: str | None, where: str) -> None:
    recipe = Recipe(dataset="imagenet", data_dir=data_dir)
    said = _no_such_split("all", there=["validation", "train"], recipe=recipe)
    assert said == (
        f"--split all is for data without a split of their own, but {where} is divided into validation and "
        "train; --split validation or --split train works."
    )


def test_case_125_a_run_without_checkpoints_cannot_be_evaluated(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    train_small(tmp_path / "run", checkpoints=False, max_updates=1)
    with pytest.raises(BadInputError, match="has no checkpoint"):
        drivetrain.evaluate(tmp_path / "run")


def test_a_run_on_data_from_python_wants_them_again(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(40) % 4
    path = str(tmp_path / "run")
    drivetrain.train(quiet=True, data=(images, labels), output_dir=path, micro_batch_size=8, max_updates=2)
    with pytest.raises(BadInputError, match="data given in Python"):
        drivetrain.evaluate(path)
    with pytest.raises(BadInputError, match="without any for validation; use split='train'"):
        drivetrain.evaluate(path, data=(images, labels))
    (row,) = drivetrain.evaluate(path, data=(images, labels), split="train")
    assert (row["samples"], row["split"]) == (40, "train")
