"""Tables and signals through the commands: train, continue, evaluate, predict, export, plan and verify."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import drivetrain
from drivetrain.cli.main import main
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.inference.export.export import export_run
from tests.number_data import CHANNELS, FEATURES, LENGTH, Convolutions, Perceptron, as_tensor, signals, table
from tests.run.small_training import final_files, signal_after

pytestmark = pytest.mark.usefixtures("no_pictures", "one_thread")

OPTIONS: dict[str, Any] = {
    "micro_batch_size": 8,
    "num_epochs": 2,
    "validation_fraction": 0.25,
    "compile": "off",
    "device": "cpu",
    "quiet": True,
}
KINDS: dict[str, tuple[type[nn.Module], Any, dict[str, Any]]] = {
    "table": (Perceptron, table(), {}),
    "signal": (Convolutions, signals(), {"input_kind": "signal"}),
}
FACTORIES = ["--model=tests.number_data:Perceptron", "--dataset=tests.number_data:table"]


def _train(kind: str, path: Path, **options: Any) -> Any:
    model, data, own = KINDS[kind]
    torch.manual_seed(0)
    return drivetrain.train(model=model, data=data, output_dir=path, **{**OPTIONS, **own, **options})


@pytest.mark.parametrize("kind", KINDS)
def test_train_evaluate_and_predict(kind: str, tmp_path: Path) -> None:
    model, (values, labels), _ = KINDS[kind]
    result = _train(kind, tmp_path / "run", num_epochs=20, learning_rate=0.05)
    assert result.metrics["validation"]["accuracy"] > 0.8
    assert json.loads((tmp_path / "run" / "data.json").read_text())["input_kind"] == kind
    (row,) = drivetrain.evaluate(tmp_path / "run", model=model, data=(values, labels))
    assert row["accuracy"] == result.metrics["validation"]["accuracy"]
    rows = drivetrain.predict(tmp_path / "run", values, model=model)
    assert [row["sample"] for row in rows] == list(range(len(values)))
    assert np.mean([int(row["class"]) for row in rows] == labels) > 0.8
    trained = result.model.eval()
    own = torch.from_numpy(values).float() if kind == "table" else as_tensor(values).contiguous()
    with torch.no_grad():
        expected = trained(own).softmax(1)[:, 1]
    found = [row["probabilities"]["1"] for row in rows]
    assert np.abs(np.array(found) - expected.numpy()).max() < 2e-6
    assert (tmp_path / "run" / "predictions" / "predictions.csv").read_text().startswith("sample,class")


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    _train(kind, tmp_path / "straight")
    with signal_after(2), pytest.raises(SystemExit):
        _train(kind, tmp_path / "run")
    _train(kind, tmp_path / "run", data_placement="stream", num_workers=0)
    assert final_files(tmp_path / "run") == final_files(tmp_path / "straight")


def test_numpy_and_tensors_train_the_same_signals(tmp_path: Path) -> None:
    values, labels = signals()
    _train("signal", tmp_path / "numpy")
    torch.manual_seed(0)
    options = {**OPTIONS, "output_dir": tmp_path / "tensor", "input_kind": "signal"}
    drivetrain.train(model=Convolutions, data=(as_tensor(values), labels), **options)
    assert final_files(tmp_path / "numpy") == final_files(tmp_path / "tensor")
    turned = (as_tensor(values).flip(2), labels)
    drivetrain.train(model=Convolutions, data=turned, **{**options, "output_dir": tmp_path / "turned"})
    assert final_files(tmp_path / "turned") != final_files(tmp_path / "tensor")


def test_mixup_weights_and_cross_validation_take_a_table(tmp_path: Path) -> None:
    options = {"mixup": 0.2, "label_smoothing": 0.1, "class_weights": ["balanced"], "recomputation": True}
    assert _train("table", tmp_path / "run", **options).status == "finished"
    values = {name: value for name, value in OPTIONS.items() if name != "validation_fraction"}
    done = drivetrain.crossval(
        model=Perceptron, data=table(), folds=2, output_dir=str(tmp_path / "folds"), **values
    )
    assert done.status == "finished"


@pytest.mark.ranks
@pytest.mark.parametrize("kind", KINDS)
def test_every_family_of_layouts_is_equal(kind: str) -> None:
    model, data, own = KINDS[kind]
    certificate = drivetrain.certify(
        model=model(), data=data, quick=True, quiet=True, micro_batch_size=4, num_threads=1, **own
    )
    assert certificate["ok"]
    assert certificate["not_possible"] == []
    families = " ".join(row["layout"] for row in certificate["layouts"])
    assert "replicas=2" in families
    assert "stages=2" in families


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "shape"), [("table", [FEATURES]), ("signal", [CHANNELS, LENGTH])])
def test_an_exported_program_takes_what_the_model_takes(kind: str, shape: list[int], tmp_path: Path) -> None:
    model, (values, _), _ = KINDS[kind]
    _train(kind, tmp_path / "run")
    with Reporter(quiet=True) as reporter:
        export_run(tmp_path / "run", reporter=reporter, formats=("pt2",), model=model())
    described = json.loads((tmp_path / "run" / "export" / "export.json").read_text())
    assert described["input"]["shape"] == ["batch", *shape]
    assert described["input"]["name"] == "samples"
    program = torch.export.load(tmp_path / "run" / "export" / "model.pt2").module()
    own = torch.from_numpy(values).float() if kind == "table" else as_tensor(values).contiguous()
    rows = drivetrain.predict(tmp_path / "run", values, model=model)
    found = np.array([row["probabilities"]["1"] for row in rows])
    assert np.abs(program(own)[:, 1].detach().numpy() - found).max() < 1e-5


def test_the_command_line_trains_and_predicts_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(["train", *FACTORIES, "--num-epochs=1", "--compile=off", f"--output-dir={run}"]) == 0
    assert "(rows of 5 features) in 2 classes" in capsys.readouterr().out
    values, _ = table()
    lines = ["a;b;c;d;e", *(";".join(map(str, row)) for row in values[:3])]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    np.save(tmp_path / "new.npy", values[:3])
    assert main(["predict", run, str(tmp_path / "new.csv"), str(tmp_path / "new.npy")]) == 0
    text = (tmp_path / "run" / "predictions" / "predictions.csv").read_text().splitlines()
    assert text[0] == "file,sample,class,probability,p_0,p_1"
    assert [line.split(",")[2:] for line in text[1:4]] == [line.split(",")[2:] for line in text[4:]]
    assert main(["evaluate", run, "--split=train"]) == 0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "1,2,3,4\n", "rows of 4 features, but RUN was trained on rows of 5 features"),
        ("a.csv", "1,2,3,4,5\n1,2,3,4\n", "has 4 columns in line 2, but 5 in line 1"),
        ("a.csv", "a,b,c,d,e\n1,2,x,4,5\n", "has x in line 2, column 2, which is not a number"),
        ("a.csv", "1,2,3,4,5\n1,2,nan,4,5\n", "Row 1 of the table contains a value in column 2"),
        ("a.csv", "a,b,c\n", "has no rows of numbers"),
        ("a.csv", "", "has no rows of numbers"),
        ("a.npy", "not numpy", "cannot be read"),
        ("a.png", "", "is neither a .csv nor a .npy file"),
    ],
)
def test_files_that_cannot_be_predicted(
    name: str, content: str, said: str, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInputError, match=said):
        drivetrain.predict(trained, tmp_path / name, model=Perceptron, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    _train("table", path, num_epochs=1)
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": None}, "--model cifar_resnet8 takes images, but the data are rows of 5 features"),
        ({"model": "resnet18"}, "--model resnet18 takes images"),
        ({"model": "resnet18", "input_kind": "table"}, r"but the data are rows \(--input-kind table\)"),
        ({"image_size": 32}, "--image-size 32 needs images, but the data are rows of 5 features"),
        ({"augment": True}, "--augment True needs images"),
        ({"rand_augment": 2}, "--rand-augment 2 needs images"),
        ({"random_resized_crop": 0.5}, "--random-resized-crop 0.5 needs images"),
        ({"tile_size": 16}, "--tile-size 16 is for segmentation"),
        ({"channels": 3}, "whose rows have 5"),
        ({"input_kind": "tabel"}, "--input-kind is tabel.*--input-kind table works"),
        ({"model": lambda channels: Perceptron(channels)}, "needs channels.*num_features, num_classes"),
    ],
)
def test_what_needs_images_is_refused_before_anything_is_written(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInputError, match=said):
        _train_with({"model": Perceptron, "data": table(), "output_dir": tmp_path / "run", **options})
    assert not (tmp_path / "run").exists()


def _train_with(options: dict[str, Any]) -> None:
    drivetrain.train(**{**OPTIONS, **options})


def test_named_data_sets_have_images(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="--input-kind signal is for your own arrays, and"):
        drivetrain.train(input_kind="signal", output_dir=tmp_path / "run", quiet=True)


def test_a_factory_of_images_cannot_be_called_a_signal(tmp_path: Path) -> None:
    images = (np.zeros((8, 4, 4, 1), dtype=np.uint8), np.arange(8) % 2)
    with pytest.raises(BadInputError, match="--input-kind signal needs an array"):
        drivetrain.train(model=Convolutions, data=images, input_kind="signal", quiet=True)


def test_the_warning_about_scales_knows_a_batch_norm_in_front(tmp_path: Path) -> None:
    values, labels = table()
    values[:, 2] *= 1e4
    for name, front in (("plain", []), ("normed", [nn.BatchNorm1d(FEATURES)])):
        model = nn.Sequential(*front, nn.Linear(FEATURES, 2))
        options = {**OPTIONS, "num_epochs": 1}
        drivetrain.train(model=model, data=(values, labels), output_dir=tmp_path / name, **options)
        warnings = json.loads((tmp_path / name / "plan.json").read_text())["warnings"]
        assert any("differ in scale" in warning for warning in warnings) == (name == "plain")


def test_a_plan_takes_the_kind_from_its_option() -> None:
    own: dict[str, Any] = {"dataset": "tests.number_data:table", "dataset_size": 48, "num_classes": 2}
    planned = drivetrain.make_plan(
        model="tests.number_data:Perceptron", input_kind="table", channels=FEATURES, stages=2, **own
    )
    assert planned["model"]["parameters"] == sum(weight.numel() for weight in Perceptron().parameters())
    assert planned["input"]["input_kind"] == "table"
    with pytest.raises(BadInputError, match=r"needs num_features.*--input-kind table"):
        drivetrain.make_plan(model="tests.test_tables_and_signals:needy", channels=5, image_size=1, **own)


def needy(num_features: int, num_classes: int) -> nn.Module:
    return Perceptron(num_features, num_classes)
