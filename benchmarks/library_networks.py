"""Which networks of timm, torchvision, transformers and smp train, can be cut into stages, and are verified.

    python benchmarks/library_networks.py [--only timm hf] [--match 'vit*'] [--limit 8] [--parallel 14]
        [--limit-s 240] [--stop-after-s 540] [--again] [--skip FILE.json] [--output FILE.json]
    python benchmarks/library_networks.py --choose    # chooses the networks of timm anew

Each network is a process of its own, with one thread and generated images. It trains 3 updates in one piece
and in 2 and 4 stages on one device (a training compares its stages with the whole model first), and then runs
`drivetrain verify --quick`. The images are the smallest that the network accepts, from 64 pixels: below, a
batch norm may have two values per channel, and rounding decides their signs.

Results are added to the output file, which a second call continues; `--again` repeats what it holds, and
`--skip` leaves out the networks that other files hold without a refusal or a fault. The networks of timm are
the smallest of each family, by number of weights (`library_choice.json`), and run in the order of their size;
families whose smallest has more than 100 million are left out.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CHOICE = FOLDER / "library_choice.json"
PACKAGES = {
    "timm": "timm",
    "torchvision": "torchvision",
    "hf": "transformers",
    "smp": "segmentation_models_pytorch",
}
SIDES = (64, 96, 128, 160, 192, 224, 256, 299, 384)
STEPS = ("train", "2 stages", "4 stages", "verify")
UPDATES = 3
MOST_WEIGHTS = 100e6

TORCHVISION: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "mobilenet_v3_small": {},
    "shufflenet_v2_x0_5": {},
    "squeezenet1_1": {},
    "mnasnet0_5": {},
    "efficientnet_b0": {},
    "regnet_y_400mf": {},
    "densenet121": {},
    "googlenet": {},
    "convnext_tiny": {},
    "swin_t": {},
    "lraspp_mobilenet_v3_large": {},
    "deeplabv3_mobilenet_v3_large": {},
    "fcn_resnet50": {},
}
_SMALL_VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "patch_size": 16,
}
_SMALL_SWIN = {"embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8]}
_SMALL_CONVNEXT = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "vit": _SMALL_VIT,
    "deit": _SMALL_VIT,
    "beit": _SMALL_VIT,
    "dinov2": {key: value for key, value in _SMALL_VIT.items() if key != "intermediate_size"},
    "swin": _SMALL_SWIN,
    "convnextv2": _SMALL_CONVNEXT,
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
    "mobilenet_v2": {"depth_multiplier": 0.35},
    "segformer": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16},
    "mobilevit": {},
}
SMP: dict[str, dict[str, Any]] = {
    "unet:resnet18": {},
    "unetplusplus:mobilenet_v2": {},
    "fpn:timm-mobilenetv3_small_100": {},
    "linknet:resnet18": {},
    "pspnet:resnet18": {},
    "deeplabv3plus:mobilenet_v2": {},
    "segformer:mit_b0": {},
}


def networks_of(library: str) -> dict[str, dict[str, Any]]:
    """The names of a library's chosen networks, with the parameters that make them small."""
    if library != "timm":
        return {"torchvision": TORCHVISION, "hf": TRANSFORMERS, "smp": SMP}[library]
    chosen = json.loads(CHOICE.read_text())["networks"]
    return {entry["name"]: {} for entry in sorted(chosen, key=lambda entry: entry["weights"])}


def choose_timm() -> None:
    """Writes the smallest networks of each family of timm: two if the smallest is one made for tests."""
    import timm

    chosen, too_large = [], []
    for family in timm.list_modules():
        sizes = sorted((weights_of(name), name) for name in timm.list_models(module=family))
        ordinary = [one for one in sizes if not one[1].startswith("test_")]
        if not ordinary:
            continue
        if sizes[0][0] > MOST_WEIGHTS:
            too_large.append(family)
            continue
        for weights, name in dict.fromkeys((sizes[0], ordinary[0])):
            chosen.append({"family": family, "name": name, "weights": weights})
            print(family, name, weights, flush=True)
    choice = {"timm": version("timm"), "too_large": too_large, "networks": chosen}
    CHOICE.write_text(json.dumps(choice, indent=1) + "\n")


def weights_of(name: str) -> int:
    import timm
    import torch

    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False)
    return sum(weight.numel() for weight in model.parameters())


# One network, in a process of its own.


class Trial:
    """The steps of one network; each prints its result, so that a time limit leaves the earlier ones."""

    def __init__(self, model: str, params: dict[str, Any], *, device: str) -> None:
        self._model, self._params, self._device = model, params, device
        self._options: dict[str, Any] = {}

    def run(self) -> None:
        outcome, found = attempt(self._find_size)
        say("size", {**outcome, **found})
        if outcome["outcome"] != "ok":
            return
        for step in STEPS:
            begun_s = time.perf_counter()
            make = self._verify if step == "verify" else partial(self._train, stages=stages_of(step))
            outcome, found = attempt(make)
            say(step, {**outcome, **found, "seconds": round(time.perf_counter() - begun_s, 1)})

    def _find_size(self) -> dict[str, Any]:
        """The smallest images that the network accepts."""
        from drivetrain.models.libraries.library import library_for

        library, name = library_for(self._model)
        facts = library.facts(name, params=self._params)
        is_dense = facts.task == "segmentation"
        self._options = {
            "model": self._model,
            "model_params": self._params,
            "dataset": "synthetic-em" if is_dense else "synthetic",
        }
        channels = 1 if is_dense else 3
        side, weights = smallest_side(library, name, params=self._params, channels=channels, facts=facts)
        self._options["image_size"] = side
        return {"image_size": side, "weights": weights}

    def _train(self, *, stages: int) -> dict[str, Any]:
        import drivetrain

        layout: dict[str, Any] = {"stages": stages, "device_mapping": (0,) * stages} if stages > 1 else {}
        with tempfile.TemporaryDirectory() as folder:
            result = drivetrain.train(
                **self._options,
                output_dir=folder,
                device=self._device,
                dataset_size=16,
                micro_batch_size=2,
                global_batch_size=8,
                max_updates=UPDATES,
                learning_rate=0.001,
                validation=False,
                compile="off",
                quiet=True,
                **layout,
            )
            losses = losses_in(Path(folder))
        if not losses or not all(map(isfinite, losses)):
            return {"outcome": "not finite", "why": f"losses {losses}"}
        return {"losses": losses, "status": result.status}

    def _verify(self) -> dict[str, Any]:
        import drivetrain

        certificate = drivetrain.certify(**self._options, quick=True)
        refused = [one["reason"] for one in certificate["not_possible"]]
        different = [row["layout"] for row in certificate["layouts"] if not row["ok"]]
        if not certificate["ok"]:
            rows = [row for row in certificate["layouts"] if not row["ok"]]
            return {"outcome": "different", "why": "; ".join(different), "rows": rows}
        if refused:
            return {"outcome": "refused", "why": refused[0]}
        return {"layouts": len(certificate["layouts"])}


def losses_in(run: Path) -> list[float]:
    import numpy as np

    with np.load(run / "updates.npz") as updates:
        return [float(loss) for loss in updates["loss"]]


def stages_of(step: str) -> int:
    return int(step.split()[0]) if step.endswith("stages") else 1


def smallest_side(
    library: Any, name: str, *, params: dict[str, Any], channels: int, facts: Any
) -> tuple[int, int]:
    """The first side for which a forward pass in training mode succeeds, and the number of weights."""
    import torch

    failure: Exception | None = None
    smallest, largest = facts.min_image_size, facts.image_size
    sides = sorted({side for side in SIDES if smallest <= side <= largest} | {largest})
    for side in sides:
        try:
            model = library.build(
                name,
                channels=channels,
                image_size=side,
                num_classes=2 if facts.task == "segmentation" else 10,
                task=facts.task or "classification",
                params=params,
            )
            model.train()(torch.zeros(2, channels, side, side))
            return side, sum(weight.numel() for weight in model.parameters())
        except Exception as error:
            failure = error
    assert failure is not None
    raise failure


def attempt(work: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What work returned, and whether it was refused in a sentence or has crashed."""
    from drivetrain.core.errors import DrivetrainError

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome, found = {"outcome": "ok"}, work()
        except DrivetrainError as error:
            outcome, found = {"outcome": "refused", "why": str(error)}, {}
        except Exception as error:
            last = traceback.format_exc().splitlines()[-24:]
            outcome, found = (
                {"outcome": "crashed", "why": f"{type(error).__name__}: {error}"},
                {"trace": last},
            )
    said = [str(one.message) for one in caught if "--" in str(one.message)]
    return outcome, {**found, **({"warnings": said} if said else {})}


def say(step: str, found: dict[str, Any]) -> None:
    print(f"RESULT {json.dumps([step, found])}", flush=True)


# All networks.


def run_apart(model: str, *, params: dict[str, Any], device: str, limit_s: float) -> dict[str, Any]:
    """The results of a network's process, which is ended when its time is over."""
    command = [sys.executable, __file__, "--one", model, "--params", json.dumps(params), "--device", device]
    begun_s = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        errors = f"the time limit of {limit_s:g} s is over"
    steps = dict(results_in(out))
    missing = next((step for step in ("size", *STEPS) if step not in steps), None)
    if missing is not None and steps.get("size", {}).get("outcome", "ok") == "ok":
        why = errors.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        steps[missing] = {"outcome": "crashed", "why": why[0]}
    return {"steps": steps, "seconds": round(time.perf_counter() - begun_s, 1)}


def results_in(out: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in out.splitlines():
        if line.startswith("RESULT "):
            step, found = json.loads(line.removeprefix("RESULT "))
            yield step, found


def wanted(args: argparse.Namespace, *, known: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The networks to run: chosen by the options, and not in the output file yet."""
    for library in args.only:
        chosen = [
            (name, params) for name, params in networks_of(library).items() if fnmatch(name, args.match)
        ]
        for name, params in chosen[: args.limit]:
            if f"{library}/{name}" not in known:
                yield f"{library}/{name}", params


def passed_in(path: Path) -> set[str]:
    """The networks of a result file that passed every step."""
    networks = json.loads(path.read_text())["networks"]
    return {
        model
        for model, found in networks.items()
        if all(found["steps"].get(step, {}).get("outcome") == "ok" for step in STEPS)
    }


def summary_of(networks: dict[str, Any]) -> dict[str, dict[str, int]]:
    """For each library, how many networks have which outcome in a step."""
    counts: dict[str, Counter[str]] = {}
    for model, found in networks.items():
        row = counts.setdefault(model.partition("/")[0], Counter())
        row["networks"] += 1
        row.update(
            f"{step}: {outcome['outcome']}" for step, outcome in found["steps"].items() if step != "size"
        )
    return {library: dict(sorted(row.items())) for library, row in counts.items()}


def print_networks(networks: dict[str, Any]) -> None:
    for model, found in sorted(networks.items()):
        outcomes = [found["steps"].get(step, {}).get("outcome", "-") for step in STEPS]
        print(f"{model:<44}", *(f"{outcome:<10}" for outcome in outcomes), f"{found['seconds']:>6}")
        for why in dict.fromkeys(step["why"] for step in found["steps"].values() if "why" in step):
            print(f"    {why}")
    print(json.dumps(summary_of(networks), indent=1))


def installed() -> dict[str, str]:
    found = {}
    for package in PACKAGES.values():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def run_all(args: argparse.Namespace) -> None:
    from drivetrain.bench.machine import describe_machine

    begun_s = time.perf_counter()
    path = Path(args.output)
    report = json.loads(path.read_text()) if path.exists() else {"networks": {}}
    networks = report["networks"]
    head = {
        "command": f"python benchmarks/library_networks.py {shlex.join(sys.argv[1:])}",
        "machine": describe_machine(args.device),
        "packages": installed(),
        "updates": UPDATES,
    }

    def run(one: tuple[str, dict[str, Any]]) -> None:
        model, params = one
        left_s = args.stop_after_s - (time.perf_counter() - begun_s)
        if left_s < args.limit_s / 4:
            return
        found = run_apart(model, params=params, device=args.device, limit_s=min(args.limit_s, left_s))
        networks[model] = found
        print(model, found["seconds"], {k: v["outcome"] for k, v in found["steps"].items()}, flush=True)
        ordered = dict(sorted(networks.items()))
        path.write_text(json.dumps({**head, "summary": summary_of(ordered), "networks": ordered}, indent=1))

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ThreadPoolExecutor(args.parallel) as pool:
        done = set().union(*map(passed_in, args.skip))
        list(pool.map(run, wanted(args, known=set(() if args.again else networks) | done)))
    print_networks(networks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(PACKAGES), choices=list(PACKAGES))
    parser.add_argument("--match", default="*", help="a shell pattern for names without the library")
    parser.add_argument("--limit", type=int, help="at most so many networks of each library")
    parser.add_argument("--parallel", type=int, default=1, help="processes at once")
    parser.add_argument("--limit-s", type=float, default=240.0, help="seconds for one network")
    parser.add_argument("--stop-after-s", type=float, default=1e9, help="seconds for all of them")
    parser.add_argument("--again", action="store_true", help="repeat networks that the output file holds")
    parser.add_argument("--skip", nargs="+", type=Path, default=[], help="leaves out what these files passed")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--output", default=str(FOLDER / "results" / f"library_networks-cpu-{os.cpu_count()}-cores.json")
    )
    parser.add_argument("--choose", action="store_true", help="choose the networks of timm anew")
    parser.add_argument("--one", metavar="MODEL", help="one network, whose results are printed")
    parser.add_argument("--params", type=json.loads, default={})
    args = parser.parse_args()
    if args.choose:
        choose_timm()
    elif args.one:
        Trial(args.one, args.params, device=args.device).run()
    else:
        run_all(args)


if __name__ == "__main__":
    main()
