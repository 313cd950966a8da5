"""An optimiser that keeps its state in host memory and copies it to the device only while it is used.

The flat weights are divided into chunks. The state of a chunk is copied into one of two buffers on the
device, the chunk is updated, and its state is copied back. Each buffer has its own stream, so that one chunk
is copied while the other is updated.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from drivetrain.optim.chunks import MOST_CHUNK_BYTES, Chunk, cut_into_chunks, segments_inside
from drivetrain.optim.flat_parameters import Segment
from drivetrain.optim.rules import BuildOptimiser

__all__ = ["OffloadedOptimiser"]

# Small models have at least this many chunks; otherwise the two buffers would be as large as the state
# itself.
_LEAST_CHUNKS = 16
# While one chunk is updated, the state of the next is copied; more buffers would take more device memory.
_NUM_BUFFERS = 2


class OffloadedOptimiser:
    """Updates weights bit-identically to the optimiser that `build` makes, with less device memory.

    `states` are host tensors of the whole layout, pinned if the device is a CUDA device. A parameter larger
    than `chunk_bytes` is a chunk of its own; None derives the size from the model.
    """

    def __init__(
        self,
        build: BuildOptimiser,
        *,
        values: Tensor,
        segments: Sequence[Segment],
        chunk_bytes: int | None = None,
    ) -> None:
        # Built on the meta device, so that no state is ever allocated on the real one.
        outline = values.to("meta")
        if chunk_bytes is None:
            chunk_bytes = min(MOST_CHUNK_BYTES, values.nbytes // _LEAST_CHUNKS)
        chunks = cut_into_chunks(segments, end=len(values), most=chunk_bytes // values.itemsize)
        self._chunks = [
            Chunk(part, build(values=outline[part], segments=segments_inside(segments, part)))
            for part in chunks
        ]
        outlines = build(values=outline, segments=segments).states
        # With pageable memory, copies with non_blocking=True would still make the host wait.
        is_pinned = values.device.type == "cuda"
        self._states = {
            name: torch.zeros(len(values), dtype=state.dtype, pin_memory=is_pinned)
            for name, state in outlines.items()
        }
        longest = max(chunk.elements for chunk in self._chunks)
        self._buffers = [
            {name: values.new_empty(longest, dtype=state.dtype) for name, state in outlines.items()}
            for _ in range(_NUM_BUFFERS)
        ]
        self._streams = _streams(values.device)

    @property
    def states(self) -> dict[str, Tensor]:
        """The state in host memory, after all pending copies have arrived."""
        for stream in self._streams:
            stream.synchronize()
        return self._states

    @property
    def buffers(self) -> list[Tensor]:
        """The buffers for states on the device."""
        return [buffer for buffers in self._buffers for buffer in buffers.values()]

    @torch.no_grad()
    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:
        """One weight update in place, chunk by chunk; the host does not wait."""
        with self._beside_the_computation():
            for index, chunk in enumerate(self._chunks):
                with self._stream(index), self._visiting(chunk, index):
                    chunk.optimiser.step(
                        values=values[chunk.part], gradients=gradients[chunk.part], rate=rate, update=update
                    )

    @contextmanager
    def _visiting(self, chunk: Chunk, index: int) -> Iterator[None]:
        """Copies the state of a chunk to a device buffer for the block, and back."""
        # All chunks of one buffer use the same stream (`_stream`), so a buffer is overwritten only after
        # its state has been copied back.
        buffers = self._buffers[index % _NUM_BUFFERS]
        visitors = {name: buffer[: chunk.elements] for name, buffer in buffers.items()}
        for name, visitor in visitors.items():
            visitor.copy_(self._states[name][chunk.part], non_blocking=True)
        chunk.optimiser.states.update(visitors)
        yield
        for name, visitor in visitors.items():
            self._states[name][chunk.part].copy_(visitor, non_blocking=True)

    @contextmanager
    def _beside_the_computation(self) -> Iterator[None]:
        """Makes the streams wait for the gradients, and later computation wait for the streams."""
        if not self._streams:
            yield
            return
        computation = torch.accelerator.current_stream()
        for stream in self._streams:
            stream.wait_stream(computation)
        yield
        for stream in self._streams:
            computation.wait_stream(stream)

    def _stream(self, index: int) -> AbstractContextManager[object]:
        return self._streams[index % _NUM_BUFFERS] if self._streams else nullcontext()


def _streams(device: torch.device) -> list[torch.Stream]:
    return [] if device.type == "cpu" else [torch.Stream(device) for _ in range(_NUM_BUFFERS)]
