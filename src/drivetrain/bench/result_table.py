"""Shows a benchmark result as a table and writes it as JSON, CSV or markdown. Imports no torch."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from drivetrain.bench.result import FIGURES, BenchResult, number_text
from drivetrain.console.tables import text_table
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.core.files import write_atomically

__all__ = ["SUFFIXES", "check_output", "result_lines", "write_result"]

SUFFIXES = (".json", ".csv", ".md")


def check_output(
    output: str | None, *, option: str = "--output", suffixes: Sequence[str] = SUFFIXES
) -> Path | None:
    """The path to write to; raises before anything is measured if it cannot be written."""
    if output is None:
        return None
    path = Path(output)
    if path.suffix.lower() not in suffixes:
        raise BadInputError(
            f"{option} {output} must end in {' or '.join(suffixes)}; {option} result{suffixes[0]} works."
        )
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise BadInputError(f"{option} {output} {problem}; {option} result{suffixes[0]} works.")
    return path


def result_lines(result: BenchResult) -> list[str]:
    """The lines for the terminal: the table, workload, settings, device peak, machine and notes."""
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    settings = ", ".join(
        f"{name} {_word(value)}" for name, value in result.settings.items() if value is not None
    )
    workload = ", ".join(f"{name} {_word(value)}" for name, value in result.workload.items() if value)
    lines = [*text_table(_rows(result)), f"workload: {workload}", f"settings: {settings}"]
    if result.peak:
        lines.append(
            f"peak: {number_text(result.peak['tflops'])} TFLOP/s in {result.peak['dtype']} (large matrix "
            f"product), {number_text(result.peak['copy_gb_per_second'])} GB/s (memory copy), measured in "
            "this run"
        )
    return [*lines, f"machine: {machine}", *(f"note: {note}" for note in result.notes)]


def _word(value: object) -> str:
    """A value as text; empty for None."""
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def write_result(result: BenchResult, path: Path) -> None:
    """Writes JSON with every repeat, or the table as CSV or markdown."""
    kind = path.suffix.lower()
    if kind == ".json":
        content = json.dumps(result.to_json(), indent=2) + "\n"
    elif kind == ".csv":
        content = _as_csv(result)
    else:
        content = _as_markdown(result)
    try:
        write_atomically(path, content.encode())
    except OSError as error:
        raise RunFailedError(f"--output {path} could not be written: {error.strerror}.") from error


def _columns(result: BenchResult) -> list[str]:
    return [name for name in FIGURES if any(name in entry.figures for entry in result.entries)]


def _states(result: BenchResult) -> list[str]:
    return list(dict.fromkeys(name for entry in result.entries for name in entry.states))


def _rows(result: BenchResult) -> list[list[str]]:
    columns, states = _columns(result), _states(result)
    rows = [["benchmark", *(FIGURES[name].title for name in columns), *states]]
    for entry in result.entries:
        numbers = (_cell(name, entry.figures.get(name)) for name in columns)
        rows.append([entry.name, *numbers, *(entry.states.get(name, "-") for name in states)])
    return rows


def _cell(name: str, value: float | None) -> str:
    return "-" if value is None else FIGURES[name].text(value)


def _as_csv(result: BenchResult) -> str:
    """One row per entry, with plain numbers in the units of the JSON file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns, states = _columns(result), _states(result)
    fixed = {**result.machine, **result.workload, **result.settings}
    writer.writerow(["name", *columns, *states, *fixed])
    for entry in result.entries:
        values = [entry.figures.get(name, "") for name in columns]
        values += [entry.states.get(name, "") for name in states]
        writer.writerow([entry.name, *values, *map(_word, fixed.values())])
    return text.getvalue()


def _as_markdown(result: BenchResult) -> str:
    header, *rows = _rows(result)
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    table = ["| " + " | ".join(row) + " |" for row in lines]
    rest = [f"- {line}" for line in result_lines(result)[len(rows) + 1 :]]
    return "\n".join([f"`{result.command}`", "", *table, "", *rest]) + "\n"
