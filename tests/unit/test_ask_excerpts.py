"""How passages are split into units and windows, and which of them are shown."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ownwords.ask.passages import (
    SHOWN,
    WINDOW_BYTES,
    excerpt_of,
    units,
    window_spans,
    windows,
)

CODE = "```bash\nbrew developer off\n\nbrew update\n```"
NOTE = (
    "Homebrew kept nagging me. I wondered how to leave the developer mode.\n\n"
    f"It takes one line:\n\n{CODE}\n\n"
    "Other things that I tried:\n- Restarting. It did nothing.\n- Reading the manual.\n"
    "  It is long."
)


def spans_text(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    return [text[begin:end] for begin, end in spans]


def test_units_are_sentences_items_and_whole_code() -> None:
    assert spans_text(NOTE, units(NOTE)) == [
        "Homebrew kept nagging me.",
        "I wondered how to leave the developer mode.",
        "It takes one line:",
        CODE,
        "Other things that I tried:",
        "- Restarting. It did nothing.",
        "- Reading the manual.",
        "It is long.",
    ]


def test_code_after_the_words_of_the_question_is_shown() -> None:
    text = f"Some days are long. This is how to leave the developer mode:\n\n{CODE}\n\nThe end."
    assert spans_text(
        text, sorted(excerpt_of("How do I leave the developer mode?", text).matching)
    ) == [
        "This is how to leave the developer mode:",
        CODE,
    ]


def test_vectors_select_the_window_where_words_do_not() -> None:
    parts = [f"{name} part. {'It says little of it. ' * 20}".strip() for name in ("One", "Two")]
    text = "\n\n".join(parts)
    assert len(window_spans(text)) == len(parts)
    excerpt = excerpt_of("What of the moon?", text, [0.1, 0.7])
    assert "Two part." in text[slice(*excerpt.span)]
    assert spans_text(text, excerpt.matching)[0] == "Two part."
    assert excerpt_of("What of the moon?", text, [0.7, 0.1]).span[0] == 0
    # Cosines of another number of windows are of another text.
    assert excerpt_of("What of the moon?", text, [0.1, 0.7, 0.9]).matching == ()


@given(st.text(alphabet="ab \n.-`é日", max_size=1500))
def test_each_window_has_a_span_that_begins_after_the_one_before_ends(text: str) -> None:
    spans = window_spans(text)
    if spans:
        assert len(windows("", "", text)) == len(spans)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_an_excerpt_shows_what_answers_even_where_the_first_match_stands_far_above() -> None:
    filler = "Then nothing at all went well for the rest of that long and tedious afternoon. " * 8
    answer = "In the end the kettle worked: I had to replace the fuse in the plug of the kettle."
    text = f"My kettle broke. {filler}{answer} {filler}"
    begin, end = excerpt_of("How did the kettle work in the end?", text).span
    assert answer in text[begin:end]
    assert end - begin <= SHOWN
    assert "My kettle broke" not in text[begin:end]


def test_an_excerpt_is_the_beginning_where_nothing_matches_and_whole_where_it_is_short() -> None:
    text = "One is here. " * 100
    begin, end = excerpt_of("What of the moon?", text).span
    assert begin == 0
    assert end <= SHOWN
    assert excerpt_of("What of the moon?", "It shone.").span == (0, 9)
    assert excerpt_of("What of the moon?", "").span == (0, 0)
    long = "moon " * 200
    assert excerpt_of("What of the moon?", long).span == (0, len(long.rstrip()))


def test_a_window_holds_whole_blocks_under_title_and_heading() -> None:
    long = "One two three. " * 60
    parts = windows("Title", "Part › Section", f"First.\n\nSecond.\n\n{long}\n\nLast.")
    assert all(text.startswith("Title\nPart › Section\n") for text in parts)
    assert parts[0].removeprefix("Title\nPart › Section\n").startswith("First.\nSecond.")
    assert parts[-1].endswith("Last.")
    assert windows("Title", "", "") == ["Title"]


@given(st.text(max_size=40), st.text(alphabet="ab. \n`-é漢", max_size=4000))
def test_windows_cover_any_text_and_fit(title: str, text: str) -> None:
    parts = windows(title, "", text)
    head = f"{title}\n" if title else ""
    bodies = [part.removeprefix(head) if part != title else "" for part in parts]
    assert all(len(body.encode()) <= WINDOW_BYTES for body in bodies)
    assert "".join("".join(bodies).split()) == "".join(text.split())
    for begin, end in units(text):
        assert text[begin:end].strip()
