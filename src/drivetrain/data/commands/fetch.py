"""Downloads and unpacks a data set: `drivetrain data fetch NAME`."""

import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.data.commands.fetch_file import fetch_file, is_whole
from drivetrain.data.commands.fetch_table import PIXELS, RemoteDataset, RemoteFile
from drivetrain.data.commands.fetch_volume import fetch_volume, is_whole_volume
from drivetrain.data.sources.cifar import open_cifar

__all__ = ["Limits", "OnBytes", "Say", "fetch_dataset", "unpack_archive"]

_BLOCK_BYTES = 2**20
Say = Callable[[str], None]
OnBytes = Callable[[RemoteFile, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of an unpacked archive, against archives that fill the disk."""

    most_bytes: int = 4 * 2**30
    most_members: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """One entry of an archive; `content` is None for a folder, `refusal` says why it is not unpacked."""

    name: str
    content: IO[bytes] | None
    refusal: str | None


def unpack_archive(archive: Path, destination: Path, *, limits: Limits | None = None) -> list[str]:
    """Unpacks a tar or zip file; returns the files' names. A refused archive leaves nothing behind."""
    destination.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=destination))
    try:
        names = _unpack(archive, staging, limits=limits or Limits())
        for name in names:
            _move(staging / name, destination / name, inside=destination)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise RunFailedError(f"{archive} cannot be unpacked: {error}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return names


def _unpack(archive: Path, staging: Path, *, limits: Limits) -> list[str]:
    names: list[str] = []
    left_bytes = limits.most_bytes
    for number, member in enumerate(_members(archive), start=1):
        refusal = member.refusal or _refused_name(member.name)
        if refusal is None and number > limits.most_members:
            refusal = f"exceeds the limit of {limits.most_members} entries"
        if refusal is not None:
            raise RunFailedError(f"{archive} is not unpacked: its entry {member.name!r} {refusal}.")
        if member.content is None:
            continue
        target = staging / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        left_bytes -= _copy(member.content, target, most_bytes=left_bytes, archive=archive)
        names.append(member.name)
    return list(dict.fromkeys(names))


def _members(archive: Path) -> Iterator[_Member]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            yield from (_zip_member(file, info) for info in file.infolist())
        return
    with tarfile.open(archive, "r:*") as file:
        for info in file:
            content = file.extractfile(info) if info.isreg() else None
            is_plain = info.isreg() or info.isdir()
            yield _Member(
                name=info.name, content=content, refusal=None if is_plain else "is a link or a special file"
            )


def _zip_member(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Member:
    kind = stat.S_IFMT(info.external_attr >> 16)
    refusal = "is a link or a special file" if kind not in (0, stat.S_IFREG, stat.S_IFDIR) else None
    if info.flag_bits & 1:
        refusal = "is encrypted"
    content = None if info.is_dir() or refusal else file.open(info)
    return _Member(name=info.filename, content=content, refusal=refusal)


def _refused_name(name: str) -> str | None:
    path = PurePosixPath(name)
    windows = PureWindowsPath(name)
    if not name or "\0" in name or path.is_absolute() or windows.drive or windows.root:
        return "does not have a relative path"
    if ".." in path.parts or ".." in windows.parts:
        return "points outside the folder"
    return None


def _copy(content: IO[bytes], target: Path, *, most_bytes: int, archive: Path) -> int:
    """Copies a file and counts its actual bytes, because the size in an archive's header may be wrong."""
    copied = 0
    with content, target.open("wb") as file:
        while block := content.read(_BLOCK_BYTES):
            copied += len(block)
            if copied > most_bytes:
                raise RunFailedError(f"{archive} is not unpacked: its content exceeds the size limit.")
            file.write(block)
    return copied


def _move(source: Path, target: Path, *, inside: Path) -> None:
    """Moves a file into place; a link in the destination must not lead out of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(inside.resolve()):
        raise RunFailedError(f"{target.parent} is a link that points outside {inside}; remove the link.")
    source.replace(target)


def fetch_dataset(
    remote: RemoteDataset, folder: Path, *, mirror: str | None, say: Say, on_bytes: OnBytes
) -> None:
    """Downloads the files of a data set into a folder; complete files are left alone."""
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"--data-dir {folder} is a file; name a folder.")
    if remote.is_archive and _is_unpacked(remote.name, folder):
        say(f"{remote.name} is already in {folder}.")
        return
    failures: list[str] = []
    for group in remote.groups:
        try:
            for file in group:
                _bring(_with_mirror(file, mirror), folder, remote=remote, say=say, on_bytes=on_bytes)
            return
        except RunFailedError as error:
            failures.append(str(error))
        except OSError as error:
            raise RunFailedError(
                f"--data-dir {folder} cannot be written: {error.strerror}; name another folder."
            ) from error
    raise RunFailedError(" ".join([*failures, remote.by_hand]).rstrip())


def _bring(file: RemoteFile, folder: Path, *, remote: RemoteDataset, say: Say, on_bytes: OnBytes) -> None:
    target = folder / file.name
    is_volume = file.checksum.startswith(PIXELS)
    if (is_whole_volume if is_volume else is_whole)(target, file.checksum):
        say(f"{target} is already there.")
    else:
        fetch = fetch_volume if is_volume else fetch_file
        fetch(file, folder, on_bytes=lambda there: on_bytes(file, there))
        say(f"{target} is complete ({file.checksum.partition(':')[0]} verified).")
    if remote.is_archive:
        names = unpack_archive(target, folder)
        target.unlink()
        say(f"{len(names)} files unpacked into {folder}; the archive was removed.")


def _is_unpacked(name: str, folder: Path) -> bool:
    try:
        return not open_cifar(name, data_dir=str(folder)).warnings
    except BadInputError:
        return False


def _with_mirror(file: RemoteFile, mirror: str | None) -> RemoteFile:
    """The same file with the user's mirror first."""
    if mirror is None:
        return file
    if not mirror.startswith(("http://", "https://")):
        raise BadInputError(f"--mirror {mirror} must start with http:// or https://.")
    return replace(file, mirrors=(mirror.rstrip("/") + "/", *file.mirrors))
