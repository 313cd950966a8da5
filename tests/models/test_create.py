import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import build_model, create_model

USER_MODULE = """
import torch
from torch import nn

ready_made = nn.Linear(2, 2)
number = 3


class Net(nn.Module):
    def __init__(self, channels: int, num_classes: int = 4, width: int = 2) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, width, 3)
        self.classifier = nn.Linear(width, num_classes)


def plain():
    return nn.Linear(2, 2)


def anything(**options):
    net = nn.Linear(2, 2)
    net.options = options
    return net


def double_precision():
    return nn.Linear(2, 2).double()


def needs_width(width):
    return nn.Linear(width, 2)


def dictionary():
    return {}


def broken(channels=1):
    raise ValueError("no luck\\n today")
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that lies in the working directory, which is not importable yet."""
    name = f"user_models_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(USER_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != ""])
    return name


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    others = second.state_dict()
    return all(torch.equal(value, others[name]) for name, value in first.state_dict().items())


@pytest.mark.parametrize("name", ["toy_model", "mnist_cnn", "cifar_resnet8"])
def test_same_seed_same_bits_and_other_seed_other_bits(name: str) -> None:
    first = create_model(name, seed=5)
    torch.rand(3)
    assert same_weights(first, create_model(name, seed=5))
    assert not same_weights(first, create_model(name, seed=6))


def test_building_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    create_model("cifar_resnet8")
    assert torch.equal(torch.get_rng_state(), state)


def test_models_are_float32_whatever_torch_defaults_to() -> None:
    reference = create_model("cifar_resnet8")
    torch.set_default_dtype(torch.float64)
    try:
        model = create_model("cifar_resnet8")
    finally:
        torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert same_weights(model, reference)


def test_shape_is_native_unless_given() -> None:
    assert create_model("mnist_cnn")(torch.rand(1, 1, 28, 28)).shape == (1, 10)
    model = create_model("mnist_cnn", channels=3, image_size=20, num_classes=5)
    assert model(torch.rand(2, 3, 20, 20)).shape == (2, 5)


def test_model_params() -> None:
    dropout = create_model("mnist_cnn", dropout=0.25).get_submodule("dropout")
    assert isinstance(dropout, nn.Dropout)
    assert dropout.p == 0.25


@pytest.mark.parametrize("dropout", [1, -0.1, "half", True, None])
def test_a_dropout_that_is_no_share_is_refused(dropout: object) -> None:
    with pytest.raises(BadInputError, match=r"--model-params dropout.* 0\.5"):
        create_model("mnist_cnn", dropout=dropout)


def test_unknown_params_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadInputError, match=r"--model-params dropuot .*Did you mean dropout\?"):
        create_model("mnist_cnn", dropuot=0.1)
    with pytest.raises(BadInputError, match=r"dropout is not a parameter of toy_model\. It has none"):
        create_model("toy_model", dropout=0.1)


def test_the_shape_does_not_belong_in_the_params() -> None:
    with pytest.raises(BadInputError, match="use --image-size"):
        build_model(
            "toy_model", channels=None, image_size=None, num_classes=None, seed=0, params={"image_size": 32}
        )


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"--image-size 9 .* --image-size 10"):
        create_model("mnist_cnn", image_size=9)
    with pytest.raises(BadInputError, match="--channels 0 must be at least 1"):
        create_model("toy_model", channels=0)
    with pytest.raises(BadInputError, match="--num-classes -1 "):
        create_model("toy_model", num_classes=-1)


def test_unknown_model() -> None:
    with pytest.raises(BadInputError, match="--model foo is not a known model"):
        create_model("foo")


def test_a_users_factory_gets_what_it_asks_for(user_module: str) -> None:
    model = create_model(f"{user_module}:Net", channels=3, image_size=32, num_classes=7, width=5)
    assert model.get_parameter("convolution.weight").shape == (5, 3, 3, 3)
    assert model.get_parameter("classifier.weight").shape == (7, 5)
    assert create_model(f"{user_module}:Net", channels=1).get_parameter("classifier.weight").shape == (4, 2)
    assert isinstance(create_model(f"{user_module}:plain", channels=3), nn.Linear)


def test_a_factory_of_any_keywords_gets_all_that_is_given(user_module: str) -> None:
    model = create_model(f"{user_module}:anything", channels=3, depth=2)
    assert model.options == {"channels": 3, "depth": 2}


def test_a_users_initialisation_is_reproducible(user_module: str) -> None:
    state = torch.get_rng_state()
    first = create_model(f"{user_module}:plain", seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert same_weights(first, create_model(f"{user_module}:plain", seed=1))
    assert not same_weights(first, create_model(f"{user_module}:plain", seed=2))


def test_a_users_model_becomes_float32(user_module: str) -> None:
    assert create_model(f"{user_module}:double_precision").get_parameter("weight").dtype == torch.float32


@pytest.mark.parametrize(
    ("factory", "params", "message"),
    [
        ("Net", {"widht": 3}, r"--model-params widht .*Did you mean width\?"),
        ("Net", {}, "needs --channels"),
        ("needs_width", {}, "needs --model-params '{width: ...}'"),
        ("dictionary", {}, "returned a dict, not a torch.nn.Module"),
        ("plian", {}, r"has no plian\. Did you mean user_models_\w+:plain\?"),
        ("number", {}, "is of type int, not a function or a class"),
        ("ready_made", {}, "is a finished model"),
        ("broken", {}, r"failed: ValueError: no luck today \(user_models_.*\.py line \d+\)"),
    ],
)
def test_errors_of_users_factories(
    user_module: str, factory: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        create_model(f"{user_module}:{factory}", **params)


def test_import_errors_tell_the_real_cause(tmp_path: Path, user_module: str) -> None:
    with pytest.raises(BadInputError, match="imported: ModuleNotFoundError: No module named 'nowhere_'"):
        create_model("nowhere_:net")
    (tmp_path / f"{user_module}_sick.py").write_text("x = 1\nimport absent_package_\n")
    with pytest.raises(BadInputError, match=r"named 'absent_package_' \(user_models_.*_sick\.py line 2\)"):
        create_model(f"{user_module}_sick:net")
