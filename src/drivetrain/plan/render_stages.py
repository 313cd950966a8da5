"""Prints the pipeline of a plan: tables of stages and memory, and one update as a timeline."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.simulator import Simulation, Span, backward_costs, simulate

__all__ = ["draw_timeline", "print_memory", "print_stages", "with_unit"]

_IDLE, _MORE = ".", "-"
# Narrower than this, no action of a timeline would keep its letter; lines are cropped instead.
_LEAST_COLUMNS = 20
_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_MEMORY_COLUMNS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimiser_states": "states",
    "activations": "activations",
    "working": "working",
    "checkpoint": "checkpoint",
    "peak": "peak",
}
_SAVERS = {
    "recomputation": "--recomputation",
    "optimizer_state_offloading": "--optimizer-state-offloading",
    "mask_free_dropout": "dropout without stored masks",
}


def draw_timeline(
    schedule_name: str,
    *,
    micro_batches: int,
    device_of: Sequence[int],
    flops: Sequence[int],
    recomputes: Sequence[bool],
    width: int,
) -> list[str]:
    """Draws one update as a line per device, for example `0: F0F1....B0--`.

    F is a forward pass, B a backward pass, I and W its input and weight parts, and dots are idle time. At
    most twice as many micro-batches as stages are shown: enough to see the pattern.
    """
    stages = len(device_of)
    shown = min(micro_batches, 2 * stages)
    table = build_schedule(schedule_name, micro_batches=shown, device_of=device_of)
    costs = [max(cost, 1) for cost in flops]
    simulated = simulate(table, forward_s=costs, backward_s=backward_costs(costs, recomputes=recomputes))
    label = len(str(table.devices - 1)) + 2
    columns = max(width - label, _LEAST_COLUMNS)
    rows = [f"{device}: ".rjust(label) + _row(simulated, device, columns) for device in range(table.devices)]
    return [f"the first {shown} of {micro_batches} micro-batches:", *rows] if shown < micro_batches else rows


def _row(simulated: Simulation, device: int, columns: int) -> str:
    scale = columns / simulated.seconds_per_update
    row = [_IDLE] * columns
    for span in simulated.timeline:
        if span.device == device:
            start = min(round(span.start_s * scale), columns - 1)
            end = max(round(span.end_s * scale), start + 1)
            row[start:end] = _word(span, end - start)
    return "".join(row).rstrip(_IDLE)


def _word(span: Span, length: int) -> list[str]:
    """The letter and micro-batch of an action, or only the letter if there is no room for both."""
    text = f"{span.action.kind.value}{span.action.micro_batch}"
    if len(text) > length:
        text = span.action.kind.value
    return list(text.ljust(length, _MORE)[:length])


def print_stages(plan: Mapping[str, Any], *, console: Console) -> None:
    """Prints a row per stage, the recommended splits, the idle share of the schedule and its timeline."""
    schedule, stages = plan["schedule"], plan["stages"]
    console.print()
    console.print(_stage_table(plan), highlight=False)
    splits = plan["splits"]
    if splits["used"] != splits["recommended"]:
        _say(console, "recommended", f"--pipeline-splits {' '.join(splits['recommended'])}")
    _say(
        console,
        "schedule",
        f"{schedule['name']} with {schedule['micro_batches']} micro-batches per update; devices are idle for "
        f"{100 * schedule['bubble']:.1f} % of the time (estimate: {schedule['bubble_assumes']})",
    )
    picture = draw_timeline(
        schedule["name"],
        micro_batches=schedule["micro_batches"],
        device_of=[stage["device"] for stage in stages],
        flops=[stage["flops"] for stage in stages],
        recomputes=[stage["recomputation"] for stage in stages],
        width=console.width,
    )
    for line in picture:
        console.print(Text(line), highlight=False, no_wrap=True, crop=True)


def print_memory(plan: Mapping[str, Any], *, console: Console) -> None:
    """Prints a row per device of a replica, and how much each way to save memory would save there."""
    memory = plan["memory"]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    keys = [key for key in _MEMORY_COLUMNS if any(key in device for device in memory["devices"])]
    for name in ("device", *(_MEMORY_COLUMNS[key] for key in keys)):
        table.add_column(name, justify="right")
    for device in memory["devices"]:
        table.add_row(str(device["device"]), *(f"{with_unit(device.get(key, 0))}B" for key in keys))
    console.print()
    console.print(table, highlight=False)
    if "libraries_bytes" in memory:
        size = f"{with_unit(memory['libraries_bytes'])}B"
        libraries = (
            f"Python and its libraries (about {size} per rank); workspaces of kernels; message buffers"
        )
        gaps = "; allocator fragmentation (--optimise-for memory avoids it, but is slower)"
        _say(console, "not counted", libraries + (gaps if memory["has_gaps"] else ""))
    for name, title in _SAVERS.items():
        by_device = [device["savings"].get(name, 0) for device in memory["devices"]]
        if any(by_device):
            listed = ", ".join(f"{with_unit(saved)}B" for saved in by_device)
            _say(console, f"{title} saves at the peak, by device", f"{listed} (negative: it costs memory)")


def with_unit(count: int) -> str:
    """A number with four digits and a prefix such as k or M, ready for a unit: "4.194 M" + "B"."""
    for size, unit in _UNITS:
        if abs(count) >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} "


def _stage_table(plan: Mapping[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("stage", "device"):
        table.add_column(name, justify="right")
    table.add_column("layers", overflow="fold")
    for name in ("parameters", "FLOP", "sent", "live", "memory"):
        table.add_column(name, justify="right")
    for stage in plan["stages"]:
        table.add_row(
            str(stage["index"]),
            str(stage["device"]),
            _layers(stage),
            f"{stage['parameters']:,}",
            with_unit(stage["flops"] * plan["batch"]["micro"]),
            f"{with_unit(stage['sent_bytes'])}B",
            str(stage["live_micro_batches"]),
            f"{with_unit(stage['peak_bytes'])}B" if "peak_bytes" in stage else "",
        )
    table.caption = (
        "FLOP: forward pass of one micro-batch; sent: to other devices per update; live: micro-batches whose "
        "activations are kept at once; memory: peak"
    )
    table.caption_justify = "left"
    return table


def _layers(stage: Mapping[str, Any]) -> str:
    """The first and last layer, each on a line of its own to copy, and how the stage saves memory."""
    names = [stage["first"]] if stage["first"] == stage["last"] else [f"{stage['first']} ..", stage["last"]]
    switches = {
        "recomputation": "recomputation",
        "optimizer state in host memory": "optimizer_state_offloading",
    }
    does = ", ".join(word for word, key in switches.items() if stage.get(key))
    return "\n".join([*names, f"({does})"] if does else names)


def _say(console: Console, title: str, text: str) -> None:
    console.print(Text.assemble((f"{title}: ", "bold"), text), highlight=False)
