"""Cases of a suite that were never measured, with results that look as if they had been."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drivetrain.bench.suite.case import Case, Variant, Work, all_cases
from drivetrain.bench.suite.folder import Outcome
from drivetrain.core.files import write_json

SIZES = {"resnet18": (1.8e9, 11_000_000), "vgg16": (30e9, 15_000_000), "broken": (1e9, 1_000_000)}


def fake_cases(
    *,
    variants: Sequence[Variant] = ("eager",),
    works: Sequence[Work] = ("infer", "train"),
    device: str = "cuda",
) -> list[Case]:
    """Three networks at two batch sizes."""
    return all_cases(
        devices=[device], variants=variants, works=works, models=list(SIZES), batch_sizes=[1, 32]
    )


def fake_result(arguments: Sequence[str], *, speed: float = 100.0) -> dict[str, Any]:
    """What `bench train` or `bench infer` would write, with the parts that a suite reads."""
    flops, parameters = SIZES[option(arguments, "--model")]
    return {
        "benchmark": arguments[1],
        "machine": {"device": "a device"},
        "settings": {"precision": "32.32"},
        "workload": {},
        "peak": {"tflops": 50.0, "copy_gb_per_second": 1000.0},
        "model": {
            "parameters": parameters + 100,
            "trainable": parameters,
            "flops_per_image": flops,
            "weight_bytes": 4 * parameters,
            "activation_bytes": 40_000_000,
        },
        "entries": [
            {
                "name": "x",
                "images_per_second": speed,
                "p50_seconds": 0.01,
                "tflops": flops * speed / 1e12,
                "peak_memory_bytes": 1e9,
                "compiled": "yes" if option(arguments, "--compile") == "on" else "no",
                "captured": "yes" if "--captured" in arguments or "auto" in arguments[-1:] else "no",
                "repeats": [{"images_per_second": speed, "step_seconds": [0.01]}],
            }
        ],
    }


def option(arguments: Sequence[str], name: str) -> str:
    """The value of an option."""
    return arguments[list(arguments).index(name) + 1]


class FakeProcesses:
    """Stands in for the processes of cases: `broken` fails, the others are measured."""

    def __init__(self, *, ends_after: int | None = None, speed: float = 100.0) -> None:
        self.asked: list[Path] = []
        self._ends_after, self._speed = ends_after, speed

    def __call__(self, arguments: Sequence[str], *, output: Path, log: Path, most_s: float) -> Outcome:
        if len(self.asked) == self._ends_after:
            # As if killed between the result of a case and the note that it has ended.
            write_json(output, fake_result(arguments))
            raise KeyboardInterrupt
        self.asked.append(output)
        log.write_text("printed\n")
        if option(arguments, "--model") == "broken":
            return Outcome(status="failed", why="it is broken", seconds=1.0)
        write_json(output, fake_result(arguments, speed=self._speed))
        return Outcome(status="measured", seconds=2.0)
