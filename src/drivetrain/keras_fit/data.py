"""The training data of `fit`, read as Keras reads them, as batches for the training program."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.core.randomness import draw_permutation, stream_key
from drivetrain.keras_fit.batches import Batch, Samples, packed_labels
from drivetrain.keras_fit.iterated import as_batches

__all__ = ["FitData", "Truth", "evaluation_iterator", "open_data", "parts_of"]

# Keras's own default.
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Truth:
    """What the metrics of a batch need beside the model's outputs, as Keras has it."""

    inputs: Any
    labels: Any
    weights: Any


@dataclass(slots=True, kw_only=True)
class FitData:
    """The batches of every epoch; `arrays` holds all samples where the data are arrays.

    Keras's iterator checks the arguments and says how many steps there are. Of arrays only the rows of each
    batch are passed on; anything else is iterated by Keras.
    """

    iterator: Any
    batch: int
    arrays: Samples | None
    given: Truth | None
    shuffle: bool
    sample: tuple[int, ...]
    label: tuple[int, ...]
    is_weighted: bool

    @property
    def steps(self) -> int | None:
        """The steps of an epoch; None if only the data know."""
        steps: int | None = self.iterator.num_batches
        return steps

    def batches(self, epoch: int, *, seed: int) -> Iterator[tuple[Batch, Truth]]:
        """The batches of an epoch, each with its truth."""
        if self.arrays is not None:
            yield from self._of_arrays(epoch, seed)
            return
        for _, _, (data,) in self.iterator:
            inputs, labels, weights = parts_of(data)
            samples = _samples(inputs, labels, weights)
            if len(samples) > self.batch:
                raise BadInputError(
                    f"A batch has {len(samples)} samples, but the first one had {self.batch}; later batches "
                    "may only be smaller."
                )
            yield Batch(samples=samples), Truth(inputs, labels, weights)

    def _of_arrays(self, epoch: int, seed: int) -> Iterator[tuple[Batch, Truth]]:
        assert self.arrays is not None
        assert self.given is not None
        count = len(self.arrays)
        rows = np.arange(count)
        if self.shuffle:
            rows = draw_permutation(stream_key(seed, "shuffle", epoch), count)
        for start in range(0, count, self.batch):
            own = rows[start : start + self.batch]
            given = self.given
            truth = Truth(*(_rows(part, own) for part in (given.inputs, given.labels, given.weights)))
            yield Batch(rows=own), truth


def open_data(
    *,
    x: Any,
    y: Any,
    sample_weight: Any,
    class_weight: Any,
    batch_size: int | None,
    steps_per_epoch: int | None,
    shuffle: bool,
) -> FitData:
    """The training data; raises what Keras raises for arguments that do not go together."""
    from keras.src.backend.torch.trainer import TorchEpochIterator
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    batches = as_batches(x)
    iterator = TorchEpochIterator(
        x=batches,
        y=y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps_per_epoch=steps_per_epoch,
        # Keras would warn that it cannot shuffle batches.
        shuffle=shuffle and batches is x,
        class_weight=class_weight,
        steps_per_execution=1,
    )
    adapter = iterator.data_adapter
    parts = parts_of(adapter._inputs) if isinstance(adapter, ArrayDataAdapter) else None
    if parts is not None and iterator.steps_per_epoch is None and all(map(_is_array, parts)):
        tensors = [None if part is None else _as_tensor(part) for part in parts]
        samples = _samples(*tensors)
        return _data(
            iterator, samples, batch=adapter.batch_size, given=Truth(*tensors), shuffle=bool(shuffle)
        )
    first = _first_batch(iterator)
    batch = getattr(adapter, "batch_size", None) or len(first.inputs)
    samples = _samples(first.inputs, first.labels, first.weights)
    return _data(iterator, samples, batch=batch, given=None, shuffle=bool(shuffle), labels=first.labels)


def evaluation_iterator(*, x: Any, y: Any, sample_weight: Any, batch_size: int | None, steps: Any) -> Any:
    """Keras's iterator over data that are only looked at."""
    from keras.src.backend.torch.trainer import TorchEpochIterator

    return TorchEpochIterator(
        x=as_batches(x),
        y=y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps_per_epoch=steps,
        shuffle=False,
        steps_per_execution=1,
    )


def _data(
    iterator: Any, samples: Samples, *, batch: int, given: Truth | None, shuffle: bool, labels: Any = None
) -> FitData:
    labels = labels if given is None else given.labels
    return FitData(
        iterator=iterator,
        batch=batch,
        arrays=None if given is None else samples,
        given=given,
        shuffle=shuffle,
        sample=tuple(samples.inputs.shape[1:]),
        label=tuple(labels.shape[1:]),
        is_weighted=bool((samples.labels[:, -1] != 1).any())
        or (given is not None and given.weights is not None),
    )


def _first_batch(iterator: Any) -> Truth:
    for _, _, (data,) in iterator:
        parts = parts_of(data)
        break
    else:
        raise BadInputError("The training data are empty; give at least one batch.")
    iterator.reset()
    return Truth(*parts)


def parts_of(data: Any) -> tuple[Any, Any, Any]:
    """Inputs, labels and weights of a batch; a structure of one tensor counts as the tensor."""
    from keras.src.trainers.data_adapters.data_adapter_utils import unpack_x_y_sample_weight

    inputs, labels, weights = map(_single, unpack_x_y_sample_weight(data))
    return inputs, labels, weights


def _single(part: Any) -> Any:
    import keras

    leaves = [] if part is None else keras.tree.flatten(part)
    return leaves[0] if len(leaves) == 1 else part


def _is_array(part: Any) -> bool:
    return part is None or isinstance(part, np.ndarray | Tensor)


def _as_tensor(part: Any) -> Tensor:
    tensor = part.detach().cpu() if isinstance(part, Tensor) else torch.from_numpy(np.ascontiguousarray(part))
    return tensor.float() if tensor.is_floating_point() else tensor


def _samples(inputs: Any, labels: Any, weights: Any) -> Samples:
    for name, part in (("inputs", inputs), ("labels", labels)):
        if not isinstance(part, np.ndarray | Tensor):
            raise BadInputError(
                f"Inside the scope a batch has one tensor of {name}, but it has {_in_words(part)}; train "
                "such a model outside of the scope."
            )
    if weights is not None and int(np.prod(weights.shape)) != len(inputs):
        raise BadInputError(
            f"sample_weight has the shape {tuple(weights.shape)}; inside the scope it must have one weight "
            f"per sample: ({len(inputs)},)."
        )
    tensors = [None if part is None else _as_tensor(part) for part in (inputs, labels, weights)]
    assert tensors[0] is not None
    assert tensors[1] is not None
    return Samples(tensors[0], packed_labels(tensors[1], tensors[2]))


def _in_words(part: Any) -> str:
    return "none" if part is None else f"a {type(part).__name__} of several"


def _rows(part: Tensor | None, rows: Any) -> Tensor | None:
    return None if part is None else part[torch.from_numpy(rows)]
