"""Reads and writes safetensors files tensor by tensor, with a checksum.

The files are byte for byte those of the safetensors library; that library is not used because it makes two
copies of all tensors while it writes.
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

# In the order of the safetensors library, which sorts tensors from the last type here to the first.
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
    """A file whose checksum does not match; the message says which."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Writes one file; returns its length and checksum, which `read_tensors` needs."""
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
    """Reads a file and checks its checksum; the tensors are views of one buffer."""
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
    # As the library does: spaces up to a multiple of 8 bytes, so that the tensors start aligned.
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
