"""What a page is drawn with: uPlot, our own scripts and styles, in the order in which they are joined."""

from functools import cache
from importlib.resources import files

__all__ = ["page_script", "page_style", "uplot_licence"]

# A file may use what the files before it define.
SCRIPTS = (
    "elements",
    "words",
    "state",
    "theme",
    "tables",
    "chart_data",
    "touch",
    "chart",
    "curves",
    "comparison",
    "folds",
    "confusion",
    "pictures",
    "masks",
    "timeline",
    "bars",
    "recipe",
    "overview",
    "main",
)
STYLES = ("base", "parts", "charts", "pictures", "narrow", "print")


@cache
def page_script() -> str:
    """uPlot, and the page's script as one function that leaves a single name behind."""
    parts = "\n".join(_read(f"script/{name}.js") for name in SCRIPTS)
    return f'{_read("uplot/uPlot.min.js")}\n(() => {{\n"use strict";\n{parts}\n}})();\n'


@cache
def page_style() -> str:
    """The styles of uPlot and of the page."""
    return "\n".join([_read("uplot/uPlot.min.css"), *(_read(f"style/{name}.css") for name in STYLES)])


@cache
def uplot_licence() -> str:
    """The text that must go with every copy of uPlot."""
    return _read("uplot/LICENSE")


def _read(name: str) -> str:
    return files("drivetrain.report.page").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")
