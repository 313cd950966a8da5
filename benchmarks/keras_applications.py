"""Networks of keras.applications: counts, updates in 1 and 2 stages, `verify --quick`, weights back, predict.

    python benchmarks/keras_applications.py --output benchmarks/results/keras_applications.json

Every network is built by Keras with random weights for small images and 10 classes, trained by
`drivetrain.train`, and asked for its predictions by Keras before and after. Results are added to the output
file: a second call continues with the networks that it does not hold. Stages are trained on one device, in
one process; `verify` runs them in two.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import numpy as np
import torch
from numpy.typing import NDArray

import drivetrain
from drivetrain.bench.machine import describe_machine
from drivetrain.models.from_keras.model import lower_model

NETWORKS = (
    "ConvNeXtTiny",
    "DenseNet121",
    "DenseNet169",
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2S",
    "InceptionResNetV2",
    "InceptionV3",
    "MobileNet",
    "MobileNetV2",
    "MobileNetV3Large",
    "MobileNetV3Small",
    "NASNetLarge",
    "ResNet101",
    "ResNet50",
    "ResNet50V2",
    "VGG16",
    "VGG19",
    "Xception",
)
CLASSES, SAMPLES, BATCH, UPDATES = 10, 8, 4, 2
# Between the module's float32 and Keras's, which sums in another order.
TOLERANCE = 1e-5
# From 64 pixels: below, the last batch norms have one value per sample and channel. Rounding then decides the
# signs of gradients, and those of EfficientNets overflow after an update, in Keras as here.
SMALLEST_SIDE = 64
SMALLEST = {"Inception": 75, "Xception": 71}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NETWORKS)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = held_in(arguments.output)
    for name in arguments.names:
        if name in {row["network"] for row in rows}:
            continue
        row = measured(name)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if arguments.output is not None:
            report = {**head(), "summary": summary_of(rows), "networks": rows}
            arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def held_in(output: Path | None) -> list[dict[str, Any]]:
    """The networks that an output file holds already."""
    if output is None or not output.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(output.read_text())["networks"]
    return rows


def head() -> dict[str, Any]:
    """The command, the machine, and the settings that results depend on."""
    import keras

    return {
        "command": "python benchmarks/keras_applications.py",
        "machine": describe_machine(),
        "keras": keras.__version__,
        "threads": torch.get_num_threads(),
        "updates": UPDATES,
        "tolerance": TOLERANCE,
    }


def summary_of(rows: list[dict[str, Any]]) -> dict[str, int]:
    """How many networks passed each step."""
    steps = ("predict", "one piece", "two stages", "verify")
    passed = {step: sum(row[step].get("is_equal", False) for row in rows) for step in steps}
    counts = sum(
        found.get("parameters", -1) == found.get("linked", 0) + found.get("constants", 0)
        and found["trainable"] == found["trainable_in_keras"]
        for found in (row["predict"] for row in rows)
    )
    return {"networks": len(rows), "counts as Keras tells": counts, **passed}


def measured(name: str) -> dict[str, Any]:
    """Everything about one network; what fails is kept in words."""
    side = next((side for start, side in SMALLEST.items() if name.startswith(start)), SMALLEST_SIDE)
    row: dict[str, Any] = {"network": name, "image_size": side}
    steps: tuple[tuple[str, Callable[[str, int], dict[str, Any]]], ...] = (
        ("predict", compare_predictions),
        ("one piece", lambda name, side: trained(name, side, stages=1)),
        ("two stages", lambda name, side: trained(name, side, stages=2)),
        ("verify", certified),
    )
    for step, run in steps:
        began_s = time.perf_counter()
        try:
            row[step] = run(name, side)
        except Exception as error:
            row[step] = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        row[step]["seconds"] = round(time.perf_counter() - began_s, 1)
    return row


def built(name: str, side: int) -> Any:
    """The network with the same random weights in every call."""
    import keras

    keras.utils.set_random_seed(0)
    make = getattr(keras.applications, name)
    return make(weights=None, classes=CLASSES, input_shape=(side, side, 3))


def data_of(side: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    random = np.random.default_rng(0)
    return random.random((SAMPLES, side, side, 3), dtype=np.float32), random.integers(CLASSES, size=SAMPLES)


def compare_predictions(name: str, side: int) -> dict[str, Any]:
    """Counts as Keras tells, and the largest difference to its predictions before any training."""
    model = built(name, side)
    lowering = lower_model(model, sample_shape=(3, side, side))
    images, _ = data_of(side)
    difference = largest_difference(model, lowering.module, images)
    # What `Normalization` learned from data before; here they are no weights.
    constants = sum(
        int(np.prod(weight.shape))
        for layer in model.layers
        if type(layer).__name__ == "Normalization"
        for weight in layer.weights
    )
    trainable = sum(weight.numel() for weight in lowering.module.parameters() if weight.requires_grad)
    return {
        "parameters": model.count_params(),
        "linked": sum(link.to_torch().numel() for link in lowering.links),
        "constants": constants,
        "trainable": trainable,
        "trainable_in_keras": sum(int(np.prod(weight.shape)) for weight in model.trainable_variables),
        "difference": difference,
        "is_equal": difference <= TOLERANCE,
    }


def trained(name: str, side: int, *, stages: int) -> dict[str, Any]:
    """Two updates; then Keras predicts with the weights that came back, as the trained module does."""
    model = built(name, side)
    layout: dict[str, Any] = {"stages": stages, "device_mapping": (0,) * stages} if stages > 1 else {}
    before = [value.copy() for value in model.get_weights()]
    with tempfile.TemporaryDirectory() as folder:
        result = drivetrain.train(
            model=model,
            data=data_of(side),
            num_epochs=UPDATES * BATCH / SAMPLES,
            global_batch_size=BATCH,
            micro_batch_size=BATCH // 2,
            learning_rate=0.001,
            compile="off",
            output_dir=folder,
            overwrite=True,
            quiet=True,
            **layout,
        )
    moved = sum(not np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
    difference = largest_difference(model, result.model, data_of(side)[0])
    return {
        "updates": result.updates,
        "processes": 1,
        "weights_that_moved": moved,
        "weights": len(before),
        "difference": difference,
        "is_equal": difference <= TOLERANCE,
    }


def certified(name: str, side: int) -> dict[str, Any]:
    """Whether one layout of each family computes the same, as `drivetrain verify --quick` says."""
    certificate = drivetrain.certify(
        model=built(name, side),
        data=data_of(side),
        global_batch_size=BATCH,
        micro_batch_size=BATCH // 2,
        layouts="stages=2",
        learning_rate=0.001,
        quick=True,
    )
    return {"is_equal": certificate["ok"], "layouts": certificate["layouts"]}


@torch.no_grad()
def largest_difference(model: Any, module: torch.nn.Module, images: NDArray[np.float32]) -> float:
    """Between the probabilities of Keras and those of a module."""
    logits = module.eval()(torch.from_numpy(images).permute(0, 3, 1, 2))
    return float(np.abs(model.predict(images, verbose=0) - logits.softmax(1).numpy()).max())


if __name__ == "__main__":
    main()
