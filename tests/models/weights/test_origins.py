"""Published files: where a cache has them, and how they get there. The hub is a stand-in."""

import hashlib
import json
from pathlib import Path

import pytest

from drivetrain.models.weights.origins import HubFile, UrlFile
from tests.models.libraries.stand_ins import use_stand_ins


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a repository on the hub; the local cache is empty."""
    use_stand_ins(monkeypatch)
    monkeypatch.setenv("HUB_STAND_IN", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "hub" / "lib--net" / "v1"
    folder.mkdir(parents=True)
    return folder


NAMES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


@pytest.mark.parametrize(("held", "taken"), [(NAMES, NAMES[0]), (NAMES[2:], NAMES[2])])
def test_the_first_file_that_the_repository_has(hub: Path, held: tuple[str, ...], taken: str) -> None:
    origin = HubFile("lib/net", NAMES, "v1")
    for name in held:
        (hub / name).write_text(name)
    assert origin.cached() is None
    assert origin.size_bytes() == len(taken)
    origin.download()
    found = origin.cached()
    assert found is not None
    assert (found.name, found.read_text()) == (taken, taken)
    assert HubFile("lib/net", NAMES, "v2").cached() is None


def test_the_parts_that_an_index_names(hub: Path) -> None:
    origin = HubFile("lib/net", NAMES, "v1")
    (hub / NAMES[1]).write_text(json.dumps({"weight_map": {"a": "part-1.safetensors"}}))
    (hub / "part-1.safetensors").write_text("tensors")
    origin.download()
    found = origin.cached()
    assert found is not None
    assert found.name == NAMES[1]
    assert origin.size_bytes() is None
    found.with_name("part-1.safetensors").unlink()
    assert origin.cached() is None


def test_a_repository_without_weights(hub: Path) -> None:
    assert hub.is_dir()
    with pytest.raises(FileNotFoundError, match=r"the repository has none of model\.safetensors, "):
        HubFile("lib/net", NAMES, "v1").download()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for a server."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    (tmp_path / "served").mkdir()
    return tmp_path / "served"


def test_an_address_is_kept_in_torch_s_folder(served: Path, tmp_path: Path) -> None:
    checksum = hashlib.sha256(b"weights").hexdigest()[:8]
    (served / f"net-{checksum}.pth").write_bytes(b"weights")
    origin = UrlFile((served / f"net-{checksum}.pth").as_uri(), has_checksum=True)
    place = tmp_path / "torch" / "hub" / "checkpoints" / f"net-{checksum}.pth"
    assert origin.cached() is None
    assert origin.size_bytes() == len(b"weights")
    assert str(place) in origin.how_to_place
    origin.download()
    assert origin.cached() == place


def test_a_download_with_another_checksum_is_not_kept(served: Path) -> None:
    (served / "net-01234567.pth").write_bytes(b"weights")
    address = (served / "net-01234567.pth").as_uri()
    with pytest.raises(RuntimeError, match="invalid hash value"):
        UrlFile(address, has_checksum=True).download()
    assert UrlFile(address).cached() is None
    UrlFile(address).download()
    assert UrlFile(address).cached() is not None


def test_a_server_that_does_not_answer(served: Path) -> None:
    assert UrlFile((served / "gone.pth").as_uri()).size_bytes() is None
