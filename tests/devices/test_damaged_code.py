"""What an interrupted compiler left behind is removed, and what another process is writing is not."""

import fcntl
import struct
from pathlib import Path

import pytest

from drivetrain.devices.compilation import remove_blamed_code, remove_damaged_code


def _library(*, sections: int = 3) -> bytes:
    """A file that announces its sections at its end, as a 64-bit library does."""
    body = b"code" * 40
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, 64 + len(body))
    struct.pack_into("<2H", header, 0x3A, 64, sections)
    return bytes(header) + body + bytes(64 * sections)


def _write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_whole_files_stay(tmp_path: Path) -> None:
    for name in ("ab/cab.main.so", "ab/cab.o"):
        _write(tmp_path / name, _library())
    _write(tmp_path / "ab" / "cab.main.cpp", b"int main;")
    _write(tmp_path / "locks" / "cab.lock", b"")
    _write(tmp_path / "ab" / ".12.34.tmp", b"")
    assert remove_damaged_code(tmp_path) == []
    assert remove_damaged_code(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ab/cab.main.so", b""),
        ("ab/cab.main.so", b"\x7fELF"),
        ("ab/cab.main.so", _library()[:-1]),
        ("ab/cab.main.so", bytes(len(_library()))),
        ("ab/cab.o", _library()[:100]),
        ("ab/cab.main.cpp", b""),
        ("ab/cab.py", b""),
        ("fxgraph/ab/cab/def", b""),
    ],
)
def test_unfinished_files_go(name: str, content: bytes, tmp_path: Path) -> None:
    kept = _write(tmp_path / "cd" / "ccd.main.so", _library())
    damaged = _write(tmp_path / name, content)
    assert remove_damaged_code(tmp_path) == [damaged]
    assert (damaged.exists(), kept.exists()) == (False, True)


def test_what_another_process_is_compiling_stays(tmp_path: Path) -> None:
    growing = _write(tmp_path / "ab" / "cab.main.so", b"")
    lock = _write(tmp_path / "locks" / "cab.lock", b"")
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert remove_damaged_code(tmp_path) == []
    assert growing.exists()
    assert remove_damaged_code(tmp_path) == [growing]


@pytest.mark.parametrize("name", ["memoizer_cache.lock", "triton/0/ab.lock", "triton/locks/ab"])
def test_locks_stay_wherever_they_lie(name: str, tmp_path: Path) -> None:
    lock = _write(tmp_path / name, b"")
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert remove_damaged_code(tmp_path) == []
    assert lock.exists()


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError("of another user")


@pytest.mark.parametrize("refused", ["unlink", "open", "mkdir"])
def test_files_of_another_user_are_left_alone(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = _write(tmp_path / "ab" / "cab.main.cpp", b"")
    header = _write(tmp_path / "headers" / "cab.h.gch", b"gpch").with_suffix("")
    message = f"CppCompileError: g++ -include {header} -o x.so\nfatal error: cannot read PCH file: no"
    monkeypatch.setattr(Path, refused, _refuse)
    assert remove_damaged_code(tmp_path) == []
    assert remove_blamed_code(tmp_path, message) == []
    assert damaged.exists()


def test_a_library_that_an_error_names_goes_though_it_looks_whole(tmp_path: Path) -> None:
    named, other = (_write(tmp_path / "ab" / f"{key}.main.so", _library()) for key in ("cab", "ccd"))
    assert remove_blamed_code(tmp_path, f"ImportError: {named}: undefined symbol: x") == [named]
    assert other.exists()


def test_a_compiler_that_fails_by_itself_is_not_asked_again(tmp_path: Path) -> None:
    """At Ctrl-C it dies with its work half done, and the run is to end."""
    half = _write(tmp_path / "ab" / "cab.main.so", b"")
    assert remove_blamed_code(tmp_path, f"CppCompileError: g++ -o {half}") == []
    assert half.exists()


def test_a_precompiled_header_that_cannot_be_read_goes(tmp_path: Path) -> None:
    header = _write(tmp_path / "headers" / "cab.h", b"#include <vector>")
    compiled = _write(tmp_path / "headers" / "cab.h.gch", b"gpch")
    message = f"CppCompileError: g++ -include {header} -o x.so\nfatal error: cannot read PCH file: no"
    assert remove_blamed_code(tmp_path, message) == [compiled]
    assert (compiled.exists(), header.exists()) == (False, True)
    assert remove_blamed_code(tmp_path, message) == []
