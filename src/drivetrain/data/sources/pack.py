"""Reads packs (the images of a folder in a few large files) and defines their format."""

import hashlib
import json
import mmap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import existing_folder, way_out
from drivetrain.data.files.decode import image_of
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.stored_images import ImageRequest, StoredImages, open_images

__all__ = [
    "FORMAT",
    "INDEX",
    "VERSION",
    "PackIndex",
    "PackStore",
    "PackTable",
    "PackedFile",
    "PackedSplit",
    "damaged_files",
    "described_file",
    "is_pack",
    "open_packed",
    "read_index",
    "read_pack",
]

INDEX = "pack.json"
FORMAT, VERSION = "drivetrain-pack", 1
# No path can contain this character.
_NAME_END = "\0"
_COLUMNS = ("shard", "offset", "length", "label", "width", "height")


# A pack: the images of an image folder, one after the other in a few large files.
#
# DEST/pack.json names the classes and, for each split, a table (.npz) and the shards (.bin) with their
# lengths and sha256. A table has one row per sample: shard, offset, length, label, width, height, name. A
# sample that could not be read keeps its row, with length 0, so that indices in a pack and its
# folder agree.


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """A file of a pack with its expected length and checksum."""

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
        """Reads back what `PackIndex.to_json` wrote for a split."""
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
        """Reads what `to_json` wrote; raises ValueError, KeyError or TypeError for anything else."""
        values = json.loads(content)
        if (values.pop("format"), values.pop("version")) != (FORMAT, VERSION):
            raise ValueError(f"it is not a {FORMAT} of version {VERSION}")
        return cls(
            class_names=tuple(values["class_names"]),
            image_size=values["image_size"],
            channels=values["channels"],
            splits={name: PackedSplit.from_json(split) for name, split in values["splits"].items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackTable:
    """Position, label, size and name of each sample of a split."""

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
    """Measures the length and checksum of a file."""
    digest = hashlib.sha256()
    with (folder / name).open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return PackedFile(file=name, bytes=(folder / name).stat().st_size, sha256=digest.hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class PackStore:
    """The images of one split of a pack."""

    folder: str
    shards: tuple[str, ...]
    table: PackTable
    decoded_mode: str | None

    def __len__(self) -> int:
        return len(self.table.names)

    def name(self, index: int) -> str:
        """The pack, and what the image was called before it was packed."""
        return f"{self.folder}:{self.table.names[index]}"

    def short_name(self, index: int) -> str:
        """What the image was called before it was packed."""
        return self.table.names[index]

    def stored_bytes(self, index: int) -> int:
        """The image's bytes; 0 where it could not be read when it was packed."""
        return int(self.table["length"][index])

    def size(self, index: int) -> tuple[int, int]:
        """Width and height as the table has them."""
        if self.stored_bytes(index) == 0:
            raise ValueError("it could not be read when it was packed")
        return int(self.table["width"][index]), int(self.table["height"][index])

    def image(self, index: int) -> Image.Image:
        """The image, from its pixels if the pack stores images decoded, else from its encoded file."""
        size = self.size(index)
        content = self.read(index)
        if self.decoded_mode is None:
            return image_of(content)
        return Image.frombytes(self.decoded_mode, size, content)

    def read(self, index: int) -> bytes:
        """The image's bytes as they are stored."""
        offset = int(self.table["offset"][index])
        shard = self.shards[self.table["shard"][index]]
        return _mapped(f"{self.folder}/{shard}")[offset : offset + self.stored_bytes(index)]


@cache
def _mapped(path: str) -> mmap.mmap:
    """A memory-mapped shard; each process maps it once."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def is_pack(folder: Path) -> bool:
    """Whether a folder holds a pack."""
    return (folder / INDEX).is_file()


def open_packed(data_dir: str | None, *, request: ImageRequest) -> DataSplits:
    """Opens `--dataset packed`."""
    folder = existing_folder(data_dir, dataset="packed", holding="what `drivetrain data pack` wrote")
    if not is_pack(folder):
        remedy = way_out(folder, is_pack, otherwise=f"create a pack with `drivetrain data pack SRC {folder}`")
        raise BadInputError(f"--data-dir {folder} does not contain {INDEX}; {remedy}.")
    return open_images(read_pack(folder), request=request)


def read_pack(folder: Path) -> StoredImages:
    """Reads a pack; checks the lengths of its shards and the checksums of its tables."""
    # Checksums of shards would mean reading all images: `drivetrain data check` does that.
    index = read_index(folder)
    mode = None if index.image_size is None else {1: "L", 3: "RGB"}[index.channels or 3]
    stores, labels = {}, {}
    for name, split in index.splits.items():
        for shard in split.shards:
            _require_length(folder, shard)
        table = _read_table(folder, split.table)
        shards = tuple(shard.file for shard in split.shards)
        stores[name] = PackStore(folder=str(folder), shards=shards, table=table, decoded_mode=mode)
        labels[name] = table["label"]
    return StoredImages(class_names=index.class_names, stores=stores, labels=labels)


def read_index(folder: Path) -> PackIndex:
    """Reads pack.json of a folder."""
    try:
        index = PackIndex.from_json((folder / INDEX).read_bytes())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError(f"--data-dir: {folder / INDEX} cannot be read ({error}); {_remedy()}.") from error
    # Names with a folder part could lead out of the pack.
    files = [file for split in index.splits.values() for file in (split.table, *split.shards)]
    if any(Path(file.file).name != file.file for file in files) or "train" not in index.splits:
        raise BadInputError(f"--data-dir: {folder / INDEX} does not describe a pack; {_remedy()}.")
    return index


def damaged_files(folder: Path) -> list[str]:
    """The files of a pack that are missing or have changed since it was written; reads all files."""
    files = [file for split in read_index(folder).splits.values() for file in (split.table, *split.shards)]
    return [
        file.file
        for file in files
        if not (folder / file.file).is_file() or described_file(folder, file.file) != file
    ]


def _require_length(folder: Path, shard: PackedFile) -> None:
    path = folder / shard.file
    found = path.stat().st_size if path.is_file() else None
    if found is None:
        raise BadInputError(f"--data-dir {folder} lacks {shard.file}; {_remedy()}.")
    if found != shard.bytes:
        raise BadInputError(f"{path} is damaged: it has {found} bytes instead of {shard.bytes}; {_remedy()}.")


def _read_table(folder: Path, file: PackedFile) -> PackTable:
    try:
        content = (folder / file.file).read_bytes()
    except OSError as error:
        raise BadInputError(
            f"--data-dir: {folder / file.file} cannot be read ({error.strerror}); {_remedy()}."
        ) from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise BadInputError(
            f"{folder / file.file} is damaged: its sha256 does not match {INDEX}; {_remedy()}."
        )
    return PackTable.from_bytes(content)


def _remedy() -> str:
    return "pack the folder again, or name another pack with --data-dir DIR"
