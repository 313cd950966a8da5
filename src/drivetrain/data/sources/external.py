"""A user's own factory of data sets, named on the command line as package.module:factory."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure, import_factory
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.arrays import is_array

AsSplits = Callable[[Any, Any], DataSplits]
"""Makes splits of training data and, where they are not None, validation data."""


def open_external(reference: str, *, data_dir: str | None, seed: int, as_splits: AsSplits) -> DataSplits:
    """What the factory returns: DataSplits, (train, validation), or one data set for training."""
    factory = import_factory(reference, option="--dataset")
    offered = {"data_dir": data_dir, "seed": seed}
    accepted = {name: value for name, value in offered.items() if _accepts(factory, name)}
    splits = _opened(_call(factory, reference, accepted), as_splits)
    if data_dir is None or "data_dir" in accepted:
        return splits
    ignored = f"--data-dir {data_dir} has no effect: {reference} takes no argument data_dir."
    return replace(splits, warnings=[*splits.warnings, ignored])


def _call(factory: Callable[..., Any], reference: str, arguments: dict[str, Any]) -> Any:
    try:
        return factory(**arguments)
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"--dataset {reference} failed: {describe_failure(error)}") from error


def _opened(result: Any, as_splits: AsSplits) -> DataSplits:
    if isinstance(result, DataSplits):
        return result
    if isinstance(result, tuple) and len(result) == 2 and not is_array(result[0]):
        return as_splits(*result)
    return as_splits(result, None)


def _accepts(factory: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(factory).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD
        or (parameter.name == name and parameter.kind in named)
        for parameter in parameters
    )
