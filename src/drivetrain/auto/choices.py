"""Says what was found in a folder and what rules chose for it."""

from drivetrain.console.reporter import Reporter
from drivetrain.recipe.fields import option_name, plain_value, written_value
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["choice_rows", "show_choices"]

_MAIN = ("model", "model_width", "image_size", "tile_size", "num_epochs", "optimizer", "learning_rate")


def choice_rows(resolved: ResolvedRecipe) -> list[tuple[str, str, str]]:
    """Option, value and reason of everything that rules chose."""
    return [
        (option_name(field), written_value(plain_value(getattr(resolved.recipe, field))), reason)
        for field, reason in resolved.reasons.items()
    ]


def show_choices(resolved: ResolvedRecipe, *, reporter: Reporter) -> None:
    """Prints the sentences about the folder, and the main choices in one line."""
    for note in resolved.notes:
        reporter.say(note)
    rows = choice_rows(resolved)
    if not rows:
        return
    named = {option_name(field) for field in _MAIN}
    main = " ".join(f"{option} {value}" for option, value, _ in rows if option in named)
    reporter.say(f"chosen from your data: {main}; recipe.yaml has all {len(rows)} choices with their reasons")
    for option, value, reason in rows:
        reporter.detail(f"{option} {value}: {reason}")
