"""A `fit` that runs: blocks of updates on the training program, and the state of Keras's objects in step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from drivetrain.core.errors import BadInputError
from drivetrain.keras_fit.batches import Batch, Samples
from drivetrain.keras_fit.data import FitData, Truth
from drivetrain.keras_fit.label_fit import check_labels
from drivetrain.keras_fit.logs import needs_outputs, update_metrics
from drivetrain.keras_fit.loss import loss_of
from drivetrain.keras_fit.lowering import check_lowered, lower_for_fit
from drivetrain.keras_fit.mover import MOST_UPDATES, penalties_of
from drivetrain.keras_fit.optimiser import optimiser_of, rate_at
from drivetrain.keras_fit.rank_sessions import RankProcesses, RankSessions
from drivetrain.keras_fit.session import Block, FitPlan, FitSession, State, Trained
from drivetrain.keras_fit.settings import Layout, micro_batch_of
from drivetrain.keras_fit.variables import Variables

__all__ = ["RunningFit", "open_fit"]

# Outputs of a block that are kept for metrics.
_MOST_OUTPUT_BYTES = 256 * 2**20
# float32 counts places of outputs up to here.
_MOST_PLACES = 2**24
_CHECKED_SAMPLES = 2


class Session(Protocol):
    """What a session of one process, and sessions of several, both offer."""

    plan: FitPlan

    def hold(self, arrays: Samples | None) -> None: ...
    def train(self, block: Block) -> Trained: ...
    def pull(self) -> State: ...
    def push(self, state: State) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class RunningFit:
    """The session of a `fit`, with the Keras model whose variables it trains."""

    model: Any
    session: Session
    variables: Variables
    pads: bool
    """Whether a short batch is filled up; batch norm would count what fills it."""
    update: int
    _newest: State = field(init=False)

    def __post_init__(self) -> None:
        self.session.push(self.variables.read())
        self._newest = self.session.pull()

    @property
    def most_updates(self) -> int:
        """The longest block of updates whose outputs can be kept."""
        if not needs_outputs(self.model):
            return MOST_UPDATES
        shape = tuple(self.model.output_shape)[1:]
        if None in shape:
            return 1
        numbers = max(1, int(prod(shape)))
        samples = min(_MOST_PLACES, _MOST_OUTPUT_BYTES // (4 * numbers))
        return max(1, min(MOST_UPDATES, samples // self.session.plan.batch))

    def run(self, batches: Sequence[tuple[Batch, Truth]]) -> None:
        """Runs updates and adds them to the metrics of the model."""
        most = self.most_updates
        for start in range(0, len(batches), most):
            self._run(batches[start : start + most])

    def _run(self, batches: Sequence[tuple[Batch, Truth]]) -> None:
        for batch, truth in batches:
            self._refuse_padding(len(batch))
            if batch.samples is not None:
                check_labels(self.model, truth.labels)
        optimiser = self.model.optimizer
        done = int(optimiser._iterations.value)
        block = Block(
            first=self.update,
            batches=[batch for batch, _ in batches],
            iterations=done,
            rates=[rate_at(optimiser, done + index) for index in range(len(batches))],
            keeps=needs_outputs(self.model),
        )
        trained = self.session.train(block)
        self.update += len(batches)
        optimiser._iterations.assign(done + len(batches))
        update_metrics(self.model, trained, [truth for _, truth in batches])

    def give(self) -> None:
        """Puts the trained weights and the state of the optimizer into Keras's variables."""
        self._newest = self.session.pull()
        self.variables.write(self._newest)

    def take(self) -> None:
        """Takes over what callbacks have changed in Keras's variables since `give`."""
        changes = self.variables.changed_since(self._newest)
        if changes is not None:
            self.session.push(changes)

    def _refuse_padding(self, samples: int) -> None:
        plan = self.session.plan
        micro = plan.batch // plan.layout.micro_batches
        if self.pads and samples % micro:
            raise BadInputError(
                f"A batch has {samples} samples, which do not fill micro-batches of {micro}; a model with "
                "batch normalisation in pipeline stages needs full ones: drop the last "
                f"{samples % micro} samples of the data."
            )


def open_fit(
    model: Any,
    data: FitData,
    *,
    layout: Layout,
    processes: RankProcesses,
    device: str,
    seed: int,
    update: int,
) -> RunningFit:
    """Builds the session of a compiled and built model; refuses what cannot be trained in the scope."""
    micro_batch_of(layout, data.batch)
    _require_own_steps_of_keras(model)
    if data.given is not None:
        check_labels(model, data.given.labels)
    lowered = lower_for_fit(model, sample_shape=data.sample)
    links = {link.name: link for link in lowered.links}
    plan = FitPlan(
        module=lowered.module,
        names=frozenset(links),
        layout=layout,
        batch=data.batch,
        input_shape=lowered.input_shape,
        channels_last=lowered.channels_last,
        label_shape=data.label,
        loss=loss_of(model, is_weighted=data.is_weighted),
        optimiser=optimiser_of(model),
        penalties=penalties_of(lowered.links),
        seed=seed,
        device=device,
    )
    variables = Variables(links, model.optimizer)
    check_lowered(model, lowered, _few_samples(model, data))
    has_norms = any(isinstance(module, _BatchNorm) for module in lowered.module.modules())
    session: Session = RankSessions(plan, processes) if layout.ranks > 1 else FitSession(plan)
    session.hold(data.arrays)
    return RunningFit(
        model=model,
        session=session,
        variables=variables,
        pads=layout.stages > 1 and has_norms,
        update=update,
    )


def _few_samples(model: Any, data: FitData) -> Tensor:
    """As many samples as a model that is built for one batch size takes, else two."""
    count = (model.inputs[0].shape[0] if getattr(model, "inputs", None) else None) or _CHECKED_SAMPLES
    if data.arrays is not None:
        return data.arrays.inputs[torch.arange(count) % len(data.arrays)]
    return torch.rand(count, *data.sample, generator=torch.Generator().manual_seed(0))


def _require_own_steps_of_keras(model: Any) -> None:
    import keras

    for name in ("train_step", "compute_loss"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise BadInputError(
                f"The Keras model {model.name} has a {name} of its own, which is not run inside the scope; "
                "train it outside of the scope, or move what it computes into a layer or the loss."
            )
