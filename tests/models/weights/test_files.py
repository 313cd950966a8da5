"""Weights in files and folders of other programs: what is read, and what is refused in a sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.models.weights.files import read_weights


def read(path: Path) -> dict[str, Tensor]:
    tensors, warnings = read_weights(str(path), option="--pretrained")
    assert warnings == []
    return tensors


def refusal(path: Path) -> str:
    with pytest.raises(BadInputError) as caught:
        read_weights(str(path), option="--pretrained")
    message = str(caught.value)
    assert message.startswith(f"--pretrained {path}")
    assert "\n" not in message
    return message


def safe(path: Path, **tensors: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: torch.tensor([value]) for name, value in tensors.items()}, path)


def pickled(path: Path, **tensors: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({name: torch.tensor([value]) for name, value in tensors.items()}, path)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("model.safetensors", "pytorch_model.bin", "other.safetensors"), "model.safetensors"),
        (("pytorch_model.bin", "training_args.bin"), "pytorch_model.bin"),
        (("resnet50-0676ba61.pth",), "resnet50-0676ba61.pth"),
        (("best.safetensors", "best.pt", "last.pt"), "best.safetensors"),
    ],
)
def test_a_folder_gives_the_file_that_a_library_would_read(
    tmp_path: Path, names: tuple[str, ...], taken: str
) -> None:
    for name in names:
        write = safe if name.endswith(".safetensors") else pickled
        write(tmp_path / name, a=float(name == taken))
    (tmp_path / "config.json").write_text("{}")
    assert read(tmp_path) == {"a": torch.ones(1)}


def test_a_repository_of_a_hub_s_cache(tmp_path: Path) -> None:
    for commit in ("older", "newer"):
        safe(tmp_path / "snapshots" / commit / "model.safetensors", a=float(commit == "newer"))
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_text("newer")
    assert read(tmp_path) == {"a": torch.ones(1)}


@pytest.mark.parametrize(
    ("index", "ending", "write"),
    [("model.safetensors", ".safetensors", safe), ("pytorch_model.bin", ".bin", pickled)],
)
def test_weights_in_parts(tmp_path: Path, index: str, ending: str, write: Callable[..., None]) -> None:
    parts = {"a": f"part-1{ending}", "b": f"part-2{ending}", "c": f"part-2{ending}"}
    path = tmp_path / f"{index}.index.json"
    path.write_text(json.dumps({"weight_map": parts}))
    write(tmp_path / parts["a"], a=1.0)
    assert f"lacks {parts['b']}, which {path.name} names" in refusal(tmp_path)
    write(tmp_path / parts["b"], b=2.0, c=3.0)
    assert read(tmp_path) == {
        name: torch.tensor([value]) for name, value in {"a": 1.0, "b": 2.0, "c": 3.0}.items()
    }
    path.write_text("{")
    assert f"{path.name} is damaged; download it again." in refusal(tmp_path)


def test_an_index_does_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    safe(tmp_path / "secret.safetensors", a=1.0)
    (tmp_path / "in").mkdir()
    names = {"weight_map": {"a": "../secret.safetensors"}}
    (tmp_path / "in" / "model.safetensors.index.json").write_text(json.dumps(names))
    assert "lacks secret.safetensors" in refusal(tmp_path / "in")


def test_several_files_of_which_none_is_meant(tmp_path: Path) -> None:
    for name in ("one.pt", "two.pt"):
        pickled(tmp_path / name, a=1.0)
    assert refusal(tmp_path).endswith(
        "holds 2 files of weights, such as one.pt and two.pt; give one of them."
    )


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.safetensors", b"", "is an empty file; download or save the weights again."),
        ("a.pth", b"", "is an empty file; download or save the weights again."),
        ("a.safetensors", b"version https://git-lfs.github.com/spec/v1\noid", "is a pointer of Git LFS"),
        ("a.safetensors", b"<!DOCTYPE html><html>not found</html>", "cannot be read as safetensors ("),
        ("a.safetensors", b"x", "cannot be read as safetensors ("),
        ("a.bin", b"<!DOCTYPE html><html>not found</html>", "contains more than tensors, or is damaged"),
        ("a.npz", b"x", "is neither a run directory nor a .safetensors, .pt, .pth or .bin file"),
    ],
)
def test_files_that_are_not_weights(tmp_path: Path, name: str, content: bytes, part: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert part in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth"])
def test_a_file_that_was_cut_off(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    (safe if name.endswith(".safetensors") else pickled)(path, a=1.0, b=2.0)
    path.write_bytes(path.read_bytes()[:-5])
    assert "again" in refusal(path) or "is damaged" in refusal(path)


def test_a_file_of_the_older_format_that_is_damaged_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.save({"a": torch.ones(1)}, path, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()
    for end in range(1, len(whole) - 1, 5):
        path.write_bytes(whole[:end])
        assert "is damaged" in refusal(path)
