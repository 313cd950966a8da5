"""Prints a plan as tables, on a terminal or into a file."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drivetrain.catalogue.input_kinds import describe_input
from drivetrain.optim.learning_rate import LearningRate
from drivetrain.plan.render_stages import print_memory, print_stages, with_unit

# With the two label columns before it, a line of 40 bars fits a terminal of 80 columns.
SPARKLINE_WIDTH = 40
_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_RAMP = "_.-:=+*#"

# Of a model with many blocks, the first and the last ones show how the rate falls.
_SHOWN_BLOCKS = 3

Row = tuple[str, str]


def print_plan(plan: Mapping[str, Any], *, learning_rate: LearningRate, console: Console) -> None:
    """Prints the tables of a plan, then its warnings."""
    ramp = _ASCII_RAMP if console.options.ascii_only else _BLOCKS
    course = sparkline(learning_rate, total_updates=plan["total_updates"], ramp=ramp)
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(style="bold")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for title, rows in _sections(plan, course=course):
        for index, (name, value) in enumerate(rows):
            table.add_row("" if index else title, name, value)
    console.print(table, highlight=False)
    if "schedule" in plan:
        print_stages(plan, console=console)
    if "memory" in plan:
        print_memory(plan, console=console)
    for warning in plan["warnings"]:
        console.print(Text.assemble(("warning: ", "bold yellow"), warning), highlight=False)


def sparkline(learning_rate: LearningRate, *, total_updates: int, ramp: str = _BLOCKS) -> str:
    """The learning rate over the run as one line of bars; a full bar is the highest rate."""
    width = min(SPARKLINE_WIDTH, total_updates)
    updates = np.linspace(0, total_updates - 1, width).round()
    rates = learning_rate.over(updates)
    highest = max(float(rates.max()), np.finfo(np.float64).tiny)
    levels = np.clip(np.ceil(rates / highest * len(ramp)) - 1, 0, len(ramp) - 1).astype(int)
    return "".join(ramp[level] for level in levels)


def _sections(plan: Mapping[str, Any], *, course: str) -> Iterator[tuple[str, list[Row]]]:
    yield "batch", _batch_rows(plan)
    yield "epoch", _epoch_rows(plan)
    yield "execution", _execution_rows(plan)
    yield "learning rate", _rate_rows(plan, course=course)
    yield "model", _model_rows(plan)
    if plan["layout"]["ranks"] > 1:
        yield "layout", _layout_rows(plan["layout"])


def _batch_rows(plan: Mapping[str, Any]) -> list[Row]:
    batch = plan["batch"]
    rows = [
        ("micro-batch", f"{batch['micro']:,} samples"),
        ("replicas", str(batch["replicas"])),
        ("accumulation", f"{_counted(batch['accumulation'], 'micro-batch', 'es')} per weight update"),
        ("global batch", f"{batch['global']:,} samples per weight update"),
    ]
    if "normalised_set" in plan:
        rows.append(("batch norm", f"statistics over {plan['normalised_set']:,} samples"))
    return rows


def _epoch_rows(plan: Mapping[str, Any]) -> list[Row]:
    epoch = plan["epoch"]
    return [
        ("samples", f"{epoch['samples']:,}"),
        ("weight updates", f"{epoch['weight_updates']:,}"),
        ("micro-batches", f"{epoch['micro_batches']:,} over all replicas"),
        ("skipped samples", f"{epoch['samples_unused']:,}"),
    ]


def _execution_rows(plan: Mapping[str, Any]) -> list[Row]:
    execution = plan["execution"]
    updates = f"{execution['weight_updates']:,} between two logs, {plan['total_updates']:,} in the whole run"
    return [
        ("weight updates", updates),
        ("micro-batches", f"{execution['micro_batches']:,} per replica between two logs"),
        ("logs per epoch", f"{execution['logs_per_epoch']:.6g}"),
    ]


def _rate_rows(plan: Mapping[str, Any], *, course: str) -> list[Row]:
    return [
        ("peak", f"{plan['learning_rate_peak']:.6g} ({plan['learning_rate_origin']})"),
        ("course", course),
        *_factor_rows(plan.get("learning_rate_factors", {})),
        *((f"at update {update}", f"{rate:.6g}") for update, rate in plan["learning_rate"].items()),
    ]


def _factor_rows(factors: Mapping[str, float]) -> list[Row]:
    """The factor of each block; of many, the first and the last ones."""
    words = [f"{factor:.4g} x for {name}" for name, factor in factors.items()]
    if len(words) > 2 * _SHOWN_BLOCKS:
        words = [*words[:_SHOWN_BLOCKS], "...", *words[-_SHOWN_BLOCKS:]]
    return [("by block", ", ".join(words))] if words else []


def _layout_rows(layout: Mapping[str, int]) -> list[Row]:
    return [
        ("replicas", str(layout["replicas"])),
        ("stages", f"{layout['stages']} on {_counted(layout['devices'], 'device')} per replica"),
        ("ranks", f"{_counted(layout['ranks'], 'process', 'es')}, one per device"),
    ]


def _counted(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{plural if number != 1 else ''}"


def _model_rows(plan: Mapping[str, Any]) -> list[Row]:
    model, shape = plan["model"], plan["input"]
    return [
        ("name", model["name"]),
        *_image_rows(shape, margin=shape.get("margin", 0)),
        ("parameters", f"{model['parameters']:,}, {model['trainable']:,} of them trainable"),
        ("buffers", f"{model['buffers']:,} values that are not trained"),
        ("forward pass", f"{with_unit(model['flops'])}FLOP per sample"),
        ("precision", plan["precision"]),
    ]


def _image_rows(shape: Mapping[str, Any], *, margin: int) -> list[Row]:
    """The shape of the input, and that of the output if the model crops its borders."""
    output, classes = shape["image_size"], _counted(shape["num_classes"], "class", "es")
    kind = shape.get("input_kind", "image")
    if kind != "image":
        words = describe_input(kind, channels=shape["channels"], height=1, width=output)
        return [("input", f"{words}, {classes}")]
    size, width = output + 2 * margin, shape.get("width", output) + 2 * margin
    images = f"{shape['channels']}x{size}x{width}"
    if not margin:
        return [("input", f"{images}, {classes}")]
    return [("input", images), ("output", f"{output}x{width - 2 * margin}, {classes}")]
