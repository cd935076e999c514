"""Tokens to text and logprobs: complete characters, stop strings across tokens, no loss."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foreign_tokenizers as foreign
from ownwords.inference.detokenizer import IncrementalDetokenizer
from ownwords.inference.generation import GeneratedToken
from ownwords.serve.openai.formatters import ChatFormatter, CompletionFormatter, CompletionUsage
from ownwords.serve.stream_decoder import StreamDecoder, TextChunk, join_chunks
from ownwords.tokenizers.bpe import BPETokenizer
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.tokenizers.tokenizer import Tokenizer, from_files

BYTES = ByteTokenizer()
# Tokens of parts of characters, of several characters, of both.
ODD = BPETokenizer([b"\xc3\xa9", b"e\xc3", b"\xf0\x9f", b"\xa6\x8a", b"ab", b"abc", b"\n\n"])


def decode_stream(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    *,
    after: Sequence[int] = (),
    stops: Sequence[str] = (),
    top: int = 0,
    chances: bool = True,
) -> tuple[list[TextChunk], StreamDecoder]:
    """Decode these tokens chunk by chunk, each with its own logprob."""
    start = [] if tokenizer.start is None else [tokenizer.start]
    decoder = StreamDecoder(tokenizer, [*start, *after], stops, top=top)
    pieces = []
    for n, i in enumerate(ids):
        alternatives = tuple((id_, -float(id_)) for id_ in range(3))
        pieces.append(
            decoder.feed(
                GeneratedToken(i, -float(n), alternatives) if chances else GeneratedToken(i)
            )
        )
        if decoder.is_stopped:
            return pieces, decoder
    pieces.append(decoder.finish())
    return pieces, decoder


texts = st.lists(st.sampled_from(["a", "b", "c", "é", "🦊", "\n", "日", "e"]), max_size=12)
noise = st.lists(st.integers(0, ODD.vocabulary_size - 6), max_size=20)
stop_strings = st.lists(st.sampled_from(["ab", "c", "\n\n", "é", "🦊a", "bé"]), max_size=3)


@given(noise, stop_strings)
def test_the_text_equals_that_of_write(ids: list[int], stops: list[str]) -> None:
    pieces, _ = decode_stream(ODD, ids, stops=stops)
    decoding = IncrementalDetokenizer(ODD, [], stops)
    assert join_chunks(pieces).text == "".join(map(decoding.feed, ids)) + decoding.finish()
    assert all("\ufffd" not in piece.text for piece in pieces[:-1]) or "\ufffd" in ODD.decode(ids)


@given(noise)
def test_every_token_is_reported_once_with_its_logprob(ids: list[int]) -> None:
    pieces, _decoder = decode_stream(ODD, ids, top=2)
    tokens = join_chunks(pieces).tokens
    assert [token.sampled.data for token in tokens] == [ODD.decode_bytes([i]) for i in ids]
    assert [token.sampled.logprob for token in tokens] == [-float(n) for n in range(len(ids))]
    assert all(
        [alternative.data for alternative in token.top] == [b"\0", b"\1"] for token in tokens
    )


@given(texts)
def test_tokens_begin_where_their_text_does(parts: list[str]) -> None:
    text = "".join(parts)
    tokens = join_chunks(decode_stream(ODD, ODD.encode(text))[0]).tokens
    for token in tokens:
        text_start = token.sampled.data.decode("utf-8", "ignore")
        # A token that begins within a character begins where that character does.
        assert text_start in text[token.offset : token.offset + len(text_start) + 1]


@given(noise, stop_strings)
def test_tokens_have_their_text_and_those_of_a_stop_string_are_dropped(
    ids: list[int], stops: list[str]
) -> None:
    pieces, decoder = decode_stream(ODD, ids, stops=stops)
    length = 0
    for piece in pieces[:-1]:
        for token in piece.tokens:
            assert token.offset < length + len(piece.text)
        length += len(piece.text)
    if decoder.is_stopped:
        joined = join_chunks(pieces)
        assert all(token.offset < len(joined.text) for token in joined.tokens)


@given(noise)
def test_logprobs_are_reported_only_on_request(ids: list[int]) -> None:
    pieces, _ = decode_stream(ODD, ids, chances=False)
    assert join_chunks(pieces) == TextChunk(ODD.decode(ids))


@pytest.mark.parametrize("kind", foreign.DOCUMENTS)
def test_a_continuation_keeps_its_leading_space(kind: str) -> None:
    tokenizer = from_files(foreign.files_of(kind))
    before, full_text = "in the", "in the thing the"
    ids, prefix_ids = tokenizer.encode(full_text), tokenizer.encode(before)
    assert ids[: len(prefix_ids)] == prefix_ids
    pieces, _ = decode_stream(tokenizer, ids[len(prefix_ids) :], after=prefix_ids)
    assert before + join_chunks(pieces).text == full_text
    assert b"".join(token.sampled.data for token in join_chunks(pieces).tokens) == b" thing the"


def test_unused_ids_are_left_out_of_the_top_logprobs() -> None:
    tokenizer = BPETokenizer()
    tokenizer.table = [None, *tokenizer.table[1:]]
    gap = tokenizer.gaps[0]
    decoder = StreamDecoder(tokenizer, [66], (), top=2)
    piece = decoder.feed(GeneratedToken(65, -1.0, ((gap, -0.5), (65, -1.0))))
    assert len(piece.tokens[0].top) == 1


# --- shapes --------------------------------------------------------------------------------------


def test_partial_characters_are_named_by_their_bytes() -> None:
    piece = join_chunks(decode_stream(BYTES, "é".encode(), top=1)[0])
    chat = ChatFormatter("m", "fp", has_logprobs=True).response(
        [(piece, "stop")], CompletionUsage(1, 2)
    )
    logprobs = chat["choices"][0]["logprobs"]["content"]  # type: ignore[index]
    assert [token["token"] for token in logprobs] == ["\\xc3", "\\xa9"]
    assert [token["bytes"] for token in logprobs] == [[0xC3], [0xA9]]
    assert logprobs[0]["top_logprobs"] == [{"token": "\0", "logprob": 0.0, "bytes": [0]}]
    older = CompletionFormatter("m", "fp", True, [""]).response(
        [(piece, "stop")], CompletionUsage(1, 2)
    )
    lists = older["choices"][0]["logprobs"]  # type: ignore[index]
    assert lists["tokens"] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert lists["text_offset"] == [0, 0]


def test_an_infinite_logprob_is_a_finite_json_number() -> None:
    decoder = StreamDecoder(BYTES, [65], (), top=1)
    piece = decoder.feed(GeneratedToken(66, -1.0, ((67, float("-inf")),)))
    assert piece.tokens[0].top[0].logprob == -9999.0


def test_offsets_include_the_echo() -> None:
    piece = join_chunks(decode_stream(BYTES, b"bc")[0])
    shape = CompletionFormatter("m", "fp", True, ["Once a"]).response(
        [(piece, "length")], CompletionUsage(7, 2)
    )
    choice = shape["choices"][0]  # type: ignore[index]
    assert choice["text"] == "Once abc"
    assert choice["logprobs"]["text_offset"] == [6, 7]
    assert shape["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
