"""A draft in the author's manner: light, by single edits, or freely, each sentence anew.

A model that has learned notes writes each sentence with itself as its note. What changes more than
its manner is not taken (`edits.says_the_same`), nor what the author would less likely have written.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from ownwords.core.errors import OwnwordsError
from ownwords.core.sentences import sentences, unwrapped
from ownwords.drafts.drafting import CANDIDATES, SEEDS, bits, candidates
from ownwords.drafts.edits import Edit, Habits, applied, says_the_same, variants
from ownwords.drafts.notes import is_prose, prompt_of
from ownwords.inference.model import Model


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
        return {
            "text": str(self),
            "edits": [{"number": n, **vars(edit)} for n, edit in enumerate(self.edits, 1)],
            "sentences": [vars(sentence) for sentence in self.sentences],
        }


def rewrite(text: str, habits: Habits, model: Model | None = None, *, seed: int = 1) -> Rewrite:
    """Rewrite a draft: freely with a model that has learned notes, lightly without."""
    if not text.strip():
        raise OwnwordsError("the draft is empty", hint="give a text file, or pipe a text in")
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
    for paragraph in map(str.strip, text.split("\n\n")):
        if not is_prose(plain := unwrapped(paragraph)):
            continue
        spans = sentences(plain)
        own = [plain[begin:end] for begin, end in spans]
        notes, written = [sentence.rstrip(".!") for sentence in own], ""
        for number, sentence in enumerate(own):
            first = seed * SEEDS + CANDIDATES * number
            found = candidates(model, prompt_of(notes) + written, sentence, first)
            same = {each for each in [*found, *variants(sentence)] if says_the_same(each, sentence)}
            costs = {each: bits(model, written, each) for each in [sentence, *sorted(same)]}
            best = min(costs, key=costs.__getitem__)
            before = paragraph[slice(*spans[number])]
            yield Sentence(before, before if best == sentence else best)
            written = f"{written} {best}".strip()
