"""Captures a function as a CUDA graph: one launch instead of one per kernel."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor

_capturing = threading.Lock()  # PyTorch allows one capture at a time in a process


class Capturer:
    """Captures functions on one device; their graphs share memory, so they never run at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, function: Callable[[], Tensor], warm_up: int = 0) -> Callable[[], Tensor]:
        """Return a function that replays all kernels of `function`, and returns the same tensor.

        Before the capture, `function` is called `warm_up` times, for setup work that must not be
        captured. RuntimeError if it waits for the device.
        """
        current, stream = torch.cuda.current_stream(self._device), self._stream
        # The outer `stream` restores the current stream: a failed capture leaves its own in place.
        with _capturing, torch.cuda.device(self._device), torch.cuda.stream(current):
            stream.wait_stream(current)
            try:
                with torch.cuda.stream(stream):
                    for _ in range(warm_up):
                        function()
                current.wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                # Thread-local, so that other threads of the server cannot end the capture.
                with torch.cuda.graph(graph, self._pool, stream, "thread_local"):
                    result = function()
            except RuntimeError:
                torch.cuda.synchronize(self._device)
                raise

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay
