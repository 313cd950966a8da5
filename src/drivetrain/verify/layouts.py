"""Parses `--layouts`. Imports no torch."""

from collections.abc import Callable
from typing import Any, get_args

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean
from drivetrain.recipe.checks.pipeline import check_pipeline
from drivetrain.recipe.given import Given
from drivetrain.recipe.messages import COMMAND_LINE
from drivetrain.recipe.params import SplitBy
from drivetrain.recipe.plain import schedule_name
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from drivetrain.verify.cuts import Cut

__all__ = ["parse_cuts"]

# Settings that mirror an option of `train`: given without stages, they are refused by that option's rule.
_OPTIONS = {"split_by": "split_by", "schedule": "pipeline_schedule", "mapping": "device_mapping"}

_SPLITS_BY: tuple[str, ...] = get_args(get_args(SplitBy)[0])


def parse_cuts(text: str) -> tuple[Cut, ...]:
    """The layouts in a text such as 'replicas=2,accumulation=2;stages=2,schedule=gpipe'."""
    return tuple(_parse_cut(part, whole=text) for part in text.split(";") if part.strip())


def _whole_number(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdecimal() and int(value) > 0 else None


def _one(value: str) -> int | None:
    return 1 if value == "1" else None


def _names(value: str) -> tuple[str, ...] | None:
    return tuple(value.split()) or None


def _numbers(value: str) -> tuple[int, ...] | None:
    parts = value.split()
    return tuple(map(int, parts)) if parts and all(p.isascii() and p.isdecimal() for p in parts) else None


def _schedule(value: str) -> str | None:
    name = str(schedule_name(value))
    return name if name in SCHEDULE_NAMES else None


def _split_by(value: str) -> str | None:
    return value.lower() if value.lower() in _SPLITS_BY else None


def _stage_choice(value: str) -> bool | tuple[int, ...] | None:
    return True if value.lower() == "true" else _numbers(value)


# For each setting: its parser (None for a bad value), what the error asks for, and a value that works.
_READERS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    **dict.fromkeys(
        ("replicas", "accumulation", "group", "stages"),
        (_whole_number, "one whole number of at least 1", "2"),
    ),
    "splits": (_names, "the first layer of each stage after the first", "LAYER LAYER"),
    "split_by": (_split_by, f"one of {', '.join(_SPLITS_BY)}", "parameters"),
    "schedule": (_schedule, f"one of {', '.join(SCHEDULE_NAMES)}", "gpipe"),
    "mapping": (_numbers, "the device of each stage", "0 1 1 0"),
    "recomputation": (_stage_choice, "true, or the numbers of stages", "true"),
    "offloading": (_stage_choice, "true, or the numbers of stages", "true"),
    "processes": (_one, "1 (one process runs all stages)", "1"),
}


def _parse_cut(part: str, *, whole: str) -> Cut:
    settings: dict[str, Any] = {}
    for setting in part.split(","):
        word, _, value = (piece.strip() for piece in setting.partition("="))
        if word not in _READERS:
            raise BadInputError(
                f"--layouts {whole}: {word or setting} is not a layout setting."
                f"{did_you_mean(word, _READERS)} Write a layout as replicas=2,accumulation=2,group=2 or "
                "stages=2,schedule=gpipe, and separate layouts with ;."
            )
        read, needed, works = _READERS[word]
        found = read(value)
        if found is None or word in settings:
            raise BadInputError(f"--layouts {whole}: {word} needs {needed}, as in {word}={works}.")
        settings[word] = found
    if "splits" in settings:
        settings.setdefault("stages", len(settings["splits"]) + 1)
    cut = Cut(**settings)
    _check_replicas(cut, whole=whole)
    _check_stages(cut, given=settings, whole=whole)
    return cut


def _check_replicas(cut: Cut, *, whole: str) -> None:
    if cut.replicas % cut.group:
        raise BadInputError(
            f"--layouts {whole}: group={cut.group} does not divide {cut.replicas} replicas; "
            f"replicas={cut.group},group={cut.group} works."
        )
    if cut.processes is not None and (cut.replicas > 1 or cut.devices == 1):
        raise BadInputError(
            f"--layouts {whole}: processes=1 runs all stages of one replica in one process; "
            "stages=2,processes=1 works."
        )


def _check_stages(cut: Cut, *, given: dict[str, Any], whole: str) -> None:
    """Applies the checks of `--stages` and the other pipeline options to a layout."""
    recipe = Recipe().model_copy(update=cut.pipeline_changes())
    origins = {option: COMMAND_LINE for word, option in _OPTIONS.items() if word in given}
    try:
        check_pipeline(Given(recipe, origins))
    except BadInputError as error:
        raise BadInputError(f"--layouts {whole}: {error}") from error
