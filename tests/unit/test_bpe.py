"""Byte-level BPE: what it learns, where it splits, and that it loses nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.tokenizers.bpe import BPETokenizer, train
from ownwords.tokenizers.text import SPECIAL, TokenizerError

POEM = (
    "The trouble with the backups is the backups: they're 1024 files, and they aren't there.\n\n"
    "  We'd looked.  I'd SAID so -- \"the_backups!\" -- in 2019, in 2020...\n\tfor x in the list:\n"
    "Größe, naïve, Überall; 日本語のテキスト и русский текст. 👩‍👩‍👧 🏳️‍🌈\r\n"
)
TEXTS = [POEM * 3, POEM.upper(), POEM.lower()]

# Whatever the pattern looks at, and what engines are known to disagree on.
pieces = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *("  ", "\n", "\r\n", " \n ", "\t", "\x0b", "\x1c", "\x85", "\xa0", "\u2003", "\u3000"),
            *("'s", "'LL", "'ſ", "123", "٣٤٥", "½", "Ⅻ", "é", "e\u0301", "\ue000", "\U000e0041"),
            *(
                "ไทย",
                "हिन्दी",
                "العربية",
                "한국어",
                "\ufeff",
                "\x00",
                "<|end|>",
                "word",
                " the",
                "!?",
            ),
            "👩\u200d👩\u200d👧",
        ]
    ),
)
texts = st.lists(pieces, max_size=12).map("".join)


LEARNED = train(TEXTS, 400)


@pytest.fixture(scope="module")
def bpe() -> BPETokenizer:
    return LEARNED


@given(texts)
def test_every_text_round_trips(text: str) -> None:
    for tokenizer in (LEARNED, BPETokenizer()):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode_bytes(ids) == text.encode()
        assert tokenizer.encode_batch([text])[0].tolist() == ids


def test_the_vocabulary_is_bytes_then_merges_then_special_tokens(bpe: BPETokenizer) -> None:
    assert bpe.vocabulary_size == 400
    assert bpe.decode_bytes(range(256)) == bytes(range(256))
    assert list(bpe.special) == list(SPECIAL)
    assert list(bpe.special.values()) == [395, 396, 397, 398, 399]
    assert (bpe.start, bpe.end) == (395, 396)
    assert " the" in [bpe.decode([i]) for i in range(256, 395)]


def test_the_order_and_batching_of_texts_changes_nothing() -> None:
    lines = [line for text in TEXTS for line in text.splitlines(keepends=True)]
    random.Random(3).shuffle(lines)
    assert train(lines, 400).fingerprint() == train(reversed(lines), 400).fingerprint()


def test_texts_too_short_for_the_vocabulary_give_a_smaller_one() -> None:
    assert train(["aa"], 1000).vocabulary_size == 256 + 1 + len(SPECIAL)
    assert train([], 1000).vocabulary_size == 256 + len(SPECIAL)


def test_long_runs_do_not_fill_the_vocabulary() -> None:
    learned = train([POEM + " " * 500_000 + "-" * 70_000, POEM], 300)
    assert learned.vocabulary_size == 300
    assert 64 < max(len(learned.decode_bytes([i])) for i in range(295)) <= 128


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(TokenizerError, match="no room"):
        train([POEM], 100)


def test_a_lone_surrogate_is_refused_with_its_position(bpe: BPETokenizer) -> None:
    for encode in (bpe.encode, lambda text: bpe.encode_batch([text]), lambda t: train([t], 300)):
        with pytest.raises(TokenizerError, match=r"U\+D800\) at character 2"):
            encode("ab\ud800cd")


def test_special_tokens_are_text_unless_allowed(bpe: BPETokenizer) -> None:
    text = "so <|end|><|document|> it"
    plain, parsed = bpe.encode(text), bpe.encode(text, special=True)
    assert bpe.end not in plain
    assert parsed == [*bpe.encode("so "), bpe.end, bpe.start, *bpe.encode(" it")]
    assert bpe.decode(plain) == bpe.decode(parsed) == text


def test_the_longest_special_token_wins() -> None:
    bpe = BPETokenizer(special=("<|a", "<|a|>"), start=None, end=None)
    assert bpe.encode("<|a|><|ab", special=True) == [257, 256, ord("b")]


@pytest.mark.parametrize("text", [" " * 300_000 + "x", "\n" * 100_000, "a" * 100_000])
def test_long_runs_are_fast(bpe: BPETokenizer, text: str) -> None:
    assert bpe.decode(bpe.encode_batch([text])[0]) == text


@pytest.mark.parametrize("wrong", [400, -1])
def test_an_unknown_id_is_refused(bpe: BPETokenizer, wrong: int) -> None:
    with pytest.raises(TokenizerError, match=f"no token {wrong}"):
        bpe.decode([65, wrong])
