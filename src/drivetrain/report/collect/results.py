"""The result of a run in a few lines, its scores as tables, and what stood out."""

import csv
from collections.abc import Mapping, Sequence
from typing import Any

from drivetrain.catalogue.input_kinds import describe_size
from drivetrain.catalogue.metrics import MAIN_METRICS, brief_metric, higher_is_better, shown_metric
from drivetrain.console.figures import plain_numbers, score_table, speed_text
from drivetrain.report.collect.curves import NOT_METRICS, speed_unit
from drivetrain.report.collect.plan_tables import megabytes
from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import Cell, Table
from drivetrain.run.summary.part_words import PART_WORDS

__all__ = [
    "SUGGESTION",
    "facts_of",
    "headline_of",
    "last_update",
    "main_metric_of",
    "messages_of",
    "score_tables",
    "time_of",
]

SUGGESTION = "To save time: "
"""How the message begins that says what would make a run faster."""

_MOST_IMAGES = 30
_WARNING = "warning: "
_MOST_WARNINGS = 50
_MOST_LOG_CHARACTERS = 1_000_000
_SCORE_OF_IMAGES = ("foreground_hard_dice", "hard_dice", "iou", "pixel_accuracy", "loss")


def headline_of(run: StoredRun) -> list[tuple[str, str]]:
    """The best validation first, or how far a run is; then the last validation, time and speed."""
    lines = [] if run.state == "finished" else [("update", _progress(run))]
    validations = run.validations
    metric = main_metric_of(run)
    best = None if metric is None else _best(validations, metric)
    if metric is not None and best is not None:
        update, value = best
        lines.append((f"best {brief_metric(metric)}", f"{value:.4f} (update {update})"))
    for name, value in _last_numbers(validations, first=metric).items():
        lines.append((f"last {brief_metric(name)}", f"{value:.4f}"))
    if not validations and run.trainings:
        lines.append(("training loss", _four_digits(run.trainings[-1].get("loss"))))
    summary = run.summary
    if "time_to_train_seconds" in summary:
        lines.append(("time to train", f"{summary['time_to_train_seconds']:.1f} s"))
    speed = summary.get("images_per_second") or (
        run.trainings[-1].get("images_per_second") if run.trainings else None
    )
    return lines if speed is None else [*lines, ("throughput", f"{speed_text(speed)} {speed_unit(run)}")]


def main_metric_of(run: StoredRun) -> str | None:
    """The metric that chooses the best checkpoint; None before the first validation."""
    asked = run.recipe.get("best_by")
    names = [asked] if asked else [*MAIN_METRICS.values(), "loss"]
    return next((name for name in names if _best(run.validations, name) is not None), None)


def last_update(run: StoredRun) -> int:
    """The last update that the files know of."""
    last = next((event for event in reversed(run.events) if "update" in event), {"update": 0})
    return max(len(run.history.get("loss", [])), int(last["update"]))


def facts_of(run: StoredRun) -> list[tuple[str, str]]:
    """What was trained on what, and how."""
    recipe, data, plan, summary = run.recipe, run.data, run.plan, run.summary
    facts = {
        "model": recipe.get("model"),
        "data set": recipe.get("dataset"),
        "folder of the data": recipe.get("data_dir"),
        "task": data.get("task"),
        "classes": _class_words(run.class_names),
        "size of a sample": _size(data),
        "training samples": plan.get("epoch", {}).get("samples"),
        "validation samples": run.validations[-1].get("validation_samples") if run.validations else None,
        "parameters": _grouped(plan.get("model", {}).get("parameters")),
        "updates": _progress(run),
        "global batch": plan.get("batch", {}).get("global"),
        "seed": recipe.get("seed"),
        "began": run.events[0].get("time") if run.events else None,
        "last event": run.events[-1].get("time") if run.events else None,
        "ended early by": summary.get("ended_by"),
        "first update": _seconds(summary.get("compile_seconds")),
        "peak memory": _megabytes(summary.get("peak_memory_bytes")),
        "unreadable samples left out": summary.get("bad_samples"),
        "directory": run.directory.path,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def score_tables(run: StoredRun) -> list[Table]:
    """Scores by class, images with their scores, the shares of waiting, and the memory shortages."""
    tables = [_class_table(run), _image_table(run), _waiting_table(run.summary), _shortage_table(run)]
    return [table for table in tables if table is not None]


def messages_of(run: StoredRun) -> list[str]:
    """Warnings of the plan and of the log, findings, and the suggestion of the summary, each once."""
    summary = run.summary
    suggestion = summary.get("suggestion")
    found = [*run.plan.get("warnings", []), *_logged_warnings(run), *summary.get("findings", [])]
    said = dict.fromkeys(map(str, found))
    return [*said, *([f"{SUGGESTION}{suggestion}"] if suggestion else [])]


def _logged_warnings(run: StoredRun) -> list[str]:
    """What the run warned of while it went on, from the beginning of its log."""
    if not run.directory.log.is_file():
        return []
    with run.directory.log.open(errors="replace") as file:
        lines = file.read(_MOST_LOG_CHARACTERS).splitlines()
    found = [line.removeprefix(_WARNING) for line in lines if line.startswith(_WARNING)]
    return list(dict.fromkeys(found))[:_MOST_WARNINGS]


def time_of(run: StoredRun) -> list[tuple[str, float]]:
    """The seconds of each part of the run, the longest first; parts without any are left out."""
    seconds = {str(part): float(value) for part, value in run.summary.get("seconds", {}).items()}
    parts = sorted(seconds, key=lambda part: -seconds[part])
    return [(PART_WORDS.get(part, part), seconds[part]) for part in parts if seconds[part] > 0]


def _best(validations: Sequence[Mapping[str, Any]], metric: str) -> tuple[int, float] | None:
    found = [(event["update"], event[metric]) for event in validations if _is_number(event.get(metric))]
    if not found:
        return None
    sign = 1 if higher_is_better(metric) else -1
    return max(found, key=lambda each: sign * each[1])


def _last_numbers(validations: Sequence[Mapping[str, Any]], *, first: str | None) -> dict[str, float]:
    """The metrics of the last validation that are not in the table by class, and the main one."""
    if not validations:
        return {}
    last = {name: value for name, value in validations[-1].items() if name not in NOT_METRICS}
    main = {first: last[first]} if first is not None and _is_number(last.get(first)) else {}
    return {**main, **plain_numbers(last)}


def _progress(run: StoredRun) -> str:
    total = run.plan.get("total_updates")
    return f"{last_update(run):,}" + ("" if total is None else f" of {total:,}")


def _class_table(run: StoredRun) -> Table | None:
    rows = score_table(run.validations[-1]) if run.validations else []
    if not rows:
        return None
    return Table(
        title="Scores by class at the last validation",
        columns=rows[0],
        rows=[[name, *map(_score, scores)] for name, *scores in rows[1:]],
    )


def _score(text: str) -> float | None:
    """A cell of the table; a dash is a class that has no score."""
    return None if text == "-" else float(text)


def _image_table(run: StoredRun) -> Table | None:
    """The validation images of the lowest score in images.csv."""
    path = run.directory.path / "images.csv"
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in _SCORE_OF_IMAGES if rows and name in rows[0]]
    if not names:
        return None
    scored = [[row["image"], *(float(row[name]) if row[name] else None for name in names)] for row in rows]
    worst = sorted(scored, key=lambda row: 1.0 if row[1] is None else float(row[1]))[:_MOST_IMAGES]
    few = f", the {_MOST_IMAGES} worst of {len(rows)}" if len(rows) > _MOST_IMAGES else ", worst first"
    columns = ["image", *map(shown_metric, names)]
    return Table(title=f"Validation images{few}", columns=columns, rows=worst)


def _waiting_table(summary: Mapping[str, Any]) -> Table | None:
    lost = summary.get("lost_to")
    if not lost:
        return None
    rows: list[list[Cell]] = []
    if "computing_share" in summary:
        rows.append(["computing", f"{summary['computing_share']:.1%}"])
    rows += [[f"waiting: {name.replace('_', ' ')}", f"{share:.1%}"] for name, share in lost.items()]
    return Table(title="How the replicas spent their time", columns=["", "share"], rows=rows)


def _shortage_table(run: StoredRun) -> Table | None:
    """The times that memory ran out, with what the run says about each."""
    found = [event for event in run.events if event["event"] == "out_of_memory"]
    if not found:
        return None
    names = list(dict.fromkeys(name for event in found for name in event if name not in ("event", "time")))
    rows: list[list[Cell]] = [[_plain(event.get(name)) for name in names] for event in found]
    return Table(title="Memory ran out", columns=[name.replace("_", " ") for name in names], rows=rows)


def _plain(value: Any) -> Cell:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _class_words(names: list[str]) -> str:
    if len(names) <= 12:
        return ", ".join(names)
    return f"{len(names)}: {', '.join(names[:10])}, ..."


def _size(data: Mapping[str, Any]) -> str | None:
    if "channels" not in data:
        return None
    return describe_size(
        data.get("input_kind", "image"),
        channels=data["channels"],
        height=data["height"],
        width=data["width"],
    )


def _grouped(number: Any) -> str | None:
    return None if number is None else f"{number:,}"


def _seconds(value: Any) -> str | None:
    return None if value is None else f"{value:.2f} s"


def _megabytes(size: Any) -> str | None:
    return None if size is None else f"{megabytes(size):.0f} MB"


def _four_digits(value: Any) -> str:
    return f"{value:.4f}" if _is_number(value) else "-"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
