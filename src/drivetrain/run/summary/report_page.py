"""README.md of a run directory: the result in a few lines, and what each file is."""

from typing import Any

from drivetrain.catalogue.metrics import shown_metric
from drivetrain.console.figures import plain_numbers, score_table, speed_text
from drivetrain.core.files import write_atomically
from drivetrain.recipe.schema import Recipe
from drivetrain.store.best import Best
from drivetrain.store.directory import PYTHON_DATA, RunDirectory

_FILES = {
    "curves.png": "loss and score (accuracy or Dice) over the updates",
    "predictions/validation.png": "validation images with the model's predictions, mistakes first",
    "examples/": "validation images for `drivetrain report`: those behind the confusion matrix and the "
    "worst, or images with their true and predicted masks",
    "images.csv": "metrics of every validation image",
    "confusion.csv": "validation samples by true and predicted class",
    "confusion.png": "the same as an image",
    "profile.png": "timeline of one update: one row per device",
    "profile.json": "the recorded updates as a Chrome trace, for ui.perfetto.dev",
    "metrics.jsonl": "training logs, validations and the final summary, one JSON object per line",
    "updates.npz": "loss, score and learning rate of every update",
    "recipe.yaml": "all options of the run, defaults included",
    "origins.json": "where the values of these options come from; options that are not listed are defaults",
    "environment.json": "device, processor, threads, precision, and the versions of torch and Python",
    "plan.json": "what the options mean for these data: batches, epochs, learning rate, model, executions "
    "(updates between two logs, validations or checkpoints)",
    "data.json": "image shape, classes and task of the data",
    "identity.json": "what must not change when the run is continued",
    "checkpoints/": "weights and optimiser state (safetensors, checksums in manifest.json)",
    "rank-0.log": "the output of the run, as on the terminal",
}
_COUNT = "validation_samples"
_SCORES_EXPLAINED = (
    "At the last validation. Soft Dice is computed from probabilities, as a mean over images; hard Dice and "
    "IoU from the most likely class of each pixel, over all pixels together. `dice` (soft), `hard_dice` "
    "and `iou` in `metrics.jsonl` are the means over classes, background included."
)


def write_readme(
    directory: RunDirectory, *, summary: dict[str, Any], recipe: Recipe, unit: str = "images"
) -> None:
    """Writes the page once a run is finished; `unit` is what the throughput counts."""
    lines = [f"# {directory.path.name}", "", f"`{recipe.model}` on `{recipe.dataset}`.", ""]
    lines += [
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in _results(summary, unit=unit).items()),
    ]
    lines += _by_class(summary)
    lines += _findings(summary)
    lines += ["", "![curves](curves.png)", ""]
    if (directory.predictions / "validation.png").is_file():
        lines += ["![predictions](predictions/validation.png)", ""]
    present = {name: what for name, what in _FILES.items() if (directory.path / name).exists()}
    lines += [
        "| file | what it is |",
        "| --- | --- |",
        *(f"| `{name}` | {what} |" for name, what in present.items()),
    ]
    lines += ["", f"Evaluate the run again: {_how_to_measure(directory, recipe)}"]
    write_atomically(directory.path / "README.md", ("\n".join(lines) + "\n").encode())


def _results(summary: dict[str, Any], *, unit: str) -> dict[str, str]:
    results: dict[str, str] = {}
    if "validation" in summary:
        results["best checkpoint"] = f"{Best.from_json(summary['best']).sentence()}; see `--best-by`"
        numbers = plain_numbers(summary["validation"])
        first = summary["best"]["metric"]
        names = sorted(numbers, key=lambda name: name != first)
        results |= {f"last validation {shown_metric(name)}": f"{numbers[name]:.4f}" for name in names}
        results["validation samples"] = str(summary["validation"][_COUNT])
    results["time to train"] = f"{summary['time_to_train_seconds']:.1f} s"
    results["throughput"] = f"{speed_text(summary['images_per_second'])} {unit}/s"
    results["device"] = str(summary["device"])
    return results


def _by_class(summary: dict[str, Any]) -> list[str]:
    """The scores of each class at the last validation, foreground first, and how they are computed."""
    rows = score_table(summary.get("validation", {}))
    if not rows:
        return []
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return ["", lines[0], "|" + " --- |" * len(rows[0]), *lines[1:], "", _SCORES_EXPLAINED]


def _findings(summary: dict[str, Any]) -> list[str]:
    """What stands out, and what helps."""
    found = summary.get("findings", [])
    return ["", "What stands out:", "", *(f"- {finding}" for finding in found)] if found else []


def _how_to_measure(directory: RunDirectory, recipe: Recipe) -> str:
    if recipe.dataset == PYTHON_DATA or recipe.model.startswith("__main__:"):
        return (
            f"`drivetrain.evaluate({str(directory.path)!r}, model=..., data=...)` in Python, with the "
            "model and the data that were given there."
        )
    return f"`drivetrain evaluate {directory.path}`."
