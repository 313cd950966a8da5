"""Before the first update, stages are compared with the whole model, and refused if they differ."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import drivetrain
from drivetrain.assembly import cut_check, training_parts
from drivetrain.assembly.cut_check import CutReport
from drivetrain.assembly.cut_trial import Outcome, Trial, run_trial
from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from tests.assembly.cut_models import (
    ONE_PROCESS,
    Counting,
    Frozen,
    Hooked,
    Small,
    TakesTensors,
    breaking,
    caught,
    train_small,
)

BOTH = "output, gradients and buffers of 4 samples agree with the whole model"
LAYOUTS: dict[str, dict[str, Any]] = {
    **{name: {**ONE_PROCESS, "pipeline_schedule": name, "global_batch_size": 16} for name in SCHEDULE_NAMES},
    "recomputation": {"recomputation": True},
    "stages with recomputation": {**ONE_PROCESS, "recomputation": True},
    "stages in other precisions": {**ONE_PROCESS, "stage_options": [{"stage": 1, "precision": "16.32"}]},
    "stages that are compiled": {**ONE_PROCESS, "stage_options": [{"stage": 0, "compile": True}]},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_equal_stages_pass(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compare = caught(monkeypatch, tmp_path / "run", Hooked(), **LAYOUTS[name])
    assert compare() == CutReport(compared=BOTH)


def test_a_training_says_and_stores_what_was_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_small(tmp_path / "stages", Small(), **ONE_PROCESS)
    assert f"stages checked: {BOTH}" in capsys.readouterr().out
    assert f'"checked": "{BOTH}"' in (tmp_path / "stages" / "plan.json").read_text()
    train_small(tmp_path / "blocks", Small(), recomputation=True)
    assert f"recomputed blocks checked: {BOTH}" in capsys.readouterr().out
    train_small(tmp_path / "whole", Small())
    assert "checked" not in capsys.readouterr().out
    assert '"checked"' not in (tmp_path / "whole" / "plan.json").read_text()


def _other_layer(model: nn.Module) -> None:
    model.get_parameter("second.weight").data.mul_(1.1)


def _no_hooks(model: nn.Module) -> None:
    model.get_submodule("second")._forward_hooks.clear()


class _Trained(Frozen):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * (self.weight * 2)


def _no_grad_mode(model: nn.Module) -> None:
    model.get_submodule("frozen").__class__ = _Trained


class _Uncounted(Counting):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.weight


def _no_count(model: nn.Module) -> None:
    model.get_submodule("counting").__class__ = _Uncounted


class _Stopped(Counting):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.detach())


def _no_gradient(model: nn.Module) -> None:
    model.get_submodule("counting").__class__ = _Stopped


class _Half(Counting):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs).double()


def _other_type(model: nn.Module) -> None:
    model.get_submodule("counting").__class__ = _Half
    model.get_submodule("last").register_forward_pre_hook(lambda _, args: args[0].float())


FAULTS: dict[str, tuple[Callable[[nn.Module], None], str]] = {
    "a wrong layer": (_other_layer, "the output of layer second is off by 1"),
    "a hook that was dropped": (_no_hooks, "the output of layer second is off by "),
    "a no_grad that was lost": (_no_grad_mode, "the gradient of frozen.weight, at layer frozen, is off by "),
    "a buffer that stands still": (_no_count, "the buffer counting.calls is off by 1.0e+00 "),
    "a gradient that is not sent": (_no_gradient, "the gradient of second."),
    "another type": (_other_type, "layer counting returns float64 instead of float32"),
}


@pytest.mark.parametrize("layout", ["1f1b", "zero-bubble", "recomputation"])
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_and_placed(
    name: str, layout: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoil, said = FAULTS[name]
    compare = caught(monkeypatch, tmp_path / "run", Hooked(), **LAYOUTS[layout])
    breaking(monkeypatch, spoil)
    refusal = compare().refusal
    assert refusal is not None
    option = "--recomputation" if layout == "recomputation" else "--stages"
    assert refusal.startswith(f"{option} ")
    assert f" would change what --model computes: compared with the whole model, {said}" in refusal
    assert refusal.endswith(f"; train without {option}, or change the code of --model there.")


def test_half_precision_is_compared_with_a_limit_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compare = caught(monkeypatch, tmp_path / "run", Hooked(), **ONE_PROCESS, precision="16.32")
    assert compare() == CutReport(compared=BOTH)
    breaking(monkeypatch, _other_layer)
    assert compare().refusal is not None


@pytest.mark.parametrize("options", [{"stages": 2, "device_mapping": [0, 0]}, {"recomputation": True}])
def test_code_that_a_trace_misreads_is_refused_before_anything_is_written(
    options: dict[str, Any], tmp_path: Path
) -> None:
    said = r"the input of layer second is off by 5\.0e-01 of its size, due to the code between layer first"
    with pytest.raises(BadInputError, match=said) as refusal:
        train_small(tmp_path / "run", TakesTensors(), **options)
    assert refusal.value.exit_status == 2
    assert not (tmp_path / "run").exists()
    train_small(tmp_path / "run", TakesTensors())


def test_a_cross_validation_is_refused_too(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (16, 6, 6, 1), dtype=np.uint8)
    with pytest.raises(BadInputError, match="--recomputation True would change what --model computes"):
        drivetrain.crossval(
            data=(images, np.arange(16) % 2),
            model=TakesTensors,
            folds=2,
            micro_batch_size=4,
            num_epochs=1,
            recomputation=True,
            output_dir=str(tmp_path / "folds"),
            device="cpu",
        )


def _bits(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("options", [ONE_PROCESS, {"recomputation": True}])
def test_the_comparison_leaves_no_trace(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_it = train_small(tmp_path / "with", Hooked(), **options)
    assert '"checked"' in (tmp_path / "with" / "plan.json").read_text()
    monkeypatch.setattr(training_parts, "compare_cut", lambda *_, **__: CutReport())
    without = train_small(tmp_path / "without", Hooked(), **options)
    assert '"checked"' not in (tmp_path / "without" / "plan.json").read_text()
    assert _bits(with_it.model) == _bits(without.model)


def test_the_comparison_changes_neither_model_nor_generators(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = Hooked()
    compare = caught(monkeypatch, tmp_path / "run", model)
    before = _bits(model), {module: dict(vars(module)) for module in model.modules()}
    drawn = torch.get_rng_state(), np.random.get_state()[1].tobytes()  # type: ignore[index]
    assert compare().compared == BOTH
    breaking(monkeypatch, lambda twin: None if twin is not model else pytest.fail("the model itself was cut"))
    assert compare().compared == BOTH
    assert (_bits(model), {module: dict(vars(module)) for module in model.modules()}) == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert np.random.get_state()[1].tobytes() == drawn[1]  # type: ignore[index]


def _reports(monkeypatch: pytest.MonkeyPatch, compare: Callable[[], CutReport]) -> list[CutReport]:
    """The reports from plenty of free memory to none, each once."""
    reports: list[CutReport] = []
    for free in range(100_000, -1, -4_000):
        monkeypatch.setattr(Device, "free_memory_bytes", free)
        report = compare()
        reports += [] if report in reports[-1:] else [report]
    return reports


def test_the_comparison_shrinks_with_the_free_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compare = caught(monkeypatch, tmp_path / "run", Small())
    reports = _reports(monkeypatch, compare)
    agree = "agree with the whole model"
    assert [report.compared for report in reports] == [
        BOTH,
        f"output, gradients and buffers of 2 samples {agree}",
        f"output and buffers of 4 samples {agree}",
        f"output and buffers of 2 samples {agree}",
        None,
    ]
    assert reports[-1].warnings == (
        "the pieces of --stages 2 were not compared with the whole model before the first update, because "
        "there is not enough free memory for the whole model.",
    )


def test_a_forward_pass_alone_finds_wrong_outputs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compare = caught(monkeypatch, tmp_path / "run", Hooked())
    breaking(monkeypatch, _no_hooks)
    reports = _reports(monkeypatch, compare)
    assert len({report.refusal for report in reports}) > 2
    assert all("the output of layer second" in str(report.refusal) for report in reports[:-1])
    assert reports[-1].warnings


def test_memory_that_runs_out_after_all_leads_to_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compare = caught(monkeypatch, tmp_path / "run", Small())

    def run(trial: Trial, **options: Any) -> Outcome:
        if trial.has_gradients:
            raise torch.OutOfMemoryError
        return run_trial(trial, **options)

    monkeypatch.setattr(cut_check, "run_trial", run)
    assert compare().compared == "output and buffers of 4 samples agree with the whole model"


def test_the_cpu_stands_in_for_an_accelerator_without_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compare = caught(monkeypatch, tmp_path / "run", Small(), **ONE_PROCESS, precision="16.32")
    full = Device(torch_device=torch.device("meta"), reason="test")
    elsewhere = replace(compare.keywords["inputs"], device=full)
    monkeypatch.setattr(Device, "free_memory_bytes", property(lambda device: 2**30 * device.is_cpu))
    report = compare(inputs=elsewhere)
    assert report.compared == "output, gradients and buffers of 2 samples agree with the whole model"


def test_a_model_that_never_computes_the_same_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passes = count(1)
    model = Small()
    model.second.register_forward_hook(lambda _module, _args, output: output * next(passes))
    refusal = caught(monkeypatch, tmp_path / "run", model)().refusal
    assert refusal is not None
    assert "it computes something else each time it runs" in refusal


def test_a_failure_is_told_by_where_it_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compare = caught(monkeypatch, tmp_path / "run", Small())

    def failing(in_stages: bool) -> None:
        def run(trial: Trial, **options: Any) -> Outcome:
            if options["in_stages"] == in_stages:
                raise ValueError("no such thing")
            return run_trial(trial, **options)

        monkeypatch.setattr(cut_check, "run_trial", run)

    failing(in_stages=False)
    (warning,) = compare().warnings
    assert "because the whole model failed (ValueError: no such thing (" in warning
    failing(in_stages=True)
    refusal = compare().refusal
    assert refusal is not None
    assert "they fail where the whole model does not (ValueError: no such thing (" in refusal
