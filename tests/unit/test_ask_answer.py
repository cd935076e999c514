"""A question and what becomes of it: dates, refusals, passages, and answers that were checked."""

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from asked_passages import PASSAGES, PlayedSearcher, passage
from ownwords.ask import date_questions
from ownwords.ask.answer import NOT_THERE, SEED, Answer, answer
from ownwords.ask.answer_builder import CHECKED
from ownwords.ask.date_questions import DateAnswer
from ownwords.ask.endpoints import FinishReason, Message, TokenUsage
from ownwords.ask.errors import ContextLengthError
from ownwords.ask.llm_backends import LLMBackend
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.search import RetrievalResult
from ownwords.core.errors import ConfigError

QUESTION = "How many copies do I keep?"
GOOD = 'You keep three copies [1: "three copies of everything"].'


@dataclass
class PlayedWriter:
    """Says what it is to say, and remembers what it was asked."""

    says: str = GOOD
    context: int = 0
    is_local: bool = True
    used: TokenUsage | None = None
    ended: FinishReason | None = "stop"
    thought: bool = False
    name: str = "a model"
    asked: list[tuple[Sequence[Message], int, int, float]] = field(default_factory=list)
    closed: int = 0

    def prepare(self) -> None:
        """It always is."""

    def count(self, text: str) -> int:
        return len(text.split())

    def write(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> Generator[str]:
        self.asked.append((messages, max_tokens, seed, temperature))
        try:
            for begin in range(0, len(self.says), 5):
                yield self.says[begin : begin + 5]
        finally:
            self.closed += 1


@pytest.fixture(autouse=True)
def dated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[DateAnswer | None], None]]:
    """What the dates of the posts say; nothing, unless a test says so."""
    told: list[DateAnswer | None] = [None]
    monkeypatch.setattr(date_questions, "answer_from_dates", lambda index, question, limit: told[0])
    yield lambda what: told.__setitem__(0, what)


def ask(
    writer: LLMBackend | None = None,
    passages: tuple[RetrievedPassage, ...] = PASSAGES,
    **how: Any,  # noqa: ANN401
) -> Answer:
    searcher: Any = PlayedSearcher(RetrievalResult(passages))
    return answer(how.pop("question", QUESTION), searcher, writer, **how)


def test_an_answer_and_what_it_rests_on() -> None:
    writer = PlayedWriter()
    told = ask(writer)
    assert told.answer == "You keep three copies [1]."
    assert not told.refused
    assert told.model == "a model"
    (one,) = told.citations
    assert (one.number, one.title, one.date, one.url, one.quote, one.passage, one.document) == (
        1,
        "Three of Everything",
        "2009-03-12",
        "https://example.org/1/",
        "three copies of everything",
        1,
        "blog:post/1",
    )
    assert told.passages == PASSAGES
    ((_, max_tokens, seed, temperature),) = writer.asked
    assert (seed, temperature) == (SEED, 0.2)
    assert max_tokens > 100


def test_the_json_is_what_the_issue_asks_for() -> None:
    said = json.loads(json.dumps(ask(PlayedWriter()).to_dict()))
    assert said["answer"] == "You keep three copies [1]."
    assert said["citations"][0]["quote"] in said["passages"][0]["text"]
    assert {"title", "date", "url", "text", "score"} <= said["passages"][0].keys()
    assert len(said["passages"]) == len(PASSAGES)
    assert said["passages"][0]["matching"][0] in said["passages"][0]["text"]
    assert (said["refused"], said["model"], said["notes"]) == (False, "a model", [CHECKED])


def test_what_is_not_in_the_archive_is_refused_and_no_model_asked() -> None:
    writer = PlayedWriter()
    near = (passage(3, "About bread.", title="Bread"),)
    weak = PlayedSearcher(
        RetrievalResult(PASSAGES, is_weak=True, why="no post contains “volcano”", nearest=near)
    )
    seen: list[int] = []
    told = answer(
        "What of volcanoes?",
        weak,  # type: ignore[arg-type]
        writer,
        on_passages=lambda them: seen.append(len(them)),
    )
    assert (told.answer, told.refused, told.why) == (NOT_THERE, True, "No post contains “volcano”.")
    assert writer.asked == []
    assert (told.citations, told.passages) == ((), ())
    assert told.nearest == near
    assert told.to_dict()["nearest"][0]["document"] == "blog:post/3"
    assert seen == [0]


def test_without_a_model_the_passages_speak() -> None:
    told = ask(None, limit=5)
    assert (told.answer, told.why, told.model, told.refused) == ("", "", "", False)
    assert told.passages == PASSAGES
    searcher = PlayedSearcher(RetrievalResult(PASSAGES))
    answer("  How   many? ", searcher, None, limit=5)  # type: ignore[arg-type]
    assert searcher.asked == [("How many?", 5)]


def test_questions_of_dates_need_neither_search_nor_model(
    dated: Callable[[DateAnswer | None], None],
) -> None:
    dated(DateAnswer("Your first post is “Three of Everything”.", PASSAGES[:1]))
    writer = PlayedWriter()
    told = ask(writer)
    assert told.answer == "Your first post is “Three of Everything” [1]."
    assert writer.asked == []
    (one,) = told.citations
    assert PASSAGES[0].text.startswith(one.quote)
    assert told.passages == PASSAGES[:1]


def test_what_dates_only_introduce_is_read_by_the_model(
    dated: Callable[[DateAnswer | None], None],
) -> None:
    dated(DateAnswer("You wrote about copies in 1 post of 2009.", PASSAGES[:1], is_complete=False))
    told = ask(PlayedWriter())
    assert told.answer == "You keep three copies [1]."
    assert told.notes[0] == "You wrote about copies in 1 post of 2009."
    alone = ask(None)
    assert alone.answer == "You wrote about copies in 1 post of 2009."
    assert (alone.citations, len(alone.passages)) == ((), 1)


def test_what_is_left_out_is_said() -> None:
    told = ask(PlayedWriter(GOOD + " You live on the moon."))
    assert told.answer == "You keep three copies [1]."
    assert told.notes == ("1 sentence was left out: it has no citation.", CHECKED)
    told = ask(PlayedWriter("You live on the moon."))
    assert told.answer == ""
    assert told.why == (
        "The answer of a model is not shown, because no sentence was supported: it has no citation."
    )
    assert told.passages == PASSAGES
    assert ask(PlayedWriter("NOT IN THE PASSAGES")).why == (
        "a model finds no answer in these passages."
    )


def test_a_model_elsewhere_is_told_of() -> None:
    told = ask(PlayedWriter(is_local=False, name="m at example.org"))
    assert told.notes == (
        "The question and 5 passages were sent to m at example.org.",
        CHECKED,
    )


def test_what_there_was_no_room_for_is_said() -> None:
    told = ask(PlayedWriter(context=330))
    note, checked = told.notes
    assert checked == CHECKED
    assert note.startswith("Only ")
    assert "of 5 passages" in note
    nothing = ask(PlayedWriter(context=60))
    assert nothing.answer == ""
    assert "No passage fits into a context of 60 tokens" in nothing.why
    assert nothing.passages == PASSAGES


def test_a_context_that_keeps_shrinking_ends_in_the_passages() -> None:
    class Stubborn(PlayedWriter):
        def write(
            self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
        ) -> Generator[str]:
            self.asked.append((messages, max_tokens, seed, temperature))
            yield from ()
            raise ContextLengthError("no passage fits", context=0)

    writer = Stubborn(context=4000)
    told = ask(writer)
    assert told.answer == ""
    assert "No passage fits." in told.why
    assert 1 < len(writer.asked) <= 3
    sizes = [sum(len(m["content"]) for m in messages) for messages, *_ in writer.asked]
    assert sizes == sorted(sizes, reverse=True)


def test_passages_and_sentences_are_told_as_they_come() -> None:
    told: list[str] = []
    second = ' You gave up [2: "I gave up on three copies"].'
    whole = ask(
        PlayedWriter(GOOD + second),
        on_passages=lambda them: told.append(f"{len(them)} passages"),
        on_text=told.append,
    )
    said = [one for one in told if one]
    assert said == ["5 passages", "You keep three copies [1].", " You gave up [2]."]
    assert "".join(said[1:]) == whole.answer
    assert told.count("") > 5  # a reader who has left is noticed


def test_who_stops_listening_ends_the_writing() -> None:
    class LeftError(Exception):
        """The reader did."""

    def leave(_: object) -> None:
        raise LeftError

    writer = PlayedWriter()
    with pytest.raises(LeftError):
        ask(writer, on_text=leave)
    assert writer.closed == 1
    with pytest.raises(LeftError):
        ask(writer, on_passages=leave)
    assert len(writer.asked) == 1


@pytest.mark.parametrize(
    ("question", "message"), [("  ", "question is empty"), ("x" * 3000, "3,000")]
)
def test_what_is_no_question(question: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(None, question=question)


def test_nothing_of_this_needs_torch() -> None:
    code = (
        "import sys; import ownwords.ask.answer, ownwords.ask.llm_backends, ownwords.cli.ask,"
        " ownwords.cli.ask_view; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
