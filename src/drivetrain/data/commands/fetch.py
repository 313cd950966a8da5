"""Downloads a data set: `drivetrain data fetch NAME`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.data.commands.archive import unpack_archive
from drivetrain.data.commands.fetch_file import fetch_file, is_whole
from drivetrain.data.commands.fetch_table import PIXELS, RemoteDataset, RemoteFile
from drivetrain.data.commands.fetch_volume import fetch_volume, is_whole_volume
from drivetrain.data.sources.cifar import open_cifar

Say = Callable[[str], None]
OnBytes = Callable[[RemoteFile, int], None]


def fetch_dataset(
    remote: RemoteDataset, folder: Path, *, mirror: str | None, say: Say, on_bytes: OnBytes
) -> None:
    """Brings the files of a data set into a folder; those that are there and whole are left alone."""
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
        say(f"{target} is whole ({file.checksum.partition(':')[0]} checked).")
    if remote.is_archive:
        names = unpack_archive(target, folder)
        target.unlink()
        say(f"{len(names)} files unpacked into {folder}; the archive is removed.")


def _is_unpacked(name: str, folder: Path) -> bool:
    try:
        return not open_cifar(name, data_dir=str(folder)).warnings
    except BadInputError:
        return False


def _with_mirror(file: RemoteFile, mirror: str | None) -> RemoteFile:
    """The same file, looked for at the user's own place first."""
    if mirror is None:
        return file
    if not mirror.startswith(("http://", "https://")):
        raise BadInputError(f"--mirror {mirror} must begin with http:// or https://.")
    return replace(file, mirrors=(mirror.rstrip("/") + "/", *file.mirrors))
