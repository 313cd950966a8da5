"""What a command asks the search: which numbers it may choose, on how many devices, with how much memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.planner.devices.sizes import parse_bytes
from drivetrain.recipe.aliases import ALIASES
from drivetrain.recipe.fields import option_name
from drivetrain.recipe.params import PipelineScheduleName
from drivetrain.schedules.by_name import SCHEDULE_NAMES

__all__ = ["AUTO", "AskedSearch", "take_auto"]

AUTO = "auto"
_COUNTS = ("stages", "replicas")
# What the search chooses, besides the numbers of stages and replicas.
_CHOSEN = (
    "pipeline_splits",
    "split_by",
    "device_mapping",
    "stage_options",
    "recomputation",
    "optimizer_state_offloading",
    "optimise_for",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSearch:
    """`stages` and `replicas` are true where the search chooses them; `schedule` is given if it was typed."""

    stages: bool
    replicas: bool
    devices: int | None
    memory_limit: int | None
    schedule: PipelineScheduleName | None = None


def take_auto(
    typed: Mapping[str, Any],
    *,
    memory_limit: str | None,
    searches: bool = False,
    limits_alone: bool = False,
) -> tuple[AskedSearch | None, dict[str, Any]]:
    """What the typed options ask of the search, and the options without it.

    `searches`: the command searches even without the word auto, for every number that was not typed.
    `limits_alone`: the memory limit has a use of its own, without a search.
    """
    limit = None if memory_limit is None else parse_bytes(memory_limit, what="--memory-limit")
    fields = {name: ALIASES[name].field if name in ALIASES else name for name in typed}
    is_auto = {field: str(typed[name]).lower() == AUTO for name, field in fields.items() if field in _COUNTS}
    if not searches and not any(is_auto.values()):
        if limit is not None and not limits_alone:
            raise BadInputError(
                f"--memory-limit {memory_limit} has no effect without --fit, --stages auto or --replicas "
                "auto; add one of them, or leave it out."
            )
        return None, dict(typed)
    for name, field in fields.items():
        if field in _CHOSEN:
            raise BadInputError(
                f"{option_name(name)} fixes what the search chooses; leave it out, or give numbers "
                "in place of --search and auto."
            )
    devices = next((typed[name] for name, field in fields.items() if field == "devices"), None)
    asked = AskedSearch(
        stages=is_auto.get("stages", searches),
        replicas=is_auto.get("replicas", searches or devices is not None),
        devices=None if devices is None else _count(str(devices)),
        memory_limit=limit,
    )
    schedule = next((typed[name] for name, field in fields.items() if field == "pipeline_schedule"), None)
    is_known = schedule in SCHEDULE_NAMES
    if asked.stages and is_known:
        asked = replace(asked, schedule=schedule)
    taken = {field for field, auto in is_auto.items() if auto} | {"devices"}
    # Without a number of stages, the recipe would refuse a schedule.
    taken |= {"pipeline_schedule"} if asked.schedule is not None else set()
    return asked, {name: value for name, value in typed.items() if fields[name] not in taken}


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise BadInputError(f"--devices {text} is not a number of devices; --devices 2 works.")
    return int(text)
