"""`--init-from`: files, runs and checkpoints that fit, nearly fit, and do not."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.weights.loading import load_file
from drivetrain.store.checkpoint import save_checkpoint


def load_initial_weights(model: nn.Module, path: str) -> list[str]:
    return load_file(model, path, option="--init-from")


def build(*, num_classes: int = 10, seed: int = 0, name: str = "cifar_resnet8") -> nn.Module:
    return create_model(name, num_classes=num_classes, seed=seed)


def same_weights(model: nn.Module, state: dict[str, Tensor], *, besides: str = "none") -> bool:
    own = model.state_dict()
    return all(torch.equal(own[name], state[name]) for name in own if not name.startswith(besides))


def refusal(model: nn.Module, path: Path) -> str:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(BadInputError) as caught:
        load_initial_weights(model, str(path))
    assert same_weights(model, before)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_a_state_dict_is_taken_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    state = build(seed=1).state_dict()
    state["conv1_bn.running_mean"] = torch.arange(16.0)
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    model = build()
    assert not same_weights(model, state)
    assert load_initial_weights(model, str(path)) == []
    assert same_weights(model, state)


def test_counters_of_batch_norms_may_be_missing_and_types_may_differ(tmp_path: Path) -> None:
    state = {name: value for name, value in build(seed=1).state_dict().items() if "num_batches" not in name}
    save_file({name: value.double() for name, value in state.items()}, tmp_path / "weights.safetensors")
    model = build()
    assert load_initial_weights(model, str(tmp_path / "weights.safetensors")) == []
    assert torch.equal(model.get_parameter("conv1_conv.weight"), state["conv1_conv.weight"])


def test_a_head_of_another_size_stays_fresh(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    state = build(num_classes=100, seed=1).state_dict()
    save_file(state, path)
    model = build()
    fresh = model.get_parameter("fc_layer.weight").detach().clone()
    assert load_initial_weights(model, str(path)) == [
        f"--init-from {path} has 100 classes, but the model has 10: fc_layer starts from newly "
        "initialised weights."
    ]
    assert torch.equal(model.get_parameter("fc_layer.weight"), fresh)
    assert same_weights(model, state, besides="fc_layer")


def test_mismatches_name_the_first_three(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(build(name="cifar_resnet20").state_dict(), path)
    message = refusal(build(), path)
    assert "does not fit the model: 37 of the model's 37 tensors fit; " in message
    assert message.count(" is not in the model") == 3
    assert "conv2_block2_layer1_bn.running_var (16) is not in the model" in message
    assert " and 57 more; give weights of this --model." in message


def test_missing_and_misshapen_tensors(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    state = build().state_dict()
    del state["conv1_bn.running_var"]
    state["conv1_conv.weight"] = torch.zeros(16, 1, 5, 5)
    save_file(state, path)
    assert refusal(build(), path) == (
        f"--init-from {path} does not fit the model: 35 of the model's 37 tensors fit; conv1_bn.running_var "
        "(16) is missing, conv1_conv.weight is 16x1x5x5 instead of 16x3x3x3; give weights of this --model."
    )


def test_a_head_that_sees_other_features_is_a_mismatch(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    state = build().state_dict()
    state["fc_layer.weight"] = torch.zeros(10, 32)
    save_file(state, path)
    assert "fc_layer.weight is 10x32 instead of 10x64" in refusal(build(), path)


def test_nothing_fits(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"foreign": torch.zeros(3)}, path)
    message = refusal(build(), path)
    assert message.endswith(
        "does not fit the model: 0 of the model's 37 tensors fit; conv1_conv.weight (16x3x3x3) is missing, "
        "conv1_bn.weight (16) is missing, foreign (3) is not in the model and 35 more; give weights of this "
        "--model."
    )


class _Code:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


@pytest.mark.parametrize(
    "content", [{"state": _Code()}, {"state_dict": {}}, [torch.zeros(1)], {1: torch.zeros(1)}]
)
def test_a_pickle_of_anything_else_is_not_opened(
    tmp_path: Path, content: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weights.pt"
    torch.save(content, path)
    assert "save model.state_dict()" in refusal(build(), path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("missing.safetensors", "does not exist; give a run directory or a .safetensors file."),
        ("broken.safetensors", "cannot be read as safetensors"),
        ("broken.pt", "is not opened"),
        ("weights.h5", "is neither a run directory nor"),
        ("empty", "is a folder but neither a run nor one with a file of weights"),
        ("untrained", "has no intact checkpoint: it was trained without any"),
    ],
)
def test_other_places(tmp_path: Path, name: str, part: str) -> None:
    for file in ("broken.safetensors", "broken.pt", "weights.h5"):
        (tmp_path / file).write_bytes(b"not weights")
    (tmp_path / "empty").mkdir()
    make_run(tmp_path / "untrained", {})
    assert part in refusal(build(), tmp_path / name)


def make_run(path: Path, weights: dict[int, dict[str, Tensor]], *, best: int | None = None) -> Path:
    path.mkdir()
    for file in ("recipe.yaml", "identity.json"):
        (path / file).write_text("{}\n")
    for update, state in weights.items():
        save_checkpoint(
            path / "checkpoints",
            update=update,
            model=state,
            optimiser={},
            state={"best": {"metric": "accuracy", "value": None, "update": best}},
        )
    return path


def two_updates() -> dict[int, dict[str, Tensor]]:
    return {update: build(seed=update).state_dict() for update in (9, 10)}


@pytest.mark.parametrize(("best", "taken"), [(None, 10), (9, 9), (10, 10), (3, 10)])
def test_a_run_gives_its_best_checkpoint_or_else_its_newest(
    tmp_path: Path, best: int | None, taken: int
) -> None:
    weights = two_updates()
    run = make_run(tmp_path / "run", weights, best=best)
    model = build()
    assert load_initial_weights(model, str(run)) == []
    assert same_weights(model, weights[taken])


def test_one_checkpoint_of_a_run(tmp_path: Path) -> None:
    weights = two_updates()
    run = make_run(tmp_path / "run", weights)
    model = build()
    load_initial_weights(model, str(run / "checkpoints" / "9"))
    assert same_weights(model, weights[9])


def test_a_corrupt_newest_checkpoint_is_passed_over_and_said(tmp_path: Path) -> None:
    weights = two_updates()
    run = make_run(tmp_path / "run", weights)
    (run / "checkpoints" / "10" / "model.safetensors").write_bytes(b"x")
    model = build()
    (warning,) = load_initial_weights(model, str(run))
    assert warning.startswith(f"--init-from {run}: skipped a corrupt checkpoint")
    assert same_weights(model, weights[9])


def test_a_corrupt_best_checkpoint_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", two_updates(), best=9)
    manifest = run / "checkpoints" / "9" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "update": 8}))
    assert "checkpoints/9 is corrupt" in refusal(build(), run)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused_by_name(tmp_path: Path, value: float) -> None:
    state = build(seed=1).state_dict()
    state["fc_layer.bias"][3] = value
    save_file(state, tmp_path / "weights.safetensors")
    model = build()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(BadInputError, match=r"not finite .* in 1 of \d+ tensors, first in fc_layer\.bias"):
        load_initial_weights(model, str(tmp_path / "weights.safetensors"))
    assert same_weights(model, before)
