"""What the code of a model does besides calling layers is done in every cut."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.pipeline.cutting.choose_stages import possible_splits
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.placed_stages import PipelinePasses
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from tests.pipeline.odd_models import cut_subject
from tests.pipeline.staged import Outcome, Subject, laid_out
from tests.pipeline.telling_models import HOOKED, MODES, Body, Counted, Fourier, Regions, hooked
from tests.pipeline.telling_programs import Told, tell
from tests.program.harness import worst_error


def _subject(model: nn.Module, dtype: torch.dtype = torch.float64) -> Subject:
    torch.manual_seed(0)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return cut_subject(model, "third", dtype=dtype)


def _cuts(subject: Subject) -> Iterator[StagePlan]:
    """The model in two stages, split at every place where it can be."""
    plan = subject.plans[0]
    starts = possible_splits(plan.traced)
    assert len(starts) > 3
    for start in starts:
        stage_of = tuple(int(place >= start) for place in range(len(plan.traced.layers)))
        yield laid_out(replace(plan, stage_of=stage_of))


def _is_same(expected: Outcome, found: Outcome) -> bool:
    is_near = abs(found.loss - expected.loss) <= 1e-6 * expected.loss
    return is_near and worst_error(expected.gradients, found.gradients) <= 1e-10


def _without_context(subject: Subject) -> None:
    """The negative control: steps forget the modes in which they were traced."""
    for node in subject.plans[0].traced.graph.nodes:
        node.meta.pop("step_modes", None)


@pytest.mark.parametrize("name", MODES)
def test_modes_of_the_code_hold_in_every_cut(name: str) -> None:
    subject = _subject(MODES[name](), torch.float32)
    expected = subject.plain()
    for plan in _cuts(subject):
        assert _is_same(expected, subject.staged(plan)), plan.stage_of
        recomputed = subject.staged(laid_out(plan, recomputes=True))
        assert _is_same(expected, recomputed), plan.stage_of
    for schedule in SCHEDULE_NAMES:
        assert _is_same(expected, subject.staged(laid_out(subject.plans[0], schedule=schedule))), schedule


@pytest.mark.parametrize("name", ["FrozenMiddle", "FrozenSecond", "Decorated", "HalfMiddle"])
def test_without_the_modes_the_gradient_would_differ(name: str) -> None:
    subject = _subject(MODES[name](), torch.float32)
    expected = subject.plain()
    _without_context(subject)
    assert not _is_same(expected, subject.staged(laid_out(subject.plans[0])))


def test_no_gradient_is_sent_back_for_what_no_grad_computes() -> None:
    subject = _subject(MODES["FrozenMiddle"]())
    plan = subject.plans[0]
    sent = {plan.traced.layers[plan.stage_of.index(1)].name: plan.edges() for plan in _cuts(subject)}
    assert [edge.has_gradient for edge in sent["third"]] == [False]
    assert [edge.has_gradient for edge in sent["line"]] == [True]
    assert plan.cut().without_gradient == {edge.value for edge in sent["third"]}
    # A step that hands on its input hands on its gradient.
    kept = _subject(MODES["InPlace"]())
    assert all(edge.has_gradient for plan in _cuts(kept) for edge in plan.edges())


def test_layers_before_a_fourier_transform_train_in_every_cut() -> None:
    subject = _subject(Fourier())
    expected = subject.plain()
    kinds = set()
    for plan in _cuts(subject):
        assert _is_same(expected, subject.staged(plan)), plan.stage_of
        assert _is_same(expected, subject.staged(laid_out(plan, recomputes=True))), plan.stage_of
        kinds |= {plan.shapes.values[edge.value].dtype for edge in plan.edges()}
    assert torch.complex128 in kinds
    assert all(np.abs(gradient).max() > 0 for gradient in expected.gradients.values())


def _measured(model: Counted, subject: Subject, plan: StagePlan | None) -> tuple[Outcome, list[str]]:
    model.calls.clear()
    outcome = subject.plain() if plan is None else subject.staged(plan)
    return outcome, model.calls.copy()


@pytest.mark.parametrize("name", HOOKED)
def test_hooks_run_as_often_and_with_the_same_effect_in_every_cut(name: str) -> None:
    model = hooked(name)
    subject = _subject(model)
    expected, calls = _measured(model, subject, None)
    assert calls
    for plan in _cuts(subject):
        found, found_calls = _measured(model, subject, plan)
        assert _is_same(expected, found), plan.stage_of
        assert sorted(found_calls) == sorted(calls), plan.stage_of
        assert _is_same(expected, subject.staged(laid_out(plan, recomputes=True))), plan.stage_of
    for schedule in SCHEDULE_NAMES:
        found = subject.staged(laid_out(subject.plans[0], schedule=schedule))
        assert _is_same(expected, found), schedule


@pytest.mark.parametrize("name", HOOKED)
def test_hooks_matter(name: str) -> None:
    subject = _subject(hooked(name))
    expected = subject.plain()
    assert not _is_same(expected, _subject(Counted()).plain())


def test_a_block_with_hooks_is_one_layer_that_may_change_its_input() -> None:
    subject = _subject(hooked("block"))
    names = [layer.name for layer in subject.plans[0].traced.layers]
    assert "block" in names
    assert not any(name.startswith("block.") for name in names)
    free = _subject(Counted())
    assert {"block.0", "block.1"} <= {layer.name for layer in free.plans[0].traced.layers}


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_module_with_a_checkpoint_region_stays_whole(reentrant: bool) -> None:
    model = Body()
    model.second = Regions(reentrant=reentrant)  # type: ignore[assignment]
    subject = _subject(model)
    assert "second" in [layer.name for layer in subject.plans[0].traced.layers]
    expected = subject.plain()
    for plan in _cuts(subject):
        assert _is_same(expected, subject.staged(plan)), plan.stage_of
        assert _is_same(expected, subject.staged(laid_out(plan, recomputes=True))), plan.stage_of


@cache
def _alone(name: str, precision: str) -> Told:
    return tell(ALONE, name, {"precision": precision})


def _check_told(name: str, found: Told, *, precision: str = "32.32", logits: Any) -> None:
    expected = _alone(name, precision)
    assert worst_error(expected.gradients, found.gradients) <= 1e-5
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert logits == pytest.approx(expected.logits, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", [*MODES, *HOOKED, "Fourier"])
@pytest.mark.parametrize("splits", [("third",), ("second", "line")])
def test_stages_on_ranks_do_what_the_code_does(
    rank_pool: RankPool, name: str, splits: tuple[str, ...]
) -> None:
    parts = rank_pool.run(tell, name, {"pipeline_splits": list(splits)}, ranks=1 + len(splits))
    gradients = {key: value for part in parts for key, value in part.gradients.items()}
    found = replace(parts[0], gradients=gradients)
    _check_told(name, found, logits=parts[-1].logits)


@pytest.mark.parametrize("name", [*MODES, *HOOKED, "Fourier"])
@pytest.mark.parametrize(
    "options", [{"recomputation": True}, {"stages": 3, "pipeline_schedule": "zero-bubble"}], ids=str
)
def test_programs_of_one_process_do_what_the_code_does(name: str, options: dict[str, Any]) -> None:
    found = tell(ALONE, name, options)
    _check_told(name, found, logits=found.logits)


@pytest.mark.parametrize("name", ["HalfMiddle", "WideMiddle", "FrozenSecond", "root"])
@pytest.mark.parametrize("options", [{"recomputation": True}, {"stages": 2}], ids=str)
def test_the_precision_of_a_run_leaves_that_of_a_block(name: str, options: dict[str, Any]) -> None:
    found = tell(ALONE, name, {**options, "precision": "16.32"})
    _check_told(name, found, precision="16.32", logits=found.logits)
    assert worst_error(_alone(name, "32.32").gradients, found.gradients) > 1e-4


def test_complex_values_travel_between_ranks(rank_pool: RankPool) -> None:
    for split in ("mul", "mul_2", "fft_irfft2"):
        parts = rank_pool.run(tell, "Fourier", {"pipeline_splits": [split]}, ranks=2)
        gradients = {key: value for part in parts for key, value in part.gradients.items()}
        _check_told("Fourier", replace(parts[0], gradients=gradients), logits=parts[-1].logits)


def _clipped(gradient: Tensor) -> Tensor:
    return gradient.clamp(-1e-4, 1e-4)


def _halved(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad / 2


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_hooks_of_parameters_see_deferred_gradients(schedule: str) -> None:
    model = Body()
    model.second.weight.register_hook(_clipped)  # type: ignore[no-untyped-call]
    model.line.weight.register_post_accumulate_grad_hook(_halved)  # type: ignore[no-untyped-call]
    subject = _subject(model)
    expected = subject.plain()
    assert _is_same(expected, subject.staged(laid_out(subject.plans[0], schedule=schedule)))
    assert not _is_same(expected, _subject(Body()).plain())


@pytest.mark.parametrize("name", ["FrozenSecond", "HalfMiddle", "WideMiddle", "Inference"])
def test_a_compiled_stage_keeps_the_modes(name: str) -> None:
    subject = _subject(MODES[name](), torch.float32)

    def compile_all(passes: PipelinePasses) -> None:
        for runner in passes.executor._runners.values():
            runner.call = torch.compile(runner.module, backend="aot_eager", fullgraph=True)

    found = subject.staged(laid_out(subject.plans[0]), change=compile_all)
    assert _is_same(subject.plain(), found)
