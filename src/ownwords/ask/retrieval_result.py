"""What a search found, and what the reader should know about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.query_terms import QueryTerm
from ownwords.view import format as say

_MOST_NAMED = 4  # terms named in a sentence
_LONGEST_NAMED = 40  # characters of each


@dataclass(frozen=True, slots=True)
class WordSubstitution:
    """A word that no post contains, and the words used instead."""

    original: str
    replacements: tuple[str, ...]

    @property
    def note(self) -> str:
        """The substitution as a sentence."""
        *others, last = (f"“{word}”" for word in self.replacements)
        words = f"{', '.join(others)} and {last}" if others else last
        return f"No post contains “{self.original}”. The search used {words} instead."


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The passages of a search, best first; even a weak result may have some.

    If `is_weak`, nothing relevant was found: `why` gives the reason, and `nearest` has a passage of
    each of the closest posts. `absent` are the question's words that none of the passages contains.
    `window_cosines` are those of each passage's windows by its id, where vectors were searched.
    `without_vector` passages have no vector yet, though vectors were searched.
    """

    passages: tuple[RetrievedPassage, ...]
    is_weak: bool = False
    why: str = ""
    nearest: tuple[RetrievedPassage, ...] = ()
    substitutions: tuple[WordSubstitution, ...] = ()
    absent: tuple[QueryTerm, ...] = ()
    window_cosines: Mapping[int, Sequence[float]] = field(default_factory=dict)
    without_vector: int = 0

    def notes(self) -> tuple[str, ...]:
        """What the reader should know: words that were substituted, and words that are absent."""
        notes = [substitution.note for substitution in self.substitutions]
        if self.absent:
            notes.append(f"None of these passages contains {quoted_list(self.absent, 'or')}.")
        if self.without_vector:
            missing = say.count(self.without_vector, "passage")
            notes.append(
                f"The search by meaning has yet to read {missing}; it compared words there."
            )
        return tuple(notes)

    def searched_question(self, question: str) -> str:
        """The question with the words that replaced those no post contains."""
        return " ".join([question, *(w for each in self.substitutions for w in each.replacements)])


def quoted_list(terms: Sequence[QueryTerm], joined: str) -> str:
    """The terms in quotation marks, the last one joined by "or" or "and"."""
    words = [f"“{say.plain(term.label, _LONGEST_NAMED)}”" for term in terms[:_MOST_NAMED]]
    return f" {joined} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
