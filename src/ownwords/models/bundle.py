"""A model directory, as Hugging Face's tools expect it: saved whole, checked before it is used.

    config.json  model.safetensors  generation_config.json    the model
    tokenizer.json  tokenizer_config.json                     its tokenizer
    README.md                                                 its card
    ownwords.json                                             where it comes from

A model and its tokenizer are welded: neither is saved without the other, and `load` refuses a
directory whose tokenizer is not the one that the model was saved with.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from ownwords.core.version import __version__
from ownwords.core.workspace import telling_of_the_disk
from ownwords.models import staging, weights
from ownwords.models.family import CausalLM, Config, config_from_hf
from ownwords.models.safely import ModelError, parse_object, read_bytes, read_object, shown

CONFIG = "config.json"
GENERATION = "generation_config.json"
CARD = "README.md"
PROVENANCE = "ownwords.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_FILES = (
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
FORMAT = 1

_MAX_TOKENIZER_BYTES = 64 << 20  # Gemma's, with 262,144 tokens, has 33 MB
_MAX_CARD_BYTES = 4 << 20
# What may stand in a folder that is replaced: files of a model, which the new one brings or voids.
_OF_A_MODEL = re.compile(
    r"(config|generation_config|ownwords|preprocessor_config)\.json|README\.md|LICENSE.*"
    r"|\.gitattributes|model.*\.safetensors|model\.safetensors\.index\.json|pytorch_model.*\.bin"
    r"|pytorch_model\.bin\.index\.json|" + "|".join(map(re.escape, TOKENIZER_FILES))
)
_OURS = {"format", "written_by", "tokenizer"}

_NAMES_OF_DTYPES = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


class Tokenizer(Protocol):
    """What a model needs to know of its tokenizer."""

    @property
    def vocabulary_size(self) -> int: ...
    @property
    def start(self) -> int | None: ...
    @property
    def end(self) -> int | None: ...
    def files(self) -> Mapping[str, bytes]: ...
    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class Bundle:
    """A model directory in memory.

    `tokenizer_files` are the bytes of the tokenizer's files by name; whoever makes a tokenizer
    of them passes it to `check_tokenizer`. `generation` is generation_config.json, `provenance`
    what `save` was given, `fingerprint` the tokenizer's at that time (None in a foreign directory).
    """

    model: CausalLM
    config: Config
    tokenizer_files: Mapping[str, bytes]
    generation: Mapping[str, object]
    provenance: Mapping[str, object]
    card: str
    fingerprint: str | None

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """ModelError if this is not the tokenizer that the model was trained with."""
        _check_size(tokenizer.vocabulary_size, self.config, "the tokenizer")
        if self.fingerprint not in (None, tokenizer.fingerprint()):
            raise _another_tokenizer("the tokenizer")


def save(
    folder: str | Path,
    model: CausalLM,
    tokenizer: Tokenizer,
    *,
    card: str = "",
    provenance: Mapping[str, object] | None = None,
    generation: Mapping[str, object] | None = None,
    dtype: torch.dtype | None = None,
    shard_bytes: int | None = None,
) -> None:
    """Write a model directory, whole or not at all; one that stands there is replaced.

    `dtype` (float32, bfloat16, float16) rounds the weights; without it they are written as they
    are. `shard_bytes` divides them into files. A `card` that begins with front matter ("---") is
    written as it is, any other text is given one. Raises ModelError if tokenizer and model do not
    fit or the folder holds anything that is not a model's, WorkspaceError if the disk refuses.
    """
    folder, config = Path(folder), model.config
    files = dict(tokenizer.files())
    if TOKENIZER not in files or not files.keys() <= set(TOKENIZER_FILES):
        raise ModelError(f"a model is saved with its {TOKENIZER}, and was given {shown([*files])}")
    _check_size(tokenizer.vocabulary_size, config, "the tokenizer")
    tokens = _tokens(files[TOKENIZER], TOKENIZER, config)
    reserved = _OURS & (provenance or {}).keys()
    if reserved:
        raise ModelError(f"{shown(reserved)} in {PROVENANCE} cannot be given")
    with telling_of_the_disk(folder):
        _check_replaceable(folder)

    ids = {"bos_token_id": tokenizer.start, "eos_token_id": tokenizer.end}
    dtypes = {dtype or parameter.dtype for parameter in model.parameters()}
    stored = _NAMES_OF_DTYPES.get(min(dtypes, key=lambda each: each.itemsize), "float32")
    files[CONFIG] = _json({**config.to_hf(), **ids, "torch_dtype": stored})
    files[GENERATION] = _json({**ids, **(generation or {})})
    files[CARD] = _card(card, folder.resolve().name, model).encode()
    files[PROVENANCE] = _json(
        {
            "format": FORMAT,
            "written_by": f"ownwords {__version__}",
            "tokenizer": {
                "fingerprint": tokenizer.fingerprint(),
                "size": tokenizer.vocabulary_size,
                "tokens": tokens,
            },
            **(provenance or {}),
        }
    )
    with staging.replacing(folder) as beside:
        weights.write(beside, model, dtype, shard_bytes)
        for name, data in files.items():
            staging.write_file(beside / name, data)


def load(folder: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Bundle:
    """Read a model directory, ours or another's; nothing in it is executed.

    Everything is checked before the weights are read: ModelError or ConfigError says what is
    missing, damaged or does not fit. Without `dtype` the weights keep the type of their file.
    """
    try:
        return _load(staging.standing(Path(folder)), device, dtype)
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error.strerror or error}") from error


def _load(folder: Path, device: str, dtype: torch.dtype | None) -> Bundle:
    if not folder.is_dir():
        raise ModelError(f"{folder} is no folder", hint="give the folder that holds config.json")
    if not (folder / CONFIG).exists():
        adapter = (folder / "adapter_config.json").exists()
        raise ModelError(
            f"{folder} holds no {CONFIG}" + (": it is an adapter, not a model" if adapter else ""),
            hint="is it the folder of a whole model?",
        )
    config = config_from_hf(read_object(folder / CONFIG))
    if not (folder / TOKENIZER).exists():
        raise ModelError(
            f"{folder} holds no {TOKENIZER}, and a model without its tokenizer is noise",
            hint="copy it from where the model came; transformers writes it with"
            " AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
        )
    found = [name for name in TOKENIZER_FILES if (folder / name).exists()]
    files = {name: read_bytes(folder / name, _MAX_TOKENIZER_BYTES) for name in found}
    fingerprint, provenance = _check_welded(folder, files[TOKENIZER], config)
    generation = read_object(folder / GENERATION) if (folder / GENERATION).exists() else {}
    card = b""
    if (folder / CARD).exists():
        card = read_bytes(folder / CARD, _MAX_CARD_BYTES)
    model = weights.load(folder, config, device, dtype)
    text = card.decode("utf-8", "replace")
    return Bundle(model, config, files, generation, provenance, text, fingerprint)


def _check_welded(
    folder: Path, tokenizer: bytes, config: Config
) -> tuple[str | None, dict[str, object]]:
    """The fingerprint in ownwords.json and what else it holds, if its tokenizer is still there."""
    where = str(folder / TOKENIZER)
    tokens = _tokens(tokenizer, where, config)
    if not (folder / PROVENANCE).exists():
        return None, {}
    said = read_object(folder / PROVENANCE)
    version, welded = said.get("format"), said.get("tokenizer")
    if type(version) is not int or version > FORMAT:
        raise ModelError(
            f"{folder / PROVENANCE} is of format {version!r:.40}, and this ownwords knows {FORMAT}",
            hint="upgrade ownwords",
        )
    fingerprint = welded.get("fingerprint") if isinstance(welded, dict) else None
    if not isinstance(welded, dict) or not isinstance(fingerprint, str):
        raise ModelError(f"{folder / PROVENANCE} does not name the model's tokenizer")
    if welded.get("tokens") != tokens:
        raise _another_tokenizer(where)
    return fingerprint, {name: value for name, value in said.items() if name not in _OURS}


def _another_tokenizer(what: str) -> ModelError:
    return ModelError(
        f"{what} is not the one that the model was saved with, and it would write noise",
        hint=f"put the model's own {TOKENIZER} back",
    )


def _tokens(data: bytes, where: str, config: Config) -> str:
    """A digest of which id stands for which token, however the file is laid out.

    ModelError if an id is beyond the vocabulary of the model.
    """
    parsed = parse_object(data, where)
    model, added = parsed.get("model"), parsed.get("added_tokens") or []
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    try:
        if isinstance(vocabulary, list):  # of pairs, a token and its score
            pairs = [(number, str(token)) for number, (token, _) in enumerate(vocabulary)]
        else:
            pairs = [(number, token) for token, number in vocabulary.items()]  # type: ignore[union-attr]
        pairs += [(each["id"], each["content"]) for each in added]  # type: ignore[attr-defined]
        lines = [f"{number:d} {token}\n" for number, token in sorted(set(pairs))]
        largest = max(number for number, _ in pairs)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{where} has no table of tokens and their numbers") from error
    _check_size(largest + 1, config, where)
    hasher = hashlib.blake2b(digest_size=16)
    for line in lines:
        hasher.update(line.encode("utf-8", "surrogatepass"))
    return hasher.hexdigest()


def _check_size(size: int, config: Config, what: str) -> None:
    """A model may have more rows than its tokenizer tokens, as padding; never fewer."""
    if size > config.vocabulary:
        raise ModelError(
            f"{what} has {size:,} tokens, and the model knows {config.vocabulary:,} (vocab_size"
            f" in {CONFIG})",
            hint="each model works with its own tokenizer only",
        )


def _check_replaceable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file", hint="give the name of a folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    others = {name for name in names if not _OF_A_MODEL.fullmatch(name)}
    if others or (names and CONFIG not in names):
        raise ModelError(
            f"{folder} holds files that are not a model's, and is not replaced:"
            f" {shown(others or names)}",
            hint="give an empty or new folder, or move them away",
        )


def _json(value: Mapping[str, object]) -> bytes:
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelError(f"what is to be saved with the model is no JSON: {error}") from error
    return text.encode("utf-8") + b"\n"


def _card(card: str, name: str, model: CausalLM) -> str:
    if card.startswith("---\n"):
        return card
    config = model.config
    count = sum(parameter.numel() for parameter in model.parameters())
    body = card or (
        f"# {name}\n\nA language model of {count:,} parameters ({config.MODEL_TYPE},"
        f" {config.layers} layers of width {config.width}, {config.vocabulary:,} tokens, a"
        f" context of {config.context:,}), made with ownwords.\n"
    )
    front = (
        "library_name: transformers\npipeline_tag: text-generation\ntags:\n- ownwords\n"
        "# license: yours to choose, for example cc-by-4.0\n"
    )
    return f"---\n{front}---\n\n{body}"
