"""How fast this processor trains, as its last trainings measured it; without torch.

The best of them counts: one beside other work tells how busy the machine was, not what it can do.
"""

import json
from contextlib import suppress

import msgspec

from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import data_folder, write_atomically
from ownwords.native import bindings

_FILE = "speeds.json"  # in the user's data folder
_RECENT = 6  # measurements that count: a processor may become slower for good
_ENOUGH = 3  # from which they count even where they are slower than was assumed
LEAST_PARAMETERS = 10_000_000  # of a base: smaller ones tell little about others


def best_flops(assumed: float = 0.0, *, is_lora: bool) -> float:
    """FLOP/s of the best recent training of all weights, or of a LoRA; those assumed without any.

    A single slow one may have run beside too much else.
    """
    recent = _stored().get(_key(is_lora=is_lora), [])
    return max(recent) if len(recent) >= _ENOUGH else max([assumed, *recent])


def remember(flops: float, *, is_lora: bool) -> None:
    """Keep the FLOP/s of a training; a folder that cannot be written keeps nothing."""
    stored, key = _stored(), _key(is_lora=is_lora)
    stored[key] = [*stored.get(key, []), float(f"{flops:.4g}")][-_RECENT:]
    with suppress(OwnwordsError, OSError):
        data_folder().mkdir(parents=True, exist_ok=True)
        write_atomically(data_folder() / _FILE, json.dumps(stored, indent=1) + "\n")


def _stored() -> dict[str, list[float]]:
    try:
        data = (data_folder() / _FILE).read_bytes()
        return msgspec.json.decode(data, type=dict[str, list[float]])
    except (OSError, ValueError, OwnwordsError):  # not there, or damaged
        return {}


def _key(*, is_lora: bool) -> str:
    """What the speed depends on: the processor, its threads, the library, and what is trained."""
    library, cpu = bindings.load_library(), hardware.read_cpu()
    label = library.isa.label if library else "PyTorch alone"
    trained = "LoRA" if is_lora else "all weights"
    return f"{cpu.model}, {hardware.threads(cpu)} threads, {label}, {trained}"
