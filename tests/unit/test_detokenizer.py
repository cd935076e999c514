"""Incremental detokenisation against decoding the whole text and searching it for stops."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foreign_tokenizers as foreign
from ownwords.core.errors import ConfigError
from ownwords.inference.detokenizer import IncrementalDetokenizer
from ownwords.tokenizers.bpe import BPETokenizer
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.tokenizers.text import TITLE
from ownwords.tokenizers.tokenizer import Tokenizer, from_files

# Tokens of parts of characters, of several characters, of both.
ODD = BPETokenizer([b"\xc3\xa9", b"e\xc3", b"\xf0\x9f", b"\xa6\x8a", b"ab", b"abc", b"\n\n"])

noise = st.lists(st.integers(0, ODD.vocabulary_size - 6), max_size=20)
stop_strings = st.lists(
    st.sampled_from(["ab", "c", "\n\n", "é", "🦊a", "bé", "\ufffd"]), max_size=3
)


def pieces_of(
    tokenizer: Tokenizer, ids: Sequence[int], after: Sequence[int] = (), stops: Sequence[str] = ()
) -> list[str]:
    decoding = IncrementalDetokenizer(tokenizer, after, stops)
    return [*(decoding.feed(i) for i in ids), decoding.finish()]


def cut(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """Read letter by letter until the text ends in a stop string, the longest of several."""
    for end in range(len(text) + 1):
        if stops_hit := [stop for stop in stops if text[:end].endswith(stop)]:
            longest = max(stops_hit, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(noise, stop_strings)
def test_the_pieces_are_the_text_up_to_its_end(ids: list[int], stops: list[str]) -> None:
    decoding = IncrementalDetokenizer(ODD, [], stops)
    text = "".join(map(decoding.feed, ids)) + decoding.finish()
    assert (text, decoding.stop) == cut(ODD.decode_bytes(ids).decode("utf-8", "replace"), stops)


@given(noise)
def test_a_character_is_shown_with_its_last_byte(ids: list[int]) -> None:
    decoding = IncrementalDetokenizer(ODD, [])
    text = ""
    for count, i in enumerate(ids, 1):
        text += decoding.feed(i)
        assert decoding.characters == len(text)
        data = ODD.decode_bytes(ids[:count])
        # What is left when all that may still become a character is taken off the end.
        ends = [data[:end] for end in range(max(0, len(data) - 3), len(data) + 1)]
        assert text in [end.decode("utf-8", "replace") for end in ends]
        if not data or data[-1] < 0x80:
            assert text == data.decode("utf-8", "replace")


def test_invalid_bytes_are_replaced_once() -> None:
    assert pieces_of(ByteTokenizer(), b"\xf0\x9f\xa6a") == ["", "", "", "\ufffda", ""]
    assert pieces_of(ByteTokenizer(), b"a\xf0\x9f") == ["a", "", "", "\ufffd"]
    assert "".join(pieces_of(ByteTokenizer(), b"\xff\x80b")) == "\ufffd\ufffdb"


def test_an_incomplete_character_can_complete_a_stop_string() -> None:
    decoding = IncrementalDetokenizer(ByteTokenizer(), [], ["a\ufffd"])
    assert [decoding.feed(i) for i in b"ba\xc3"] == ["b", "", ""]
    assert (decoding.finish(), decoding.stop) == ("", "a\ufffd")


def test_nothing_follows_a_stop_string() -> None:
    decoding = IncrementalDetokenizer(ByteTokenizer(), [], ["end"])
    assert "".join(decoding.feed(i) for i in b"the end of it") + decoding.finish() == "the "
    assert decoding.stop == "end"


@pytest.mark.parametrize("kind", foreign.DOCUMENTS)
def test_a_continuation_keeps_its_leading_space(kind: str) -> None:
    tokenizer = from_files(foreign.files_of(kind))
    before, full_text = "in the", "in the thing the 日"
    ids, prefix_ids = tokenizer.encode(full_text), tokenizer.encode(before)
    assert ids[: len(prefix_ids)] == prefix_ids
    start = [] if tokenizer.start is None else [tokenizer.start]
    pieces = pieces_of(tokenizer, ids[len(prefix_ids) :], [*start, *prefix_ids])
    assert "".join(pieces) == " thing the 日"
    # At the beginning of a text there is none.
    assert "".join(pieces_of(tokenizer, ids, start)) == full_text
    assert "".join(pieces_of(tokenizer, ids)) == full_text


@pytest.mark.parametrize("kind", foreign.DOCUMENTS)
def test_a_special_token_is_shown_by_name_and_separates_its_neighbours(kind: str) -> None:
    tokenizer = from_files(foreign.files_of(kind))
    name, token = next(iter(tokenizer.special.items()))
    ids, prefix_ids = tokenizer.encode("in the thing"), tokenizer.encode("in the")
    new_ids = ids[len(prefix_ids) :]
    pieces = pieces_of(tokenizer, [token, *new_ids], prefix_ids)
    assert "".join(pieces) == f"{name} thing"


def test_our_own_special_tokens_can_stop_a_text_by_their_names() -> None:
    tokenizer = ByteTokenizer()
    ids = [*b"Dear", tokenizer.special[TITLE], *b"Sir"]
    assert "".join(pieces_of(tokenizer, ids)) == f"Dear{TITLE}Sir"
    assert "".join(pieces_of(tokenizer, ids, stops=[TITLE])) == "Dear"


def test_empty_stop_strings_are_refused_immediately() -> None:
    with pytest.raises(ConfigError, match="stop strings should be"):
        IncrementalDetokenizer(ByteTokenizer(), [], [""])
