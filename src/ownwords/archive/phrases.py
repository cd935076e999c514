"""Favourite phrases: runs of three to seven words that an author repeats.

A phrase is part of a clause, its words separated by single spaces, and occurs in at least three
posts. One of its words is not among the archive's most frequent, none has a digit, and the last is
not one of the most common words. A paragraph of five words or more, or a clause of nine, that is
repeated word for word counts once: a signature or a standard opening.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import log, sqrt
from sys import intern

import numpy as np

from ownwords.archive.report import Phrase, PostSummary
from ownwords.core.text import hash_words

MAX_SAMPLE_WORDS = 1_000_000  # approximate; larger archives are sampled, every nth post
SHOWN = 16

_SHORTEST, _LONGEST = 3, 7
_MIN_POSTS = 3
_FREQUENT = 120  # this many words are too frequent to make a phrase distinctive
_GLUE = 14  # number of commonest words in which no phrase may end
# Minimum words of a repeated clause or paragraph that is counted only once.
_STANDING_CLAUSE, _STANDING_PARAGRAPH = 9, 5

_Run = tuple[str, ...]  # words in lower case


def favourite_phrases(posts: Iterable[PostSummary], text_of: Callable[[str], str]) -> list[Phrase]:
    """Return the best phrases that do not overlap; `text_of` returns a post's own words by id."""
    posts = sorted((post for post in posts if post.own_words), key=lambda post: post.id)
    every = sum(post.own_words for post in posts) // MAX_SAMPLE_WORDS + 1
    repeated = _Repeated()
    texts = [list(_clauses(text_of(post.id), repeated)) for post in posts[::every]]
    # Most runs occur once. Counting the hashes of 3-word runs first avoids storing them.
    hashes = array("q")
    for clauses in texts:
        hashes.extend({hash(run) for _, words in clauses for run in _shortest(words)})
    runs, in_posts = np.unique(np.array(hashes), return_counts=True)
    may_be_frequent = set(runs[in_posts >= _MIN_POSTS].tolist())
    spellings, posts_with = defaultdict[_Run, Counter[str]](Counter), Counter[_Run]()
    for clauses in texts:
        runs_in_post = set()
        for written, words in clauses:
            goes_on = [hash(run) in may_be_frequent for run in _shortest(words)]
            for start in range(len(goes_on)):
                for last in range(start, min(start + _LONGEST - _SHORTEST + 1, len(goes_on))):
                    if not goes_on[last]:
                        break
                    run = words[start : last + _SHORTEST]
                    spellings[run][" ".join(written[start : last + _SHORTEST])] += 1
                    runs_in_post.add(run)
        posts_with.update(runs_in_post)
    counts = Counter(word for clauses in texts for _, words in clauses for word in words)
    total, ranked = counts.total(), sorted(counts.values(), reverse=True) or [0]
    glue, frequent = (ranked[min(rank, len(ranked) // 4)] for rank in (_GLUE, _FREQUENT))
    scores = {}
    for run, number in posts_with.items():
        times = spellings[run].total()
        # Occurrences outside this phrase: a word that is frequent only in it is distinctive.
        elsewhere = [counts[word] - times for word in run]
        if number >= _MIN_POSTS and min(elsewhere) < frequent and elsewhere[-1] < glue:
            # Pointwise mutual information of the words, in nats.
            together = log(times / total) - sum(log(counts[word] / total) for word in run)
            scores[run] = sqrt(number) * together
    phrases, taken = list[Phrase](), set[_Run]()
    for run in sorted(scores, key=lambda run: (-scores[run], run)):
        if len(phrases) < SHOWN and taken.isdisjoint(_shortest(run)):
            taken.update(_shortest(run))
            spelled = spellings[run]
            text = max(spelled, key=lambda text: (spelled[text], text.islower(), text))
            if not any(char.isdigit() for char in text):
                phrases.append(Phrase(text, spelled.total(), posts_with[run]))
    return phrases


def _shortest(words: _Run) -> Iterator[_Run]:
    return zip(*(words[i:] for i in range(_SHORTEST)), strict=False)


class _Repeated(set[int]):
    def has(self, words: _Run, least: int) -> bool:
        """Return whether these words, `least` or more, came before; adds them."""
        size = len(self)
        if len(words) >= least:
            self.add(hash(words))
        return len(words) >= least and len(self) == size


def _clauses(text: str, repeated: _Repeated) -> Iterator[tuple[list[str], _Run]]:
    """Yield the clauses that count, each as its words, and these in lower case."""
    paragraphs = (part for part in text.split("\n\n") if part)
    text = "\n\n".join(
        part
        for part in paragraphs
        if not repeated.has(tuple(part.casefold().split()), _STANDING_PARAGRAPH)
    )
    _, starts, ends = hash_words(text)
    written = list[str]()
    for start, end, after in zip(
        starts.tolist(), ends.tolist(), [*starts[1:].tolist(), -1], strict=False
    ):
        written.append(intern(text[start:end]))
        if after < 0 or text[end:after] not in (" ", "\n", "\xa0"):
            words = tuple(intern(word.casefold().replace("’", "'")) for word in written)
            if not repeated.has(words, _STANDING_CLAUSE):
                yield written, words
            written = []
