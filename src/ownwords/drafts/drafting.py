"""Writes a text from notes: several candidates per line, of which the best that keeps the facts.

A line whose facts no candidate keeps (`facts.Content`) stays a note: a small model makes things up,
and a sentence that cannot be shown to keep its note is not presented as written.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final, Literal

from ownwords.base import catalogue
from ownwords.base.catalogue import RECOMMENDED
from ownwords.core.errors import OwnwordsError
from ownwords.drafts.facts import Content
from ownwords.drafts.mark_choices import MarkChoices
from ownwords.drafts.notes import beginning_of, prompt_of, sentences_of_note
from ownwords.inference.generation import BatchScheduler
from ownwords.inference.model import Model
from ownwords.models.atomic_dir import readable_dir
from ownwords.models.directory import PROVENANCE
from ownwords.models.untrusted_files import read_json

CANDIDATES = 8
_SAMPLING: dict[str, Any] = {"temperature": 0.7, "top_p": 0.95, "break_loops": True}
SEEDS: Final = 1_000_000  # per draft, so that no two drafts share one
MIN_SHARE = 0.6  # of a line's content words, for the line to count as kept
_MAX_LENGTH = 3.0  # times the characters of the note; more would be made up
_ROOM = 256  # tokens of a scheduler for the lines that follow
ENDS: Final = tuple('.!?…"”)')
_TITLE = re.compile(r"(?:#+|title:)\s*(.+)", re.IGNORECASE)
_QUOTE_MARK = re.compile('[“”"]')
_BULLET = re.compile(r"^\s*(?:[-*+•–]|\d{1,2}[.)])\s+")


def has_learned(folder: Path) -> bool:
    """Whether the model in a folder has learned to write from notes."""
    path = readable_dir(folder) / PROVENANCE
    return path.exists() and read_json(path).get("writes_from_notes") is True


def choose_model(own: Path | None, *, is_required: bool = False) -> Path:
    """Return the user's own model if it can write from notes, else an installed base that can.

    Raises OwnwordsError if there is none, or if the own model is required and cannot.
    """
    if own and can_write(own):
        return own
    if own and is_required:
        raise OwnwordsError(
            f"the model in {own} has not learned to write from notes",
            hint=f"make another from a base that can: ownwords make PATH --base {RECOMMENDED}",
        )
    if base := catalogue.note_writer():
        return base
    raise OwnwordsError(
        "no model here can write from notes",
        hint=f"install one that can: ownwords base add {RECOMMENDED}",
    )


def adapter_of(folder: Path) -> Path | None:
    """Return the adapter with which a base writes from notes; None if it needs or has none."""
    return None if has_learned(folder) else catalogue.notes_adapter(folder)


def can_write(folder: Path) -> bool:
    """Whether a model has learned to write from notes, or is a base that has an adapter for it."""
    return has_learned(folder) or catalogue.notes_adapter(folder) is not None


@dataclass(frozen=True)
class Notes:
    """Notes: a title, which may be empty, and paragraphs of lines."""

    title: str
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> list[str]:
        return [*chain.from_iterable(self.paragraphs)]

    @property
    def blocks(self) -> list[str]:
        """The notes of each paragraph, a line each."""
        return ["\n".join(lines) for lines in self.paragraphs]

    @classmethod
    def parse(cls, text: str) -> "Notes":
        """Parse notes, one per line, with or without a bullet; a blank line begins a paragraph.

        Signs and short forms become words; a line with several sentences becomes several lines.
        """
        lines = [_BULLET.sub("", line).strip() for line in text.splitlines()]
        title = ""
        first = next((number for number, line in enumerate(lines) if line), None)
        if first is not None and (heading := _TITLE.fullmatch(lines[first])):
            title, lines = heading[1], lines[first + 1 :]
        groups = groupby(lines, key=bool)
        parts = (chain.from_iterable(map(sentences_of_note, group)) for is_, group in groups if is_)
        paragraphs = tuple(filter(None, map(tuple, parts)))
        if not paragraphs:
            raise OwnwordsError(
                "there are no notes", hint="write a line for each sentence: who, what, where, when"
            )
        return cls(title, paragraphs)


@dataclass(frozen=True)
class Doubt:
    """What the user compares with the notes: a line, a name or number, or copied words."""

    kind: Literal["missing", "added", "copied"]
    text: str
    post: str = ""  # the title

    def __str__(self) -> str:
        where = {
            "missing": "perhaps not in the text",
            "added": "not in the notes",
            "copied": f"copied from “{self.post}”",
        }
        return f"{where[self.kind]}: {self.text}"


@dataclass(frozen=True)
class DraftLine:
    """A line of notes and the sentence for it; `text` is the note itself if it was not `kept`.

    `before` is the text between the line and the one before it; for the first line, the title. A
    model on a server writes a paragraph for all its lines at once; `doubts` are what cannot be
    shown to be kept in it.
    """

    note: str
    text: str
    kept: bool
    before: str = ""
    doubts: tuple[Doubt, ...] = ()

    def __str__(self) -> str:
        return self.text if self.kept else f"[{self.note}]"


@dataclass(frozen=True)
class Draft:
    """A text written from notes, with one line per note or per paragraph of notes."""

    lines: tuple[DraftLine, ...]

    def __str__(self) -> str:
        return "".join(f"{line.before}{line}" for line in self.lines)

    def to_dict(self) -> dict[str, Any]:
        return {"text": str(self), "lines": [asdict(line) for line in self.lines]}


def write_lines(
    model: Model, notes: Notes, *, seed: int = 1, begun: Sequence[DraftLine] = ()
) -> Iterator[DraftLine]:
    """Write a text from notes with a model that has learned to; yield each line once written.

    `begun` are the first lines of an interrupted draft: with the same seed, the rest is the same as
    without the interruption. Raises OwnwordsError if they are not of these notes.
    """
    rest = begun_lines(notes.lines, begun)
    gap, before = f"{notes.title}\n\n" if notes.title else "", ""
    with closing(SentenceWriter(model)) as writer:
        for number, paragraph in enumerate(notes.paragraphs):
            prompt = prompt_of(paragraph, "" if number else notes.title, before)
            known = Content.of("\n".join([notes.title, before, *notes.lines]))
            text = ""
            for place, note in enumerate(paragraph):
                first_seed = seed * SEEDS + 1000 * number + CANDIDATES * place
                line = next(rest, None)
                if line is None:
                    wanted, later = map(Content.of, (note, "\n".join(paragraph[place + 1 :])))
                    found = map(Content.of, writer.candidates(prompt + text, note, first_seed))
                    kept = [x for x in found if x.text not in text and _keeps(x, wanted, known)]
                    scores = _scores(writer, kept, wanted, later, prompt, text) if kept else {}
                    best = max(scores, key=lambda x: (scores[x], x), default="")
                    line = DraftLine(note, best or note, bool(best))
                yield replace(line, before=gap)
                # A line that stays a note is followed by the next line, too. It gets a full stop,
                # or the model would continue it.
                end = "" if line.text.endswith(ENDS) else "."
                text, gap = f"{text} {line.text}{end}".strip(), " "
            gap, before = "\n\n", beginning_of(text) or before


def with_rules(lines: Iterable[DraftLine], choices: MarkChoices) -> Iterator[DraftLine]:
    """Yield the lines of a draft with the author's own rules applied."""
    for line in lines:
        yield replace(line, text=choices.follow(line.text)) if line.kept else line


def begun_lines(notes: Sequence[str], begun: Sequence[DraftLine]) -> Iterator[DraftLine]:
    """Return the first lines of a draft that was interrupted; OwnwordsError if not of its notes."""
    if [line.note for line in begun] != [*notes[: len(begun)]]:
        raise OwnwordsError(
            "the notes have changed since the draft was begun", hint="begin a new draft"
        )
    return iter(begun)


def _keeps(sentence: Content, note: Content, known: Content) -> bool:
    """Whether a sentence says what its note says, and nothing that is not known."""
    return (
        sentence.text.endswith(ENDS)
        and sentence.share_of(note) >= MIN_SHARE
        and len(sentence.text) <= _MAX_LENGTH * len(note.text) + 40
        and sentence.keeps_facts_of(note, known)
        and _QUOTE_MARK.findall(sentence.text) == _QUOTE_MARK.findall(note.text)
    )


def _scores(
    writer: "SentenceWriter",
    sentences: Sequence[Content],
    note: Content,
    later: Content,
    prompt: str,
    text: str,
) -> dict[str, float]:
    """Return the scores: the note's words count for a sentence, others and bits per letter against.

    Words of `later` notes count most against it.
    """
    others = later.words - note.words
    texts = [each.text for each in sentences]
    # After terse notes, terse English is likely; only the text so far shows full English.
    # The mean of both: 65 of 108 lines make sense, 55 by the first alone (docs/performance.md).
    after_notes, after_text = (writer.bits(before, texts) for before in (prompt + text, text))
    scores = {}
    for each, *bits in zip(sentences, after_notes, after_text, strict=True):
        added = len(each.words - note.words) / (len(each.words) or 1)
        ahead = len(each.words & others) / (len(others) or 1)
        cost = 0.3 * added + 0.5 * ahead + sum(bits) / 2 / len(each.text)
        scores[each.text] = each.share_of(note) - cost
    return scores


class SentenceWriter:
    """Writes and scores sentences with a model; what the model has read stays in its cache."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._scheduler: BatchScheduler | None = None

    def close(self) -> None:
        if self._scheduler:
            self._scheduler.close()

    def candidates(self, prompt: str, note: str, seed: int) -> set[str]:
        """Return sentences that the model writes for a note after a prompt."""
        max_tokens = 16 + len(note)
        written = self._model.write_several(
            prompt,
            seeds=range(seed, seed + CANDIDATES),
            max_tokens=max_tokens,
            stops=["\n"],
            sentence=True,
            scheduler=self._scheduler_for(prompt, max_tokens),
            **_SAMPLING,
        )
        return {each.strip() for each in written}

    def bits(self, before: str, texts: Sequence[str]) -> list[float]:
        """Return how many bits the model takes for each text after `before`."""
        space = " " if before and before[-1] != "\n" else ""
        texts = [f"{space}{each}" for each in texts]
        longest = max((len(each.encode()) for each in texts), default=0)
        return self._model.score(before, texts, self._scheduler_for(before, longest))

    def _scheduler_for(self, prompt: str, more: int) -> BatchScheduler:
        """Return the scheduler, or a longer one if a prompt and `more` tokens do not fit."""
        tokens = 1 + len(self._model.tokenizer.encode(prompt)) + more
        if not self._scheduler or self._scheduler.length < min(tokens, self._model.engine.context):
            self.close()
            # One row more than candidates, for the text without its notes.
            self._scheduler = self._model.scheduler(CANDIDATES + 1, tokens + _ROOM)
        return self._scheduler
