"""A model in the server's hands: loaded with the room that the memory allows, and a pen."""

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

_SETTLING_S = 5.0  # in which who has just asked for a model begins to use it


@dataclass(eq=False)
class LoadedModel:
    """A model that is loaded; `said` is what its directory says."""

    name: str
    folder: Path
    said: ModelDirectory
    model: Model
    worker: ModelWorker
    stamp: Stamp = field(repr=False, default=())

    async def close_when_idle(self) -> None:
        """Let it go as soon as nobody uses it any more."""
        await asyncio.sleep(_SETTLING_S)
        while not self.worker.is_idle:
            await asyncio.sleep(1.0)
        await self.worker.close()


def load(folder: Path, settings: ServeSettings) -> tuple[ModelDirectory, Model, Stamp]:
    """Read all of it; once more where a training has just put another in its place."""
    while True:
        stamp = model_stamp(folder)
        with directory.open_directory(folder) as there:
            said = directory.read(there)
        model = Model.load(
            folder, device=settings.device, weights=settings.weights, threads=settings.threads
        )
        if stamp == model_stamp(folder):
            return said, model, stamp


def room_for(config: ModelConfig, settings: ServeSettings) -> tuple[int, int]:
    """How many texts of how many tokens a cache may hold, by the memory there is."""
    length = min(config.context, settings.context)
    token_bytes = 2 * config.kv_width * config.layers * 4  # keys and values, as float32 at the most
    free = hardware.read_memory().available_bytes
    rows = int(free * settings.memory_share) // (token_bytes * length) if free else settings.rows
    return max(1, min(settings.rows, rows)), length
