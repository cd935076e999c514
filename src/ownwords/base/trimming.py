"""Trims a base's vocabulary to the tokens of an author's texts and of everyday English.

Of Gemma's 262,144 tokens an author uses about 25,000. Without the others, training, writing and the
file cost less, and no probability is spent on them.
"""

import lzma
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.version import __version__
from ownwords.evaluation.style import REFERENCE
from ownwords.language.words import Lexicon, is_in_the_language
from ownwords.models import atomic_dir, directory, registry, safetensors_header
from ownwords.models.directory import (
    CARD,
    CONFIG,
    FORMAT,
    GENERATION,
    PROVENANCE,
    TOKENIZER,
    encode_json,
    model_fingerprint,
)
from ownwords.models.safetensors_header import write_file
from ownwords.models.untrusted_files import read_json
from ownwords.models.weight_mapping import (
    SINGLE,
    MappedTensor,
    find_tensors,
    is_quantized,
    map_weights,
)
from ownwords.tokenizers import tokenizer, tokenizer_json, trimming
from ownwords.tokenizers.tokenizer import Tokenizer

COMMON = "common.txt.xz"  # the most common words and marks of English prose

TRIMMED = "trimmed"  # the folder of trimmed bases within a workspace's runs

SMALL = 50_257  # tokens, most of which English needs: such a vocabulary is not trimmed
_ROWS = ("embedding.weight", "head.weight")  # weights with one row for each token
_MIN_REMOVED = 0.25  # of the tokens, to be worth a second copy of the model
_BLOCK_ROWS = 4096
_SAMPLED_TEXTS = 50
_MIN_OF_SCRIPT = 0.005  # of the letters, for a script to count as the author's
_MIN_SHARE = 0.1  # of all letters, for a language to count; less is taken as quotations
_TOKENIZER_SETTINGS = (
    "add_bos_token",
    "add_eos_token",
    "bos_token",
    "chat_template",
    "clean_up_tokenization_spaces",
    "eos_token",
    "pad_token",
    "unk_token",
)


def trim(base: Path, texts: Iterable[str], out: Path, *, progress: Progress | None = None) -> Path:
    """Write the base with fewer tokens to `out`, atomically; reuse the same one if it is there.

    Keeps the tokens of the texts, those of common English if the texts are in English or else those
    of similar words, and all tokens in other scripts that they use. The result splits the texts
    exactly as the base does. Returns `base` itself if trimming would remove too little. Raises
    ModelError for an unusable base, WorkspaceError if writing fails.
    """
    with directory.open_directory(base) as folder:
        before = registry.config_from_json(read_json(folder / CONFIG)).vocabulary
        if before <= SMALL:
            return base
        texts = list(texts)
        key = digest(model_fingerprint(folder, provenance=True), *texts)
        path = atomic_dir.readable_dir(out) / PROVENANCE
        found = read_json(path).get("trimmed") if path.exists() else None
        if isinstance(found, dict) and found.get("key") == key:
            return out
        files = directory.read(folder)
        full = tokenizer.Tokenizer(files.tokenizer_files)
        files.check_tokenizer(full)
        stored = find_tensors(folder)
        if is_quantized(stored):
            return base  # packed rows cannot be removed
        mapped = map_weights(stored, files.config, folder)
        with (progress or Progress()).stage("Trimming the vocabulary") as stage:
            document = tokenizer_json.read(TOKENIZER, files.tokenizer_files[TOKENIZER])
            trimmed, old_ids = trimming.trim(document, kept_ids(full, texts))
            if len(old_ids) > (1 - _MIN_REMOVED) * before:
                return base
            stage.note(f"{len(old_ids):,} of {before:,} tokens stay")
            data = _files(folder, trimmed, old_ids, key)
            with atomic_dir.replace_dir(out) as draft:
                _write_weights(draft, mapped, old_ids)
                for name, content in data.items():
                    atomic_dir.write_file(draft / name, content)
    return out


def kept_ids(full: Tokenizer, texts: Sequence[str]) -> set[int]:
    """Return the ids to keep for these texts, without the tokens that these are merged from."""
    ids = _ids_of(full, texts)
    english, others = _by_language(texts)
    if english or not others:
        ids |= _ids_of(full, common_words())
    similar = _bigrams("\n".join(others)) if others else frozenset()
    scripts = _other_scripts(texts)
    if not similar and not scripts:
        return ids
    gaps = set(full.gaps)
    for number in set(range(full.vocabulary_size)) - ids - gaps:
        token = full.decode([number])
        letters = [letter for letter in token if letter.isalpha()]
        if letters and (
            {_script_of(letter) for letter in letters} <= scripts or _bigrams(token) <= similar
        ):
            ids.add(number)
    return ids


def _by_language(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the texts in English and those in other languages, each if there are enough."""
    frequent = Lexicon.load().frequent
    english: list[str] = []
    others: list[str] = []
    for text in texts:
        (english if is_in_the_language([text], frequent) else others).append(text)
    sizes = [sum(map(len, kind)) for kind in (english, others)]
    least = _MIN_SHARE * sum(sizes)
    return english if sizes[0] >= least else [], others if sizes[1] >= least else []


def are_english(texts: Sequence[str]) -> bool:
    """Return whether texts are in English, by a sample of them."""
    # Spread over all: an author may have changed languages.
    sample = texts[:: -(-len(texts) // _SAMPLED_TEXTS) or 1]
    return is_in_the_language(sample, Lexicon.load().frequent)


def common_words() -> list[str]:
    """Return the most common words and marks of English prose, most with the space before them."""
    return lzma.decompress((REFERENCE / COMMON).read_bytes()).decode().split("\n")


def _ids_of(full: Tokenizer, texts: Sequence[str]) -> set[int]:
    return {int(number) for row in full.encode_batch(texts) for number in np.unique(row)}


def _bigrams(text: str) -> frozenset[str]:
    """Return the pairs of letters of a text in lower case; of a single letter, the letter.

    Groups of three would remove tokens that the author's next post needs: on a Polish blog of 14
    posts they lost 5.9% of what the base knew, but pairs only 0.1%.
    """
    text = text.casefold()
    return frozenset(text[at : at + 2] for at in range(max(1, len(text) - 1)))


def _other_scripts(texts: Sequence[str]) -> frozenset[str]:
    """Return the scripts other than Latin in which part of the texts is written."""
    letters = (letter for text in texts for letter in text if letter.isalpha())
    scripts = Counter(map(_script_of, letters))
    least = _MIN_OF_SCRIPT * scripts.total()
    return frozenset(name for name, n in scripts.items() if n >= least) - {"LATIN"}


@cache
def _script_of(letter: str) -> str:
    """Return the first word of a letter's name in Unicode: LATIN, CYRILLIC, CJK, ..."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _write_weights(draft: Path, mapped: Sequence[MappedTensor], old_ids: Sequence[int]) -> None:
    """Write the weights with the rows of the kept tokens only, in their stored type."""
    arrays = safetensors_header.map_arrays(info for _, info, _ in mapped)
    rows = np.asarray(old_ids)
    entries = [
        (info.name, info.dtype, (len(rows), *info.shape[1:]) if ours in _ROWS else info.shape)
        for ours, info, _ in mapped
    ]

    def blocks() -> Iterator[memoryview]:
        for ours, info, _ in mapped:
            array = arrays[info.name]
            if ours in _ROWS:
                for start in range(0, len(rows), _BLOCK_ROWS):
                    yield array[rows[start : start + _BLOCK_ROWS]].data.cast("B")
            else:
                yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    write_file(draft / SINGLE, entries, blocks())


def _files(
    folder: Path, document: Mapping[str, Any], old_ids: Sequence[int], key: str
) -> dict[str, bytes]:
    """Return the files besides the weights: config, tokenizer, provenance, card and licences."""
    new_ids = {old: new for new, old in enumerate(old_ids)}
    config = _renumbered(read_json(folder / CONFIG), new_ids)
    before = config["vocab_size"]
    config["vocab_size"] = len(old_ids)
    data = {CONFIG: encode_json(config), TOKENIZER: tokenizer_json.write(dict(document))}
    if (folder / GENERATION).exists():
        data[GENERATION] = encode_json(_renumbered(read_json(folder / GENERATION), new_ids))
    path = folder / tokenizer_json.CONFIG
    settings = read_json(path) if path.exists() else {}
    data[tokenizer_json.CONFIG] = encode_json(
        {"tokenizer_class": "PreTrainedTokenizerFast"}
        | {name: settings[name] for name in _TOKENIZER_SETTINGS if name in settings}
    )
    for name in (tokenizer_json.TEMPLATE, tokenizer_json.SPECIAL_MAP):
        if (folder / name).exists():
            data[name] = (folder / name).read_bytes()
    own = tokenizer.Tokenizer(data)
    provenance = read_json(folder / PROVENANCE) if (folder / PROVENANCE).exists() else {}
    data[PROVENANCE] = encode_json(
        provenance
        | {
            "format": FORMAT,
            "written_by": f"ownwords {__version__}",
            "tokenizer": directory.tokenizer_fields(own, data[TOKENIZER]),
            "trimmed": {"key": key, "tokens": len(old_ids), "tokens_before": before},
        }
    )
    if (folder / CARD).exists():
        data[CARD] = (folder / CARD).read_bytes()
    return data | directory.read_license_files(folder)


def _renumbered(settings: Mapping[str, object], new_ids: Mapping[int, int]) -> dict[str, Any]:
    """Return the settings with new token ids; null for a removed token."""
    renumbered = dict(settings)
    for name, value in settings.items():
        if name.endswith("_token_id") and isinstance(value, int):
            renumbered[name] = new_ids.get(value)
        elif name.endswith("_token_id") and isinstance(value, list):
            renumbered[name] = [new_ids[each] for each in value if each in new_ids]
    return renumbered
