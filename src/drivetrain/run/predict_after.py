"""Train, then predict, in one call: `--predict-after`."""

from torch import nn

from drivetrain.recipe.schema import Recipe
from drivetrain.run.inputs import expand_inputs
from drivetrain.run.part import RunResult
from drivetrain.run.predict import predict_run
from drivetrain.run.reporter import Reporter

__all__ = ["predict_after_training"]


def predict_after_training(
    recipe: Recipe, result: RunResult, *, reporter: Reporter, model: nn.Module | None
) -> None:
    """Predicts what the recipe names with the newest checkpoint, into the run's predictions/."""
    if not recipe.predict_after or result.status != "finished":
        return
    output = result.directory / "predictions"
    rows = predict_run(
        result.directory,
        expand_inputs(recipe.predict_after),
        output=output,
        reporter=reporter,
        device=recipe.device,
        model=model,
    )
    reporter.say(f"predicted: {len(rows)} images in {output}")
