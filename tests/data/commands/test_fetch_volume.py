"""Volumes are downloaded as one file or page by page, and known by their pixels."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.errors import RunFailedError
from drivetrain.data.commands.fetch import fetch_dataset
from drivetrain.data.commands.fetch_table import PIXELS, RemoteDataset, RemoteFile
from drivetrain.data.commands.fetch_volume import is_whole_volume
from drivetrain.data.files.tiff_pages import pixel_digest, read_volume, write_pages
from tests.data.commands.local_server import Server, running_server

VOLUME = np.random.default_rng(5).integers(0, 256, (3, 16, 16)).astype(np.uint8)


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


def png(page: NDArray[np.uint8]) -> bytes:
    content = BytesIO()
    Image.fromarray(page).save(content, "PNG")
    return content.getvalue()


def offer_pages(server: Server, folder: str, volume: NDArray[np.uint8]) -> None:
    for number, page in enumerate(volume):
        server.files[f"{folder}/image/{number}.png"] = png(page)


def remote(server: Server, *folders: str) -> RemoteFile:
    return RemoteFile(
        name="v.tif",
        bytes=VOLUME.size,
        checksum=f"{PIXELS}:{pixel_digest(VOLUME)}",
        mirrors=tuple(f"{server.url}{folder}/" for folder in folders),
        page_names=tuple(f"image/{number}.png" for number in range(len(VOLUME))),
    )


def fetch(file: RemoteFile, folder: Path, *, mirror: str | None = None) -> tuple[list[str], list[int]]:
    said: list[str] = []
    seen: list[int] = []
    dataset = RemoteDataset(name="isbi2012", is_archive=False, groups=((file,),))
    fetch_dataset(
        dataset, folder, mirror=mirror, say=said.append, on_bytes=lambda _, there: seen.append(there)
    )
    return said, seen


def test_pages_become_one_file(server: Server, tmp_path: Path) -> None:
    offer_pages(server, "a", VOLUME)
    said, seen = fetch(remote(server, "a"), tmp_path / "new")
    assert np.array_equal(read_volume(tmp_path / "new" / "v.tif"), VOLUME)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["v.tif"]
    assert "v.tif is complete (pixels-sha256 verified)" in said[0]
    assert seen == [256, 512, 768]
    asked = len(server.asked)
    assert "already there" in fetch(remote(server, "a"), tmp_path / "new")[0][0]
    assert len(server.asked) == asked


def test_a_whole_file_from_an_own_mirror(server: Server, tmp_path: Path) -> None:
    write_pages(tmp_path / "made.tif", list(VOLUME))
    server.files["own/v.tif"] = (tmp_path / "made.tif").read_bytes()
    fetch(remote(server, "missing"), tmp_path / "new", mirror=f"{server.url}own")
    assert np.array_equal(read_volume(tmp_path / "new" / "v.tif"), VOLUME)
    assert [name for name, _ in server.asked] == ["own/v.tif"]


def test_an_interrupted_download_keeps_its_pages(server: Server, tmp_path: Path) -> None:
    offer_pages(server, "a", VOLUME)
    last = server.files.pop("a/image/2.png")
    with pytest.raises(
        RunFailedError, match=r"v\.tif could not be downloaded .*404.*run the command again to resume"
    ):
        fetch(remote(server, "a"), tmp_path)
    server.files["a/image/2.png"] = last
    server.asked.clear()
    fetch(remote(server, "a"), tmp_path)
    assert [name for name, _ in server.asked] == ["a/v.tif", "a/image/2.png"]
    assert is_whole_volume(tmp_path / "v.tif", remote(server).checksum)


def test_other_pixels_mean_the_next_mirror(server: Server, tmp_path: Path) -> None:
    offer_pages(server, "bad", VOLUME[::-1])
    server.files["worse/v.tif"] = b"no TIFF at all"
    offer_pages(server, "odd", VOLUME)
    server.files["odd/image/1.png"] = png(VOLUME[1, :8])
    offer_pages(server, "cut", VOLUME)
    server.files["cut/image/1.png"] = server.files["cut/image/1.png"][:-30]
    server.files["large/v.tif"] = bytes(10**6)
    offer_pages(server, "good", VOLUME)
    fetch(remote(server, "bad", "worse", "odd", "cut", "large", "good"), tmp_path)
    assert np.array_equal(read_volume(tmp_path / "v.tif"), VOLUME)
    assert [path.name for path in tmp_path.iterdir()] == ["v.tif"]


def test_when_all_fail_nothing_is_left_that_looks_whole(server: Server, tmp_path: Path) -> None:
    offer_pages(server, "bad", VOLUME[::-1])
    with pytest.raises(RunFailedError, match=r"the pixels are not the expected ones.*--mirror URL"):
        fetch(remote(server, "bad"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    server.files.clear()
    with pytest.raises(RunFailedError, match="HTTP status 404"):
        fetch(remote(server, "bad"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_fetched_again(server: Server, tmp_path: Path) -> None:
    offer_pages(server, "a", VOLUME)
    (tmp_path / "v.tif").write_bytes(b"damaged")
    assert not is_whole_volume(tmp_path / "v.tif", remote(server).checksum)
    fetch(remote(server, "a"), tmp_path)
    assert is_whole_volume(tmp_path / "v.tif", remote(server).checksum)
