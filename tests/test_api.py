"""A user's own model and data, in a few lines of Python."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import drivetrain
from drivetrain.core.errors import BadInputError
from tests.deadlines import HANG_S
from tests.run.small_training import signal_after


def _data(samples: int = 60) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(samples) % 3
    images = np.zeros((samples, 9, 9, 1), dtype=np.uint8)
    for index, label in enumerate(labels):
        images[index, label * 3 : label * 3 + 3] = 200 + index % 50
    return images, labels


class Net(nn.Module):
    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(4 * 49, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.features(images).flatten(1))
        return logits


def test_own_module_and_arrays(tmp_path: Path) -> None:
    model = Net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = drivetrain.train(
        model=model,
        data=_data(),
        output_dir=str(tmp_path / "run"),
        micro_batch_size=10,
        num_epochs=8,
        learning_rate=0.02,
        validation_fraction=0.2,
        quiet=True,
    )
    assert result.metrics["validation"]["accuracy"] == 1.0
    assert isinstance(model.features[1], nn.BatchNorm2d)
    assert not torch.equal(model.head.weight, before["head.weight"])
    assert model(torch.zeros(1, 1, 9, 9)).shape == (1, 3)


@pytest.mark.parametrize(
    ("number", "raised", "code"),
    [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 143)],
)
def test_a_signal_does_not_let_the_caller_go_on(
    number: int, raised: type[BaseException], code: int | None, tmp_path: Path
) -> None:
    model = Net()
    options: dict[str, Any] = {
        "data": _data(),
        "output_dir": str(tmp_path / "run"),
        "quiet": True,
        "micro_batch_size": 10,
        "max_updates": 4,
    }
    with signal_after(1, number), pytest.raises(raised) as caught:
        drivetrain.train(model=model, **options)
    # A subclass of KeyboardInterrupt would end a script with status 1.
    assert number != signal.SIGINT or type(caught.value) is KeyboardInterrupt
    assert getattr(caught.value, "code", None) == code
    result = caught.value.result  # type: ignore[attr-defined]
    assert (result.status, result.updates, result.exit_status) == ("stopped", 2, 128 + number)
    assert torch.equal(model.head.weight, result.model.head.weight.cpu())
    assert drivetrain.train(model=model, **options).status == "finished"


_INTERRUPTED_SCRIPT = """
import os, signal, sys
import numpy as np
import drivetrain
from drivetrain.program.training_program import TrainingProgram

run_update = TrainingProgram.run_update

def interrupted(program, update):
    run_update(program, update)
    if update == 1:
        os.kill(os.getpid(), signal.SIGINT)

TrainingProgram.run_update = interrupted
data = (np.zeros((20, 9, 9, 1), dtype=np.uint8), np.arange(20) % 2)
options = {"micro_batch_size": 10, "max_updates": 4, "device": "cpu", "compile": "off"}
drivetrain.train(model="cifar_resnet8", data=data, output_dir=sys.argv[1], **options)
print("went on")
"""


def test_a_script_that_ctrl_c_stops_ends_by_sigint_after_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_SCRIPT, str(path)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert ended.returncode == -signal.SIGINT, ended.stderr
    assert "stopped after update 2: a checkpoint was written" in ended.stdout
    assert "went on" not in ended.stdout
    assert [int(kept.name) for kept in (path / "checkpoints").iterdir()] == [2]


def test_a_signal_does_not_let_the_caller_of_a_cross_validation_go_on(tmp_path: Path) -> None:
    with signal_after(1, signal.SIGINT), pytest.raises(KeyboardInterrupt) as caught:
        drivetrain.crossval(
            model=Net(),
            data=_data(),
            folds=2,
            output_dir=str(tmp_path / "job"),
            micro_batch_size=10,
            max_updates=4,
            quiet=True,
        )
    assert caught.value.result.status == "stopped"  # type: ignore[attr-defined]


def test_tensors_and_a_torch_dataset_give_the_same_run(tmp_path: Path) -> None:
    images, labels = _data()
    tensors = (torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels))
    dataset = torch.utils.data.TensorDataset(*tensors)
    finals = []
    for number, data in enumerate([(images, labels), tensors, dataset]):
        result = drivetrain.train(
            model="cifar_resnet8",
            data=data,
            output_dir=str(tmp_path / str(number)),
            micro_batch_size=10,
            max_updates=4,
            device="cpu",
            quiet=True,
        )
        finals.append(result.model.state_dict())
    for other in finals[1:]:
        assert all(torch.equal(value, other[name]) for name, value in finals[0].items())


def test_own_validation_data(tmp_path: Path) -> None:
    result = drivetrain.train(
        model=Net(),
        data=_data(30),
        validation_data=_data(21),
        output_dir=str(tmp_path / "run"),
        micro_batch_size=10,
        max_updates=2,
        quiet=True,
    )
    assert result.metrics["validation"]["validation_samples"] == 21


def test_other_data_are_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images, labels = _data()
    options: dict[str, Any] = {
        "model": "cifar_resnet8",
        "micro_batch_size": 10,
        "max_updates": 2,
        "quiet": True,
    }
    first = drivetrain.train(data=(images, labels), **options)
    second = drivetrain.train(data=(255 - images, labels), **options)
    assert first.directory != second.directory


def test_a_finished_run_without_weights_is_not_passed_off_as_trained(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "data": _data(),
        "output_dir": str(tmp_path / "run"),
        "micro_batch_size": 10,
        "max_updates": 2,
    }
    drivetrain.train(model=Net(), checkpoints=False, quiet=True, **options)
    with pytest.raises(BadInputError, match="without a checkpoint"):
        drivetrain.train(model=Net(), checkpoints=False, quiet=True, **options)


def test_a_class_inside_a_function_and_images_that_are_not_square(tmp_path: Path) -> None:
    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8 * 12, 2)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.head(images.flatten(1))
            return logits

    data = (np.zeros((20, 8, 12, 1), np.uint8), np.arange(20) % 2)
    options: dict[str, Any] = {"data": data, "micro_batch_size": 10, "max_updates": 1, "quiet": True}
    result = drivetrain.train(model=Local(), output_dir=str(tmp_path / "run"), **options)
    assert result.status == "finished"
    with pytest.raises(BadInputError, match="cannot take"):
        drivetrain.train(model=Net(), output_dir=str(tmp_path / "other"), **options)


def test_what_has_no_effect_is_refused() -> None:
    with pytest.raises(BadInputError, match="without data"):
        drivetrain.train(validation_data=_data())
    with pytest.raises(BadInputError, match="model_params"):
        drivetrain.train(model=Net(), data=_data(), model_params={"dropout": 0.1})


def test_a_module_of_the_wrong_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"shape \(2, 5\).*needs \(2, 3\)"):
        drivetrain.train(model=Net(5), data=_data(), output_dir=str(tmp_path / "run"), quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_recipes_as_objects_and_by_name(tmp_path: Path) -> None:
    recipe = drivetrain.Recipe(
        dataset="synthetic", dataset_size=64, image_size=16, micro_batch_size=16, num_epochs=1
    )
    assert drivetrain.make_plan(recipe)["total_updates"] == 4
    assert drivetrain.make_plan(recipe, num_epochs=2)["total_updates"] == 8
    assert drivetrain.make_plan("mnist_tutorial")["batch"]["global"] == 64
    result = drivetrain.train(recipe, output_dir=str(tmp_path / "run"), quiet=True)
    assert result.updates == 4


def test_create_model_and_public_names() -> None:
    assert sum(p.numel() for p in drivetrain.create_model("cifar_resnet8").parameters()) == 75_290
    for name in drivetrain.__all__:
        assert getattr(drivetrain, name) is not None
    with pytest.raises(AttributeError):
        _ = drivetrain.nothing


def test_a_class_or_function_makes_the_model_for_the_data(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "data": _data(),
        "micro_batch_size": 10,
        "num_epochs": 1,
        "quiet": True,
        "compile": "off",
    }
    result = drivetrain.train(model=Net, output_dir=str(tmp_path / "class"), **options)
    (measured,) = drivetrain.evaluate(result.directory, split="train", model=Net, data=_data())
    made = drivetrain.train(
        model=lambda num_classes: Net(num_classes), output_dir=str(tmp_path / "function"), **options
    )
    assert 0.0 <= measured["accuracy"] <= 1.0
    assert torch.equal(result.model.state_dict()["head.weight"], made.model.state_dict()["head.weight"])


def test_lazy_layers_train(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3))
    result = drivetrain.train(
        model=model,
        data=_data(),
        output_dir=str(tmp_path / "run"),
        micro_batch_size=10,
        num_epochs=1,
        quiet=True,
        compile="off",
    )
    assert torch.equal(model.state_dict()["3.weight"], result.model.state_dict()["3.weight"].cpu())


def test_a_model_that_returns_a_tuple_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Two(Net):
        def forward(self, images: torch.Tensor) -> Any:
            return super().forward(images), None

    with pytest.raises(BadInputError, match=r"--model returns a tuple of 2 \(Tensor, NoneType\)"):
        drivetrain.train(model=Two(), data=_data(), output_dir=str(tmp_path / "run"), quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_misspelt_keyword_is_answered_by_a_keyword() -> None:
    with pytest.raises(BadInputError, match=r"^num_epoch is not an option\. Did you mean num_epochs\?$"):
        drivetrain.train(num_epoch=1)
    with pytest.raises(BadInputError, match=r"Did you mean micro_batch_size\?$"):
        drivetrain.make_plan(microbatchsize=1)


def test_another_spelling_replaces_what_a_recipe_says() -> None:
    plan = drivetrain.make_plan(drivetrain.Recipe(learning_rate=0.5, dataset="digits"), lr=0.25)
    assert plan["learning_rate_peak"] == 0.25


def test_what_is_no_recipe_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"^recipe is of type int; give a Recipe"):
        drivetrain.make_plan(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("model_params", {"width": 2}), ("model_width", 2)])
def test_what_only_makes_models_is_refused_for_one_that_is_made(
    tmp_path: Path, name: str, value: Any
) -> None:
    data = (np.zeros((8, 4, 4, 1), dtype=np.uint8), np.arange(8) % 2)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    options: dict[str, Any] = {name: value, "output_dir": str(tmp_path / "run")}
    with pytest.raises(BadInputError, match=f"{name} has no effect on a model that is already built"):
        drivetrain.train(model=net, data=data, quiet=True, **options)
    assert not (tmp_path / "run").exists()
