"""Reads packs back: `--dataset packed`, or an image folder whose place a pack has taken."""

import hashlib
import mmap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import existing_folder
from drivetrain.data.files.decode import image_of
from drivetrain.data.files.near_folders import way_out
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.pack_format import INDEX, PackedFile, PackIndex, PackTable, described_file
from drivetrain.data.sources.stored_images import ImageRequest, StoredImages, open_images

__all__ = ["PackStore", "damaged_files", "is_pack", "open_packed", "read_index", "read_pack"]


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
        """The image, decoded already or not."""
        size = self.size(index)
        content = self._content(index)
        if self.decoded_mode is None:
            return image_of(content)
        return Image.frombytes(self.decoded_mode, size, content)

    def _content(self, index: int) -> bytes:
        offset = int(self.table["offset"][index])
        shard = self.shards[self.table["shard"][index]]
        return _mapped(f"{self.folder}/{shard}")[offset : offset + self.stored_bytes(index)]


@cache
def _mapped(path: str) -> mmap.mmap:
    """A shard as memory; each process opens it once."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def is_pack(folder: Path) -> bool:
    """Whether a folder holds a pack."""
    return (folder / INDEX).is_file()


def open_packed(data_dir: str | None, *, request: ImageRequest) -> DataSplits:
    """`--dataset packed`."""
    folder = existing_folder(data_dir, dataset="packed", holding="what `drivetrain data pack` wrote")
    if not is_pack(folder):
        remedy = way_out(folder, is_pack, otherwise=f"`drivetrain data pack SRC {folder}` makes a pack")
        raise BadInputError(f"--data-dir {folder} holds no {INDEX}; {remedy}.")
    return open_images(read_pack(folder), request=request)


def read_pack(folder: Path) -> StoredImages:
    """The images of a pack; lengths of shards and checksums of tables are looked at."""
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
    """pack.json of a folder."""
    try:
        index = PackIndex.from_json((folder / INDEX).read_bytes())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError(f"--data-dir: {folder / INDEX} cannot be read ({error}); {_remedy()}.") from error
    files = [file for split in index.splits.values() for file in (split.table, *split.shards)]
    if any(Path(file.file).name != file.file for file in files) or "train" not in index.splits:
        raise BadInputError(f"--data-dir: {folder / INDEX} does not describe a pack; {_remedy()}.")
    return index


def damaged_files(folder: Path) -> list[str]:
    """The files of a pack that are not what they were when it was written; reads all of them."""
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
        raise BadInputError(f"{folder / file.file} is damaged: its sha256 is another; {_remedy()}.")
    return PackTable.from_bytes(content)


def _remedy() -> str:
    return "pack the folder again, or name another pack by --data-dir DIR"
