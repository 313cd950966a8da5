"""Writes packs: `drivetrain data pack SRC DEST`."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from PIL import Image

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.core.progress import counted
from drivetrain.data.files.crop import Fit
from drivetrain.data.files.decode import (
    BadSampleError,
    decode_image,
    displayed_size,
    image_of,
    naming_bad_sample,
)
from drivetrain.data.files.folder_files import FolderStore
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.source import BadSample
from drivetrain.data.sources.image_folder import find_images
from drivetrain.data.sources.pack import INDEX, PackedSplit, PackIndex, PackTable, described_file
from drivetrain.data.sources.stored_images import StoredImages

_SHARD_BYTES = 256 * 2**20
# Encoded images that may wait in memory for the writer.
_SAMPLES_AT_A_TIME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRequest:
    """How images are packed: as unchanged files, or decoded to `image_size`."""

    image_size: int | None = None
    channels: int = 3
    skip_bad: bool = False
    shard_bytes: int = _SHARD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PackResult:
    """Numbers of samples and bytes of a new pack, with bad samples and warnings."""

    samples: dict[str, int]
    stored_bytes: int
    bad_samples: tuple[BadSample, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Encoded:
    """One image as stored in a shard; empty, with a `reason`, if it cannot be read."""

    content: bytes
    width: int = 0
    height: int = 0
    reason: str = ""


def write_pack(source: str | Path, destination: str | Path, *, request: PackRequest) -> PackResult:
    """Packs an image folder; a failure leaves nothing behind."""
    folder, target = Path(source), Path(destination)
    if not folder.is_dir():
        raise BadInputError(
            f"SRC {source} is not an existing folder; give a folder with one sub-folder per class."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInputError(f"DEST {destination} already exists; name a new or an empty folder.")
    images = find_images(folder)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        result = _write(images, partial, request=request)
        partial.replace(target)
    except OSError as error:
        raise RunFailedError(f"DEST {destination} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return result


def _write(images: StoredImages, folder: Path, *, request: PackRequest) -> PackResult:
    bad: list[BadSample] = []
    splits: dict[str, PackedSplit] = {}
    for split, store in images.stores.items():
        assert isinstance(store, FolderStore), "only folders are packed"
        writer = _SplitWriter(folder, split=split, shard_bytes=request.shard_bytes)
        encodings = counted(
            _encode_all(store, request=request),
            total=len(store),
            what=f"packing {split} images",
        )
        for index, encoded in enumerate(encodings):
            if encoded.reason:
                bad.append(_refuse_or_note(store, split=split, index=index, encoded=encoded, request=request))
            writer.add(encoded, label=int(images.labels[split][index]), name=store.names[index])
        splits[split] = writer.finish()
    decoded = request.image_size is not None
    index_file = PackIndex(
        class_names=images.class_names,
        image_size=request.image_size,
        channels=request.channels if decoded else None,
        splits=splits,
    )
    (folder / INDEX).write_bytes(index_file.to_json())
    return PackResult(
        samples={name: split.samples for name, split in splits.items()},
        stored_bytes=sum(shard.bytes for split in splits.values() for shard in split.shards),
        bad_samples=tuple(bad),
        warnings=tuple(images.warnings),
    )


class _SplitWriter:
    """Appends the samples of one split to shards of bounded length."""

    def __init__(self, folder: Path, *, split: str, shard_bytes: int) -> None:
        self._folder, self._split, self._shard_bytes = folder, split, shard_bytes
        self._rows: list[tuple[int, ...]] = []
        self._names: list[str] = []
        self._shards: list[str] = []
        self._file: IO[bytes] | None = None
        self._offset = 0

    def add(self, encoded: _Encoded, *, label: int, name: str) -> None:
        """Appends a sample; starts a new shard if the current one would become too long."""
        if self._file is None or (self._offset and self._offset + len(encoded.content) > self._shard_bytes):
            self._begin_shard()
        assert self._file is not None
        self._file.write(encoded.content)
        place = (len(self._shards) - 1, self._offset, len(encoded.content))
        self._rows.append((*place, label, encoded.width, encoded.height))
        self._names.append(name)
        self._offset += len(encoded.content)

    def finish(self) -> PackedSplit:
        """Closes the last shard and writes the table."""
        if self._file is not None:
            self._file.close()
        table = f"{self._split}.npz"
        rows = PackTable.from_rows(self._rows, names=self._names)
        (self._folder / table).write_bytes(rows.to_bytes())
        return PackedSplit(
            samples=len(self._rows),
            table=described_file(self._folder, table),
            shards=tuple(described_file(self._folder, shard) for shard in self._shards),
        )

    def _begin_shard(self) -> None:
        if self._file is not None:
            self._file.close()
        self._shards.append(f"{self._split}-{len(self._shards):05}.bin")
        self._file = (self._folder / self._shards[-1]).open("wb")
        self._offset = 0


def _encode_all(store: FolderStore, *, request: PackRequest) -> Iterator[_Encoded]:
    """Encodes all images in parallel threads; yields them in order."""

    def encode(index: int) -> _Encoded:
        return _encode(store, index, request=request)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from mapped(threads, encode, range(len(store)), most_ahead=_SAMPLES_AT_A_TIME)


def _encode(store: FolderStore, index: int, *, request: PackRequest) -> _Encoded:
    try:
        with naming_bad_sample(store.name(index)):
            content = store.read(index)
            return _decoded(image_of(content), request) if request.image_size else _checked(content)
    except BadSampleError as error:
        return _Encoded(b"", reason=error.reason)


def _checked(content: bytes) -> _Encoded:
    """Returns the unchanged file after a test that it can be decoded."""
    width, height = displayed_size(image_of(content))
    decode_image(image_of(content), channels=3, size=(1, 1), choose_box=lambda w, h: (0, 0, w, h))
    return _Encoded(content, width, height)


def _decoded(image: Image.Image, request: PackRequest) -> _Encoded:
    size = request.image_size
    assert size is not None
    fit = Fit(height=size, width=size, short_side=size)
    pixels = decode_image(image, channels=request.channels, size=(size, size), choose_box=fit.centre_box)
    return _Encoded(pixels.tobytes(), size, size)


def _refuse_or_note(
    store: FolderStore, *, split: str, index: int, encoded: _Encoded, request: PackRequest
) -> BadSample:
    if not request.skip_bad:
        raise BadSampleError(store.name(index), encoded.reason)
    return BadSample(split=split, index=index, name=store.name(index), reason=encoded.reason)
