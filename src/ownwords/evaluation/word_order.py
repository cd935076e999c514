"""Whether words follow one another as in the author's sentences, whatever the words are.

Each word has a part in its sentence, as far as that can be seen in any language: one of the most
frequent words is itself; of any other the last letter is kept, of a name its capital, of a number
nothing. Three parts in a row are a turn. Of words put together for the first time, a real writer
takes a turn he has taken before about every second time; whoever strings words together without a
plan does so less often, also where each word may follow the one before. Words that stand so in the
posts already say nothing, as they may be copied, and are not counted.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FREQUENT = 150  # words; on the columnist 50 and 400 tell less apart, and so do longer endings
TURN = 3  # words

_MOST = 500_000  # words of the training posts that are looked at: more would change little
_PART = re.compile(r"\w+(?:['’]\w+)*|[.!?…:;,]|\n")
_ENDS = frozenset(".!?…:\n")

_Turn = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WordOrder:
    """The turns an author's posts take, and the words they are of."""

    frequent: frozenset[str]
    sequences: frozenset[_Turn]
    turns: frozenset[_Turn]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "WordOrder":
        """All that some texts show."""
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
        """How many turns of a text the posts never take, of how many with words new to them."""
        new = [turn for words, turn in _taken(text, self.frequent) if words not in self.sequences]
        return sum(turn not in self.turns for turn in new), len(new)


def _taken(text: str, frequent: frozenset[str]) -> Iterator[tuple[_Turn, _Turn]]:
    """Each few words in a row, and the turn they are."""
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
