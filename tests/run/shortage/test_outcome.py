"""Which errors say that memory ran out, and where it happened in words."""

import pytest
import torch

from drivetrain.run.shortage.outcome import RankReport, ShortagePart, is_out_of_memory


def test_errors_of_memory_and_their_consequences() -> None:
    wrapped = ValueError("compiling failed")
    wrapped.__cause__ = torch.OutOfMemoryError("CUDA out of memory")
    assert is_out_of_memory(wrapped)
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"))
    assert not is_out_of_memory(RuntimeError("Connection closed by peer"))
    # Python's own error is about the host, where smaller micro-batches rarely help.
    assert not is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("update", "in update 5"),
        ("optimiser step", "in the optimiser step of update 5"),
        ("validation", "in the validation after update 4"),
        ("compiling", "while compiling before update 5"),
    ],
)
def test_updates_are_counted_from_one(part: ShortagePart, words: str) -> None:
    report = RankReport(rank=0, ran_out=True, finished=4, part=part, is_whole=True)
    assert report.where == words
