"""Reads the python form of CIFAR, which is a pickle, without letting it run anything."""

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError

_MOST_BYTES = 512 * 2**20


class _Bytes:
    """Stands for the type of an array's elements, which must be bytes."""

    def __init__(self, code: Any, *_flags: Any) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"it holds an array of {code!r} instead of bytes")

    def __setstate__(self, _state: Any) -> None:
        """Bytes have no order or alignment to be told."""


class _Array:
    """Takes in an array as the pickle describes it; numpy's own way of doing so trusts the file."""

    pixels: NDArray[np.uint8]

    def __init__(self, *_template: Any) -> None:
        self.pixels = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: Any) -> None:
        _version, shape, kind, is_fortran, content = state
        if not isinstance(kind, _Bytes) or not isinstance(content, bytes) or is_fortran:
            raise pickle.UnpicklingError("it holds an array that is no plain array of bytes")
        self.pixels = np.frombuffer(content, dtype=np.uint8).reshape(shape)


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Bytes,
}


class _ArraysOnly(pickle.Unpickler):
    """Admits plain values and byte arrays; every other name in the pickle is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no such file needs")
        return _ADMITTED[module, name]


def read_cifar_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a file, its keys as text and its arrays as bytes."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise pickle.UnpicklingError(f"it has more than {_MOST_BYTES} bytes")
        content = _ArraysOnly(BytesIO(path.read_bytes()), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__} instead of a dictionary")
    # A broken pickle ends in exceptions of every kind.
    except Exception as error:
        state = "truncated" if isinstance(error, EOFError) or "truncated" in str(error) else "corrupt"
        raise BadInputError(
            f"{path} is {state} ({error}); fetch it again, or name another folder by --data-dir DIR."
        ) from error
    return {_as_text(key): _as_plain(value) for key, value in content.items()}


def _as_text(key: Any) -> str:
    return key.decode(errors="replace") if isinstance(key, bytes) else str(key)


def _as_plain(value: Any) -> Any:
    return value.pixels if isinstance(value, _Array) else value
