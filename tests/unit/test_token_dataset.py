"""Texts become ids between their special tokens, under a key that covers what decides them."""

import json
import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

import foreign_tokenizers
from ownwords.archive.corpus import TrainingText
from ownwords.core.progress import Event, Progress
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.tokenizers.text import TokenizerError
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.tokenizers.tokenizer_json import LETTER_OF
from ownwords.training import token_dataset as room
from ownwords.training.batches import sequential_batches
from ownwords.training.token_dataset import TokenDataset, build_dataset

TEXTS = [
    TrainingText("a", "The hat, the cap and the brim."),
    TrainingText("b", ""),
    TrainingText("c", "Größe, 帽子 and 🎩: <|end|> is text here."),
    TrainingText("d", "word " * 300),
]


class LargeTokenizer(ByteTokenizer):
    """A tokenizer whose vocabulary is as large as asked for; a byte b is the id b * `times`."""

    def __init__(self, size: int, times: int = 1) -> None:
        super().__init__()
        self._size, self._times = size, times

    @property
    def vocabulary_size(self) -> int:
        return self._size

    def encode_batch(self, texts: Iterable[str]) -> list[npt.NDArray[np.uint32]]:
        return [ids * np.uint32(self._times) for ids in super().encode_batch(texts)]


def check(
    dataset: TokenDataset, texts: Sequence[TrainingText], start: int | None, end: int | None
) -> None:
    """Check that the dataset hold each text, byte for byte, between its special tokens."""
    assert dataset.documents == len(texts)
    all_ids = []
    for i, text in enumerate(texts):
        ids = dataset.document(i).tolist()
        all_ids += ids
        if start is not None:
            assert ids.pop(0) == start
        if end is not None:
            assert ids.pop() == end
        assert bytes(ids) == text.text.encode()
    assert dataset.ids.tolist() == all_ids
    assert dataset.tokens == len(all_ids)
    assert dataset.text_bytes == sum(len(text.text.encode()) for text in texts)
    assert dataset.offsets_D1.dtype == np.int64


@pytest.mark.parametrize(
    ("start", "end", "pure_start"),
    [
        ("<s>", "<e>", "<s>"),
        ("<s>", None, "<s>"),
        ("<s>", "<s>", None),
        (None, "<e>", None),
        (None, None, None),
    ],
)
def test_documents_stand_between_their_special_tokens(
    start: str | None,
    end: str | None,
    pure_start: str | None,
) -> None:
    tokenizer = ByteTokenizer(special=("<s>", "<e>"), start=start, end=end)
    dataset = build_dataset(TEXTS, tokenizer)
    check(dataset, TEXTS, tokenizer.start, tokenizer.end)
    assert dataset.tokenizer == tokenizer.fingerprint()
    ids = tokenizer.special
    assert dataset.pure_start == (ids[pure_start] if pure_start else None)


def test_the_key_covers_whatever_decides_the_tokens() -> None:
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
    keys = [build_dataset(texts, variant).key for texts, variant in [(TEXTS, tokenizer), *variants]]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("vocabulary", "dtype"), [(65535, np.uint16), (65536, np.uint32), (262144, np.uint32)]
)
def test_ids_are_as_wide_as_the_vocabulary_needs(vocabulary: int, dtype: type) -> None:
    times = vocabulary // 256
    dataset = build_dataset([TrainingText("a", "\x7f~az")], LargeTokenizer(vocabulary, times))
    assert dataset.ids.dtype == dtype
    assert dataset.document(0)[1:-1].tolist() == [times * b for b in b"\x7f~az"]


def test_an_id_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(TokenizerError, match=r"made the id 97000.*300 tokens"):
        build_dataset([TrainingText("x", "a")], LargeTokenizer(300, 1000))


def test_a_lone_surrogate_is_reported_with_its_document() -> None:
    with pytest.raises(TokenizerError, match=r"'post 7': .*surrogate"):
        build_dataset([*TEXTS, TrainingText("post 7", "ab\ud800")], ByteTokenizer())


def test_characters_without_tokens_are_counted_and_said_once() -> None:
    files = foreign_tokenizers.files_of("SmolLM")
    document = json.loads(files["tokenizer.json"])
    vocabulary = document["model"]["vocab"]
    vocabulary[3 * LETTER_OF[4]] = vocabulary.pop(LETTER_OF[4])
    tokenizer = Tokenizer(files | {"tokenizer.json": json.dumps(document).encode()})
    notes: list[str] = []

    def on_event(event: Event) -> None:
        if event.kind == "note":
            notes.append(event.message)

    texts = [TrainingText("a", "one\x04two\x04"), TrainingText("b", "three\x04")]
    build_dataset(texts, tokenizer, progress=Progress(on_event))
    (note,) = notes
    assert " 3 characters" in note


def test_a_prompt_is_read_and_not_learned() -> None:
    texts = [TrainingText("a", "brim.", prompt="hat: "), TrainingText("b", "cap.")]
    dataset = build_dataset(texts, ByteTokenizer())
    assert bytes(dataset.document(0)[1:-1].astype(np.uint8)) == b"hat: brim."
    # The start token and the prompt; then the text and the end token.
    learned = dataset.learned(np.arange(dataset.tokens))
    assert learned[: len(dataset.document(0))].tolist() == [False] * 6 + [True] * 6
    assert learned[len(dataset.document(0)) :].all()
    assert dataset.text_bytes == len("brim.cap.")
    (batch,) = sequential_batches(dataset, rows=1, context=dataset.tokens)
    targets = batch.targets_BT[0]
    assert bytes(targets[(targets >= 0) & (targets < 256)].to(torch.uint8).tolist()) == b"brim.cap."


def test_replay_text_that_would_fill_the_memory_or_breaks_off_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_MAX_REPLAY_BYTES", 1 << 20)
    packed = lzma.compress(bytes(8 << 20))
    whole = lzma.compress(b"One. " * 99)
    for damaged in (packed, whole[:-20], b"no archive"):
        (tmp_path / room.REPLAY).write_bytes(damaged)
        with pytest.raises(ModelError, match="is damaged"):
            room.read_replay(tmp_path / room.REPLAY)


def test_replay_texts_are_read_as_they_were_stored(tmp_path: Path) -> None:
    (tmp_path / room.REPLAY).write_bytes(
        lzma.compress(f"One.{room.DIVIDER}Two, ä.{room.DIVIDER} ".encode())
    )
    assert [text.text for text in room.read_replay(tmp_path / room.REPLAY)] == ["One.", "Two, ä."]
