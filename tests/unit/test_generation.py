"""Texts generated alone and in a batch equal those of the plain forward pass."""

import gc
import sys
from collections.abc import Sequence
from functools import cache
from itertools import chain
from random import Random
from threading import Barrier, Thread
from weakref import WeakSet

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from counting_engine import CountingEngine
from families import TINY, some_ids, tiny
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.engine import Engine
from ownwords.inference.generation import (
    BatchScheduler,
    GenerationRequest,
    GenerationState,
    LoopDetector,
    generate,
)
from ownwords.inference.sampling import Sampler, SamplingParams, draw_uniform
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models.decoder import CausalLM

GREEDY = SamplingParams(temperature=0)
LIVELY = SamplingParams(temperature=1.5, repetition_penalty=1.2)

ENGINES = {name: TorchEngine(tiny(name).double().eval(), frozen=True) for name in TINY}


def generate_plainly(network: CausalLM, request: GenerationRequest) -> list[int]:
    """The whole text is read again for each token, without a cache."""
    room = min(network.config.context, len(request.ids) + request.max_tokens)
    text = context = list(request.ids)
    sampler = Sampler(request.sampling, prompt=len(request.ids))
    for drawn in range(request.max_tokens):
        while len(context) > room:
            context = context[room + 1 - room // 2 :]
        with torch.inference_mode():
            scores = network.logits(network(torch.tensor([context])))[0, -1].float().numpy()
        chosen = sampler.sample(scores, draw_uniform(request.seed, drawn), text)
        if chosen in request.stop_ids:
            break
        text, context = [*text, chosen], [*context, chosen]
    return text[len(request.ids) :]


def generated_ids(engine: Engine, request: GenerationRequest) -> list[int]:
    return list(generate(engine, request))


def upward(vocabulary: int = 50) -> CountingEngine:
    """An engine that predicts id + 1."""
    return CountingEngine(vocabulary, context=10_000, counts_up=True)


def finish(scheduler: BatchScheduler) -> dict[GenerationState, list[int]]:
    texts: dict[GenerationState, list[int]] = {}
    while scheduler.busy:
        for handle, token in scheduler.step():
            texts.setdefault(handle, []).extend(drawn(token))
    return texts


def drawn(token: int | None) -> list[int]:
    return [] if token is None else [token]


def finish_one(scheduler: BatchScheduler, request: GenerationRequest) -> list[int]:
    handle = scheduler.submit(request)
    return finish(scheduler)[handle]


@cache
def plain_texts(name: str, is_greedy: bool) -> list[tuple[GenerationRequest, list[int]]]:
    """Return requests and their expected ids.

    They end within the 64-token context or past its end, or have a prompt longer than it.
    """
    requests = [
        GenerationRequest(
            ids=some_ids(1, length, seed=length)[0].tolist(),
            max_tokens=tokens,
            sampling=GREEDY if is_greedy else LIVELY,
            seed=length,
        )
        for length, tokens in ((3, 20), (40, 40), (100, 6))
    ]
    return [(request, generate_plainly(ENGINES[name].network, request)) for request in requests]


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("is_greedy", [True, False], ids=["greedy", "lively"])
def test_tokens_equal_those_of_the_plain_model(name: str, is_greedy: bool) -> None:
    engine = ENGINES[name]
    for request, ids in plain_texts(name, is_greedy):
        assert generated_ids(engine, request) == ids


@pytest.mark.parametrize("name", ["gpt2", "gemma3"])
def test_batched_texts_equal_single_ones(name: str) -> None:
    engine, random = ENGINES[name], Random(name)
    shared = some_ids(1, 30, seed=5)[0].tolist()
    waiting = []
    for number in range(12):
        own = some_ids(1, random.randint(1, 40), seed=number)[0].tolist()
        request = GenerationRequest(
            ids=shared[: random.choice([0, 20, 30])] + own,
            max_tokens=random.randint(0, 30),
            sampling=random.choice([GREEDY, LIVELY]),
            seed=number,
            stop_ids=frozenset({random.randrange(97)}),
        )
        waiting.append((request, generated_ids(engine, request)))
    scheduler = BatchScheduler(engine, rows=3, length=64)
    texts: dict[GenerationState, list[int]] = {}
    expected: dict[GenerationState, list[int]] = {}
    while waiting or scheduler.busy:
        if waiting and random.random() < 0.4:
            request, alone = waiting.pop()
            handle = scheduler.submit(request)
            texts[handle], expected[handle] = [], alone
            if random.random() < 0.2:
                scheduler.cancel(handle)
                expected[handle] = []
        for handle, token in scheduler.step():
            assert not handle.is_cancelled
            texts[handle] += drawn(token)
            assert texts[handle] == expected[handle][: len(texts[handle])]
    assert texts == expected


def test_the_finish_reason_is_reported() -> None:
    scheduler = BatchScheduler(upward(), rows=2, length=100)
    stopped = scheduler.submit(
        GenerationRequest(ids=[3], max_tokens=9, sampling=GREEDY, stop_ids=frozenset({7})),
    )
    full = scheduler.submit(GenerationRequest(ids=[20], max_tokens=2, sampling=GREEDY))
    empty = scheduler.submit(GenerationRequest(ids=[20], max_tokens=0, sampling=GREEDY))
    reasons = {}
    texts: dict[GenerationState, list[int]] = {stopped: [], full: [], empty: []}
    while scheduler.busy:
        for handle, token in scheduler.step():
            texts[handle] += drawn(token)
            reasons[handle] = handle.finish_reason
    assert texts == {stopped: [4, 5, 6], full: [21, 22], empty: []}
    assert reasons == {stopped: "stop", full: "length", empty: "length"}


def test_a_score_reads_its_prefix_once_and_only_what_is_not_cached() -> None:
    engine = upward()
    scheduler = BatchScheduler(engine, rows=2, length=1000)
    prompt = list(range(40))
    scheduler.submit(GenerationRequest(ids=prompt, max_tokens=1, sampling=GREEDY))
    finish(scheduler)
    scheduler.score([*prompt, 3, 4], [[5, 6, 7], [5], [9, 8]])
    assert engine.tokens == 40 + 2 + 2 + 0 + 1  # a last token is never read


def test_a_read_that_fails_loses_no_row_and_is_not_taken_for_cached() -> None:
    engine = CountingEngine()
    scheduler = BatchScheduler(engine, rows=1, length=64)
    request = GenerationRequest(ids=[*range(40)], max_tokens=3, sampling=GREEDY)
    expected = finish_one(scheduler, request)
    scheduler = BatchScheduler(engine, rows=1, length=64)
    engine.fails = MemoryError()
    with pytest.raises(MemoryError):
        scheduler.score(request.ids, [[1]])
    handle, engine.fails = scheduler.submit(request), MemoryError()
    with pytest.raises(MemoryError):
        scheduler.step()
    scheduler.cancel(handle)
    assert finish_one(scheduler, request) == expected


def test_a_cached_prefix_is_not_read_again() -> None:
    engine = upward()
    scheduler = BatchScheduler(engine, rows=2, length=1000)
    prompt = list(range(40))

    def read_for(ids: Sequence[int]) -> int:
        before = engine.tokens
        scheduler.submit(GenerationRequest(ids=ids, max_tokens=1, sampling=GREEDY))
        finish(scheduler)
        return engine.tokens - before

    assert read_for(prompt) == 40
    assert read_for(prompt) == 1  # the last, for its scores
    assert read_for([*prompt, 7, 8]) == 2
    assert read_for([*prompt[:30], 9]) == 1
    assert read_for([49, *prompt]) == 41
    # A long text is still there after an edit in its middle, and after it has outgrown the row.
    text = [i % 50 for i in range(900)]
    assert read_for(text) >= 900 - 40
    assert read_for([*text[:300], 9]) == 1
    assert read_for([*text, 3]) <= 2
    for _ in range(2):
        read_for([i % 50 for i in range(1700)])
        assert read_for([i % 50 for i in range(1720)]) <= 21
    # A prefix that another running request has cached is also reused, by copying it.
    scheduler.submit(GenerationRequest(ids=[*prompt[:30], 9], max_tokens=50, sampling=GREEDY))
    scheduler.step()
    before = engine.tokens
    handle = scheduler.submit(
        GenerationRequest(ids=[*prompt[:30], 9, 10, 11, 3], max_tokens=1, sampling=GREEDY)
    )
    scheduler.step()
    scheduler.step()
    scheduler.step()
    assert handle.finish_reason
    assert engine.tokens - before <= 3 + 4


def test_requests_with_the_same_prompt_prefill_it_once() -> None:
    engine = CountingEngine(97)
    scheduler = BatchScheduler(engine, rows=4, length=64)
    ids = some_ids(1, 40)[0].tolist()
    requests = [
        GenerationRequest(ids=ids, max_tokens=8, sampling=SamplingParams(temperature=3), seed=seed)
        for seed in range(4)
    ]
    handles = [scheduler.submit(request) for request in requests]
    texts = finish(scheduler)
    assert engine.tokens == 40 + 3 + 4 * 7
    assert [texts[handle] for handle in handles] == [
        generated_ids(CountingEngine(97), request) for request in requests
    ]
    assert len({tuple(text) for text in texts.values()}) == 4


def test_a_long_prompt_does_not_stall_others() -> None:
    engine = upward()
    scheduler = BatchScheduler(engine, rows=2, length=2000)
    quick = scheduler.submit(GenerationRequest(ids=[1], max_tokens=100, sampling=GREEDY))
    scheduler.step()
    slow = scheduler.submit(GenerationRequest(ids=[5] * 1000, max_tokens=3, sampling=GREEDY))
    steps = 0
    while not slow.finish_reason:
        assert dict(scheduler.step())[quick] is not None
        assert sum(map(len, engine.reads[-1].values())) <= 65
        steps += 1
    assert steps < 25


def test_cancelling_frees_the_row_and_is_silent() -> None:
    scheduler = BatchScheduler(upward(), rows=1, length=100)
    first, second, third = (
        scheduler.submit(GenerationRequest(ids=[1], max_tokens=5, sampling=GREEDY))
        for _ in range(3)
    )
    assert [handle for handle, _ in scheduler.step()] == [first]
    scheduler.cancel(first)
    scheduler.cancel(second)
    assert [handle for handle, _ in scheduler.step()] == [third]
    scheduler.cancel(third)
    assert scheduler.step() == []
    assert not scheduler.busy


def test_requests_can_be_added_and_cancelled_from_other_threads() -> None:
    scheduler = BatchScheduler(upward(), rows=3, length=300)
    handles: list[list[GenerationState]] = [[] for _ in range(4)]
    all_in = Barrier(len(handles) + 1)

    def come(number: int) -> None:
        random = Random(number)
        all_in.wait()
        for index in range(60):
            ids = [random.randrange(50) for _ in range(random.randint(1, 60))]
            request = GenerationRequest(ids=ids, max_tokens=random.randint(0, 20), sampling=GREEDY)
            handles[number].append(scheduler.submit(request))
            if random.random() < 0.3:
                scheduler.cancel(handles[number][random.randint(0, index)])

    threads = [Thread(target=come, args=(number,)) for number in range(len(handles))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that the threads interleave at every point
    try:
        for thread in threads:
            thread.start()
        all_in.wait()
        texts: dict[GenerationState, list[int]] = {}
        # In this order: a thread may hand in its last request and end in between.
        while any(thread.is_alive() for thread in threads) or scheduler.busy:
            for handle, token in scheduler.step():
                texts.setdefault(handle, []).extend(drawn(token))
    finally:
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    for handle in chain(*handles):
        wanted, last = handle.request.max_tokens, handle.request.ids[-1]
        expected = [(last + 1 + offset) % 50 for offset in range(wanted)]
        assert texts.get(handle, []) == expected[: len(texts.get(handle, []))]
        if not handle.is_cancelled:
            assert (texts[handle], handle.finish_reason) == (expected, "length")
    assert sorted(scheduler._free) == [0, 1, 2]
    assert sum(handle.is_cancelled for handle in chain(*handles)) > 30


def test_requests_that_ended_or_were_cancelled_are_forgotten() -> None:
    engine, random = CountingEngine(), Random(4)
    scheduler = BatchScheduler(engine, rows=4, length=64)
    handles = WeakSet[GenerationState]()
    for number in range(200):
        ids = random.choices(range(50), k=random.choice([1, 8, 40, 90]))
        request = GenerationRequest(
            ids=ids, max_tokens=random.choice([0, 1, 20, 60]), sampling=LIVELY, seed=number
        )
        handles.add(handle := scheduler.submit(request))
        if random.random() < 0.2:
            scheduler.cancel(handle)
    del handle
    finish(scheduler)
    gc.collect()
    assert len(handles) <= 4  # those whose text a row still holds
    scheduler.close()
    assert engine.caches == 0


def test_padding_of_the_vocabulary_is_never_sampled() -> None:
    engine = upward()
    for vocabulary, expected in ((50, [19, 20, 21, 22]), (60, [19, 20, 21, 22]), (21, [19, 20])):
        request = GenerationRequest(
            ids=[18], max_tokens=4, sampling=GREEDY, vocabulary=vocabulary, stop_ids=frozenset({0})
        )
        # After 20 comes 21 or, if 21 is padding, id 0, the stop id.
        assert generated_ids(engine, request) == expected
        assert list(finish_one(BatchScheduler(engine, rows=1, length=60), request)) == expected
    padded = GenerationRequest(ids=[48], max_tokens=9, sampling=LIVELY, vocabulary=30)
    assert max(generate(engine, padded)) < 30
    with pytest.raises(ConfigError, match="vocabulary must be 1 or more, not 0"):
        GenerationRequest(ids=[1], max_tokens=3, sampling=GREEDY, vocabulary=0)


def test_loops_are_broken_unless_the_most_likely_is_asked_for() -> None:
    hot = {5: 40.0}

    def text(temperature: float, *, break_loops: bool) -> list[int]:
        sampling = SamplingParams(temperature=temperature, bias=hot, break_loops=break_loops)
        request = GenerationRequest(ids=[5] * 20, max_tokens=20, sampling=sampling)
        return list(generate(ENGINES["qwen3"], request))

    assert text(1, break_loops=False) == text(0, break_loops=True) == [5] * 20
    broken = text(1, break_loops=True)
    assert broken[:9] == [5] * 9  # what stands in the prompt may be said again
    assert broken[9] != 5
    assert broken[10:18] == [5] * 8


def test_one_request_that_fails_leaves_the_others_alone() -> None:
    scheduler = BatchScheduler(upward(vocabulary=4), rows=2, length=100)
    never = SamplingParams(temperature=0, bias=dict.fromkeys(range(4), float("-inf")))
    good = scheduler.submit(GenerationRequest(ids=[1], max_tokens=3, sampling=GREEDY))
    bad = scheduler.submit(GenerationRequest(ids=[1, 2], max_tokens=3, sampling=never))
    texts = finish(scheduler)
    assert texts[good] == [2, 3, 0]
    assert (good.finish_reason, good.error) == ("length", None)
    assert bad.finish_reason == "error"
    assert isinstance(bad.error, OwnwordsError)


def test_invalid_requests_are_refused_immediately() -> None:
    with pytest.raises(OwnwordsError, match="the prompt is empty"):
        GenerationRequest(ids=[], max_tokens=3, sampling=GREEDY)
    with pytest.raises(ConfigError, match="max_tokens must be 0 or more, not -1"):
        GenerationRequest(ids=[1], max_tokens=-1, sampling=GREEDY)
    scheduler = BatchScheduler(upward(), rows=1, length=10)
    for wrong in (50, -1):
        with pytest.raises(OwnwordsError, match=f"id {wrong} is not in the vocabulary"):
            scheduler.submit(GenerationRequest(ids=[1, wrong], max_tokens=3, sampling=GREEDY))
    assert not scheduler.busy


def test_generation_is_lazy() -> None:
    engine = upward()
    pieces = generate(engine, GenerationRequest(ids=[1], max_tokens=10**9, sampling=GREEDY))
    assert not engine.reads
    assert [next(pieces) for _ in range(3)] == [2, 3, 4]
    assert len(engine.reads) == 3
    del pieces
    assert engine.caches == 0
    assert generated_ids(engine, GenerationRequest(ids=[1], max_tokens=0, sampling=GREEDY)) == []


def banned(ids: Sequence[int]) -> set[int]:
    detector, found = LoopDetector(), list[int]()
    for token in ids:
        found = detector.add(token)
    return set(found)


@pytest.mark.parametrize(("period", "repeated"), [(1, 8), (3, 8), (12, 24), (16, 32), (100, 32)])
def test_a_loop_ends_sooner_the_shorter_it_is(period: int, repeated: int) -> None:
    ids = [*range(900, 905), *range(period)] + [i % period for i in range(repeated)]
    assert not banned(ids[:-1])
    assert banned(ids) == {repeated % period}


@given(st.lists(st.integers(0, 2), max_size=60))
def test_loop_detector_matches_a_search_of_the_whole_text(ids: list[int]) -> None:
    expected = set()
    for distance in range(1, len(ids)):
        run = 0
        while run + distance < len(ids) and ids[-1 - run] == ids[-1 - run - distance]:
            run += 1
        if run >= min(32, max(8, 2 * distance)):
            expected.add(ids[-distance])
    assert banned(ids) == expected
