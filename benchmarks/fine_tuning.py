"""Fine-tuning a network against training it from scratch, in the same number of updates: several seeds each.

    python benchmarks/fine_tuning.py --data-dir DIR [--device cuda] [--image-size 128] [--seeds 5]
        [--only fine-tuned 'from scratch*']

DIR holds train/ and val/ with a folder of photographs per class. A network is trained on the first half of
the classes (alphabetically), and its weights but those of the head are saved to a file. Every setting below
then trains the same network on the other half, which the file has not seen: the same images, augmentation,
batch, schedule and number of updates, and so the same work for the device; the head alone takes less. Written
are the validation accuracy, loss and seconds of every seed, and for each setting their means with 95 %
intervals (Student's t).
"""

import argparse
import json
import shlex
import shutil
import statistics
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

import drivetrain
from drivetrain.bench.machine import describe_machine
from drivetrain.models.heads import head_parameters

SCRIPT = "benchmarks/fine_tuning.py"
RECIPE = "fine_tune"
RESULTS = Path(__file__).parent / "results"
# From scratch with SGD: the usual rate and decay of ResNets; everything else is as in the recipe.
_SGD = {
    "optimizer": "sgd",
    "optimizer_params": {"momentum": 0.9},
    "learning_rate": 0.1,
    "weight_decay": 0.0005,
    "backbone_rate": 1.0,
}


def settings_of(weights: Path) -> dict[str, dict[str, Any]]:
    """What is compared, by a name for the table."""
    trained = {"init_from": str(weights)}
    return {
        "fine-tuned": trained,
        "fine-tuned, --layer-decay 0.75": {**trained, "backbone_rate": 1.0, "layer_decay": 0.75},
        "fine-tuned, --head-first-epochs 2": {**trained, "head_first_epochs": 2},
        "fine-tuned, --freeze-norm True": {**trained, "freeze_norm": True},
        "fine-tuned, one rate for all": {**trained, "backbone_rate": 1.0},
        "head alone, --freeze backbone": {**trained, "backbone_rate": 1.0, "freeze": ["backbone"]},
        "from scratch, AdamW": {"backbone_rate": 1.0},
        "from scratch, SGD": _SGD,
    }


def chosen_settings(weights: Path, *, patterns: list[str]) -> dict[str, dict[str, Any]]:
    """The settings whose names match one of the patterns."""
    return {
        name: setting
        for name, setting in settings_of(weights).items()
        if any(fnmatch(name, pattern) for pattern in patterns)
    }


def split_classes(data_dir: Path, target: Path) -> tuple[Path, Path]:
    """Two folders with half of the classes each, whose files are copies."""
    names = sorted(path.name for path in (data_dir / "train").iterdir() if path.is_dir())
    halves = target / "first", target / "second"
    middle = len(names) // 2
    for half, chosen in zip(halves, (names[:middle], names[middle:]), strict=True):
        for part in ("train", "val"):
            for name in chosen:
                shutil.copytree(data_dir / part / name, half / part / name)
    return halves


def train_once(folder: Path, *, seed: int, shared: dict[str, Any], **setting: Any) -> Any:
    """One training in a directory that does not stay."""
    with tempfile.TemporaryDirectory() as place:
        return drivetrain.train(
            RECIPE,
            dataset="image-folder",
            data_dir=str(folder),
            output_dir=f"{place}/run",
            checkpoints=False,
            seed=seed,
            quiet=True,
            **{**shared, **setting},
        )


def row_of(seed: int, result: Any) -> dict[str, float]:
    """What is kept of a training."""
    validation = result.metrics["validation"]
    return {
        "seed": seed,
        "updates": result.updates,
        "accuracy": validation["accuracy"],
        "loss": validation["loss"],
        "training_seconds": round(result.metrics["time_to_train_seconds"], 2),
    }


def summary_of(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Means over the seeds; those of accuracy and loss with the half-width of their 95 % interval."""
    found: dict[str, Any] = {"updates": runs[0]["updates"]}
    for name in ("accuracy", "loss"):
        values = [run[name] for run in runs]
        found[name] = {"mean": statistics.fmean(values), "interval_95": half_width(values)}
    found["training_seconds"] = round(statistics.fmean(run["training_seconds"] for run in runs), 2)
    return found


def half_width(values: list[float]) -> float | None:
    """How far the mean may be off, with 95 % confidence; one value alone does not say."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5)


def compare(data_dir: Path, *, args: argparse.Namespace) -> dict[str, Any]:
    """Trains the network on the first half of the classes, and every setting on the second."""
    shared = {
        "model": args.model,
        "image_size": args.image_size,
        "device": args.device,
        "compile": args.compile,
    }
    with tempfile.TemporaryDirectory() as place:
        first, second = split_classes(data_dir, Path(place))
        base = train_once(first, seed=0, shared=shared, **_SGD, num_epochs=args.base_epochs)
        weights = Path(place) / "first.safetensors"
        # Without the head: both halves have as many classes, and a head of that size would be taken over.
        head = set(head_parameters(base.model))
        backbone = {name: value for name, value in base.model.state_dict().items() if name not in head}
        save_file({name: value.contiguous() for name, value in backbone.items()}, weights)
        print(f"first half: accuracy {base.metrics['validation']['accuracy']:.4f}", flush=True)
        settings = chosen_settings(weights, patterns=args.only)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in settings}
        for seed in range(1, args.seeds + 1):
            for name, setting in settings.items():
                result = train_once(second, seed=seed, shared=shared, **setting, num_epochs=args.epochs)
                runs[name].append(row_of(seed, result))
                print(f"seed {seed}, {name}: {runs[name][-1]}", flush=True)
    return {
        "first_half": row_of(0, base),
        "settings": {name: {**summary_of(found), "runs": found} for name, found in runs.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--model", default="resnet18", help="(default: resnet18)")
    parser.add_argument("--image-size", type=int, default=128, help="(default: 128)")
    parser.add_argument("--base-epochs", type=int, default=60, help="on the first half (default: 60)")
    parser.add_argument("--epochs", type=int, default=20, help="of every setting (default: 20)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=["*"], help="shell patterns for the settings' names")
    parser.add_argument("--compile", default="auto", help="as of `drivetrain train` (default: auto)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="(default: benchmarks/results/fine_tuning-DEVICE.json)")
    args = parser.parse_args()
    sizes = f"--model {args.model} --image-size {args.image_size}"
    lengths = f"--base-epochs {args.base_epochs} --epochs {args.epochs} --seeds {args.seeds}"
    only = "" if args.only == ["*"] else f" --only {shlex.join(args.only)}"
    ways = f"--compile {args.compile} --device {args.device}{only}"
    report = {
        "command": f"python {SCRIPT} --data-dir DIR {sizes} {lengths} {ways}",
        "machine": describe_machine(args.device),
        "recipe": RECIPE,
        "model": args.model,
        "compared": "equal numbers of updates",
        **compare(args.data_dir, args=args),
    }
    output = args.output or RESULTS / f"fine_tuning-{args.device}.json"
    output.write_text(json.dumps(report, indent=1) + "\n")
    for name, found in report["settings"].items():
        accuracy, seconds = found["accuracy"], found["training_seconds"]
        interval = "" if accuracy["interval_95"] is None else f" +- {accuracy['interval_95']:.4f}"
        print(f"{name}: {accuracy['mean']:.4f}{interval} accuracy, {seconds:.1f} s of training")


if __name__ == "__main__":
    main()
