"""One weight update on a CPU copies nothing but what it must: counted by torch's own profiler."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from drivetrain.assembly.training_parts import assemble
from drivetrain.data.feeds.feed import Feed
from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.data.splits import open_data
from drivetrain.devices.device import choose_device
from drivetrain.models.create import create_model
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe

# No weight of these models has this many outputs, so the first dimension tells what is a batch.
BATCH = 5

COMMON: dict[str, Any] = {
    "micro_batch_size": BATCH,
    "dataset_size": 2 * BATCH,
    "max_updates": 3,
    "num_epochs": 3,
    "data_placement": "resident",
    "augment": False,
    "optimizer": "sgd",
    "optimizer_params": {"momentum": 0.9},
    "device": "cpu",
}


@dataclass(frozen=True)
class Case:
    """A model's recipe, how many copies of whole batches an update makes, and why each is needed."""

    options: dict[str, Any]
    copies: dict[str, int]


UNET = Case(
    {
        "model": "unet_same",
        "model_width": 4,
        "model_params": {"depth": 1, "norm": "batch"},
        "dataset": "synthetic-em",
        "image_size": 16,
    },
    # uint8 to float32; of one channel each: the mask to float32, once more in the backward pass, where the
    # gradients of the two channels are written.
    {"images": 1, "masks": 4},
)
CIFAR_RESNET = Case(
    {"model": "cifar_resnet8", "dataset": "synthetic", "image_size": 16},
    # Zeros at the border of two convolutions and beside the channels of two shortcuts, there and back.
    {"images": 1, "paddings": 4, "gradients of paddings": 4},
)
RESNET = Case({"model": "resnet18", "dataset": "synthetic", "image_size": 32}, {"images": 1})
CASES = pytest.mark.parametrize("case", [UNET, CIFAR_RESNET, RESNET], ids=lambda case: case.options["model"])


@CASES
def test_an_update_copies_no_more_than_it_must(case: Case) -> None:
    """What a convolution does inside is the library's choice, which depends on the processor.

    oneDNN gives the gradient of a convolution's weights in an order of its own: those are copied once.
    """
    program = _program(case)
    events = [event for event in _events_of_an_update(program) if not _is_inside_a_convolution(event)]
    assert len(_batch_copies(events)) == sum(case.copies.values())
    assert not [event for event in events if event.name == "aten::contiguous" and _copies(event)]
    convolutions = nn.Conv2d, nn.ConvTranspose2d
    weights = [layer.weight for layer in program.model.modules() if isinstance(layer, convolutions)]
    copied = Counter(tuple(_shape(event)) for event in events if _copies_weights(event))
    assert copied <= Counter(tuple(weight.shape) for weight in weights)


@CASES
def test_images_in_the_default_layout_are_noticed(case: Case) -> None:
    program = _program(case)
    program.batches.feed = _DefaultLayout(program.feed)
    own_copy = 1
    assert len(_batch_copies(_events_of_an_update(program))) - own_copy > sum(case.copies.values())


def test_a_layer_that_changes_the_layout_is_noticed() -> None:
    model = create_model("cifar_resnet8", channels=3, image_size=16, num_classes=10)
    model.get_submodule("conv1_relu").register_forward_hook(
        lambda _module, _inputs, output: output.contiguous()
    )
    events = _events_of_an_update(_program(CIFAR_RESNET, model))
    assert len(_batch_copies(events)) > sum(CIFAR_RESNET.copies.values())
    assert [event for event in events if event.name == "aten::contiguous" and _copies(event)]


class _DefaultLayout:
    """A feed whose images are not channels last; their values are the same."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.data_seconds = self.transfer_seconds = 0.0
        self.close: Callable[[], None] = feed.close

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:
        for batch in self._feed.micro_batches(update):
            # One channel has no order of its own: two pixels of distance between rows make it a copy.
            images = batch.images.new_zeros(*batch.images.shape[:3], batch.images.shape[3] + 2)[..., :-2]
            yield replace(batch, images=images.copy_(batch.images))


def _program(case: Case, model: nn.Module | None = None) -> TrainingProgram:
    recipe = Recipe(**COMMON, **case.options)
    data = open_data(recipe)
    plan = plan_training(recipe, samples=len(data.train))
    return assemble(recipe, data=data, model=model, plan=plan, device=choose_device("cpu")).program


def _events_of_an_update(program: TrainingProgram) -> list[FunctionEvent]:
    """What torch does in the third update; what is set up once has been."""
    program.execute(0, 2, goes_on=lambda _: True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        program.execute(2, 3, goes_on=lambda _: True)
    return list(found.events() or ())


def _batch_copies(events: list[FunctionEvent]) -> list[FunctionEvent]:
    """Copies of many values of each sample, such as its pixels."""
    return [event for event in events if event.name == "aten::copy_" and _is_batch(_shape(event))]


def _is_batch(shape: list[int]) -> bool:
    return len(shape) > 1 and shape[0] == BATCH and math.prod(shape[1:]) > 10


def _is_inside_a_convolution(event: FunctionEvent) -> bool:
    parent = event.cpu_parent
    return parent is not None and ("convolution" in parent.name or _is_inside_a_convolution(parent))


def _copies(event: FunctionEvent) -> bool:
    return any(child.name == "aten::copy_" or _copies(child) for child in event.cpu_children)


def _copies_weights(event: FunctionEvent) -> bool:
    shape = _shape(event)
    return event.name == "aten::copy_" and len(shape) == 4 and shape[0] != BATCH


def _shape(event: FunctionEvent) -> list[int]:
    """Of the first input."""
    shapes: Any = event.input_shapes
    return [int(length) for length in shapes[0]] if shapes else []
