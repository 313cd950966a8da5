"""The memory of stages as planned on fake tensors against what real passes hold."""

from copy import deepcopy
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.models.create import create_model
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.optim.optimiser import build_optimiser
from drivetrain.pipeline.cutting.stage_plan import plan_stages
from drivetrain.pipeline.memory.memory_parts import find_values
from drivetrain.pipeline.memory.stage_memory import ActivationBytes, stage_activation_bytes, stage_memory
from drivetrain.pipeline.memory.weight_memory import LiveBytes
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.schema import OptimizerParams, Recipe
from tests.pipeline.telling_models import MODES, Fourier

CPU = torch.device("cpu")
SAMPLES = 2
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "unet_same": ("unet_same", {"width": 4, "depth": 2, "dropout": 0.5}, (SAMPLES, 1, 64, 64)),
    "narrow unet": ("unet", {"width": 2}, (SAMPLES, 1, 188, 188)),
    "cifar_resnet8": ("cifar_resnet8", {}, (SAMPLES, 3, 32, 32)),
}
ADAM = partial(build_optimiser, Recipe(optimizer="adam"))
SGD = partial(build_optimiser, Recipe(optimizer_params=OptimizerParams()))


def _trained(name: str, *, group: ReplicaGroup = ALONE) -> tuple[nn.Module, Tensor]:
    """A model as it is trained, and images for it."""
    family, params, shape = MODELS[name]
    torch.manual_seed(0)
    model = create_model(family, **params).train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    context = UpdateContext(CPU)
    context.begin_forward(torch.arange(SAMPLES))
    install_counter_dropout(model, seed=0, context=context)
    install_batch_norm_owner(model, kept_share=None, group=group)
    return model, torch.randn(shape).contiguous(memory_format=torch.channels_last)


@cache
def _planned(name: str) -> ActivationBytes:
    model, images = _trained(name)
    return stage_activation_bytes(model, {"images": images})


def _really_held(model: nn.Module, *inputs: Tensor) -> tuple[int, int]:
    """Bytes saved by a real forward pass, each storage once, and those of the inputs among them."""
    held: dict[int, int] = {}
    alive: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = model(*inputs)
    for parameter in model.parameters():
        held.pop(parameter.untyped_storage().data_ptr(), None)
    given = sum(held.pop(tensor.untyped_storage().data_ptr(), 0) for tensor in inputs)
    del outputs
    return sum(held.values()), given


@pytest.mark.parametrize("name", MODELS)
def test_planned_bytes_are_those_that_are_held(name: str) -> None:
    model, images = _trained(name)
    planned = _planned(name)
    assert (planned.saved_bytes, planned.input_bytes) == _really_held(model, images)
    assert planned.input_bytes == images.nbytes


@pytest.mark.parametrize("name", MODELS)
def test_the_planned_peak_is_that_of_a_real_step(name: str) -> None:
    model, images = _trained(name)
    planned = _planned(name)
    FlatParameters(model)
    before = [*model.parameters(), *model.buffers(), images]
    before += [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    with LiveBytes(before=before) as live:
        outputs = model(images)
        root, shape = get_gradient_edge(outputs), outputs.shape
        del outputs
        torch.autograd.backward([root], [torch.ones(shape)])
    assert live.peak_bytes == planned.saved_bytes + planned.working_bytes
    assert live.largest_bytes == planned.largest_bytes


def test_planning_leaves_the_stage_as_it_is() -> None:
    model, images = _trained("unet_same")
    before = deepcopy(model.state_dict())
    generator_state = torch.get_rng_state()
    model.eval()
    stage_activation_bytes(model, {"images": images})
    assert not model.training
    assert torch.equal(generator_state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(getattr(module, "reported", []) for module in model.modules())


def test_a_stage_without_memory_is_planned_alike() -> None:
    model, images = _trained("cifar_resnet8")
    expected = stage_memory(model, {"images": images}, live_micro_batches=2, build_optimiser=ADAM)
    model.to("meta")
    assert (
        stage_memory(model, {"images": images.to("meta")}, live_micro_batches=2, build_optimiser=ADAM)
        == expected
    )


def test_half_precision_halves_the_activations() -> None:
    model, images = _trained("unet_same")
    full = _planned("unet_same")
    half = stage_activation_bytes(model, {"images": images}, compute_dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        assert (half.saved_bytes, 0) == _really_held(model, images)
    assert 0.45 < half.saved_bytes / full.saved_bytes < 0.6


def test_counter_dropout_saves_no_mask_and_torch_s_own_would() -> None:
    class Bottleneck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(4, 8, 3)
            self.dropout: nn.Module = nn.Dropout(0.5)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.dropout(self.convolution(inputs))
            return outputs

    stage, spec = Bottleneck(), {"inputs": torch.empty(SAMPLES, 4, 10, 10, device="meta")}
    mask_bytes = SAMPLES * 8 * 8 * 8 * 4
    assert stage_activation_bytes(stage, spec).saved_bytes == mask_bytes
    install_counter_dropout(stage, seed=0, context=UpdateContext(CPU))
    assert stage_activation_bytes(stage, spec).saved_bytes == SAMPLES * 8


class _TwoInputs(nn.Module):
    """A stage that takes features and a skip, and gives two tensors, one of which it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(6, 3, 1)

    def forward(self, features: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([features, skip], 1)
        kept = self.convolution(both).relu()
        return kept, both.mean((2, 3))


def test_every_part_of_a_small_stage() -> None:
    specs = {
        name: torch.empty(SAMPLES, 3, 8, 8, device="meta", requires_grad=True)
        for name in ("features", "skip")
    }
    plane = SAMPLES * 8 * 8 * 4
    found = stage_activation_bytes(_TwoInputs(), specs)
    assert found.input_bytes == 6 * plane
    # The concatenation, and what the ReLU gave, which is an output too.
    assert found.saved_bytes == 6 * plane + 3 * plane
    assert found.output_bytes == SAMPLES * 6 * 4
    assert found.largest_bytes == 6 * plane
    assert found.working_bytes > found.output_bytes


def test_a_stage_that_has_no_parameters() -> None:
    spec = {"inputs": torch.empty(SAMPLES, 3, 8, 8, requires_grad=True)}
    found = stage_memory(nn.MaxPool2d(2), spec, live_micro_batches=2, build_optimiser=ADAM)
    assert (found.parameters, found.gradients, found.optimiser_states) == (0, 0, 0)
    pooled = SAMPLES * 3 * 4 * 4
    assert found.activations == 2 * (SAMPLES * 3 * 8 * 8 * 4 + pooled * 8)


@pytest.mark.parametrize("live", [1, 4])
def test_recomputation_holds_inputs_and_the_rest_of_one(live: int) -> None:
    model, images = _trained("unet_same")
    each = _planned("unet_same")
    plain, recomputed = (
        stage_memory(
            model,
            {"images": images},
            live_micro_batches=live,
            build_optimiser=SGD,
            recomputes=recomputes,
        )
        for recomputes in (False, True)
    )
    assert plain.activations == live * (each.input_bytes + each.saved_bytes)
    assert plain.peak - recomputed.peak == (live - 1) * each.saved_bytes
    weights = plain.parameters + plain.gradients + plain.optimiser_states
    assert plain.peak == weights + plain.activations + each.working_bytes


def test_flat_vectors_and_states_are_counted_as_they_are_laid_out() -> None:
    model, images = _trained("cifar_resnet8")
    planned = stage_memory(model, {"images": images}, live_micro_batches=1, build_optimiser=ADAM)
    buffers = sum(
        {
            buffer.untyped_storage().data_ptr(): buffer.untyped_storage().nbytes()
            for buffer in model.buffers()
        }.values()
    )
    flat = FlatParameters(model)
    assert planned.parameters == flat.values.nbytes + buffers
    assert planned.gradients == flat.gradients.nbytes
    assert planned.optimiser_states == 2 * flat.values.nbytes


def test_offloaded_states_count_by_their_buffers() -> None:
    stage = nn.Sequential(*(nn.Linear(2048, 2048, device="meta") for _ in range(8)))
    spec = {"inputs": torch.empty(1, 2048, device="meta")}
    plain, offloaded = (
        stage_memory(stage, spec, offloads_states=offloads, live_micro_batches=1, build_optimiser=ADAM)
        for offloads in (False, True)
    )
    weights = 8 * (2048 * 2048 + 2048) * 4
    assert plain.optimiser_states == 2 * weights
    assert offloaded.optimiser_states == 2 * 2 * (weights // 8 - 2048 * 4)
    # Adam takes two vectors as long as what it updates for a moment, and a few single numbers.
    assert 6 * weights <= plain.peak < 6 * weights + 100
    chunk = weights // 8 - 2048 * 4
    assert 2 * weights + 6 * chunk <= offloaded.peak < 2 * weights + 6 * chunk + 200


def test_normalising_in_groups_asks_nobody() -> None:
    model, images = _trained("cifar_resnet8", group=ReplicaGroup(size=2))
    grouped = stage_activation_bytes(model, {"images": images})
    alone = _planned("cifar_resnet8")
    assert grouped.saved_bytes >= alone.saved_bytes
    assert grouped.output_bytes == alone.output_bytes


def test_the_optimiser_s_buffers_are_those_of_the_plan() -> None:
    model, images = _trained("cifar_resnet8")
    planned = stage_memory(
        model, {"images": images}, live_micro_batches=1, build_optimiser=ADAM, offloads_states=True
    )
    flat = FlatParameters(model)
    real = OffloadedOptimiser(ADAM, values=flat.values, segments=flat.segments)
    assert planned.optimiser_states == sum(buffer.nbytes for buffer in real.buffers)


IMAGES = torch.empty(SAMPLES, 3, 8, 8, device="meta", memory_format=torch.channels_last)


def _saved_by(model: nn.Module, *splits: str) -> list[int]:
    """The bytes that each stage saves for its backward pass."""
    recipe = Recipe(pipeline_splits=splits)
    plan = plan_stages(recipe, model, image_shape=(3, 8, 8), micro=SAMPLES, accumulation=1)
    assert plan is not None
    cut = plan.cut()
    flow = find_values(cut, images=IMAGES, compute_dtypes=[torch.float32] * plan.stages)
    return [stage_activation_bytes(stage, flow.inputs_of(stage)).saved_bytes for stage in cut.stages]


def test_a_stage_without_gradients_saves_nothing() -> None:
    trained, frozen = (_saved_by(MODES[name](), "tanh_1", "third") for name in ("WideMiddle", "FrozenMiddle"))
    assert trained[1] > 0
    assert frozen[1] == 0
    assert frozen[2] == trained[2] > 0


def test_complex_values_have_gradients() -> None:
    recipe = Recipe(pipeline_splits=("mul",))
    plan = plan_stages(recipe, Fourier(), image_shape=(3, 8, 8), micro=SAMPLES, accumulation=1)
    assert plan is not None
    flow = find_values(plan.cut(), images=IMAGES, compute_dtypes=[torch.float32] * 2)
    sent = flow.inputs_of(plan.cut().stages[1])["fft_rfft2"]
    assert (sent.dtype, sent.requires_grad) == (torch.complex64, True)
