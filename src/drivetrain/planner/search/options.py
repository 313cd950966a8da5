"""A layout as ordinary options of a recipe."""

from collections.abc import Mapping
from typing import Any

from drivetrain.planner.search.layout import Layout
from drivetrain.recipe.fields import option_name
from drivetrain.recipe.schema import Recipe

__all__ = ["layout_fields", "option_line", "resets"]


def resets() -> dict[str, Any]:
    """The fields of a layout, as a recipe without one has them."""
    return {
        "stages": None,
        "pipeline_splits": (),
        "device_mapping": (),
        "pipeline_schedule": "1f1b",
        "stage_options": (),
        "recomputation": False,
        "optimizer_state_offloading": False,
        "optimise_for": None,
        "gradient_accumulation_count": None,
    }


def layout_fields(recipe: Recipe, layout: Layout, *, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields that differ from a recipe without a layout; `names` are the first layers of stages."""
    fields: dict[str, Any] = {"replicas": layout.replicas}
    if layout.micro != recipe.micro_batch_size:
        fields["micro_batch_size"] = layout.micro
    if layout.group != recipe.dbn_replica_group_size:
        fields["dbn_replica_group_size"] = layout.group
    # The option that the recipe uses already, as the two exclude each other.
    if recipe.global_batch_size is None:
        fields["gradient_accumulation_count"] = layout.accumulation
    else:
        fields["global_batch_size"] = layout.micro * layout.replicas * layout.accumulation
    if layout.devices_per_replica > 1:
        fields |= {"stages": layout.stages, "pipeline_splits": names}
        fields["pipeline_schedule"] = layout.schedule
        if layout.device_of != tuple(range(layout.stages)):
            fields["device_mapping"] = layout.device_of
    if all(layout.recomputes):
        fields["recomputation"] = True
    elif any(layout.recomputes):
        fields["stage_options"] = tuple(
            {"stage": stage, "recomputation": True} for stage, again in enumerate(layout.recomputes) if again
        )
    if layout.offloads:
        fields["optimizer_state_offloading"] = True
    return fields


def option_line(fields: Mapping[str, Any]) -> str:
    """The fields as options to copy."""
    return " ".join(f"{option_name(field)} {_text(value)}" for field, value in fields.items())


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    if isinstance(value, dict):
        inner = ", ".join(f"{key}: {str(held).lower()}" for key, held in value.items())
        return f"'{{{inner}}}'"
    return str(value).lower() if isinstance(value, bool) else str(value)
