"""How passages are split into units and windows, and which of them are shown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.ask.excerpts import best_units, matching_units
from ownwords.ask.sentence_model import SentenceModel
from ownwords.ask.windows import WINDOW_BYTES, blocks, units, windows
from sample_passages import passage
from sentence_folders import folder_in

CODE = "```bash\nbrew developer off\n\nbrew update\n```"
NOTE = (
    "Homebrew kept nagging me. I wondered how to leave the developer mode.\n\n"
    f"It takes one line:\n\n{CODE}\n\n"
    "Other things that I tried:\n- Restarting. It did nothing.\n- Reading the manual.\n"
    "  It is long."
)


def spans_text(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [text[begin:end] for begin, end in spans]


def test_blocks_are_paragraphs_lists_and_whole_code() -> None:
    assert spans_text(NOTE, blocks(NOTE)) == [
        "Homebrew kept nagging me. I wondered how to leave the developer mode.",
        "It takes one line:",
        CODE,
        "Other things that I tried:\n- Restarting. It did nothing.\n- Reading the manual.\n"
        "  It is long.",
    ]


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
    assert spans_text(text, best_units("How do I leave the developer mode?", text)) == [
        "This is how to leave the developer mode:",
        CODE,
    ]


def test_without_a_matching_word_there_are_no_matching_units() -> None:
    assert best_units("What of the moon?", NOTE) == []


def test_vectors_select_units_where_words_do_not() -> None:
    text = "A first one. A second one. A third one."
    assert spans_text(text, best_units("moon", text, 1, [0.1, 0.7, 0.2])) == ["A second one."]


def test_units_of_each_passage_are_scored_with_its_own_vectors(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    model = SentenceModel(folder_in(tmp_path))
    passages = [
        passage(1, "The rain fell. My kettle broke."),
        passage(2, "A bus of the garden. The rain fell. My kettle broke on a bus."),
    ]
    together = matching_units("my kettle broke", passages, model, 1)
    for excerpt in passages:
        assert (
            together[excerpt.id]
            == matching_units("my kettle broke", [excerpt], model, 1)[excerpt.id]
        )
        assert "kettle" in spans_text(excerpt.text, together[excerpt.id])[0]


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
