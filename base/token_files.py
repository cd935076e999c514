"""Stores the tokens of the base's texts, which take minutes to encode.

A folder holds the concatenated ids of all documents (`tokens.bin`, little-endian), and the rest of
the dataset as JSON.
"""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ownwords.core.workspace import write_atomically
from ownwords.training.token_dataset import TokenDataset

_TOKENS, _INDEX = "tokens.bin", "index.json"


def store_dataset(dataset: TokenDataset, root: Path) -> None:
    """Write a dataset to the folder of its key."""
    folder = root / dataset.key
    folder.mkdir(parents=True, exist_ok=True)
    dataset.ids.tofile(folder / _TOKENS)
    index = asdict(dataset)
    del index["ids"], index["key"]
    index["offsets"], prompts = index.pop("offsets_D1").tolist(), index.pop("prompts_D")
    if prompts is not None:
        index["prompts"] = prompts.tolist()
    write_atomically(folder / _INDEX, json.dumps(index))


def open_dataset(folder: Path) -> TokenDataset:
    """Open a stored dataset; its ids stay on the disk."""
    index = json.loads((folder / _INDEX).read_text("utf-8"))
    prompts = index.pop("prompts", None)
    dtype = "<u2" if index["vocabulary"] <= 65535 else "<u4"
    return TokenDataset(
        folder.name,
        # A plain ndarray view: slicing a memmap takes ten times as long.
        ids=np.memmap(folder / _TOKENS, dtype, "r").view(np.ndarray),
        offsets_D1=np.array(index.pop("offsets"), np.int64),
        prompts_D=None if prompts is None else np.array(prompts, np.int64),
        **index,
    )
