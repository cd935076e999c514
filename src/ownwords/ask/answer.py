"""Answers a question from the archive: from the posts' dates, with a model, or with passages.

A model is asked only if the search finds something. Of what it writes, only sentences whose
citations were verified in the passages are shown.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ownwords.ask import dates
from ownwords.ask.citations import (
    CHECKED,
    LONGEST_QUOTE,
    MIN_QUOTE,
    AnswerBuilder,
    Citation,
    with_marks,
)
from ownwords.ask.passages import (
    Passage,
    PassageExcerpt,
    best_sentences,
    excerpt_of,
    sentences,
)
from ownwords.ask.prompt import ANSWER, DEFAULT_PROMPT_TOKENS, Prompt, build_prompt
from ownwords.ask.query import OVERVIEW
from ownwords.ask.servers import ContextLengthError, LLMBackend, minimum_tokens
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.view.format import count, sentence

if TYPE_CHECKING:
    from ownwords.ask.search import ArchiveSearcher

NOT_THERE: Final = "That is not in your archive."
PASSAGES: Final = 8
# Above 0, or small models loop; low, since the answer must keep to the passages.
TEMPERATURE: Final = 0.2
SEED: Final = 1
_LONGEST_QUESTION = 2000  # characters
_TRIES = 3  # attempts, each with a shorter prompt than the one before
_SHORTER = 0.7
_FEW = 3


@dataclass(frozen=True)
class Answer:
    """The answer to a question, with citations and passages.

    `answer` is empty if only passages can be shown; `why` then gives the reason, and `refused` is
    true if the archive does not answer the question. `passages` come best first; `nearest` are the
    closest where nothing matched. `model` wrote the answer, "" if none did. `searched_question` is
    the question plus the words that replaced those no post contains. `excerpts` are what to show of
    passages by their ids.
    """

    question: str
    answer: str = ""
    citations: tuple[Citation, ...] = ()
    passages: tuple[Passage, ...] = ()
    refused: bool = False
    why: str = ""
    nearest: tuple[Passage, ...] = ()
    notes: tuple[str, ...] = ()
    model: str = ""
    searched_question: str = ""
    excerpts: Mapping[int, PassageExcerpt] = field(default_factory=dict)

    def excerpt(self, passage: Passage) -> PassageExcerpt:
        """What to show of a passage: the part that answers, and the units that match best."""
        known = self.excerpts.get(passage.id)
        return known or excerpt_of(self.searched_question or self.question, passage.text)

    def to_dict(self) -> dict[str, Any]:
        """The answer for JSON, with the excerpt and the matching sentences of each passage."""
        return {
            "question": self.question,
            "answer": self.answer,
            "citations": [each.to_dict(number) for number, each in enumerate(self.citations, 1)],
            "passages": [self._passage(passage) for passage in self.passages],
            "refused": self.refused,
            "why": self.why,
            "nearest": [
                {
                    "id": near.id,
                    "document": near.document,
                    "title": near.title,
                    "date": near.date,
                    "url": near.url,
                    "matching": [near.text[a:b] for a, b in self.excerpt(near).matching[:1]],
                }
                for near in self.nearest
            ],
            "notes": list(self.notes),
            "model": self.model,
        }

    def _passage(self, passage: Passage) -> dict[str, Any]:
        excerpt = self.excerpt(passage)
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
            "excerpt": passage.text[slice(*excerpt.span)],
            "matching": [passage.text[a:b] for a, b in excerpt.matching],
        }


def answer(
    question: str,
    searcher: "ArchiveSearcher",
    writer: LLMBackend | None = None,
    *,
    on_text: Callable[[str], None] | None = None,
    on_passages: Callable[[Sequence[Passage]], None] | None = None,
    limit: int = PASSAGES,
    seed: int = SEED,
) -> Answer:
    """Answer a question from the archive; without a `writer`, only with passages.

    `on_passages` is called with the passages before the model is asked. `on_text` is called with
    each sentence once its citations are verified, and with "" whenever the model writes more; an
    exception it raises ends the answer. Errors of the model become part of the answer. Raises
    ConfigError for an empty or overlong question.
    """
    question = " ".join(question.split())
    if not question:
        raise ConfigError("the question is empty", hint='ownwords ask "What did I say about rain?"')
    if len(question) > _LONGEST_QUESTION:
        raise ConfigError(
            f"the question has {len(question):,} characters; the limit is {_LONGEST_QUESTION:,}",
            hint="ask in a sentence or two",
        )
    shown = on_passages or (lambda _: None)
    first_note: tuple[str, ...] = ()
    date_answer = dates.answer_from_dates(searcher.index, question, limit=limit)
    if date_answer and not date_answer.is_complete and not date_answer.passages:
        first_note, date_answer = (date_answer.sentence,), None
    if date_answer:
        shown(date_answer.passages)
        if date_answer.is_complete:
            return _date_answer(question, date_answer.sentence, date_answer.passages)
        if writer is None:
            return Answer(question, answer=date_answer.sentence, passages=date_answer.passages)
        return _AnswerSession(
            question, date_answer.passages, writer, on_text, seed, (date_answer.sentence,)
        ).answer()
    result = searcher.find(question, limit)
    notes = (*first_note, *result.notes())
    searched_question = result.searched_question(question)
    excerpts = {
        each.id: excerpt_of(searched_question, each.text, result.window_cosines.get(each.id, ()))
        for each in (*result.passages, *result.nearest)
    }
    if result.is_weak or not result.passages:
        shown(())
        return Answer(
            question,
            answer="" if result.why == OVERVIEW else NOT_THERE,
            refused=True,
            why=sentence(result.why, 0),
            nearest=result.nearest,
            notes=notes,
            searched_question=searched_question,
            excerpts=excerpts,
        )
    shown(result.passages)
    if writer is None:
        answered = Answer(question, passages=result.passages, notes=notes)
    else:
        answered = _AnswerSession(question, result.passages, writer, on_text, seed, notes).answer()
    return replace(answered, searched_question=searched_question, excerpts=excerpts)


def _date_answer(question: str, counted: str, passages: Sequence[Passage]) -> Answer:
    """The answer from the posts' dates; each post is cited with the sentence that matches best."""
    citations = []
    for passage in passages:
        spans = best_sentences(question, passage.text, limit=1) + sentences(passage.text)
        quotes = (passage.text[begin : min(end, begin + LONGEST_QUOTE)] for begin, end in spans)
        long_enough = (quote for quote in quotes if len(quote.encode()) >= MIN_QUOTE)
        citations += [Citation(passage, quote) for quote in islice(long_enough, 1)]
    numbers = "".join(f"[{number}]" for number in range(1, len(citations) + 1))
    return Answer(
        question,
        # The sentence refers to the citations by number only if they are few.
        answer=with_marks(counted, f" {numbers}") if 0 < len(citations) <= _FEW else counted,
        citations=tuple(citations),
        passages=tuple(passages),
    )


class _AnswerSession:
    """One question to a model, retried with a shorter prompt if its context is too small."""

    def __init__(
        self,
        question: str,
        passages: tuple[Passage, ...],
        writer: LLMBackend,
        on_text: Callable[[str], None] | None,
        seed: int,
        first_notes: Sequence[str] = (),
    ) -> None:
        self._question, self._passages, self._writer = question, passages, writer
        self._on_text, self._seed = on_text, seed
        self._notes = [*first_notes]

    def answer(self) -> Answer:
        builder: AnswerBuilder | None = None
        try:
            self._writer.prepare()
            prompt = self._prompt_for(self._writer.context)
            if not self._writer.is_local:
                self._notes.append(
                    f"The question and {count(len(prompt.excerpts), 'passage')} were sent to"
                    f" {self._writer.name}."
                )
            for left in range(_TRIES - 1, -1, -1):
                builder = AnswerBuilder(prompt.excerpts, self._question, self._on_text)
                try:
                    self._write(prompt, builder)
                except ContextLengthError as error:
                    if not left or builder.text:
                        raise
                    prompt = self._shorter(prompt, error)
                else:
                    break
        except OwnwordsError as error:
            # Sentences verified before the error still hold.
            if builder:
                builder.end(is_cut=True)
            if builder and builder.text:
                self._notes.append(f"The answer ends early: {_sentence_of(error)}")
                return self._built_answer(builder)
            return self._passages_only(_sentence_of(error))
        assert builder is not None
        self._note_truncation(prompt)
        if builder.text:
            return self._built_answer(builder)
        return self._failed_answer(builder)

    def _prompt_for(self, context: int) -> Prompt:
        return build_prompt(self._question, self._passages, self._writer.count, context)

    def _write(self, prompt: Prompt, builder: AnswerBuilder) -> None:
        pieces = self._writer.write(
            prompt.messages, max_tokens=prompt.answer, seed=self._seed, temperature=TEMPERATURE
        )
        with closing(pieces):
            for piece in pieces:
                if self._on_text:
                    self._on_text("")
                builder.add(piece)
        builder.end(is_cut=self._writer.ended == "length")

    def _shorter(self, prompt: Prompt, error: ContextLengthError) -> Prompt:
        """A prompt for the context size that the model reports; our token counts are estimates."""
        before = self._writer.context or DEFAULT_PROMPT_TOKENS + ANSWER
        limit = error.context or before
        if error.sent:
            # Scale the limit by how far our count is below the endpoint's.
            limit = int(error.context * min(1.0, prompt.tokens / error.sent)) or before
        context = min(limit, int(before * _SHORTER))
        shorter = self._prompt_for(context)
        self._writer.context = context
        known = f" of {error.context:,} tokens" if error.context else ""
        self._notes.append(
            f"The prompt was too long for the context{known} of {self._writer.name}. A shorter one"
            f" with {count(len(shorter.excerpts), 'passage')} was sent."
        )
        return shorter

    def _note_truncation(self, prompt: Prompt) -> None:
        """Note whether the prompt or the answer was cut."""
        writer, read = self._writer, self._writer.prompt_tokens
        least = minimum_tokens(prompt.messages)
        if 0 < read < least:
            writer.context = read
            self._notes.append(
                f"{writer.name} read only {read:,} of at least {least:,} tokens and cut the"
                " rest silently. Give it a longer context; for Ollama, OLLAMA_CONTEXT_LENGTH=8192."
            )
        elif prompt.left_out or prompt.shortened:
            sent = len(prompt.excerpts)
            part = ", the last in part" if prompt.shortened else ""
            of = count(len(self._passages), "passage")
            self._notes.append(f"Only {sent} of {of} fit into the context{part}.")
        if writer.ended == "length":
            self._notes.append("The answer was cut at its maximum length.")

    def _built_answer(self, builder: AnswerBuilder) -> Answer:
        return Answer(
            self._question,
            answer=builder.text,
            citations=builder.citations,
            passages=self._passages,
            notes=(*builder.notes(), *self._notes, CHECKED),
            model=self._writer.name,
        )

    def _failed_answer(self, builder: AnswerBuilder) -> Answer:
        """The answer if no sentence of the model can be shown: the passages and the reason."""
        name, reasons = self._writer.name, builder.reasons()
        if builder.has_no_answer:
            why = f"{name} finds no answer in these passages."
        elif reasons:
            why = (
                f"The answer of {name} is not shown, because no sentence was supported: {reasons}."
            )
        elif self._writer.thought and self._writer.ended == "length":
            why = f"{name} used all its tokens for thinking and gave no answer."
        else:
            why = f"{name} gave no answer."
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
    return f"{sentence(error.message, 0)} {sentence(error.hint, 0)}".strip()
