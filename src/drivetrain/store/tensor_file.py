"""Files of named tensors in the safetensors format, written and read tensor by tensor.

The bytes are those of the safetensors library, which makes two copies of all tensors on the way.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.core.files import open_atomically

__all__ = ["DamagedFileError", "read_tensors", "write_tensors"]

# From narrow to wide as the library has them; a file begins with the widest.
_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "C64": torch.complex64,
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_RANKS = {dtype: rank for rank, dtype in enumerate(_TYPES.values())}
_LENGTH = struct.Struct("<Q")


class DamagedFileError(Exception):
    """A file that is not what was written; the message says why."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Writes one file; returns its length and checksum, by which it is read again."""
    ordered = sorted(tensors.items(), key=lambda item: (-_RANKS[item[1].dtype], item[0]))
    head = _head(ordered)
    digest, length = hashlib.sha256(head), len(head)
    with open_atomically(path) as file:
        file.write(head)
        for _, tensor in ordered:
            content = _bytes_of(tensor)
            digest.update(content)
            file.write(content)
            length += len(content)
    return {"bytes": length, "sha256": digest.hexdigest()}


def read_tensors(path: Path, entry: Mapping[str, Any]) -> dict[str, Tensor]:
    """What `write_tensors` wrote, every byte of it proved; the tensors share one piece of memory."""
    content = bytearray(path.stat().st_size)
    with path.open("rb") as file:
        file.readinto(content)
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry["sha256"]:
        raise DamagedFileError(f"{path}: expected sha256 {entry['sha256'][:12]}, got {digest[:12]}")
    (length,) = _LENGTH.unpack_from(content)
    begin = _LENGTH.size + length
    looks = json.loads(content[_LENGTH.size : begin])
    return {
        name: _tensor(content, look, begin=begin) for name, look in looks.items() if name != "__metadata__"
    }


def _head(ordered: list[tuple[str, Tensor]]) -> bytes:
    looks, end = {}, 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        looks[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(looks, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH.size)
    return _LENGTH.pack(len(text)) + text


def _bytes_of(tensor: Tensor) -> memoryview:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    content: NDArray[np.uint8] = plain.view(torch.uint8).numpy()
    return content.data


def _tensor(content: bytearray, look: Mapping[str, Any], *, begin: int) -> Tensor:
    dtype, shape = _TYPES[look["dtype"]], look["shape"]
    first, last = look["data_offsets"]
    if first == last:
        return torch.empty(shape, dtype=dtype)
    count = (last - first) // dtype.itemsize
    return torch.frombuffer(content, dtype=dtype, count=count, offset=begin + first).view(shape)
