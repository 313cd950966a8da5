"""One process's part of a `fit`: builds the training program of a Keras model and runs blocks of updates."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.assembly.cut_check import CutReport, compare_cut
from drivetrain.assembly.cut_trial import kept_generators
from drivetrain.assembly.prepared_model import PreparedModel, ProgramInputs, prepare_for_training
from drivetrain.assembly.update_passes import build_gradient_sum, build_update_passes
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.devices.device import Device
from drivetrain.keras_fit.batches import Batch, FitBatches, FitFeed, Samples, order_of
from drivetrain.keras_fit.flat_optimiser import FlatOptimiser, build_flat_optimiser
from drivetrain.keras_fit.loss import KerasTask, LossSpec
from drivetrain.keras_fit.mover import MOST_UPDATES, KerasMover, Penalty, RingRecords
from drivetrain.keras_fit.optimiser import OptimiserSpec
from drivetrain.keras_fit.settings import Layout
from drivetrain.layers.draws.rehearsal import find_draws
from drivetrain.layers.moving_state import Homes
from drivetrain.models.memory_format import choose_memory_format
from drivetrain.models.own_model import name_of_given
from drivetrain.optim.learning_rate import LearningRate, constant
from drivetrain.passes.model_step import LossHead
from drivetrain.pipeline.cutting.stage_plan import StagePlan, plan_stages
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.capture_choice import capture_updates
from drivetrain.program.gradient_rules import GradientRules
from drivetrain.program.rank_sums import RankSums
from drivetrain.program.stop_votes import StopVotes
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup, split_ranks
from drivetrain.recipe.layout import devices_per_replica
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.train import set_up_device

__all__ = ["Block", "FitPlan", "FitSession", "State", "Trained"]

_SCORE = "score"


class State(NamedTuple):
    """Weights and optimiser slots by the names of the module's weights, and slots that are single numbers."""

    weights: Mapping[str, Tensor]
    slots: Mapping[str, Mapping[str, Tensor]]
    scalars: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPlan:
    """What every process needs to build its part of the program."""

    module: nn.Module
    names: frozenset[str]
    """The weights that belong to variables of Keras."""
    layout: Layout
    batch: int
    input_shape: tuple[int, int, int]
    channels_last: bool
    label_shape: tuple[int, ...]
    loss: LossSpec
    optimiser: OptimiserSpec
    penalties: tuple[Penalty, ...]
    seed: int
    device: str

    def recipe(self) -> Recipe:
        """The recipe whose options the program is built by."""
        layout = self.layout
        options: dict[str, Any] = {
            "model": name_of_given(self.module),
            "replicas": layout.replicas,
            "micro_batch_size": self.batch // layout.micro_batches,
            "gradient_accumulation_count": layout.accumulation,
            "precision": "32.32",
            "compile": "off",
            "seed": self.seed,
            "device": self.device,
        }
        if layout.stages > 1:
            options |= {"stages": layout.stages, "pipeline_schedule": layout.schedule}
        return resolve_recipe(overrides=options).recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Updates that run at once: their batches and learning rates; `keeps` asks for the model's outputs.

    `iterations` are the steps that the optimizer has made before.
    """

    first: int
    iterations: int
    batches: Sequence[Batch]
    rates: Sequence[float]
    keeps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a block of updates gave: loss and penalty of each, and this process's outputs by their places."""

    losses: NDArray[np.float64]
    penalties: NDArray[np.float64]
    places: NDArray[np.int64] | None = None
    outputs: Tensor | None = None


@dataclass(slots=True)
class FitSession:
    """The program of one rank, and what the rest of `fit` asks of it."""

    plan: FitPlan
    group: ReplicaGroup = ALONE
    warnings: tuple[str, ...] = ()
    program: TrainingProgram = field(init=False)
    device: Device = field(init=False)
    _feed: FitFeed = field(init=False)
    _task: KerasTask = field(init=False)
    _optimiser: FlatOptimiser = field(init=False)
    _open: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        recipe = self.plan.recipe()
        try:
            self.device = self._open.enter_context(set_up_device(recipe, self.group))
            with kept_generators(self.device):
                self._build(recipe)
        except BaseException:
            self._open.close()
            raise

    def hold(self, arrays: Samples | None) -> None:
        """Takes the arrays of the training data."""
        self._feed.hold(arrays, free_bytes=self.device.free_memory_bytes)

    def train(self, block: Block) -> Trained:
        """Runs the updates of a block."""
        count, first = len(block.batches), block.first
        self._feed.load(first, block.batches)
        self._optimiser.count_from(block.iterations, update=first)
        moves = self._task.keep(count * self.plan.batch if block.keeps else 0)
        if moves and self.program.capture is not None:
            self.program.capture.forget()
        mover = self.program.mover
        assert isinstance(mover, KerasMover)
        ring = torch.arange(first, first + count) % MOST_UPDATES
        mover.rates[ring.to(mover.rates.device)] = torch.tensor(block.rates).to(mover.rates)
        with kept_generators(self.device):
            self.program.execute(first, first + count, goes_on=lambda _: True)
        records = self.program.records
        return Trained(
            losses=records.columns["loss"].cpu().numpy()[ring.numpy()],
            penalties=records.columns["penalty"].cpu().numpy()[ring.numpy()],
            **(self._kept(first, count) if block.keeps else {}),
        )

    @property
    def is_counted(self) -> bool:
        """Whether this rank is of the first replica: the others have the same weights."""
        return self.program.groups.replicas.rank == 0

    def pull(self) -> State:
        """Weights and slots of this process; views, so that they are what the program has."""
        state = self.program.model.state_dict()
        stages = self.program.stages
        own = self.plan.names if stages is None else self.plan.names & stages.state_names
        parameters, optimiser = self.program.parameters, self._optimiser
        return State(
            weights={name: state[name] for name in own},
            slots={
                slot: dict(parameters.named_views(flat))
                for slot, flat in optimiser.states.items()
                if len(flat)
            },
            scalars=optimiser.scalars,
        )

    @torch.no_grad()
    def push(self, state: State) -> None:
        """Takes values that were changed outside; names of other ranks' weights are passed over."""
        own = self.pull()
        pairs = [(own.weights, state.weights), (own.scalars, state.scalars)]
        pairs += [(own.slots.get(slot, {}), values) for slot, values in state.slots.items()]
        for mine, given in pairs:
            for name, value in given.items():
                if name in mine:
                    mine[name].copy_(value)

    def close(self) -> None:
        """Frees what the program holds."""
        if self.program.capture is not None:
            self.program.capture.release()
        self._feed.close()
        self._open.close()

    def _kept(self, first: int, count: int) -> dict[str, Any]:
        """The outputs of this replica's samples; none where another rank has the last stage."""
        if self._task.kept is None:
            return {}
        batch = self.plan.batch
        places = np.concatenate(
            [self._feed.own_places(first + index) + index * batch for index in range(count)]
        )
        return {"places": places, "outputs": self._task.kept[torch.from_numpy(places)].cpu()}

    def _build(self, recipe: Recipe) -> None:
        plan, device = self.plan, self.device
        groups = split_ranks(self.group, devices_per_replica=devices_per_replica(recipe))
        shape = plan.input_shape
        choose_memory_format(recipe, plan.module, image_shape=shape)
        stage_plan = self._stage_plan(recipe)
        self._feed = FitFeed(
            batch=plan.batch,
            micro=recipe.micro_batch_size,
            replica=groups.replicas.rank,
            replicas=groups.replicas.size,
            device=device.torch_device,
            channels_last=plan.channels_last,
            pads=groups.devices.size > 1,
        )
        self._task = KerasTask(plan.loss, label_shape=plan.label_shape, device=device.torch_device)
        inputs = ProgramInputs(
            plan=plan_training(recipe, samples=plan.batch),
            feed=self._feed,
            order=order_of(plan.batch),
            device=device,
            spec=_spec_of(shape),
            image_shape=shape,
            groups=groups,
            stage_plan=stage_plan,
            draw_facts=find_draws(recipe, plan.module, image_shape=shape),
        )
        self._compare_stages(recipe, inputs)
        self._build_program(recipe, prepare_for_training(recipe, plan.module, inputs), inputs)

    def _compare_stages(self, recipe: Recipe, inputs: ProgramInputs) -> None:
        """Compares a model in stages with the whole model on rank 0; all ranks refuse it together."""
        if inputs.stage_plan is None:
            return
        own = None
        if self.group.is_first:
            shape = (recipe.micro_batch_size, *self.plan.input_shape)
            images = torch.rand(shape, generator=torch.Generator().manual_seed(0))
            own = compare_cut(recipe, self.plan.module, inputs=inputs, images=images)
            self.device.forget_peak_memory()
        report: CutReport = self.group.from_first(own)
        if report.refusal is not None:
            raise BadInputError(report.refusal)
        self.warnings = report.warnings

    def _stage_plan(self, recipe: Recipe) -> StagePlan | None:
        plan = self.plan
        return plan_stages(
            recipe,
            plan.module,
            image_shape=plan.input_shape,
            micro=recipe.micro_batch_size,
            accumulation=plan.layout.accumulation,
            device=self.device.torch_device,
            choose=lambda measure: self.group.from_first(measure() if self.group.is_first else None),
        )

    def _build_program(self, recipe: Recipe, prepared: PreparedModel, inputs: ProgramInputs) -> None:
        batches = FitBatches(
            feed=self._feed,
            order=inputs.order,
            micro=recipe.micro_batch_size,
            replica=inputs.groups.replicas.rank,
            replicas=inputs.groups.replicas.size,
        )
        mover = self._mover(prepared, inputs)
        gradient_sum = build_gradient_sum(recipe, prepared, inputs)
        built = build_update_passes(
            recipe,
            prepared,
            inputs,
            head=LossHead(task=self._task),
            batches=batches,
            gradient_sum=gradient_sum,
        )
        self.program = TrainingProgram(
            model=prepared.model,
            passes=built.passes,
            forward=built.forward,
            stages=prepared.stages,
            batches=batches,
            precision=prepared.precision,
            batch_norms=prepared.batch_norms,
            context=prepared.context,
            draws=prepared.draws,
            task=self._task,
            mover=mover,
            rank_sums=RankSums(
                gradient_sum=gradient_sum,
                stop_votes=StopVotes(inputs.device),
                batch_norms=prepared.batch_norms,
                mover=mover,
                groups=inputs.groups,
            ),
            records=RingRecords(
                MOST_UPDATES,
                score=_SCORE,
                device=self.device.torch_device,
                dtype=self.device.wide_dtype,
                others=("penalty",),
            ),
            device=inputs.device,
            homes=Homes(prepared.model),
        )
        capture_updates(self.program, recipe)

    def _mover(self, prepared: PreparedModel, inputs: ProgramInputs) -> KerasMover:
        spec = self.plan.optimiser
        self._optimiser = build_flat_optimiser(spec, prepared.parameters.values)
        return KerasMover(
            parameters=prepared.parameters,
            context=prepared.context,
            device=inputs.device,
            optimiser=self._optimiser,
            learning_rate=LearningRate(curve=constant(0.0), peak=0.0, peak_origin="the optimizer of Keras"),
            rules=GradientRules(),
            parts=inputs.groups.devices,
            penalties=self.plan.penalties,
            clipnorm=spec.clipnorm,
            global_clipnorm=spec.global_clipnorm,
        )


def _spec_of(shape: tuple[int, int, int]) -> DataSpec:
    channels, height, width = shape
    return DataSpec(
        channels=channels, height=height, width=width, num_classes=1, class_names=("",), image_dtype="float32"
    )
