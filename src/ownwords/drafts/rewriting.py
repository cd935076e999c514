"""A draft in the author's manner: by single edits, and with a model by its sentences, too.

A model that has learned notes writes each sentence with itself as its note. What changes more than
its manner is not taken (`edits.says_the_same`), nor what the author would less likely have written.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ownwords.core.errors import OwnwordsError
from ownwords.core.sentences import sentences, unwrapped
from ownwords.drafts.edits import Edit, Habits, applied, says_the_same, variants
from ownwords.drafts.prose import prose_of

if TYPE_CHECKING:
    from ownwords.inference.model import Model

_PARAGRAPH = re.compile(r"\S.*(?:\n[ \t]*\S.*)*")
_UNMARKED = str.maketrans("*_", "  ")  # emphasis is kept as `says_the_same` keeps all signs


@dataclass(frozen=True)
class Sentence:
    """A sentence of the draft and what was written in its place, the same if nothing was."""

    start: int  # in the draft
    before: str
    after: str

    @property
    def is_rewritten(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Rewrite:
    """A rewritten draft: its sentences, if a model has read them, then single edits."""

    text: str  # before the edits, which are by its characters
    edits: tuple[Edit, ...]
    sentences: tuple[Sentence, ...] = ()

    def __str__(self) -> str:
        return applied(self.text, self.edits)

    def without(self, numbers: Collection[int]) -> "Rewrite":
        """The rewrite with some edits undone; they are counted from 1."""
        kept = (edit for number, edit in enumerate(self.edits, 1) if number not in numbers)
        return Rewrite(self.text, tuple(kept), self.sentences)

    @property
    def unchanged(self) -> int:
        """How many sentences neither the model nor an edit has changed."""
        longer = count = 0
        for sentence in self.sentences:
            begin = sentence.start + longer
            end = begin + len(sentence.after)
            longer += len(sentence.after) - len(sentence.before)
            is_edited = any(begin <= edit.start < end for edit in self.edits)
            count += not (sentence.is_rewritten or is_edited)
        return count

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": str(self),
            "edits": [{"number": n, **vars(edit)} for n, edit in enumerate(self.edits, 1)],
            "sentences": [vars(sentence) for sentence in self.sentences],
            "unchanged": self.unchanged,
        }


def rewrite(text: str, habits: Habits, model: "Model | None" = None, *, seed: int = 1) -> Rewrite:
    """Rewrite a draft by single edits; with a model that has learned notes by sentences, too."""
    if not text.strip():
        raise OwnwordsError("the draft is empty", hint="give a text file, or pipe a text in")
    replaced = tuple(_sentences(text, model, seed)) if model else ()
    parts, at = [], 0
    for sentence in replaced:
        parts += [text[at : sentence.start], sentence.after]
        at = sentence.start + len(sentence.before)
    written = "".join([*parts, text[at:]])
    return Rewrite(written, tuple(habits.edits(written)), replaced)


def _sentences(text: str, model: "Model", seed: int) -> Iterator[Sentence]:
    """The sentences of the paragraphs that are all prose, in order."""
    from ownwords.drafts.drafting import CANDIDATES, SEEDS, SentenceWriter  # noqa: PLC0415
    from ownwords.drafts.notes import is_prose, prompt_of  # noqa: PLC0415

    masked, _ = prose_of(text)
    with closing(SentenceWriter(model)) as writer:
        for match in _PARAGRAPH.finditer(text):
            paragraph, start = match[0], match.start()
            if paragraph.translate(_UNMARKED) != masked[start : match.end()].translate(_UNMARKED):
                continue
            if not is_prose(plain := unwrapped(paragraph)):
                continue
            spans = sentences(plain)
            own = [plain[begin:end] for begin, end in spans]
            prompt, written = prompt_of([sentence.rstrip(".!") for sentence in own]), ""
            for number, (sentence, (begin, end)) in enumerate(zip(own, spans, strict=True)):
                first_seed = seed * SEEDS + CANDIDATES * number
                found = writer.candidates(prompt + written, sentence, first_seed)
                found.update(variants(sentence))
                same = sorted(each for each in found if says_the_same(each, sentence))
                texts = [sentence, *same]
                bits = writer.bits(written, texts)
                best = texts[bits.index(min(bits))]
                before = paragraph[begin:end]
                yield Sentence(start + begin, before, before if best == sentence else best)
                written = f"{written} {best}".strip()
