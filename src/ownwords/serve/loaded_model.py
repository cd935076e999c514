"""A model in memory and its worker; loading a model and sizing its KV cache."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from ownwords.core import hardware
from ownwords.inference.model import Model
from ownwords.models import directory
from ownwords.models.configs.config import ModelConfig
from ownwords.models.directory import ModelDirectory
from ownwords.models.fingerprint import Stamp, model_stamp
from ownwords.serve.model_worker import ModelWorker
from ownwords.serve.settings import ServeSettings

_GRACE_S = 5.0  # time for a request that has just got the model to start using it


@dataclass(eq=False)
class LoadedModel:
    """A model in memory; `stamp` is its folder's stamp at the time of loading."""

    name: str
    folder: Path
    model: Model
    worker: ModelWorker
    stamp: Stamp = field(repr=False, default=())

    async def close_when_idle(self) -> None:
        """Close the worker as soon as it has no readers."""
        await asyncio.sleep(_GRACE_S)
        while not self.worker.is_idle:
            await asyncio.sleep(1.0)
        await self.worker.close()


def load(folder: Path, settings: ServeSettings) -> tuple[ModelDirectory, Model, Stamp]:
    """Load a model, and load it again if a training has replaced it meanwhile."""
    while True:
        stamp = model_stamp(folder)
        with directory.open_directory(folder) as path:
            contents = directory.read(path)
        model = Model.load(
            folder, device=settings.device, weights=settings.weights, threads=settings.threads
        )
        if stamp == model_stamp(folder):
            return contents, model, stamp


def cache_size(config: ModelConfig, settings: ServeSettings) -> tuple[int, int]:
    """The rows and tokens per row of a KV cache that fits into the free memory."""
    length = min(config.context, settings.context)
    token_bytes = 2 * config.kv_width * config.layers * 4  # keys and values, float32 at most
    free = hardware.read_memory().available_bytes
    rows = int(free * settings.memory_share) // (token_bytes * length) if free else settings.rows
    return max(1, min(settings.rows, rows)), length
