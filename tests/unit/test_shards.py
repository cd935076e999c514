"""Shards round-trip, are cached by content, and damage is reported, never read."""

import errno
import json
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import damage
import foreign_tokenizers
from ownwords.core.errors import CorpusError, WorkspaceError
from ownwords.core.progress import Event, Progress
from ownwords.models import atomic_dir
from ownwords.tokenizers import bpe
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.tokenizers.text import TokenizerError
from ownwords.tokenizers.tokenizer import from_files
from ownwords.tokenizers.tokenizer_json import LETTER_OF
from ownwords.training import shards as room
from ownwords.training.shards import Shards, TrainingText, build_shards, open_shards

TEXTS = [
    TrainingText("a", "The hat, the cap and the brim."),
    TrainingText("b", ""),
    TrainingText("c", "Größe, 帽子 and 🎩: <|end|> is text here."),
    TrainingText("d", "word " * 300),
]


class CountingTokenizer(ByteTokenizer):
    """A byte tokenizer that counts the texts it encodes."""

    encoded = 0

    def encode_batch(
        self, texts: Iterable[str], *, threads: int | None = None
    ) -> list[npt.NDArray[np.uint32]]:
        texts = list(texts)
        self.encoded += len(texts)
        return super().encode_batch(texts, threads=threads)


class LargeTokenizer(ByteTokenizer):
    """A tokenizer whose vocabulary is as large as asked for; a byte b is the id b * `times`."""

    def __init__(self, size: int, times: int = 1) -> None:
        super().__init__()
        self._size, self._times = size, times

    @property
    def vocabulary_size(self) -> int:
        return self._size

    def encode_batch(
        self, texts: Iterable[str], *, threads: int | None = None
    ) -> list[npt.NDArray[np.uint32]]:
        return [ids * np.uint32(self._times) for ids in super().encode_batch(texts)]


def same(first: Shards, second: Shards) -> bool:
    return (
        (first.key, first.names, first.vocabulary) == (second.key, second.names, second.vocabulary)
        and np.array_equal(first.ids, second.ids)
        and np.array_equal(first.offsets_D1, second.offsets_D1)
        and np.array_equal(first.bytes_D, second.bytes_D)
    )


def check(
    shards: Shards, texts: Sequence[TrainingText], start: int | None, end: int | None
) -> None:
    """Check that the shards hold each text, byte for byte, between its special tokens."""
    assert shards.documents == len(texts)
    assert shards.names == tuple(text.id for text in texts)
    all_ids = []
    for i, text in enumerate(texts):
        ids = shards.document(i).tolist()
        all_ids += ids
        if start is not None:
            assert ids.pop(0) == start
        if end is not None:
            assert ids.pop() == end
        assert bytes(ids) == text.text.encode()
        assert shards.bytes_D[i] == len(text.text.encode())
    assert shards.ids.tolist() == all_ids
    assert shards.tokens == len(all_ids)
    assert shards.text_bytes == sum(len(text.text.encode()) for text in texts)
    assert shards.offsets_D1.dtype == shards.bytes_D.dtype == np.int64


def test_documents_round_trip_between_special_tokens(tmp_path: Path) -> None:
    tokenizer = ByteTokenizer()
    shards = build_shards(TEXTS, tokenizer, tmp_path)
    check(shards, TEXTS, tokenizer.start, tokenizer.end)
    assert shards.folder == tmp_path / shards.key
    assert shards.special == tuple(sorted(tokenizer.special.values()))
    assert shards.tokenizer == tokenizer.fingerprint()
    assert shards.ids.dtype == np.uint16
    assert same(open_shards(shards.folder), shards)
    with pytest.raises(ValueError, match="read-only"):
        shards.ids[0] = 1


@pytest.mark.parametrize(("start", "end"), [(None, None), ("<s>", None), (None, "<e>")])
def test_missing_special_tokens_are_left_out(
    tmp_path: Path, start: str | None, end: str | None
) -> None:
    tokenizer = ByteTokenizer(special=("<s>", "<e>"), start=start, end=end)
    check(build_shards(TEXTS, tokenizer, tmp_path), TEXTS, tokenizer.start, tokenizer.end)


@pytest.mark.parametrize(
    ("start", "end", "document_start", "pure_start"),
    [
        ("<s>", "<e>", "<s>", "<s>"),
        ("<s>", None, "<s>", "<s>"),
        ("<s>", "<s>", "<s>", None),
        (None, "<e>", None, None),
    ],
)
def test_a_start_token_that_also_ends_documents_is_not_a_pure_one(
    tmp_path: Path,
    start: str | None,
    end: str | None,
    document_start: str | None,
    pure_start: str | None,
) -> None:
    tokenizer = ByteTokenizer(special=("<s>", "<e>"), start=start, end=end)
    shards = build_shards(TEXTS, tokenizer, tmp_path)
    ids = tokenizer.special
    assert shards.document_start == (ids[document_start] if document_start else None)
    assert shards.pure_start == (ids[pure_start] if pure_start else None)


def test_special_tokens_around_documents_are_optional(tmp_path: Path) -> None:
    bare = build_shards(TEXTS, ByteTokenizer(), tmp_path, marks=False)
    check(bare, TEXTS, None, None)
    assert bare.key != build_shards(TEXTS, ByteTokenizer(), tmp_path).key


def test_words_are_encoded_as_the_tokenizer_does(tmp_path: Path) -> None:
    tokenizer = bpe.train([text.text for text in TEXTS], 300)
    shards = build_shards(TEXTS, tokenizer, tmp_path)
    for i, text in enumerate(TEXTS):
        expected = [tokenizer.start, *tokenizer.encode(text.text), tokenizer.end]
        assert shards.document(i).tolist() == expected


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=8))
def test_any_texts_in_any_groups(
    tmp_path_factory: pytest.TempPathFactory, contents: list[str]
) -> None:
    texts = [TrainingText(f"{i}\udcff", content) for i, content in enumerate(contents)]
    root = tmp_path_factory.mktemp("tokens")
    tokenizer = ByteTokenizer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_GROUP", 20)
        check(build_shards(texts, tokenizer, root), texts, tokenizer.start, tokenizer.end)


def test_the_same_texts_are_cached(tmp_path: Path) -> None:
    tokenizer = CountingTokenizer()
    first = build_shards(TEXTS, tokenizer, tmp_path)
    assert tokenizer.encoded == len(TEXTS)
    second = CountingTokenizer()
    reused = build_shards(list(TEXTS), second, tmp_path)
    assert second.encoded == 0
    assert same(reused, first)
    assert same(build_shards(iter(TEXTS), second, tmp_path), first)
    assert second.encoded == 0
    assert [path.name for path in tmp_path.iterdir()] == [first.key]


def test_the_key_covers_whatever_decides_the_tokens(tmp_path: Path) -> None:
    tokenizer = ByteTokenizer()
    variants = [
        (TEXTS, ByteTokenizer(special=("<s>", "<e>"), start="<s>", end="<e>")),
        (TEXTS, ByteTokenizer(end=None)),
        (TEXTS, ByteTokenizer(start=None)),
        (TEXTS, LargeTokenizer(300)),
        (TEXTS[:-1], tokenizer),
        (TEXTS[::-1], tokenizer),
        ([TrainingText("a", "The hat, the cap and the brim!"), *TEXTS[1:]], tokenizer),
        ([TrainingText("A", TEXTS[0].text), *TEXTS[1:]], tokenizer),
        ([TrainingText("aT", TEXTS[0].text[1:]), *TEXTS[1:]], tokenizer),
        ([], tokenizer),
    ]
    keys = [
        build_shards(texts, variant, tmp_path).key
        for texts, variant in [(TEXTS, tokenizer), *variants]
    ]
    assert len(set(keys)) == len(keys)
    assert len(list(tmp_path.iterdir())) == len(keys)


def test_a_one_pass_iterator_is_accepted(tmp_path: Path) -> None:
    tokenizer = ByteTokenizer()
    shards = build_shards((text for text in TEXTS), tokenizer, tmp_path / "new" / "tokens")
    check(shards, TEXTS, tokenizer.start, tokenizer.end)
    assert shards.key == build_shards(TEXTS, tokenizer, tmp_path).key


def test_without_texts_there_are_no_tokens(tmp_path: Path) -> None:
    shards = build_shards([], ByteTokenizer(), tmp_path)
    assert (shards.documents, shards.tokens, shards.text_bytes) == (0, 0, 0)
    assert shards.offsets_D1.tolist() == [0]


@pytest.mark.parametrize(
    ("vocabulary", "dtype"), [(65535, np.uint16), (65536, np.uint32), (262144, np.uint32)]
)
def test_ids_are_as_wide_as_the_vocabulary_needs(
    tmp_path: Path, vocabulary: int, dtype: type
) -> None:
    times = vocabulary // 256
    shards = build_shards(
        [TrainingText("a", "\x7f~az")], LargeTokenizer(vocabulary, times), tmp_path
    )
    assert shards.ids.dtype == dtype
    assert shards.document(0)[1:-1].tolist() == [times * b for b in b"\x7f~az"]


def test_an_id_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"made the id 97000.*300 tokens"):
        build_shards([TrainingText("x", "a")], LargeTokenizer(300, 1000), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lone_surrogate_is_reported_with_its_document(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"in 'post 7', .*surrogate"):
        build_shards([*TEXTS, TrainingText("post 7", "ab\ud800")], ByteTokenizer(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_texts_that_change_meanwhile_are_refused(tmp_path: Path) -> None:
    class Changing:
        times = 0

        def __iter__(self) -> Iterator[TrainingText]:
            self.times += 1
            return iter([TrainingText("a", f"version {self.times}")])

    with pytest.raises(CorpusError, match="changed while"):
        build_shards(Changing(), ByteTokenizer(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_characters_without_tokens_are_counted_and_said_once(tmp_path: Path) -> None:
    files = foreign_tokenizers.files_of("SmolLM")
    document = json.loads(files["tokenizer.json"])
    vocabulary = document["model"]["vocab"]
    vocabulary[3 * LETTER_OF[4]] = vocabulary.pop(LETTER_OF[4])
    tokenizer = from_files(files | {"tokenizer.json": json.dumps(document).encode()})
    notes: list[str] = []

    def on_event(event: Event) -> None:
        if event.kind == "note":
            notes.append(event.message)

    texts = [TrainingText("a", "one\x04two\x04"), TrainingText("b", "three\x04")]
    for _ in range(2):
        build_shards(texts, tokenizer, tmp_path, progress=Progress(on_event))
    (note,) = notes
    assert " 3 characters" in note


def test_progress_counts_bytes_of_text(tmp_path: Path) -> None:
    events: list[Event] = []
    shards = build_shards(TEXTS, ByteTokenizer(), tmp_path, progress=Progress(events.append))
    assert (events[-1].kind, events[-1].unit) == ("done", "bytes")
    assert events[-1].done == events[-1].total == shards.text_bytes


def test_every_altered_byte_is_noticed_and_repaired(tmp_path: Path) -> None:
    shards = build_shards(TEXTS, ByteTokenizer(), tmp_path)
    expected = shards.ids.tolist()
    generator = random.Random(5)
    files = sorted(shards.folder.iterdir())
    assert len(files) == 5
    for path in files:
        data = path.read_bytes()
        for attempt in range(30):
            change = damage.of_json if path.suffix == ".json" and attempt % 2 else damage.of_bytes
            if (changed := change(data, generator)) == data:
                continue
            if path.suffix == ".json" and _equal_json(changed, data) and path.stem == "manifest":
                continue
            path.write_bytes(changed)
            with pytest.raises(WorkspaceError) as raised:
                open_shards(shards.folder)
            assert str(path) in raised.value.message or path.name == "manifest.json"
            assert "delete this folder" in raised.value.hint
        path.unlink()
        with pytest.raises(WorkspaceError, match=path.name):
            open_shards(shards.folder)
        events: list[Event] = []
        tokenizer = CountingTokenizer()
        mended = build_shards(TEXTS, tokenizer, tmp_path, progress=Progress(events.append))
        assert mended.ids.tolist() == expected
        assert tokenizer.encoded == len(TEXTS)
        assert any("encoded again" in event.message for event in events)


def test_a_truncated_file_is_reported_with_its_size(tmp_path: Path) -> None:
    shards = build_shards([TrainingText("a", "x" * 998)], ByteTokenizer(), tmp_path)
    path = shards.folder / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WorkspaceError, match=r"it has 1,900 bytes and was written with 2,000"):
        open_shards(shards.folder)


def _equal_json(first: bytes, second: bytes) -> bool:
    try:
        return json.dumps(json.loads(first)) == json.dumps(json.loads(second))
    except (ValueError, RecursionError):
        return False


def test_another_format_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = build_shards(TEXTS, ByteTokenizer(), tmp_path)
    monkeypatch.setattr(room, "FORMAT", room.FORMAT + 1)
    with pytest.raises(WorkspaceError, match="another version of ownwords"):
        open_shards(shards.folder)
    assert build_shards(TEXTS, ByteTokenizer(), tmp_path).key != shards.key


def test_a_folder_without_shards_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"holds no manifest\.json"):
        open_shards(tmp_path)
    with pytest.raises(WorkspaceError, match=r"holds no manifest\.json"):
        open_shards(tmp_path / "none")
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(WorkspaceError, match="cannot be read"):
        open_shards(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="is a file"):
        build_shards(iter(TEXTS), ByteTokenizer(), tmp_path / "file")


def test_a_full_disk_is_reported_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(atomic_dir, "write_file", full)
    with pytest.raises(WorkspaceError, match="disk is full"):
        build_shards(TEXTS, ByteTokenizer(), tmp_path)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from ownwords.core import fingerprint
from ownwords.models import atomic_dir
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.training import shards

root, moment = Path(sys.argv[1]), sys.argv[2]
shards._GROUP = 1000
calls = 0

class Fatal(ByteTokenizer):
    def encode_batch(self, texts, *, threads=None):
        global calls
        calls += 1
        if moment == "encoding" and calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_batch(texts)

write_file = atomic_dir.write_file
def fatal(path, data):
    if moment in path.name:
        path.write_bytes(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    write_file(path, data)
atomic_dir.write_file = fatal

def put(beside, folder):
    os.kill(os.getpid(), signal.SIGKILL)
if moment == "put":
    atomic_dir._put = put
shards.build_shards([shards.TrainingText(str(i), "hat " * 200) for i in range(9)], Fatal(), root)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
@pytest.mark.parametrize("moment", ["encoding", "offsets.bin", "manifest.json", "put"])
def test_a_kill_half_way_leaves_no_shards(tmp_path: Path, moment: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), moment], env=_environment(), check=False
    )
    assert process.returncode == -9
    files = list(tmp_path.iterdir())
    assert len(files) == 1
    assert files[0].name.startswith(".")
    texts = [TrainingText(str(i), "hat " * 200) for i in range(9)]
    shards = build_shards(texts, ByteTokenizer(), tmp_path)
    check(shards, texts, shards.special[0], shards.special[1])
    assert list(tmp_path.iterdir()) == [shards.folder]


def _environment() -> Mapping[str, str]:
    source = Path(room.__file__).parents[2]
    return {**os.environ, "PYTHONPATH": str(source)}


def test_memory_holds_a_group_and_not_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_GROUP", 1 << 18)
    document = "hats and caps " * 7000  # 98 kB

    class Many:
        def __iter__(self) -> Iterator[TrainingText]:
            return (TrainingText(str(i), f"{i} {document}") for i in range(120))

    tracemalloc.start()
    try:
        shards = build_shards(Many(), ByteTokenizer(), tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shards.text_bytes > 11_000_000
    assert peak < 6_000_000  # a quarter of a MB as ids of 32 bits, joined, and the texts


def test_texts_are_encoded_without_torch() -> None:
    code = "import sys, ownwords.training.shards; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode
        == 0
    )
