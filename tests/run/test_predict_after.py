"""Train, then predict, in one call."""

import csv
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import drivetrain
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from tests.run.segments import segment
from tests.run.small_training import signal_after


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A TIFF of three pages of another size than the training images."""
    pages = np.random.default_rng(0).integers(0, 256, (3, 40, 50)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "test-volume.tif", pages, photometric="minisblack")
    return tmp_path / "test-volume.tif"


def test_predictions_lie_in_the_run(tmp_path: Path, stack: Path) -> None:
    Image.new("L", (31, 33)).save(tmp_path / "one.png")
    segment(tmp_path / "run", max_updates=1, predict_after=[str(stack), str(tmp_path / "one.png")])
    predictions = tmp_path / "run" / "predictions"
    masks = tifffile.imread(predictions / "test-volume-mask.tif")
    assert masks.shape == (3, 40, 50)
    assert set(np.unique(masks)) <= {0, 255}
    assert np.asarray(Image.open(predictions / "one-mask.png")).shape == (33, 31)
    with (predictions / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(Path(row["file"]).name, row["page"]) for row in rows] == [
        ("test-volume.tif", "1"),
        ("test-volume.tif", "2"),
        ("test-volume.tif", "3"),
        ("one.png", "1"),
    ]
    assert (predictions / "validation.png").is_file()


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, stack: Path, replicas: int) -> None:
    (tmp_path / "bad.png").write_text("no image")
    inputs = [str(stack), str(tmp_path / "bad.png")]
    result = segment(tmp_path / "run", max_updates=1, predict_after=inputs, replicas=replicas)
    assert (result.status, result.exit_status) == ("finished", 1)
    assert (tmp_path / "run" / "predictions" / "test-volume-mask.tif").is_file()
    assert "1 of 2 files cannot be read" in (tmp_path / "run" / "rank-0.log").read_text()


@pytest.mark.usefixtures("no_pictures")
def test_a_stopped_run_predicts_once_it_is_finished(tmp_path: Path, stack: Path) -> None:
    with signal_after(1):
        segment(tmp_path / "run", predict_after=str(stack))
    assert not (tmp_path / "run" / "predictions").exists()
    segment(tmp_path / "run", predict_after=str(stack))
    assert (tmp_path / "run" / "predictions" / "test-volume-mask.tif").is_file()


@pytest.mark.usefixtures("no_pictures")
def test_a_finished_run_predicts_what_is_asked_for_later(tmp_path: Path, stack: Path) -> None:
    segment(tmp_path / "run", max_updates=1)
    segment(tmp_path / "run", max_updates=1, predict_after=str(stack))
    assert (tmp_path / "run" / "predictions" / "test-volume-mask.tif").is_file()


@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_averages_flips_predicts_so_unless_told_otherwise(tmp_path: Path, stack: Path) -> None:
    segment(tmp_path / "run", max_updates=1, flip_averaging=True)
    shares = {}
    for name, flips in (("as trained", None), ("with", True), ("without", False)):
        output = tmp_path / name
        drivetrain.predict(
            tmp_path / "run", [stack], output=output, flips=flips, probabilities=True, device="cpu"
        )
        shares[name] = tifffile.imread(output / "test-volume-probabilities.tif")
    assert np.array_equal(shares["as trained"], shares["with"])
    assert not np.array_equal(shares["as trained"], shares["without"])


def test_a_missing_file_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nowhere.tif")
    arguments = ["--predict-after", missing, "--output-dir", str(tmp_path / "run"), "--max-updates", "1"]
    assert main(["train", "--dataset-size", "4", *arguments]) == 2
    shown = capsys.readouterr().err
    assert f"--predict-after {missing} does not exist; give image files or folders of images." in shown
    assert shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("field", "value"), [("checkpoints", False), ("clean_dir", True), ("training", False)]
)
def test_without_a_checkpoint_there_is_nothing_to_predict_with(
    tmp_path: Path, stack: Path, field: str, value: bool
) -> None:
    option = f"--{field.replace('_', '-')} {value}"
    with pytest.raises(BadInputError, match=f"--predict-after .* needs a checkpoint .*{option}"):
        segment(tmp_path / "run", predict_after=str(stack), **{field: value})
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_pictures")
def test_a_prediction_that_was_corrected_is_refused_before_anything_is_trained(
    tmp_path: Path, stack: Path
) -> None:
    segment(tmp_path / "run", max_updates=1, predict_after=str(stack))
    mask = tmp_path / "run" / "predictions" / "test-volume-mask.tif"
    predicted = mask.read_bytes()
    mask.write_bytes(b"by hand")
    with pytest.raises(BadInputError, match=r"mask\.tif was changed after .*leave out --predict-after"):
        segment(tmp_path / "run", max_updates=2, predict_after=str(stack))
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["1"]
    segment(tmp_path / "run", max_updates=2)
    assert mask.read_bytes() == b"by hand"
    mask.write_bytes(predicted)
    segment(tmp_path / "run", max_updates=2, predict_after=str(stack))
