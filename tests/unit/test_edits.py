"""A light rewrite changes forms to the author's, nothing else, and can be undone one by one."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from growth import is_far_from_quadratic
from ownwords.core.errors import OwnwordsError
from ownwords.drafts.rewriting import Habits, applied, rewrite

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


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        ("In order to see, we came prior to noon.", "In order to see, we came before noon."),
        ("Work commenced.", "Work started."),  # the author has "started" more often than "began"
        ("A majority of the boats left.", "Most of the boats left."),
        ("It is important to note that the boat left.", "The boat left."),
        ("And please note that boats left.", "And boats left."),
        ("We utilized it.", "We utilized it."),  # the author does not have "used" either
    ],
)
def test_a_phrase_that_the_author_never_has_becomes_the_plain_words_that_they_have(
    draft: str, expected: str
) -> None:
    own = "We began in order to see the boats before most of them started, and they started. "
    habits = Habits([own] * 700)
    assert str(rewrite(draft, habits)) == expected
    assert all("never in your 11,200 words" in edit.because for edit in habits.edits(draft))
    assert not Habits([own] * 3).edits(draft)  # too little to say "never"


@pytest.mark.parametrize(
    ("own", "draft", "expected"),
    [
        # What counts is the same use: "about" before a number.
        ("A game about fear, about 1984.", "Approximately 40 came.", "Approximately 40 came."),
        ("About 40 came.", "Approximately 50, roughly made.", "About 50, roughly made."),
        ("Roughly 40 came.", "A story about two boys.", "A story about two boys."),
        ("I can't go.", "He who cannot come; as it is.", "He who can't come; as it is."),
        # "It's been" is "it has been", and the end of a clause has no short form.
        ("It is late.", "It's been late, and it's cold.", "It's been late, and it is cold."),
        (
            "It's late.",
            "I know what it is now, and it is late.",
            "I know what it is now, and it's late.",
        ),
        (
            "It's late.",
            "The code underneath it is old, most of it is fine, and it is mine.",
            "The code underneath it is old, most of it is fine, and it's mine.",
        ),
        # A name keeps its spelling, and so do words with a slash.
        (
            "My color, and labor.",
            "Labour wins. The Labour Party saw labour in colour/shape.",
            "Labor wins. The Labour Party saw labor in colour/shape.",
        ),
        ("The Labour Party met.", "It is labor.", "It is labor."),
        ("I saw 7 boats.", "I saw Seven Sisters.", "I saw Seven Sisters."),
        (
            "I don't go.",
            "He said, “Do not go there,” and left.\n\n- **Note** Do not go.\n\nStep 1) Do not go.",
            "He said, “Don't go there,” and left.\n\n- **Note** Don't go.\n\nStep 1) Don't go.",
        ),
        (
            "We saw two boats.",
            "I saw chapter 2 boats and 2 cats.",
            "I saw chapter 2 boats and two cats.",
        ),
    ],
)
def test_a_form_is_a_habit_where_it_means_the_same(own: str, draft: str, expected: str) -> None:
    assert str(rewrite(draft, Habits([own] * 3))) == expected


def test_a_form_is_a_habit_from_the_third_time_on() -> None:
    assert [len(Habits(["It's late."] * times).edits("It is late.")) for times in (2, 3)] == [0, 1]


def test_a_light_rewrite_loads_neither_bases_nor_what_compares_posts() -> None:
    code = (
        "import sys; import ownwords.drafts.rewriting;"
        "sys.exit(any(f'ownwords.{x}' in sys.modules for x in ('base', 'archive.selection')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_empty_draft_is_refused() -> None:
    with pytest.raises(OwnwordsError, match="the draft is empty"):
        rewrite(" \n", Habits([]))


def test_without_habits_nothing_changes() -> None:
    assert str(rewrite(DRAFT, Habits([]))) == DRAFT


WORDS = ["do not know", "it is", "color", "tea, milk, and sugar", "3 boats", "’s", "—", "\n\n", "`"]


@given(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join))
def test_any_text_has_edits_that_do_not_overlap(text: str) -> None:
    text = f"I do not know. {text}"
    edits = HABITS.edits(text)
    assert edits
    assert all(text[edit.start : edit.end] == edit.before for edit in edits)
    ends = [0, *(edit.end for edit in edits)]
    assert all(edit.start >= end for edit, end in zip(edits, ends, strict=False))
    assert str(rewrite(text, HABITS)) == applied(text, edits)


# What stands between « and » stays byte for byte.
NO_PROSE = [
    "«```\nprint('do not', it is 3 boats)\n```»",
    '«~~~ js\n"do not" it is\n~~~»',
    '- A list\n«  ```\n  it is "so"\n\n  it is\n  ```»',
    '1. One\n   - It is\n\n«         it is = "do not"»',
    '«    it is "indented"»',
    '«\tit is "indented"»',
    "It «`is it is`» and «``do ` not it is``» or «`it\nis it is`».",
    "He «<a href=\"/color\" title='it is > it is'>»saw it«</a>».",
    'An «<img src="3 boats.png" alt="it is">» and «<code>it is "so"</code>» «<kbd>it is</kbd>».',
    '«<div class="color">»\nIt is late.\n«</div>»',
    '«<pre>\nit is\n\n"do not" it is\n</pre>»',
    '«<figure><pre><code>it is\n\nit is "so"\n</code></pre></figure>»',
    "«<!-- it is\n\nit is -->»",
    "A [link](«/b \"it is the color\"») and ![«it is»](«y.png 'it is'»).",
    'A [link][«do not»] and «[do not][]» and «[do not]».\n\n«[do not]: /b "it is"»',
    "«https://example.org/color-it's», «a.org/color it» and «color.css» and «#color» «@color».",
    '«{{< figure src="a.png" caption="it is" >}}»',
    '«{{< highlight go >}}\nit is\n\nit is "so"\n{{< /highlight >}}»',
    "«{% raw %}\n\nit is {{ it is }}\n\n{% endraw %}»",
    'It was «{% link "it is" %}» and «{{ it is }}» and «[[do not|it is]]» and «![[color.png]]».',
    '# A title «{#it-is}»\n«{: .it-is title="it is"}»',
    "A formula «$$it is$$» and «\\(it is\\)» and «%%it is%%».",
    "«> It is quoted.\n> it is»",
    "«| it is | color |\n|---|---|\n| it is | 3 boats |»",
    "Text[«^it is»]\n\n«* * *»",
    "- «- » it came\n  «- » it went",
    'It is^[«it is "so"»] so«\\"».',
    'A [link](«/a_(b) "it (is) so"») and [link](«<a b> (it is)») and [link](«it is»).',
    "![«the [big] color is it»](«it is.png 'it (is)'») and [![«it is»](«a»)](«/b \"it is\"»).",
    'It <y, z> is «<br title="it is">» and <b it is.',
    '«<p @click="it is"id=a>»It is.«</p><b\nit is»',
    "\x0c\t\x85It is late.\n\n- \xa0\n  It is late.\n\n\u2028\nIt is so.",
]
UNCLOSED = ["", "«```\nit is not closed»", "«<pre>it is\n\nit is»", "It <b>«<code>it is\n\nit is»"]
FRONT = ["", '«---\ntitle: "it is"\ncolor: it is\n---»', '«+++\ntitle = "it is"\n+++»']
QUOTED = Habits([f"“{OWN}” She said “so”—and left. She didn’t. It’s late—for us."] * 3)


@settings(max_examples=60)
@given(
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(FRONT),
    st.lists(st.sampled_from(NO_PROSE), max_size=5),
    st.sampled_from(UNCLOSED),
)
def test_what_is_not_prose_stays_byte_for_byte(
    newline: str, front: str, parts: list[str], unclosed: str
) -> None:
    prose = '\n\nShe said "so" - it is late, and I do not see 3 boats.\n\n'
    marked = "".join([front, prose, *(part + prose for part in parts), unclosed])
    pieces = re.split("[«»]", marked.replace("\n", newline))  # every second one stays
    draft, ends = "".join(pieces), list(accumulate(map(len, pieces)))
    spans = list(zip(ends[::2], ends[1::2], strict=False))
    edits = QUOTED.edits(draft)
    assert len(edits) >= 5 * (1 + len(parts))
    for edit in edits:
        assert draft[edit.start : edit.end] == edit.before
        assert not any(begin < edit.end and edit.start < end for begin, end in spans), edit


def test_prose_beside_all_else_is_rewritten() -> None:
    draft = "It is here [as it is](/a).\n\n- It is a list, too.\n\n# It is a title"
    assert str(rewrite(draft, HABITS)) == draft.replace("It is", "It's")
    assert str(rewrite("\tIt is late.\n\tIt is so.", HABITS)).count("It's") == 2


@pytest.mark.parametrize(
    "piece", ["[", "`", "{{<", "<!--", "a.b/", "“", "[a](<(>", "![[a]", "<a b='\" c=\"' ", "\xa0"]
)
def test_no_draft_takes_the_square_of_its_length(piece: str) -> None:
    assert is_far_from_quadratic(HABITS.edits, f"It is. {piece * (20_000 // len(piece))} It is.")


class FakeEndpoint:
    """Drops the first comma of each sentence."""

    problem = ""

    def rewritten(self, own: Sequence[str]) -> Iterator[str]:
        return (sentence.replace(",", "", 1) for sentence in own)


def test_a_model_rewrites_prose_and_an_edited_sentence_has_changed() -> None:
    kept = "However, we saw the boats near it."
    for more in (
        "They ran TCP/IP and/or (if it was there) UDP.",
        "They ran ~5 boats from there to the pier.",
    ):
        assert len(rewrite(f"{kept} {more}", HABITS, FakeEndpoint()).sentences) == 2
    draft = f"```\n{kept}\n```\n\n{kept} It is not so late here. We went home then.\n\n> {kept}"
    found = rewrite(draft, HABITS, FakeEndpoint())
    assert str(found) == draft.replace(
        f"{kept} It is not", "However we saw the boats near it. It's not"
    )
    assert [draft[each.start :].startswith(each.before) for each in found.sentences] == [True] * 3
    assert found.unchanged == found.to_dict()["unchanged"] == 1
