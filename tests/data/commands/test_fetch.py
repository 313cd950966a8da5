"""Downloads, from a server on this machine."""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.data.commands.fetch import Limits, fetch_dataset, unpack_archive
from drivetrain.data.commands.fetch_file import fetch_file
from drivetrain.data.commands.fetch_table import REMOTE_DATASETS, RemoteDataset, RemoteFile, remote_dataset
from tests.data.commands.local_server import Server, running_server
from tests.data.sources.cifar_files import write_binary10

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


def remote(server: Server, *folders: str, content: bytes = CONTENT) -> RemoteFile:
    return RemoteFile(
        name="file.bin",
        bytes=len(content),
        checksum=f"sha256:{hashlib.sha256(content).hexdigest()}",
        mirrors=tuple(f"{server.url}{folder}/" for folder in folders),
    )


def fetched(file: RemoteFile, folder: Path) -> bytes:
    return fetch_file(file, folder, on_bytes=lambda there: None).read_bytes()


def test_a_whole_file(server: Server, tmp_path: Path) -> None:
    server.files["a/file.bin"] = CONTENT
    seen: list[int] = []
    path = fetch_file(remote(server, "a"), tmp_path / "new", on_bytes=seen.append)
    assert path.read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["file.bin"]


def test_an_interrupted_download_goes_on(server: Server, tmp_path: Path) -> None:
    server.files["a/file.bin"] = CONTENT
    server.cut_after["a/file.bin"] = 300_000
    with pytest.raises(RunFailedError, match="run the command again to resume"):
        fetched(remote(server, "a"), tmp_path)
    assert (tmp_path / "file.bin.part").stat().st_size == 300_000
    del server.cut_after["a/file.bin"]
    assert fetched(remote(server, "a"), tmp_path) == CONTENT
    assert server.asked == [("a/file.bin", None), ("a/file.bin", "bytes=300000-")]


def test_another_mirror_goes_on_with_what_one_began(server: Server, tmp_path: Path) -> None:
    server.files["a/file.bin"] = server.files["b/file.bin"] = CONTENT
    server.cut_after["a/file.bin"] = 1000
    assert fetched(remote(server, "missing", "a", "b"), tmp_path) == CONTENT
    assert server.asked[-1] == ("b/file.bin", "bytes=1000-")


def test_a_server_without_ranges_sends_everything_again(server: Server, tmp_path: Path) -> None:
    server.files["a/file.bin"] = CONTENT
    server.stubborn.add("a/file.bin")
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:500])
    assert fetched(remote(server, "a"), tmp_path) == CONTENT


@pytest.mark.parametrize("beginning", [b"garbage", CONTENT[:-1] + b"!", CONTENT, CONTENT + b"more"])
def test_a_wrong_beginning_is_thrown_away(server: Server, tmp_path: Path, beginning: bytes) -> None:
    server.files["a/file.bin"] = CONTENT
    (tmp_path / "file.bin.part").write_bytes(beginning)
    assert fetched(remote(server, "a"), tmp_path) == CONTENT


def test_a_wrong_checksum_means_the_next_mirror(server: Server, tmp_path: Path) -> None:
    server.files["bad/file.bin"] = bytes(len(CONTENT))
    server.files["long/file.bin"] = CONTENT * 3
    server.files["good/file.bin"] = CONTENT
    assert fetched(remote(server, "bad", "long", "good"), tmp_path) == CONTENT
    assert [name for name, _ in server.asked] == ["bad/file.bin", "long/file.bin", "good/file.bin"]


def test_when_all_fail_one_sentence_says_why(server: Server, tmp_path: Path) -> None:
    server.files["bad/file.bin"] = bytes(len(CONTENT))
    with pytest.raises(RunFailedError) as raised:
        fetched(remote(server, "missing", "bad"), tmp_path)
    assert "HTTP status 404" in str(raised.value)
    assert "sha256 checksum" in str(raised.value)
    assert "--mirror URL" in str(raised.value)
    assert raised.value.exit_status == 1
    assert not (tmp_path / "file.bin").exists()


def test_nobody_there(server: Server, tmp_path: Path) -> None:
    file = replace(remote(server), mirrors=("http://127.0.0.1:9/",))
    with pytest.raises(RunFailedError, match="refused"):
        fetched(file, tmp_path)


def cifar_archive(folder: Path) -> bytes:
    place = write_binary10(folder)
    with tarfile.open(folder / "c.tar.gz", "w:gz") as archive:
        archive.add(place, arcname=place.name)
    return (folder / "c.tar.gz").read_bytes()


def fetch(dataset: RemoteDataset, folder: Path, *, mirror: str | None = None) -> list[str]:
    said: list[str] = []
    fetch_dataset(dataset, folder, mirror=mirror, say=said.append, on_bytes=lambda file, there: None)
    return said


def test_an_archive_is_unpacked_and_the_second_form_is_a_way_out(server: Server, tmp_path: Path) -> None:
    content = cifar_archive(tmp_path / "made")
    server.files["a/file.bin"] = content
    dataset = RemoteDataset(
        name="cifar10",
        is_archive=True,
        groups=((remote(server, "missing", content=content),), (remote(server, "a", content=content),)),
    )
    said = fetch(dataset, tmp_path / "data")
    assert "6 files unpacked" in said[-1]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-bin"]


def test_files_that_are_there_are_left_alone_and_an_own_mirror_comes_first(
    server: Server, tmp_path: Path
) -> None:
    server.files["own/file.bin"] = CONTENT
    dataset = RemoteDataset(name="mnist", is_archive=False, groups=((remote(server, "elsewhere"),),))
    fetch(dataset, tmp_path, mirror=f"{server.url}own")
    assert [name for name, _ in server.asked] == ["own/file.bin"]
    assert "already there" in fetch(dataset, tmp_path)[0]
    assert len(server.asked) == 1
    with pytest.raises(BadInputError, match="--mirror file:///x must start with http"):
        fetch(dataset, tmp_path / "new", mirror="file:///x")


def test_the_table() -> None:
    for dataset in REMOTE_DATASETS.values():
        for file in (file for group in dataset.groups for file in group):
            algorithm, _, digest = file.checksum.partition(":")
            assert len(digest) == 2 * hashlib.new(algorithm.removeprefix("pixels-")).digest_size
            assert len(file.mirrors) >= 2
            assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in file.mirrors)
    with pytest.raises(BadInputError, match=r"data fetch cifar1: .*Did you mean cifar10\?"):
        remote_dataset("cifar1")


def tar_of(path: Path, members: list[tarfile.TarInfo], *, content: bytes = b"hello") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if member.isreg():
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return path


def entry(name: str, *, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_of(path: Path, names: list[str], *, mode: int = 0o100644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"" if name.endswith("/") else b"hello")
    return path


def test_plain_files_and_folders(tmp_path: Path) -> None:
    tar = tar_of(tmp_path / "a.tar.gz", [entry("d", kind=tarfile.DIRTYPE), entry("d/one"), entry("./two")])
    assert unpack_archive(tar, tmp_path / "tar") == ["d/one", "./two"]
    zipped = zip_of(tmp_path / "a.zip", ["d/", "d/one", "two"])
    assert unpack_archive(zipped, tmp_path / "zip") == ["d/one", "two"]
    for kind in ("tar", "zip"):
        files = sorted(
            path.relative_to(tmp_path / kind) for path in (tmp_path / kind).rglob("*") if path.is_file()
        )
        assert [str(path) for path in files] == ["d/one", "two"]
        assert (tmp_path / kind / "two").read_bytes() == b"hello"


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (entry("../x"), "points outside"),
        (entry("d/../../x"), "points outside"),
        (entry("/tmp/x"), "does not have a relative path"),
        (entry("..\\x"), "points outside"),
        (entry("C:\\x"), "does not have a relative path"),
        (entry("x", kind=tarfile.SYMTYPE, target="/etc/passwd"), "a link or a special file"),
        (entry("x", kind=tarfile.LNKTYPE, target="../outside"), "a link or a special file"),
        (entry("x", kind=tarfile.CHRTYPE), "a link or a special file"),
        (entry("x", kind=tarfile.FIFOTYPE), "a link or a special file"),
    ],
)
def test_dangerous_entries_are_refused_and_nothing_is_left(
    tmp_path: Path, member: tarfile.TarInfo, said: str
) -> None:
    archive = tar_of(tmp_path / "a.tar.gz", [entry("good"), member])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunFailedError, match=said):
        unpack_archive(archive, tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "out"])


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: zip_of(path, ["../x"]), "points outside"),
        (lambda path: zip_of(path, ["/x"]), "does not have a relative path"),
        (lambda path: zip_of(path, ["x"], mode=0o120777), "a link or a special file"),
    ],
)
def test_dangerous_zip_entries(tmp_path: Path, write: Callable[[Path], Path], said: str) -> None:
    with pytest.raises(RunFailedError, match=said):
        unpack_archive(write(tmp_path / "a.zip"), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_bombs(tmp_path: Path) -> None:
    bomb = tar_of(tmp_path / "a.tar.gz", [entry("one"), entry("two")], content=bytes(10**6))
    assert bomb.stat().st_size < 10**4
    with pytest.raises(RunFailedError, match="exceeds the size limit"):
        unpack_archive(bomb, tmp_path / "out", limits=Limits(most_bytes=1_500_000))
    with pytest.raises(RunFailedError, match="exceeds the limit of 1 entries"):
        unpack_archive(bomb, tmp_path / "out", limits=Limits(most_members=1))
    assert list((tmp_path / "out").iterdir()) == []
    unpack_archive(bomb, tmp_path / "out", limits=Limits(most_bytes=2_000_000, most_members=2))


def test_a_link_in_the_destination_is_not_followed_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "out" / "d").symlink_to(tmp_path / "secret")
    with pytest.raises(RunFailedError, match="is a link that points outside"):
        unpack_archive(tar_of(tmp_path / "a.tar.gz", [entry("d/one")]), tmp_path / "out")
    assert list((tmp_path / "secret").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b broken"])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(RunFailedError, match="cannot be unpacked"):
        unpack_archive(tmp_path / "a.tar.gz", tmp_path / "out")
