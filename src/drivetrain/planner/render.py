"""Prints the estimate of a plan: time, memory of each device beside what it has, and advice."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drivetrain.plan.render_stages import with_unit

__all__ = ["in_words", "print_estimate"]

_NOT_PARTS = frozenset({"device", "name", "peak_bytes", "available_bytes", "usable_bytes", "fits"})
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def print_estimate(plan: Mapping[str, Any], *, console: Console) -> None:
    """Prints what `add_estimate` and the advice have added to a plan."""
    console.print()
    for title, text in _time_lines(plan):
        console.print(Text.assemble((f"{title}: ", "bold"), text), highlight=False)
    if plan["devices"]:
        console.print(_device_table(plan), highlight=False)
    if "advice" in plan:
        text = plan["advice"]["sentence"]
        console.print(Text.assemble(("does not fit: ", "bold red"), text), highlight=False)
    for note in plan["estimate"]["notes"]:
        console.print(Text.assemble(("note: ", "bold"), note), highlight=False)


def _time_lines(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "seconds_per_update" not in plan:
        return
    about = plan["estimate"]
    how = "measured" if about["source"] == "measured" else "estimated from the description"
    yield (
        "time",
        f"{in_words(plan['seconds_per_update'])} per update, {plan['images_per_second']:,.4g} images per "
        f"second, {in_words(plan['training_seconds'])} for all updates ({how}: {about['device']})",
    )
    if "bottleneck_stage" in plan.get("schedule", {}):
        yield (
            "pipeline",
            f"devices are idle for {100 * plan['schedule']['bubble']:.1f} % of the time; the others wait for "
            f"stage {plan['schedule']['bottleneck_stage']}",
        )
    if "all_reduce" in about:
        reduced = about["all_reduce"]
        yield (
            "all-reduce",
            f"{with_unit(reduced['bytes'])}B per update, which waits {100 * reduced['share']:.1f} % of its "
            f"time for it (links: {reduced['links']})",
        )


def _device_table(plan: Mapping[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in ("device", "peak", "available", "fits"):
        table.add_column(name, justify="right")
    table.add_column("other parts of the peak", overflow="fold")
    for device in plan["devices"]:
        table.add_row(
            str(device["device"]),
            f"{with_unit(device['peak_bytes'])}B",
            "unknown" if device["available_bytes"] is None else f"{with_unit(device['available_bytes'])}B",
            {True: "yes", False: "no", None: "unknown"}[device["fits"]],
            _others(device),
        )
    return table


def _others(device: Mapping[str, Any]) -> str:
    """The parts that the table of memory above does not show."""
    shown = {"parameters", "gradients", "optimiser_states", "activations", "working", "checkpoint"}
    parts = {name: size for name, size in device.items() if name not in _NOT_PARTS | shown}
    return ", ".join(f"{name} {with_unit(size)}B" for name, size in parts.items())


def in_words(seconds: float) -> str:
    """A duration with a unit that suits it: 12.3 ms, 4.5 s, 12 min, 3.2 h, 2.1 days."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.3g} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.3g} min"
    return f"{seconds / _HOUR_S:.3g} h" if seconds < 2 * _DAY_S else f"{seconds / _DAY_S:.3g} days"
