"""Writes the result of a suite (suite.json, suite.csv), prints it, and reads it again. Imports no torch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drivetrain.bench.result import BenchResult, number_text
from drivetrain.bench.suite.case import SuiteSettings
from drivetrain.bench.suite.rows import Total, entries, rows, rows_as_csv, totals
from drivetrain.bench.suite.run import Ended
from drivetrain.console.progress_line import clock_time
from drivetrain.console.tables import text_table
from drivetrain.core.files import write_atomically

__all__ = ["suite_lines", "suite_result", "write_suite"]

_SHOWN = {
    "images_per_second": "images/s",
    "tflops": "TFLOP/s",
    "flops_per_parameter": "FLOP/param",
    "flops_per_byte": "FLOP/byte",
    "compile_seconds": "compile s",
    "joules_per_image": "J/image",
}


def suite_result(
    ended: Sequence[Ended], settings: SuiteSettings, *, command: str, epoch_images: int
) -> tuple[BenchResult, list[Total]]:
    """All cases as one result, which `bench compare` reads, and the total time of each device."""
    table = rows(ended)
    found = totals(table, epoch_images=epoch_images)
    machines, notes = _machines(ended)
    result = BenchResult(
        benchmark="suite",
        command=command,
        machine=machines,
        workload={"image_size": settings.image_size, "num_classes": 10},
        settings=settings.to_json() | {"totals": [total.to_json() for total in found]},
        recipe={},
        entries=entries(table, ended),
        notes=notes,
    )
    return result, found


def _machines(ended: Sequence[Ended]) -> tuple[dict[str, Any], list[str]]:
    """The machine of each device, and a note for each device that was measured on several."""
    machines: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for each in ended:
        if each.outcome.result is None:
            continue
        device, machine = each.case.device, each.outcome.result["machine"]
        if machines.setdefault(device, machine) != machine:
            notes[device] = f"the cases of {device} were measured on different machines, such as {machine}"
    return machines, list(notes.values())


def write_suite(result: BenchResult, ended: Sequence[Ended], folder: Path) -> list[Path]:
    """Writes suite.json and suite.csv; returns their paths."""
    paths = [folder / "suite.json", folder / "suite.csv"]
    write_atomically(paths[0], (json.dumps(result.to_json(), indent=2) + "\n").encode())
    write_atomically(paths[1], rows_as_csv(rows(ended)).encode())
    return paths


def suite_lines(result: BenchResult, found: Sequence[Total]) -> list[str]:
    """The table for the terminal, then what failed and why, the totals and the notes."""
    shown = {name: title for name, title in _SHOWN.items() if any(name in e.figures for e in result.entries)}
    table = [["case", *shown.values()]]
    for entry in result.entries:
        table.append([entry.name, *(_cell(entry.figures, name, entry.states["status"]) for name in shown)])
    reasons = [
        f"{entry.name}: {entry.states['status']}: {entry.states['why']}"
        for entry in result.entries
        if "why" in entry.states
    ]
    return [
        *text_table(table),
        *reasons,
        *map(_total_line, found),
        *(f"note: {note}" for note in result.notes),
    ]


def _cell(figures: Mapping[str, float], name: str, status: str) -> str:
    if name in figures:
        return number_text(figures[name])
    return status if name == "images_per_second" else "-"


def _total_line(total: Total) -> str:
    left_out = "" if total.measured == total.cases else f" ({total.cases - total.measured} not measured)"
    return (
        f"total, {total.series}: {clock_time(total.seconds)} to train {total.measured} of {total.cases} "
        f"cases for an epoch of {total.epoch_images} images each{left_out}; compiling {total.compile_s:.0f} s"
    )
