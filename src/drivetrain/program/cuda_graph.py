"""Records what a CUDA device is given to do, as a CUDA graph."""

import gc
from collections.abc import Callable
from contextlib import suppress

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
        """Refused, with the error that stood in the way, where the computation needs the host."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        gc.collect()
        torch.cuda.empty_cache()
        generator = self._generator()
        untouched = generator.clone_state()
        # Not torch.cuda.graph: at an error it leaves its stream current, and tells of the wrong error.
        with torch.cuda.stream(self._stream):
            # Other threads, such as the one that pins the batches of a loader, may go on meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                compute()
                graph.capture_end()
            except BaseException:
                self._abandon(graph)
                # It still takes itself to be recorded, and would refuse to draw.
                generator.graphsafe_set_state(untouched)
                raise
        replay: Callable[[], None] = graph.replay
        return replay

    def start_over(self) -> None:
        """Recordings from now on share nothing with earlier ones, which are no longer used."""
        self._pool = torch.cuda.graph_pool_handle()

    def _generator(self) -> torch.Generator:
        index = self._device.index
        return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """Ends a capture that has failed; that fails too, but puts an end to it."""
        with suppress(RuntimeError):
            graph.capture_end()
        self.start_over()
