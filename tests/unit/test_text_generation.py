"""Texts piece by piece: requests, decoding token by token, and stop strings."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import foreign_tokenizers as foreign
from counting_engine import CountingEngine
from foreign_tokenizers import ODD
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.engine import Engine
from ownwords.inference.generation import GenerationRequest, generate
from ownwords.inference.model import Model
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import (
    IncrementalDetokenizer,
    encode_prompt,
    eos_token_ids,
    suffix_stops,
)
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models.configs.llama import Qwen3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.tokenizers.text import TITLE
from ownwords.tokenizers.tokenizer import Tokenizer

GREEDY = SamplingParams(temperature=0)
WILD = SamplingParams(temperature=2.0)


def bytes_model(seed: int = 3, context: int = 64) -> CausalLM:
    size = ByteTokenizer().vocabulary_size
    network = build(
        Qwen3Config(
            vocabulary=size, context=context, width=16, layers=2, heads=2, kv_heads=1, hidden=24
        )
    )
    network.init_weights(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
            parameter.add_(0.3 * noise)
    return network.eval()


ENGINE = TorchEngine(bytes_model())


def write(
    engine: Engine,
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    stops: Sequence[str] = (),
    guard: CopyGuard | None = None,
    **options: Any,  # noqa: ANN401 - of `Model.request`
) -> Generator[str]:
    model = Model(engine, tokenizer, guard)
    return model.stream(model.request(prompt, **options), stops)


Plan = Callable[..., list[GenerationRequest]]


@pytest.fixture
def plan_tokens(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Fix the sampled ids, whatever the model says; returns the requests."""

    def plan(*ids: int) -> list[GenerationRequest]:
        requests: list[GenerationRequest] = []

        def drawn(_: object, request: GenerationRequest, **__: object) -> Iterator[int]:
            requests.append(request)
            for i in ids:
                if i in request.stop_ids:
                    return
                yield i

        monkeypatch.setattr("ownwords.inference.model.generate", drawn)
        return requests

    return plan


@pytest.mark.parametrize("stop", ["start", "end"])
def test_generation_stops_at_the_end_of_a_document(stop: str, plan_tokens: Plan) -> None:
    plan_tokens(104, 105, getattr(ByteTokenizer(), stop), 33)
    assert "".join(write(ENGINE, ByteTokenizer(), "x", max_tokens=4)) == "hi"


def test_no_token_is_requested_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*_: object, **__: object) -> Iterator[int]:
        yield from (b"Dear Sir,\n\nY")
        raise AssertionError("asked for more")

    monkeypatch.setattr("ownwords.inference.model.generate", drawn)
    assert (
        "".join(write(ENGINE, ByteTokenizer(), "x", max_tokens=99, stops=["\n\nY"])) == "Dear Sir,"
    )


def test_token_ids_can_be_continued_and_extra_stop_ids_end_the_text(plan_tokens: Plan) -> None:
    tokenizer = ByteTokenizer()
    model = Model(ENGINE, tokenizer, stop_ids=[33])
    request = model.request(b"ab", max_tokens=4)
    assert bytes(request.ids) == b"ab"
    assert request.stop_ids == {tokenizer.start, tokenizer.end, 33}
    plan_tokens(*b"hi!ho")
    assert "".join(model.stream(request)) == "hi"


@pytest.mark.parametrize(
    ("settings", "ids"),
    [({}, []), ({"eos_token_id": 7}, [7]), ({"eos_token_id": [7, True, -1, "9", 8]}, [7, 8])],
)
def test_the_stop_ids_of_a_model_file_are_used(settings: dict[str, object], ids: list[int]) -> None:
    assert eos_token_ids(settings) == ids


def test_a_text_without_a_prompt_follows_the_start_token_or_what_stands_between_texts() -> None:
    unmarked = ByteTokenizer(special=(), start=None, end=None)
    assert encode_prompt(ByteTokenizer(), "") == [ByteTokenizer().start]
    assert encode_prompt(ByteTokenizer(start=None), "") == [ByteTokenizer().end]
    assert encode_prompt(unmarked, "") == unmarked.encode("\n")
    for tokenizer in (ByteTokenizer(), unmarked):
        assert isinstance("".join(write(ENGINE, tokenizer, "", max_tokens=3)), str)
    with pytest.raises(OwnwordsError, match="the prompt is empty"):
        write(ENGINE, unmarked, (), max_tokens=3)


def test_a_prompt_follows_the_start_token_only_if_the_tokenizer_adds_it() -> None:
    tokenizer = ByteTokenizer()
    assert encode_prompt(tokenizer, "ab") == [tokenizer.start, *b"ab"]
    tokenizer.adds_start = False
    assert encode_prompt(tokenizer, "ab") == [*b"ab"]
    assert encode_prompt(tokenizer, "") == [tokenizer.start]


def test_several_texts_equal_single_ones() -> None:
    wanted = [("ab", 5), ("ab", 1), ("ab", 1), ("", 7), ("to be", 8), ("ab", 9), ("x" * 70, 10)]
    wanted += [("ab", seed) for seed in range(11, 15)]
    model = Model(ENGINE, ByteTokenizer())
    requests = [
        model.request(prompt, max_tokens=50, seed=seed, sampling=WILD) for prompt, seed in wanted
    ]
    alone = ["".join(model.stream(request, ["e"])) for request in requests]
    assert model.generate_texts(requests, ["e"]) == alone
    assert len(set(alone)) > 5
    assert model.generate_texts([]) == []
    assert model.generate_texts([replace(requests[0], max_tokens=0)]) == [""]


def test_unused_ids_are_never_sampled() -> None:
    """Padding of the model's vocabulary, and gaps in that of the tokenizer."""
    tokenizer = ByteTokenizer()
    network = build(
        Qwen3Config(vocabulary=600, context=64, width=16, layers=1, heads=2, kv_heads=1, hidden=24)
    )
    network.init_weights(1)
    engine = TorchEngine(network.eval())
    tokenizer.table = [None if i % 3 == 0 else piece for i, piece in enumerate(tokenizer.table)]
    assert len(tokenizer.gaps) == 87
    hot = SamplingParams(temperature=50.0, bias={5: 3.0})
    for sampling in (GREEDY, WILD, hot):
        model = Model(engine, tokenizer)
        requests = [
            model.request("a", max_tokens=40, seed=seed, sampling=sampling) for seed in range(4)
        ]
        alone = ["".join(model.stream(request)) for request in requests]
        assert model.generate_texts(requests) == alone
    assert len(set(alone)) == 4


def test_an_error_in_one_of_several_texts_is_raised() -> None:
    never = SamplingParams(temperature=0, bias=dict.fromkeys(range(261), float("-inf")))
    model = Model(ENGINE, ByteTokenizer())
    with pytest.raises(OwnwordsError, match="forbidden"):
        model.generate_texts([model.request("ab", max_tokens=5, sampling=never)] * 2)


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
        data = ODD.decode_bytes(ids[:count])
        # What is left when all that may still become a character is taken off the end.
        ends = [data[:end] for end in range(max(0, len(data) - 3), len(data) + 1)]
        assert text in [end.decode("utf-8", "replace") for end in ends]
        if not data or data[-1] < 0x80:
            assert text == data.decode("utf-8", "replace")


@pytest.mark.parametrize("kind", foreign.DOCUMENTS)
def test_a_continuation_of_ids_keeps_its_leading_space(kind: str) -> None:
    tokenizer = Tokenizer(foreign.files_of(kind))
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
    tokenizer = Tokenizer(foreign.files_of(kind))
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


@pytest.mark.parametrize("stops", [[""], ["a", ""], "text"])
def test_empty_stop_strings_are_refused(stops: list[str]) -> None:
    with pytest.raises(ConfigError, match="stop strings must be"):
        IncrementalDetokenizer(ByteTokenizer(), [], stops)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("It rained. Then", "It rained."),
        ('"Really?" he', '"Really?"'),
        ("at 3.15 on ex.org", "at 3.15 on ex.org"),
        ("the end.", "the end."),
        ("a list\n- item", "a list"),
        ("雨が降った。それ", "雨が降った。"),
        ("Wait... what", "Wait..."),
        ("rain of the old harbour", "rain"),
        ("rain of the other", "rain of the other"),
    ],
)
def test_a_completion_ends_with_its_sentence_or_before_what_follows(
    written: str, shown: str
) -> None:
    stops = suffix_stops(" of the old harbour wall")
    decoding = IncrementalDetokenizer(ByteTokenizer(), [], stops, sentence=True)
    text = ""
    for byte in written.encode():
        text += decoding.feed(byte)
        if decoding.stop is not None:
            break
    assert text + decoding.finish() == shown
    assert suffix_stops("\n ") == ()


@pytest.mark.parametrize("kind", foreign.DOCUMENTS)
def test_a_word_that_the_prompt_breaks_off_is_completed(kind: str) -> None:
    tokenizer = Tokenizer(foreign.files_of(kind))
    engine = CountingEngine(tokenizer.vocabulary_size)
    for word in (" thi", " ", " 日"):
        model = Model(engine, tokenizer)
        request = model.request(f"in the{word}", max_tokens=9, completes_word=True)
        whole = model.request("in the", max_tokens=9)
        assert request.ids == whole.ids
        ids = list(generate(engine, request))
        written = b"".join(tokenizer.table[i] or b"" for i in ids)
        assert written.startswith(word.encode())
        decoding = IncrementalDetokenizer(tokenizer, request.ids, skipped=len(word.encode()))
        text = "".join(map(decoding.feed, ids)) + decoding.finish()
        assert text == written[len(word.encode()) :].decode("utf-8", "replace")


letters = st.text("abc", max_size=12)
some_stops = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


@given(letters, some_stops)
def test_only_a_possible_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    decoding = IncrementalDetokenizer(ByteTokenizer(), [], stops)
    output = ""
    for n, letter in enumerate(text.encode(), 1):
        output += decoding.feed(letter)
        if decoding.stop is not None:
            break
        pending = text[len(output) : n]
        assert text.startswith(output)
        assert not pending or any(stop.startswith(pending) and stop != pending for stop in stops)
    assert (output + decoding.finish(), decoding.stop) == cut(text, stops)
