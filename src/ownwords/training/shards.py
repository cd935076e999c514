"""Tokenized documents on disk: encoded once, memory-mapped, and named by a hash of their content.

One folder holds the ids of all documents end to end (`tokens.bin`), the offset of each document
(`offsets.bin`), the size of its text in bytes (`bytes.bin`), its name (`names.json`), and a
manifest with the checksum of each file. Numbers are little-endian.

Shapes: N tokens, D documents; D1 is D + 1.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import CorpusError, WorkspaceError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, Stage
from ownwords.core.workspace import translate_os_errors
from ownwords.models import atomic_dir
from ownwords.tokenizers.text import TokenizerError, encode_utf8
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training import shard_cache

FORMAT = 2
_TOKENS, _OFFSETS, _BYTES, _NAMES = "tokens.bin", "offsets.bin", "bytes.bin", "names.json"
_INT64 = np.dtype("<i8")
# Characters encoded at a time: enough to use every core, few enough to need little memory.
_GROUP = 4 << 20
_BLAKE2B = partial(hashlib.blake2b, digest_size=16)
_AGAIN = "delete this folder and run the same command again: it is made anew from the texts"


@dataclass(frozen=True)
class TrainingText:
    """One document of training text."""

    id: str
    text: str

    def utf8(self) -> bytes:
        """The text in UTF-8; TokenizerError if it contains half a character (a lone surrogate)."""
        try:
            return encode_utf8(self.text)
        except TokenizerError as error:
            raise TokenizerError(f"in {self.id!r}, {error.message}", error.hint) from None


@dataclass(frozen=True, eq=False)
class Shards:
    """Encoded documents; shards with the same `key` have the same content."""

    folder: Path
    key: str
    tokenizer: str  # its fingerprint
    vocabulary: int
    special: tuple[int, ...]  # ids that stand for no text
    ids: npt.NDArray[Any]  # [N], memory-mapped: uint16, or uint32 for a large vocabulary
    offsets_D1: npt.NDArray[np.int64]
    bytes_D: npt.NDArray[np.int64]  # of each document's text in UTF-8
    names: tuple[str, ...]
    row_start: int | None = None  # the id that every row begins with; None: any

    @property
    def documents(self) -> int:
        return len(self.names)

    @property
    def tokens(self) -> int:
        """The number of tokens, including those that start and end documents."""
        return len(self.ids)

    @property
    def document_start(self) -> int | None:
        """The token that documents begin with; None if they begin with their text."""
        first = int(self.ids[0]) if len(self.ids) else None
        return first if first in self.special else None

    @property
    def pure_start(self) -> int | None:
        """`document_start`, unless documents also end with that token, as GPT-2's do."""
        start = self.document_start
        return None if start is not None and self.document(0)[-1] == start else start

    @property
    def text_bytes(self) -> int:
        return int(self.bytes_D.sum())

    def document(self, i: int) -> npt.NDArray[Any]:
        """The ids of one document: start, text, end."""
        return self.ids[self.offsets_D1[i] : self.offsets_D1[i + 1]]


def build_shards(
    texts: Iterable[TrainingText],
    tokenizer: Tokenizer,
    root: Path,
    *,
    marks: bool = True,
    progress: Progress | None = None,
) -> Shards:
    """Encode documents into `root/<key>/`, or open the shards that already exist for them.

    A document becomes its start token, the ids of its text and its end token, if the tokenizer has
    these two; without `marks`, the ids of its text alone. The texts are read twice, a few MB at a
    time; an iterator, which can be read only once, is first copied to disk. Damaged shards are
    encoded again, with a note. The names of special tokens in a text are encoded as plain text.
    """
    progress = Progress() if progress is None else progress
    if root.exists() and not root.is_dir():
        raise WorkspaceError(
            f"{root} is a file", hint="move it away: a folder of tokens goes there"
        )
    with _lasting(texts, root) as lasting:
        reading = _Reading(lasting, tokenizer, marks)
        for _ in reading:
            pass
        key, total = reading.key, reading.bytes
        folder = root / key
        if atomic_dir.readable_dir(folder).exists():
            try:
                return open_shards(folder)
            except WorkspaceError as error:
                progress.note(f"{error.message}; the texts are encoded again")
        with (
            progress.stage("encode", total, "bytes") as stage,
            atomic_dir.replace_dir(folder) as beside,
        ):
            reading = _Reading(lasting, tokenizer, marks)
            replaced = tokenizer.replaced
            _write(beside, reading, tokenizer, stage)
            if count := tokenizer.replaced - replaced:
                stage.note(
                    f"The tokenizer has no tokens for {count:,} characters of the texts, such as"
                    " control characters: they become U+FFFD."
                )
            if reading.key != key:
                raise CorpusError(
                    "the texts changed while they were encoded",
                    hint="run the same command again when nothing writes to them",
                )
            _write_manifest(beside, key, tokenizer)
    return open_shards(folder)


def open_shards(folder: Path) -> Shards:
    """Open encoded documents and verify their files; WorkspaceError if any is missing or damaged.

    Files whose size, times and inode are unchanged since their last full check are not read again
    before `shard_cache.RECHECK_S` has passed: until then, damage that changes none of these is not
    noticed.
    """
    folder = atomic_dir.readable_dir(folder)
    manifest = _manifest(folder)
    with shard_cache.unchecked(folder, manifest["files"], manifest["manifest"]) as names:
        for name in names:
            file = manifest["files"][name]
            _check(folder, name, file["bytes"], file["blake2b"])
    with suppress(OSError):
        os.utime(folder)  # record the last use, for pruning
    try:
        dtype = np.dtype(manifest["dtype"])
        mapped = folder / _TOKENS
        # An empty file cannot be mapped.
        ids = np.memmap(mapped, dtype, "r") if mapped.stat().st_size else np.empty(0, dtype)
        names = json.loads((folder / _NAMES).read_bytes())
        offsets_D1 = np.fromfile(folder / _OFFSETS, _INT64).astype(np.int64, copy=False)
        bytes_D = np.fromfile(folder / _BYTES, _INT64).astype(np.int64, copy=False)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be read: {error.strerror or error}") from error
    return Shards(
        folder=folder,
        key=manifest["key"],
        tokenizer=manifest["tokenizer"],
        vocabulary=manifest["vocabulary"],
        special=tuple(manifest["special"]),
        # A plain ndarray view: slicing a memmap takes ten times as long.
        ids=ids.view(np.ndarray),
        offsets_D1=offsets_D1,
        bytes_D=bytes_D,
        names=tuple(names),
        row_start=manifest["row_start"],
    )


class _Reading:
    """Iterates over texts and computes the key and the total size of those read so far."""

    def __init__(self, texts: Iterable[TrainingText], tokenizer: Tokenizer, marks: bool) -> None:
        self._texts = texts
        self._hash = hashlib.blake2b(digest_size=16)
        self.start, self.end = (tokenizer.start, tokenizer.end) if marks else (None, None)
        decisive = (FORMAT, self.start, self.end, tokenizer.row_start, tokenizer.vocabulary_size)
        self._begins = digest(tokenizer.fingerprint(), repr((*decisive, _special(tokenizer))))
        self.bytes = 0

    def __iter__(self) -> Iterator[tuple[TrainingText, int]]:
        """Iterate over the texts, each with its size in bytes."""
        for text in self._texts:
            data = text.utf8()
            self._hash.update(bytes.fromhex(digest(text.id, data)))
            self.bytes += len(data)
            yield text, len(data)

    @property
    def key(self) -> str:
        return digest(self._begins, self._hash.digest())


def _special(tokenizer: Tokenizer) -> list[int]:
    ends = {i for i in (tokenizer.start, tokenizer.end) if i is not None}
    return sorted(ends | set(tokenizer.special.values()))


@contextmanager
def _lasting(texts: Iterable[TrainingText], root: Path) -> Iterator[Iterable[TrainingText]]:
    """Yield the same texts as an iterable that can be read more than once."""
    if iter(texts) is not texts:
        yield texts
        return
    # In `root`, because the system's temporary folder may be in memory.
    with translate_os_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        file = tempfile.TemporaryFile("w+", encoding="ascii", dir=root)  # noqa: SIM115
    with file:
        for text in texts:
            line = json.dumps([text.id, text.text]) + "\n"
            with translate_os_errors(root):
                file.write(line)

        class Copied:
            def __iter__(self) -> Iterator[TrainingText]:
                file.seek(0)
                return (TrainingText(*json.loads(line)) for line in file)

        yield Copied()


def _write(folder: Path, reading: _Reading, tokenizer: Tokenizer, stage: Stage) -> None:
    """Write every file but the manifest."""
    dtype = _dtype(tokenizer.vocabulary_size)
    names: list[str] = []
    lengths: list[npt.NDArray[np.int64]] = []
    sizes: list[npt.NDArray[np.int64]] = []
    with (folder / _TOKENS).open("xb") as file:
        for group in _groups(reading):
            names += [text.id for text, _ in group]
            sizes.append(np.array([size for _, size in group], _INT64))
            encoded = tokenizer.encode_batch([text.text for text, _ in group])
            ids, here = _joined(encoded, tokenizer, dtype, reading.start, reading.end)
            lengths.append(here)
            file.write(ids.data)
            stage.advance(sum(size for _, size in group))
        file.flush()
        os.fsync(file.fileno())
    offsets_D1 = np.zeros(len(names) + 1, _INT64)
    np.cumsum(np.concatenate([*lengths, np.empty(0, _INT64)]), out=offsets_D1[1:])
    atomic_dir.write_file(folder / _OFFSETS, offsets_D1.tobytes())
    atomic_dir.write_file(
        folder / _BYTES, np.concatenate([*sizes, np.empty(0, _INT64)]).astype(_INT64).tobytes()
    )
    atomic_dir.write_file(folder / _NAMES, json.dumps(names).encode("ascii"))


def _dtype(vocabulary: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocabulary <= 65535 else "<u4")


def _groups(
    reading: Iterable[tuple[TrainingText, int]],
) -> Iterator[list[tuple[TrainingText, int]]]:
    group: list[tuple[TrainingText, int]] = []
    characters = 0
    for text, size in reading:
        group.append((text, size))
        characters += len(text.text)
        if characters >= _GROUP:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _joined(
    encoded: Sequence[npt.NDArray[np.uint32]],
    tokenizer: Tokenizer,
    dtype: np.dtype[Any],
    start: int | None,
    end: int | None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Concatenate the documents with their start and end tokens; returns ids and lengths."""
    before = [] if start is None else [np.array([start], np.uint32)]
    after = [] if end is None else [np.array([end], np.uint32)]
    ids = np.concatenate([part for one in encoded for part in (*before, one, *after)])
    if ids.size and int(ids.max()) >= tokenizer.vocabulary_size:
        raise TokenizerError(
            f"the tokenizer made the id {int(ids.max())}, and says that it has"
            f" {tokenizer.vocabulary_size:,} tokens",
            hint="its files do not belong together; copy the model's directory again",
        )
    marks = len(before) + len(after)
    return ids.astype(dtype), np.array([len(one) + marks for one in encoded], _INT64)


def _write_manifest(folder: Path, key: str, tokenizer: Tokenizer) -> None:
    """Write the manifest, as the last file: a folder without one is incomplete."""
    files = {}
    for name in (_TOKENS, _OFFSETS, _BYTES, _NAMES):
        with (folder / name).open("rb") as file:
            checksum = hashlib.file_digest(file, _BLAKE2B).hexdigest()
            files[name] = {"bytes": file.tell(), "blake2b": checksum}
    manifest: dict[str, object] = {
        "format": FORMAT,
        "key": key,
        "tokenizer": tokenizer.fingerprint(),
        "vocabulary": tokenizer.vocabulary_size,
        "special": _special(tokenizer),
        "row_start": tokenizer.row_start,
        "dtype": _dtype(tokenizer.vocabulary_size).str,
        "files": files,
    }
    manifest["manifest"] = _seal(manifest)
    atomic_dir.write_file(
        folder / shard_cache.MANIFEST, json.dumps(manifest, indent=2).encode("ascii")
    )


def _seal(manifest: Mapping[str, object]) -> str:
    """The checksum of the manifest's other entries, which the manifest stores itself."""
    rest = {name: value for name, value in manifest.items() if name != "manifest"}
    return digest(json.dumps(rest, sort_keys=True))


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / shard_cache.MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise WorkspaceError(
            f"{folder} holds no {shard_cache.MANIFEST}, so no texts", hint=_AGAIN
        ) from None
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise WorkspaceError(f"{path} is damaged: it is no JSON", hint=_AGAIN) from None
    if not isinstance(manifest, dict) or manifest.get("manifest") != _seal(manifest):
        raise WorkspaceError(f"{path} is damaged: it is not as it was written", hint=_AGAIN)
    if manifest["format"] != FORMAT:
        raise WorkspaceError(
            f"{folder} was written by another version of ownwords: its format is"
            f" {manifest['format']}, and {FORMAT} is read here",
            hint=_AGAIN,
        )
    return manifest


def _check(folder: Path, name: str, nbytes: int, checksum: str) -> None:
    path = folder / name
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != nbytes:
                raise WorkspaceError(
                    f"{path} is damaged: it has {size:,} bytes and was written with {nbytes:,}",
                    hint=_AGAIN,
                )
            if hashlib.file_digest(file, _BLAKE2B).hexdigest() != checksum:
                raise WorkspaceError(
                    f"{path} is damaged: its bytes are not those that were written", hint=_AGAIN
                )
    except FileNotFoundError:
        raise WorkspaceError(f"{path} is missing", hint=_AGAIN) from None
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be read: {error.strerror or error}") from error
