"""Archives from elsewhere: what is unpacked, and what is not."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain.core.errors import RunFailedError
from drivetrain.data.commands.archive import Limits, unpack_archive


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
        (entry("../x"), "leads out"),
        (entry("d/../../x"), "leads out"),
        (entry("/tmp/x"), "no relative path"),
        (entry("..\\x"), "leads out"),
        (entry("C:\\x"), "no relative path"),
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
        (lambda path: zip_of(path, ["../x"]), "leads out"),
        (lambda path: zip_of(path, ["/x"]), "no relative path"),
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
    with pytest.raises(RunFailedError, match="grows beyond"):
        unpack_archive(bomb, tmp_path / "out", limits=Limits(most_bytes=1_500_000))
    with pytest.raises(RunFailedError, match="one more than 1 entries"):
        unpack_archive(bomb, tmp_path / "out", limits=Limits(most_members=1))
    assert list((tmp_path / "out").iterdir()) == []
    unpack_archive(bomb, tmp_path / "out", limits=Limits(most_bytes=2_000_000, most_members=2))


def test_a_link_in_the_destination_is_not_followed_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "out" / "d").symlink_to(tmp_path / "secret")
    with pytest.raises(RunFailedError, match="leads out of"):
        unpack_archive(tar_of(tmp_path / "a.tar.gz", [entry("d/one")]), tmp_path / "out")
    assert list((tmp_path / "secret").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b broken"])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(RunFailedError, match="cannot be unpacked"):
        unpack_archive(tmp_path / "a.tar.gz", tmp_path / "out")
