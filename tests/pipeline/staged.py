"""Models that tests run in stages within one process, beside the same model in one piece."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.data.order import SampleOrder
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.install import place_draws
from drivetrain.layers.draws.rehearsal import rehearse_draws
from drivetrain.models.create import create_model
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.passes.gradient_sum import GradientSum
from drivetrain.passes.model_step import LossHead, ModelStep
from drivetrain.passes.update_batches import UpdateBatches
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.pipeline.cutting.cut import Cut
from drivetrain.pipeline.cutting.settings import StageSettings
from drivetrain.pipeline.cutting.stage_plan import StagePlan, plan_stages
from drivetrain.pipeline.runtime.placed_stages import (
    PipelinePasses,
    PlacedStages,
    build_passes,
    build_runners,
)
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.ranks.replica_group import ALL_ALONE, ALONE, ReplicaGroup
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.actions import Edge
from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.segmentation import SegmentationTask
from tests.program.harness import GivenFeed

CPU = Device(torch_device=torch.device("cpu"), reason="test")
MICRO_BATCHES = 8
RECIPE = Recipe(dataset="digits", precision="32.32")

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A model, made small, its micro-batches, and where tests cut it into two and into four stages."""

    name: str
    channels: int
    image_size: int
    label_size: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    micro: int = 2
    splits: Mapping[int, tuple[str, ...]]


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            name="cifar_resnet8",
            channels=3,
            image_size=8,
            splits={
                2: ("conv3_block1_layer1_bn",),
                4: tuple(f"conv{stack}_block1_post_addition_relu" for stack in (2, 3, 4)),
            },
        ),
        Kind(
            name="resnet18",
            params={"width": 4},
            channels=3,
            image_size=16,
            # Cuts inside of blocks, so that shortcuts cross them, one of them two cuts at once.
            splits={
                2: ("conv3_block2_2_conv",),
                4: ("conv2_block2_2_conv", "conv3_block2_1_conv", "conv3_block2_2_bn"),
            },
        ),
        Kind(
            name="unet",
            channels=1,
            image_size=188,
            label_size=4,
            params={"width": 1},
            # Large images, and no batch norm that would need two.
            micro=1,
            splits={
                2: ("encoder_block_2_conv_0",),
                4: ("encoder_block_2_conv_0", "encoder_block_4_conv_0", "decoder_block_2_transpose"),
            },
        ),
        Kind(
            name="unet_same",
            channels=1,
            image_size=10,
            label_size=10,
            params={"width": 3, "depth": 2, "norm": "batch", "dropout": 0.3},
            # The pooling reads a skip that a later stage reads again; the last stage reads the images too.
            splits={
                2: ("encoder_block_1_maxpooling",),
                4: ("encoder_block_0_maxpooling", "encoder_block_1_maxpooling", "decoder_block_1_transpose"),
            },
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the passes of one update came to."""

    gradients: Arrays
    statistics: Arrays
    reports: tuple[int, ...]
    """How often each batch norm had something to say."""
    loss: float
    edges: tuple[Edge, ...] = ()
    largest_live: tuple[dict[int, int], ...] = ()
    bytes_sent: tuple[int, ...] = ()


class Subject:
    """A model with everything of a training program but the update, to be run in any cut again and again."""

    def __init__(
        self,
        model: nn.Module,
        batch: MicroBatch,
        *,
        plans: Sequence[StagePlan] = (),
        task: ClassificationTask | SegmentationTask | None = None,
        micro: int = 2,
    ) -> None:
        self.model, self.batch, self.plans, self.micro = model, batch, plans, micro
        self.context = UpdateContext(CPU.torch_device)
        channels, height, width = batch.images.shape[1:]
        facts = rehearse_draws(model, image_shape=(channels, height, width), seed=RECIPE.seed)
        self.draws = place_draws(model, seed=RECIPE.seed, context=self.context, device=CPU, facts=facts)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.batch_norms = install_batch_norm_owner(model, kept_share=0.9)
        self.parameters = FlatParameters(model)
        self.head = LossHead(task=task or ClassificationTask())
        self._cuts: dict[tuple[int, ...], Cut] = {}
        self._buffers = {name: value.clone() for name, value in model.named_buffers()}
        model.train()

    def plain(self) -> Outcome:
        """The passes of the model in one piece."""
        self.start_over()
        passes = PlainPasses(
            step=ModelStep(
                forward=self.model, head=self.head, batch_norms=self.batch_norms, context=self.context
            ),
            context=self.context,
            draws=self.draws,
            batch_norms=self.batch_norms,
            batches=self.batches(ALONE),
            gradient_sum=self._gradient_sum(),
            parameters=self.parameters,
            device=CPU,
            seed=RECIPE.seed,
        )
        loss, _ = passes.run(0)
        return self._outcome(float(loss))

    def staged(
        self,
        plan: StagePlan,
        *,
        replicas: int = 1,
        change: Callable[[PipelinePasses], object] | None = None,
    ) -> Outcome:
        """The passes of all replicas one after the other, each over all stages; `change` may spoil them."""
        self.start_over()
        loss = 0.0
        everyone = []
        for replica in range(replicas):
            passes = self.passes(plan, group=ReplicaGroup(rank=replica, size=replicas))
            if change is not None:
                change(passes)
            loss += float(passes.run(0)[0])
            everyone.append(passes.executor)
        live = tuple(executor.largest_live for executor in everyone)
        sent = tuple(executor.channel.bytes_sent for executor in everyone)
        return replace(self._outcome(loss), edges=passes.edges, largest_live=live, bytes_sent=sent)

    def passes(self, plan: StagePlan, *, group: ReplicaGroup = ALONE) -> PipelinePasses:
        """The passes of one replica, of which this process plays all devices."""
        stages = self.placed(plan)
        channels, height, width = self.batch.images.shape[1:]
        return build_passes(
            stages,
            self.runners(stages),
            groups=ALL_ALONE,
            device=CPU,
            batches=self.batches(group),
            gradient_sum=self._gradient_sum(),
            image_shape=(channels, height, width),
        )

    def placed(self, plan: StagePlan) -> PlacedStages:
        """All stages of a plan; where only devices or schedule differ, the same modules."""
        if plan.stage_of not in self._cuts:
            self._cuts[plan.stage_of] = plan.cut()
        return PlacedStages(plan=plan, cut=self._cuts[plan.stage_of], own=tuple(range(plan.stages)))

    def runners(self, stages: PlacedStages) -> dict[int, StageRunner]:
        return build_runners(
            RECIPE,
            stages,
            model=self.model,
            device=CPU,
            context=self.context,
            draws=self.draws,
            batch_norms=self.batch_norms,
            head=self.head,
        )

    def batches(self, group: ReplicaGroup) -> UpdateBatches:
        samples = len(self.batch.labels)
        order = SampleOrder(
            seed=RECIPE.seed,
            samples=samples,
            global_batch=samples,
            updates_per_epoch=Fraction(1),
            remainder="trim",
            shuffle=False,
        )
        feed = GivenFeed(self.batch.images, self.batch.labels, micro=self.micro, group=group)
        return UpdateBatches(
            feed=feed, order=order, micro=self.micro, replica=group.rank, replicas=group.size
        )

    def _gradient_sum(self) -> GradientSum:
        return GradientSum(self.parameters, group=ALONE, max_buffer_bytes=0, overlaps=False)

    def start_over(self) -> None:
        """Nothing is left of earlier passes."""
        self.context.update.fill_(0)
        self.parameters.gradients.zero_()
        self.batch_norms.forget()
        with torch.no_grad():
            for name, value in self.model.named_buffers():
                value.copy_(self._buffers[name])

    def _outcome(self, loss: float) -> Outcome:
        reports = tuple(len(layer.reported) for layer in self.batch_norms.layers)
        self.batch_norms.commit()
        return Outcome(
            gradients=_copied(self.parameters.named_views(self.parameters.gradients)),
            statistics=_copied(self.model.named_buffers()),
            reports=reports,
            loss=loss,
        )


def _copied(tensors: Iterable[tuple[str, Tensor]]) -> Arrays:
    return {name: value.detach().double().numpy().copy() for name, value in tensors}


def statistics_error(expected: Arrays, found: Arrays) -> float:
    """How far running statistics and their counts are apart, at most."""
    return max((float(np.abs(expected[name] - found[name]).max()) for name in expected), default=0.0)


@cache
def subject_of(name: str, dtype: torch.dtype) -> Subject:
    """One of the four models, which all tests share; their plans for 2 and 4 stages are made beforehand."""
    kind = KINDS[name]
    model = narrow_model(kind).to(dtype)
    plans = [_plan(kind, model, splits) for splits in kind.splits.values()]
    task = None if kind.label_size is None else SegmentationTask(num_classes=2)
    return Subject(model, samples_of(kind, dtype=dtype), plans=plans, task=task, micro=kind.micro)


@cache
def reference_of(name: str, dtype: torch.dtype) -> Outcome:
    """What the model in one piece computes, and a check of the check: nothing in it is idle."""
    outcome = subject_of(name, dtype).plain()
    assert all(np.abs(gradient).max() > 0 for gradient in outcome.gradients.values())
    return outcome


def narrow_model(kind: Kind) -> nn.Module:
    """The model as the registry makes it, with fewer channels."""
    size = kind.label_size or kind.image_size
    return create_model(
        kind.name,
        channels=kind.channels,
        image_size=size,
        num_classes=10 if kind.label_size is None else 2,
        **kind.params,
    )


def samples_of(kind: Kind, *, dtype: torch.dtype) -> MicroBatch:
    """Generated images, channels last as feeds bring them, with labels of the model's task."""
    samples = kind.micro * MICRO_BATCHES
    generator = torch.Generator().manual_seed(1)
    shape = (samples, kind.channels, kind.image_size, kind.image_size)
    images = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    images = images.contiguous(memory_format=torch.channels_last)
    side = kind.label_size
    if side is None:
        labels = torch.randint(0, 10, (samples,), generator=generator)
    else:
        labels = torch.randint(0, 2, (samples, side, side, 1), generator=generator, dtype=torch.uint8)
    return MicroBatch(images, labels, None, torch.arange(samples))


def _plan(kind: Kind, model: nn.Module, splits: tuple[str, ...]) -> StagePlan:
    recipe = RECIPE.model_copy(update={"pipeline_splits": splits})
    shape = (kind.channels, kind.image_size, kind.image_size)
    plan = plan_stages(recipe, model, image_shape=shape, micro=kind.micro, accumulation=MICRO_BATCHES)
    assert plan is not None
    return plan


def laid_out(
    plan: StagePlan,
    *,
    schedule: str = "1f1b",
    device_of: tuple[int, ...] | None = None,
    recomputes: bool | Sequence[bool] = False,
) -> StagePlan:
    """The same cut on other devices, in another order, keeping other things."""
    switches = [recomputes] * plan.stages if isinstance(recomputes, bool) else recomputes
    settings = tuple(
        StageSettings(recomputes=switch, precision="32.32", compiles=False, offloads=False)
        for switch in switches
    )
    return replace(
        plan,
        schedule_name=schedule,
        device_of=device_of or tuple(range(plan.stages)),
        settings=settings,
    )
