"""Engines with one interface: `begin` reads a prompt in each row, `step` writes the next token."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from bench.random_models import DIRECTORY, gguf_file


class Runner(Protocol):
    """A model with room for some texts; its results are complete when a call returns."""

    def begin(self, prompts: Sequence[Sequence[int]]) -> None: ...
    def step(self, ids: Sequence[int]) -> None: ...


class Ours:
    def __init__(self, folder: Path, kind: str, *, rows: int, length: int, threads: int) -> None:
        from ownwords.inference.model import load_engine
        from ownwords.models import directory

        weights: Any = kind
        engine = load_engine(
            folder / DIRECTORY,
            directory.read(folder / DIRECTORY).config,
            device="cpu",
            weights=weights,
            threads=threads,
        )
        if not engine.name.startswith("native"):
            raise SystemExit(f"the native engine is not there; what serves is {engine.name}")
        self._cache = engine.cache(rows, length)

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        for row in range(len(prompts)):
            self._cache.truncate(row, 0)
        self._cache.forward(dict(enumerate(prompts)))

    def step(self, ids: Sequence[int]) -> None:
        self._cache.forward({row: (number,) for row, number in enumerate(ids)})


class LlamaCpp:
    def __init__(
        self, folder: Path, kind: str, *, rows: int, length: int, threads: int, repacked: bool
    ) -> None:
        from bench.llama import Llama

        path = gguf_file(folder, kind)
        self._llama = Llama(path, rows=rows, length=length, threads=threads, repacked=repacked)

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        self._llama.clear()
        for row, ids in enumerate(prompts):  # it takes 512 tokens at once
            self._llama.read([(row, ids)])

    def step(self, ids: Sequence[int]) -> None:
        self._llama.read([(row, (number,)) for row, number in enumerate(ids)])


class Transformers:
    def __init__(self, folder: Path, kind: str, *, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self._torch = torch
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder / DIRECTORY, dtype=dtype)
        self._cache: Any = None

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        self._cache = None
        self._read([list(ids) for ids in prompts])

    def step(self, ids: Sequence[int]) -> None:
        self._read([[number] for number in ids])

    def _read(self, ids: list[list[int]]) -> None:
        with self._torch.inference_mode():
            output = self._model(
                self._torch.tensor(ids),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        self._cache = output.past_key_values


def some_ids(rows: int, count: int) -> list[list[int]]:
    """Return token ids that every engine gets; all vocabularies here have them."""
    generator = np.random.default_rng(1)
    ids: list[list[int]] = generator.integers(0, 256, (rows, count)).tolist()
    return ids
