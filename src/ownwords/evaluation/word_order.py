"""Measures whether word order follows the author's patterns, independent of the words themselves.

Each word is reduced to a class, without knowledge of the language: the 150 most frequent words stay
themselves, other words become their last letter, names "^" and numbers "0". Three classes in a row
are a pattern ("turn" in the code). When real writers combine three words for the first time, about
half of these combinations have a pattern they have used before. Text strung together without a plan
reaches less, even where each word may follow the previous one. Word sequences that occur in the
posts are not counted, since they may be copied.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FREQUENT = 150  # words; 50, 400 or longer endings separate the columnist's texts less well
TURN = 3  # words

_MOST = 500_000  # approximate limit of words read from the training posts: more change little
_PART = re.compile(r"\w+(?:['’]\w+)*|[.!?…:;,]|\n")
_ENDS = frozenset(".!?…:\n")

_Turn = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WordOrder:
    """The patterns and the word sequences that occur in an author's posts."""

    frequent: frozenset[str]
    sequences: frozenset[_Turn]
    turns: frozenset[_Turn]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "WordOrder":
        """Collect the patterns and word sequences of texts; of long corpora only every nth text."""
        every = 1 + sum(map(len, texts)) // (6 * _MOST)
        looked_at = texts[::every]
        counts = Counter(
            part.casefold()
            for text in looked_at
            for part in _PART.findall(text)
            if part[0].isalpha()
        )
        frequent = frozenset(word for word, _ in counts.most_common(FREQUENT))
        sequences: set[_Turn] = set()
        turns: set[_Turn] = set()
        for text in looked_at:
            for words, turn in _taken(text, frequent):
                sequences.add(words)
                turns.add(turn)
        return cls(frequent, frozenset(sequences), frozenset(turns))

    def odd(self, text: str) -> tuple[int, int]:
        """Count the word sequences new to the posts: (those with an unknown pattern, all)."""
        new = [turn for words, turn in _taken(text, self.frequent) if words not in self.sequences]
        return sum(turn not in self.turns for turn in new), len(new)


def _taken(text: str, frequent: frozenset[str]) -> Iterator[tuple[_Turn, _Turn]]:
    """Yield every `TURN` consecutive words or marks of a text with their pattern."""
    words: list[str] = []
    parts: list[str] = []
    begins = True
    for word in _PART.findall(text):
        plain = word.casefold()
        words.append(plain)
        if not word[0].isalnum():
            begins = word in _ENDS
            parts.append("." if begins else word)
            continue
        if plain in frequent:
            parts.append(plain)
        elif word[0].isdigit():
            parts.append("0")
        elif word[0].isupper() and not begins:
            parts.append("^")
        else:
            parts.append("-" + plain[-1])
        begins = False
    runs = ([tokens[i:] for i in range(TURN)] for tokens in (words, parts))
    yield from zip(*(zip(*run, strict=False) for run in runs), strict=True)
