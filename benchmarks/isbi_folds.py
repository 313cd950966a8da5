"""ISBI 2012, one recipe, fold by fold: soft and hard Dice, V_Rand, V_Info and minutes.

    python benchmarks/isbi_folds.py isbi_unet --data-dir DIR --folds 0 1 2 3 4 --output FILE.json

Folds that FILE already holds are kept, so that a call may bring one fold after another; the means appear
once all five are there, and for five folds in one call the seconds since the process began. Weights are not
kept. `--option NAME=VALUE` replaces a value of the recipe, and is written into the file. `--last-weights`
measures the last weights of each fold in the ways of isbi_weights.py, too.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from isbi_weights import measure_last_weights

import drivetrain
from drivetrain.bench.machine import describe_machine
from drivetrain.recipe.load import resolve_recipe
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import read_metrics

FOLDS = 5
# What differs from `drivetrain crossval --config RECIPE --folds 5`: compiled, and no weights kept.
ALWAYS = {"compile": "on", "checkpoints": "False"}
WITH_LAST_WEIGHTS = {"compile": "on", "checkpoints": "True", "checkpoint_every": "100000"}


def run_fold(
    recipe: str, fold: int, *, data_dir: str, options: dict[str, str], last_weights: bool
) -> dict[str, Any]:
    """Trains one fold in a directory that does not stay."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        values: dict[str, Any] = dict(options)
        values |= {"folds": FOLDS, "fold": fold, "data_dir": data_dir, "output_dir": f"{folder}/run"}
        result = drivetrain.train(recipe, **values)
        minutes = (time.perf_counter() - started) / 60
        directory = RunDirectory(result.directory)
        validations = [entry for entry in read_metrics(directory.metrics) if entry["event"] == "validation"]
        summary = result.metrics
        measured = measure_last_weights(result.directory) if last_weights else None
    return {
        "fold": fold,
        "minutes": round(minutes, 3),
        "first_update_minutes": round(summary["compile_seconds"] / 60, 3),
        "updates": summary.get("capture"),
        "images_per_second": summary["images_per_second"],
        "peak_memory_bytes": summary["peak_memory_bytes"],
        "seconds": summary["seconds"],
        "last": validations[-1],
        "best": max(validations, key=lambda entry: entry["dice"]),
        "validations": [[entry["update"], round(entry["dice"], 5)] for entry in validations],
        "validated_after_seconds": [round(entry["elapsed_seconds"], 2) for entry in validations],
        **({} if measured is None else {"last_weights": measured}),
    }


def means(folds: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all folds: at the last evaluation, at each one's best, at the point that is best on average."""
    points = list(zip(*(dict(fold["validations"]).items() for fold in folds), strict=True))
    by_point = {point[0][0]: sum(dice for _, dice in point) / len(folds) for point in points}
    best_update = max(by_point, key=lambda update: by_point[update])
    names = ("dice", "hard_dice", "iou", "pixel_accuracy", "v_rand", "v_info")
    return {
        "last": {name: _mean([fold["last"][name] for fold in folds]) for name in names},
        "last_dice_deviation": statistics.stdev(fold["last"]["dice"] for fold in folds),
        "best_of_each_fold": {"dice": _mean([fold["best"]["dice"] for fold in folds])},
        "best_evaluation_point": {"update": best_update, "dice": by_point[best_update]},
        "minutes_per_fold": _mean([fold["minutes"] for fold in folds]),
        **_means_of_last_weights([fold["last_weights"] for fold in folds if "last_weights" in fold]),
    }


def _means_of_last_weights(folds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    if len(folds) < FOLDS:
        return {}
    rows = {
        way: {name: _mean([fold[way][name] for fold in folds]) for name in row}
        for way, row in folds[0].items()
    }
    return {"last_weights": rows}


def _command(args: argparse.Namespace) -> str:
    options = "".join(f" --option {option}" for option in args.option)
    options += " --last-weights" if args.last_weights else ""
    return f"python benchmarks/isbi_folds.py {args.recipe} --data-dir DIR{options} --output FILE"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--folds", type=int, nargs="+", default=list(range(FOLDS)))
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--last-weights", action="store_true")
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    options = dict(WITH_LAST_WEIGHTS if args.last_weights else ALWAYS)
    options |= dict(option.split("=", 1) for option in args.option)
    path = Path(args.output)
    stored = json.loads(path.read_text()) if path.is_file() else {"folds": []}
    done = {fold["fold"]: fold for fold in stored["folds"]}
    for fold in args.folds:
        done[fold] = run_fold(
            args.recipe, fold, data_dir=args.data_dir, options=options, last_weights=args.last_weights
        )
        folds = [done[number] for number in sorted(done)]
        report: dict[str, Any] = {
            "command": _command(args),
            "recipe": args.recipe,
            "fold_scheme": resolve_recipe(config=args.recipe, overrides=options).recipe.fold_scheme,
            "options": options,
            "machine": describe_machine("auto"),
            "folds": folds,
        }
        if len(folds) == FOLDS:
            report["mean"] = means(folds)
        if len(args.folds) == FOLDS:
            report["wall_seconds_of_the_process"] = round(time.time() - psutil.Process().create_time(), 1)
        path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
