"""The copy guard against a model that does nothing but copy, in any tokenisation."""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ownwords.archive import corpus
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.core.errors import ConfigError
from ownwords.inference import copy_guard
from ownwords.inference.copy_guard import CopyGuard, GuardedText
from ownwords.inference.sampling import Sampler, SamplingParams, draw_uniform
from ownwords.models.directory import COPY_GUARD
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers import bpe
from ownwords.tokenizers.bpe import BPETokenizer, ByteTokenizer

WORDS = 6


def _texts(seed: int, count: int) -> list[str]:
    """Posts of made-up words, with capitals, punctuation and letters beyond ASCII."""
    dice = random.Random(seed)
    syllables = ["ba", "the", "tro", "uble", "né", "ö", "is", "sum", "an", "d", "li", "ght"]
    words = ["".join(dice.choices(syllables, k=dice.choice([1, 2, 2, 3]))) for _ in range(250)]
    marks = [" "] * 12 + [", ", ". ", " – ", "; ", ".\n\n", ", “", "” ", "’s "]
    texts = []
    for _ in range(count):
        chosen = dice.choices(words, k=140)
        chosen = [word.capitalize() if dice.random() < 0.1 else word for word in chosen]
        texts.append("".join(word + dice.choice(marks) for word in chosen))
    return texts


TEXTS = _texts(1, 12)


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    return bpe.train(TEXTS, 500)


@pytest.fixture(scope="module")
def documents(tokenizer: BPETokenizer) -> list[list[int]]:
    assert tokenizer.start is not None and tokenizer.end is not None
    return [[tokenizer.start, *tokenizer.encode(text), tokenizer.end] for text in TEXTS]


@pytest.fixture(scope="module")
def watching(tokenizer: BPETokenizer, documents: list[list[int]]) -> CopyGuard:
    return copy_guard.build([np.array(document) for document in documents], tokenizer, words=WORDS)


def words(text: str) -> list[str]:
    # A byte that is no character belongs to the word that it stands in: nobody wrote that word.
    return re.findall(r"[\w\ufffd]+", re.sub(r"[A-Z]", lambda match: match[0].lower(), text))


def runs(items: Sequence[object], size: int) -> set[tuple[object, ...]]:
    return {tuple(items[i : i + size]) for i in range(len(items) - size + 1)}


class Copyist:
    """Stands in for a model that memorised its texts and always continues them.

    It follows the letters and not the tokens, so any way to cut them will do, and any capitals.
    """

    def __init__(self, tokenizer: BPETokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._dice = np.random.default_rng(seed)
        self._text = "\0".join(TEXTS).lower().encode()
        self._ids: dict[bytes, list[int]] = {}
        for i in range(tokenizer.vocabulary_size):
            if i not in tokenizer.special.values():
                self._ids.setdefault(tokenizer.decode_bytes([i]).lower(), []).append(i)

    def scores(self, context: bytes) -> np.ndarray:
        scores = self._dice.normal(size=self._tokenizer.vocabulary_size)
        scores[list(self._tokenizer.special.values())] = -100  # it never comes to an end
        for length in (24, 12, 6, 3, 1):
            at = self._text.find(context.lower()[-length:])
            if at >= 0 and len(context) >= length:
                goes_on = self._text[at + length : at + length + 12]
                for size in range(1, len(goes_on) + 1):
                    for i in self._ids.get(goes_on[:size], ()):
                        scores[i] += 8 + self._dice.normal()
                break
        return scores.astype(np.float32)


def generate(
    copyist: Copyist,
    tokenizer: BPETokenizer,
    watching: CopyGuard | None,
    prompt: str,
    seed: int,
    heat: float,
) -> list[int]:
    """The prompt and 30 more tokens."""
    sampler = Sampler(SamplingParams(temperature=heat))
    ids = tokenizer.encode(prompt)
    for drawn in range(30):
        banned = () if watching is None else watching.banned(ids)
        scores = copyist.scores(tokenizer.decode_bytes(ids[-30:]))
        ids.append(sampler.sample(scores, draw_uniform(seed, drawn), ids, banned))
    return ids


def test_texts_of_a_copyist_hold_no_run_of_tokens_or_words(
    tokenizer: BPETokenizer, documents: list[list[int]], watching: CopyGuard
) -> None:
    copyist, dice = Copyist(tokenizer, 1), random.Random(2)
    known_tokens = set().union(*(runs(document, watching.longest) for document in documents))
    known_words = set().union(*(runs(words(text), WORDS) for text in TEXTS))
    copied = 0
    for seed in range(250):
        text = dice.choice(TEXTS)
        begin = dice.randrange(len(text) - 100)
        # The end of a word of the author's own, or a few of them, or what is nobody's.
        prompt = " ".join(
            text[begin : begin + dice.randrange(8, 60)].split(" ")[: dice.choice([-1, 99])]
        )
        prompt = dice.choice([prompt, "Nobody’s. ", tokenizer.decode([dice.randrange(256)])])
        ids = generate(
            copyist, tokenizer, watching, prompt or " ", seed, dice.choice([0, 0.7, 1.5])
        )
        prompt_tokens = len(tokenizer.encode(prompt or " "))
        # What is judged ends after something generated.
        for end in range(prompt_tokens + 1, len(ids) + 1):
            assert tuple(ids[max(0, end - watching.longest) : end]) not in known_tokens
        all_words, before = words(tokenizer.decode(ids)), len(words(prompt))
        for end in range(before + 1, len(all_words) + 1):
            assert tuple(all_words[max(0, end - WORDS) : end]) not in known_words
        copied += bool(runs(all_words, WORDS - 1) & {run[1:] for run in known_words})
    assert copied > 125  # it did copy, as far as it was let


def test_the_prompt_itself_is_not_continued_by_a_copy(
    tokenizer: BPETokenizer, documents: list[list[int]], watching: CopyGuard
) -> None:
    for document in documents[:4]:
        for end in range(watching.longest, len(document) - 1):
            assert document[end] in watching.banned(document[:end])
    # Not over the end of a document, nor its beginning.
    assert tokenizer.end not in watching.banned(documents[0][:-1])
    over = [*documents[0][-9:], *documents[1][1:4]]
    assert documents[1][4] not in watching.banned(over)
    assert not len(watching.banned([])) and not len(watching.banned(documents[0][:1]))


def test_new_text_is_not_blocked(tokenizer: BPETokenizer, watching: CopyGuard) -> None:
    for text in _texts(2, 4):
        ids = tokenizer.encode(text)
        assert not any(ids[end] in watching.banned(ids[:end]) for end in range(len(ids)))


def test_ids_that_are_no_tokens_and_broken_characters_are_endured(
    documents: list[list[int]], watching: CopyGuard
) -> None:
    for odd in ([-1], [500], [10**6], [0xE2], [0xC2, 7]):
        watching.banned([*documents[0][:60], *odd])
        assert watching.banned([*odd, *documents[0][:60]]) == watching.banned(documents[0][:60])


def test_a_text_is_guarded_alike_in_whatever_pieces_it_grows(
    documents: list[list[int]], watching: CopyGuard
) -> None:
    dice = random.Random(7)
    hits = 0
    for document in documents:
        odd = dice.choices([0xE2, 0x80, 0xC2, 0xE3, 0x20, documents[0][0]], k=9)
        start = dice.randrange(40)
        ids = [*dice.choices(odd, k=dice.randrange(4)), *document[start : start + 90]]
        ids[50:50] = dice.choices(odd, k=dice.randrange(3))
        text, end = GuardedText(watching), 0
        while end < len(ids):
            begin, end = end, end + dice.choice([1, 1, 1, 2, 30])
            banned = text.append(ids[begin:end])
            assert banned == watching.banned(ids[:end])
            hits += bool(banned)
    assert hits > 100


def test_tokens_are_counted_exactly() -> None:
    """Single bytes without letters, so that the word limit does not apply."""
    dice = random.Random(5)
    ids = [dice.choice(b"+-*/=") for _ in range(300)]
    watching = copy_guard.build([np.array(ids, np.uint16)], ByteTokenizer(), longest=5)
    for _ in range(300):
        history = [dice.choice(b"+-*/=") for _ in range(12)]
        follow = {ids[i + 4] for i in range(296) if ids[i : i + 4] == history[-4:]}
        assert set(watching.banned(history)) == follow


def test_the_limit_in_words_holds_for_small_tokens_too(documents: list[list[int]]) -> None:
    small = ByteTokenizer()
    watching = copy_guard.build([np.array(small.encode(text)) for text in TEXTS], small)
    assert watching.words == copy_guard.WORDS
    per_word = sum(len(text.encode()) for text in TEXTS) / sum(len(words(text)) for text in TEXTS)
    assert watching.longest == pytest.approx(12 * per_word, rel=0.05)
    assert list(copy_guard.build([], small).banned([1, 2, 3] * 30)) == []
    ablation = "".join(chr(0x4E00 + i) for i in range(3000))
    assert copy_guard.build([np.array(small.encode(ablation))], small).longest == 24


@pytest.mark.shared
def test_posts_that_the_author_wrote_next_are_not_hindered(columnist: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "columnist.ownwords"
    look([columnist], workspace=workspace)
    with Archive(workspace / "archive.sqlite") as archive:
        sides = corpus.load_corpus(archive)
        texts = [text.text for text in sides.train]
        new = [text.text for side in (sides.validation, sides.test) for text in side]
    learned = bpe.train(texts, 2048)
    watching = copy_guard.build([np.array(learned.encode(text)) for text in texts], learned)
    assert 16 <= watching.longest <= 20
    for text in new:
        ids = learned.encode(text)
        assert not any(ids[end] in watching.banned(ids[:end]) for end in range(len(ids)))
    assert len(new) >= 3


@pytest.mark.parametrize("setting", ["words", "longest"])
def test_runs_of_one_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting} must be from 2 to 10,000, not 1"):
        copy_guard.build([], ByteTokenizer(), **{setting: 1})


def test_a_saved_guard_maps_to_the_same(
    tokenizer: BPETokenizer, documents: list[list[int]], watching: CopyGuard, tmp_path: Path
) -> None:
    path = tmp_path / COPY_GUARD
    path.write_bytes(watching.to_bytes())
    loaded = copy_guard.load(path, tokenizer.fingerprint())
    assert (loaded.longest, loaded.words) == (watching.longest, WORDS)
    for end in range(0, len(documents[2]), 3):
        assert loaded.banned(documents[2][:end]) == watching.banned(documents[2][:end])
    with pytest.raises(ModelError, match="another tokenizer"):
        copy_guard.load(path, "0" * 32)
    empty = tmp_path / "empty.safetensors"
    empty.write_bytes(copy_guard.build([], tokenizer).to_bytes())
    assert list(copy_guard.load(empty).banned(documents[2])) == []


def test_a_damaged_file_is_refused_or_harmless(
    documents: list[list[int]], watching: CopyGuard, tmp_path: Path
) -> None:
    intact = tmp_path / "whole.safetensors"
    intact.write_bytes(watching.to_bytes())
    data = intact.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    dice = random.Random(6)
    refused = 0
    for number in range(150):
        hurt = bytearray(data)
        if number % 3 == 0:
            hurt = hurt[: dice.randrange(len(hurt))]
        for _ in range(dice.choice([1, 1, 200])):
            if hurt:
                end = header if number % 3 == 1 else len(hurt)
                hurt[dice.randrange(min(end, len(hurt)))] = dice.choice([0, 1, 0xFF, 0x39])
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(hurt)
        try:
            guard = copy_guard.load(path)
        except ModelError:
            refused += 1
            continue
        for document in documents[:3]:
            for end in (10, 40, len(document)):
                assert len(guard.banned(document[:end])) <= 2 * guard.about.vocabulary + 4096
    assert refused > 60
