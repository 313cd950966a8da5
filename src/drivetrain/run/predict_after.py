"""Train, then predict, in one call: `--predict-after`."""

from dataclasses import replace

from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import RunFailedError
from drivetrain.inference.predict.inputs import InputNotes, expand_inputs
from drivetrain.inference.predict.predict import predict_run
from drivetrain.recipe.schema import Recipe
from drivetrain.run.share import RunResult

__all__ = ["predict_after_training"]


def predict_after_training(
    recipe: Recipe, result: RunResult, *, reporter: Reporter, model: nn.Module | None
) -> RunResult:
    """Predicts what the recipe names with the newest checkpoint, into the run's predictions/.

    Where files had to be left out, the result's exit status says so, as that of `predict` does.
    """
    if not recipe.predict_after or result.status != "finished":
        return result
    notes = InputNotes()
    output = result.directory / "predictions"
    rows = predict_run(
        result.directory,
        expand_inputs(recipe.predict_after),
        output=output,
        reporter=reporter,
        device=recipe.device,
        model=model,
        notes=notes,
    )
    reporter.say(f"predicted: {len(rows)} images in {output}")
    return replace(result, exit_status=RunFailedError.exit_status) if notes.left_out else result
