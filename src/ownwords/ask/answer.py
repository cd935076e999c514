"""Answers a question from the archive: from the posts' dates, with a model, or with passages.

A model is asked unless the posts' dates give the answer or the archive has nothing about the
question. Its prompt is the question, as many passages as fit, and the question again. Each passage
is between delimiters that none of them contains. The model has no tools, and only sentences with
verified citations are shown, whatever a passage makes it write.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ownwords.ask import dates
from ownwords.ask.citations import CHECKED, AnswerBuilder, Citation
from ownwords.ask.passages import Passage, PassageExcerpt, Whose, excerpt_of
from ownwords.ask.search import Kind
from ownwords.ask.servers import ContextLengthError, Endpoint, Message, neutralized
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.view.format import count, sentence

if TYPE_CHECKING:
    from ownwords.ask.search import ArchiveSearcher

# The heading of the passages, by their kind.
SENTENCES: Final[dict[Kind, str]] = {
    "answer": "Your posts seem to say",
    "nearest": "Close, but not clearly said",
    "absent": "Your archive seems to have nothing about this",
    "unjudged": "The passages closest to your question",
}
_NOTHING = "No passage was found"
PASSAGES: Final = 8
_MAX_QUESTION = 2000  # characters
_TRIES, _SHORTER = 3, 0.6  # attempts; each shortens the prompt to this share


@dataclass(frozen=True)
class Answer:
    """The answer to a question, with citations and passages, best first.

    `answer` is empty if only passages can be shown; `why` is then the reason, if a model was asked.
    `kind` says how the passages relate to the question (`SENTENCES`). `model` wrote the answer, ""
    if none did. `excerpts` are the parts of the passages to show, by passage id.
    """

    question: str
    answer: str = ""
    citations: tuple[Citation, ...] = ()
    passages: tuple[Passage, ...] = ()
    kind: Kind = "answer"
    why: str = ""
    notes: tuple[str, ...] = ()
    model: str = ""
    excerpts: Mapping[int, PassageExcerpt] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The sentence about the passages."""
        is_empty = self.kind == "unjudged" and not self.passages
        return _NOTHING if is_empty else SENTENCES[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer for JSON, with each passage's excerpt and matching sentences."""
        return {
            "question": self.question,
            "answer": self.answer,
            "citations": [each.to_dict(number) for number, each in enumerate(self.citations, 1)],
            "passages": [
                asdict(each)
                | {
                    "excerpt": each.text[slice(*excerpt.span)],
                    "matching": [each.text[slice(*span)] for span in excerpt.matching],
                }
                for each in self.passages
                if (excerpt := self.excerpts[each.id])
            ],
            "kind": self.kind,
            "sentence": self.sentence,
            "why": self.why,
            "notes": list(self.notes),
            "model": self.model,
        }


def answer(
    question: str,
    searcher: "ArchiveSearcher",
    writer: Endpoint | None = None,
    *,
    on_text: Callable[[str], None] | None = None,
    on_passages: Callable[[Sequence[Passage]], None] | None = None,
    limit: int = PASSAGES,
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
    if len(question) > _MAX_QUESTION:
        raise ConfigError(
            f"the question has {len(question):,} characters; the limit is {_MAX_QUESTION:,}",
            hint="ask in a sentence or two",
        )
    counted = dates.answer_from_dates(searcher.index, question, limit=limit)
    if counted and counted.passages:
        found = Answer(question, counted.sentence, passages=counted.passages)
    elif counted and counted.is_complete:
        return Answer(question, counted.sentence)
    else:
        result = searcher.find(question, limit, reads=True)
        notes = (*([counted.sentence] if counted else []), *result.notes)
        found = Answer(question, passages=result.passages, kind=result.kind, notes=notes)
    found = replace(found, excerpts=searcher.excerpts(question, found.passages))
    if on_passages:
        on_passages(found.passages)
    is_missing = found.kind == "absent" or not found.passages
    is_done = is_missing or (counted and counted.is_complete)
    return found if writer is None or is_done else _written(found, writer, on_text)


def _written(found: Answer, writer: Endpoint, on_text: Callable[[str], None] | None) -> Answer:
    """Return the answer of a model; if its context is too small, the prompt is shortened."""
    notes = [*([found.answer] if found.answer else []), *found.notes]
    builder = AnswerBuilder((), found.question)
    why = ""
    try:
        context = _USUAL_CONTEXT
        prompt = build_prompt(found.question, found.passages, writer.count, context)
        if not writer.is_local:
            sent = count(len(prompt.excerpts), "passage")
            notes.append(f"The question and {sent} were sent to {writer.name}.")
        for left in range(_TRIES - 1, -1, -1):
            builder = AnswerBuilder(prompt.excerpts, found.question, on_text)
            try:
                pieces = writer.write(prompt.messages, prompt.max_tokens)
                with closing(pieces):
                    for piece in pieces:
                        if on_text:
                            on_text("")
                        builder.add(piece)
                builder.end(is_cut=writer.ended == "length")
                break
            except ContextLengthError:
                if not left or builder.text:
                    raise
                context = int(context * _SHORTER)
                prompt = build_prompt(found.question, found.passages, writer.count, context)
        if len(prompt.excerpts) < len(found.passages):
            of = count(len(found.passages), "passage")
            notes.append(f"Only {len(prompt.excerpts)} of {of} fit into the model's context.")
        if writer.ended == "length":
            notes.append("The answer was cut at its maximum length.")
        why = f"{writer.name} {builder.why_nothing()}"
    except OwnwordsError as error:
        why = f"{sentence(error.message, 0)} {sentence(error.hint, 0)}".strip()
        builder.end(is_cut=True)
        if builder.text:  # sentences verified before the error still hold
            notes.append(f"The answer ends early: {why}")
    if builder.text:
        why, notes = "", [*builder.notes(), *notes, CHECKED]
    return replace(
        found,
        answer=builder.text,
        citations=tuple(builder.citations),
        why=why,
        notes=tuple(notes),
        model=writer.name,
    )


# ---- the prompt

# By default Ollama silently cuts prompts at 4,096 tokens.
_USUAL_CONTEXT = 4000
ANSWER: Final = 1000  # tokens, or a fourth of a smaller context
_PER_MESSAGE = 8  # tokens of a chat template around each message
_RULES = Path(__file__).with_name("rules.txt").read_text("utf-8").rstrip()
_WHOSE: Final[dict[Whose, str]] = {
    "own": "the author's own",
    "quoted": "somebody else's or a machine's, quoted by the author",
    "other": "somebody else's",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages, the passages as cut to fit, and the tokens left for the answer."""

    messages: tuple[Message, ...]
    excerpts: tuple[Passage, ...]
    max_tokens: int


def build_prompt(
    question: str,
    passages: Sequence[Passage],
    count: Callable[[str], int],
    context: int = _USUAL_CONTEXT,
) -> Prompt:
    """Build the prompt with as many passages as fit, best first.

    Raises ContextLengthError if not even the excerpt of one passage fits.
    """
    answer = min(ANSWER, context // 4)
    # The delimiter depends on all passages, so none of them can contain it.
    fence = f"=== {digest(*(f'{each.title} {each.text}' for each in passages))[:8]} ==="
    line = neutralized(question)
    begin = f"Question: {line}\n\nPassages, each between lines with {fence}:\n\n"
    end = f"\n\nQuestion: {line}"
    room = context - answer - count(_RULES + begin + end) - 2 * _PER_MESSAGE
    excerpts: list[Passage] = []
    fenced: list[str] = []
    for passage in passages:
        part = passage.text[slice(*excerpt_of(question, passage.text).span)]
        for text in (passage.text, part):
            excerpt = replace(passage, text=text)
            shown = _fenced(len(excerpts) + 1, excerpt, fence)
            if (size := count(shown)) <= room:
                room -= size
                excerpts.append(excerpt)
                fenced.append(shown)
                break
    if not excerpts:
        raise ContextLengthError(
            f"no passage fits into a context of {context:,} tokens",
            hint="use a model with a longer context",
        )
    messages = (
        {"role": "system", "content": _RULES},
        {"role": "user", "content": begin + "\n\n".join(fenced) + end},
    )
    return Prompt(messages, tuple(excerpts), answer)


def _fenced(number: int, passage: Passage, fence: str) -> str:
    title, section = (neutralized(part[:200]) for part in (passage.title, passage.heading))
    head = [f"Passage {number}", f"title: {title or '(untitled)'}", f"section: {section}"]
    head += [f"date: {passage.date or 'unknown'}", f"words: {_WHOSE[passage.whose]}"]
    return "\n".join([*head, fence, neutralized(passage.text), fence])
