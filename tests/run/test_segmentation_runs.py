"""A segmentation trains, leaves its files, and keeps the promises of every run."""

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.cli.main import main
from drivetrain.data import training_tiles as tile_source
from drivetrain.data.draws import draw_per_sample
from drivetrain.store.metrics_file import read_metrics
from tests.run.segments import ALL_AUGMENTATIONS, TILES, losses_of, segment, write_shapes
from tests.run.small_training import final_files, signal_after, train_to_share

METRICS = {"loss", "dice", "hard_dice", "iou", "pixel_accuracy", "validation_samples"}


def test_a_bare_train_is_a_segmentation(tmp_path: Path) -> None:
    small = ["--dataset-size", "6", "--image-size", "32", "--max-updates", "2", "--num-threads", "1"]
    assert main(["train", *small, "--device", "cpu", "--output-dir", str(tmp_path / "run")]) == 0
    entries = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert {"loss", "dice", "learning_rate"} <= set(next(e for e in entries if e["event"] == "train"))
    validations = [entry for entry in entries if entry["event"] == "validation"]
    assert all(set(entry) >= METRICS for entry in validations)
    assert {"v_rand", "v_info"} <= set(validations[-1])
    assert entries[-1]["best"]["metric"] == "dice"
    assert "unet_same" in (tmp_path / "run" / "recipe.yaml").read_text()


def test_a_run_leaves_a_table_by_image_and_overlays(tmp_path: Path) -> None:
    result = segment(tmp_path / "run", dataset_size=20)
    with (tmp_path / "run" / "images.csv").open() as file:
        rows = list(csv.DictReader(file))
    validation = result.metrics["validation"]
    assert len(rows) == validation["validation_samples"] == 5
    assert [row["image"] for row in rows] == [f"synthetic-em validation {index}" for index in range(5)]
    for name, column in (("loss", "loss"), ("dice", "soft_dice"), ("soft_dice_cell", "soft_dice_cell")):
        assert np.mean([float(row[column]) for row in rows]) == pytest.approx(validation[name], abs=1e-6)
    assert {"iou", "soft_dice_membrane", "hard_dice_cell", "iou_cell", "v_rand"} <= set(rows[0])
    assert (tmp_path / "run" / "predictions" / "validation.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "run" / "curves.png").is_file()
    assert not (tmp_path / "run" / "confusion.csv").exists()


def _first_losses(path: Path, *, micro: int, **options: Any) -> Any:
    segment(
        path,
        micro_batch_size=micro,
        gradient_accumulation_count=4 // micro,
        max_updates=2,
        validation=False,
        checkpoints=False,
        **ALL_AUGMENTATIONS,
        **options,
    )
    return losses_of(path)


@pytest.mark.usefixtures("no_pictures")
def test_the_cut_of_the_batch_changes_no_loss(tmp_path: Path) -> None:
    """With dropout and every augmentation; as negative control batch norm, which sees another set."""
    plain = {"model_params": {"depth": 1, "dropout": 0.4}}
    whole, halves, singles = (
        _first_losses(tmp_path / f"plain-{micro}", micro=micro, **plain) for micro in (4, 2, 1)
    )
    np.testing.assert_allclose(halves, whole, rtol=1e-5)
    np.testing.assert_allclose(singles, whole, rtol=1e-5)
    other_draws = _first_losses(tmp_path / "other", micro=4, seed=2, **plain)
    assert abs(other_draws / whole - 1).max() > 1e-3
    normed = {"model_params": {"depth": 1, "norm": "batch"}}
    together, apart = (_first_losses(tmp_path / f"normed-{micro}", micro=micro, **normed) for micro in (4, 2))
    assert abs(apart / together - 1).max() > 1e-3


GEOMETRIES: dict[str, dict[str, Any]] = {
    "fixed": {"model_params": {"depth": 1, "norm": "batch", "dropout": 0.3}, **ALL_AUGMENTATIONS},
    "tiles": {**TILES, "augment": True, "model_params": {"depth": 1, "dropout": 0.3}},
}


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("geometry", "continued"),
    [
        ("fixed", {"data_placement": "resident"}),
        ("fixed", {"data_placement": "stream", "num_workers": 1}),
        ("tiles", {"num_workers": 0}),
        ("tiles", {"num_workers": 1}),
    ],
)
def test_a_run_stopped_and_continued_ends_with_the_same_bits(
    tmp_path: Path, geometry: str, continued: dict[str, Any]
) -> None:
    options = {**GEOMETRIES[geometry], "micro_batch_size": 2, "gradient_accumulation_count": 2}
    segment(tmp_path / "straight", **options)
    with signal_after(2):
        assert segment(tmp_path / "run", **options).exit_status == 143
    finished = segment(tmp_path / "run", **{**options, **continued})
    assert finished.status == "finished"
    assert final_files(tmp_path / "run") == final_files(tmp_path / "straight")


@pytest.mark.usefixtures("no_pictures")
def test_negative_control_another_draw_ends_with_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(tmp_path / "straight", **TILES)
    with signal_after(2):
        segment(tmp_path / "run", **TILES)
    monkeypatch.setattr(
        tile_source, "draw_per_sample", lambda *where, **of: 1 - 1e-9 - draw_per_sample(*where, **of)
    )
    segment(tmp_path / "run", **TILES)
    weights = (final_files(tmp_path / name)["model.safetensors"] for name in ("run", "straight"))
    assert len(set(weights)) == 2


IN_PLACES = {**ALL_AUGMENTATIONS, "border_weight": 5.0, "max_updates": 3, "validation": False}


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("places") / "resident"
    return train_to_share(segment, path, data_placement="resident", **IN_PLACES).directory


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    "streamed",
    [
        {"accelerator_side_preprocess": False},
        {"accelerator_side_preprocess": True},
        {"accelerator_side_preprocess": True, "eight_bit_transfer": True},
    ],
)
def test_where_samples_lie_and_are_prepared_changes_no_bit(
    resident: Path, tmp_path: Path, streamed: dict[str, Any]
) -> None:
    segment(tmp_path / "stream", data_placement="stream", num_workers=0, **streamed, **IN_PLACES)
    assert np.array_equal(losses_of(resident), losses_of(tmp_path / "stream"))
    files = [final_files(path)["model.safetensors"] for path in (resident, tmp_path / "stream")]
    assert files[0] == files[1]


def test_a_valid_model_trains_on_tiles_with_their_margin(tmp_path: Path) -> None:
    """The model's own margin of 92 pixels is mirrored around tiles that are larger than the images."""
    folder = write_shapes(tmp_path / "shapes", sizes=((37, 45), (41, 33), (40, 40)))
    result = segment(
        tmp_path / "run",
        model="unet",
        model_params={},
        dataset="mask-folder",
        data_dir=str(folder),
        dataset_size=None,
        image_size=None,
        tile_size=20,
        micro_batch_size=1,
        max_updates=1,
        num_workers=0,
    )
    assert 0 < result.metrics["validation"]["dice"] < 1


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="the compiler needs one of C++"
)
def test_compiled_folds_give_the_same_losses_after_one_compilation(tmp_path: Path) -> None:
    """The one slow test here: the compiler needs a while even for the smallest network."""
    from torch._dynamo.utils import counters
    from torch._inductor import config

    options = {"max_updates": 2, "validation": False, "checkpoints": False, "augment": True, "folds": 2}
    counters.clear()
    graphs = []
    for fold in (0, 1):
        segment(tmp_path / f"off-{fold}", fold=fold, micro_batch_size=2, **options)
        # Not by monkeypatch: undoing it hides the setting, and the next test that compiles fails.
        with config.patch(compile_threads=1):  # type: ignore[no-untyped-call, unused-ignore]
            segment(tmp_path / f"on-{fold}", fold=fold, micro_batch_size=2, compile="on", **options)
        graphs.append(counters["stats"]["unique_graphs"])
        found, expected = (losses_of(tmp_path / f"{switch}-{fold}") for switch in ("on", "off"))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert graphs[0] > 0
    assert graphs[1] == graphs[0]
