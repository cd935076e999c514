"""Searches the archive by words (BM25) and by vectors, and judges the relevance of the result.

The two are fused by score. Fusion by rank (reciprocal rank fusion) gives the first hit of either
search the same weight, even if only a stray word of the question matched. Here the words count for
as much as they tell: a convex combination of scores (Bruch et al. 2023, "An analysis of fusion
functions for hybrid retrieval") whose weight depends on how rare the words of the question are.
"""

import math
import sqlite3
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from ownwords.ask.index import TOKENIZER, Floats, Ids, SearchIndex, StoredVectors, folded
from ownwords.ask.passages import Passage
from ownwords.ask.query import (
    OVERVIEW,
    QueryTerm,
    QueryTerms,
    asks_for_overview,
    normalized_question,
    quotations,
)
from ownwords.evaluation.reference_data import Lexicon
from ownwords.view import format as say

if TYPE_CHECKING:
    from ownwords.ask.encoder import Embedder


Ranking = list[tuple[int, float]]  # ids of chunks and their scores, best first

RANKED = 60  # chunks of a ranking
# What the best match of words adds to a cosine if each stands in one passage only: of 0.2 to 0.8,
# on 44 questions in other words about five archives, 0.2 to 0.4 found the most (docs/log.md).
_WORDS_WEIGHT = 0.3


def fuse(by_text: Ranking, passages: Ids, cosines: Floats, rarity: float) -> Ranking:
    """Rank the best of both: cosine + 0.3 * rarity² * text score / best text score.

    `passages` are the ids with a vector, in order; a passage without one counts as the last of the
    best by cosine. `rarity`, from 0 to 1, is that of the question's words: words that many passages
    have rank little, since questions in other words than the post's consist of them.
    """
    if not len(passages):
        return by_text
    best = nearest(passages, cosines, RANKED)
    least = best[-1][1]
    known = dict(best)
    ids = [id_ for id_, _ in by_text]
    places = np.minimum(np.searchsorted(passages, ids), len(passages) - 1)
    for id_, place in zip(ids, places.tolist(), strict=True):
        known[id_] = float(cosines[place]) if passages[place] == id_ else least
    weight = _WORDS_WEIGHT * rarity**2
    top = by_text[0][1] if by_text else 1.0
    text = {id_: score / top for id_, score in by_text}
    fused = [(id_, cosine + weight * text.get(id_, 0.0)) for id_, cosine in known.items()]
    return sorted(fused, key=lambda entry: (-entry[1], entry[0]))


def nearest(passages: Ids, cosines: Floats, limit: int) -> Ranking:
    """The passages with the highest cosines, best first, equal ones by id."""
    if not len(passages) or limit < 1:
        return []
    if limit < len(passages):
        places = np.argpartition(-cosines, limit - 1)[:limit]
    else:
        places = np.arange(len(passages))
    places = places[np.lexsort((passages[places], -cosines[places]))]
    return list(zip(passages[places].tolist(), cosines[places].tolist(), strict=True))


_MAX_NAMED = 4  # terms named in a sentence
_LONGEST_NAMED = 40  # characters of each


@dataclass(frozen=True, slots=True)
class WordSubstitution:
    """A word that no post contains, and the words used instead."""

    original: str
    replacements: tuple[str, ...]

    @property
    def note(self) -> str:
        """The substitution as a sentence."""
        words = say.joined(f"“{word}”" for word in self.replacements)
        return f"No post contains “{self.original}”. The search used {words} instead."


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The passages of a search, best first; even a weak result may have some.

    If `is_weak`, nothing relevant was found: `why` gives the reason, and `nearest` has a passage of
    each of the closest posts. `absent` are the question's words that none of the passages contains.
    `window_cosines` are those of each passage's windows by its id, where vectors were searched.
    `without_vector` passages have no vector yet, though vectors were searched.
    """

    passages: tuple[Passage, ...]
    is_weak: bool = False
    why: str = ""
    nearest: tuple[Passage, ...] = ()
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


def quoted_list(terms: Sequence[QueryTerm], word: str) -> str:
    """The terms in quotation marks, the last one joined by "or" or "and"."""
    labels = (say.plain(term.label, _LONGEST_NAMED) for term in terms[:_MAX_NAMED])
    return say.joined((f"“{label}”" for label in labels), word)


_MOST = 6  # maximum number of substitutes for a word
# Letters that many keyboards lack, and that Unicode does not decompose.
_TYPED = str.maketrans(
    {"ß": "ss", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}
)
_UMLAUTS = (("ae", "a"), ("oe", "o"), ("ue", "u"))
_COMPOUND = 5  # minimum letters of a word to look for in compounds
# Shorter words are too often one letter away from another word, longer ones are no words.
_MISTYPED, _LONGEST_WORD = 7, 40
_FORM = 0.8  # likeness of two forms of a word, by difflib


class IndexVocabulary:
    """The stems in an index by their plain spelling; read when first needed."""

    def __init__(self, index: SearchIndex) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._generation = ""
        self._stems: dict[str, list[str]] = {}

    def substitutes(self, word: str, language: str = "en") -> tuple[str, ...]:
        """The words of the archive to search for in place of a word that it lacks.

        Two words for one ("e-mail" for "email") and other spellings ("strasse") first; in languages
        other than English, compounds and other forms; last, words at one typo's distance. A word of
        English has no other spelling and is no typo ("drought" is none of "draught").
        """
        if len(word) > _LONGEST_WORD:
            return ()
        pairs = (f"{word[:at]} {word[at:]}" for at in range(1, len(word)))
        if split := [pair for pair in pairs if self._index.has(f'"{pair}"')]:
            return tuple(split[:_MOST])
        if language == "en" and _lexicon().knows(word):
            return ()
        stems, plain = self._current(), _plain_spelling(_stem(word))
        if plain in stems:
            return tuple(stems[plain][:_MOST])
        similar: list[str] = []
        if language != "en" and len(plain) >= _COMPOUND:
            similar = [each for each in stems if each.startswith(plain) or each.endswith(plain)]
            similar.sort(key=lambda each: (len(each), each))
        if not similar and (language != "en" or len(word) >= _MISTYPED):
            among = [each for each in stems if each[:1] == plain[:1]]
            likeness = _FORM if language != "en" else 0.99 - 1 / len(plain)  # one letter differs
            similar = get_close_matches(plain, among, _MOST, likeness)
        return tuple(stem for each in similar for stem in stems[each])[:_MOST]

    def _current(self) -> dict[str, list[str]]:
        generation = self._index.generation()
        with self._lock, self._index.reading() as db:
            if self._generation != generation:
                db.execute(
                    "CREATE VIRTUAL TABLE IF NOT EXISTS"
                    " temp.words USING fts5vocab(main, chunk_search, row)"
                )
                stems: dict[str, list[str]] = {}
                for (stem,) in db.execute("SELECT term FROM temp.words ORDER BY term"):
                    stems.setdefault(_plain_spelling(stem), []).append(stem)
                self._generation, self._stems = generation, stems
            return self._stems


@cache
def _lexicon() -> Lexicon:
    return Lexicon.load()


def _stem(word: str) -> str:
    """The stem of a word, made by the tokenizer of the index."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE VIRTUAL TABLE words USING fts5(word, tokenize='{TOKENIZER}')")
        db.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(words, row)")
        db.execute("INSERT INTO words VALUES (?)", (word,))
        return " ".join(row[0] for row in db.execute("SELECT term FROM stems"))


def _plain_spelling(stem: str) -> str:
    """A word as typed on a keyboard without accents."""
    plain = stem
    if not stem.isascii():
        parts = unicodedata.normalize("NFKD", stem.translate(_TYPED))
        plain = "".join(letter for letter in parts if not unicodedata.combining(letter))
    for two, one in _UMLAUTS:
        plain = plain.replace(two, one)
    return plain


MAX_OF_A_POST = 3  # passages, so that one long post cannot push out the others

# BM25 weights of title, heading, date and text.
_WEIGHTS = (5.0, 2.0, 1.0, 1.0)
_AT_ONCE = 16
# Chunks are looked up by the rarest words, up to this many matches in all: BM25 is computed for
# each match, and common words say little.
_MAX_HELD = 6000
_MAX_WORDS = 24
# A passage is a copy if this share of its runs of 5 words occurs in those before it.
_COPY_SHARE, _RUN = 0.6, 5
# Score factor of somebody else's words.
_OTHERS_FACTOR = 0.8
# A chunk gains this share of the scores of the 2 best other chunks of its post.
_OTHER_CHUNKS, _OTHER_SHARE = 2, 0.2
_NEAREST = 3
# Without vectors a result is weak below this `_strength`, unless at most one word is in no post and
# a passage has two others with this share of the question's IDF: then a note names the word. Of 75
# questions that five archives answer, 2 are refused (11 without the exception), and of 15 about
# other things 14 (as many). A share of 0.34 would refuse 4.
_ENOUGH, _TOGETHER, _SHARE = 0.45, 2, 0.3
# With vectors it is weak if the best cosine + `_STRENGTH_SHARE` * strength is below `_NEAR_ENOUGH`.
# Chosen for all-MiniLM-L6-v2 on questions about three archives: of 51 that they answer 1 is
# refused, of 15 about other things all are.
_STRENGTH_SHARE, _NEAR_ENOUGH = 0.1, 0.38
# With fewer than 50 chunks IDF means little: half of the words in one chunk are enough.
_FEW, _HALF = 50, 0.5
_MIN_IDF = 1e-6  # for terms in half of the chunks or more
_MAX_SUBSTITUTED = 12  # words without a match to substitute
_NO_VECTORS = (np.empty(0, np.int64), np.empty(0, np.float32))


class ArchiveSearcher:
    """Searches an index, with vectors if there is an embedder; thread-safe."""

    def __init__(self, index: SearchIndex, embedder: "Embedder | None" = None) -> None:
        self.index = index
        self.embedder = embedder
        self._vocabulary = IndexVocabulary(index)

    def find(self, question: str, limit: int = 8) -> RetrievalResult:
        """The passages that answer a question best, at most `limit`, three of a post.

        A post whose title is the question or quoted in it, or the only one whose title has all of
        its words, comes first.
        """
        terms = QueryTerms.of(question)
        words = self._words(terms)
        by_text = self._rank_by_text(words)
        embedded = self._vectors(question)
        with_vector, cosines = embedded[0].cosines(embedded[1]) if embedded else _NO_VECTORS
        by_vectors = nearest(with_vector, cosines, RANKED)
        phrase_chunks = self.index.chunks_with(_all(terms.phrases)) if terms.phrases else []
        title_chunks, is_title = self._title_matches(question, words, by_text)

        ranking = fuse(by_text, with_vector, cosines, words.rarity)
        ranking = _put_first(_put_first(ranking, _in_order(phrase_chunks, ranking)), title_chunks)
        found_by = {
            "title": set(title_chunks),
            "phrase": set(phrase_chunks),
            "text": {id_ for id_, _ in by_text},
            "vectors": {id_ for id_, _ in by_vectors},
        }
        passages = self._top_passages(ranking, limit, found_by)
        why = ""
        if not is_title:
            why = _weak_reason(terms, words, phrase_chunks, by_text, by_vectors)
        if why and asks_for_overview(question):
            return RetrievalResult((), True, OVERVIEW)
        firsts = {passage.document: passage for passage in reversed(passages)}
        near = [passage for passage in passages if firsts[passage.document] is passage][:_NEAREST]
        return RetrievalResult(
            tuple(passages),
            is_weak=bool(why),
            why=why,
            nearest=tuple(near if why and terms.has_subject else ()),
            substitutions=self._substitutions(words.chunks_of),
            absent=() if why or is_title else words.absent_from({x.id for x in passages}),
            window_cosines={
                x.id: embedded[0].of_windows(embedded[1], x.id) for x in passages if embedded
            },
            without_vector=self.index.size() - len(with_vector) if self.embedder else 0,
        )

    def _words(self, terms: QueryTerms) -> "_Words":
        """The chunks with each word; absent words are substituted if possible."""
        chunks_of: dict[QueryTerm, set[int]] = {}
        unmatched = 0
        for term in terms.words:
            chunks = set(self.index.chunks_with(term.match))
            if not chunks and len(term.words) == 1 and unmatched < _MAX_SUBSTITUTED:
                unmatched += 1
                if others := self._vocabulary.substitutes(term.words[0], terms.language):
                    term = QueryTerm(term.words, others)  # noqa: PLW2901
                    chunks = set(self.index.chunks_with(term.match))
            chunks_of[term] = chunks
        return _Words(chunks_of, self.index.size())

    def _substitutions(self, terms: Iterable[QueryTerm]) -> tuple[WordSubstitution, ...]:
        """The words that no post contains and their replacements, as the posts spell them."""
        substitutions = []
        for term in terms:
            spelled = [self.index.spelling_of(QueryTerm((x,)).match) for x in term.alternatives]
            if others := tuple(dict.fromkeys(filter(None, spelled))):
                substitutions.append(WordSubstitution(term.label, others))
        return tuple(substitutions)

    def _rank_by_text(self, words: "_Words") -> Ranking:
        rare, common = words.by_frequency()
        if not rare:
            return []
        wanted = _any(rare)
        if common:
            # A chunk must contain a rare word; common words then add to its score.
            wanted = f"({_any(rare)}) AND ({_any((*rare, *common))})"
        rows = self.index.rows(
            "SELECT c.id, c.document, f.score * CASE c.whose WHEN 'other' THEN ? ELSE 1.0 END"
            " FROM (SELECT rowid AS id, -bm25(chunk_search, ?, ?, ?, ?) AS score"
            " FROM chunk_search WHERE chunk_search MATCH ? ORDER BY score DESC, id LIMIT ?) f"
            " JOIN chunks c ON c.id = f.id",
            _OTHERS_FACTOR,
            *_WEIGHTS,
            wanted,
            RANKED,
        )
        return _with_post_scores(rows)

    def _vectors(self, question: str) -> tuple[StoredVectors, Floats] | None:
        """The stored vectors and that of the question; None if most passages have none yet.

        The few that have one would push out all others, whatever their words.
        """
        original = normalized_question(question)
        if self.embedder is None or not original:
            return None
        vectors = self.index.vectors(self.embedder.name)
        if not len(vectors) or 2 * len(vectors.firsts) < self.index.size():
            return None
        return vectors, self.embedder.embed([self.embedder.question_prompt + original])[0]

    def _title_matches(
        self, question: str, words: "_Words", ranking: Ranking
    ) -> tuple[list[int], bool]:
        """The best chunk of each post that the question names, and whether by its exact title.

        That is the title that is the whole question or a quoted part of it, or else the only one
        that has all words of the question: "What is Ogooreck?" asks for the post "Ogooreck, a
        sneaky testing library", not for one that names it more often.
        """
        titles = {folded(part) for part in (normalized_question(question), *quotations(question))}
        exact = self.index.documents_titled(titles - {""})
        named = exact
        if not exact and words.chunks_of and all(words.chunks_of.values()):
            with_all = self.index.documents_with(f"title : ({_all(words.chunks_of)})", most=2)
            named = with_all if len(with_all) == 1 else []
        best = (_in_order(self.index.chunks(document), ranking)[:1] for document in named)
        return [id_ for ids in best for id_ in ids], bool(exact)

    def _top_passages(
        self, ranking: Ranking, limit: int, found_by: Mapping[str, set[int]]
    ) -> list[Passage]:
        """The first passages, without copies and with at most three of a post."""
        chosen: list[Passage] = []
        of_post: Counter[str] = Counter()
        shown: set[tuple[str, ...]] = set()
        for start in range(0, len(ranking), _AT_ONCE):
            some = ranking[start : start + _AT_ONCE]
            by = {
                id_: tuple(name for name, ids in found_by.items() if id_ in ids) for id_, _ in some
            }
            for passage in self.index.passages(some, by):
                if len(chosen) == limit:
                    return chosen
                if of_post[passage.document] == MAX_OF_A_POST:
                    continue
                word_runs = _runs(passage.text)
                if len(word_runs & shown) > _COPY_SHARE * len(word_runs):
                    continue
                of_post[passage.document] += 1
                shown |= word_runs
                chosen.append(passage)
        return chosen


@dataclass(frozen=True)
class _Words:
    """The words of a question, the chunks that have each, and the number of all chunks.

    What a word tells is its inverse document frequency (IDF), as in SQLite's bm25.
    """

    chunks_of: Mapping[QueryTerm, Set[int]]
    size: int

    def _idf(self, chunks: Set[int]) -> float:
        return max(_MIN_IDF, math.log((self.size - len(chunks) + 0.5) / (len(chunks) + 0.5)))

    def _told_by(self, terms: Iterable[QueryTerm]) -> float:
        return sum(self._idf(self.chunks_of[term]) for term in terms)

    @cached_property
    def _total(self) -> float:
        return self._told_by(self.chunks_of)

    @cached_property
    def _present(self) -> float:
        return self._told_by(term for term, chunks in self.chunks_of.items() if chunks)

    @property
    def rarity(self) -> float:
        """The mean IDF of the words relative to the largest, 0 for absent words."""
        most = len(self.chunks_of) * self._idf(set())
        return self._present / most if self.chunks_of else 0.0

    def absent_from(self, ids: Set[int]) -> tuple[QueryTerm, ...]:
        """The words that none of these chunks has."""
        return tuple(term for term, chunks in self.chunks_of.items() if not chunks & ids)

    def together(self, by_text: Ranking) -> list[list[QueryTerm]]:
        """The words that each chunk of a ranking has."""
        terms = self.chunks_of.items()
        return [[term for term, chunks in terms if id_ in chunks] for id_, _ in by_text]

    def strength(self, by_text: Ranking, together: Sequence[Sequence[QueryTerm]]) -> float:
        """How much of what the question says the best passage says, from 0 to 1.

        The BM25 score of the best passage, relative to the summed IDF of the words and multiplied
        by the share of that IDF that occurs in any post.
        """
        if not by_text:
            return 0.0
        if self.size < _FEW:
            most = max(map(len, together), default=0)
            return min(1.0, most / len(self.chunks_of) * _ENOUGH / _HALF)
        return min(1.0, by_text[0][1] / self._total * self._present / self._total)

    def largest_share(self, together: Sequence[Sequence[QueryTerm]]) -> float:
        """The largest share of the summed IDF in a passage with `_TOGETHER` words."""
        told = (self._told_by(each) for each in together if len(each) >= _TOGETHER)
        return max(told, default=0.0) / self._total if self._total else 0.0

    def by_frequency(self) -> tuple[list[QueryTerm], list[QueryTerm]]:
        """The rare words that select chunks, and the common ones that only add to their scores."""
        counts = {term: len(chunks) for term, chunks in self.chunks_of.items() if chunks}
        ordered = sorted(counts, key=lambda term: counts[term])[:_MAX_WORDS]
        sums = list(accumulate(counts[term] for term in ordered))
        rare = max(1, sum(held <= _MAX_HELD for held in sums))
        return ordered[:rare], ordered[rare:]


def _weak_reason(
    terms: QueryTerms,
    words: _Words,
    phrase_chunks: Sequence[int],
    by_text: Ranking,
    by_vectors: Ranking,
) -> str:
    """Why the passages are not relevant; empty if they are."""
    if not terms.has_subject:
        return "the question has no word to search for"
    if terms.phrases:
        said = quoted_list(terms.phrases, "and")
        return "" if phrase_chunks else f"no post contains {said} word for word"
    together = words.together(by_text)
    strength = words.strength(by_text, together)
    absent = [term for term, chunks in words.chunks_of.items() if not chunks]
    if by_vectors:
        is_enough = by_vectors[0][1] + _STRENGTH_SHARE * strength >= _NEAR_ENOUGH
    else:
        shares = len(absent) <= 1 and words.largest_share(together) >= _SHARE
        is_enough = strength >= _ENOUGH or shares
    # "limescale" asks where the word is; only a whole question can ask what no post says.
    has_all_words = any(len(each) == len(words.chunks_of) for each in together)
    if is_enough or (terms.is_bare and has_all_words):
        return ""
    if absent:
        return f"no post contains {quoted_list(absent, 'or')}"
    in_one = " together" if len(words.chunks_of) > 1 else ""
    return f"no passage is about {quoted_list(list(words.chunks_of), 'and')}{in_one}"


def _with_post_scores(rows: Iterable[tuple[int, str, float]]) -> Ranking:
    """Rank rows of (id, document, score), adding a share of the scores of a post's other chunks."""
    scores: dict[str, list[float]] = {}
    ordered = sorted(rows, key=lambda row: (-row[2], row[0]))
    for _, document, score in ordered:
        scores.setdefault(document, []).append(score)
    ranking: Ranking = []
    for id_, document, score in ordered:
        best = scores[document][: _OTHER_CHUNKS + 1]
        neighbours = sum(best) - (score if score >= best[-1] else best[-1])
        ranking.append((id_, score + _OTHER_SHARE * neighbours))
    return sorted(ranking, key=lambda entry: (-entry[1], entry[0]))


def _all(terms: Iterable[QueryTerm]) -> str:
    return " AND ".join(term.match for term in terms)


def _any(terms: Iterable[QueryTerm]) -> str:
    return " OR ".join(term.match for term in terms)


def _in_order(ids: Iterable[int], ranking: Ranking) -> list[int]:
    places = {id_: place for place, (id_, _) in enumerate(ranking)}
    return sorted(ids, key=lambda id_: (places.get(id_, len(places)), id_))


def _put_first(ranking: Ranking, ids: Sequence[int]) -> Ranking:
    """The ranking with these chunks first, with scores to match."""
    top = ranking[0][1] if ranking else 0.0
    first = [(id_, top + len(ids) - place) for place, id_ in enumerate(ids)]
    return first + [entry for entry in ranking if entry[0] not in set(ids)]


def _runs(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return set(zip(*(words[at:] for at in range(min(_RUN, len(words)))), strict=False))
