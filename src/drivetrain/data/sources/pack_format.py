"""A pack: the images of an image folder, one after the other in a few large files.

DEST/pack.json names the classes and, for each split, a table (.npz) and the shards (.bin) with their
lengths and sha256. A table has one row per sample: shard, offset, length, label, width, height, name. A
sample that could not be read keeps its row, with length 0, so that a pack and its folder have one order.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

INDEX = "pack.json"
FORMAT, VERSION = "drivetrain-pack", 1
_NAME_END = "\0"
_COLUMNS = ("shard", "offset", "length", "label", "width", "height")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """A file of a pack and what it must be."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSplit:
    """One split: how many samples, and the files that hold them."""

    samples: int
    table: PackedFile
    shards: tuple[PackedFile, ...]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """What `PackIndex.to_json` wrote of it."""
        return cls(
            samples=values["samples"],
            table=PackedFile(**values["table"]),
            shards=tuple(PackedFile(**shard) for shard in values["shards"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackIndex:
    """pack.json; `image_size` and `channels` are set where the images are stored decoded."""

    class_names: tuple[str, ...]
    image_size: int | None
    channels: int | None
    splits: dict[str, PackedSplit]

    def to_json(self) -> bytes:
        """The content of pack.json."""
        values = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(values, indent=2, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """What `to_json` wrote; ValueError, KeyError or TypeError if it is something else."""
        values = json.loads(content)
        if (values.pop("format"), values.pop("version")) != (FORMAT, VERSION):
            raise ValueError(f"it is no {FORMAT} of version {VERSION}")
        return cls(
            class_names=tuple(values["class_names"]),
            image_size=values["image_size"],
            channels=values["channels"],
            splits={name: PackedSplit.from_json(split) for name, split in values["splits"].items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackTable:
    """Where each sample of a split lies, and what it is."""

    numbers: dict[str, NDArray[np.int64]]
    names: tuple[str, ...]

    def __getitem__(self, column: str) -> NDArray[np.int64]:
        return self.numbers[column]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]], *, names: Sequence[str]) -> Self:
        """A table of (shard, offset, length, label, width, height) per sample."""
        columns = np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS)).T
        return cls(numbers=dict(zip(_COLUMNS, columns, strict=True)), names=tuple(names))

    def to_bytes(self) -> bytes:
        """The table as a file."""
        file = BytesIO()
        names = np.frombuffer(_NAME_END.join(self.names).encode("utf-8", "surrogateescape"), dtype=np.uint8)
        np.savez_compressed(file, names=names, **self.numbers)  # type: ignore[arg-type]
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """What `to_bytes` wrote."""
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            names = arrays["names"].tobytes().decode("utf-8", "surrogateescape").split(_NAME_END)
            numbers = {column: arrays[column].astype(np.int64) for column in _COLUMNS}
        return cls(numbers=numbers, names=tuple(names))


def described_file(folder: Path, name: str) -> PackedFile:
    """A file as it is now."""
    digest = hashlib.sha256()
    with (folder / name).open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return PackedFile(file=name, bytes=(folder / name).stat().st_size, sha256=digest.hexdigest())
