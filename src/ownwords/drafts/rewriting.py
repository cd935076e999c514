"""A draft in the author's manner: light, by single edits, or freely, by notes of its sentences.

Freely written sentences are those of `drafting` from the fullest notes that the rules make of the
draft's. One that does not show to keep what the draft's says leaves that as it is.
"""

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from ownwords.core.sentences import sentences
from ownwords.drafts import drafting
from ownwords.drafts.edits import Edit, Habits, applied
from ownwords.drafts.notes import Manner, is_prose, note_of
from ownwords.inference.model import Model

_FULL = Manner(
    drops_prepositions=False,
    drops_persons=False,
    dropped_share=0.0,
    plain_forms=False,
    small_letters=False,
)
_LEAST_KEPT = 0.9  # of a sentence's content words, or it stays as it was


@dataclass(frozen=True)
class Sentence:
    """A sentence of the draft and what was written in its place, the same if nothing was."""

    before: str
    after: str

    @property
    def is_rewritten(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Rewrite:
    """A rewritten draft: its sentences, if they were written freely, then single edits."""

    text: str  # before the edits, which are by its characters
    edits: tuple[Edit, ...]
    sentences: tuple[Sentence, ...] = ()

    def __str__(self) -> str:
        return applied(self.text, self.edits)

    def without(self, numbers: Collection[int]) -> "Rewrite":
        """The rewrite with some edits undone; they are counted from 1."""
        kept = (edit for number, edit in enumerate(self.edits, 1) if number not in numbers)
        return Rewrite(self.text, tuple(kept), self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """The rewrite for JSON."""
        return {
            "text": str(self),
            "edits": [{"number": n, **vars(edit)} for n, edit in enumerate(self.edits, 1)],
            "sentences": [vars(sentence) for sentence in self.sentences],
        }


def rewrite(text: str, habits: Habits, model: Model | None = None, *, seed: int = 1) -> Rewrite:
    """Rewrite a draft: freely with a model that has learned notes, lightly without."""
    replaced = tuple(_freely(text, model, seed)) if model else ()
    parts, at = [], 0
    for sentence in replaced:
        start = text.index(sentence.before, at)
        parts += [text[at:start], sentence.after]
        at = start + len(sentence.before)
    written = "".join([*parts, text[at:]])
    return Rewrite(written, tuple(habits.edits(written)), replaced)


def _freely(text: str, model: Model, seed: int) -> Iterator[Sentence]:
    """The sentences of a draft's paragraphs of prose, in order."""
    rng = random.Random(seed)  # noqa: S311 - not a secret, and the manner leaves it nothing to draw
    before = ""
    for paragraph in filter(is_prose, map(str.strip, text.split("\n\n"))):
        own = [paragraph[begin:end] for begin, end in sentences(paragraph)]
        noted = [note_of(sentence, _FULL, rng) or sentence for sentence in own]
        notes = drafting.Notes("", (tuple(noted),))
        lines = drafting.draft(model, notes, before=before, least=_LEAST_KEPT, seed=seed).lines
        for sentence, line in zip(own, lines, strict=True):
            yield Sentence(sentence, line.text if line.kept else sentence)
        before = paragraph
