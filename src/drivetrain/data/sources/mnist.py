"""MNIST from its four idx files, plain or compressed with gzip."""

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import dataset_info
from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import way_out
from drivetrain.data.source import ArraySource, DataSpec, DataSplits

_INFO = dataset_info("mnist")
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "t10k": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
# An idx file begins with 0, 0, the type (8: unsigned bytes) and the number of dimensions.
_MAGIC_OF_BYTES = 0x0800


def open_mnist(data_dir: str | None) -> DataSplits:
    """MNIST as `--dataset mnist --data-dir DIR` gives it."""
    if data_dir is None:
        raise BadInputError(f"--dataset mnist needs --data-dir DIR, a folder with {_file_list()}.")
    folder = Path(data_dir)
    if not folder.is_dir():
        raise BadInputError(
            f"--data-dir {data_dir} is not an existing folder; give a folder with {_file_list()}."
        )
    train, validation = _read_pair(folder, "train"), _read_pair(folder, "t10k")
    return DataSplits(
        train=train,
        validation=validation,
        test=None,
        spec=DataSpec(
            channels=_INFO.channels,
            height=_INFO.height,
            width=_INFO.width,
            num_classes=_INFO.num_classes,
            class_names=_INFO.class_names,
            image_dtype="uint8",
        ),
        warnings=_size_warnings(folder, train=len(train), validation=len(validation)),
    )


def holds_mnist(folder: Path) -> bool:
    """Whether one of the four files is there; refuses a folder that lacks others of them."""
    names = [name for names in _FILES.values() for name in names]
    if not any(_candidates(folder, name) for name in names):
        return False
    return all(_find(folder, name).is_file() for name in names)


def _read_pair(folder: Path, part: str) -> ArraySource:
    image_file, label_file = (_find(folder, name) for name in _FILES[part])
    images, labels = _read_idx(image_file, dimensions=3), _read_idx(label_file, dimensions=1)
    if images.shape[1:] != (_INFO.height, _INFO.width):
        raise BadInputError(
            f"{image_file} contains images of {images.shape[1]}x{images.shape[2]} pixels instead of "
            f"{_INFO.height}x{_INFO.width}; {_remedy()}."
        )
    if len(images) != len(labels):
        raise BadInputError(
            f"{image_file} contains {len(images)} images, but {label_file.name} contains {len(labels)} "
            f"labels; {_remedy()}."
        )
    if len(labels) == 0:
        raise BadInputError(f"{label_file} contains no samples; {_remedy()}.")
    if int(labels.max()) >= _INFO.num_classes:
        raise BadInputError(f"{label_file} contains the label {labels.max()} instead of 0 to 9; {_remedy()}.")
    return ArraySource(images=images[..., np.newaxis], labels=labels.astype(np.int64))


def _find(folder: Path, name: str) -> Path:
    candidates = _candidates(folder, name)
    if candidates:
        return candidates[0]
    remedy = way_out(
        folder, lambda path: bool(_candidates(path, name)), otherwise=f"give a folder with {_file_list()}"
    )
    raise BadInputError(f"--data-dir {folder} contains neither {name}.gz nor {name}; {remedy}.")


def _candidates(folder: Path, name: str) -> list[Path]:
    return [path for path in (folder / f"{name}.gz", folder / name) if path.is_file()]


def _read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    content = _read_bytes(path)
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes:
        raise BadInputError(f"{path} is truncated: it ends inside its header; {_remedy()}.")
    header = np.frombuffer(content, dtype=">u4", count=1 + dimensions)
    if int(header[0]) != _MAGIC_OF_BYTES + dimensions:
        raise BadInputError(
            f"{path} is not an idx file of {dimensions} dimensions: it begins with {int(header[0])} "
            f"instead of {_MAGIC_OF_BYTES + dimensions}; {_remedy()}."
        )
    shape = tuple(int(size) for size in header[1:])
    _require_length(path, found=len(content) - header_bytes, expected=int(np.prod(shape, dtype=object)))
    return np.frombuffer(content, dtype=np.uint8, offset=header_bytes).reshape(shape)


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except EOFError:
        raise BadInputError(f"{path} is truncated: its compressed data end too early; {_remedy()}.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadInputError(f"{path} is corrupt ({error}); {_remedy()}.") from error
    except OSError as error:
        raise BadInputError(f"{path} cannot be read ({error.strerror}); {_remedy()}.") from error


def _require_length(path: Path, *, found: int, expected: int) -> None:
    if found != expected:
        state = "truncated" if found < expected else "corrupt"
        raise BadInputError(
            f"{path} is {state}: it contains {found} bytes of data, but its header says {expected}; "
            f"{_remedy()}."
        )


def _size_warnings(folder: Path, *, train: int, validation: int) -> list[str]:
    if (train, validation) == (_INFO.train_samples, _INFO.validation_samples):
        return []
    return [
        f"--data-dir {folder} contains {train} training and {validation} validation samples; the complete "
        f"data set has {_INFO.train_samples} and {_INFO.validation_samples}."
    ]


def _file_list() -> str:
    names = [f"{name}.gz" for names in _FILES.values() for name in names]
    return f"{', '.join(names[:-1])} and {names[-1]} (or the same without .gz)"


def _remedy() -> str:
    return "download the file again, or name a folder with complete files with --data-dir DIR"
