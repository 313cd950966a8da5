"""Downloads, from a server on this machine."""

import hashlib
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.data.commands.fetch import fetch_dataset
from drivetrain.data.commands.fetch_file import fetch_file
from drivetrain.data.commands.fetch_table import REMOTE_DATASETS, RemoteDataset, RemoteFile, remote_dataset
from tests.data.sources.test_cifar import write_binary10

CONTENT = bytes(range(256)) * 4000


class Server(ThreadingHTTPServer):
    """Serves `files`; names in `stubborn` are sent whole whatever the range."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.stubborn: set[str] = set()
        self.cut_after: dict[str, int] = {}
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name, wanted = self.path[1:], self.headers.get("Range")
        self.server.asked.append((name, wanted))
        content = self.server.files.get(name)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if name in self.server.stubborn:
            start = 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.cut_after.get(name, len(content))])

    def log_message(self, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def running_server() -> Iterator[Server]:
    """A server on this machine, for as long as it is needed."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


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
    with pytest.raises(RunFailedError, match="run the command again to go on"):
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
    with pytest.raises(BadInputError, match="--mirror file:///x must begin with http"):
        fetch(dataset, tmp_path / "new", mirror="file:///x")


def test_the_table() -> None:
    for dataset in REMOTE_DATASETS.values():
        for file in (file for group in dataset.groups for file in group):
            algorithm, _, digest = file.checksum.partition(":")
            assert len(digest) == 2 * hashlib.new(algorithm.removeprefix("pixels-")).digest_size
            assert len(file.mirrors) >= 2
            assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in file.mirrors)
    with pytest.raises(BadInputError, match=r"data fetch cifar1 .*Did you mean cifar10\?"):
        remote_dataset("cifar1")
