"""Captured updates on a CPU: a stand-in records their operations, and repeats these alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import drivetrain
from drivetrain.devices.device import choose_device
from drivetrain.layers.moving_state import Homes
from drivetrain.program import capture_choice as capturing
from drivetrain.program import capture_choice as cuda_graph
from drivetrain.program.capture import CapturedUpdates, draws_of
from drivetrain.program.training_program import TrainingProgram
from tests.pipeline.moving_models import LAYERS, WithState
from tests.program.capture_cases import CASES, CLASSIFICATION
from tests.program.tape import Tape
from tests.run.small_runs import weights

pytestmark = pytest.mark.usefixtures("no_pictures")


class _Impossible(Tape):
    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore lines")


class _Seen:
    """The captures of the programs that a test runs."""

    def __init__(self) -> None:
        self.captures: list[CapturedUpdates] = []


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., _Seen]:
    def install(recorder: type[Tape] = Tape) -> _Seen:
        seen = _Seen()
        original = capturing.capture_updates

        def capture_and_see(program: TrainingProgram, recipe: Any) -> None:
            original(program, recipe)
            assert isinstance(program.capture, CapturedUpdates)
            seen.captures.append(program.capture)

        monkeypatch.setattr(capturing, "_obstacle", lambda _program, _recipe: "")
        monkeypatch.setattr(cuda_graph, "CudaRecorder", recorder)
        monkeypatch.setattr("drivetrain.assembly.program.capture_updates", capture_and_see)
        return seen

    return install


def _train(directory: Path, **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    drivetrain.train(
        **{"max_updates": 9, "device": "cpu", "validation": False, "log_every": 3, **options},
        output_dir=str(directory),
        quiet=True,
    )
    return weights(directory)


def _assert_same(found: dict[str, np.ndarray[Any, Any]], expected: dict[str, np.ndarray[Any, Any]]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_replayed_updates_have_the_bits_of_others(
    tmp_path: Path, captured: Callable[..., _Seen], options: dict[str, Any]
) -> None:
    expected = _train(tmp_path / "plain", **options)
    seen = captured()
    _assert_same(_train(tmp_path / "captured", **options), expected)
    (capture,) = seen.captures
    assert capture.status == "captured"
    assert capture.replays >= 4


def test_the_check_sees_contents_that_were_not_handed_over(
    tmp_path: Path, captured: Callable[..., _Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _train(tmp_path / "plain", **CLASSIFICATION)
    captured()
    monkeypatch.setattr(CapturedUpdates, "_hand_over", lambda *_: None)
    found = _train(tmp_path / "captured", **CLASSIFICATION)
    assert any(not np.array_equal(found[name], value) for name, value in expected.items())


def test_updates_that_cannot_be_recorded_run_as_they_are(
    tmp_path: Path, captured: Callable[..., _Seen]
) -> None:
    expected = _train(tmp_path / "plain", **CLASSIFICATION)
    seen = captured(_Impossible)
    _assert_same(_train(tmp_path / "captured", **CLASSIFICATION), expected)
    (capture,) = seen.captures
    assert capture.status == "not captured: operation not permitted when stream is capturing"
    assert capture.replays == 0


class _Once(Tape):
    """Records one kind of update, and fails at the next."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._is_spent = False

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        if self._is_spent:
            raise RuntimeError("out of memory")
        self._is_spent = True
        return super().record(compute)


class _Late(Tape):
    """Fails after the passes of a recorded update."""

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        with mock.patch.object(Homes, "settle", side_effect=RuntimeError("out of memory")):
            return super().record(compute)


def test_what_was_recorded_before_a_failure_is_given_up(
    tmp_path: Path, captured: Callable[..., _Seen]
) -> None:
    options = {**CASES["padded and averaged"], "max_updates": 12}
    expected = _train(tmp_path / "plain", **options)
    seen = captured(_Once)
    _assert_same(_train(tmp_path / "captured", **options), expected)
    (capture,) = seen.captures
    assert capture.replays > 0
    assert capture.status == f"partly captured ({capture.replays} updates): out of memory"
    assert capture._recordings == {}


class _Counting(nn.Module):
    """Does something else at every second pass, by a count that it keeps for itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.passes = 0
        self.layer = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        self.passes += 1
        outputs: Tensor = self.layer(images.flatten(1))
        return outputs * (1.0 if self.passes % 2 else 0.5)


class _Asking(_Counting):
    """Asks for a value to decide what to do."""

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.layer(images.flatten(1))
        return outputs if outputs.sum().item() > 0 else 0.5 * outputs


@pytest.mark.parametrize(
    ("make_model", "reason"),
    [
        (_Counting, "the Python attribute passes of the model changes from update to update"),
        (_Asking, "_local_scalar_dense is not permitted while recording"),
    ],
)
def test_models_that_a_replay_would_change_are_not_captured(
    tmp_path: Path, captured: Callable[..., _Seen], make_model: type[_Counting], reason: str
) -> None:
    expected = _train(tmp_path / "plain", **CLASSIFICATION, model=make_model())
    seen = captured()
    found = _train(tmp_path / "captured", **CLASSIFICATION, model=make_model())
    _assert_same(found, expected)
    assert seen.captures[0].status == f"not captured: {reason}"


_REFUSED = {
    "Python number": (
        "not captured: the Python attribute odd.calls of the model changes from update to update"
    ),
    "collection": (
        "not captured: the Python attribute odd.seen of the model changes from update to update, "
        "and not in place"
    ),
}


# A view stays one only in the type of its tests (tests/pipeline/moving_models.py).
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("layer", sorted(LAYERS.keys() - {"view"}))
def test_layers_with_state_go_on_when_replayed_or_are_not_captured(
    tmp_path: Path, captured: Callable[..., _Seen], layer: str, accumulation: int
) -> None:
    options = {**CLASSIFICATION, "gradient_accumulation_count": accumulation}
    expected = _train(tmp_path / "plain", **options, model=WithState(layer, channels=1))
    seen = captured()
    found = _train(tmp_path / "captured", **options, model=WithState(layer, channels=1))
    _assert_same(found, expected)
    assert seen.captures[0].status == _REFUSED.get(layer, "captured")
    stored = [(tmp_path / name / "checkpoints" / "9") for name in ("plain", "captured")]
    assert _files(stored[0]) == _files(stored[1])


def _files(checkpoint: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in checkpoint.glob("*.safetensors")}


def test_the_check_sees_state_that_stands_still(
    tmp_path: Path, captured: Callable[..., _Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _train(tmp_path / "plain", **CLASSIFICATION, model=WithState("buffer anew", channels=1))
    captured()
    monkeypatch.setattr(Homes, "settle", lambda _: None)
    monkeypatch.setattr("drivetrain.program.capture.obstacle_of_objects", lambda *_: "")
    found = _train(tmp_path / "captured", **CLASSIFICATION, model=WithState("buffer anew", channels=1))
    assert any(not np.array_equal(found[name], value) for name, value in expected.items())


def test_a_failed_recording_leaves_no_state_behind(tmp_path: Path, captured: Callable[..., _Seen]) -> None:
    expected = _train(tmp_path / "plain", **CLASSIFICATION, model=WithState("buffer anew", channels=1))
    seen = captured(_Late)
    found = _train(tmp_path / "captured", **CLASSIFICATION, model=WithState("buffer anew", channels=1))
    _assert_same(found, expected)
    assert seen.captures[0].status == "not captured: out of memory"


def test_continued_runs_warm_up_again_and_end_alike(tmp_path: Path, captured: Callable[..., _Seen]) -> None:
    options = {**CLASSIFICATION, "lr_schedule": "const"}
    expected = _train(tmp_path / "plain", **options)
    captured()
    _train(tmp_path / "captured", **{**options, "max_updates": 4})
    _assert_same(_train(tmp_path / "captured", **options), expected)


def test_a_cpu_says_why_it_captures_nothing(tmp_path: Path) -> None:
    seen: list[str] = []
    original = TrainingProgram.execute

    def look(program: TrainingProgram, *args: Any, **options: Any) -> int:
        seen.append(program.capture_status)
        return original(program, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingProgram, "execute", look)
        _train(tmp_path / "run", **CLASSIFICATION)
    assert set(seen) == {"not captured: CUDA graphs need a CUDA device, this is a CPU"}


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (lambda: None, ""),
        (lambda: np.random.rand(), "numpy.random"),
        (lambda: nn.functional.dropout(torch.ones(4)), "torch"),
        (lambda: __import__("random").random(), "random"),
    ],
)
def test_draws_on_the_host_are_found(draw: Callable[[], object], names: str) -> None:
    device = choose_device("cpu")
    with draws_of(device) as drawn:
        device.seed_generators(7)
        draw()
    assert drawn.by_host == names
    assert not drawn.by_device
