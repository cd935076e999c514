"""Tiny models whose tokenizer has hundreds of tokens, merged at random."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreign_tokenizers
from ownwords.models import bundle
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.llama import LlamaConfig
from ownwords.models.decoder import build
from ownwords.tokenizers import tokenizer, tokenizer_json

ALPHABET = "aeinrst "
SHAPE = LlamaConfig(vocabulary=1, context=128, width=32, layers=2, heads=2, hidden=64)


def random_tokenizer_json(kind: str, seed: int = 1, merges: int = 300) -> dict[str, Any]:
    """A tokenizer.json of one of the two kinds, whose merges are drawn at random."""
    document: Any
    if kind == "byte-level":
        document = foreign_tokenizers.byte_level(foreign_tokenizers.AS_LETTERS, ["<eos>"])
        space = "Ġ"
    else:
        document = foreign_tokenizers.DOCUMENTS["Gemma"] | {"pre_tokenizer": None}
        space = "▁"
    document = json.loads(json.dumps(document))
    model = document["model"]
    vocabulary: dict[str, int] = model["vocab"]
    vocabulary.update((token["content"], token["id"]) for token in document["added_tokens"])
    after = 1 + max(vocabulary.values())
    letters = [space if letter == " " else letter for letter in ALPHABET]
    for letter in letters:
        if letter not in vocabulary:
            vocabulary[letter] = after
            after += 1
    rng = random.Random(seed)
    words, model["merges"] = list(letters), []
    while len(model["merges"]) < merges:
        left, right = rng.choice(words), rng.choice(words)
        if len(left + right) > 6 or [left, right] in model["merges"]:
            continue
        model["merges"].append([left, right])
        if left + right not in vocabulary:
            vocabulary[left + right] = after
            words.append(left + right)
            after += 1
    return document  # type: ignore[no-any-return]


def load_tokenizer(document: dict[str, Any]) -> tokenizer.Tokenizer:
    files = {tokenizer_json.TOKENIZER: tokenizer_json.write(document)}
    if document["model"]["byte_fallback"]:
        files[tokenizer_json.CONFIG] = tokenizer_json.write(
            {"bos_token": "<s>", "eos_token": "</s>"}
        )
    return tokenizer.Tokenizer(files)


def write(
    folder: Path,
    kind: str = "sentencepiece",
    tied: bool = True,
    spare: int = 7,
    config: ModelConfig = SHAPE,
) -> Path:
    """A model with one of these tokenizers, and some rows more than tokens."""
    document = random_tokenizer_json(kind, merges=1200)
    own = load_tokenizer(document)
    vocabulary = own.vocabulary_size + spare
    model = build(replace(config, vocabulary=vocabulary, tied=tied))
    model.init_weights(1)
    bundle.save(folder, model, own, generation={"eos_token_id": 2})
    (folder / "LICENSE").write_text("All rights to those who share.")
    return folder
