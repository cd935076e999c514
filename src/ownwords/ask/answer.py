"""A question answered from the archive: by its dates, by a model whose citations hold, or by the
passages themselves.

A model is asked only where the search found something, and nothing of what it writes is shown but
what was looked up in the passages.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ownwords.archive.report.formatting import count
from ownwords.ask import date_questions
from ownwords.ask.answer_builder import AnswerBuilder, Citation, citation, with_marks
from ownwords.ask.citation_marks import LEAST_QUOTE
from ownwords.ask.citations import LONGEST_QUOTE, VerifiedQuote
from ownwords.ask.errors import ContextLengthError
from ownwords.ask.llm_backends import LLMBackend, at_least
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.prompt import ANSWER, UNKNOWN_ROOM, Prompt, build_prompt
from ownwords.ask.sentence_matching import Span, best, sentences
from ownwords.core.errors import ConfigError, OwnwordsError

if TYPE_CHECKING:
    from ownwords.ask.search import ArchiveSearcher, WordSubstitution

NOT_THERE: Final = "That is not in your archive."
PASSAGES: Final = 8
# Some life, or small models run in circles; little, since they are to keep to what they read.
TEMPERATURE: Final = 0.2
SEED: Final = 1
_LONGEST_QUESTION = 2000  # characters
_TRIES = 3  # of a prompt, each shorter than the one before
_SHORTER = 0.7
_FEW = 3


@dataclass(frozen=True)
class Answer:
    """What the archive has to say to a question.

    `answer` is empty where the passages have to speak for themselves; `why` then says why, and
    `refused` that they do not hold it either. `passages` are all that were found, the best first;
    `nearest` those whose titles come closest where nothing was found. `model` is who wrote it, ""
    where nobody had to. `sought` is the question with the words that took the place of those that
    no post has: by it the sentences are chosen that are shown first.
    """

    question: str
    answer: str = ""
    citations: tuple[Citation, ...] = ()
    passages: tuple[RetrievedPassage, ...] = ()
    refused: bool = False
    why: str = ""
    nearest: tuple[RetrievedPassage, ...] = ()
    notes: tuple[str, ...] = ()
    model: str = ""
    sought: str = ""

    def matching(self, passage: RetrievedPassage, most: int = 2) -> list[Span]:
        """The sentences of a passage that match the question best."""
        return best(self.sought or self.question, passage.text, most)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON; of each passage the sentences that match the question, too."""
        return {
            "question": self.question,
            "answer": self.answer,
            "citations": [asdict(one) for one in self.citations],
            "passages": [self._passage(one) for one in self.passages],
            "refused": self.refused,
            "why": self.why,
            "nearest": [
                {
                    "id": one.id,
                    "document": one.document,
                    "title": one.title,
                    "date": one.date,
                    "url": one.url,
                    "matching": [one.text[a:b] for a, b in self.matching(one, 1)],
                }
                for one in self.nearest
            ],
            "notes": list(self.notes),
            "model": self.model,
        }

    def _passage(self, passage: RetrievedPassage) -> dict[str, Any]:
        return {
            "id": passage.id,
            "document": passage.document,
            "title": passage.title,
            "heading": passage.heading,
            "date": passage.date,
            "url": passage.url,
            "text": passage.text,
            "whose": passage.whose,
            "score": round(passage.score, 6),
            "found_by": list(passage.found_by),
            "matching": [passage.text[a:b] for a, b in self.matching(passage)],
        }


def answer(
    question: str,
    searcher: "ArchiveSearcher",
    writer: LLMBackend | None = None,
    *,
    on_text: Callable[[str], None] | None = None,
    on_passages: Callable[[Sequence[RetrievedPassage]], None] | None = None,
    most: int = PASSAGES,
    seed: int = SEED,
) -> Answer:
    """Answer from the archive that the searcher searches; without a writer by passages alone.

    `on_passages` is told what was found, before anybody is asked. `on_text` is told each sentence
    as soon as its citations were found to hold, and "" whenever more of the answer has come: what
    it raises ends the writing, and is raised here. What goes wrong with the writer is told in the
    answer, beside the passages; ConfigError for no question at all.
    """
    question = " ".join(question.split())
    if not question:
        raise ConfigError("there is no question", hint='ownwords ask "What did I say about rain?"')
    if len(question) > _LONGEST_QUESTION:
        raise ConfigError(
            f"the question has {len(question):,} characters; at most {_LONGEST_QUESTION:,} are"
            " read",
            hint="ask in a sentence or two, or give the few words that matter most",
        )
    shown = on_passages or (lambda _: None)
    if told := date_questions.dated(searcher.index, question, most=most):
        shown(told.passages)
        if told.is_whole or not told.passages:
            return _by_date(question, told.sentence, told.passages)
        if writer is None:
            return Answer(question, answer=told.sentence, passages=told.passages)
        return _AnswerSession(
            question, told.passages, writer, on_text, seed, (told.sentence,)
        ).answer()
    found = searcher.find(question, most)
    notes = tuple(_told(instead) for instead in found.instead)
    sought = " ".join([question, *(word for each in found.instead for word in each.searched)])
    if found.is_weak or not found.passages:
        shown(())
        return Answer(
            question,
            answer=NOT_THERE,
            refused=True,
            why=_sentence(found.why),
            nearest=found.nearest,
            notes=notes,
            sought=sought,
        )
    shown(found.passages)
    if writer is None:
        return Answer(question, passages=found.passages, notes=notes, sought=sought)
    asking = _AnswerSession(question, found.passages, writer, on_text, seed, notes)
    return replace(asking.answer(), sought=sought)


def _told(instead: "WordSubstitution") -> str:
    *others, last = (f"“{word}”" for word in instead.searched)
    searched = f"{', '.join(others)} and {last}" if others else last
    were = "were" if others else "was"
    return f"No post has “{instead.asked}”: {searched} {were} searched for in its place."


def _by_date(question: str, sentence: str, passages: Sequence[RetrievedPassage]) -> Answer:
    """What the dates of the posts say; each post is cited by what in it the question names."""
    cited = []
    for passage in passages:
        spans = [
            (begin, end)
            for begin, end in (*best(question, passage.text, most=1), *sentences(passage.text))
            if len(passage.text[begin:end].encode()) >= LEAST_QUOTE
        ]
        if spans:
            begin, end = spans[0]
            quote = passage.text[begin : min(end, begin + LONGEST_QUOTE)]
            cited.append(VerifiedQuote(passage, quote, passage.whose_is(quote)))
    numbers = "".join(f"[{number}]" for number in range(1, len(cited) + 1))
    return Answer(
        question,
        # Of more posts than a few, the list below says enough.
        answer=with_marks(sentence, f" {numbers}") if 0 < len(cited) <= _FEW else sentence,
        citations=tuple(citation(number, one) for number, one in enumerate(cited, 1)),
        passages=tuple(passages),
    )


class _AnswerSession:
    """One question put to a writer, as often as its context takes."""

    def __init__(
        self,
        question: str,
        passages: tuple[RetrievedPassage, ...],
        writer: LLMBackend,
        on_text: Callable[[str], None] | None,
        seed: int,
        beforehand: Sequence[str] = (),
    ) -> None:
        self._question, self._passages, self._writer = question, passages, writer
        self._on_text, self._seed = on_text, seed
        self._notes = [*beforehand]

    def answer(self) -> Answer:
        composer: AnswerBuilder | None = None
        try:
            self._writer.prepare()
            prompt = self._fitting(self._writer.context)
            if not self._writer.is_here:
                self._notes.append(
                    f"The question and {count(len(prompt.excerpts), 'passage')} went to"
                    f" {self._writer.name}."
                )
            for left in range(_TRIES - 1, -1, -1):
                composer = AnswerBuilder(prompt.excerpts, self._question, self._on_text)
                try:
                    self._write(prompt, composer)
                except ContextLengthError as error:
                    if not left or composer.text:
                        raise
                    prompt = self._shorter(prompt, error)
                else:
                    break
        except OwnwordsError as error:
            # What had been checked before it broke off holds all the same.
            if composer:
                composer.end(is_cut=True)
            if composer and composer.text:
                self._notes.append(f"The answer ends early: {_sentence_of(error)}")
                return self._composed(composer)
            return self._passages_only(_sentence_of(error))
        assert composer is not None
        self._judge_reading(prompt)
        if composer.text:
            return self._composed(composer)
        return self._without(composer)

    def _fitting(self, context: int) -> Prompt:
        return build_prompt(self._question, self._passages, self._writer.count, context)

    def _write(self, prompt: Prompt, composer: AnswerBuilder) -> None:
        pieces = self._writer.write(
            prompt.messages, most=prompt.answer, seed=self._seed, temperature=TEMPERATURE
        )
        with closing(pieces):
            for piece in pieces:
                if self._on_text:
                    self._on_text("")
                composer.add(piece)
        composer.end(is_cut=self._writer.ended == "length")

    def _shorter(self, prompt: Prompt, error: ContextLengthError) -> Prompt:
        """A prompt for the context that it turned out to be; ours counts are only about right."""
        before = self._writer.context or UNKNOWN_ROOM + ANSWER
        room = error.room or before
        if error.sent:
            # By their count our prompt is this much longer than we thought.
            room = int(error.room * min(1.0, prompt.tokens / error.sent)) or before
        context = min(room, int(before * _SHORTER))
        shorter = self._fitting(context)
        self._writer.context = context
        known = f" of {error.room:,} tokens" if error.room else ""
        self._notes.append(
            f"{self._writer.name} has a context{known} that all of it did not fit into: it was"
            f" asked again with {count(len(shorter.excerpts), 'passage')}."
        )
        return shorter

    def _judge_reading(self, prompt: Prompt) -> None:
        """Whether the model read all that was sent, and wrote all it wanted to."""
        used, writer = self._writer.used, self._writer
        least = at_least(prompt.messages)
        if used and 0 < used.prompt < least:
            writer.context = used.prompt
            self._notes.append(
                f"{writer.name} read only {used.prompt:,} tokens of a prompt of at least {least:,}:"
                " it was cut without a word. Give it a longer context; for Ollama,"
                " OLLAMA_CONTEXT_LENGTH=8192."
            )
        elif prompt.left_out or prompt.shortened:
            sent = len(prompt.excerpts)
            part = ", the last of them in part" if prompt.shortened else ""
            self._notes.append(
                f"There was room for {sent} of {count(len(self._passages), 'passage')}{part}."
            )
        if writer.ended == "length":
            self._notes.append("The answer was cut where it was as long as it may be.")

    def _composed(self, composer: AnswerBuilder) -> Answer:
        return Answer(
            self._question,
            answer=composer.text,
            citations=composer.citations,
            passages=self._passages,
            notes=(*composer.notes(), *self._notes),
            model=self._writer.name,
        )

    def _without(self, composer: AnswerBuilder) -> Answer:
        """Nothing that was written can be shown."""
        name, reasons = self._writer.name, composer.reasons()
        if composer.says_nothing:
            why = f"{name} finds no answer in these passages."
        elif reasons:
            why = f"What {name} answered is not shown, since none of it held: {reasons}."
        elif self._writer.thought and self._writer.ended == "length":
            why = f"{name} thought until there was no room left for an answer."
        else:
            why = f"{name} answered nothing."
        return self._passages_only(why)

    def _passages_only(self, why: str) -> Answer:
        return Answer(
            self._question,
            passages=self._passages,
            why=why,
            notes=tuple(self._notes),
            model=self._writer.name,
        )


def _sentence_of(error: OwnwordsError) -> str:
    return f"{_sentence(error.message)} {_sentence(error.hint)}".strip()


def _sentence(text: str) -> str:
    """A remark as a sentence: a capital first, a stop last."""
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".?!" else ".")
