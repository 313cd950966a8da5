"""own_data.json: fingerprints of a user's own data as a run divided them, by which they are known again."""

import hashlib
from dataclasses import asdict, dataclass

import numpy as np

from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json, write_json
from drivetrain.data.source import DataSplits, Source
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import RunDirectory

__all__ = ["OwnData", "fingerprint", "own_data_of", "stored_own_data", "warn_of_other_data", "write_own_data"]

_HASHED_SAMPLES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnData:
    """What tells the data of a run apart; older runs noted nothing of their validation samples."""

    train: str
    train_samples: int
    validation: str | None = None
    validation_samples: int | None = None

    def has_train(self, source: Source) -> bool:
        """Whether these are the samples that were trained on."""
        return len(source) == self.train_samples and fingerprint(source) == self.train

    def has_validation(self, source: Source) -> bool:
        """Whether these are the samples that validated."""
        return len(source) == self.validation_samples and fingerprint(source) == self.validation


def own_data_of(data: DataSplits) -> OwnData:
    """What a run notes of its data."""
    validation = data.validation
    return OwnData(
        train=fingerprint(data.train),
        train_samples=len(data.train),
        validation=None if validation is None else fingerprint(validation),
        validation_samples=None if validation is None else len(validation),
    )


def write_own_data(directory: RunDirectory, own: OwnData | None) -> None:
    """Notes the data of a run, where they are a user's own."""
    if own is not None:
        write_json(directory.own_data, asdict(own))


def stored_own_data(directory: RunDirectory) -> OwnData | None:
    """What a run has noted; of an older one what its identity tells; None where its data are no user's."""
    try:
        if directory.own_data.is_file():
            return OwnData(**read_json(directory.own_data))
        identity = read_json(directory.identity)
        if "own_data" not in identity:
            return None
        return OwnData(train=identity["own_data"], train_samples=identity["training_samples"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"RUN {directory.path} does not tell what it was trained on ({error}); measure it by --split all "
            "or --split test."
        ) from error


def warn_of_other_data(
    recipe: Recipe, data: DataSplits, *, trained_in: str | None, directory: RunDirectory
) -> list[str]:
    """Refuses to divide data of a user's function that are not those of the training; where another
    --data-dir makes them others, returns what to say."""
    then = stored_own_data(directory)
    if then is None or then.has_train(data.train):
        return []
    sentence = (
        f"the samples that --dataset {recipe.dataset} gives are not those that RUN was trained on, so those "
        "held out for validation here may have been trained on"
    )
    if recipe.data_dir != trained_in:
        return [f"{sentence}."]
    raise BadInputError(f"{sentence}; --split all measures every sample.")


def fingerprint(source: Source) -> str:
    """Tells data sets apart by evenly spaced samples."""
    indices = np.unique(np.linspace(0, len(source) - 1, _HASHED_SAMPLES).astype(np.int64))
    images, labels = source.fetch(indices)
    return hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()[:16]
