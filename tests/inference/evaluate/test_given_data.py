"""Data given to measure a run: its own are divided as it divided them, others are measured whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import drivetrain
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json, write_json
from drivetrain.data.source import IGNORED
from drivetrain.inference.evaluate.given_data import divide_given
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import read_metrics

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]
PYTHON: dict[str, Any] = {"micro_batch_size": 8, "max_updates": 3, "device": "cpu", "quiet": True}


def _arrays(samples: int = 40, *, seed: int = 0) -> Arrays:
    images = np.random.default_rng(seed).integers(0, 255, (samples, 8, 8, 1), dtype=np.uint8)
    return images, np.arange(samples) % 4


def _train(path: Path, data: Any, **options: Any) -> dict[str, Any]:
    result = drivetrain.train(data=data, output_dir=str(path), **{**PYTHON, **options})
    validation: dict[str, Any] = result.metrics.get("validation", {})
    return validation


@pytest.mark.parametrize(
    "held_out",
    [{"validation_fraction": 0.2}, {"folds": 5, "fold": 3}, {"validation_fraction": 0.25, "seed": 7}],
)
def test_the_samples_that_validated_are_measured(tmp_path: Path, held_out: dict[str, Any]) -> None:
    validation = _train(tmp_path / "run", _arrays(), **held_out)
    (row,) = drivetrain.evaluate(tmp_path / "run", data=_arrays(), device="cpu")
    assert (row["split"], row["samples"]) == ("validation", validation["validation_samples"])
    assert row["accuracy"] == validation["accuracy"]
    assert row["loss"] == pytest.approx(validation["loss"], rel=1e-6)
    counts = {}
    for split in ("train", "all", "test"):
        (other,) = drivetrain.evaluate(tmp_path / "run", data=_arrays(), split=split, device="cpu")
        assert other["split"] == split
        assert (tmp_path / "run" / f"evaluation-{split}.json").is_file()
        counts[split] = other["samples"]
    assert counts == {"train": 40 - row["samples"], "all": 40, "test": 40}


def test_other_data_are_measured_whole_and_called_so(tmp_path: Path) -> None:
    _train(tmp_path / "run", _arrays(), validation_fraction=0.2)
    images, labels = _arrays()
    changed = images.copy()
    changed[:, 0, 0] ^= 1
    for data in (_arrays(24, seed=1), _arrays(3), (changed, labels)):
        (row,) = drivetrain.evaluate(tmp_path / "run", data=data, device="cpu")
        assert (row["split"], row["samples"]) == ("all", len(data[1]))
        for split in ("validation", "train"):
            with pytest.raises(
                BadInputError, match=f"no split '{split}': .*; split='all' evaluates all samples"
            ):
                drivetrain.evaluate(tmp_path / "run", data=data, split=split, device="cpu")
    assert not (tmp_path / "run" / "evaluation-validation.json").exists()


def test_held_out_samples_that_changed_are_noticed(tmp_path: Path) -> None:
    _train(tmp_path / "run", _arrays(), validation_fraction=0.2)
    images, labels = _arrays()
    record = read_json(tmp_path / "run" / "own_data.json")
    assert (record["train_samples"], record["validation_samples"]) == (32, 8)
    write_json(tmp_path / "run" / "own_data.json", {**record, "validation": "another"})
    with pytest.raises(BadInputError, match="are not those of the training"):
        drivetrain.evaluate(tmp_path / "run", data=(images, labels), device="cpu")


def test_validation_data_of_the_training_are_known_again(tmp_path: Path) -> None:
    own, other = _arrays(), _arrays(12, seed=1)
    validation = _train(tmp_path / "run", own, validation_data=other)
    (row,) = drivetrain.evaluate(tmp_path / "run", data=other, device="cpu")
    assert (row["split"], row["samples"], row["accuracy"]) == ("validation", 12, validation["accuracy"])
    with pytest.raises(BadInputError, match="RUN was validated on 12 samples that are not in data"):
        drivetrain.evaluate(tmp_path / "run", data=own, device="cpu")
    (row,) = drivetrain.evaluate(tmp_path / "run", data=own, split="train", device="cpu")
    assert (row["split"], row["samples"]) == ("train", 40)


def test_a_run_of_an_older_version_knows_its_training_samples(tmp_path: Path) -> None:
    _train(tmp_path / "run", _arrays(), validation_fraction=0.2)
    (tmp_path / "run" / "own_data.json").unlink()
    (row,) = drivetrain.evaluate(tmp_path / "run", data=_arrays(), device="cpu")
    assert (row["split"], row["samples"]) == ("validation", 8)
    (row,) = drivetrain.evaluate(tmp_path / "run", data=_arrays(24, seed=1), device="cpu")
    assert (row["split"], row["samples"]) == ("all", 24)


def test_data_of_a_function_that_changed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "changing_data.py").write_text(
        "import pathlib, numpy as np\n"
        "def load(data_dir=None):\n"
        "    seed = int(pathlib.Path(data_dir, 'seed').read_text())\n"
        "    images = np.random.default_rng(seed).integers(0, 255, (40, 8, 8, 1), dtype=np.uint8)\n"
        "    return images, np.arange(40) % 4\n"
    )
    (tmp_path / "seed").write_text("0")
    own = ["--dataset=changing_data:load", f"--data-dir={tmp_path}", "--validation-fraction=0.2"]
    run = str(tmp_path / "run")
    assert main(["train", *own, "--max-updates=2", "--device=cpu", f"--output-dir={run}"]) == 0
    entry = next(e for e in read_metrics(tmp_path / "run" / "metrics.jsonl") if e["event"] == "validation")
    assert main(["evaluate", run, "--device=cpu"]) == 0
    (row,) = read_json(tmp_path / "run" / "evaluation-validation.json")["evaluations"]
    assert (row["samples"], row["accuracy"]) == (8, entry["accuracy"])
    (tmp_path / "seed").write_text("1")
    capsys.readouterr()
    assert main(["evaluate", run, "--device=cpu"]) == 2
    assert "--dataset changing_data:load are not those that RUN was trained on" in capsys.readouterr().err
    assert main(["evaluate", run, "--device=cpu", "--split=all"]) == 0
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "seed").write_text("2")
    assert main(["evaluate", run, "--device=cpu", f"--data-dir={tmp_path / 'elsewhere'}"]) == 0
    assert "warning: the samples of --dataset" in capsys.readouterr().out


def test_masks_given_in_python_lose_the_class_too(tmp_path: Path) -> None:
    masks = np.random.default_rng(0).integers(0, 3, (3, 8, 8)).astype(np.uint8)
    images = np.zeros((3, 8, 8, 1), dtype=np.uint8)
    recipe = Recipe(model="unet_same", ignore_class=("2",))
    directory = RunDirectory(tmp_path)
    data, split = divide_given((images, masks), recipe=recipe, directory=directory, split="all")
    assert (split, data.spec.class_names) == ("all", ("0", "1"))
    expected = np.array([0, 1, IGNORED], dtype=np.uint8)[masks]
    assert np.array_equal(data.train.fetch(np.arange(3))[1][..., 0], expected)
    few, _ = divide_given((images, masks.clip(max=1)), recipe=recipe, directory=directory, split="all")
    assert set(np.unique(few.train.fetch(np.arange(3))[1])) == {0, 1}
