"""Over 200 phrasings of when, how often and how many, each with its answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ownwords.ask.date_questions import answer_from_dates
from ownwords.ask.index import SearchIndex
from small_archives import DATED_POSTS, TODAY, put


def _phrasings() -> Iterator[tuple[str, str]]:
    sentence = ""
    path = Path(__file__).parents[1] / "date_phrasings.txt"
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("= "):
            sentence = line.removeprefix("= ")
        elif line and not line.startswith("#"):
            yield line, sentence


PHRASINGS = list(_phrasings())


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchIndex]:
    path = tmp_path_factory.mktemp("posts") / "archive.sqlite"
    put(path, DATED_POSTS)
    with SearchIndex(path) as opened:
        opened.refresh()
        yield opened


def test_there_are_many_phrasings() -> None:
    assert len(PHRASINGS) == len({question.casefold() for question, _ in PHRASINGS}) > 200


@pytest.mark.parametrize(("question", "sentence"), PHRASINGS, ids=[text for text, _ in PHRASINGS])
def test_every_phrasing_is_answered_correctly(
    index: SearchIndex, question: str, sentence: str
) -> None:
    result = answer_from_dates(index, question, today=TODAY)
    assert result is not None
    assert result.sentence == sentence
