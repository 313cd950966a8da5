"""The table of a suite: one row for each case, as CSV, as entries of a JSON file, and totals per device."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drivetrain.bench.result import Entry
from drivetrain.bench.suite.case import Variant, series_name
from drivetrain.bench.suite.networks import short_name
from drivetrain.bench.suite.run import Ended

__all__ = ["COLUMNS", "EPOCH_IMAGES", "Total", "entries", "rows", "rows_as_csv", "totals"]

# The published program trains one epoch on the first 1000 images of CIFAR-10.
EPOCH_IMAGES = 1000
# A training computes and moves about three times as much as its forward pass.
_PASSES = {"infer": 1, "train": 3}

# What the note of a result says that tells why a model fell back.
_FALL_BACK_WORDS: Mapping[Variant, str] = {"compiled": "uncompiled", "captured": "captured: "}

COLUMNS = (
    "device",
    "variant",
    "work",
    "model",
    "batch_size",
    "status",
    "why",
    "images_per_second",
    "p50_seconds",
    "peak_memory_bytes",
    "compile_seconds",
    "joules_per_image",
    "parameters",
    "trainable",
    "flops_per_image",
    "bytes_per_batch",
    "flops_per_parameter",
    "flops_per_byte",
    "tflops",
    "peak_tflops",
    "peak_gb_per_second",
    "precision",
    "compiled",
    "captured",
    "seconds",
)

Row = Mapping[str, Any]


def rows(ended: Sequence[Ended]) -> list[Row]:
    """One row for each case; what is not known is left out of it."""
    return [_row(each) for each in ended]


def _row(ended: Ended) -> Row:
    case, outcome = ended.case, ended.outcome
    status, why = _status(ended)
    row = {
        "device": case.device,
        "variant": case.variant,
        "work": case.work,
        "model": case.model,
        "batch_size": case.batch_size,
        "status": status,
        "why": why or None,
        "seconds": None if outcome.seconds is None else round(outcome.seconds, 1),
        **({} if outcome.result is None else _measured(outcome.result, case.batch_size, work=case.work)),
    }
    return {name: row[name] for name in COLUMNS if row.get(name) is not None}


def _status(ended: Ended) -> tuple[str, str]:
    """How a case ended, and why; a case that could not be executed as its variant says is not of it."""
    outcome = ended.outcome
    variant = ended.case.variant
    if outcome.result is None or variant == "eager" or outcome.result["entries"][0].get(variant) != "no":
        return outcome.status, outcome.why
    reasons = [note for note in outcome.result.get("notes", []) if _FALL_BACK_WORDS[variant] in note]
    return f"not {variant}", reasons[0] if reasons else f"logs/{ended.case.key}.txt says why"


def _measured(result: Mapping[str, Any], batch: int, *, work: str) -> dict[str, Any]:
    entry, model, peak = result["entries"][0], result.get("model", {}), result.get("peak", {})
    figures = ("images_per_second", "p50_seconds", "peak_memory_bytes", "compile_seconds", "joules_per_image")
    sizes = ("parameters", "trainable", "flops_per_image")
    return {
        **{name: entry.get(name) for name in (*figures, "tflops", "compiled", "captured")},
        **{name: model.get(name) for name in sizes},
        **_intensity(model, batch, work=work),
        "peak_tflops": peak.get("tflops"),
        "peak_gb_per_second": peak.get("copy_gb_per_second"),
        "precision": result.get("settings", {}).get("precision"),
    }


def _intensity(model: Mapping[str, Any], batch: int, *, work: str) -> dict[str, float]:
    """Per parameter as published: the FLOPs of one image's forward pass divided by trainable parameters."""
    flops, trainable = model.get("flops_per_image"), model.get("trainable")
    found: dict[str, float] = {}
    if flops and trainable:
        found["flops_per_parameter"] = flops / trainable
    if flops and "weight_bytes" in model:
        moved = model["weight_bytes"] + batch * model["activation_bytes"]
        found |= {"bytes_per_batch": _PASSES[work] * moved, "flops_per_byte": batch * flops / moved}
    return found


def rows_as_csv(table: Sequence[Row]) -> str:
    """The rows as CSV, with a column for everything and empty cells for what is not known."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def entries(table: Sequence[Row], ended: Sequence[Ended]) -> list[Entry]:
    """The rows as entries of a result, with their repeats."""
    return [
        Entry(
            name=f"{each.case.title}",
            figures={name: value for name, value in row.items() if isinstance(value, int | float)},
            states={
                "label": f"{short_name(each.case.model)}_{each.case.batch_size}",
                **{name: value for name, value in row.items() if isinstance(value, str)},
            },
            repeats=[] if each.outcome.result is None else _repeats(each.outcome.result),
        )
        for row, each in zip(table, ended, strict=True)
    ]


def _repeats(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The repeats without the time of every step, which the files of the cases keep."""
    return [
        {name: value for name, value in repeat.items() if name != "step_seconds"}
        for repeat in result["entries"][0]["repeats"]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The time that one device needs to train each network for an epoch at each batch size, one by one."""

    series: str
    cases: int
    measured: int
    epoch_images: int
    seconds: float
    compile_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {name: getattr(self, name) for name in self.__slots__}


def totals(table: Sequence[Row], *, epoch_images: int) -> list[Total]:
    """One total for each device and variant; the last images that do not fill a batch are left out."""
    series: dict[str, list[Row]] = {}
    for row in table:
        if row["work"] == "train":
            series.setdefault(series_name(row["device"], row["variant"]), []).append(row)
    return [_total(name, found, epoch_images=epoch_images) for name, found in series.items()]


def _total(name: str, table: Sequence[Row], *, epoch_images: int) -> Total:
    measured = [row for row in table if row["status"] == "measured"]
    return Total(
        series=name,
        cases=len(table),
        measured=len(measured),
        epoch_images=epoch_images,
        seconds=sum(
            epoch_images // row["batch_size"] * row["batch_size"] / row["images_per_second"]
            for row in measured
        ),
        compile_s=sum(row.get("compile_seconds", 0.0) for row in measured),
    )
