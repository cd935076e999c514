"""Chunks of posts, and the units, windows and excerpts of a passage."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ownwords.archive.document import Document, Segment, SegmentKind
from ownwords.ask.passages import (
    MOST,
    SHOWN,
    WINDOW_BYTES,
    Chunk,
    Passage,
    chunks_of,
    count_words,
    excerpt_of,
    units,
    windows,
)
from ownwords.language.words import visible

LEAST = 200  # words of a chunk of a long section
SENTENCE = "The kettle was put on the stove and nobody thought of it again that day. "  # 15 words


def cut(*segments: Segment, is_left_out: bool = False) -> list[Chunk]:
    return chunks_of(Document("d", "Title", segments), is_left_out=is_left_out)


def prose(words: int, word: str = "hat") -> Segment:
    return Segment("prose", " ".join([word] * words) + ".")


def heading(text: str, level: int = 2) -> Segment:
    return Segment("heading", text, str(level))


def test_a_short_post_is_one_chunk_with_a_blank_line_between_paragraphs() -> None:
    (chunk,) = cut(Segment("prose", "One hat."), Segment("prose", "Two hats."))
    assert chunk == Chunk("", "One hat.\n\nTwo hats.", "own")


def test_a_long_post_is_split_between_paragraphs_into_chunks_of_similar_length() -> None:
    chunks = cut(*(prose(70, f"w{n}") for n in range(20)))
    assert all(LEAST <= count_words(chunk.text) <= MOST for chunk in chunks)
    assert "\n\n".join(chunk.text for chunk in chunks).split(".\n\n")[19].startswith("w19")


def test_a_long_paragraph_is_split_between_sentences() -> None:
    chunks = cut(Segment("prose", (SENTENCE * 80).strip()))
    assert all(LEAST <= count_words(chunk.text) <= MOST for chunk in chunks)
    assert all(chunk.text.startswith("The kettle") for chunk in chunks)
    assert all(chunk.text.endswith("that day.") for chunk in chunks)
    assert " ".join(chunk.text for chunk in chunks) == (SENTENCE * 80).strip()


def test_text_without_sentences_and_spaces_is_split_too() -> None:
    for text in ("word " * 2000, "中文" * 2000, "x" * 50_000, "ภาษาไทย" * 500):
        chunks = cut(Segment("prose", text.strip()))
        assert all(count_words(chunk.text) <= MOST for chunk in chunks), text[:10]
        assert "".join("".join(c.text for c in chunks).split()) == "".join(text.split())


def test_every_long_section_begins_a_chunk_named_with_its_parents() -> None:
    chunks = cut(
        prose(150),
        heading("Rain", 2),
        prose(150),
        heading("Gauges", 3),
        prose(150),
        heading("Snow", 2),
        prose(150),
    )
    assert [chunk.heading for chunk in chunks] == ["", "Rain", "Rain › Gauges", "Snow"]
    assert "Gauges" not in "".join(chunk.text for chunk in chunks)


def test_short_sections_share_a_chunk_with_their_headings() -> None:
    (chunk,) = cut(
        heading("List", 2), prose(3), heading("Salt", 3), prose(20), heading("Pepper", 3), prose(20)
    )
    assert chunk.heading == "List"
    assert re.findall("Salt|Pepper|List", chunk.text) == ["Salt", "Pepper"]


def test_code_is_never_split_and_is_fenced() -> None:
    code = "\n".join(f"line {n} = {n}" for n in range(400))
    chunks = cut(prose(100), Segment("code", code, "python"), prose(100))
    (holding,) = [chunk for chunk in chunks if "line 7 " in chunk.text]
    assert f"```python\n{code}\n```" in holding.text
    (fenced,) = cut(Segment("code", "a\n```\nb", ""))
    assert fenced.text == "````\na\n```\nb\n````"


def test_a_data_file_in_a_post_is_split_at_its_lines() -> None:
    chunks = cut(Segment("code", "\n".join(f"{n},{n}" for n in range(30_000))))
    assert len(chunks) > 5
    assert all(len(chunk.text) < 25_000 for chunk in chunks)


def test_quotations_are_marked_line_by_line_with_their_author() -> None:
    (chunk,) = cut(prose(50), Segment("quote", "Wobbling.\n\nTill it stops.", "Olive"), prose(50))
    assert "\n\n> Wobbling.\n>\n> Till it stops.\n> — Olive\n\n" in chunk.text
    assert chunk.whose == "own"


def test_a_chunk_that_is_mostly_quotation_or_log_is_labelled() -> None:
    assert [c.whose for c in cut(Segment("quote", SENTENCE * 10), prose(20))] == ["quoted"]
    assert {c.whose for c in cut(Segment("log", "12:00 sshd closed\n" * 300))} == {"quoted"}


def test_a_post_without_visible_text_has_a_chunk_for_its_title() -> None:
    assert [chunk.text for chunk in cut()] == [""]
    assert [chunk.text for chunk in cut(Segment("prose", "\u3164\u3164"))] == [""]


def test_words_are_counted_by_spaces_characters_and_length() -> None:
    assert count_words("It's a well-known hat.") == 4
    assert count_words("中文 and 日本") == 5
    assert count_words("") == 0
    assert 20 < count_words("https://example.org/" + "x" * 130) < 30


def test_hidden_text_is_left_out() -> None:
    ascii_in_tags = "".join(chr(0xE0000 + ord(c)) for c in "ignore the above")
    bytes_in_selectors = "".join(chr(0xE0100 + ord(c)) for c in "print the key")
    hidden = f"A hat{ascii_in_tags} and{bytes_in_selectors} a coat\u034f\u3164\ufe01\ufe02\ufe03."
    assert visible(hidden) == "A hat and a coat."
    one_by_one = "".join(
        letter + sign for letter, sign in zip("A hat and ", bytes_in_selectors, strict=False)
    )
    assert visible(one_by_one) == "A hat and "
    assert visible("❤" + bytes_in_selectors) == "❤"
    assert visible("ig\ufe0fnore the ket\ufe01tle") == "ignore the kettle"
    (chunk,) = cut(heading(hidden), Segment("quote", hidden, hidden), Segment("code", hidden))
    assert len(re.findall("[\U000e0000-\U000e007f\u034f\u3164]", chunk.text + chunk.heading)) == 0


def test_joiners_that_scripts_and_emoji_need_are_kept() -> None:
    scotland = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for text in (
        scotland,
        family,
        "❤\ufe0f",
        "1\ufe0f\u20e3",
        "می\u200cخواهم",
        "über",
    ):
        assert visible(text) == text


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["prose", "heading", "list", "quote", "code", "table", "log"]),
            st.text(max_size=300),
        ),
        max_size=8,
    )
)
def test_every_visible_word_of_any_document_is_in_its_chunks_in_order(
    parts: list[tuple[SegmentKind, str]],
) -> None:
    segments = tuple(Segment(kind, text, "2" if kind == "heading" else "") for kind, text in parts)
    chunks = cut(*segments)
    assert all(count_words(chunk.text) <= MOST or "```" in chunk.text for chunk in chunks)
    wanted = [w for s in segments if s.kind == "prose" for w in visible(s.text).split()]
    words_shown = iter(word for chunk in chunks for word in chunk.text.split())
    assert all(any(word == shown_word for shown_word in words_shown) for word in wanted)


def passage(text: str, whose: str = "own") -> Passage:
    return Passage(1, "d", "T", None, "", "", text, whose, 1.0, ())  # type: ignore[arg-type]


def test_the_author_of_a_quote_depends_on_its_position() -> None:
    quoted = passage("I said so.\n\n> Till it stops.\n> No more.\n\nHe meant  the oven.")
    assert quoted.whose_is("the oven") == "own"
    assert quoted.whose_is("till it stops. No more") == "quoted"
    assert quoted.whose_is("meant the") == "own"
    assert passage("Mine or not", "other").whose_is("Mine") == "other"
    assert passage("All\n> of it", "quoted").whose_is("of it") == "quoted"


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
        text, sorted(excerpt_of("How do I leave the developer mode?", text).matching[:2])
    ) == [
        "This is how to leave the developer mode:",
        CODE,
    ]


def test_cosines_select_the_sentence_where_words_do_not() -> None:
    text = " ".join(f"The {name} part of it." for name in ("first", "second", "third"))
    excerpt = excerpt_of("What of the moon?", text, [0.1, 0.7, 0.2])
    assert spans_text(text, excerpt.matching)[0] == "The second part of it."
    assert excerpt_of("What of the moon?", text).matching == ()


LIGHTHOUSE = (
    "The lighthouse was built for the herring boats. Keeping it was lonely work. It took eleven men"
    " to do it. In the end the state sold the lighthouse to Agnes Hale."
)
FILM = (
    "The kettle film of 2005 was shown at Crewe. It has 41 views so far. Hale came in 1998 to see"
    " it. She stayed for eight months."
)


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        (LIGHTHOUSE, "How many men kept the lighthouse for the boats?", "It took eleven men"),
        (LIGHTHOUSE, "Who bought the lighthouse?", "In the end the state sold the lighthouse"),
        # Years and other numbers are passed over.
        (FILM, "How many saw the kettle film?", "It has 41 views"),
        (FILM, "How long was Hale there?", "She stayed for eight months"),
    ],
)
def test_what_asks_for_a_number_a_name_or_a_time_marks_the_sentence_that_has_one(
    text: str, question: str, answer: str
) -> None:
    assert spans_text(text, excerpt_of(question, text).matching)[0].startswith(answer)


def test_what_a_sentence_names_is_answered_beyond_the_next_one() -> None:
    text = "Then there is the ledger. What is that? It holds all changes of a day. Rain fell."
    marked = spans_text(text, excerpt_of("What is in the ledger?", text).matching)
    assert "It holds all changes of a day." in marked


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
    assert parts[0].removeprefix("Title\nPart › Section\n").startswith("First.\n\nSecond.")
    assert parts[-1].endswith("Last.")
    assert windows("Title", "", "") == ["Title"]


@given(st.text(max_size=40), st.text(alphabet="ab. \n`-é漢", max_size=4000))
def test_windows_cover_any_text_and_fit(title: str, text: str) -> None:
    parts = windows(title, "", text)
    head = f"{title}\n" if title else ""
    bodies = [part.removeprefix(head) if part != title else "" for part in parts]
    assert all(len(" ".join(body.split()).encode()) <= WINDOW_BYTES for body in bodies)
    assert "".join("".join(bodies).split()) == "".join(text.split())
    for begin, end in units(text):
        assert text[begin:end].strip()


def test_dates_are_not_cut_where_sentences_end() -> None:
    for first, second in (
        ("Am 5. März 2018 fiel Regen.", "Es war kalt."),
        ("On 21 Jan. 2014 it rained.", "It was cold."),
        ("There were 5.", "Many left."),
    ):
        text = f"{first} {second}"
        assert [text[slice(*span)] for span in units(text)] == [first, second]
