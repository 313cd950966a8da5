"""Small run directories as a training leaves them, made by hand."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from drivetrain.core.files import write_json
from drivetrain.recipe.load import recipe_to_yaml, resolve_recipe
from drivetrain.store.examples import ShownMask, ShownSample, write_mask_examples, write_sample_examples
from drivetrain.store.origins import write_origins
from drivetrain.store.update_history import write_history

TIME = "2026-11-19T21:00:00.000Z"
CLASSES = ("cat", "dog", "<b>bird</b>")


def train_event(update: int, **values: Any) -> dict[str, Any]:
    """A log of a training."""
    known = {"elapsed_seconds": update / 10, "epoch": 1, "samples": 8 * update, "learning_rate": 0.1}
    return {"event": "train", "time": TIME, "update": update, **known, "images_per_second": 80.0, **values}


def validation_event(update: int, **values: Any) -> dict[str, Any]:
    """A validation."""
    known = {"elapsed_seconds": update / 10, "epoch": 1, "samples": 8 * update, "validation_samples": 6}
    return {"event": "validation", "time": TIME, "update": update, **known, **values}


def summary_event(update: int, **values: Any) -> dict[str, Any]:
    """The end of a training."""
    known: dict[str, Any] = {
        "status": "finished",
        "time_to_train_seconds": 2.5,
        "images_per_second": 81.0,
        "peak_memory_bytes": 300_000_000,
        "device": "a processor, 1 thread",
        "seconds": {"step": 2.0, "data": 0.5, "transfer": 0.0},
        "suggestion": "only a faster device helps.",
        "findings": ["Class never predicted: dog; more samples of it help."],
    }
    return {"event": "summary", "time": TIME, "update": update, **known, **values}


def write_events(path: Path, events: list[dict[str, Any]]) -> None:
    """Writes metrics.jsonl."""
    (path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def classifier(path: Path, *, updates: int = 20, **options: Any) -> Path:
    """A finished classifier, logged and validated twice."""
    path.mkdir(parents=True)
    resolved = resolve_recipe(config="digits", overrides={"seed": 7, "max_updates": updates, **options})
    (path / "recipe.yaml").write_text(recipe_to_yaml(resolved.recipe))
    write_origins(path / "origins.json", resolved.origins)
    write_json(path / "identity.json", {"seed": 7})
    write_json(path / "data.json", data_of("classification", CLASSES))
    write_json(path / "environment.json", {"torch": "2.13.0", "python": "3.11.7", "device_type": "cpu"})
    write_json(
        path / "plan.json",
        {
            "batch": {"micro": 8, "accumulation": 1, "global": 8, "replicas": 1},
            "epoch": {"samples": 80, "samples_unused": 3, "weight_updates": 10},
            "model": {"name": "cifar_resnet8", "parameters": 75002, "trainable": 75002},
            "total_updates": updates,
            "warnings": ["The last 3 of 83 training samples are skipped."],
        },
    )
    steps = np.arange(1.0, updates + 1)
    write_history(
        path / "updates.npz",
        {"loss": 1 / steps, "accuracy": steps / updates, "learning_rate": np.full(updates, 0.1)},
    )
    half = updates // 2
    write_events(
        path,
        [
            train_event(half, loss=0.5, accuracy=0.5),
            validation_event(half, loss=0.6, accuracy=0.75),
            train_event(updates, loss=0.3, accuracy=0.9),
            validation_event(updates, loss=0.7, accuracy=0.5),
            summary_event(updates),
        ],
    )
    (path / "confusion.csv").write_text(
        "true class,cat,dog,<b>bird</b>,accuracy\ncat,2,0,0,1.0\ndog,1,1,0,0.5\n<b>bird</b>,0,0,2,1.0\n"
    )
    write_sample_examples(
        path / "examples",
        samples=[
            ShownSample(name="a<script>.png", file="000.png", truth=1, predicted=0, loss=2.5),
            ShownSample(name="b.png", file="001.png", truth=0, predicted=0, loss=0.1),
        ],
        cells={"0,0": [1], "1,0": [0]},
        worst=[0, 1],
        pictures={"000.png": tiny_png(), "001.png": tiny_png()},
    )
    return path


def data_of(task: str, classes: tuple[str, ...]) -> dict[str, Any]:
    """What data.json holds."""
    return {
        "task": task,
        "class_names": list(classes),
        "num_classes": len(classes),
        "channels": 1,
        "height": 8,
        "width": 8,
        "input_kind": "image",
    }


def pipelined_segmentation(path: Path) -> Path:
    """A finished U-Net in two stages, with a recorded update."""
    path.mkdir(parents=True)
    resolved = resolve_recipe(
        config="synthetic_em", overrides={"stages": 2, "gradient_accumulation_count": 4, "profile": 1}
    )
    (path / "recipe.yaml").write_text(recipe_to_yaml(resolved.recipe))
    write_json(path / "identity.json", {})
    write_json(path / "data.json", data_of("segmentation", ("membrane", "cell")))
    stages = [
        {"index": 0, "device": 0, "flops": 300, "first": "a", "last": "b", "recomputation": False},
        {"index": 1, "device": 1, "flops": 100, "first": "c", "last": "d", "recomputation": True},
    ]
    devices = [{"device": index, "parameters": 2_000_000, "peak": 8_000_000} for index in range(2)]
    write_json(
        path / "plan.json",
        {
            "stages": stages,
            "schedule": {"name": "1f1b", "micro_batches": 4, "bubble_assumes": "messages take no time"},
            "memory": {"devices": devices},
            "total_updates": 4,
        },
    )
    scores = {"dice": 0.7, "soft_dice_cell": 0.9, "soft_dice_membrane": 0.5}
    write_events(
        path,
        [
            train_event(4, loss=0.5, dice=0.6),
            validation_event(4, loss=0.6, pixel_accuracy=0.8, **scores),
            summary_event(4),
        ],
    )
    write_json(path / "profile.json", profile_of([2, 3]))
    (path / "images.csv").write_text("image,loss,hard_dice,iou\none.tif,0.5,0.9,0.8\ntwo.tif,0.9,0.4,\n")
    write_mask_examples(
        path / "examples",
        masks=[
            ShownMask(
                name="two.tif", image="0-i.png", truth="0-t.png", predicted="0-p.png", scores={"IoU": 0.4}
            )
        ],
        pictures={name: tiny_png() for name in ("0-i.png", "0-t.png", "0-p.png")},
    )
    return path


def profile_of(updates: list[int]) -> dict[str, Any]:
    """A Chrome trace: in each update both devices run one forward and one backward pass."""
    spans = [
        {
            "ph": "X",
            "name": f"{what} {what[0].upper()}0@{device}",
            "cat": what,
            "pid": 0,
            "tid": device,
            "ts": 1000.0 * update + 100.0 * turn + 10.0 * device,
            "dur": 50.0,
            "args": {"update": update, "stage": device, "micro_batch": 0},
        }
        for update in updates
        for turn, what in enumerate(("forward", "backward"))
        for device in (0, 1)
    ]
    names = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "device 0"}}]
    return {"otherData": {"bubble": 0.25, "passes_seconds": 0.001}, "traceEvents": [*names, *spans]}


def tiny_png() -> bytes:
    """A grey picture of one pixel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
