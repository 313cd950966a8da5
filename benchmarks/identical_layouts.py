"""Which layouts compute the same bits as one process with the same micro-batches, and which differ where.

    python benchmarks/identical_layouts.py [--cases resnet8-momentum unet] [--output FILE.json]

Every layout is compared with one process that adds up micro-batches of the same size, in float32 and with one
thread per rank, update by update from equal states. Bits have no noise, so once is enough.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import drivetrain
from drivetrain.bench.machine import describe_machine

RESULTS = Path(__file__).parent / "results"
MOMENTUM = {"optimizer": "sgd", "optimizer_params": {"momentum": 0.9}}
RESNET8 = {"dataset": "digits", "model": "cifar_resnet8"}
UNET = {
    "model": "unet_same",
    "model_width": 4,
    "model_params": {"depth": 2, "norm": "batch"},
    "image_size": 32,
}
CNN = {"dataset": "digits", "model": "mnist_cnn", "image_size": 12}
CASES: dict[str, dict[str, Any]] = {
    "resnet8-momentum": {**RESNET8, **MOMENTUM},
    "resnet8-adam-clip-norm": {**RESNET8, "optimizer": "adam", "clip_norm": 0.5},
    "unet-momentum": {**UNET, **MOMENTUM},
    "cnn-dropout-mixup-ema": {**CNN, **MOMENTUM, "ema": 0.9, "mixup": 0.2, "augment": True},
}
LAYOUTS = (
    "replicas=2",
    "replicas=2,accumulation=2",
    "replicas=3",
    "replicas=4",
    "accumulation=4,recomputation=true",
    "accumulation=4,offloading=true",
    "accumulation=4,stages=2,processes=1",
    "accumulation=4,stages=2,schedule=zero-bubble,processes=1",
    "accumulation=4,stages=2,recomputation=true,processes=1",
    "accumulation=4,stages=2",
    "accumulation=4,stages=2,schedule=zero-bubble",
    "replicas=2,accumulation=2,stages=2",
)


def verdicts_of(options: dict[str, Any]) -> dict[str, Any]:
    """The verdict of each layout, and the first loss or tensor that has other bits."""
    found = drivetrain.certify(
        layouts=";".join(LAYOUTS),
        updates=3,
        dtype="float32",
        require="identical",
        num_threads=1,
        global_batch_size=24,
        **options,
    )
    return {
        row["layout"]: {"verdict": row["verdict"], "seeds": row["points_tried"], **row["bits"]}
        for row in found["layouts"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--output", type=Path, default=RESULTS / "identical_layouts-cpu-2-cores.json")
    args = parser.parse_args()
    cases: dict[str, Any] = {}
    result = {
        "command": f"python benchmarks/identical_layouts.py --cases {' '.join(args.cases)}",
        "machine": describe_machine("cpu"),
        "cases": cases,
    }
    for name in args.cases:
        cases[name] = {"options": CASES[name], "layouts": verdicts_of(CASES[name])}
        args.output.write_text(json.dumps(result, indent=2) + "\n")
        print(name, "done", flush=True)


if __name__ == "__main__":
    main()
