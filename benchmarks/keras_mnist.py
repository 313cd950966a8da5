"""The Keras script of examples/keras on MNIST: plain Keras and the scope in three layouts, in turns.

    python benchmarks/keras_mnist.py --data-dir DIR --output benchmarks/results/keras_mnist.json

Each contender runs in a process of its own and trains the same network from the same weights. Times are those
of whole epochs after the first one, without start-up; accuracies are those of the test images.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

from drivetrain.bench.machine import describe_machine

BATCH, EPOCHS = 64, 3
# By contender, the arguments of the scope; None is plain Keras.
CONTENDERS: dict[str, dict[str, Any] | None] = {
    "keras": None,
    "scope": {},
    "2 replicas": {"replicas": 2},
    "2 stages": {"stages": 2, "gradient_accumulation": 8, "schedule": "Grouped"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=int, help="training images, for a trial")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--run", choices=tuple(CONTENDERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        measured = run(arguments.run, data_dir=arguments.data_dir, limit=arguments.limit)
        assert arguments.output is not None
        arguments.output.write_text(json.dumps(measured))
        return
    rounds = [{name: _in_process(name, arguments) for name in CONTENDERS} for _ in range(arguments.repeats)]
    result = {"machine": describe_machine(), "batch": BATCH, "epochs": EPOCHS, **_summary(rounds)}
    text = json.dumps(result, indent=2, default=str)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")


def _in_process(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "measured.json"
        command = [sys.executable, __file__, "--data-dir", arguments.data_dir, "--run", name]
        command += ["--output", str(output)]
        command += [] if arguments.limit is None else ["--limit", str(arguments.limit)]
        subprocess.run(command, check=True)
        measured: dict[str, Any] = json.loads(output.read_text())
        return measured


def _summary(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    epoch_s = {
        name: statistics.median(second for one in rounds for second in one[name]["epoch_s"][1:])
        for name in CONTENDERS
    }
    return {
        "contenders": {
            name: {
                "accuracy": [one[name]["accuracy"] for one in rounds],
                "loss": [one[name]["loss"] for one in rounds],
                "epoch_s": epoch_s[name],
                "microseconds_per_step": epoch_s[name] / rounds[0][name]["steps"] * 1e6,
                "speed_against_keras": epoch_s["keras"] / epoch_s[name],
            }
            for name in CONTENDERS
        },
        "rounds": rounds,
    }


def run(name: str, *, data_dir: str, limit: int | None) -> dict[str, Any]:
    """Trains and evaluates one contender."""
    import keras
    import numpy as np

    import drivetrain.keras
    from drivetrain.data.splits import open_data
    from drivetrain.recipe.schema import Recipe

    splits = open_data(Recipe(dataset="mnist", data_dir=data_dir))
    assert splits.validation is not None
    parts = []
    for source in (splits.train, splits.validation):
        length = len(source) if limit is None else min(limit, len(source))
        images, labels = source.fetch(np.arange(length - length % BATCH))
        parts.append((images.astype("float32") / 255, keras.utils.to_categorical(labels, 10)))
    scope = CONTENDERS[name]
    with nullcontext() if scope is None else drivetrain.keras.scope(**scope):
        keras.utils.set_random_seed(1)
        model = keras.Model(*_network(keras))
        steps = len(parts[0][0]) // BATCH
        execution = 1 if scope is None else steps
        model.compile("sgd", "categorical_crossentropy", metrics=["accuracy"], steps_per_execution=execution)
        clock = _clock(keras)
        model.fit(*parts[0], batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[clock])
        loss, accuracy = model.evaluate(*parts[1], batch_size=BATCH, verbose=0)
    return {"epoch_s": clock.seconds, "steps": steps, "loss": loss, "accuracy": accuracy}


def _network(keras: Any) -> tuple[Any, Any]:
    layers = keras.layers
    images = keras.Input((28, 28, 1))
    values = layers.Conv2D(32, 3, activation="relu")(images)
    values = layers.MaxPooling2D(2)(values)
    values = layers.Conv2D(64, 3, activation="relu")(values)
    values = layers.MaxPooling2D(2)(values)
    values = layers.Dropout(0.5)(layers.Flatten()(values))
    return images, layers.Dense(10, activation="softmax")(values)


def _clock(keras: Any) -> Any:
    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        """Times epochs."""

        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self._began_s = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.seconds.append(time.perf_counter() - self._began_s)

    return Clock()


if __name__ == "__main__":
    main()
