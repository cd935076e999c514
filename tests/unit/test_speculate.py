"""Guesses: where they come from, and that they are made where they pay, and only there."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from families import TINY, some_ids, tiny
from ownwords.core.errors import OwnwordsError
from ownwords.inference.desk import Desk
from ownwords.inference.engine import Feed, Scores, Weights
from ownwords.inference.generation import Request, generate
from ownwords.inference.sampling import Sampling
from ownwords.inference.speculate import Costs, Draft, Pace, PromptLookup, shared
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models.family import build

GREEDY = Sampling(temperature=0)


class Written:
    """An engine of one row that writes a given text; it knows what was asked of it."""

    name = "written"
    weights: Weights = "f32"
    context = 100_000

    def __init__(self, text: Sequence[int], vocabulary: int = 1000) -> None:
        self.text = text
        self.vocabulary = vocabulary
        self.steps = 0
        self.checked = 0
        self.rows = 1
        self.length = self.context
        self._held = 0

    def cache(self, rows: int, length: int) -> "Written":
        self._held, self.length = 0, length
        return self

    def held(self, row: int) -> int:
        return self._held

    def read(self, feeds: Sequence[Feed], *, every: bool = False) -> Scores:
        (feed,) = feeds
        self.steps += 1
        self.checked += len(feed.ids) - 1 if every else 0
        self._held += len(feed.ids)
        count = len(feed.ids) if every else 1
        scores = np.zeros((count, self.vocabulary), np.float32)
        for row, place in enumerate(range(self._held - count + 1, self._held + 1)):
            scores[row, self.text[place] if place < len(self.text) else 0] = 1
        return scores

    def cut(self, row: int, length: int) -> None:
        self._held = min(self._held, length)

    def copy(self, source: int, row: int, length: int) -> None:
        raise AssertionError

    def close(self) -> None:
        pass


def naively(history: Sequence[int], longest: int, shortest: int, most: int) -> list[int]:
    for size in range(longest, shortest - 1, -1):
        for place in range(len(history) - 1, size - 1, -1):
            if list(history[place - size : place]) == list(history[-size:]):
                return list(history[place : place + most])
    return []


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 9),
)
def test_looking_up_finds_what_a_search_finds(
    text: list[int], shortest: int, more: int, most: int
) -> None:
    guesses = PromptLookup(shortest + more, shortest).begin(1, GREEDY, 1)
    for end in range(1, len(text) + 1, 2):
        found = guesses.propose(text[:end], most)
        assert list(found) == naively(text[:end], shortest + more, shortest, most)


def test_a_text_that_repeats_takes_few_steps() -> None:
    text = [*range(100, 150), 7, *range(100, 150), 8, *range(100, 150)]
    engine = Written(text)
    request = Request(ids=text[:51], tokens=len(text) - 51, sampling=GREEDY)
    drawn = [one.id for one in generate(engine, request, proposer=PromptLookup())]
    assert drawn == text[51:]
    assert engine.steps < 30


def test_a_text_that_does_not_repeat_pays_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Costs, "each", 0.1)
    # Tokens that seem to repeat and never do: each pair stood there, and something else follows.
    random = Random(1)
    text = [random.randrange(12) for _ in range(3000)]
    engine = Written(text)
    request = Request(ids=text[:1000], tokens=2000, sampling=GREEDY)
    drawn = [one.id for one in generate(engine, request, proposer=PromptLookup(2, 1))]
    assert drawn == text[1000:]
    assert engine.steps + 0.1 * engine.checked < 2000 * 1.01


class Wrong:
    """Guesses that are never right."""

    def begin(self, prompt: int, sampling: Sampling, seed: int) -> "Wrong":
        return self

    def propose(self, history: Sequence[int], most: int) -> Sequence[int]:
        return [999] * most

    def close(self) -> None:
        pass


@pytest.mark.parametrize("desk", [False, True])
def test_guesses_that_are_never_right_are_given_up(
    desk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Costs, "each", 0.1)
    text = [1, *[3, 4, 5] * 700]
    engine = Written(text)
    request = Request(ids=[1], tokens=2000, sampling=GREEDY)
    if desk:
        table = Desk(engine, rows=1, length=3000, proposer=Wrong())
        table.submit(request)
        drawn = [one.id for told in iter(table.step, []) for _, all_, _ in told for one in all_]
    else:
        drawn = [one.id for one in generate(engine, request, proposer=Wrong())]
    assert drawn == text[1:2001]
    assert engine.steps == 2000
    assert engine.checked < 0.02 * 2000


def test_the_pace_follows_what_is_right() -> None:
    pace = Pace(most=16)
    assert 1 <= pace.length(0.1) <= 4
    for _ in range(6):
        count = pace.length(0.1)
        pace.learn(count, count)
    assert pace.length(0.1) == 16
    wasted = 0
    while count := pace.length(0.1):
        pace.learn(count, 0)
        wasted += count
    assert wasted < 60
    tries = 0
    for _ in range(500):
        if count := pace.length(0.1):
            pace.learn(count, 0)
            tries += 1
    assert 1 <= tries < 20
    # One that is right wakes it up; until there is one to be checked it keeps asking.
    while not (count := pace.length(0.1)):
        pass
    assert [pace.length(0.1) for _ in range(9)] == [1] * 9
    pace.learn(count, count)
    assert pace.length(0.1) > 1


def test_what_was_too_expensive_is_tried_again() -> None:
    pace = Pace()
    assert [pace.length(1.5) for _ in range(6)] == [0, 0, 0, 0, 0, 1]
    pace.learn(1, 1)
    assert pace.length(0.2) > 1


def test_where_half_is_right_a_few_are_guessed() -> None:
    pace, random, counts = Pace(), Random(4), []
    for _ in range(400):
        count = pace.length(0.15)
        right = 0
        while right < count and random.random() < 0.6:
            right += 1
        if count:
            pace.learn(count, right)
        counts.append(count)
    assert 1.5 < sum(counts) / len(counts) < 6


def test_costs_are_what_was_measured() -> None:
    costs = Costs()
    for _ in range(50):
        costs.stepped(0.010, 0)
        costs.stepped(0.016, 3)
        costs.guessed(0.004, 4)
    assert costs.each == pytest.approx(0.2 + 0.1, abs=0.01)
    for _ in range(50):
        costs.stepped(0.010, 0)
        costs.stepped(9.0, 1)
        costs.guessed(9.0, 1)
    assert costs.each == pytest.approx(2, abs=0.02)


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.2, frequency_penalty=0.3)])
def test_a_model_guesses_itself_right(name: str, sampling: Sampling) -> None:
    engine = TorchEngine(tiny(name).double().eval())
    text = some_ids(1, 20)[0].tolist()
    request = Request(ids=text, tokens=30, sampling=sampling, seed=3)
    text += [one.id for one in generate(engine, request)]
    draft = Draft(engine)
    guesses = draft.begin(20, sampling, 3)
    for end, most in ((20, 4), (22, 5), (27, 1), (28, 9), (40, 10)):
        assert list(guesses.propose(text[:end], most)) == text[end : end + most]
    assert guesses.propose(text, 0) == ()
    guesses.close()
    # What has ended leaves its memory to the next, which knows nothing of it.
    again = draft.begin(20, sampling, 3)
    assert list(again.propose(text[:20], 4)) == text[20:24]


def test_a_draft_bears_texts_beyond_its_context_and_tokens_it_does_not_know() -> None:
    engine = TorchEngine(tiny("gpt2").eval())
    guesses = Draft(engine).begin(1, GREEDY, 1)
    text = some_ids(1, 300)[0].tolist()
    for end in range(1, 300, 7):
        assert len(guesses.propose(text[:end], 5)) == 5
    assert guesses.propose([*text, 97], 5) == ()
    assert len(Draft(engine).begin(1, GREEDY, 1).propose(text[:9], 100)) == 63
    never = Sampling(temperature=0, bias=dict.fromkeys(range(97), float("-inf")))
    assert list(Draft(engine).begin(1, never, 1).propose(text[:9], 5)) == []


def test_what_a_larger_vocabulary_guesses_is_left_aside() -> None:
    small = TorchEngine(tiny("gpt2").double().eval())
    config = TINY["qwen3"]
    large = build(type(config)(**{**config.__dict__, "vocabulary": 300}), dtype=torch.float64)
    large.init_weights(1)
    request = Request(ids=[1, 2, 3], tokens=30, sampling=Sampling(temperature=1.0))
    draft = Draft(TorchEngine(large.eval()))
    assert list(generate(small, request, proposer=draft)) == list(generate(small, request))


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_what_two_texts_share(first: list[int], second: list[int]) -> None:
    count = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    assert shared(first, second) == count


def test_impossible_runs_are_refused() -> None:
    with pytest.raises(OwnwordsError, match="runs of 3 to 2 tokens"):
        PromptLookup(longest=2, shortest=3)
