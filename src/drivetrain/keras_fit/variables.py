"""Exchanges weights and optimiser state between the variables of a Keras model and its training program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.keras_fit.optimiser import scalars_of, slots_of
from drivetrain.keras_fit.session import State
from drivetrain.models.from_keras.leaf import WeightLink

__all__ = ["Variables"]


@dataclass(slots=True)
class Variables:
    """The variables of a model and of its optimizer, by the names of the module's weights."""

    links: Mapping[str, WeightLink]
    optimiser: Any
    _places: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._places = {id(variable): i for i, variable in enumerate(self.optimiser._trainable_variables)}
        for link in self.links.values():
            if link.variable.trainable and id(link.variable) not in self._places:
                raise BadInputError(
                    f"The optimizer does not know the weight {link.variable.path}, which has become "
                    "trainable since model.compile(); compile the model again."
                )

    def read(self) -> State:
        """Copies of the values that Keras has, as the program lays them out."""
        return State(
            weights={name: link.to_torch() for name, link in self.links.items()},
            slots={
                slot: {name: like(link).to_torch() for name, link in self._trained().items()}
                for slot, like in self._slots().items()
            },
            scalars={
                name: variable.value.detach().cpu().clone()
                for name, variable in scalars_of(self.optimiser).items()
            },
        )

    @torch.no_grad()
    def write(self, state: State) -> None:
        """Puts the program's values into Keras's variables."""
        for name, value in state.weights.items():
            link = self.links[name]
            link.variable.assign(link.to_keras(value))
        slots = self._slots()
        for slot, values in state.slots.items():
            for name, value in values.items():
                link = slots[slot](self.links[name])
                link.variable.assign(link.to_keras(value))
        scalars = scalars_of(self.optimiser)
        for name, value in state.scalars.items():
            scalars[name].assign(value)

    def changed_since(self, state: State) -> State | None:
        """What differs in Keras's variables from the program's values; None if nothing does."""
        now = self.read()
        changes = State(
            weights=_differing(now.weights, state.weights),
            slots={slot: _differing(values, state.slots.get(slot, {})) for slot, values in now.slots.items()},
            scalars=_differing(now.scalars, state.scalars),
        )
        differs = changes.weights or changes.scalars or any(changes.slots.values())
        return changes if differs else None

    def _trained(self) -> dict[str, WeightLink]:
        return {name: link for name, link in self.links.items() if link.variable.trainable}

    def _slots(self) -> dict[str, Callable[[WeightLink], WeightLink]]:
        """For each slot, the link of a weight's slot: it lies as the weight itself does."""
        count = len(self.optimiser._trainable_variables)

        def of(variables: list[Any]) -> Callable[[WeightLink], WeightLink]:
            return lambda link: WeightLink(
                name=link.name,
                variable=variables[self._places[id(link.variable)]],
                axes=link.axes,
                viewed=link.viewed,
            )

        return {slot: of(variables) for slot, variables in slots_of(self.optimiser, count=count).items()}


def _differing(now: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: value
        for name, value in now.items()
        if name in before and not torch.equal(value, before[name].detach().cpu())
    }
