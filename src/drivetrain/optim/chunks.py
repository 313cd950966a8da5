"""Chunks of the flat weights, which are updated one after another and end at borders of parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from drivetrain.optim.flat_parameters import Segment, cut_into_buckets
from drivetrain.optim.rules import Optimiser

__all__ = ["MOST_CHUNK_BYTES", "Chunk", "cut_into_chunks", "segments_inside"]

# Bounds the temporary memory of an update; smaller chunks would launch more kernels.
MOST_CHUNK_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the flat weights that is updated at once, and its optimiser."""

    part: slice
    optimiser: Optimiser

    @property
    def elements(self) -> int:
        return int(self.part.stop - self.part.start)


def cut_into_chunks(segments: Sequence[Segment], *, end: int, most: int) -> list[slice]:
    """Chunks of up to `most` elements; a larger parameter is a chunk of its own."""
    return [slice(bucket.start, bucket.end) for bucket in cut_into_buckets(segments, end=end, most=most)]


def segments_inside(segments: Sequence[Segment], part: slice) -> list[Segment]:
    """The parameters of a chunk, counted from its start."""
    return [
        replace(segment, start=segment.start - part.start)
        for segment in segments
        if part.start <= segment.start < part.stop
    ]
