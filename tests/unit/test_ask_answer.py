"""From question to answer: dates, refusals, passages, and checked answers."""

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ownwords.ask import dates
from ownwords.ask.answer import NOT_THERE, SEED, Answer, answer
from ownwords.ask.citations import CHECKED
from ownwords.ask.dates import DateAnswer
from ownwords.ask.passages import Passage
from ownwords.ask.search import RetrievalResult
from ownwords.ask.servers import FinishReason, LLMBackend, Message
from ownwords.core.errors import ConfigError
from sample_passages import PASSAGES, FakeSearcher, passage

QUESTION = "How many copies do I keep?"
GOOD = 'You keep three copies [1: "three copies of everything"].'


@dataclass
class FakeBackend:
    """Returns a fixed answer and records the requests."""

    says: str = GOOD
    context: int = 0
    is_local: bool = True
    prompt_tokens: int = 0
    ended: FinishReason | None = "stop"
    thought: bool = False
    name: str = "a model"
    requests: list[tuple[Sequence[Message], int, int, float]] = field(default_factory=list)
    closed: int = 0

    def prepare(self) -> None:
        """It always is."""

    def count(self, text: str) -> int:
        return len(text.split())

    def write(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> Generator[str]:
        self.requests.append((messages, max_tokens, seed, temperature))
        try:
            for begin in range(0, len(self.says), 5):
                yield self.says[begin : begin + 5]
        finally:
            self.closed += 1


@pytest.fixture(autouse=True)
def dated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[DateAnswer | None], None]]:
    """Fixes what the dates of the posts answer; by default nothing."""
    answers: list[DateAnswer | None] = [None]
    monkeypatch.setattr(dates, "answer_from_dates", lambda index, question, limit: answers[0])
    yield lambda dated_answer: answers.__setitem__(0, dated_answer)


def ask(
    writer: LLMBackend | None = None,
    passages: tuple[Passage, ...] = PASSAGES,
    **options: Any,  # noqa: ANN401
) -> Answer:
    searcher: Any = FakeSearcher(RetrievalResult(passages))
    return answer(options.pop("question", QUESTION), searcher, writer, **options)


def test_an_answer_comes_with_its_citations() -> None:
    writer = FakeBackend()
    result = ask(writer)
    assert result.answer == "You keep three copies [1]."
    assert not result.refused
    assert result.model == "a model"
    (citation,) = result.citations
    assert (citation.passage, citation.quote) == (PASSAGES[0], "three copies of everything")
    assert result.passages == PASSAGES
    ((_, max_tokens, seed, temperature),) = writer.requests
    assert (seed, temperature) == (SEED, 0.2)
    assert max_tokens > 100


def test_the_json_has_the_documented_fields() -> None:
    data = json.loads(json.dumps(ask(FakeBackend()).to_dict()))
    assert data["answer"] == "You keep three copies [1]."
    assert data["citations"] == [
        {
            "number": 1,
            "title": "Three of Everything",
            "date": "2009-03-12",
            "url": "https://example.org/1/",
            "quote": "three copies of everything",
            "passage": 1,
            "document": "blog:post/1",
            "heading": "",
            "whose": "own",
        }
    ]
    assert {"title", "date", "url", "text", "score"} <= data["passages"][0].keys()
    assert len(data["passages"]) == len(PASSAGES)
    assert data["passages"][0]["matching"][0] in data["passages"][0]["text"]
    assert (data["refused"], data["model"], data["notes"]) == (False, "a model", [CHECKED])


def test_a_question_outside_the_archive_is_refused_without_a_model() -> None:
    writer = FakeBackend()
    near = (passage(3, "About bread.", title="Bread"),)
    weak = FakeSearcher(
        RetrievalResult(PASSAGES, is_weak=True, why="no post contains “volcano”", nearest=near)
    )
    counts: list[int] = []
    result = answer(
        "What of volcanoes?",
        weak,  # type: ignore[arg-type]
        writer,
        on_passages=lambda them: counts.append(len(them)),
    )
    assert (result.answer, result.refused, result.why) == (
        NOT_THERE,
        True,
        "No post contains “volcano”.",
    )
    assert writer.requests == []
    assert (result.citations, result.passages) == ((), ())
    assert result.nearest == near
    assert result.to_dict()["nearest"][0]["document"] == "blog:post/3"
    assert counts == [0]


def test_without_a_model_the_passages_are_shown() -> None:
    result = ask(None, limit=5)
    assert (result.answer, result.why, result.model, result.refused) == ("", "", "", False)
    assert result.passages == PASSAGES
    searcher = FakeSearcher(RetrievalResult(PASSAGES))
    answer("  How   many? ", searcher, None, limit=5)  # type: ignore[arg-type]
    assert searcher.requests == [("How many?", 5)]


def test_date_questions_need_neither_search_nor_model(
    dated: Callable[[DateAnswer | None], None],
) -> None:
    dated(DateAnswer("Your first post is “Three of Everything”.", PASSAGES[:1]))
    writer = FakeBackend()
    result = ask(writer)
    assert result.answer == "Your first post is “Three of Everything” [1]."
    assert writer.requests == []
    (citation,) = result.citations
    assert PASSAGES[0].text.startswith(citation.quote)
    assert result.passages == PASSAGES[:1]


def test_questions_that_only_mention_a_date_go_to_the_model(
    dated: Callable[[DateAnswer | None], None],
) -> None:
    dated(DateAnswer("You wrote about copies in 1 post of 2009.", PASSAGES[:1], is_complete=False))
    result = ask(FakeBackend())
    assert result.answer == "You keep three copies [1]."
    assert result.notes[0] == "You wrote about copies in 1 post of 2009."
    alone = ask(None)
    assert alone.answer == "You wrote about copies in 1 post of 2009."
    assert (alone.citations, len(alone.passages)) == ((), 1)


def test_dropped_sentences_are_reported() -> None:
    result = ask(FakeBackend(GOOD + " You live on the moon."))
    assert result.answer == "You keep three copies [1]."
    assert result.notes == ("1 sentence was left out: it has no citation.", CHECKED)
    result = ask(FakeBackend("You live on the moon."))
    assert result.answer == ""
    assert result.why == (
        "The answer of a model is not shown, because no sentence was supported: it has no citation."
    )
    assert result.passages == PASSAGES
    assert ask(FakeBackend("NOT IN THE PASSAGES")).why == (
        "a model finds no answer in these passages."
    )


def test_passages_that_did_not_fit_are_reported() -> None:
    result = ask(FakeBackend(context=330, is_local=False, name="m at example.org"))
    sent, note, checked = result.notes
    assert sent.endswith("were sent to m at example.org.")
    assert checked == CHECKED
    assert note.startswith("Only ")
    assert "of 5 passages" in note
    nothing = ask(FakeBackend(context=60))
    assert nothing.answer == ""
    assert "No passage fits into a context of 60 tokens" in nothing.why
    assert nothing.passages == PASSAGES


def test_passages_and_sentences_are_streamed() -> None:
    reported: list[str] = []
    second = ' You gave up [2: "I gave up on three copies"].'
    result = ask(
        FakeBackend(GOOD + second),
        on_passages=lambda them: reported.append(f"{len(them)} passages"),
        on_text=reported.append,
    )
    texts = [item for item in reported if item]
    assert texts == ["5 passages", "You keep three copies [1].", " You gave up [2]."]
    assert "".join(texts[1:]) == result.answer
    assert reported.count("") > 5  # a reader who has left is noticed


def test_a_listener_that_stops_ends_the_generation() -> None:
    class LeftError(Exception):
        """The reader did."""

    def leave(_: object) -> None:
        raise LeftError

    writer = FakeBackend()
    with pytest.raises(LeftError):
        ask(writer, on_text=leave)
    assert writer.closed == 1
    with pytest.raises(LeftError):
        ask(writer, on_passages=leave)
    assert len(writer.requests) == 1


@pytest.mark.parametrize(
    ("question", "message"), [("  ", "question is empty"), ("x" * 3000, "3,000")]
)
def test_an_empty_question_is_refused(question: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(None, question=question)


def test_answering_imports_no_torch() -> None:
    code = (
        "import sys; import ownwords.ask.answer, ownwords.ask.servers, ownwords.cli.ask;"
        " print('torch' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "False"
