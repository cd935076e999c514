"""A light rewrite changes forms to the author's, nothing else, and can be undone one by one."""

from hypothesis import given
from hypothesis import strategies as st

from ownwords.drafts.edits import Habits, applied
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


def test_without_habits_nothing_changes() -> None:
    assert str(rewrite(DRAFT, Habits([]))) == DRAFT


@given(st.text(alphabet="do not it's 3,; and—'\"“”\n.`>"))
def test_any_text_has_edits_that_do_not_overlap(text: str) -> None:
    edits = HABITS.edits(text)
    assert all(text[edit.start : edit.end] == edit.before for edit in edits)
    starts = [0, *(edit.end for edit in edits)]
    assert all(edit.start >= start for edit, start in zip(edits, starts, strict=False))
    applied(text, edits)
