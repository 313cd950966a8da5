"""Downloads a file from the first mirror that has it; an interrupted download resumes where it stopped."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from drivetrain.core.errors import RunFailedError
from drivetrain.data.commands.fetch_table import RemoteFile

__all__ = ["MirrorError", "fetch_file", "is_whole", "read_url"]

_BLOCK_BYTES = 2**18
_TIMEOUT_SECONDS = 30
# HTTP "Range Not Satisfiable": the requested range starts at the end, so the partial file is complete.
_ALREADY_WHOLE = 416
_HEADERS = {"User-Agent": "drivetrain"}

OnBytes = Callable[[int], None]


class MirrorError(Exception):
    """One mirror could not deliver the file."""


def fetch_file(file: RemoteFile, folder: Path, *, on_bytes: OnBytes) -> Path:
    """Downloads a file into a folder and verifies it; `on_bytes` receives the bytes so far."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{file.name}.part"
    failures: list[str] = []
    for mirror in file.mirrors:
        try:
            _fetch_from(mirror, file, partial, on_bytes=on_bytes)
        except MirrorError as error:
            failures.append(f"{mirror}: {error}")
            continue
        target = folder / file.name
        partial.replace(target)
        return target
    raise RunFailedError(
        f"{file.name} could not be downloaded ({'; '.join(failures)}); run the command again to resume, "
        "or name another mirror with --mirror URL."
    )


def is_whole(path: Path, checksum: str) -> bool:
    """Whether a file exists and has the checksum."""
    if not path.is_file():
        return False
    algorithm, _, expected = checksum.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == expected


def _fetch_from(mirror: str, file: RemoteFile, partial: Path, *, on_bytes: OnBytes) -> None:
    """Downloads into `partial`; after a failure, another mirror can resume from what is there."""
    had_beginning = partial.exists() and partial.stat().st_size > 0
    _download(mirror + file.name, file, partial, on_bytes=on_bytes)
    if is_whole(partial, file.checksum):
        return
    partial.unlink()
    if had_beginning:
        # The partial file may have come from another mirror; try again with this mirror alone.
        _fetch_from(mirror, file, partial, on_bytes=on_bytes)
        return
    raise MirrorError(f"the file does not have the expected {file.checksum.partition(':')[0]} checksum")


def _download(url: str, file: RemoteFile, partial: Path, *, on_bytes: OnBytes) -> None:
    _require_web(url)
    start = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers=_HEADERS)
    if start:
        request.add_header("Range", f"bytes={start}-")
    with _as_mirror_error(), _opened(request) as answer:
        goes_on = start > 0 and answer.status == http.client.PARTIAL_CONTENT
        with partial.open("ab" if goes_on else "wb") as target:
            _copy(answer, target, start=start if goes_on else 0, file=file, on_bytes=on_bytes)


def read_url(url: str, *, most_bytes: int) -> bytes:
    """Reads a small file of unknown length; fails if it is longer than `most_bytes`."""
    _require_web(url)
    request = urllib.request.Request(url, headers=_HEADERS)
    content: bytes = b""
    announced: str | None = None
    with _as_mirror_error(), _opened(request) as answer:
        content = answer.read(most_bytes + 1)
        announced = answer.headers.get("Content-Length")
    if len(content) > most_bytes:
        raise MirrorError(f"the file is longer than {most_bytes} bytes")
    if announced is not None and len(content) < int(announced):
        raise MirrorError(f"the download ended after {len(content)} of {announced} bytes")
    return content


def _require_web(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise MirrorError("only http and https are supported")


def _opened(request: urllib.request.Request) -> Any:
    return urllib.request.build_opener().open(request, timeout=_TIMEOUT_SECONDS)


@contextmanager
def _as_mirror_error() -> Iterator[None]:
    """Turns network errors into MirrorError; ignores status 416 (the file is complete already)."""
    try:
        yield
    except urllib.error.HTTPError as error:
        if error.code == _ALREADY_WHOLE:
            return
        raise MirrorError(f"HTTP status {error.code}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MirrorError(str(getattr(error, "reason", error)) or type(error).__name__) from error


def _copy(answer: IO[bytes], target: IO[bytes], *, start: int, file: RemoteFile, on_bytes: OnBytes) -> None:
    there = start
    while block := answer.read(_BLOCK_BYTES):
        there += len(block)
        if there > file.bytes:
            # Too long to be the file. Stop here: the checksum will fail, and the disk does not fill up.
            return
        target.write(block)
        on_bytes(there)
    if there < file.bytes:
        raise MirrorError(f"the download ended after {there} of {file.bytes} bytes")
