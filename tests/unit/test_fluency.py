"""Sentences, words and repetitions: broken ones are detected, ordinary ones are not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from growth import is_far_from_quadratic
from ownwords.core.errors import OwnwordsError
from ownwords.evaluation.fluency import broken_sentences, fluency, openings, repetition
from ownwords.language.words import FOLDER, WORDS_FILE, Lexicon, begins_sentence, words_in

PROSE = """\
The trouble with the kettle is that it works. I bought it in March, when the old one had begun
to leak, and I have not thought about it since (which is the point of a kettle). My sister
says that I should write about larger things. "What larger things?" I asked her. She said that
the sea was large, and that nobody had ever complained of too many posts about the sea. I live
four hours from the sea. The kettle is in the kitchen, and it boils in three minutes and ten
seconds; I have timed it, because Mr. Harris next door said that his was faster. It is not. He
has a newer one, with a light, and he fills it to the top every time, which no kettle
forgives."""
PROSE = " ".join(PROSE.split())


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return Lexicon.load()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (broken_sentences, "." * 15_000 + "x"),
        (broken_sentences, "e.g. " * 6_000),
        (words_in, "語" * 60_000),
        (lambda text: openings(text, 5), "one two three four five six " + ". " * 10_000),
    ],
)
def test_repeated_marks_take_time_in_proportion(call: Callable[[str], object], text: str) -> None:
    assert is_far_from_quadratic(call, text)


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        "He met Mr. Smith on Jan. 3 at the house of J. B. Priestley. They talked, e.g. of dogs.",
        "“Go!” he cried. “And then?” She went... and so did he. It was No. 5.",
        'He said, "It is late (nearly ten)." Nobody (not even I) answered; she had had enough.',
        "King Edward VII. was large. Louis XIV. was not.",
        "« Bonjour », dit-il. „Guten Tag“, sagte sie. »Wirklich?«, fragte er.",
        "「こんにちは。」彼は言った。そして帰った。",
        "A title without an end\n\nA sentence. And one more.\n\n- an item\n- another\n\nThe end.",
        "1. First, do this.\n2) Then do that.",
        "It works :) and that is all (really). See https://example.org/a_(b) for more.",
        "She asked for these:\n\nsalt, pepper, and a good long rest from everybody else in it.",
        '"It goes on," he said, "for a while.\n\n"And then it stops."\n\nSo it did.',
        "The meeting ran from 3.30 to 5.45, i.e. for two hours. It cost 12.50.",
    ],
)
def test_human_text_is_not_called_broken(text: str) -> None:
    assert {*broken_sentences(text)} == {False}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He went. the dog stayed. All was well.", [False, True, False]),
        ("All was well (or was it. He went home. She went too.", [True, False, False]),
        ("Well. It was late), he said. So they left.", [False, True, False]),
        ('Fine. He said "no. She left.\n\nThe end.', [False, True, False, False]),
        ("I saw the the dog. He saw me.", [True, False]),
        ("He went " + "on and " * 40 + "stopped. Good.", [True, False]),
        ("It was one of those days on which all that could go wrong went\n\nSo.", [True, False]),
    ],
)
def test_broken_sentences_are_detected(text: str, expected: list[bool]) -> None:
    # Between two lines: what may be cut out of a longer text has its ends excused.
    assert broken_sentences(f"It is so.\n\n{text}\n\nAnd so on.")[1:-1] == expected


def test_truncated_passages_are_not_called_broken() -> None:
    assert broken_sentences('of it," he said. "I am (as you') == [False]
    assert broken_sentences("which is why. I went") == [False]
    assert broken_sentences('It was. "Yes, (he said. I') == [False, True]


@settings(max_examples=60)
@given(st.text(alphabet="aB .,!?\"'()[]“”\n-1:", max_size=120))
def test_any_text_can_be_judged(text: str) -> None:
    assert len(broken_sentences(text)) <= len(text)


@given(st.lists(st.sampled_from("abc"), max_size=40))
def test_repetition_is_as_counted_by_hand(words: list[str]) -> None:
    runs = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    again = sum(run in runs[:i] for i, run in enumerate(runs))
    assert repetition(" ".join(words)) == (len(runs), again)


def test_a_loop_is_repetition() -> None:
    looped = "I came home and I sat down. " + "It was late and " * 6 + "then it stopped."
    scores = fluency([looped], [PROSE], [PROSE], None)
    assert scores.repeated.samples.value > 0.4 > scores.repeated.held_out.value


def test_invented_words_are_distinguished_from_names_and_numbers(lexicon: Lexicon) -> None:
    text = (
        "I met Zbrowka Quolp near the thrimble, at 10am on the 3rd. Vlimpish said so. "
        "See https://thrimble.example/frood or write to me@thrimble.example. We blunged."
    )
    scores = fluency([text], [PROSE], [PROSE], lexicon)
    assert scores.non_words
    assert scores.unknown_names
    words = len(words_in(text))
    assert words == 19
    assert scores.non_words.samples.value == pytest.approx(2 / words)
    assert scores.unknown_names.samples.value == pytest.approx(2 / words)  # Vlimpish may be a word
    with_training = fluency(
        [text], [PROSE], [PROSE + " It blunged the thrimble's thrimble."], lexicon
    )
    assert with_training.non_words
    assert with_training.non_words.samples.value == 0


def test_where_a_sentence_begins() -> None:
    text = 'One two. "Three" four: (Five) six\n- Seven, eight… Nine'
    begins = [word[0] for word in words_in(text) if begins_sentence(word)]
    assert begins == ["One", "Three", "Five", "Seven", "Nine"]


GERMAN = """\
Es war einmal ein kleines Mädchen, das hatte jedermann lieb, der es nur ansah, am
allerliebsten aber seine Großmutter, die wusste gar nicht, was sie alles dem Kinde geben
sollte."""
POLISH = """\
Dawno, dawno temu, za siedmioma górami i siedmioma rzekami, żył sobie król, który miał trzy
córki, a każda z nich była piękniejsza od poprzedniej."""


@pytest.mark.parametrize("text", [GERMAN, POLISH])
def test_another_language_is_not_called_invented_words(lexicon: Lexicon, text: str) -> None:
    scores = fluency([text], [text], [text], lexicon)
    assert scores.non_words is None
    assert scores.unknown_names is None
    assert "English" in scores.reason
    assert scores.new_words.samples.value == 0


def test_the_lexicon_in_the_package(lexicon: Lexicon) -> None:
    assert fluency([PROSE], [PROSE], [PROSE], lexicon).non_words
    words = "kettle colour color email software didn’t Cat's programming internet prefaces"
    for word in words.split():
        assert lexicon.knows(word), word
    fragments = "thrimble nothe tion othe wating conce befor ory ry oon"
    for word in fragments.split():
        assert not lexicon.knows(word), word
    assert "" not in lexicon.words


def test_a_lexicon_has_the_words_of_texts_and_a_damaged_one_is_one_sentence(
    tmp_path: Path,
) -> None:
    lexicon = Lexicon.of(["Żółw and the Crème brûlée, 2nd edition of it"])
    assert lexicon.words == {"żółw", "and", "the", "crème", "brûlée", "edition", "of", "it"}
    (tmp_path / WORDS_FILE).write_bytes((FOLDER / WORDS_FILE).read_bytes()[:-9])
    for folder in (tmp_path, tmp_path / WORDS_FILE):
        with pytest.raises(OwnwordsError, match="cannot be read"):
            Lexicon.load(folder)


def test_real_text_is_compared_at_the_length_of_the_samples() -> None:
    post = "\n\n".join([PROSE] * 5)
    scores = fluency([" ".join(PROSE.split()[:60])] * 3, [post], [PROSE], None)
    assert scores.passage_words == 60
    assert scores.repeated.samples.of == 3
    assert scores.repeated.held_out.of >= 5
    # The post says everything five times, no stretch of it says anything twice.
    assert scores.repeated.held_out.value < 0.05
    assert scores.broken.held_out.value == 0


def test_empty_input_gives_empty_scores() -> None:
    scores = fluency([], [], [], None)
    assert scores.repeated.samples.of == scores.repeated.held_out.of == 0
    assert scores.broken.excess is None
    assert scores.reason == ""
