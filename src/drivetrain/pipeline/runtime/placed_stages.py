"""From a plan of stages to their passes on this rank, once the model's layers are those of training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from drivetrain.devices.compilation import Compilable
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.layers.context import UpdateContext
from drivetrain.passes.forward import choose_precision
from drivetrain.passes.gradient_sum import GradientSum
from drivetrain.passes.loss_head import LossHead
from drivetrain.passes.update_batches import UpdateBatches
from drivetrain.pipeline.cutting.cut import Cut
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.channels import Channel, LocalChannel
from drivetrain.pipeline.runtime.executor import Executor
from drivetrain.pipeline.runtime.passes import PipelinePasses
from drivetrain.pipeline.runtime.rank_channel import RankChannel
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.pipeline.runtime.staged_forward import StagedForward, forward_in_turn
from drivetrain.pipeline.runtime.value_specs import find_specs
from drivetrain.ranks.rank_groups import RankGroups
from drivetrain.recipe.schema import Recipe

__all__ = ["PlacedStages", "build_forward_only", "build_passes", "build_runners", "place_stages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStages:
    """The stages of a model, those of this rank (`own`) on its device."""

    plan: StagePlan
    cut: Cut
    own: tuple[int, ...]

    @property
    def last(self) -> int:
        """The stage that computes the model's output."""
        return len(self.cut.stages) - 1

    @property
    def parameter_names(self) -> frozenset[str]:
        """The parameters that live here."""
        return frozenset(
            name for stage in self.own for name in self.cut.stages[stage].stage_facts.parameter_names
        )

    @property
    def module_names(self) -> frozenset[str]:
        """The modules that live here, those inside of layers too."""
        return frozenset(name for stage in self.own for name, _ in self.cut.stages[stage].named_modules())

    @property
    def state_names(self) -> frozenset[str]:
        """Everything that lives here, as the model's state names it."""
        return frozenset(name for stage in self.own for name in self.cut.stages[stage].state_dict())

    @property
    def buffer_names(self) -> frozenset[str]:
        """The buffers that live here, also those that the model does not save."""
        return frozenset(name for stage in self.own for name, _ in self.cut.stages[stage].named_buffers())

    @property
    def offloads(self) -> bool:
        """Whether the optimiser's state of this rank lies in host memory."""
        return any(self.plan.settings[stage].offloads for stage in self.own)

    def cut_again(self) -> "PlacedStages":
        """The same stages, with the layers that have taken the place of others since."""
        return replace(self, cut=self.plan.cut())


def place_stages(plan: StagePlan, *, groups: RankGroups, device: Device) -> PlacedStages:
    """Cuts the model, and brings this rank's stages to its device, channels last.

    A process that is alone plays all devices of its replica.
    """
    cut = plan.cut()
    own = plan.stages_on(groups.devices.rank) if groups.devices.size > 1 else tuple(range(plan.stages))
    for stage in own:
        cut.stages[stage].to(device=device.torch_device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return PlacedStages(plan=plan, cut=cut, own=own)


def build_runners(
    recipe: Recipe,
    stages: PlacedStages,
    *,
    model: nn.Module,
    device: Device,
    context: UpdateContext,
    batch_norms: BatchNormOwner,
    head: LossHead,
) -> dict[int, StageRunner]:
    """This rank's stages, ready to run."""
    runners = {}
    for stage in stages.own:
        settings, module = stages.plan.settings[stage], stages.cut.stages[stage]
        call: Callable[..., tuple[Tensor, ...]] = module
        if settings.compiles:
            call = Compilable(
                module, what=f"stage {stage}", around=batch_norms.reporting_from_nothing
            ).switched_on()
        runners[stage] = StageRunner(
            index=stage,
            module=module,
            call=call,
            precision=choose_precision(recipe, device, of_stage=settings.precision),
            context=context,
            batch_norms=batch_norms,
            device=device,
            seed=recipe.seed,
            images=stages.cut.input,
            output=stages.cut.output,
            prepare=_root_hooks(model),
            head=head if stage == stages.last else None,
            recomputes=settings.recomputes,
            defers_weights=stages.plan.schedule_name == "zero-bubble",
        )
    return runners


def build_passes(
    stages: PlacedStages,
    runners: Mapping[int, StageRunner],
    *,
    groups: RankGroups,
    device: Device,
    batches: UpdateBatches,
    gradient_sum: GradientSum,
    image_shape: tuple[int, int, int],
) -> PipelinePasses:
    """The passes of an update over this rank's stages; a collective of the replica's ranks."""
    channel: Channel = LocalChannel()
    if groups.devices.size > 1:
        images = torch.zeros(batches.micro, *image_shape, device=device.torch_device)
        specs = find_specs(
            stages.plan, runners, edges=stages.cut.edges, images=images, devices=groups.devices
        )
        channel = RankChannel(
            devices=groups.devices, device=device.torch_device, spec_of=lambda message: specs[message.value]
        )
    executor = Executor(
        runners=runners,
        edges=stages.cut.edges,
        channel=channel,
        on_stage_done=lambda stage: gradient_sum.complete(
            stages.cut.stages[stage].stage_facts.parameter_names
        ),
    )
    return PipelinePasses(
        executor=executor,
        last=runners.get(stages.last),
        batches=batches,
        edges=stages.cut.edges,
        schedule_of=stages.plan.schedule,
        device=device,
    )


def build_forward_only(
    stages: PlacedStages, runners: Mapping[int, StageRunner], *, groups: RankGroups, device: Device
) -> Callable[[Tensor], Tensor]:
    """The way of images through the stages, without training."""
    if groups.devices.size == 1:
        return forward_in_turn(runners, output=stages.cut.output)
    return StagedForward(
        plan=stages.plan,
        edges=stages.cut.edges,
        output=stages.cut.output,
        runners=runners,
        devices=groups.devices,
        device=device.torch_device,
    )


def _root_hooks(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """What hooks of the whole model do to its images, as nobody calls the whole model any more."""

    def prepare(images: Tensor) -> Tensor:
        for hook in model._forward_pre_hooks.values():
            changed = hook(model, (images,))
            if changed is not None:
                images = changed[0] if isinstance(changed, tuple) else changed
        return images

    return prepare
