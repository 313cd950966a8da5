"""origins.json: where each value of a run's recipe comes from; values without an entry are defaults."""

from collections.abc import Mapping
from pathlib import Path

from drivetrain.core.files import read_json, write_json
from drivetrain.recipe.messages import DEFAULT, RUN_DIRECTORY

__all__ = ["kept_origins", "write_origins"]


def write_origins(path: Path, origins: Mapping[str, str]) -> None:
    """Writes the origins of a recipe; values that a continued run read from its directory keep theirs."""
    earlier = kept_origins(path)
    if earlier is not None:
        origins = {
            field: earlier.get(field, DEFAULT) if origin == RUN_DIRECTORY else origin
            for field, origin in origins.items()
        }
    write_json(path, {field: origin for field, origin in origins.items() if origin != DEFAULT})


def kept_origins(path: Path) -> dict[str, str] | None:
    """The origins of the values that are not defaults, by field; None for runs that did not keep them."""
    try:
        return {str(field): str(origin) for field, origin in read_json(path).items()}
    except (OSError, ValueError):
        return None
