"""The identity of a run: options and facts that must not change when it is continued."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json
from drivetrain.recipe.fields import fields_with, written_value
from drivetrain.recipe.notes import Fact
from drivetrain.recipe.schema import Recipe, field_note

__all__ = ["check_same_identity", "identity_hash", "identity_of", "with_normalised_set"]

_STAGE_PRECISION = "stage_precision"
# Derived from the data or from Python objects, so not settings that could be given.
_FACTS = {
    "training_samples": "the number of training samples",
    "class_names": "the list of classes",
    "own_data": "the content of the data",
    "own_model": "the architecture of the model",
    _STAGE_PRECISION: "the precision of single stages (--stage-options)",
}
# Number of samples over which batch norm normalises, and the two options whose product it is.
_SET = "normalised_set"
_SET_FIELDS = (_MICRO, _GROUP) = ("micro_batch_size", "dbn_replica_group_size")
_REMEDY = "name another --output-dir, or use --overwrite to start afresh."


def identity_of(recipe: Recipe, *, global_batch: int) -> dict[str, Any]:
    """The options that must not change when a run is continued.

    The layout (replicas, stages, accumulation) may change as long as the global batch stays the same and,
    with batch norm, the number of samples it normalises over.
    """
    values = recipe.model_dump(mode="json")
    fixed = {name: value for name, value in values.items() if not field_note(name).may_change}
    # Of --stage-options, only the precision changes the results.
    precisions = {str(o["stage"]): o["precision"] for o in recipe.stage_options if "precision" in o}
    if precisions:
        fixed[_STAGE_PRECISION] = precisions
    return _with_set({**fixed, "global_batch_size": global_batch})


def with_normalised_set(identity: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The identity of a run whose batch norm normalises over `size` samples together."""
    return {**_with_set(identity), _SET: size}


def _with_set(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces the two options by their product, the normalised set.

    Runs of early versions stored the two options.
    """
    rest = {name: value for name, value in identity.items() if name not in _SET_FIELDS}
    if _SET in identity:
        return rest
    return {**rest, _SET: identity.get(_MICRO, 0) * identity.get(_GROUP, 1)}


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Eight characters for the name of a run directory; equal identities give equal hashes.

    The normalised set is hashed as a micro-batch with a group of 1, as early versions hashed it, so that
    their directories are found again.
    """
    rest = {name: value for name, value in identity.items() if name != _SET and not _is_later(name, value)}
    text = json.dumps({**rest, _MICRO: identity[_SET], _GROUP: 1}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _is_later(name: str, value: object) -> bool:
    """Whether an option was added later and is not used; hashing it would change existing directory names."""
    return name in fields_with(Fact.LATER) and value == _defaults()[name]


def check_same_identity(
    stored: Mapping[str, Any],
    asked: Mapping[str, Any],
    *,
    path: Path,
    check_data: Callable[[], None] | None = None,
) -> None:
    """Refuses to continue a run with another identity; the error names the first difference.

    Options that an older version did not store count as their defaults. `check_data` runs before facts about
    the data are compared, because its errors name the changed file.
    """
    known = {**_defaults(), **_with_set(stored)}
    facts = (set(asked) | set(stored)) & set(_FACTS)
    _compare(sorted(set(asked) - facts), known=known, asked=asked, path=path)
    if check_data is not None:
        check_data()
    _compare(sorted(facts), known=known, asked=asked, path=path)


def _compare(names: Sequence[str], *, known: Mapping[str, Any], asked: Mapping[str, Any], path: Path) -> None:
    for name in names:
        before, now = known.get(name), asked.get(name)
        if before == now:
            continue
        if name != _SET:
            raise BadInputError(_refusal(name, before=before, now=now, path=path))
        if _has_batch_norm(path):
            raise BadInputError(_refusal_of_set(before=known[_SET], now=asked[_SET], path=path))


@cache
def _defaults() -> Mapping[str, Any]:
    return Recipe().model_dump(mode="json")


def _has_batch_norm(path: Path) -> bool:
    """Whether the model of a run, or of the folds of a job, has buffers; True if no plan can be read."""
    for plan in (path / "plan.json", *path.glob("fold-*/plan.json")):
        with suppress(OSError, ValueError, KeyError):
            return bool(read_json(plan)["model"]["buffers"])
    return True


def _refusal(name: str, *, before: object, now: object, path: Path) -> str:
    if name in _FACTS:
        return f"{_FACTS[name]} is not what the run in {path} was started with; {_REMEDY}"
    option = "--" + name.replace("_", "-")
    same = f"leave out {option}" if before in (None, []) else f"give {option} {_shown(before)}"
    return (
        f"{option} is {_shown(now)} but the run in {path} was started with {_shown(before)}; {same}, "
        f"{_REMEDY}"
    )


def _refusal_of_set(*, before: int, now: int, path: Path) -> str:
    return (
        f"batch norm would normalise over {now} samples (--micro-batch-size x --dbn-replica-group-size) but "
        f"the run in {path} was started with {before}; make the product of both {before} (one replica: give "
        f"--micro-batch-size {before} --dbn-replica-group-size 1), {_REMEDY}"
    )


def _shown(value: object) -> str:
    if value in (None, []):
        return "its default"
    if isinstance(value, Mapping):
        return written_value({key: part for key, part in value.items() if part is not None})
    return written_value(tuple(value) if isinstance(value, list) else value)
