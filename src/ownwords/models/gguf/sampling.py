"""How to sample, as generation_config.json and as llama.cpp say it."""

from collections.abc import Mapping

import numpy as np

from ownwords.models.gguf.container import Value

_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


def metadata_of(generation: Mapping[str, object]) -> dict[str, Value]:
    """What generation_config.json says of it, in llama.cpp's keys."""
    found: dict[str, Value] = {}
    for theirs, key in _KEYS.items():
        value = generation.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = int(value) if theirs == "top_k" else float(value)
    return found


def generation_of(metadata: Mapping[str, Value]) -> dict[str, object]:
    """The inverse of `metadata_of`."""
    found: dict[str, object] = {}
    for theirs, key in _KEYS.items():
        value = metadata.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[theirs] = value if theirs == "top_k" else float(str(np.float32(value)))
    return found
