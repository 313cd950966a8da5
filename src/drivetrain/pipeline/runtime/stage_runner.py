"""Runs the forward and backward passes of one stage, and holds micro-batches between them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from drivetrain.core.randomness import stream_key
from drivetrain.data.feeds.feed import MicroBatch
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.places import DrawPlaces, use_keys
from drivetrain.layers.moving_state import StageState
from drivetrain.passes.forward import Precision
from drivetrain.passes.model_step import LossHead
from drivetrain.pipeline.cutting.cut import StageModule
from drivetrain.pipeline.graph.trace import check_image_shape
from drivetrain.pipeline.runtime.deferred_weights import WeightQueue, deferring
from drivetrain.pipeline.runtime.root_hooks import RootHooks

__all__ = ["Pass", "StageRunner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A micro-batch: its place in the training, and the weight (`share`) of one sample in the mean loss.

    `labelled` has the labels for the stage that computes the loss, but no images. `images` are those for the
    hooks of the whole model, if it has such hooks.
    """

    update: int
    number: int
    share: float
    slots: Tensor
    labelled: MicroBatch
    images: Tensor | None = None


@dataclass(slots=True)
class _Held:
    """What a stage keeps of a micro-batch between its passes.

    Of an output only the edge of its autograd graph is kept, so that its memory can be freed once it was
    sent.
    """

    work: Pass
    inputs: dict[str, Tensor]
    roots: dict[str, GradientEdge] = field(default_factory=dict)
    loss: Tensor | None = None


@dataclass(slots=True, kw_only=True)
class StageRunner:
    """Runs a stage; `call` is its module, compiled or not. The stage that computes `output` has a `head`.

    `evaluation` has the steps of evaluation mode, if the model's code takes others there than in training.
    With `recomputes` only the inputs are held, and the forward pass runs again before the backward pass. With
    `defers_weights`, `backward` leaves weight gradients to `finish_weights`. Inputs named in
    `without_gradient` get no gradient.
    """

    index: int
    module: StageModule
    call: Callable[..., tuple[Tensor, ...]]
    precision: Precision
    context: UpdateContext
    draws: DrawPlaces
    batch_norms: BatchNormOwner
    state: StageState
    device: Device
    seed: int
    images: str
    output: str
    hooks: RootHooks
    image_shape: tuple[int, ...] | None = None
    evaluation: StageModule | None = None
    head: LossHead | None = None
    without_gradient: frozenset[str] = frozenset()
    recomputes: bool = False
    defers_weights: bool = False
    losses: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    _held: dict[int, _Held] = field(default_factory=dict)
    _queues: dict[int, WeightQueue] = field(default_factory=dict)
    _uses_before: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._uses_before = {
            key: count
            for path, count in self.module.stage_facts.calls_before.items()
            for key in use_keys(self.module.get_submodule(path), name=path, seed=self.seed)
        }

    @property
    def live(self) -> int:
        """The number of micro-batches held now."""
        return len(self._held.keys() | self._queues.keys())

    @property
    def reads_images(self) -> bool:
        """Whether the stage needs the images, for itself or for hooks of the whole model."""
        modules = (self.module, *([] if self.evaluation is None else [self.evaluation]))
        return self.runs_hooks or any(self.images in module.stage_facts.inputs for module in modules)

    @property
    def runs_hooks(self) -> bool:
        """Whether hooks of the whole model follow this stage, the last one."""
        return self.head is not None and self.hooks.follow

    def prepare(self, images: Tensor) -> Tensor:
        """The images after the forward pre-hooks of the whole model; call it once per batch."""
        with self.precision.autocast():
            prepared = self.hooks.before(images)
        if self.image_shape is not None:
            check_image_shape(prepared, self.image_shape)
        return prepared

    def forward(self, micro_batch: int, work: Pass, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Runs the stage and returns its detached outputs; inputs are held until the backward pass."""
        leaves = {name: self._leaf(name, value) for name, value in inputs.items()}
        if self._held and not self.recomputes:
            self.state.branch()
        held = self._held[micro_batch] = _Held(work, leaves)
        with self._first_pass(micro_batch):
            outputs, loss_and_score = self._run(micro_batch, held)
        if loss_and_score is not None:
            self.losses[micro_batch] = loss_and_score
        return {name: value.detach() for name, value in outputs.items()}

    def backward(self, micro_batch: int, gradients: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        """Runs the backward pass and returns the gradients of the inputs.

        `gradients` has, per output, the gradients from all its readers, which are added in the order given.
        """
        held = self._held.pop(micro_batch)
        if not self.recomputes:
            return self._backward(held, gradients)
        with self.state.rewound(micro_batch):
            with self._second_pass(micro_batch):
                self._run(micro_batch, held)
            return self._backward(held, gradients)

    def _backward(self, held: _Held, gradients: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        roots: list[GradientEdge] = []
        ends: list[Tensor] = []
        for name, root in held.roots.items():
            if gradients.get(name):
                roots.append(root)
                ends.append(_sum(gradients[name]))
        if held.loss is not None:
            roots.append(get_gradient_edge(held.loss))
            ends.append(torch.ones_like(held.loss))
        if roots:
            torch.autograd.backward(roots, ends)
        return {name: _gradient(leaf) for name, leaf in held.inputs.items() if leaf.requires_grad}

    def evaluate(
        self, images: Tensor, values: Mapping[str, Tensor], *, as_trained: bool = False
    ) -> dict[str, Tensor]:
        """A forward pass without gradients; eval mode switches off dropout and updates of statistics.

        `images` are those that `prepare` returned, if the stage reads them. `as_trained` takes the steps of
        training, whose values have the names and shapes of training.
        """
        module = self.module if as_trained or self.evaluation is None else self.evaluation
        given = {**values, self.images: images}
        with torch.no_grad(), self.precision.autocast():
            results = module(*(given[name] for name in module.stage_facts.inputs))
            outputs = dict(zip(module.stage_facts.outputs, results, strict=True))
            if self.runs_hooks:
                # The last stage has one output, whose name may be another one in evaluation.
                (output,) = module.stage_facts.outputs
                outputs[output] = self.hooks.after(images, outputs[output])
        return outputs

    def finish_weights(self, micro_batch: int) -> None:
        """Computes the weight gradients that `backward` deferred."""
        self._queues.pop(micro_batch).run()

    def _run(self, micro_batch: int, held: _Held) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor] | None]:
        """Runs the stage once and keeps the roots of its autograd graph, if there is one."""
        work = held.work
        place = (work.update, work.number, *([self.index] if self.index else []))
        # Seeded per micro-batch and stage, so that a recomputed pass draws the same numbers.
        self.device.seed_generators(stream_key(self.seed, "model", *place))
        key = stream_key(self.seed, "model", work.update, work.number)
        self.context.begin_forward(work.slots, generator_key=key)
        self.context.uses.update(self._uses_before)
        with self.draws.running(recomputing=self._recomputing), self._deferring(micro_batch):
            with self.precision.autocast():
                values = self.call(*(held.inputs[name] for name in self.module.stage_facts.inputs))
                outputs = dict(zip(self.module.stage_facts.outputs, values, strict=True))
                if self.runs_hooks:
                    assert work.images is not None
                    outputs[self.output] = self.hooks.after(work.images, outputs[self.output])
            loss_and_score = None
            if self.head is not None:
                parts = self.head(outputs.pop(self.output), work.labelled, share=work.share)
                loss_and_score = (parts.loss, parts.score)
                held.loss = parts.scaled if parts.scaled.requires_grad else None
        # Under no_grad a view of an input still has requires_grad set, but no graph to take an edge of.
        if torch.is_grad_enabled():
            held.roots = {
                name: get_gradient_edge(value) for name, value in outputs.items() if value.requires_grad
            }
        return outputs, loss_and_score

    def _recomputing(self) -> AbstractContextManager[None]:
        """Around what torch.utils.checkpoint runs again inside the model."""
        return self.batch_norms.recomputing()

    @contextmanager
    def _first_pass(self, micro_batch: int) -> Iterator[None]:
        if not self.recomputes:
            yield
            return
        self.state.begin(micro_batch)
        with torch.no_grad(), self.batch_norms.to_be_recomputed((self.index, micro_batch)):
            yield

    def _second_pass(self, micro_batch: int) -> AbstractContextManager[None]:
        return self.batch_norms.recomputing((self.index, micro_batch))

    def _deferring(self, micro_batch: int) -> AbstractContextManager[object]:
        if not self.defers_weights or not torch.is_grad_enabled():
            return nullcontext()
        self._queues[micro_batch] = WeightQueue()
        return deferring(self._queues[micro_batch])

    def _leaf(self, name: str, value: Tensor) -> Tensor:
        if name == self.images or name in self.without_gradient:
            return value
        has_gradient = value.is_floating_point() or value.is_complex()
        return value.detach().requires_grad_() if has_gradient else value


def _sum(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
