"""llama.cpp through its own API, as fast as its programs use it."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@contextmanager
def silent() -> Iterator[None]:
    """Suppress what llama.cpp writes to the process's stderr."""
    sys.stderr.flush()
    saved_stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved_stderr, 2)
        os.close(saved_stderr)
        os.close(null)


class Llama:
    """A GGUF file with a cache for some texts; `read` corresponds to our `Cache.read`."""

    def __init__(
        self, path: Path, *, rows: int, length: int, threads: int, repacked: bool = True
    ) -> None:
        import llama_cpp

        self._llama: Any = llama_cpp
        with silent():
            llama_cpp.llama_backend_init()
            defaults = llama_cpp.llama_model_default_params()
            defaults.use_extra_bufts = repacked
            self._model: Any = llama_cpp.llama_model_load_from_file(str(path).encode(), defaults)
            if not self._model:
                raise SystemExit(f"llama.cpp does not open {path}")
            options = llama_cpp.llama_context_default_params()
            options.n_ctx = rows * -(-length // 256) * 256  # divided among the rows
            options.n_seq_max = rows
            options.n_batch = options.n_ubatch = 512
            options.n_threads = options.n_threads_batch = threads
            self._context: Any = llama_cpp.llama_init_from_model(self._model, options)
        self._batch: Any = llama_cpp.llama_batch_init(512, 0, 1)
        self._held = [0] * rows
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self.vocabulary = int(llama_cpp.llama_vocab_n_tokens(vocabulary))

    def read(
        self, feeds: Sequence[tuple[int, Sequence[int]]], *, every: bool = False
    ) -> npt.NDArray[np.float32]:
        """Return the logits after the last id of each row, or after every id."""
        batch, count, requested = self._batch, 0, []
        for row, ids in feeds:
            first = self._held[row]
            for index, number in enumerate(ids):
                last = every or index == len(ids) - 1
                batch.token[count] = number
                batch.pos[count] = first + index
                batch.n_seq_id[count] = 1
                batch.seq_id[count][0] = row
                batch.logits[count] = last
                if last:
                    requested.append(count)
                count += 1
            self._held[row] = first + len(ids)
        batch.n_tokens = count
        if self._llama.llama_decode(self._context, batch):
            raise SystemExit("llama.cpp could not read a batch")
        get_logits = self._llama.llama_get_logits_ith
        if len(requested) == 1:
            return np.ctypeslib.as_array(
                get_logits(self._context, requested[0]), (1, self.vocabulary)
            )
        return np.stack(
            [
                np.ctypeslib.as_array(get_logits(self._context, n), (self.vocabulary,))
                for n in requested
            ]
        )

    def clear(self) -> None:
        self._llama.llama_memory_clear(self._llama.llama_get_memory(self._context), False)
        self._held = [0] * len(self._held)
