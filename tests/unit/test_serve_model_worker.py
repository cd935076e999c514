"""Many readers of one model's thread, each as if alone, and the text that each is given."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foreign_tokenizers as foreign
from counting_engine import CountingEngine
from foreign_tokenizers import ODD
from ownwords.core.errors import OwnwordsError
from ownwords.inference.generation import GeneratedToken, GenerationRequest, generate
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import IncrementalDetokenizer
from ownwords.serve.errors import TooManyRequestsError
from ownwords.serve.model_worker import (
    FairLock,
    ModelWorker,
    StreamDecoder,
    TextChunk,
    join_chunks,
)
from ownwords.serve.openai import Formatter
from ownwords.tokenizers.bpe import BPETokenizer, ByteTokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

LIVELY = SamplingParams(temperature=1.0)
FOREVER = 1_000_000


def request_of(
    seed: int = 1, tokens: int = 30, ids: tuple[int, ...] = (3, 1, 4)
) -> GenerationRequest:
    return GenerationRequest(ids=ids, max_tokens=tokens, sampling=LIVELY, seed=seed)


@asynccontextmanager
async def worker_of(
    engine: CountingEngine,
    *,
    rows: int = 4,
    queue: int = 4,
) -> AsyncGenerator[ModelWorker, None]:
    worker = ModelWorker(
        engine,
        name="it",
        rows=rows,
        length=engine.context,
        queue=queue,
        compute_lock=FairLock(),
    )
    try:
        yield worker
    finally:
        await worker.close()
    assert engine.caches == 0


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(within())


async def read(worker: ModelWorker, request: GenerationRequest) -> list[int]:
    async with worker.generate(request) as stream:
        ids = [token.id async for batch in stream for token in batch]
        assert stream.finish_reason == "length"
        return ids


def single_text(request: GenerationRequest) -> list[int]:
    return [drawn.id for drawn in generate(CountingEngine(), request)]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_a_seed_gives_the_same_text_in_any_batch() -> None:
    engine = CountingEngine()
    requests = [request_of(seed, tokens=20 + seed, ids=(seed % 5, 7, 8)) for seed in range(12)]

    async def work() -> None:
        async with worker_of(engine, rows=4, queue=20) as worker:
            for request in requests[:3]:
                assert await read(worker, request) == single_text(request)
            texts = await asyncio.gather(*(read(worker, request) for request in requests))
        assert texts == [single_text(request) for request in requests]

    run(work)
    assert engine.at_once == 4


def test_a_request_beyond_the_queue_is_refused_immediately() -> None:
    async def work() -> None:
        async with worker_of(CountingEngine(), rows=2, queue=1) as worker:
            forever = [worker.generate(request_of(seed, FOREVER)) for seed in range(3)]
            for stream in forever:
                await stream.__aenter__()
            await until(lambda: worker.running == 2)
            assert worker.waiting == 1
            with pytest.raises(TooManyRequestsError) as busy:
                async with worker.generate(request_of()):
                    pass
            assert busy.value.status == 429
            assert 1 <= (busy.value.retry_after_s or 0) <= 30
            await forever[0].__aexit__(None, None, None)
            await until(lambda: worker.waiting == 0)
            for stream in forever[1:]:
                await stream.__aexit__(None, None, None)
            assert await read(worker, request_of()) == single_text(request_of())
            assert worker.is_idle

    run(work)


def test_a_disconnected_reader_frees_its_row() -> None:
    engine = CountingEngine()

    async def work() -> None:
        async with worker_of(engine, rows=1) as worker:
            for seed in range(50):
                async with worker.generate(request_of(seed, FOREVER)) as stream:
                    await anext(aiter(stream))
            async with worker.generate(request_of(99, FOREVER)) as stream:
                await anext(aiter(stream))
                task = asyncio.create_task(read(worker, request_of(5)))
                await until(lambda: worker.waiting == 1)
            assert await task == single_text(request_of(5))
            assert worker.running == 0  # nothing is generated for nobody

    run(work)


def test_an_invalid_request_does_not_affect_others() -> None:
    async def work() -> None:
        async with worker_of(CountingEngine()) as worker:

            async def wrong() -> None:
                async with worker.generate(request_of(ids=(3, 1000))) as stream:
                    await anext(aiter(stream))

            good = asyncio.create_task(read(worker, request_of(4)))
            with pytest.raises(OwnwordsError, match="id 1000 is not in the vocabulary"):
                await wrong()
            assert await good == single_text(request_of(4))

    run(work)


@pytest.mark.parametrize("error", [OwnwordsError("no memory"), RuntimeError("a bug")])
def test_an_engine_failure_ends_its_texts_and_the_engine_is_retried(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    engine = CountingEngine()

    async def work() -> None:
        async with worker_of(engine) as worker:
            tasks = [
                asyncio.create_task(read(worker, request_of(seed, FOREVER))) for seed in range(3)
            ]
            await until(lambda: worker.running == 3)
            engine.fails = error
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(result, OwnwordsError)
            assert await read(worker, request_of(1)) == single_text(request_of(1))

    run(work)
    assert ("a bug" in caplog.text) == isinstance(error, RuntimeError)


def test_the_lock_is_fair() -> None:
    lock, order = FairLock(), list[str]()

    def other_turn() -> None:
        with lock.hold():
            order.append("other")

    thread = threading.Thread(target=other_turn)
    with lock.hold():
        thread.start()
        while lock._tickets < 2:
            time.sleep(0.001)
    with lock.hold():
        order.append("again")
    thread.join()
    assert order == ["other", "again"]


BYTES = ByteTokenizer()


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
    decoder = StreamDecoder(IncrementalDetokenizer(tokenizer, [*start, *after], stops), top=top)
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


@pytest.mark.parametrize("kind", foreign.DOCUMENTS)
def test_a_continuation_keeps_its_leading_space(kind: str) -> None:
    tokenizer = Tokenizer(foreign.files_of(kind))
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
    decoder = StreamDecoder(IncrementalDetokenizer(tokenizer, [66]), top=2)
    piece = decoder.feed(GeneratedToken(65, -1.0, ((gap, -0.5), (65, -1.0))))
    assert len(piece.tokens[0].top) == 1


# --- shapes --------------------------------------------------------------------------------------


def test_partial_characters_are_named_by_their_bytes() -> None:
    piece = join_chunks(decode_stream(BYTES, "é".encode(), top=1)[0])
    chat = Formatter("m", "fp", is_chat=True, has_logprobs=True).response([(piece, "stop")], {})
    logprobs = chat["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in logprobs] == ["\\xc3", "\\xa9"]
    assert [token["bytes"] for token in logprobs] == [[0xC3], [0xA9]]
    assert logprobs[0]["top_logprobs"] == [{"token": "\0", "logprob": 0.0, "bytes": [0]}]
    older = Formatter("m", "fp", is_chat=False, has_logprobs=True, echoes=[""])
    lists = older.response([(piece, "stop")], {})["choices"][0]["logprobs"]
    assert lists["tokens"] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert lists["text_offset"] == [0, 0]


def test_an_infinite_logprob_is_a_finite_json_number() -> None:
    decoder = StreamDecoder(IncrementalDetokenizer(BYTES, [65]), top=1)
    piece = decoder.feed(GeneratedToken(66, -1.0, ((67, float("-inf")),)))
    assert piece.tokens[0].top[0].logprob == -9999.0
