"""Objects that yield batches each time they are iterated, which Keras itself does not know as data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from drivetrain.models.from_keras.package import import_keras

__all__ = ["as_batches"]


def as_batches(data: Any) -> Any:
    """The data; what only can be iterated again and again becomes a DataLoader, which Keras knows."""
    if not _is_only_iterable(data):
        return data
    return DataLoader(_Sized(data) if hasattr(data, "__len__") else _Iterated(data), batch_size=None)


class _Iterated(IterableDataset[Any]):
    """Yields the batches of another object."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


class _Sized(_Iterated):
    """The same of an object that knows how many batches it has."""

    def __len__(self) -> int:
        return len(self._batches)


def _is_only_iterable(data: Any) -> bool:
    """Whether an object is neither an array, nor several, nor data that Keras itself iterates."""
    kind = type(data)
    known = (DataLoader, Sequence, Mapping, import_keras().utils.PyDataset)
    is_array = hasattr(data, "__array__") or hasattr(data, "shape")
    # An iterator can be iterated once only; Keras takes it as a generator.
    is_iterator = hasattr(kind, "__next__")
    of_other_libraries = kind.__module__.partition(".")[0] in ("tensorflow", "grain", "keras", "ray")
    return hasattr(kind, "__iter__") and not (
        isinstance(data, known) or is_array or is_iterator or of_other_libraries
    )
