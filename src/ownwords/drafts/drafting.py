"""A text from notes: several candidates a line, and the one that keeps what the line says.

A line whose numbers, names, links, quotations or negation no candidate keeps is left as a note: a
small model makes things up, and what cannot be shown to be kept is not passed off as written.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from ownwords.core.errors import OwnwordsError
from ownwords.drafts.notes import Content, beginning_of, prompt_of, sentences_of_note
from ownwords.inference.model import Model
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import encode_prompt
from ownwords.models.atomic_dir import readable_dir
from ownwords.models.directory import PROVENANCE
from ownwords.models.untrusted_files import read_json

CANDIDATES = 8
_SAMPLING = SamplingParams(temperature=0.7, top_p=0.95, break_loops=True)
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
            hint="make another from a base that can: ownwords make PATH --base smollm2-135m",
        )


@dataclass(frozen=True)
class Notes:
    """Somebody's notes: a title, if there is one, and paragraphs of lines."""

    title: str
    paragraphs: tuple[tuple[str, ...], ...]

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
    """A line of notes and what was written of it; `text` is the note itself if nothing keeps it."""

    note: str
    text: str
    kept: bool

    def __str__(self) -> str:
        return self.text if self.kept else f"[{self.note}]"


@dataclass(frozen=True)
class Draft:
    """A text written from notes: its paragraphs, a line each a note."""

    title: str
    paragraphs: tuple[tuple[DraftLine, ...], ...]

    @property
    def lines(self) -> list[DraftLine]:
        return [line for paragraph in self.paragraphs for line in paragraph]

    def __str__(self) -> str:
        parts = [" ".join(map(str, paragraph)) for paragraph in self.paragraphs]
        return "\n\n".join([self.title, *parts] if self.title else parts)

    def to_dict(self) -> dict[str, Any]:
        return {"text": str(self), "lines": [vars(line) for line in self.lines]}


def draft(
    model: Model,
    notes: Notes,
    *,
    seed: int = 1,
    rank: int = 0,
) -> Draft:
    """Write a text from notes with a model that has learned to.

    A `rank` above 0 takes the next best sentence of each line.
    """
    paragraphs: list[tuple[DraftLine, ...]] = []
    before = ""
    for number, lines in enumerate(notes.paragraphs):
        title = notes.title if not number else ""
        writer = _ParagraphWriter(model, lines, title, before, notes, seed + 1000 * number, rank)
        paragraphs.append(tuple(writer.lines()))
        before = beginning_of(writer.text) or before
    return Draft(notes.title, tuple(paragraphs))


def candidates(model: Model, prompt: str, note: str, seed: int) -> set[str]:
    """Sentences that the model writes of a note, after the notes and what is written so far."""
    written = model.write_several(
        prompt,
        seeds=range(seed, seed + CANDIDATES),
        max_tokens=16 + len(note),
        stops=["\n"],
        sentence=True,
        **vars(_SAMPLING),
    )
    return {each.strip() for each in written}


def bits(model: Model, prompt: str, text: str) -> float:
    """How many bits the model takes for a text after a prompt."""
    ids = encode_prompt(model.tokenizer, prompt)
    own = model.tokenizer.encode(f" {text}" if prompt and prompt[-1] != "\n" else text)
    logits = model.logits([*ids, *own])[len(ids) - 1 : -1].astype(np.float64)
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
        rank: int,
    ) -> None:
        self.model, self.notes, self.seed, self.rank = model, notes, seed, rank
        self.prompt = prompt_of(notes, title, before)
        self.text = ""
        everything = [line for lines in all_notes.paragraphs for line in lines]
        self.sources = "\n".join([all_notes.title, before, *everything])

    def lines(self) -> Iterator[DraftLine]:
        """Write the paragraph, a line of its notes at a time."""
        for number, note in enumerate(self.notes):
            found = sorted(self._candidates(number, note), reverse=True)
            text = found[min(self.rank, len(found) - 1)][1] if found else note
            line = DraftLine(note, text, bool(found))
            # What stays a note stands in the text all the same, for the next line to follow; with
            # an end, or the model would go on with it.
            end = "" if text.endswith(_ENDS) else "."
            self.text = f"{self.text} {text}{end}".strip()
            yield line

    def _candidates(self, number: int, note: str) -> Iterator[tuple[float, str]]:
        """The scores and texts of candidates that keep a line's facts and add none."""
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
                and content.keeps_facts_of(wanted, text)
                and not content.invented(self.sources)
                and text not in self.text
                and _QUOTE_MARK.findall(text) == _QUOTE_MARK.findall(note)
            ):
                added = len(content.words - wanted.words) / (len(content.words) or 1)
                ahead = len(content.words & others) / (len(others) or 1)
                # After terse notes terse English is likely; the text alone tells what is English.
                # Half of each: 65 of 108 lines make sense, 55 by the first (docs/performance.md).
                both = bits(self.model, prompt, text) + bits(self.model, self.text, text)
                yield share - 0.3 * added - 0.5 * ahead - both / 2 / len(text), text
