"""A finished model runs folded, and compiled where it pays, and says the same as it did in training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.run.small_training import SMALL
from torch import Tensor, nn

import drivetrain
from drivetrain.cli.main import main
from drivetrain.console.reporter import Reporter
from drivetrain.inference.model import fold_batch_norm as safe_folding
from drivetrain.inference.model import trained_forward
from drivetrain.inference.model.fold_batch_norm import FoldedModel, fold_batch_norm
from drivetrain.inference.model.optimised import build_inference
from drivetrain.inference.model.restore import TrainedRun, find_checkpoints, open_trained_run
from drivetrain.inference.model.trained_forward import TrainedForward, compiling_pays
from drivetrain.passes.forward import Forward
from drivetrain.recipe.params import CompileMode


class Words(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    warn = say


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    drivetrain.train(quiet=True, output_dir=str(path), **{**SMALL, "num_epochs": 2})
    return path


@pytest.fixture
def run(folder: Path) -> TrainedRun:
    return _open(folder)


@pytest.fixture
def images() -> Tensor:
    return torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def _open(folder: Path, model: nn.Module | None = None) -> TrainedRun:
    run = open_trained_run(folder, device="cpu", model=model)
    run.load(find_checkpoints(run.directory, "newest")[0])
    return run


def _row(folder: Path) -> dict[str, Any]:
    (row,) = drivetrain.evaluate(folder, split="train", device="cpu")
    return row


def _without_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainedForward, "_folded", lambda self, _images: self._run.model)


def test_metrics_are_those_of_the_model_with_its_batch_norms(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded = _row(folder)
    _without_folding(monkeypatch)
    plain = _row(folder)
    assert folded["loss"] != plain["loss"], "nothing was folded"
    assert folded["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    same = ("accuracy", "class_accuracies", "samples")
    assert [folded[name] for name in same] == [plain[name] for name in same]


def test_a_bad_fold_would_be_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = _row(folder)

    def spoil(model: nn.Module) -> FoldedModel:
        found = fold_batch_norm(model)
        next(found.model.parameters()).data.mul_(1.01)
        return found

    monkeypatch.setattr(safe_folding, "fold_batch_norm", spoil)
    assert _row(folder)["loss"] != pytest.approx(right["loss"], rel=1e-5)


def test_predictions_are_equal(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 8, 8), dtype=np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    inputs = sorted(tmp_path.glob("*.png"))
    folded = drivetrain.predict(folder, inputs, output=tmp_path / "folded", device="cpu")
    _without_folding(monkeypatch)
    plain = drivetrain.predict(folder, inputs, output=tmp_path / "plain", device="cpu")
    assert [row["class"] for row in folded] == [row["class"] for row in plain]
    for one, other in zip(folded, plain, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=2e-6)


def test_other_weights_count_after_a_refresh(run: TrainedRun, images: Tensor) -> None:
    forward = TrainedForward(run, reporter=Words())
    with torch.inference_mode():
        before = forward(images)
        run.model.get_parameter("fc_layer.bias").data.add_(1)
        assert torch.equal(forward(images), before)
        forward.refresh()
        torch.testing.assert_close(forward(images), before + 1)


class _Stranger(nn.Module):
    """A model whose code knows its batch norm by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.last = nn.Linear(4, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = self.norm(self.conv(images)) + self._kernel_sum()
        logits: Tensor = self.last(features.mean((2, 3)))
        return logits

    def _kernel_sum(self) -> Tensor:
        return self.conv.weight.sum()


class _Uncopied(_Stranger):
    def _kernel_sum(self) -> Tensor:
        return torch.zeros(())

    def __deepcopy__(self, memory: object) -> nn.Module:
        raise TypeError("there is only one of me")


@pytest.mark.parametrize(
    ("kind", "why"),
    [(_Stranger, "the output would change"), (_Uncopied, "TypeError: there is only one of me")],
)
def test_a_model_that_cannot_be_folded_runs_as_it_is(
    run: TrainedRun, images: Tensor, kind: type[_Stranger], why: str
) -> None:
    model = kind()
    model.norm.running_var = torch.full((4,), 9.0)
    own = replace(run, model=model, recipe=run.recipe.model_copy(update={"model": "mine:Net"}))
    words = Words()
    with torch.inference_mode():
        assert torch.equal(TrainedForward(own, reporter=words)(images), model(images))
    (said,) = words.said
    assert said.startswith(f"batch norms are not folded into the convolutions: {why}")


Compiled = list[tuple[int, ...]]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """The shapes that a stand-in for the compiler sees; it computes as the model does."""
    shapes: Compiled = []

    def build(model: nn.Module, *, compiles: bool = False, **options: Any) -> Forward:
        plain = build_inference(model, **options)

        def seen(given: Tensor) -> Tensor:
            shapes.append(tuple(given.shape))
            return plain(given)

        return seen if compiles else plain

    monkeypatch.setattr(trained_forward, "build_inference", build)
    return shapes


@pytest.mark.parametrize(("mode", "count"), [("on", 2), ("off", 0), ("auto", 0)])
def test_one_shape_is_compiled_where_asked(
    run: TrainedRun, images: Tensor, compiled: Compiled, mode: CompileMode, count: int
) -> None:
    forward = TrainedForward(run, reporter=Words(), compiles=mode)
    with torch.inference_mode():
        logits = [forward(images), forward(images[:4]), forward(images)]
    assert compiled == [(6, 1, 8, 8)] * count
    assert torch.equal(logits[0], logits[2])


@pytest.mark.parametrize(("total", "count"), [(30, 0), (10**9, 1)])
def test_auto_compiles_for_many_images(
    run: TrainedRun, images: Tensor, compiled: Compiled, total: int, count: int
) -> None:
    words = Words()
    forward = TrainedForward(run, reporter=words)
    with torch.inference_mode():
        for done in range(1, 6):
            forward(images)
            forward.progress(6 * done, total)
    assert len(compiled) == 2 * count
    assert len(words.said) == count


def test_the_rule_of_auto() -> None:
    assert [compiling_pays(seconds) for seconds in (0.0, 60.0, 3600.0)] == [False, False, True]


def test_a_compiler_that_fails_costs_one_sentence(
    run: TrainedRun, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_images: Tensor) -> Tensor:
        raise RuntimeError("no compiler here")

    def build(model: nn.Module, *, compiles: bool = False, **options: Any) -> Forward:
        return fail if compiles else build_inference(model, **options)

    words = Words()
    with torch.inference_mode():
        expected = TrainedForward(run, reporter=words)(images)
        monkeypatch.setattr(trained_forward, "build_inference", build)
        forward = TrainedForward(run, reporter=words, compiles="on")
        assert all(torch.equal(forward(images), expected) for _ in range(2))
    (said,) = words.said
    assert said.startswith(
        "the model runs uncompiled, because compiling failed: RuntimeError: no compiler here"
    )


def test_a_precision_that_does_not_run_here_becomes_float32(
    run: TrainedRun, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = run.recipe.model_copy(update={"precision": "16.32"})
    monkeypatch.setattr(type(run.device), "usable_half_types", lambda _device: ())
    words = Words()
    half = replace(run, recipe=changed)
    with torch.inference_mode():
        found = TrainedForward(half, reporter=words)(images)
        assert torch.equal(found, TrainedForward(run, reporter=words)(images))
    assert len(words.said) == 1
    assert "which this device does not support; float32 is used instead." in words.said[0]


def test_the_commands_take_the_option(
    folder: Path, capsys: pytest.CaptureFixture[str], compiled: Compiled
) -> None:
    assert main(["evaluate", str(folder), "--compile", "on", "--device", "cpu"]) == 0
    assert compiled == [(40, 1, 8, 8)]
    assert main(["evaluate", str(folder), "--compile", "always"]) == 2
    assert "auto" in capsys.readouterr().err
