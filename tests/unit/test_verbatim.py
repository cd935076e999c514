"""Passages that occur verbatim in other texts, against a search letter by letter."""

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ownwords.evaluation.verbatim import SharedPassage, longest_copied, shared_passages

POST = "We walked to the old harbour in the rain, and nobody spoke of the boat that had been sold."
OTHER = "The boat had been sold in March. We walked on, and nobody spoke of the rain at all, ever."


def brute(sample: str, documents: list[tuple[str, str]], words: int, least: int) -> set[str]:
    """Every passage of whole words of `sample` that occurs, as whole words, in a document."""
    spans = [match.span() for match in re.finditer(r"\w+", sample)]
    passages = set()
    for i, (begin, _) in enumerate(spans):
        for _, end in spans[i:]:
            passage = sample[begin:end]
            pattern = rf"(?<!\w){re.escape(passage)}(?!\w)"
            if len(passage) < least or len(passage.split()) < words:
                continue
            if any(re.search(pattern, text) for _, text in documents):
                passages.add(passage)
    return passages


def test_each_passage_is_found_completely_with_its_position() -> None:
    sample = f"Nothing. {POST[:41]}, said he, and nobody spoke of the rain at all, today."
    documents = [("a", POST), ("b", OTHER)]
    passages = shared_passages(sample, documents, words=4)
    texts = {"a": POST, "b": OTHER}
    assert [(sample[passage.start : passage.end], passage.document) for passage in passages] == [
        ("We walked to the old harbour in the rain,", "a"),
        ("and nobody spoke of the rain at all,", "b"),
    ]
    for passage in passages:
        length = passage.end - passage.start
        assert (
            texts[passage.document][passage.at : passage.at + length]
            == sample[passage.start : passage.end]
        )


def test_parts_of_words_do_not_count() -> None:
    assert shared_passages("xx walked to the old harbours", [("a", POST)], 4, least=5) == [
        SharedPassage(3, 20, "a", 3)
    ]


def test_empty_texts_share_nothing() -> None:
    assert shared_passages("", [("a", POST)], 1) == []
    assert shared_passages(POST, [], 1) == []
    assert shared_passages(POST, [("a", ""), ("b", "short")], 1) == []


def test_a_text_of_one_repeated_letter_is_fast() -> None:
    passages = shared_passages("a " * 1000, [("a", "a " * 100_000)], 3)
    assert [(passage.start, passage.end) for passage in passages] == [(0, 1999)]


WORDS = st.lists(st.sampled_from(["rain", "the", "boat", "sold", "é", "\U0001f30a"]), max_size=14)


@settings(max_examples=60)
@given(WORDS, st.lists(WORDS, max_size=3), st.integers(1, 4))
def test_the_longest_passage_equals_a_letter_by_letter_search(
    ours: list[str], theirs: list[list[str]], words: int
) -> None:
    sample = " ".join(ours)
    documents = [(str(n), " ".join(words_of_text)) for n, words_of_text in enumerate(theirs)]
    found_passages = shared_passages(sample, documents, words, least=3)
    passages = [sample[passage.start : passage.end] for passage in found_passages]
    texts = dict(documents)
    for found_passage, passage in zip(found_passages, passages, strict=True):
        assert (
            texts[found_passage.document][found_passage.at : found_passage.at + len(passage)]
            == passage
        )
        assert len(passage.split()) >= words
    for found_passage, following in pairwise(found_passages):
        assert found_passage.end <= following.start
    expected = brute(sample, documents, words, 3)
    # What begins or ends with a sign that is no word is told with it.
    assert max(map(len, passages), default=0) >= max(map(len, expected), default=0)
    assert bool(passages) >= bool(expected)


@settings(max_examples=150)
@given(st.text("ab é", max_size=14), st.lists(st.text("ab é", max_size=25), max_size=4))
def test_the_longest_copied_passage_is_that_of_a_search_of_all(
    sample: str, training: list[str]
) -> None:
    passage, number = longest_copied([sample], training)
    runs = {sample[i:j] for i in range(len(sample)) for j in range(i + 1, len(sample) + 1)}
    shared = [run for run in runs if any(run in document for document in training)]
    longest = max(map(len, shared), default=0)
    assert (number >= 0) == bool(shared)
    if shared:
        assert any(passage in run and run in training[number] for run in shared)
        whole = {run for run in shared if len(run) == longest and run in training[number]}
        assert any(passage in run for run in whole)


def test_a_long_passage_is_found_with_its_source() -> None:
    generator = random.Random(2)
    posts = ["".join(generator.choices("abcdefgh ", k=20_000)) for _ in range(5)]
    stolen = posts[3][7000:7321]
    sample = f"zz{''.join(generator.choices('abcdefgh ', k=3000))} {stolen} zz"
    copied, number = longest_copied([sample], posts)
    assert number == 3 and copied in stolen and len(copied) >= 300
    assert longest_copied([""], []) == ("", -1)


@pytest.mark.parametrize(
    ("sample", "document", "expected"),
    [
        ("The mill stands by the", "one mill stands by that", "mill stands by"),
        ("mill stands", "a mill stands.", "mill stands"),
        ("windmill stands", "a mill stands", "stands"),
        ("a mill stands", "a mill standstill", "a mill"),
        ("mill", "pill", ""),
        ("I don’t know", "they don’t go", "don’t"),
        ("2. And, so it was; he went", "1. And, so it was, he", "And, so it was"),
    ],
)
def test_only_whole_words_count_as_copied(sample: str, document: str, expected: str) -> None:
    assert longest_copied(["zzz", sample], ["qqq", document]) == (expected, 1)
