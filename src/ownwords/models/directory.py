"""Reads and checks a model directory, except its weights; does not import torch.

    config.json  model.safetensors  generation_config.json    the model
    tokenizer.json  tokenizer_config.json                     its tokenizer
    README.md                                                 its card
    ownwords.json                                             its provenance
    copy-guard.safetensors                                    its copy guard; optional
    adapter.safetensors                                       its LoRA, if it was tuned by one

A directory is refused if its tokenizer is not the one that the model was saved with.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ownwords.core.fingerprint import digest
from ownwords.core.workspace import is_disk_full, translate_os_errors
from ownwords.models import atomic_dir, registry
from ownwords.models.configs.config import ModelConfig, check_size
from ownwords.models.untrusted_files import (
    ModelError,
    open_file,
    read_bytes,
    read_json,
)

CONFIG = "config.json"
GENERATION = "generation_config.json"
CARD = "README.md"
PROVENANCE = "ownwords.json"
COPY_GUARD = "copy-guard.safetensors"
ADAPTER = "adapter.safetensors"
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
LICENSE_FILES = ("LICENSE*", "NOTICE*")
FORMAT = 1

_MAX_TOKENIZER_BYTES = 64 << 20  # Gemma's, with 262,144 tokens, is 33 MB
_MAX_CARD_BYTES = 4 << 20
# The fields that `bundle.save` itself adds to the provenance.
RESERVED = {"format", "written_by", "tokenizer"}


class Tokenizer(Protocol):
    """The part of a tokenizer's interface that saving a model uses."""

    @property
    def vocabulary_size(self) -> int: ...
    @property
    def start(self) -> int | None: ...
    @property
    def end(self) -> int | None: ...
    def files(self) -> Mapping[str, bytes]: ...
    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class ModelDirectory:
    """The contents of a model directory, without its weights.

    `tokenizer_files` holds the contents of the tokenizer's files by name; pass a tokenizer built
    from them to `check_tokenizer`. `generation` is generation_config.json, `provenance` the
    argument of `bundle.save`, `fingerprint` the tokenizer's when the model was saved (None if
    another program wrote the directory). `is_unchanged`: tokenizer.json is still the saved one.
    """

    config: ModelConfig
    tokenizer_files: Mapping[str, bytes]
    generation: Mapping[str, object]
    provenance: Mapping[str, object]
    card: str
    fingerprint: str | None
    license_files: Mapping[str, bytes]
    is_unchanged: bool

    @property
    def base(self) -> str:
        """The base that the model was tuned from, by its name on the hub if that is known."""
        derived = self.provenance.get("derived_from")
        model = derived.get("model") if isinstance(derived, dict) else None
        return model if isinstance(model, str) else base_name(self.provenance)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise ModelError if this is not the tokenizer that the model was saved with."""
        check_size(tokenizer.vocabulary_size, self.config, "the tokenizer")
        if self.fingerprint is None:
            return
        if (
            self.is_unchanged
            and tokenizer.files().get(TOKENIZER) == self.tokenizer_files[TOKENIZER]
        ):
            return  # computing the fingerprint of a large vocabulary takes half a second
        if tokenizer.fingerprint() != self.fingerprint:
            raise ModelError(
                "the tokenizer is not the one that the model was saved with: it would write noise",
                hint=f"put the model's own {TOKENIZER} back",
            )


def encode_json(value: Mapping[str, object]) -> bytes:
    """Encode a file of a model directory; ModelError for values that JSON cannot represent."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelError(f"the model's metadata cannot be written as JSON: {error}") from error
    return text.encode("utf-8") + b"\n"


@contextmanager
def open_directory(folder: str | Path) -> Iterator[Path]:
    """Yield the path to read `folder` from; an OSError becomes a ModelError."""
    try:
        yield atomic_dir.readable_dir(Path(folder))
    except OSError as error:
        if is_disk_full(error):  # while something was written from it
            raise
        raise ModelError(f"{folder} cannot be read: {error.strerror or error}") from error


def base_name(provenance: Mapping[str, object]) -> str:
    """Return the name of the base of a fine-tuned model; "" if it was trained from scratch."""
    name = provenance.get("base_name")
    return name if isinstance(name, str) else ""


def times_read(provenance: Mapping[str, Any]) -> float | None:
    """Return how many epochs a model was trained for; None if that is not recorded."""
    try:
        outcome, expected = provenance["outcome"], provenance["expected"]
        return float(expected["epochs"] * outcome["tokens"] / max(1, expected["tokens"]))
    except (LookupError, TypeError, ValueError):  # written by another program, or not by `make`
        return None


def read(folder: Path) -> ModelDirectory:
    """Read a model directory without its weights; executes nothing in it.

    ModelError or ConfigError says what is missing, damaged or inconsistent.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder", hint="give the folder that holds config.json")
    if not (folder / CONFIG).exists():
        adapter = (folder / "adapter_config.json").exists()
        raise ModelError(
            f"{folder} is an adapter, not a model" if adapter else f"{folder} has no {CONFIG}",
            hint="is it a complete model directory?",
        )
    config = registry.config_from_json(read_json(folder / CONFIG))
    if not (folder / TOKENIZER).exists():
        raise ModelError(
            f"{folder} has no {TOKENIZER}; a model without its tokenizer writes noise",
            hint="copy it from the model's source; transformers writes it with"
            " AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
        )
    names = [name for name in TOKENIZER_FILES if (folder / name).exists()]
    files = {name: read_bytes(folder / name, _MAX_TOKENIZER_BYTES) for name in names}
    fingerprint, provenance, is_unchanged = _read_provenance(folder, files[TOKENIZER])
    generation = read_json(folder / GENERATION) if (folder / GENERATION).exists() else {}
    card = b""
    if (folder / CARD).exists():
        card = read_bytes(folder / CARD, _MAX_CARD_BYTES)
    text = card.decode("utf-8", "replace")
    papers = read_license_files(folder)
    return ModelDirectory(
        config, files, generation, provenance, text, fingerprint, papers, is_unchanged
    )


def read_license_files(folder: Path) -> dict[str, bytes]:
    """Return the licence of a model and its notices, by name."""
    paths = sorted(path for name in LICENSE_FILES for path in folder.glob(name))
    return {path.name: read_bytes(path, _MAX_CARD_BYTES) for path in paths}


def _read_provenance(folder: Path, tokenizer: bytes) -> tuple[str | None, dict[str, object], bool]:
    """Return the tokenizer's fingerprint, the provenance, and whether it is unchanged."""
    if not (folder / PROVENANCE).exists():
        return None, {}, False
    data = read_json(folder / PROVENANCE)
    version, saved = data.get("format"), data.get("tokenizer")
    if type(version) is not int or version > FORMAT:
        raise ModelError(
            f"{folder / PROVENANCE} has format {version!r:.40}; this ownwords reads up to {FORMAT}",
            hint="upgrade ownwords",
        )
    fingerprint = saved.get("fingerprint") if isinstance(saved, dict) else None
    if not isinstance(saved, dict) or not isinstance(fingerprint, str):
        raise ModelError(f"{folder / PROVENANCE} does not name the model's tokenizer")
    rest = {name: value for name, value in data.items() if name not in RESERVED}
    return fingerprint, rest, saved.get("sha256") == _sha256(tokenizer)


def tokenizer_fields(tokenizer: Tokenizer, data: bytes) -> dict[str, object]:
    """Return the provenance's fields on the tokenizer whose tokenizer.json is `data`."""
    return {
        "fingerprint": tokenizer.fingerprint(),
        "size": tokenizer.vocabulary_size,
        "sha256": _sha256(data),
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_FREE = frozenset({"", "mit", "cc0-1.0", "unlicense", "other"})  # no conditions, or unknown
_ENTRY = re.compile(r"^(license|license_link|base_model): *['\"]?([^\s'\"#]+)", re.MULTILINE)


@dataclass(frozen=True)
class BaseLicense:
    """The licence of a base, and the files that must accompany every model derived from it."""

    license: str = ""
    link: str = ""
    base_model: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "BaseLicense":
        """Return the licence that a model directory's card names; empty if it has no conditions."""
        entries = _card_entries(folder)
        if entries.get("license", "") in _FREE:
            return cls()
        files = read_license_files(folder)
        base = entries.get("base_model", folder.name)
        return cls(entries["license"], entries.get("license_link", ""), base, files)

    def on(self, card: str) -> str:
        """Return the card with front matter that names the base and its licence."""
        front = "# license: yours to choose, for example cc-by-4.0\n"
        section = ""
        if self.license:
            front = f"license: {self.license}\nbase_model: {self.base_model}\n"
            front += f"license_link: {self.link}\n" if self.link else ""
            link = f", {self.link}" if self.link else ""
            papers = " and ".join(sorted(self.files))
            goes = f" Include {papers} with every copy." if papers else ""
            section = (
                f"\n## License\n\nThis model is derived from {self.base_model} and is subject"
                f" to its license ({self.license}{link}).{goes}\n"
            )
        return (
            "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- ownwords\n"
            f"{front}---\n\n{card}{section}"
        )

    def provenance(self) -> dict[str, object]:
        """Return the base and its licence as fields of the provenance."""
        if not self.license:
            return {}
        return {"derived_from": {"model": self.base_model, "license": self.license}}


def license_of(folder: Path) -> str:
    """Return the licence that the card of a model directory names; empty if it names none."""
    return _card_entries(folder).get("license", "")


def _card_entries(folder: Path) -> dict[str, str]:
    """Return the licence, its link and the base model that the card of a model directory names."""
    path = folder / CARD
    card = read_bytes(path, _MAX_CARD_BYTES).decode("utf-8", "replace") if path.exists() else ""
    front = card.split("\n---", 1)[0] if card.startswith("---\n") else ""
    return dict(_ENTRY.findall(front))


# Suffixes of the files that affect the model's output; the card does not.
_DECISIVE = {".json", ".safetensors", ".jinja", ".txt", ".model", ".xz"}
# mtime granularity: a file younger than this may change without changing its times.
_SETTLED_NS = 2_000_000_000

Stamp = tuple[tuple[str, int, int, int], ...]
# By path, inode, size, mtime and ctime.
_digests: dict[tuple[Path, int, int, int, int], str] = {}


def model_fingerprint(folder: Path, *, copy_guard: bool = True, provenance: bool = False) -> str:
    """Return a digest of weights, config, tokenizer and copy guard; "" if there is no directory.

    `provenance` includes the provenance file (fine-tuning depends on its base's). Digests of files
    that have not changed since this process read them are reused.
    """
    parts: list[str] = []
    with translate_os_errors(folder):
        for path in _decisive_files(folder):
            skipped = (path.name == PROVENANCE and not provenance) or (
                path.name == COPY_GUARD and not copy_guard
            )
            if not skipped:
                parts += [path.name, _file_digest(path)]
    return digest(*parts) if parts else ""


def model_stamp(folder: Path) -> Stamp:
    """Return name, inode, mtime and size of each file, to detect changes without opening them."""
    stats = ((path.name, path.stat()) for path in _decisive_files(folder))
    return tuple((name, stat.st_ino, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _decisive_files(folder: Path) -> list[Path]:
    folder = atomic_dir.readable_dir(folder)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in files if path.suffix in _DECISIVE and path.is_file()]


def _file_digest(path: Path) -> str:
    stat = path.stat()
    key = (path.resolve(), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if key in _digests:
        return _digests[key]
    with open_file(path) as file:
        value = hashlib.file_digest(file, "blake2b").hexdigest()  # type: ignore[arg-type]
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS:
        _digests[key] = value
    return value
