"""Questions of when, how often and how many: over 200 phrasings, each with its answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from growth import is_far_from_quadratic
from ownwords.ask.dates import Period, _is_mentioned, answer_from_dates, find_period
from ownwords.ask.index import SearchIndex
from ownwords.language.words import language
from small_archives import DATED_POSTS, TODAY, Entry, put


@contextmanager
def indexed(folder: Path, posts: dict[str, Entry]) -> Iterator[SearchIndex]:
    put(folder / "archive.sqlite", posts)
    with SearchIndex(folder / "archive.sqlite") as opened:
        opened.refresh()
        yield opened


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchIndex]:
    with indexed(tmp_path_factory.mktemp("posts"), DATED_POSTS) as opened:
        yield opened


def _phrasings() -> Iterator[tuple[str, str]]:
    sentence = ""
    path = Path(__file__).parents[1] / "date_phrasings.txt"
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("= "):
            sentence = line.removeprefix("= ")
        elif line and not line.startswith("#"):
            yield line, sentence


PHRASINGS = list(_phrasings())
LOGIC = language("en")["logic"].split()  # words between two topics that are not counted


@pytest.mark.parametrize(("question", "sentence"), PHRASINGS, ids=[text for text, _ in PHRASINGS])
def test_every_phrasing_is_answered_correctly(
    index: SearchIndex, question: str, sentence: str
) -> None:
    result = answer_from_dates(index, question, today=TODAY)
    assert result is not None
    assert result.sentence == sentence


@pytest.mark.parametrize(
    ("question", "documents"),
    [
        ("Which is the last post?", ["last"]),
        ("posts from March 2018", ["kettle", "backups"]),
        ("How many times have I written about the Kettle?", ["kettle", "last"]),
    ],
)
def test_the_posts_that_are_counted_are_shown(
    index: SearchIndex, question: str, documents: list[str]
) -> None:
    result = answer_from_dates(index, question, today=TODAY)
    assert result is not None and result.is_complete
    assert [item.document for item in result.passages] == documents
    assert all(item.found_by == ("date",) for item in result.passages)


def test_a_topic_in_a_year_is_left_to_the_model(index: SearchIndex) -> None:
    result = answer_from_dates(index, "What did I say about the kettle in 2018?")
    assert result is not None
    assert result.sentence == "You wrote 1 post in 2018 that mentions “kettle”."
    assert not result.is_complete


def test_a_period_without_the_topic_is_reported(index: SearchIndex) -> None:
    result = answer_from_dates(index, "What did I write last month about the kettle?", today=TODAY)
    assert result is not None and not result.is_complete
    assert result.sentence == (
        "No post during December 2020 mentions “kettle”; there are 2 others, from 5 March 2018 to"
        " 10 November 2020."
    )
    assert [passage.document for passage in result.passages] == ["kettle", "last"]
    result = answer_from_dates(index, "What did I say about a zebra in 2018?")
    assert result is not None and not result.is_complete and not result.passages
    assert result.sentence == "No post in 2018 mentions “zebra”."


def test_undated_posts_are_never_denied(tmp_path: Path) -> None:
    posts = {f"p{n}": Entry(f"Note {n}", ("On tea.",)) for n in range(3)}
    with indexed(tmp_path, posts) as index:
        for question, sentence in (
            (
                "When did I first write about tea?",
                "You wrote 3 posts that mention “tea”, none of which has a date.",
            ),
            ("What is my oldest post?", "You wrote 3 posts, none of which has a date."),
            ("How many posts are there?", "You wrote 3 posts, none of which has a date."),
            (
                "How many posts did I write in 2020?",
                "You wrote no post in 2020; there are 3 others, none of which has a date.",
            ),
            (
                "What did I write last month about tea?",
                "No post during December 2020 mentions “tea”; there are 3 others, none of which has"
                " a date.",
            ),
            (
                "How many posts mention tea in 2020?",
                "No post in 2020 mentions “tea”; there are 3 others, none of which has a date.",
            ),
        ):
            result = answer_from_dates(index, question, today=TODAY)
            assert result is not None
            assert result.sentence == sentence


def test_file_names_and_addresses_are_not_mentions(tmp_path: Path) -> None:
    texts = {
        "a": "See docker-compose.yml and https://docker.example/start for it.",
        "b": "I like Docker. It starts.",
        "c": "In `docker.` and elsewhere, e.g. Docker.",
    }
    posts = {name: Entry(name, (text,), "2020-01-01") for name, text in texts.items()}
    with indexed(tmp_path, posts) as index:
        result = answer_from_dates(index, "How many posts mention Docker?")
    assert result is not None
    assert {passage.document for passage in result.passages} == {"b", "c"}


def test_words_that_weigh_topics_are_counted_only_in_quotation_marks(tmp_path: Path) -> None:
    posts = {name: Entry(name, (f"{name} fell.",)) for name in ("Rain or snow", "Rain", "Snow")}
    with indexed(tmp_path, posts) as index:
        assert answer_from_dates(index, "How many posts mention rain or snow?") is None
        result = answer_from_dates(index, "How many posts mention “rain or snow”?")
    assert result is not None and result.sentence.startswith("You wrote 1 post that mentions")


@pytest.mark.parametrize(
    "question",
    [
        "",
        "When did I buy the kettle?",
        "How often does it rain?",
        "What was the first car I drove?",
        "Which posts are about the kettle?",
        "When did I write to my sister?",
        "When did I write about a zebra?",
        "How many posts does a fence need?",
        "How many posts did I write on 31 February 2018?",
        'How many posts mention "rain" or "snow"?',
        *(
            f"How many posts mention rain {word} the kettle?"
            for word in language("en")["logic"].split()
        ),
        "How many posts mention the kettle in the title?",
        "How many posts mention rain in 2018 and 2020?",
        "How many posts did I write in 2018 and 2020?",
        "How many posts mention the kettle other than in 2018?",
        "How many posts did I write since 2018 but before 2020?",
        "Posts since 2018 about the kettle before 2020",
        "How many posts mention the kettle in March?",
        "How many posts did I write between March and May?",
        "How many posts did I write on Mondays?",
        "How many posts did I write in the last 0 weeks?",
        "How many posts did I write and delete?",
        "How many words did I write?",
        "How many posts have I written about the kettle since I moved?",
        "When did I first mention rain or the kettle?",
        "Wie viele Beiträge erwähnen rain aber nicht snow?",
        "Wie viele Beiträge erwähnen rain oder kettle?",
        "Wie viele Beiträge erwähnen rain ohne kettle?",
        "Wie viele Beiträge erwähnen kettle nicht?",
        "Wie viele Beiträge habe ich am 31. Februar 2018 geschrieben?",
        "Wie viele Beiträge habe ich 2018 und 2020 geschrieben?",
        "In what year did I buy the kettle?",
        "When did I write " + "x " * 400,
    ],
)
def test_other_questions_are_left_to_the_search(index: SearchIndex, question: str) -> None:
    assert answer_from_dates(index, question) is None


@settings(max_examples=40)
@given(
    st.sampled_from(["How often did I mention {}?", "When did I first write about {} in 2018?"]),
    st.text(max_size=60),
)
def test_questions_about_any_topic_are_answered(
    index: SearchIndex, question: str, topic: str
) -> None:
    answer_from_dates(index, question.format(topic))


@pytest.mark.parametrize(
    ("question", "start", "end", "phrase"),
    [
        ("in Sept. 2014", "2014-09-01", "2014-10-01", "during September 2014"),
        ("during 2014-02", "2014-02-01", "2014-03-01", "during February 2014"),
        ("from 2012 to 2010", "2010-01-01", "2013-01-01", "from 2010 to 2012"),
        ("before March 2010", "0000-01-01", "2010-03-01", "before March 2010"),
        ("until 2010", "0000-01-01", "2011-01-01", "until 2010"),
        ("after 2010", "2011-01-01", "9999-12-31", "after 2010"),
        ("this year", "2021-01-01", "2022-01-01", "in 2021"),
        ("last month", "2020-12-01", "2021-01-01", "during December 2020"),
        ("last week", "2021-01-04", "2021-01-11", "in the week of 4 January 2021"),
        ("this week", "2021-01-11", "2021-01-18", "in the week of 11 January 2021"),
        ("in the past month", "2020-12-16", "2021-01-16", "since 16 December 2020"),
        ("in the last ten days", "2021-01-05", "2021-01-16", "in the last 10 days"),
        ("on March 3rd, 2019", "2019-03-03", "2019-03-04", "on 3 March 2019"),
        ("on 2020-02-29", "2020-02-29", "2020-03-01", "on 29 February 2020"),
    ],
)
def test_periods(question: str, start: str, end: str, phrase: str) -> None:
    assert find_period(question, TODAY)[0] == Period(start, end, phrase)


@given(st.integers(1, 999), st.sampled_from(["day", "week", "month", "year"]), st.dates())
def test_any_relative_date_can_be_asked_about(count: int, unit: str, today: date) -> None:
    if today.year > 1000 and today < date.max:
        period, _ = find_period(f"in the last {count} {unit}s", today)
        assert period is not None
        assert period.start <= today.isoformat()


def test_questions_without_a_time_are_unchanged() -> None:
    for question in ("hats in March", "page 2014", "the 94", "in 20141", "mayor of 3000"):
        assert find_period(question, TODAY) == (None, question)
    assert (
        find_period("What did I write in 2014 about hats?", TODAY)[1]
        == "What did I write about hats?"
    )


def test_mentions_in_a_script_without_spaces_are_found_in_proportion() -> None:
    assert is_far_from_quadratic(_is_mentioned, "語" * 40_000 + "\x01")
