"""Makes every random draw of a model a function of its place in the model."""

from torch import nn

from drivetrain.devices.device import Device
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.facts import DrawFacts
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.layers.draws.places import DrawPlaces, install_places

__all__ = ["place_draws"]


def place_draws(
    model: nn.Module,
    *,
    seed: int,
    context: UpdateContext,
    device: Device,
    facts: DrawFacts,
) -> DrawPlaces:
    """Installs the places of all draws, which a rehearsal has found."""
    context.sample_dims = dict(facts.sample_dims)
    install_counter_dropout(model, seed=seed, context=context)
    draws = DrawPlaces(model=model, seed=seed, context=context, device=device, facts=facts)
    install_places(model, draws)
    return draws
