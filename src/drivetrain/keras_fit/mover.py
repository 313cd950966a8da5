"""The last part of an update of a Keras model: penalties of weights, clipping and its optimiser."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.leaf import WeightLink
from drivetrain.models.from_keras.package import import_keras
from drivetrain.program.move_weights import WeightMover
from drivetrain.program.records import UpdateRecords

__all__ = ["MOST_UPDATES", "KerasMover", "Penalty", "RingRecords", "penalties_of"]

# Of a block of updates that is run at once; a longer execution is several blocks.
MOST_UPDATES = 4096


@dataclass(frozen=True, slots=True)
class Penalty:
    """The regularizer of one weight: `l1` times its magnitudes plus `l2` times its squares."""

    name: str
    l1: float
    l2: float


def penalties_of(links: Sequence[WeightLink]) -> tuple[Penalty, ...]:
    """The penalties of a model's weights; refuses others, and constraints."""
    found = []
    for link in links:
        variable = link.variable
        constraint = getattr(variable, "constraint", None)
        if constraint is not None and variable.trainable:
            raise BadInputError(
                f"The weight {variable.path} has a constraint ({type(constraint).__name__}), which is not "
                "applied inside the scope; build the layer without it."
            )
        regularizer = getattr(variable, "regularizer", None)
        if regularizer is not None and variable.trainable:
            found.append(_penalty(link.name, variable, regularizer))
    return tuple(found)


def _penalty(name: str, variable: Any, regularizer: Any) -> Penalty:
    known = import_keras().regularizers
    if type(regularizer) not in (known.L1, known.L2, known.L1L2):
        raise BadInputError(
            f"The weight {variable.path} has a regularizer ({type(regularizer).__name__}) that is not known "
            "inside the scope; L1, L2 and L1L2 are."
        )
    return Penalty(
        name, float(getattr(regularizer, "l1", 0.0) or 0.0), float(getattr(regularizer, "l2", 0.0) or 0.0)
    )


class RingRecords(UpdateRecords):
    """The records of the newest updates: a training may have any number."""

    def write(self, update: Tensor, values: Any) -> None:
        super().write(update % MOST_UPDATES, values)


@dataclass(kw_only=True)
class KerasMover(WeightMover):
    """Moves weights as Keras does; the learning rate of each update is written by the host beforehand."""

    penalties: tuple[Penalty, ...] = ()
    clipnorm: float | None = None
    global_clipnorm: float | None = None
    rates: Tensor = field(init=False)
    penalty: Tensor = field(init=False)

    def __post_init__(self) -> None:
        WeightMover.__post_init__(self)
        device, wide = self.device.torch_device, self.device.wide_dtype
        self.rates = torch.zeros(MOST_UPDATES, dtype=wide, device=device)
        self.penalty = torch.zeros((), dtype=wide, device=device)
        own = {segment.name: segment for segment in self.parameters.segments}
        self._penalised = [(one, own[one.name]) for one in self.penalties if one.name in own]

    def rate(self, *, updates: int) -> Tensor:  # noqa: ARG002
        place = (self.context.update % MOST_UPDATES).view(1)
        return self.rates.index_select(0, place).view(())

    def scale_numbers(self) -> dict[str, Tensor]:
        """What is recorded beside the loss: the penalties of this rank's weights."""
        return {"penalty": self.penalty}

    @torch.no_grad()
    def _finished_gradient(self) -> Tensor:
        """The gradient with penalties, clipped; Keras adds penalties to the loss, so they are clipped too."""
        if self._penalised:
            self._add_penalties()
        gradients = self.parameters.gradients
        if self.clipnorm is not None:
            self._clip_each(self.clipnorm)
        if self.global_clipnorm is not None:
            self._clip_all(self.global_clipnorm)
        return gradients

    def _add_penalties(self) -> None:
        self.penalty.zero_()
        for one, segment in self._penalised:
            weight, gradient = segment.view(self.parameters.values), segment.view(self.parameters.gradients)
            if one.l1:
                self.penalty.add_(weight.abs().sum(), alpha=one.l1)
                gradient.add_(weight.sign(), alpha=one.l1)
            if one.l2:
                self.penalty.add_(weight.square().sum(), alpha=one.l2)
                gradient.add_(weight, alpha=2.0 * one.l2)

    def _clip_each(self, most: float) -> None:
        places = self.parameters.gradient_places
        if not places:
            return
        norms = torch.stack(torch._foreach_norm(places))
        torch._foreach_mul_(places, list((most / norms.clamp(min=most)).unbind()))

    def _clip_all(self, most: float) -> None:
        gradients = self.parameters.gradients
        square = torch.linalg.vector_norm(gradients).to(self.device.wide_dtype).square()
        self.parts.sum_(square)
        gradients.mul_((most / square.sqrt().clamp(min=most)).to(gradients.dtype))
