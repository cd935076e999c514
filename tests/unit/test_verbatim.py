"""The search for copied passages, checked against a word-by-word search."""

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ownwords.evaluation.verbatim import SharedPassage, longest_copied, shared_passages

POST = "We walked to the old harbour in the rain, and nobody spoke of the boat that had been sold."
OTHER = "The boat had been sold in March. We walked on, and nobody spoke of the rain at all, ever."
CHANCE = random.Random(2)
STOLEN = " ".join(f"w{n}" for n in range(48))
ADDRESS = f"https://example.org/{'a1' * 200}?page=2&order=date"


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def is_in(run: list[str], text: str) -> bool:
    return f" {' '.join(run)} " in f" {' '.join(words(text))} "


def test_each_passage_is_found_completely_with_its_position() -> None:
    sample = f"Nothing. {POST[:41]}, said he, and NOBODY spoke of the rain at all, today."
    found = shared_passages(sample, [("a", POST), ("b", OTHER)], words=4)
    assert [(sample[each.start : each.end], each.words, each.document) for each in found] == [
        ("We walked to the old harbour in the rain", 9, "a"),
        ("and NOBODY spoke of the rain at all", 8, "b"),
    ]


def test_parts_of_words_and_runs_of_few_letters_do_not_count() -> None:
    assert shared_passages("xx walked to the old harbours in the rain", [("a", POST)], 4) == []
    assert shared_passages("xx walked to the old harbour", [("a", POST)], 4) == [
        SharedPassage(3, 28, 5, "a")
    ]
    assert shared_passages("昨日は雨が降った", [("a", "昨日は雨が降った")], 5) == []


def test_empty_texts_share_nothing() -> None:
    assert shared_passages("", [("a", POST)], 1) == []
    assert shared_passages(POST, [], 1) == []
    assert shared_passages(POST, [("a", ""), ("b", "short")], 1) == []
    assert longest_copied([""], []) == ("", 0, -1)


@pytest.mark.parametrize("document", ["a " * 100_000, "a b " * 30_000])
def test_a_text_of_one_or_two_repeated_words_is_found_whole(document: str) -> None:
    (passage,) = shared_passages("a " * 1000, [("a", "a " * 100_000)], 3)
    assert (passage.start, passage.end, passage.words) == (0, 1999, 1000)
    assert longest_copied(["a b " * 900], [document])[1] == (1800 if "b" in document else 1)


WORDS = st.lists(st.sampled_from(["rain", "the", "boats", "sold", "é", "\U00020000"]), max_size=14)


@settings(max_examples=100)
@given(st.lists(WORDS, max_size=3), st.lists(WORDS, max_size=3), st.sampled_from([" ", ", — "]))
def test_passages_are_those_of_a_search_word_by_word(
    ours: list[list[str]], theirs: list[list[str]], mark: str
) -> None:
    samples = [mark.join(each) for each in ours]
    documents = [" ".join(each) for each in theirs]
    runs = [
        (one[i:j], number)
        for one in ours
        for i in range(len(one))
        for j in range(i + 1, len(one) + 1)
        for number, document in enumerate(documents)
        if is_in(one[i:j], document)
    ]
    passage, length, number = longest_copied(samples, documents)
    assert length == len(words(passage)) == max((len(run) for run, _ in runs), default=0)
    assert (words(passage), number) in runs if runs else number == -1

    sample = samples[0] if samples else ""
    found = shared_passages(sample, [(str(n), each) for n, each in enumerate(documents)], 3)
    for each in found:
        run = words(sample[each.start : each.end])
        assert len(run) == each.words >= 3 and is_in(run, documents[int(each.document)])
    for each, following in pairwise(found):
        assert each.end <= following.start
    long = [run for run, _ in runs if len(run) >= 3 and len(mark.join(run)) >= 20]
    expected = [run for run in long if is_in(run, sample)]
    assert max((each.words for each in found), default=0) >= max(map(len, expected), default=0)


@pytest.mark.parametrize("hidden_by", ["-" * 320, "=" * 900, "– * " * 200, ADDRESS, f"<{ADDRESS}>"])
def test_copies_are_found_on_both_sides_of_a_separator_line_or_url(hidden_by: str) -> None:
    post = f"It begins so.\n\n{hidden_by}\n\n{STOLEN}. It ends so."
    sample = f"Another text.\n{hidden_by}\nwith a copy: {STOLEN.upper()} and an end."
    assert longest_copied([sample], [hidden_by, post]) == (STOLEN.upper(), 48, 1)
    assert [each.words for each in shared_passages(sample, [("a", post)], 5)] == [48]
    parted = STOLEN.replace(" w24 ", f"\n{hidden_by}\nw24 ")
    assert longest_copied([sample], [parted])[1] == 48


def test_every_copied_passage_is_found_among_many_short_runs() -> None:
    """However often a post repeats what the sample begins with."""
    refrain = "and so it goes on and on"
    post = f"{f'{refrain} ' * 3000}{STOLEN} {OTHER}"
    sample = f"{refrain}. {POST} {refrain}! {STOLEN}; {refrain}. {OTHER}"
    found = {sample[each.start : each.end] for each in shared_passages(sample, [("a", post)], 5)}
    assert {f"{refrain}! {STOLEN}", OTHER[:-1]} <= found
    assert longest_copied([sample], [POST, post]) == (f"{refrain}! {STOLEN}", 55, 1)


@pytest.mark.parametrize(
    ("sample", "document", "expected"),
    [
        ("The mill stands by the", "one mill stands by that", "mill stands by"),
        ("mill stands", "a mill stands.", "mill stands"),
        ("windmill stands", "a mill stands", "stands"),
        ("a mill stands", "a mill standstill", "a mill"),
        ("mill", "pill", ""),
        ("I don’t know", "they don't go", "don’t"),
        ("2. And, so it was; he went", "1. And, so it was, he", "And, so it was; he"),
        ("see http://mill.org/a", "at http://mill.org/a, then", ""),
        ("ask me@mill.org now", "me@mill.org", ""),
    ],
)
def test_only_whole_words_count_as_copied(sample: str, document: str, expected: str) -> None:
    passage, length, _ = longest_copied(["zzz", sample], ["qqq", document])
    assert (passage, length) == (expected, len(expected.split()))
