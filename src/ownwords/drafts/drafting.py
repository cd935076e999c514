"""A text from notes: several candidates a line, and the one that keeps what the line says.

A line whose facts no candidate keeps (`facts.Content`) is left as a note: a small model makes
things up, and what cannot be shown to be kept is not passed off as written.
"""

import math
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from ownwords.base import catalogue
from ownwords.base.known_bases import RECOMMENDED
from ownwords.core.errors import OwnwordsError
from ownwords.drafts.facts import Content
from ownwords.drafts.notes import beginning_of, prompt_of, sentences_of_note
from ownwords.inference.model import Model
from ownwords.inference.text_generation import encode_prompt
from ownwords.models.atomic_dir import readable_dir
from ownwords.models.directory import PROVENANCE
from ownwords.models.untrusted_files import read_json

CANDIDATES = 8
_SAMPLING: dict[str, Any] = {"temperature": 0.7, "top_p": 0.95, "break_loops": True}
SEEDS: Final = 1_000_000  # of the tries of one draft, so that two drafts have none in common
MIN_SHARE = 0.6  # of a line's content words, for the line to count as kept
_MAX_LENGTH = 3.0  # times the characters of the note; more would be made up
_ENDS = tuple('.!?…"”)')
_TITLE = re.compile(r"(?:#+|title:)\s*(.+)", re.IGNORECASE)
_QUOTE_MARK = re.compile('[“”"]')
_BULLET = re.compile(r"^\s*(?:[-*+•–]|\d{1,2}[.)])\s+")


def has_learned(folder: Path) -> bool:
    """Whether the model in a folder has learned to write from notes."""
    path = readable_dir(folder) / PROVENANCE
    return path.exists() and read_json(path).get("writes_from_notes") is True


def require_learned(folder: Path) -> None:
    """Raise OwnwordsError for a model that has not learned to write from notes."""
    if not has_learned(folder):
        raise OwnwordsError(
            f"the model in {folder} has not learned to write from notes",
            hint=f"make another from a base that can: ownwords make PATH --base {RECOMMENDED}",
        )


def choose_model(own: Path | None) -> Path:
    """The user's own model if it can write from notes, else an installed base that can."""
    if own and can_write(own):
        return own
    if base := catalogue.note_writer():
        return base
    raise OwnwordsError(
        "no model here can write from notes",
        hint=f"get one that can, before or after your own: ownwords base add {RECOMMENDED}",
    )


def adapter_of(folder: Path) -> Path | None:
    """The adapter with which a base writes from notes; None if none is needed or there is none."""
    return None if has_learned(folder) else catalogue.notes_adapter(folder)


def can_write(folder: Path) -> bool:
    """Whether a model has learned to write from notes, or is a base that has an adapter for it."""
    return has_learned(folder) or catalogue.notes_adapter(folder) is not None


@dataclass(frozen=True)
class Notes:
    """Somebody's notes: a title, if there is one, and paragraphs of lines."""

    title: str
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> list[str]:
        return [*chain.from_iterable(self.paragraphs)]

    @classmethod
    def parse(cls, text: str) -> "Notes":
        """Read notes: a line each, with a bullet or without; a blank line begins a paragraph.

        Signs and short forms become words, and a line of several sentences several lines.
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
class DraftLine:
    """A line of notes and what was written of it; `text` is the note itself if nothing keeps it.

    `before` stands between the line and the draft before it; the title, before the first.
    """

    note: str
    text: str
    kept: bool
    before: str = ""

    def __str__(self) -> str:
        return self.text if self.kept else f"[{self.note}]"


@dataclass(frozen=True)
class Draft:
    """A text written from notes, a line of it for each note."""

    lines: tuple[DraftLine, ...]

    def __str__(self) -> str:
        return "".join(f"{line.before}{line}" for line in self.lines)

    def to_dict(self) -> dict[str, Any]:
        return {"text": str(self), "lines": [vars(line) for line in self.lines]}


def draft(model: Model, notes: Notes, *, seed: int = 1, others: Sequence[Draft] = ()) -> Draft:
    """Write a text from notes with a model that has learned to; see `write_lines`."""
    return Draft(tuple(write_lines(model, notes, seed=seed, others=others)))


def write_lines(
    model: Model,
    notes: Notes,
    *,
    seed: int = 1,
    others: Sequence[Draft] = (),
    begun: Sequence[DraftLine] = (),
) -> Iterator[DraftLine]:
    """Write a text from notes, yielding each line as soon as it is written.

    A sentence of `others`, earlier drafts of these notes, is taken only if nothing else keeps the
    line. `begun` are the first lines of a draft that was broken off: with the same seed the rest
    follows as if it had not been. Raises OwnwordsError if they are not of these notes.
    """
    if [line.note for line in begun] != notes.lines[: len(begun)]:
        raise OwnwordsError("the notes have changed since the draft was begun", hint="begin anew")
    used = {line.text for other in others for line in other.lines}
    rest, gap, before = iter(begun), f"{notes.title}\n\n" if notes.title else "", ""
    for number, lines in enumerate(notes.paragraphs):
        title = notes.title if not number else ""
        first = seed * SEEDS + 1000 * number
        writer = _ParagraphWriter(model, lines, title, before, notes, first, used)
        for line in writer.lines(rest):
            yield replace(line, before=gap)
            gap = " "
        gap, before = "\n\n", beginning_of(writer.text) or before


def candidates(model: Model, prompt: str, note: str, seed: int) -> set[str]:
    """Sentences that the model writes of a note, after the notes and what is written so far."""
    written = model.write_several(
        prompt,
        seeds=range(seed, seed + CANDIDATES),
        max_tokens=16 + len(note),
        stops=["\n"],
        sentence=True,
        **_SAMPLING,
    )
    return {each.strip() for each in written}


def bits(model: Model, prompt: str, text: str) -> float:
    """How many bits the model takes for a text after a prompt."""
    ids = encode_prompt(model.tokenizer, prompt)
    own = model.tokenizer.encode(f" {text}" if prompt and prompt[-1] != "\n" else text)
    logits = model.logits([*ids, *own[:-1]], start=len(ids) - 1).astype(np.float64)
    chosen = logits[np.arange(len(own)), own]
    return float((np.logaddexp.reduce(logits, axis=1) - chosen).sum() / math.log(2))


class _ParagraphWriter:
    """One paragraph: its notes, and the sentences written so far."""

    def __init__(
        self,
        model: Model,
        notes: Sequence[str],
        title: str,
        before: str,
        all_notes: Notes,
        seed: int,
        used: Set[str],
    ) -> None:
        self.model, self.notes, self.seed, self.used = model, notes, seed, used
        self.prompt = prompt_of(notes, title, before)
        self.text = ""
        self.known = Content.of("\n".join([all_notes.title, before, *all_notes.lines]))

    def lines(self, begun: Iterator[DraftLine]) -> Iterator[DraftLine]:
        """Write the paragraph, a line of its notes at a time; the first ones are `begun`."""
        for number, note in enumerate(self.notes):
            line = next(begun, None) or self._line(number, note)
            # What stays a note stands in the text all the same, for the next line to follow; with
            # an end, or the model would go on with it.
            end = "" if line.text.endswith(_ENDS) else "."
            self.text = f"{self.text} {line.text}{end}".strip()
            yield line

    def _line(self, number: int, note: str) -> DraftLine:
        found = max(self._candidates(number, note), default=None)
        return DraftLine(note, found[-1] if found else note, bool(found))

    def _candidates(self, number: int, note: str) -> Iterator[tuple[bool, float, str]]:
        """Whether another draft lacks it, score and text of each candidate that keeps the facts."""
        wanted = Content.of(note)
        others = Content.of("\n".join(self.notes[number + 1 :])).words - wanted.words
        first = self.seed + CANDIDATES * number
        prompt = self.prompt + self.text
        for text in candidates(self.model, prompt, note, first):
            content = Content.of(text)
            share = content.share_of(wanted)
            if (
                text.endswith(_ENDS)
                and share >= MIN_SHARE
                and len(text) <= _MAX_LENGTH * len(note) + 40
                and content.keeps_facts_of(wanted, self.known)
                and text not in self.text
                and _QUOTE_MARK.findall(text) == _QUOTE_MARK.findall(note)
            ):
                added = len(content.words - wanted.words) / (len(content.words) or 1)
                ahead = len(content.words & others) / (len(others) or 1)
                # After terse notes terse English is likely; the text alone tells what is English.
                # Half of each: 65 of 108 lines make sense, 55 by the first (docs/performance.md).
                both = bits(self.model, prompt, text) + bits(self.model, self.text, text)
                score = share - 0.3 * added - 0.5 * ahead - both / 2 / len(text)
                yield text not in self.used, score, text
