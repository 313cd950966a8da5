"""Keras's optimisers against those of the recipe that `compile` becomes; what has no counterpart."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.fitting.optimiser_options import optimiser_options
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.optimiser import build_optimiser
from drivetrain.program.gradient_rules import clip_norm_
from drivetrain.ranks.replica_group import ALONE
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from tests.keras_models import real_keras

OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda o: o.SGD(0.05),
    "sgd by default": lambda o: o.get("sgd"),
    "momentum": lambda o: o.SGD(0.05, momentum=0.9),
    "nesterov": lambda o: o.SGD(0.05, momentum=0.9, nesterov=True),
    "sgd with decay": lambda o: o.SGD(0.05, weight_decay=0.01),
    "adam": lambda o: o.Adam(0.01),
    "adam with a large epsilon": lambda o: o.Adam(0.01, beta_1=0.8, beta_2=0.9, epsilon=0.1),
    "adam with decay": lambda o: o.Adam(0.01, weight_decay=0.01),
    "adamw": lambda o: o.AdamW(0.01),
    "rmsprop": lambda o: o.RMSprop(0.01),
    "rmsprop with all": lambda o: o.RMSprop(0.01, rho=0.8, momentum=0.5, centered=True, epsilon=0.01),
    "clipped": lambda o: o.SGD(0.05, global_clipnorm=0.1),
}
UPDATES = 4


def gradients_of(update: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(update).standard_normal((3, 5)).astype(np.float32)


def stepped_by_keras(keras: Any, optimizer: Any) -> torch.Tensor:
    variable = keras.Variable(np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5))
    for update in range(UPDATES):
        optimizer.apply([keras.ops.convert_to_tensor(gradients_of(update))], [variable])
    value: torch.Tensor = variable.value.detach()
    return value


def stepped_here(recipe: Recipe) -> torch.Tensor:
    weight = nn.Parameter(torch.linspace(-1, 1, 15).reshape(3, 5))
    model = nn.Module()
    model.weight = weight
    parameters = FlatParameters(model)
    optimiser = build_optimiser(recipe, values=parameters.values, segments=parameters.segments)
    for update in range(UPDATES):
        parameters.gradient_places[0].copy_(torch.from_numpy(gradients_of(update)))
        if recipe.clip_norm is not None:
            clip_norm_(parameters.gradients, longest=recipe.clip_norm, parts=ALONE)
        optimiser.step(
            values=parameters.values,
            gradients=parameters.gradients,
            rate=torch.tensor(recipe.learning_rate, dtype=torch.float64),
            update=torch.tensor(update),
        )
    return weight.detach()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_updates_are_those_of_keras(name: str) -> None:
    keras = real_keras()
    optimizer = OPTIMISERS[name](keras.optimizers)
    recipe = resolve_recipe(overrides=optimiser_options(optimizer)).recipe
    theirs = stepped_by_keras(keras, optimizer)
    # Keras raises the decays of Adam to their powers in float32.
    torch.testing.assert_close(stepped_here(recipe), theirs, rtol=2e-6, atol=1e-6)


def test_torchs_form_of_adam_would_differ() -> None:
    """The negative control: epsilon after the correction, as torch has it."""
    keras = real_keras()
    optimizer = OPTIMISERS["adam with a large epsilon"](keras.optimizers)
    options = optimiser_options(optimizer)
    options["optimizer_params"] = {**options["optimizer_params"], "bare_epsilon": False}
    recipe = resolve_recipe(overrides=options).recipe
    theirs = stepped_by_keras(keras, optimizer)
    assert not torch.allclose(stepped_here(recipe), theirs, rtol=1e-3, atol=1e-4)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "the optimiser Nadam, which is not available here": lambda o: o.Nadam(),
    "Adam(amsgrad=True), which has no counterpart": lambda o: o.Adam(amsgrad=True),
    "SGD(clipvalue=0.5)": lambda o: o.SGD(clipvalue=0.5),
    "the schedule ExponentialDecay": lambda o: o.SGD(o.schedules.ExponentialDecay(0.1, 10, 0.9)),
}


@pytest.mark.parametrize("part", REFUSED)
def test_what_has_no_counterpart_is_named(part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        optimiser_options(REFUSED[part](real_keras().optimizers))
    assert part in str(caught.value)
