import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from tests.run.small_training import TrainSmall

import drivetrain
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.inference.model.restore import find_checkpoint
from drivetrain.inference.predict import predict
from drivetrain.inference.predict.predict import predict_run
from drivetrain.store.directory import open_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predict") / "run"
    drivetrain.train(
        quiet=True, dataset="digits", output_dir=str(path), num_epochs=4, limit_train_samples=800
    )
    return path


def _save_digits(folder: Path, count: int) -> list[int]:
    digits = load_digits()
    folder.mkdir()
    for index in range(count):
        pixels = np.rint(digits.images[index] * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"digit-{index:02}.png")
    return [int(label) for label in digits.target[:count]]


def test_digits_from_files_are_recognised(run: Path, tmp_path: Path) -> None:
    labels = _save_digits(tmp_path / "images", 20)
    rows = drivetrain.predict(run, [tmp_path / "images"], output=tmp_path / "out")
    right = sum(int(row["class"]) == label for row, label in zip(rows, labels, strict=True))
    assert right >= 18
    for row in rows:
        assert sum(row["probabilities"].values()) == pytest.approx(1.0, abs=1e-4)


def test_flips_average_an_image_and_its_mirror_image(run: Path, tmp_path: Path) -> None:
    _save_digits(tmp_path / "images", 3)
    for path in sorted((tmp_path / "images").iterdir()):
        with Image.open(path) as image:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path.with_name(f"mirrored-{path.name}"))

    def probabilities(flips: bool) -> list[list[float]]:
        rows = drivetrain.predict(run, [tmp_path / "images"], output=tmp_path / f"{flips}", flips=flips)
        return [list(row["probabilities"].values()) for row in rows]

    averaged, plain = probabilities(True), probabilities(False)
    np.testing.assert_allclose(averaged[:3], averaged[3:], rtol=0, atol=1e-5)
    assert np.abs(np.subtract(plain[:3], plain[3:])).max() > 0.01


def test_csv_and_json_hold_the_same_rows(run: Path, tmp_path: Path) -> None:
    from drivetrain.cli.main import main

    _save_digits(tmp_path / "images", 3)
    status = main(
        ["predict", str(run), str(tmp_path / "images"), "--output", str(tmp_path / "out"), "--format", "both"]
    )
    assert status == 0
    with (tmp_path / "out" / "predictions.csv").open() as file:
        table = list(csv.DictReader(file))
    rows = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert [row["file"] for row in table] == [row["file"] for row in rows]
    assert [row["class"] for row in table] == [row["class"] for row in rows]
    assert set(table[0]) == {"file", "class", "probability", *(f"p_{digit}" for digit in range(10))}


def test_other_sizes_and_modes_are_converted(run: Path, tmp_path: Path) -> None:
    Image.new("RGBA", (31, 17), (255, 0, 0, 255)).save(tmp_path / "colour.png")
    Image.new("L", (8, 8)).save(tmp_path / "grey.jpg")
    rows = drivetrain.predict(run, [tmp_path / "colour.png", tmp_path / "grey.jpg"], output=tmp_path / "out")
    assert len(rows) == 2


def test_bad_inputs_are_named(run: Path, tmp_path: Path, train_small: TrainSmall) -> None:
    (tmp_path / "note.png").write_text("no image")
    (tmp_path / "empty").mkdir()
    for given, words in [
        ("note.png", "cannot be read as an image .*; replace it with an undamaged PNG, JPEG, TIFF"),
        ("empty", r"no image files; give image files, or a folder that contains some \(\.png, "),
        ("absent.png", "not exist"),
    ]:
        with pytest.raises(BadInputError, match=f"INPUT .*{given}.*{words}"):
            drivetrain.predict(run, [tmp_path / given], output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_read_is_left_out_named_and_counted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from drivetrain.cli.main import main

    folder, output = tmp_path / "images", tmp_path / "out"
    _save_digits(folder, 4)
    (folder / "digit-01.png").write_bytes(b"")
    (folder / "digit-02.png").write_bytes((folder / "digit-03.png").read_bytes()[:-30])
    (folder / "digit-09.png").symlink_to("nowhere.png")
    frames = [Image.new("L", (8, 8), value) for value in (9, 99)]
    frames[0].save(folder / "digit-moving.gif", save_all=True, append_images=frames[1:])
    assert main(["predict", str(run), str(folder), "--output", str(output)]) == 1
    said = capsys.readouterr().out
    assert "3 of 6 files cannot be read and get no prediction" in said
    assert "digit-01.png (the file is empty)" in said
    assert "digit-02.png (" in said
    assert "digit-09.png (it is a symbolic link to nowhere.png, which does not exist)" in said
    assert "digit-moving.gif is an animation; only the first frame is used" in said
    with (output / "predictions.csv").open() as file:
        names = [Path(row["file"]).name for row in csv.DictReader(file)]
    assert names == ["digit-00.png", "digit-03.png", "digit-moving.gif"]
    with pytest.warns(UserWarning, match="3 of 6 files cannot be read"):
        assert len(drivetrain.predict(run, folder, output=output)) == 3


def test_a_folder_with_nothing_readable(run: Path, tmp_path: Path) -> None:
    from drivetrain.cli.main import main

    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "images" / name).write_text("no image")
    assert main(["predict", str(run), str(tmp_path / "images"), "--output", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_a_table_that_predict_did_not_write_is_not_overwritten(run: Path, tmp_path: Path) -> None:
    _save_digits(tmp_path / "images", 2)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "predictions.csv").write_text("mine")
    with pytest.raises(BadInputError, match=r"own contains predictions\.csv, .*; --output .*own-2 works"):
        drivetrain.predict(run, [tmp_path / "images"], output=tmp_path / "own")
    assert (tmp_path / "own" / "predictions.csv").read_text() == "mine"
    first, again = (
        drivetrain.predict(run, [tmp_path / "images"], output=tmp_path / "own-2") for _ in range(2)
    )
    assert first == again


def test_it_says_whose_weights_it_takes(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _save_digits(tmp_path / "in", 1)
    newest = find_checkpoint(open_run(run), "newest", command="predict", warn=print)
    best = newest.manifest["state"]["best"]["update"]
    with Reporter() as reporter:
        predict_run(run, [tmp_path / "in"], output=tmp_path / "a", reporter=reporter)
        newest.manifest["state"]["best"]["update"] = 1
        monkeypatch.setattr(predict, "find_checkpoint", lambda *_, **__: newest)
        predict_run(run, [tmp_path / "in"], output=tmp_path / "b", reporter=reporter)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("using the weights")]
    is_best = ", the best by validation accuracy"
    used = f"using the weights of update {newest.update}"
    other = "; update {} is the best by validation accuracy (--checkpoint best uses it)"
    assert said == [
        f"{used}{is_best if best == newest.update else other.format(best)}",
        f"{used}{other.format(1)}",
    ]
