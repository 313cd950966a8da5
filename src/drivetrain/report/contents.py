"""What a page of runs holds, as plain values: collected from run directories, drawn by the page's script."""

from typing import Literal, NotRequired, TypedDict

from drivetrain.store.run_state import State

__all__ = [
    "Comparison",
    "ConfusionMatrix",
    "Curve",
    "Example",
    "Folds",
    "MaskExample",
    "PageContents",
    "RecipeValue",
    "RunContents",
    "Series",
    "Table",
    "TimelineRow",
    "UpdatePicture",
]

Cell = str | int | float | None


class Table(TypedDict):
    """A table for people: the first column names the row."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]


class Series(TypedDict):
    """One line of a chart; a value that is missing or not finite is None."""

    name: str
    x: list[int]
    y: list[float | None]


class Curve(TypedDict):
    """A chart over the updates."""

    id: str
    title: str
    unit: str
    lower_is_better: bool | None
    series: list[Series]


class RecipeValue(TypedDict):
    """One option of the recipe: its value, where it comes from, and the reason if a rule chose it."""

    group: str
    option: str
    value: str
    origin: str
    reason: NotRequired[str]


class Example(TypedDict):
    """A validation sample as a picture (a data URI)."""

    name: str
    image: str
    truth: NotRequired[str]
    predicted: NotRequired[str]
    loss: NotRequired[float]


class MaskExample(TypedDict):
    """An image with its true and predicted mask, as data URIs of the same size, and its scores."""

    name: str
    image: str
    truth: str
    predicted: str
    scores: dict[str, float]


class ConfusionMatrix(TypedDict):
    """Validation samples by true (row) and predicted (column) class; examples by "row,column"."""

    classes: list[str]
    counts: list[list[int]]
    examples: dict[str, list[Example]]


class Folds(TypedDict):
    """The folds of a cross-validation: a row for each, and the spread of each metric."""

    table: Table
    spread: Table


class TimelineRow(TypedDict):
    """The actions of one device: (kind, label, start, duration), in microseconds."""

    device: str
    actions: list[tuple[str, str, float, float]]


class UpdatePicture(TypedDict):
    """The schedule of an update: predicted or measured."""

    title: str
    source: Literal["predicted", "measured"]
    rows: list[TimelineRow]
    facts: list[tuple[str, str]]


class RunContents(TypedDict):
    """One run, or one cross-validation."""

    id: str
    name: str
    kind: Literal["training", "cross-validation"]
    state: State
    task: str
    headline: list[tuple[str, str]]
    facts: list[tuple[str, str]]
    command: str
    curves: list[Curve]
    recipe: list[RecipeValue]
    plan: list[Table]
    tables: list[Table]
    environment: list[tuple[str, str]]
    warnings: list[str]
    time: NotRequired[list[tuple[str, float]]]
    memory: NotRequired[Table]
    folds: NotRequired[Folds]
    confusion: NotRequired[ConfusionMatrix]
    masks: NotRequired[list[MaskExample]]
    worst: NotRequired[list[Example]]
    timeline: NotRequired[list[UpdatePicture]]


class Comparison(TypedDict):
    """Several runs: the settings that differ, and the results."""

    settings: Table
    results: Table


class PageContents(TypedDict):
    """A whole page; `notes` say what it leaves out.

    `versions` tells a live page, by the ids of its runs, which state of them it shows.
    """

    title: str
    created: str
    version: str
    runs: list[RunContents]
    comparison: NotRequired[Comparison]
    notes: NotRequired[list[str]]
    live: NotRequired[bool]
    versions: NotRequired[dict[str, str]]
