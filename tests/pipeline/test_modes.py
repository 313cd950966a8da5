"""Stages of models whose code asks for the mode or for sizes: they train and evaluate as the model does."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.core.errors import BadInputError
from drivetrain.data.splits import split_user_data
from drivetrain.devices.device import choose_device
from drivetrain.pipeline.cutting.stage_plan import StagePlan, plan_stages
from drivetrain.pipeline.runtime.placed_stages import build_forward_only
from drivetrain.plan.training_plan import plan_training
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALL_ALONE, ALONE, ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from drivetrain.state.program_state import collect_state
from tests.pipeline.mode_models import BY_MODE, BY_SIZE, Net, Wrapped
from tests.pipeline.odd_models import cut_subject
from tests.pipeline.staged import CPU, RECIPE, Subject, laid_out
from tests.program.harness import worst_error

MODELS = {**BY_MODE, **BY_SIZE}
SIZES = (2, 1, 5, 3)


def _subject(name: str) -> Subject:
    between, splits = MODELS[name]
    torch.manual_seed(0)
    return cut_subject(_uneven(Net(between)), *splits)


def _uneven(model: nn.Module) -> nn.Module:
    """Running statistics that do something, so that evaluation cannot miss them."""
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean = torch.linspace(-0.1, 0.1, 4)
            layer.running_var = torch.linspace(0.5, 2, 4)
    return model


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_an_update_is_that_of_the_whole_model(name: str, *, recomputes: bool) -> None:
    subject = _subject(name)
    expected = subject.plain()
    found = subject.staged(laid_out(subject.plans[0], recomputes=recomputes))
    assert worst_error(expected.gradients, found.gradients) <= 1e-10
    assert worst_error(expected.statistics, found.statistics) <= 1e-12
    found.gradients["first.weight"] = found.gradients["first.weight"] * 1.001
    assert worst_error(expected.gradients, found.gradients) > 1e-10


def _forward(subject: Subject, plan: StagePlan) -> Callable[[Tensor], Tensor]:
    placed = subject.placed(laid_out(plan))
    return build_forward_only(placed, subject.runners(placed), groups=ALL_ALONE, device=CPU)


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_is_that_of_the_whole_model_for_any_batch_size(name: str) -> None:
    subject = _subject(name)
    forward = _forward(subject, subject.plans[0])
    subject.model.eval()
    for size in SIZES:
        images = subject.batch.images[:size]
        with torch.no_grad():
            assert torch.equal(forward(images), subject.model(images))


@pytest.mark.parametrize("name", sorted(BY_MODE.keys() - {"dropping", "fused"}))
def test_the_steps_of_training_would_evaluate_something_else(name: str) -> None:
    subject = _subject(name)
    subject.model.eval()
    placed = subject.placed(laid_out(subject.plans[0]))
    values: dict[str, Tensor] = {}
    for runner in subject.runners(placed).values():
        values |= runner.evaluate(subject.batch.images, values, as_trained=True)
    with torch.no_grad():
        assert not torch.allclose(values[placed.cut.output], subject.model(subject.batch.images))


@pytest.mark.parametrize("name", MODELS)
def test_all_stages_together_hold_the_whole_model(name: str) -> None:
    subject = _subject(name)
    cut = subject.placed(subject.plans[0]).cut
    names = [key for stage in cut.stages for key in stage.state_dict()]
    assert sorted(names) == sorted(subject.model.state_dict())
    parameters = [key for stage in cut.stages for key in stage.stage_facts.parameter_names]
    assert sorted(parameters) == sorted(key for key, _ in subject.model.named_parameters())
    assert (cut.evaluation is not None) == (name in BY_MODE)


def test_what_only_evaluation_uses_is_where_it_is_used() -> None:
    stages = _subject("only_in_evaluation").placed(_subject("only_in_evaluation").plans[0]).cut.stages
    held = stages[0].stage_facts.parameter_names
    assert {"extra.weight", "extra_norm.weight", "scale"} <= set(held)
    assert {"extra.weight", "extra_norm.running_mean"} <= set(stages[0].state_dict())


def test_a_stage_may_have_nothing_to_do_in_evaluation() -> None:
    cut = _subject("skipping").placed(_subject("skipping").plans[0]).cut
    assert cut.evaluation is not None
    assert [len(stage.stage_facts.layers) > 0 for stage in cut.evaluation.stages] == [True, False, True]


def _swapped(self: Net, features: Tensor) -> Tensor:
    if self.training:
        return self.second(self.extra(features))  # type: ignore[no-any-return]
    return self.extra(self.second(features))  # type: ignore[no-any-return]


def _added(self: Net, features: Tensor) -> Tensor:
    if self.training:
        return self.second(self.extra(features))  # type: ignore[no-any-return]
    return features * (self.extra.bias + self.second.bias).view(4, 1, 1)  # type: ignore[operator]


def test_evaluation_that_would_go_backwards_is_refused() -> None:
    line = _swapped.__code__.co_firstlineno + 3
    subject = cut_subject(Net(_swapped), "second")
    with pytest.raises(
        BadInputError, match=rf"layer extra .* stage 0, .*test_modes\.py line {line} .* stage 1"
    ):
        subject.plans[0].cut()
    assert cut_subject(Net(_swapped), "line").plans[0].cut().evaluation is not None


def test_weights_of_two_stages_in_one_step_of_evaluation_are_refused() -> None:
    line = _added.__code__.co_firstlineno + 3
    with pytest.raises(BadInputError, match=rf"test_modes\.py line {line} uses weights of stages 0 and 1"):
        cut_subject(Net(_added), "second").plans[0].cut()


@pytest.mark.parametrize("name", ["dropping", "looping"])
def test_a_module_with_most_of_the_weights_is_split_as_well(name: str) -> None:
    torch.manual_seed(0)
    subject = cut_subject(Wrapped(MODELS[name][0]), "net.second")
    expected = subject.plain()
    found = subject.staged(laid_out(subject.plans[0]))
    assert worst_error(expected.gradients, found.gradients) <= 1e-10


def test_images_of_another_size_are_refused_where_the_code_depends_on_it() -> None:
    subject = _subject("interpolating")
    forward = _forward(subject, subject.plans[0])
    subject.model.eval()
    larger = torch.zeros(2, 3, 8, 8, dtype=torch.float64)
    with pytest.raises(BadInputError, match=r"images of 3 x 4 x 4 .* not 3 x 8 x 8"):
        forward(larger)
    subject = _subject("dropping")
    forward = _forward(subject, subject.plans[0])
    subject.model.eval()
    assert torch.equal(forward(larger), subject.model(larger))


def test_recomputed_blocks_know_both_modes_and_sizes() -> None:
    for name in ("only_in_training", "looping"):
        plan = plan_stages(
            RECIPE.model_copy(update={"recomputation": True}),
            Net(MODELS[name][0]),
            image_shape=(3, 4, 4),
            micro=2,
            accumulation=8,
        )
        assert plan is not None
        assert plan.stages > 1


def _assembly(group: ReplicaGroup, name: str, *, stages: int) -> Assembly:
    between, splits = MODELS[name]
    options = {"pipeline_splits": list(splits), "pipeline_schedule": "1f1b"} if stages > 1 else {}
    recipe = resolve_recipe(
        overrides={
            "micro_batch_size": 2,
            "global_batch_size": 8,
            "learning_rate": 0.05,
            "max_updates": 1,
            "device": "cpu",
            "precision": "32.32",
            "validation_micro_batch_size": 4,
            **options,
        }
    ).recipe
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (8 + 11, 4, 4, 3), dtype=np.uint8)
    labels = np.arange(19) % 10
    torch.manual_seed(0)
    return assemble(
        recipe,
        data=split_user_data(recipe, train=(images[:8], labels[:8]), validation=(images[8:], labels[8:])),
        model=_uneven(Net(between)),
        plan=plan_training(recipe, samples=8),
        device=choose_device("cpu"),
        group=group,
    )


def _train_and_validate(
    group: ReplicaGroup, name: str, stages: int
) -> tuple[dict[str, float], dict[str, float], dict[str, Tensor]]:
    assembly = _assembly(group, name, stages=stages)
    assert assembly.evaluate is not None
    before = assembly.evaluate().as_metrics()
    assembly.program.execute(0, 1, goes_on=lambda _: True)
    after = assembly.evaluate().as_metrics()
    state = collect_state(assembly.program)
    return before, after, {} if state is None else dict(state.model)


@pytest.mark.parametrize("name", ["only_in_evaluation", "skipping", "looping"])
def test_ranks_train_and_validate_as_one_process(name: str, rank_pool: RankPool) -> None:
    before, after, state = _train_and_validate(ALONE, name, 1)
    parts = rank_pool.run(_train_and_validate, name, 3, ranks=3)
    for found_before, found_after, _ in parts:
        assert found_before == before
        assert found_after == pytest.approx(after, rel=1e-5)
    assert parts[0][2].keys() == state.keys()
    for key, value in state.items():
        assert torch.allclose(parts[0][2][key].double(), value.double(), rtol=1e-5, atol=1e-6), key
    assert before != after
