"""What a recipe became: batches, course, layout and stages of plan.json as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import Cell, Table

__all__ = ["megabytes", "memory_of", "plan_tables"]

_PARTS = {
    "parameters": "weights",
    "gradients": "gradients",
    "optimiser_states": "optimiser states",
    "activations": "activations",
    "working": "working memory",
    "checkpoint": "copy for checkpoints",
    "peak": "peak",
}


def plan_tables(run: StoredRun) -> list[Table]:
    """The tables of the parts that the plan has."""
    plan = run.plan
    tables = [
        _facts("Batch", _batch_rows(plan)),
        _facts("Course", _course_rows(plan)),
        _facts("Model and layout", _layout_rows(plan)),
        _stages(plan),
    ]
    return [table for table in tables if table["rows"]]


def memory_of(run: StoredRun) -> Table | None:
    """The predicted memory of each device, and the measured peak of the first rank."""
    devices = run.plan.get("memory", {}).get("devices", [])
    parts = [part for part in _PARTS if any(part in device for device in devices)]
    rows: list[list[Cell]] = [
        [f"device {device['device']}, predicted", *(megabytes(device.get(part)) for part in parts)]
        for device in devices
    ]
    peak = run.summary.get("peak_memory_bytes")
    if peak is not None:
        parts = parts or ["peak"]
        measured: list[Cell] = [None] * (len(parts) - 1)
        is_process = run.environment.get("device_type", "cpu") == "cpu"
        what = "whole process of rank 0, measured" if is_process else "device of rank 0, measured"
        rows.append([what, *measured, megabytes(peak)])
    if not rows:
        return None
    return Table(title="Memory in MB", columns=["", *(_PARTS[part] for part in parts)], rows=rows)


def megabytes(size: Any) -> float | None:
    """A number of bytes in units of 1e6 bytes."""
    return None if size is None else round(float(size) / 1e6, 2)


def _facts(title: str, rows: Mapping[str, Any]) -> Table:
    known = [[name, _cell(value)] for name, value in rows.items() if value is not None]
    return Table(title=title, columns=["", ""], rows=[list(row) for row in known])


def _cell(value: Any) -> Cell:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else str(value)


def _batch_rows(plan: Mapping[str, Any]) -> dict[str, Any]:
    batch = plan.get("batch", {})
    return {
        "samples in a micro-batch": batch.get("micro"),
        "micro-batches accumulated": batch.get("accumulation"),
        "replicas": batch.get("replicas"),
        "samples in an update (global batch)": batch.get("global"),
        "samples that batch norm normalises together": plan.get("normalised_set"),
    }


def _course_rows(plan: Mapping[str, Any]) -> dict[str, Any]:
    epoch, events = plan.get("epoch", {}), plan.get("events", {})
    return {
        "training samples": epoch.get("samples"),
        "samples left out in each epoch": epoch.get("samples_unused") or None,
        "updates in an epoch": epoch.get("weight_updates"),
        "updates in total": plan.get("total_updates"),
        "updates between logs": events.get("log"),
        "updates between validations": events.get("validate"),
        "updates between checkpoints": events.get("checkpoint"),
        "optimiser": plan.get("optimizer"),
        "highest learning rate": plan.get("learning_rate_peak"),
        "learning rate from": plan.get("learning_rate_origin"),
    }


def _layout_rows(plan: Mapping[str, Any]) -> dict[str, Any]:
    model, layout = plan.get("model", {}), plan.get("layout", {})
    schedule, compiled = plan.get("schedule", {}), plan.get("compile", {})
    bubble = schedule.get("bubble")
    return {
        "model": model.get("name"),
        "parameters": model.get("parameters"),
        "trained parameters": model.get("trainable"),
        "FLOPs of a forward pass per sample": model.get("flops"),
        "stages": layout.get("stages"),
        "devices per replica": layout.get("devices"),
        "ranks": layout.get("ranks"),
        "schedule": schedule.get("name"),
        "idle share of devices, predicted": None if bubble is None else f"{bubble:.1%}",
        "prediction assumes": schedule.get("bubble_assumes"),
        "stages checked": plan.get("checked"),
        "precision": plan.get("precision"),
        "compiled": _compiled(compiled),
    }


def _compiled(compiled: Mapping[str, Any]) -> str | None:
    if "on" not in compiled:
        return None
    return f"{'yes' if compiled['on'] else 'no'}: {compiled.get('reason', '')}".rstrip(": ")


def _stages(plan: Mapping[str, Any]) -> Table:
    """A row per stage; empty for a model in one piece."""
    stages: Sequence[Mapping[str, Any]] = plan.get("stages", [])
    rows = [_stage(stage) for stage in stages] if len(stages) > 1 else []
    names = list(rows[0]) if rows else []
    return Table(title="Stages", columns=names, rows=[list(row.values()) for row in rows])


def _stage(stage: Mapping[str, Any]) -> dict[str, Cell]:
    return {
        "stage": stage["index"],
        "device": stage["device"],
        "first layer": stage.get("first"),
        "last layer": stage.get("last"),
        "layers": stage.get("layers"),
        "parameters": stage.get("parameters"),
        "FLOPs per sample": stage.get("flops"),
        "sent in an update, MB": megabytes(stage.get("sent_bytes")),
        "live micro-batches": stage.get("live_micro_batches"),
        "recomputation": _yes_or_no(stage.get("recomputation")),
        "optimiser states offloaded": _yes_or_no(stage.get("optimizer_state_offloading")),
        "compute type": stage.get("compute_type"),
        "predicted peak, MB": megabytes(stage.get("peak_bytes")),
    }


def _yes_or_no(value: Any) -> str | None:
    return None if value is None else "yes" if value else "no"
