"""A light rewrite changes forms to the author's, nothing else, and can be undone one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.core.errors import OwnwordsError
from ownwords.drafts.edits import Habits, applied, says_the_same, variants
from ownwords.drafts.rewriting import rewrite

OWN = (
    "I don't mind. It's grey, and I didn't ask. We have tea, milk and sugar. It's fine. It's late."
    " We had three cats, two dogs and a bird. He saw four boats. It isn't the colour I want; the"
    " colour is grey."
)
HABITS = Habits([OWN] * 3)
DRAFT = (
    "I do not know what it is. It is raining, cold, and dull: my favorite color. I saw 3 boats."
    " See `do not, cold, and dull` at https://example.org/color.\n\n> It is raining, he said."
)
LIGHT = (
    "I don't know what it is. It's raining, cold and dull: my favourite colour. I saw three boats."
    " See `do not, cold, and dull` at https://example.org/color.\n\n> It is raining, he said."
)


def test_forms_become_the_authors_but_not_in_code_links_and_quotations() -> None:
    assert str(rewrite(DRAFT, HABITS)) == LIGHT
    assert not HABITS.edits(OWN)


def test_each_edit_can_be_undone_alone() -> None:
    light = rewrite(DRAFT, HABITS)
    assert "do not know" in str(light.without([1])) and "favourite colour" in str(
        light.without([1])
    )
    assert str(light.without(range(1, len(light.edits) + 1))) == DRAFT
    for each in light.to_dict()["edits"]:
        assert DRAFT[each["start"] :].startswith(each["before"]) and each["because"]


def test_a_sentence_longer_than_the_authors_ends_where_another_begins() -> None:
    long = " ".join(["rain"] * 20) + " fell, and we went home " + " ".join(["by bus"] * 8) + "."
    assert " fell. And we went home" in str(rewrite(long, HABITS))


def test_a_phrase_that_the_author_never_has_becomes_what_says_the_same() -> None:
    draft = "In order to see, we came prior to noon."
    habits = Habits(["We went there in order to see the boats. "] * 1200)
    assert str(rewrite(draft, habits)) == "In order to see, we came before noon."
    assert not Habits(["We went there."]).edits(draft)  # too little to say "never"


def test_an_empty_draft_is_refused() -> None:
    with pytest.raises(OwnwordsError, match="the draft is empty"):
        rewrite(" \n", Habits([]))


def test_without_habits_nothing_changes() -> None:
    assert str(rewrite(DRAFT, Habits([]))) == DRAFT


@given(st.text(alphabet="do not it's 3,; and—'\"“”\n.`>"))
def test_any_text_has_edits_that_do_not_overlap(text: str) -> None:
    edits = HABITS.edits(text)
    assert all(text[edit.start : edit.end] == edit.before for edit in edits)
    starts = [0, *(edit.end for edit in edits)]
    assert all(edit.start >= start for edit, start in zip(edits, starts, strict=False))
    applied(text, edits)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Copper does not rust.", "Copper is not rust."),
        ("Copper does not rust, iron does.", "Copper does rust, iron does not."),
        ("The dog bit the man.", "The man bit the dog."),
        ("The dog that bit the man ran.", "The dog bit the man that ran."),
        ("I do not know when it left.", "I did not know when it had left."),
        ("We saw Hale at 9.", "We saw Hall at 9."),
        ("We saw Hale at 9.", "We saw Hale at 9.30."),
        ("It is in May.", "It is in may."),
        ("It costs ~5 pounds.", "It costs 5 pounds."),
        ("Call stop() first.", "Call stop first."),
        ("It rains.", "It rains?"),
        ("A few came.", "Few came."),
        ("I met a king.", "I met the king."),
        ("It is -5 degrees.", "It is 5 degrees."),
        ("See https://example.org/color.", "See https://example.org/colour."),
        ('He said "I do not know".', 'He said "I don\'t know".'),
        ("She is a “friend”.", "She is a friend."),
        ("No, cats can swim.", "No cats can swim."),
        ("It rains.", ""),  # a model that wrote nothing
    ],
)
def test_what_changes_more_than_the_manner_does_not_say_the_same(one: str, other: str) -> None:
    assert not says_the_same(one, other) and not says_the_same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I do not know that he’s here.", "I don't know he is here."),
        ("However, it will rain (on Monday).", "However it'll rain, on Monday."),
        ("Users of the two boats can't swim.", "The users of 2 boats cannot swim."),
        ('He said "no" - twice.', "He said “no”, twice."),
        ("My favorite color, which fades.", "My favourite colour - that fades."),
    ],
)
def test_marks_contractions_and_spelling_are_manner(one: str, other: str) -> None:
    assert says_the_same(one, other)


def test_variants_say_the_same() -> None:
    sentence = "My grey dog didn't see five cats."
    found = set(variants(sentence)) - {sentence}
    assert found == {
        "My grey dog did not see five cats.",
        "My grey dog didn't see 5 cats.",
        "My gray dog didn't see five cats.",
    }
    assert all(says_the_same(sentence, each) for each in found)
