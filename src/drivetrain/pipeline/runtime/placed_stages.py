"""Places the planned stages on this rank and builds the passes that run them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from drivetrain.devices.compilation import Compilable
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.places import DrawPlaces
from drivetrain.layers.moving_state import StageState
from drivetrain.models.memory_format import memory_format_of
from drivetrain.passes.forward import choose_precision
from drivetrain.passes.gradient_sum import GradientSum
from drivetrain.passes.model_step import LossHead
from drivetrain.passes.update_batches import UpdateBatches
from drivetrain.passes.whole_model import added_up
from drivetrain.pipeline.cutting.cut import Cut
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.channels import Channel, LocalChannel, RankChannel
from drivetrain.pipeline.runtime.executor import Executor, UpdateWork
from drivetrain.pipeline.runtime.root_hooks import RootHooks
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.pipeline.runtime.staged_forward import StagedForward, find_specs, forward_in_turn
from drivetrain.ranks.replica_group import RankGroups
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.observer import Observer
from drivetrain.schedules.traffic import Traffic, messages

__all__ = [
    "PipelinePasses",
    "PlacedStages",
    "build_forward_only",
    "build_passes",
    "build_runners",
    "place_stages",
]


@dataclass(slots=True, kw_only=True)
class PipelinePasses:
    """Runs the micro-batches of an update through the stages, in the order of a schedule.

    `schedule_of` builds the schedule for a number of micro-batches: the last update of a padded epoch may
    have fewer. If another rank has the last stage, loss and score are 0 here.
    """

    executor: Executor
    last: StageRunner | None
    batches: UpdateBatches
    edges: tuple[Edge, ...]
    schedule_of: Callable[[int], Schedule]
    device: Device
    _tables: dict[int, tuple[Schedule, Traffic]] = field(default_factory=dict)

    @property
    def adds_to_zeros(self) -> bool:
        return True

    @property
    def wait_seconds(self) -> float | None:
        """Seconds waited for messages; None on an accelerator, whose stream waits without the host."""
        return self.executor.channel.wait_seconds if self.device.is_cpu else None

    def watch(self, observer: Observer | None) -> None:
        self.executor.observer = observer

    def run(self, update: int) -> tuple[Tensor, Tensor]:
        micro_batches = len(self.batches.numbers(update))
        if micro_batches:
            schedule, traffic = self._table(micro_batches)
            work = UpdateWork(
                update=update,
                share=self.batches.share(update),
                schedule=schedule,
                traffic=traffic,
                batches=self.batches.of(update),
            )
            self.executor.run(work)
        return added_up(self._losses(), device=self.device)

    def _table(self, micro_batches: int) -> tuple[Schedule, Traffic]:
        if micro_batches not in self._tables:
            schedule = self.schedule_of(micro_batches)
            self._tables[micro_batches] = (schedule, messages(schedule, self.edges))
        return self._tables[micro_batches]

    def _losses(self) -> list[tuple[Tensor, Tensor]]:
        if self.last is None:
            return []
        losses = [self.last.losses[micro_batch] for micro_batch in sorted(self.last.losses)]
        self.last.losses.clear()
        return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStages:
    """The stages of a model; those of this rank (`own`) are on its device."""

    plan: StagePlan
    cut: Cut
    own: tuple[int, ...]

    @property
    def last(self) -> int:
        """The stage that computes the model's output."""
        return len(self.cut.stages) - 1

    @property
    def parameter_names(self) -> frozenset[str]:
        """The names of the parameters on this rank."""
        return frozenset(
            name for stage in self.own for name in self.cut.stages[stage].stage_facts.parameter_names
        )

    @property
    def module_names(self) -> frozenset[str]:
        """The names of all modules on this rank, nested ones included."""
        return frozenset(name for stage in self.own for name, _ in self.cut.stages[stage].named_modules())

    @property
    def state_names(self) -> frozenset[str]:
        """The keys of the model's state dict that are on this rank."""
        return frozenset(name for stage in self.own for name in self.cut.stages[stage].state_dict())

    @property
    def buffer_names(self) -> frozenset[str]:
        """The names of the buffers on this rank, non-persistent ones included."""
        return frozenset(name for stage in self.own for name, _ in self.cut.stages[stage].named_buffers())

    @property
    def offloads(self) -> bool:
        """Whether the optimiser state of this rank is in host memory."""
        return any(self.plan.settings[stage].offloads for stage in self.own)

    def cut_again(self) -> "PlacedStages":
        """The same stages, built again after layers of the model were replaced."""
        return replace(self, cut=self.plan.cut())


def place_stages(plan: StagePlan, *, groups: RankGroups, device: Device) -> PlacedStages:
    """Splits the model and moves the stages of this rank to its device, in the model's memory format.

    A single process runs all devices of its replica.
    """
    cut = plan.cut()
    memory_format = memory_format_of(plan.traced.model)
    own = plan.stages_on(groups.devices.rank) if groups.devices.size > 1 else tuple(range(plan.stages))
    for stage in own:
        cut.stages[stage].to(device=device.torch_device).to(memory_format=memory_format)  # type: ignore[call-overload]
        _take_over_buffers(plan.traced.model, cut.stages[stage])
    return PlacedStages(plan=plan, cut=cut, own=own)


def _take_over_buffers(model: nn.Module, stage: nn.Module) -> None:
    """Gives the model the moved buffers that its own code reads; a stage holds them outside of modules."""
    for name, buffer in stage.named_buffers():
        path, _, attribute = name.rpartition(".")
        owner = model.get_submodule(path)
        if attribute in owner._buffers:
            owner._buffers[attribute] = buffer


def build_runners(
    recipe: Recipe,
    stages: PlacedStages,
    *,
    model: nn.Module,
    device: Device,
    context: UpdateContext,
    draws: DrawPlaces,
    batch_norms: BatchNormOwner,
    head: LossHead,
) -> dict[int, StageRunner]:
    """Builds the runners of the stages on this rank."""
    runners = {}
    hooks = RootHooks(model, is_spread=len(stages.own) < stages.plan.stages)
    evaluation = stages.cut.evaluation
    for stage in stages.own:
        settings, module = stages.plan.settings[stage], stages.cut.stages[stage]
        state = StageState(module, model=model)
        call: Callable[..., tuple[Tensor, ...]] = module
        if settings.compiles and not draws.facts.needs_places:
            call = Compilable(
                module, what=f"stage {stage}", around=batch_norms.reporting_from_nothing
            ).switched_on()
        runners[stage] = StageRunner(
            index=stage,
            module=module,
            call=call,
            precision=choose_precision(recipe, device, of_stage=settings.precision),
            context=context,
            draws=draws,
            batch_norms=batch_norms,
            state=state,
            device=device,
            seed=recipe.seed,
            images=stages.cut.input,
            output=stages.cut.output,
            hooks=hooks,
            image_shape=stages.plan.traced.image_shape,
            evaluation=evaluation.stages[stage] if evaluation is not None else None,
            head=head if stage == stages.last else None,
            without_gradient=stages.cut.without_gradient,
            recomputes=settings.recomputes or (stages.last > 0 and state.needs_recomputation),
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
    """Builds the passes of an update for this rank; a collective of the ranks of a replica."""
    channel: Channel = LocalChannel()
    if groups.devices.size > 1:
        images = torch.zeros(batches.micro, *image_shape, device=device.torch_device)
        # As feeds deliver them; the entrance of the model changes the layout if it needs another.
        images = images.contiguous(memory_format=torch.channels_last)
        specs = find_specs(
            stages.plan,
            runners,
            edges=stages.cut.edges,
            images=images,
            devices=groups.devices,
            as_trained=True,
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
    """A function from images to logits through all stages, without training."""
    cut = stages.cut.in_evaluation
    if groups.devices.size == 1:
        return forward_in_turn(runners, output=cut.output)
    return StagedForward(
        plan=stages.plan,
        edges=cut.edges,
        output=cut.output,
        runners=runners,
        devices=groups.devices,
        device=device.torch_device,
    )
