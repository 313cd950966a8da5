"""`drivetrain models --from LIBRARY`: the models of a library, and what is known about one."""

from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from drivetrain.catalogue.libraries import is_library_model, library_info
from drivetrain.cli.listing.model_tables import format_shape, new_table, print_json, print_table
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import nearest_names
from drivetrain.models.libraries.library import LibraryModel, library_for, library_named

if TYPE_CHECKING:
    from rich.table import Table


def list_library(prefix: str, pattern: str | None, *, as_json: bool) -> None:
    """Prints the models of a library that match a shell pattern; a bare word matches anywhere."""
    library = library_named(library_info(prefix, option="--from"))
    known = library.names()
    names = _matching(known, (pattern or "*").removeprefix(f"{prefix}/"))
    if not names:
        raise BadInputError(
            f"PATTERN {pattern} matches no model of {prefix}.{nearest_names(pattern or '', known)}"
        )
    facts = [library.facts(name, params={}) for name in names]
    if as_json:
        print_json([asdict(fact) for fact in facts])
    else:
        print_table(_table(facts))


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    """The names that match; NAME.TAG, the weights of an architecture, only if the pattern has a dot."""
    folded = pattern.lower()
    if not any(character in folded for character in "*?["):
        folded = f"*{folded}*"
    return [
        name for name in names if fnmatchcase(name.lower(), folded) and ("." in folded or "." not in name)
    ]


def _table(facts: Sequence[LibraryModel]) -> "Table":
    table = new_table("model", "task", "image", "description", right=())
    for fact in facts:
        shape = format_shape((fact.channels, fact.image_size, fact.image_size))
        table.add_row(fact.name, fact.task or "both", shape, fact.description)
    return table


def facts_of(name: str) -> LibraryModel | None:
    """What is known about a library's model; None for other models."""
    if not is_library_model(name):
        return None
    library, own_name = library_for(name)
    return library.facts(own_name, params={})


def facts_lines(facts: LibraryModel) -> list[str]:
    """Lines below the table of a model: the library's input size and normalisation, and its weights."""
    lines = [f"input size: {facts.image_size}x{facts.image_size}"]
    if facts.image_size_step > 1:
        lines[0] += f", any multiple of {facts.image_size_step}"
    if facts.mean is not None and facts.std is not None:
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (facts.mean, facts.std))
        lines.append(f"normalisation: mean {mean}; deviation {std} (pixels from 0 to 1)")
    if facts.origin is not None:
        lines.append(f"weights: {facts.origin}{f', licence {facts.license}' if facts.license else ''}")
    return lines
