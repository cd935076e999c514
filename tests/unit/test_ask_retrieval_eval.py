"""Retrieval evaluation: which questions an archive gives, and figures computed by hand."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.ask import eval_questions
from ownwords.ask.eval_questions import (
    EvalQuestion,
    EvalQuestions,
    eval_questions_of,
    shares_a_run,
    their_topics,
)
from ownwords.ask.index import SearchIndex
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.retrieval_eval import RetrievalReport, evaluate_retrieval, gain, mean, reciprocal
from ownwords.ask.search import ArchiveSearcher
from ownwords.core.progress import Event, Progress

POSTS = {
    "kettle": (
        "The kettle",
        "A short account of how it came to leak and what I did about that.",
        "Limescale is what broke it.",
    ),
    "bus": (
        "Number nine",
        "",
        "Waiting for it in the rain, I thought of [the limescale](kettle.md) again, and of"
        " [the first frost of the year](garden.md). I wrote about buses [before](garden.md).",
    ),
    "garden": (
        "Leeks",
        "Leeks: a note",
        "A frost came early. See [the limescale](kettle.md), [itself](garden.md), and"
        " [https://example.org/x](bus.md). It was as I wrote [before](kettle.md).",
    ),
}


# Of a word that more than a third of the posts have nobody can say which is meant.
POSTS |= {f"day-{n}": (f"Day {n} of it", "", f"Nothing came, {n} times.") for n in range(6)}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive_folder = tmp_path_factory.mktemp("judged")
    folder = archive_folder / "blog"
    folder.mkdir()
    for name, (title, summary, body) in POSTS.items():
        head = f'---\ntitle: "{title}"\ndescription: "{summary}"\ndate: 2020-01-02\n---\n\n'
        (folder / f"{name}.md").write_text(head + body + "\n", encoding="utf-8")
    look([folder], workspace=archive_folder / "blog.ownwords")
    return archive_folder / "blog.ownwords" / "archive.sqlite"


@pytest.fixture(scope="module")
def questions(archive: Path) -> EvalQuestions:
    with Archive(archive) as store:
        return eval_questions_of(store, [document.id for document in store.headers()])


def named(asked: EvalQuestions, name: str) -> str:
    return next(id_ for question in asked.questions for id_ in question.answers if name in id_)


def test_link_texts_become_questions_for_their_target(questions: EvalQuestions) -> None:
    links = {question.text: question for question in questions.of("links")}
    assert set(links) == {"the limescale", "the first frost of the year"}
    limescale = links["the limescale"]
    assert limescale.answers == {named(questions, "kettle")}
    # It stands in two posts, and where it stands does not count in either.
    assert {source for source, _ in limescale.apart} == {
        named(questions, "bus"),
        named(questions, "garden"),
    }
    assert not limescale.counts(named(questions, "bus"), "I thought of the Limescale, again")
    assert limescale.counts(named(questions, "bus"), "Waiting for it in the rain")
    assert limescale.counts(named(questions, "kettle"), "of the limescale")


def test_ambiguous_link_texts_are_not_used_as_questions(
    questions: EvalQuestions,
) -> None:
    # "before" leads to two posts, an address is no question, and a post may link to itself.
    assert questions.vague_links == {"before": 2, "https://example.org/x": 1}


def test_titles_give_two_questions_and_repeated_summaries_none(questions: EvalQuestions) -> None:
    for kind in ("titles", "bodies"):
        assert {question.text for question in questions.questions if question.kind == kind} == {
            title for title, _, _ in POSTS.values()
        }
    assert [question.text for question in questions.of("summaries")] == [POSTS["kettle"][1]]
    assert questions.title_summaries == 1


def test_unanswerable_questions_use_words_missing_in_the_archive(
    questions: EvalQuestions,
) -> None:
    assert len(questions.of("unanswerable")) == eval_questions.UNANSWERABLE == questions.topics
    words = re.findall(r"\w+", " ".join(" ".join(post) for post in POSTS.values()).casefold())
    about = {question: topic for topic, question in their_topics()}
    for question in questions.of("unanswerable"):
        assert not any(word.startswith(about[question.text]) for word in words)


def test_each_shipped_question_is_about_its_topic() -> None:
    assert len(their_topics()) > 80
    for topic, question in their_topics():
        assert re.fullmatch(r"[a-z]{4,}|hiv", topic), topic
        assert any(word.startswith(topic) for word in re.findall(r"\w+", question.casefold())), (
            topic
        )
        assert question.endswith("?")
    assert len(dict(their_topics())) == len(their_topics())


def test_for_an_archive_about_everything_names_are_invented(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_questions, "UNANSWERABLE", len(their_topics()) + 7)
    with Archive(archive) as store:
        ids = [document.id for document in store.headers()]
        first, second = eval_questions_of(store, ids), eval_questions_of(store, ids)
    assert (first.topics, first.names) == (len(their_topics()), 7)
    made_up = [question.text for question in first.of("unanswerable")][-7:]
    assert len(set(made_up)) == 7
    assert made_up == [question.text for question in second.of("unanswerable")][-7:]


def test_of_many_questions_a_fixed_sample_is_used(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_questions, "MOST", 2)
    with Archive(archive) as store:
        ids = [document.id for document in store.headers()]
        first, two = (
            eval_questions_of(store, ids).of("titles"),
            eval_questions_of(store, ids).of("titles"),
        )
    assert len(first) == 2 and first == two


@pytest.mark.parametrize(
    ("text", "words", "does"),
    [
        ("The quick brown fox jumps over the lazy dog", "fox jumps over", True),
        ("The quick brown fox jumps over the lazy dog", "fox over", False),
        ("so the quick, BROWN fox jumps over it", "quick brown fox jumps over the dog", False),
        ("so a quick, BROWN fox jumps over it", "a quick brown fox jumps over the dog", True),
        ("anything", "", False),
        ("foxes", "fox", False),
    ],
)
def test_an_excerpt_is_identified_by_six_consecutive_words(
    text: str, words: str, does: bool
) -> None:
    assert shares_a_run(text, words) is does


# ---- the figures


@dataclass
class RetrievalResult:
    passages: tuple[RetrievedPassage, ...]
    is_weak: bool = False


@dataclass
class FakeSearcher:
    """A searcher that answers as the test says and records its calls."""

    answer: Callable[[str, str], RetrievalResult]
    embedder: Any = None
    requests: list[tuple[str, int, str, bool]] = field(default_factory=list)

    def find(
        self, question: str, limit: int = 8, mode: str = "", *, titles: bool = True
    ) -> RetrievalResult:
        self.requests.append((question, limit, mode, titles))
        return self.answer(question, mode)


class Named:
    name = "a model"


def passage(document: str, text: str = "") -> RetrievedPassage:
    return RetrievedPassage(1, document, "", None, "", "", text, "own", 1.0, ("text",))


def judge(
    archive: Path, searcher: FakeSearcher, progress: Progress | None = None
) -> RetrievalReport:
    with SearchIndex(archive) as index, Archive(archive) as store:
        index.refresh()
        return evaluate_retrieval(index, store, cast(ArchiveSearcher, searcher), progress)


def test_ranks_ignore_the_post_a_question_comes_from(
    archive: Path, questions: EvalQuestions
) -> None:
    kettle, bus, garden = (named(questions, name) for name in ("kettle", "bus", "garden"))

    def answer(question: str, mode: str) -> RetrievalResult:
        if question == "the limescale":  # the second counts as first, and so on: third of four
            own = passage(bus, "I thought of the limescale again")
            return RetrievalResult(
                (passage(garden), own, passage(bus), passage(kettle), passage(kettle))
            )
        if question == "the first frost of the year":
            return RetrievalResult((passage(garden),), is_weak=True)
        if question == "Leeks":
            return RetrievalResult(tuple([passage(bus)] * 6 + [passage(garden)]))
        return RetrievalResult((), is_weak=question.startswith("How"))

    searcher = FakeSearcher(answer)
    judgement = judge(archive, searcher)
    links = judgement.row("links", "text")
    assert links is not None and links.questions == 2
    values = {name: figure.value for name, figure in links.figures.items()}
    # One at the third place, one refused although it was found.
    assert values == pytest.approx(
        {"hit@1": 0, "hit@5": 0.5, "MRR@10": 1 / 6, "nDCG@10": 1 / math.log2(4) / 2, "refused": 0.5}
    )
    assert links.missed == ("the first frost of the year",)
    titles = judgement.row("titles", "text")
    assert titles is not None
    assert set(titles.missed) == {title for title, _, _ in POSTS.values()}  # the seventh is late
    unanswerable = judgement.row("unanswerable", "text")
    assert unanswerable is not None
    how_many = sum(question.text.startswith("How") for question in questions.of("unanswerable"))
    assert unanswerable.figures["refused"].value == how_many / 50
    assert len(unanswerable.missed) == 50 - how_many
    assert {entry[3] for entry in searcher.requests if entry[0] == "Leeks"} == {True, False}


def test_search_modes_are_compared_side_by_side(archive: Path, questions: EvalQuestions) -> None:
    kettle = named(questions, "kettle")
    events: list[Event] = []

    def answer(question: str, mode: str) -> RetrievalResult:
        if mode == "text":
            return RetrievalResult((), is_weak=True)
        return RetrievalResult(
            (passage(kettle),) if mode == "both" else (passage("other"), passage(kettle))
        )

    searcher = FakeSearcher(answer, Named())
    judgement = judge(archive, searcher, Progress(events.append))
    hits = {
        mode: row.figures["MRR@10"].value
        for mode in ("text", "vectors", "both")
        if (row := judgement.row("summaries", mode))
    }
    assert hits == {"text": 0, "vectors": 0.5, "both": 1}
    assert judgement.row("bodies", "vectors") is None
    text = judgement.as_text()
    assert max(len(line) for line in text.split("\n")) <= 80
    rows = [line.split() for line in text.split("\n") if line.startswith("  MRR@10")]
    assert ["MRR@10", "0.00", "(0.00–0.79)", "0.50", "(0.05–0.95)", "1.00", "(0.21–1.00)"] in rows
    assert text.split("\n")[2].split() == ["text", "vectors", "both"]
    assert events[-1].done == events[-1].total == len(searcher.requests)
    data = json.loads(json.dumps(judgement.to_dict()))
    assert {entry["how"] for entry in data["figures"]} == {"text", "vectors", "both"}
    assert data["unanswerable"] == {"topics": 50, "names": 0}


def test_without_an_embedder_only_text_search_is_evaluated(archive: Path) -> None:
    judgement = judge(archive, FakeSearcher(lambda *_: RetrievalResult((), is_weak=True)))
    assert {row.how for row in judgement.rows} == {"text"}
    assert "vectors" not in judgement.as_text()


def test_reciprocal_rank_and_gain_have_their_textbook_values() -> None:
    assert [reciprocal(rank) for rank in (1, 2, 10, 0)] == [1, 0.5, 0.1, 0]
    assert [gain(rank) for rank in (1, 3, 0)] == [1, 0.5, 0]
    assert gain(2) == pytest.approx(0.6309, abs=1e-4)


@pytest.mark.parametrize(
    ("part", "of", "low", "high"),
    # Wilson 1927, as R's binom.confint(method = "wilson") gives them.
    [
        (8, 10, 0.4902, 0.9433),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (45, 50, 0.7864, 0.9565),
    ],
)
def test_the_interval_of_a_share_is_wilson_s(part: int, of: int, low: float, high: float) -> None:
    figure = mean([1] * part + [0] * (of - part))
    assert figure.value == part / of
    assert (figure.low, figure.high) == pytest.approx((low, high), abs=1e-4)


def test_a_question_without_a_source_counts_every_passage() -> None:
    assert EvalQuestion("titles", "x").counts("any", "x")
