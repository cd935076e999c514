"""Favourite phrases: real ones, counted fairly."""

import random
from collections.abc import Callable

import pytest

from ownwords.archive import phrases
from ownwords.archive.phrases import favourite_phrases
from ownwords.archive.report import Phrase, PostSummary

COMMON = "the of and a to in is it was he that with as I had for at by on not"
GLUE = COMMON.split()


def filler(rng: random.Random, words: int) -> str:
    def word() -> str:
        if rng.random() < 0.6:
            return rng.choice(GLUE)
        return "".join(rng.choices("abcdefgh", k=4)) + "o"

    return " ".join(word() for _ in range(words))


def post(id_: str, words: int = 130) -> PostSummary:
    return PostSummary(id_, id_, "", "2020-01-01", "post", words, words)


def archive(n: int, insert: Callable[[int], str]) -> tuple[list[PostSummary], dict[str, str]]:
    texts = {}
    for i in range(n):
        rng = random.Random(i)
        texts[f"{i:03}"] = f"{filler(rng, 60)}, {insert(i)}, {filler(rng, 60)}."
    return [post(id_) for id_ in texts], texts


def phrases_of(n: int, insert: Callable[[int], str]) -> dict[str, Phrase]:
    posts, texts = archive(n, insert)
    return {phrase.text: phrase for phrase in favourite_phrases(posts, texts.__getitem__)}


def test_a_phrase_is_shown_in_its_most_frequent_spelling() -> None:
    variants = ["as a matter of fact", "As a matter of fact", "as a matter of fact"]
    phrase = phrases_of(30, lambda i: variants[i % 3] if i % 2 else "so")["as a matter of fact"]
    assert (phrase.count, phrase.posts) == (15, 15)


def test_parts_of_a_phrase_are_not_phrases() -> None:
    texts = phrases_of(30, lambda i: "as a matter of fact" if i % 2 else "so")
    assert not {"as a matter of", "a matter of fact", "matter of fact"} & texts.keys()


def test_function_words_alone_are_not_a_phrase_nor_its_end() -> None:
    for text in phrases_of(60, lambda i: "the glad animals of the"):
        words = text.split()
        assert any(word not in GLUE for word in words)
        assert words[-1] not in GLUE[:5]


def test_two_posts_are_not_enough() -> None:
    text = "curious green umbrellas"
    assert text not in phrases_of(30, lambda i: text * (i < 2))
    assert text in phrases_of(30, lambda i: text * (i < 3))


def test_a_phrase_does_not_cross_punctuation() -> None:
    assert not any("green" in t for t in phrases_of(30, lambda _: "curious, green umbrellas. Then"))


def test_a_signature_counts_once() -> None:
    def signed(i: int) -> str:
        return f"so.\n\nWith the kindest regards from rainy Bydgoszcz, yours Anna\n\n{i}"

    assert not any("kindest" in text or "Anna" in text for text in phrases_of(30, signed))


def test_the_order_of_the_posts_does_not_matter() -> None:
    posts, texts = archive(20, lambda _: "curious green umbrellas")
    forwards = favourite_phrases(posts, texts.__getitem__)
    assert favourite_phrases(reversed(posts), texts.__getitem__) == forwards


def test_posts_without_words_or_letters_cause_no_error() -> None:
    posts = [post(f"{i}", words=1) for i in range(5)]
    assert favourite_phrases(posts, lambda _: "… — !") == []
    assert favourite_phrases(posts, lambda _: "") == []


def test_a_large_archive_is_sampled_by_whole_posts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phrases, "MAX_SAMPLE_WORDS", 2_000)
    posts, texts = archive(60, lambda _: "curious green umbrellas")
    (phrase,) = [p for p in favourite_phrases(posts, texts.__getitem__) if "green" in p.text]
    assert phrase.posts == 15
