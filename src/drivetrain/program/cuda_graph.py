"""Records what a CUDA device is given to do, as a CUDA graph."""

from collections.abc import Callable

import torch

__all__ = ["CudaRecorder"]


class CudaRecorder:
    """All recordings share one pool of memory: only one of them runs at a time, and none keeps a result."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, compute: Callable[[], None]) -> None:
        """On the stream of the recordings, so that libraries have made what they keep for a stream."""
        computing = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            compute()
        computing.wait_stream(self._stream)

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Refused, with a RuntimeError, where the computation needs the host."""
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as the one that pins the batches of a loader, may go on meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            compute()
        replay: Callable[[], None] = graph.replay
        return replay
