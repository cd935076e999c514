"""What the packaged reader has learned; OWNWORDS_MINILM names a folder of all-MiniLM-L6-v2."""

import os
from pathlib import Path

import pytest

from ownwords.ask.encoder import KNOWN, SentenceModel
from ownwords.ask.passages import units
from ownwords.ask.reader import Reader, Reading, Window

FOLDER = Path(os.environ.get("OWNWORDS_MINILM", "none"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="OWNWORDS_MINILM names no folder")

NEON = (
    "I took a class in neon last spring. We heated glass tubes over a ribbon burner and bent them"
    " before they cooled. My first letter broke twice. The teacher has made signs for forty years."
)
BREAD = (
    "The starter lives in the fridge. I feed it on Fridays with rye flour and water. In summer it"
    " needs half the time."
)


@pytest.fixture(scope="module")
def reader() -> Reader:
    loaded = SentenceModel(FOLDER, KNOWN[0]).reader
    assert loaded is not None
    return loaded


def read(reader: Reader, question: str) -> tuple[Reading, Reading]:
    windows = [Window("", text, tuple(units(text))) for text in (NEON, BREAD)]
    neon, bread = reader.read(question, windows)
    return neon, bread


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("How is the glass for glowing letters shaped?", 1),
        ("How long has the instructor been doing this?", 3),
    ],
)
def test_a_passage_in_other_words_answers_and_the_right_sentence_is_chosen(
    reader: Reader, question: str, sentence: int
) -> None:
    neon, bread = read(reader, question)
    assert neon.answers > bread.answers
    assert neon.sentences.index(max(neon.sentences)) == sentence


def test_a_passage_about_the_subject_that_does_not_say_it_answers_less(reader: Reader) -> None:
    said, _ = read(reader, "When did I take a class in neon?")
    missing, _ = read(reader, "How much did the class in neon cost?")
    assert said.answers > missing.answers
