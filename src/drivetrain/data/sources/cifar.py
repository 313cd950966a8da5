"""Reads CIFAR-10 and CIFAR-100 from their official files, in the binary or the python (pickle) form."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import DatasetInfo, dataset_info
from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import existing_folder, way_out
from drivetrain.data.source import ArraySource, DataSpec, DataSplits

# A pickle is read into memory as a whole; a larger file is not one of CIFAR's.
_MOST_BYTES = 512 * 2**20
_SIDE, _CHANNELS = 32, 3
_PIXELS = _SIDE * _SIDE * _CHANNELS
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))


class _Bytes:
    """Stands in for numpy.dtype while unpickling; accepts only uint8."""

    def __init__(self, code: Any, *_flags: Any) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"it contains an array of {code!r} instead of bytes")

    def __setstate__(self, _state: Any) -> None:
        """Ignores the state: byte order and alignment do not matter for bytes."""


class _Array:
    """Stands in for numpy.ndarray while unpickling; numpy's own unpickling would trust the file."""

    pixels: NDArray[np.uint8]

    def __init__(self, *_template: Any) -> None:
        self.pixels = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: Any) -> None:
        _version, shape, kind, is_fortran, content = state
        if not isinstance(kind, _Bytes) or not isinstance(content, bytes) or is_fortran:
            raise pickle.UnpicklingError("it contains an array that is not a plain array of bytes")
        self.pixels = np.frombuffer(content, dtype=np.uint8).reshape(shape)


# Both names of the module: numpy 2 renamed numpy.core to numpy._core.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Bytes,
}


class _ArraysOnly(pickle.Unpickler):
    """Unpickles plain values and byte arrays only: any other name could run code from the file."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a CIFAR file never needs")
        return _ADMITTED[module, name]


def read_cifar_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a file, its keys as text and its arrays as bytes."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise pickle.UnpicklingError(f"it is larger than {_MOST_BYTES} bytes")
        content = _ArraysOnly(BytesIO(path.read_bytes()), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it contains a {type(content).__name__} instead of a dictionary")
    # A broken pickle can raise any kind of exception.
    except Exception as error:
        state = "truncated" if isinstance(error, EOFError) or "truncated" in str(error) else "corrupt"
        raise BadInputError(
            f"{path} is {state} ({error}); download it again, or name another folder with --data-dir DIR."
        ) from error
    return {_as_text(key): _as_plain(value) for key, value in content.items()}


def _as_text(key: Any) -> str:
    return key.decode(errors="replace") if isinstance(key, bytes) else str(key)


def _as_plain(value: Any) -> Any:
    return value.pixels if isinstance(value, _Array) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """One form of the official files: their names and where their labels are."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names_file: str
    # Binary form: label bytes before the pixels; the last one is the label (CIFAR-100 puts the coarse label
    # first). Python form: 0, and the keys below.
    label_bytes: int = 0
    label_key: str = ""
    names_key: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        return self.train + self.test


_FORMS = {
    "cifar10": (
        _Form(
            folder="cifar-10-batches-bin",
            train=tuple(f"{batch}.bin" for batch in _BATCHES),
            test=("test_batch.bin",),
            names_file="batches.meta.txt",
            label_bytes=1,
        ),
        _Form(
            folder="cifar-10-batches-py",
            train=_BATCHES,
            test=("test_batch",),
            names_file="batches.meta",
            label_key="labels",
            names_key="label_names",
        ),
    ),
    "cifar100": (
        _Form(
            folder="cifar-100-binary",
            train=("train.bin",),
            test=("test.bin",),
            names_file="fine_label_names.txt",
            label_bytes=2,
        ),
        _Form(
            folder="cifar-100-python",
            train=("train",),
            test=("test",),
            names_file="meta",
            label_key="fine_labels",
            names_key="fine_label_names",
        ),
    ),
}


def open_cifar(name: str, *, data_dir: str | None) -> DataSplits:
    """Opens `--dataset cifar10` or `cifar100` from --data-dir or the official folder inside it."""
    info = dataset_info(name)
    folder = existing_folder(data_dir, dataset=name, holding=_holding(name))
    form, place = _find_form(folder, info)
    train = _read(place, form.train, form=form, info=info)
    test = _read(place, form.test, form=form, info=info)
    return DataSplits(
        train=train,
        validation=test,
        test=None,
        spec=DataSpec(
            channels=info.channels,
            height=info.height,
            width=info.width,
            num_classes=info.num_classes,
            class_names=_class_names(place / form.names_file, form=form, info=info),
            image_dtype="uint8",
            normalisation="standardise" if name == "cifar10" else "unit",
        ),
        warnings=_size_warnings(place, info, train=len(train), test=len(test)),
    )


def holds_cifar(name: str, folder: Path) -> bool:
    """Whether training files of CIFAR are there; refuses a folder that lacks others of the same form."""
    places = ((form, place) for form in _FORMS[name] for place in (folder, folder / form.folder))
    if not any((place / form.train[0]).is_file() for form, place in places):
        return False
    return _find_form(folder, dataset_info(name))[1].is_dir()


def _find_form(folder: Path, info: DatasetInfo) -> tuple[_Form, Path]:
    """Finds the first form of which any file exists; then all its files must exist."""
    for form in _FORMS[info.name]:
        for place in (folder, folder / form.folder):
            missing = [name for name in form.files if not (place / name).is_file()]
            if len(missing) < len(form.files):
                if missing:
                    raise BadInputError(
                        f"--data-dir: {place} lacks {', '.join(missing)}; {_remedy(info.name, folder)}."
                    )
                return form, place
    files = [name for form in _FORMS[info.name] for name in form.train]
    remedy = way_out(
        folder,
        lambda path: any((path / name).is_file() for name in files),
        otherwise=_remedy(info.name, folder),
    )
    raise BadInputError(f"--data-dir {folder} does not contain {_holding(info.name)}; {remedy}.")


def _read(place: Path, names: Sequence[str], *, form: _Form, info: DatasetInfo) -> ArraySource:
    read = _read_binary if form.label_bytes else _read_python
    parts = [read(place / name, form) for name in names]
    images = np.concatenate([_channels_last(pixels) for pixels, _ in parts])
    for name, (_, labels) in zip(names, parts, strict=True):
        if len(labels) and int(labels.max()) >= info.num_classes:
            raise BadInputError(
                f"{place / name} is corrupt: it contains the label {int(labels.max())} instead of 0 to "
                f"{info.num_classes - 1}; {_remedy(info.name, place)}."
            )
    source = ArraySource(images=images, labels=np.concatenate([labels for _, labels in parts]))
    if len(source) == 0:
        raise BadInputError(f"{place / names[0]} contains no samples; {_remedy(info.name, place)}.")
    return source


def _read_binary(path: Path, form: _Form) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    record_bytes = form.label_bytes + _PIXELS
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise BadInputError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error
    if len(content) % record_bytes:
        raise BadInputError(
            f"{path} is truncated: its {len(content)} bytes are not a multiple of the {record_bytes} bytes "
            "per sample; download it again, or name another folder with --data-dir DIR."
        )
    records = content.reshape(-1, record_bytes)
    return records[:, form.label_bytes :], records[:, form.label_bytes - 1].astype(np.int64)


def _read_python(path: Path, form: _Form) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = read_cifar_pickle(path)
    pixels, labels = content.get("data"), content.get(form.label_key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or not _are_labels(labels):
        raise BadInputError(
            f"{path} is corrupt: it lacks a byte array `data` or a list of whole numbers `{form.label_key}`; "
            "download it again."
        )
    if pixels.shape != (len(labels), _PIXELS):
        raise BadInputError(
            f"{path} is corrupt: its data have the shape {pixels.shape}, but {len(labels)} labels need the "
            f"shape ({len(labels)}, {_PIXELS}); download it again."
        )
    return pixels, np.array(labels, dtype=np.int64)


def _are_labels(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(isinstance(label, int) and label >= 0 for label in value)


def _channels_last(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    planes = pixels.reshape(-1, _CHANNELS, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _class_names(path: Path, *, form: _Form, info: DatasetInfo) -> tuple[str, ...]:
    """The class names in the meta file; the built-in names if it is missing or has another count."""
    if not path.is_file():
        return info.class_names
    if form.names_key:
        listed = read_cifar_pickle(path).get(form.names_key) or []
        names = [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in listed]
    else:
        names = path.read_text(errors="replace").split()
    return tuple(names) if len(names) == info.num_classes else info.class_names


def _size_warnings(place: Path, info: DatasetInfo, *, train: int, test: int) -> list[str]:
    if (train, test) == (info.train_samples, info.validation_samples):
        return []
    return [
        f"--data-dir: {place} contains {train} training and {test} validation samples; the complete data set "
        f"has {info.train_samples} and {info.validation_samples}."
    ]


def _holding(name: str) -> str:
    binary, python = _FORMS[name]
    return f"{binary.folder} ({', '.join(binary.files)}) or {python.folder} ({', '.join(python.files)})"


def _remedy(name: str, folder: Path) -> str:
    return f"run `drivetrain data fetch {name} --data-dir {folder}` to download the files"
