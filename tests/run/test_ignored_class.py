"""A training that ignores a class: measured without it, and never predicting it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from drivetrain.cli.main import main
from tests.data.mask_files import save
from tests.run.segments import draw_shapes

pytestmark = pytest.mark.usefixtures("no_pictures")

VALUES = np.array([10, 20, 30], dtype=np.uint8)
CLASSES = {"ground": 10, "disc": 20, "square": 30}


def test_a_class_of_a_folder_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, run = tmp_path / "shapes", tmp_path / "run"
    for number in range(5):
        image, classes = draw_shapes(32, 32, seed=number)
        save(folder / "images" / f"{number}.png", image)
        save(folder / "masks" / f"{number}.png", VALUES[classes])
    (folder / "classes.json").write_text(json.dumps(CLASSES))
    data = ["--dataset", "mask-folder", "--data-dir", str(folder)]
    small = ["--model", "unet_same", "--model-width", "2", "--model-params", "{depth: 1}"]
    asked = [*data, *small, "--max-updates", "2", "--micro-batch-size", "2", "--device", "cpu"]
    asked += ["--ignore-class", "ground", "--border-weight", "3", "--augment", "True"]
    assert main(["train", *asked, "--output-dir", str(run)]) == 0
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [event for event in events if event["event"] == "validation"][-1]
    assert "iou_disc" in last
    assert not any(name.endswith("_ground") for name in last)
    assert main(["evaluate", str(run)]) == 0
    with (run / "images-validation.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["iou"]) == pytest.approx(last["iou"])
    capsys.readouterr()
    assert main(["predict", str(run), str(folder / "images"), "--output", str(tmp_path / "found")]) == 0
    for number in range(5):
        predicted = np.asarray(Image.open(tmp_path / "found" / f"{number}-mask.png"))
        assert set(np.unique(predicted)) <= {20, 30}
    assert main(["train", *asked, "--ignore-class", "disk", "--output-dir", str(tmp_path / "other")]) == 2
    assert "--ignore-class disk is not a class of the masks. Did you mean disc?" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
