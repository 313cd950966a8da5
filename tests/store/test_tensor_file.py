from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from drivetrain.store.tensor_file import DamagedFileError, read_tensors, write_tensors

TYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def _tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    plain = {
        f"{dtype} of several": torch.randint(0, 2, (3, 5), generator=generator).to(dtype) for dtype in TYPES
    }
    numbers = {f"{dtype}": torch.tensor(1).to(dtype) for dtype in TYPES}
    flat = torch.rand(120, generator=generator)
    odd = {
        'a "name"\\ü': flat[7:31].view(2, 3, 4),
        "channels last": flat[:48].view(2, 2, 4, 3).permute(0, 3, 1, 2),
        "without elements": torch.empty(0, 3),
    }
    return {**plain, **numbers, **odd}


def test_the_bytes_are_those_of_the_library(tmp_path: Path) -> None:
    tensors = _tensors()
    write_tensors(tmp_path / "file", tensors)
    expected = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    assert (tmp_path / "file").read_bytes() == expected
    assert load_file(tmp_path / "file").keys() == tensors.keys()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    tensors = _tensors()
    found = read_tensors(tmp_path / "file", write_tensors(tmp_path / "file", tensors))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    assert read_tensors(tmp_path / "none", write_tensors(tmp_path / "none", {})) == {}


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    entry = write_tensors(tmp_path / "file", _tensors())
    content = bytearray((tmp_path / "file").read_bytes())
    content[-1] ^= 1
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DamagedFileError, match="expected sha256"):
        read_tensors(tmp_path / "file", entry)
