"""Notes by rule keep what must not be lost, and are the same whenever they are made."""

import random

import pytest

from ownwords.archive.corpus import TrainingText
from ownwords.drafts import notes
from ownwords.language.words import dictionary_form

PARAGRAPH = (
    "We counted 14 umbrellas in the lost property office at Leeds station. The driver didn't"
    " apologise. “Nobody collects them,” said Mrs Hale, who had been hoping for £2.50 each."
    " See https://example.org/lost?page=2 for the list."
)


@pytest.mark.parametrize("seed", range(12))
def test_notes_keep_numbers_names_links_quotations_and_negations(seed: int) -> None:
    lines = notes.notes_of(PARAGRAPH, random.Random(seed))
    joined = "\n".join(lines)
    for kept in ("14", "£2.50", "https://example.org/lost?page=2", "“Nobody collects them,”"):
        assert kept in joined
    assert "leeds" in joined.lower() and "hale" in joined.lower()
    assert "driver not apologise" in joined.replace(",", "")
    assert len(joined) < len(PARAGRAPH)


@pytest.mark.parametrize("seed", range(12))
def test_notes_keep_number_words_with_their_bounds_and_what_they_count(seed: int) -> None:
    sentence = (
        "Before 6 there were twenty-one cats, up from three to five litres or 5 of the 9 per day,"
        " in their twenties."
    )
    (line,) = notes.notes_of(sentence, random.Random(seed))
    for kept in ("before 6", "twenty-one cat", "up", "three to five lit", "9 per"):
        assert kept in line
    assert not line.endswith("twenty")


@pytest.mark.parametrize("seed", range(12))
def test_notes_keep_on_what_condition_how_sure_and_how_many(seed: int) -> None:
    sentence = "If every tram were late, you couldn't wait because I'll have left more than once."
    (line,) = notes.notes_of(sentence, random.Random(seed))
    words = [word.strip(",") for word in line.lower().split()]
    kept = ["if", "every", "could", "not", "because", "will", "more", "than"]
    assert [word for word in words if word in kept] == kept


def test_a_quotation_stays_as_it_is_where_its_words_would_be_written_out() -> None:
    (line,) = notes.notes_of("“I’ll ask, we won’t wait,” she said.", random.Random(1))
    assert "“I’ll ask, we won’t wait,”" in line


@pytest.mark.parametrize(
    ("form", "base"),
    [
        ("kept", "keep"), ("running", "run"), ("hoping", "hope"), ("stories", "story"),
        ("boxes", "box"), ("misses", "miss"), ("tennis", "tennis"), ("worried", "worry"),
        ("called", "call"), ("changed", "change"), ("added", "add"), ("wasted", "waste"),
        ("searches", "search"), ("bringing", "bring"), ("this", "this"), ("nothing", "nothing"),
    ],
)  # fmt: skip
def test_dictionary_forms_are_words(form: str, base: str) -> None:
    assert dictionary_form(form) == base


def test_each_paragraph_of_prose_gives_the_same_pair_each_time() -> None:
    text = TrainingText("a", f"Lost\n\n{PARAGRAPH}\n\nIn short:\n\n{PARAGRAPH}", "Lost")
    first, second = notes.pairs(text)
    assert [first, second] == list(notes.pairs(text))
    assert first.text == second.text == PARAGRAPH
    assert all(pair.prompt.endswith("Text:\n") and "14" in pair.prompt for pair in (first, second))
