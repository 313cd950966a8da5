"""Exports of small runs: what is written runs elsewhere and agrees, and what is refused leaves nothing."""

import hashlib
import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray
from PIL import Image
from tests.run.segments import TILES, segment
from tests.run.small_training import TrainSmall, train_small_run, train_to_share
from torch import nn

import drivetrain
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.inference.export import export, export_formats
from drivetrain.inference.export.export import export_run
from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
from drivetrain.inference.model.restore import find_checkpoint, weights_sentence
from drivetrain.store.directory import open_run

QUIET = Reporter(quiet=True)
EVERY_FORMAT = export_formats.available_formats()


@pytest.fixture(scope="module")
def trained_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "run"
    return train_to_share(train_small_run, path, image_size=16, num_epochs=1).directory


@pytest.fixture
def classifier(trained_classifier: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_classifier, tmp_path / "run"))


def _loaded(path: Path) -> Callable[[torch.Tensor], torch.Tensor]:
    run: Callable[[torch.Tensor], torch.Tensor] = torch.export.load(path).module()
    return run


def test_it_says_whose_weights_it_takes(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = find_checkpoint(open_run(classifier), "newest", command="export", warn=print)
    with Reporter() as reporter:
        export_run(classifier, reporter=reporter, output=tmp_path / "out", formats=("pt2",))
    assert capsys.readouterr().out.splitlines()[0] == weights_sentence(found)


def test_a_classifier_for_torch(classifier: Path, tmp_path: Path) -> None:
    result = export_run(classifier, reporter=QUIET, output=tmp_path / "out", formats=("pt2",))
    assert result.folded == 7
    assert result.differences["model.pt2"] < 1e-5
    described = json.loads((tmp_path / "out" / "export.json").read_text())
    assert described["class_names"] == [str(digit) for digit in range(10)]
    assert described["input"]["shape"] == ["batch", 8, 8, 1]
    assert (described["input"]["layout"], described["output"]["layout"]) == ("NHWC", "NC")
    assert result.usage == (
        "input: images of one size, `images` uint8 (batch, 8, 8, 1), NHWC; output: probabilities (batch, "
        "10), NC"
    )
    assert described["preprocessing"] == ["uint8 to float32", "bilinear to 16x16", "normalised: unit"]
    content = (tmp_path / "out" / "model.pt2").read_bytes()
    assert described["files"]["model.pt2"]["sha256"] == hashlib.sha256(content).hexdigest()
    run = _loaded(tmp_path / "out" / "model.pt2")
    for batch in (1, 5):
        probabilities = run(torch.randint(0, 256, (batch, 8, 8, 1), dtype=torch.uint8))
        assert probabilities.shape == (batch, 10)
        assert torch.allclose(probabilities.sum(1), torch.ones(batch))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["export.json", "model.pt2"]


def test_a_class_map_of_scaled_images(tmp_path: Path, no_pictures: None) -> None:
    path = tmp_path / "run"
    segment(path, num_epochs=1, dataset_size=4, validation=False)
    result = export_run(path, reporter=QUIET, formats=("pt2",), gives="classes")
    assert result.folder == path / "export"
    assert result.differences == {"model.pt2": 0.0}
    classes = _loaded(path / "export" / "model.pt2")(torch.zeros(2, 32, 32, 1, dtype=torch.uint8))
    assert classes.shape == (2, 32, 32)
    described = json.loads((path / "export" / "export.json").read_text())
    assert described["output"] == {"gives": "classes", "layout": "NHW", "shape": ["batch", "height", "width"]}


GEOMETRIES: dict[str, dict[str, Any]] = {
    "tiles": TILES,
    "tiles without padding": {**TILES, "model": "unet", "model_params": {}, "tile_size": 36},
    "scaled": {"dataset_size": 4},
    "whole": {"dataset_size": 4, "image_size": None, "micro_batch_size": 1},
}


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_whole_images_of_any_size_as_the_run_predicts_them(
    kind: str, tmp_path: Path, no_pictures: None
) -> None:
    path = tmp_path / "run"
    segment(path, max_updates=1, validation=False, **GEOMETRIES[kind])
    result = export_run(path, reporter=QUIET, formats=EVERY_FORMAT)
    assert max(result.differences.values()) < 1e-5
    described = json.loads((path / "export" / "export.json").read_text())
    assert described["input"]["shape"] == ["batch", "height", "width", 1]
    assert described["output"]["shape"] == ["batch", 2, "height", "width"]
    assert (described["input"]["layout"], described["output"]["layout"]) == ("NHWC", "NCHW")
    assert "the largest size tested here is " in described["memory"]
    assert result.usage.endswith(described["memory"])
    for height, width in ((20, 31), (90, 150)):
        image = np.random.default_rng(height).integers(0, 256, (height, width), dtype=np.uint8)
        expected = _predicted(path, image, tmp_path / f"image-{height}")
        for file in result.differences:
            found = _run_file(path / "export" / file, image[None, :, :, None])
            assert found.shape == (1, 2, height, width)
            np.testing.assert_allclose(found[0], expected, atol=1e-5)


def _predicted(run: Path, image: NDArray[np.uint8], folder: Path) -> NDArray[np.float32]:
    """The probabilities that `predict` writes for an image."""
    folder.mkdir()
    Image.fromarray(image).save(folder / "image.png")
    drivetrain.predict(run, folder / "image.png", output=folder / "out", probabilities=True)
    return np.asarray(tifffile.imread(folder / "out" / "image-probabilities.tif"), dtype=np.float32)


def _run_file(file: Path, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    if file.suffix == ".pt2":
        return np.asarray(_loaded(file)(torch.from_numpy(images)))
    onnxruntime = importlib.import_module("onnxruntime")
    return np.asarray(onnxruntime.InferenceSession(str(file)).run(None, {"images": images})[0])


def test_for_onnx(classifier: Path, tmp_path: Path) -> None:
    for package in export_formats._ONNX_PACKAGES:
        pytest.importorskip(package)
    result = export_run(classifier, reporter=QUIET, output=tmp_path / "out")
    assert set(result.differences) == {"model.pt2", "model.onnx"}
    onnxruntime = importlib.import_module("onnxruntime")
    session: Any = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    images: NDArray[np.uint8] = np.zeros((4, 8, 8, 1), dtype=np.uint8)
    assert session.run(None, {"images": images})[0].shape == (4, 10)


def test_a_file_that_does_not_agree_is_not_written(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(model: nn.Module) -> Any:
        folded = fold_batch_norm(model)
        with torch.no_grad():
            for parameter in folded.model.parameters():
                parameter.mul_(1.01)
        return folded

    monkeypatch.setattr(export, "fold_batch_norm", spoil)
    with pytest.raises(RunFailedError, match="nothing was written"):
        export_run(classifier, reporter=QUIET, output=tmp_path / "out", formats=("pt2",))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"formats": ("tflite",)}, "--format pt2, onnx or safetensors works"),
        ({"formats": ("onnx",)}, "run pip install a_package_that_is_not_there, or use --format pt2"),
        ({"checkpoint": "all"}, "--checkpoint newest"),
        (
            {"checkpoint": "77", "formats": ("pt2",)},
            r"--checkpoint 77 does not exist in .*; choose one of newest, best, \d+\.$",
        ),
        ({"output": __file__}, "is a file"),
    ],
)
def test_bad_input_leaves_nothing(
    classifier: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(export_formats, "_ONNX_PACKAGES", ("a_package_that_is_not_there",))
    with pytest.raises(BadInputError, match=said):
        export_run(classifier, reporter=QUIET, **options)
    assert not (classifier / "export").exists()


def test_a_run_without_a_checkpoint_is_refused(
    tmp_path: Path, train_small: TrainSmall, no_pictures: None
) -> None:
    path = tmp_path / "run"
    train_small(path, num_epochs=1, checkpoints=False)
    with pytest.raises(BadInputError, match="has no checkpoint"):
        export_run(path, reporter=QUIET, formats=("pt2",))
    assert not (path / "export").exists()
