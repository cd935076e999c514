"""Searches the archive by words (BM25) and by vectors; a reader orders and judges the best.

Both searches are fused by score. Fusion by rank would give the first hit of either search the same
weight, even if only a stray word of the question matched. Here the weight of the words depends on
how rare they are: a convex combination of scores (Bruch et al. 2023, "An analysis of fusion
functions for hybrid retrieval"). How the result is described depends mainly on `reader.py`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import numpy as np

from ownwords.ask.index import Floats, Ids, SearchIndex, StoredVectors, folded
from ownwords.ask.passages import (
    Passage,
    PassageExcerpt,
    excerpt_of,
    head_of,
    units,
    window_spans,
)
from ownwords.ask.query import Query, QueryTerm, lacks_amount
from ownwords.ask.reader import Reader, Reading, Window
from ownwords.core.text import Span
from ownwords.view import format as say

if TYPE_CHECKING:
    from ownwords.ask.encoder import Embedder

Ranking = list[tuple[int, float]]  # ids of chunks and their scores, best first
Kind = Literal["answer", "nearest", "absent", "unjudged"]

RANKED = 60  # chunks of a ranking
# What the best match of words adds, in standard deviations of the cosines, if each word occurs in
# only one passage. Measured: docs/log.md.
_WORDS_WEIGHT = 3.0


def fuse(by_text: Ranking, passages: Ids, closeness: Floats, rarity: float) -> Ranking:
    """Rank the best of both: closeness + 3 * rarity² * text score / best text score.

    `passages` are the ids with a vector, in order; a passage without one counts as the last of the
    best. `rarity`, from 0 to 1, is that of the question's words: common words weigh little, because
    a question that paraphrases a post consists of them.
    """
    if not len(passages):
        return by_text
    known = dict(nearest(passages, closeness, RANKED))
    least = min(known.values())
    text = {id_: score / by_text[0][1] for id_, score in by_text}
    for id_, place in zip(text, np.searchsorted(passages, list(text)).tolist(), strict=True):
        has_vector = place < len(passages) and passages[place] == id_
        known[id_] = float(closeness[place]) if has_vector else least
    weight = _WORDS_WEIGHT * rarity**2
    fused = [(id_, close + weight * text.get(id_, 0.0)) for id_, close in known.items()]
    return sorted(fused, key=lambda entry: (-entry[1], entry[0]))


def nearest(passages: Ids, scores: Floats, limit: int) -> Ranking:
    """Return the passages with the highest scores, best first, equal ones by id."""
    places = np.lexsort((passages, -scores))[:limit]
    return list(zip(passages[places].tolist(), scores[places].tolist(), strict=True))


# ---- what was found


# How many passages the reader reads, and the weight of its log odds in their order, in standard
# deviations of the cosines. All were chosen on sources outside its training data: docs/log.md.
_READ, _READING_WEIGHT = 12, 0.6
# Subtracted from the log odds if the best sentence lacks a duration or count asked for.
_NO_AMOUNT = 1.0
# The best passage counts as an answer from these log odds on, after a deduction if the highest
# cosine is below the usual one. If no log odds are positive and that cosine is below `_ABSENT`, the
# archive has nothing about the question.
_ANSWERED, _USUAL_COSINE, _COSINE_WEIGHT, _ABSENT = -0.35, 0.45, 5.0, 0.33


# Questions about the whole archive, which no passage answers.
_OVERVIEW = re.compile(
    r"\b(?:summari[sz]e|summary|overview|sum up|main (?:themes?|topics?|subjects?))\b"
    r"|\bwhat (?:is|are) (?:my|this|the) (?:blog|archive|site|posts|writing) (?:\w+ )?about\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The passages of a search, best first, and how they relate to the question.

    `kind` is "answer"; "nearest" if they are about it, but none clearly answers it; "absent" if the
    archive has nothing about it, and `passages` are then the best of the three closest posts;
    "unjudged" without a reader. `notes` say what is missing.
    """

    passages: tuple[Passage, ...]
    kind: Kind = "answer"
    notes: tuple[str, ...] = ()


def kind_of(odds: float, cosine: float) -> Kind:
    """Return how the passages relate to the question, by the highest log odds and cosine."""
    if odds + _COSINE_WEIGHT * min(0.0, cosine - _USUAL_COSINE) >= _ANSWERED:
        return "answer"
    return "absent" if odds < 0 and cosine < _ABSENT else "nearest"


def _limits(query: Query, unread: int) -> Iterator[str]:
    """Yield notes on what the search cannot do for this question."""
    if not query.has_subject:
        yield "The question contains no word to search for."
    if _OVERVIEW.search(query.text):
        yield "A search cannot summarise the whole archive; the report does."
    if unread:
        of = say.count(unread, "passage")
        yield f"The search by meaning has not read {of} yet: these were searched by words only."


def _named(terms: Iterable[QueryTerm]) -> str:
    labels = [f"“{say.plain(term.label, 40)}”" for term in terms]
    return say.joined(labels[:4], "or")


# ---- the search

MAX_OF_A_POST = 3  # passages, so that one long post cannot push out the others

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
_MIN_IDF = 1e-6  # for terms in half of the chunks or more


class ArchiveSearcher:
    """Searches an index, with vectors if there is an embedder; thread-safe."""

    def __init__(self, index: SearchIndex, embedder: "Embedder | None" = None) -> None:
        self.index = index
        self.embedder = embedder

    def find(self, question: str, limit: int = 8, *, reads: bool = False) -> RetrievalResult:
        """Return the passages that answer a question best, at most `limit`, three per post.

        A post comes first if its title is the question or quoted there, or if only its title has
        all words of the question. If `reads`, a reader orders and judges the others, in half a
        second.
        """
        query = Query.of(question)
        words = _Words(
            {term: set(self.index.chunks_with(term.match)) for term in query.words},
            self.index.size(),
        )
        by_text = self._rank_by_text(words)
        vectors = self._vectors()
        ids, closeness = np.empty(0, np.int64), np.empty(0, np.float32)
        if vectors and query.text:
            of_windows = vectors.of_windows(self._vector_of(query))
            ids, closeness = vectors.passages, vectors.closeness(vectors.cosines(of_windows))
        phrase_chunks = (
            self.index.chunks_with(_matching(" AND ", query.phrases)) if query.phrases else []
        )
        title_chunks, is_title = self._title_matches(query, words, by_text)

        ranking = fuse(by_text, ids, closeness, words.rarity)
        answers: dict[int, float] = {}
        if vectors and len(ids) and query.has_subject and reads and self._reader:
            answers = self._read(query, ranking[:_READ], vectors, of_windows)
            ranking = reordered(ranking, answers)
        ranking = _put_first(_put_first(ranking, _in_order(phrase_chunks, ranking)), title_chunks)
        found_by = {
            "title": set(title_chunks),
            "phrase": set(phrase_chunks),
            "text": {id_ for id_, _ in by_text},
            "vectors": {id_ for id_, _ in nearest(ids, closeness, RANKED)},
        }
        passages = self._top_passages(ranking, limit, found_by)
        notes = []
        unknown = [term for term, chunks in words.chunks_of.items() if not chunks]
        if query.phrases and not phrase_chunks and not is_title:
            notes.append(f"No post contains {_named(query.phrases)}.")
        elif unknown and not len(ids):
            notes.append(f"No post contains {_named(unknown)}.")
        # Only names and numbers: a question may paraphrase everything else.
        named = {term for term in query.names if not (is_title or (term in unknown and notes))}
        if absent := [term for term in words.absent_from(passages) if term in named]:
            notes.append(f"None of these passages contains {_named(absent)}.")
        unread = words.size - len(ids) if self.embedder else 0
        kind: Kind = "unjudged"
        if answers:
            kind = kind_of(max(answers.values()), float(of_windows.max()))
        if phrase_chunks or is_title or (query.is_bare and words.stand_together(by_text)):
            kind = "answer"  # a bare "limescale" asks which posts have the word
        elif kind == "absent" and unread:
            kind = "nearest"  # a passage without a vector may be about it
        if kind == "absent":
            firsts = {passage.document: passage for passage in reversed(passages)}
            passages = [each for each in passages if firsts[each.document] is each][:_NEAREST]
        return RetrievalResult(tuple(passages), kind, (*notes, *_limits(query, unread)))

    @property
    def _reader(self) -> Reader | None:
        return self.embedder.reader if self.embedder else None

    def _read(
        self, query: Query, ranking: Ranking, vectors: StoredVectors, of_windows: Floats
    ) -> dict[int, float]:
        """Return the log odds that the closest window of each passage answers."""
        chosen, cosines = {}, {}
        for passage in self.index.passages(ranking):
            spans = window_spans(passage.text) or [(0, 0)]
            number, cosines[passage.id] = vectors.window(passage.id, of_windows)
            chosen[passage.id] = window_of(passage, spans[number])
        readings = self._readings(query, chosen.values())
        weight = self._reader.cosine_weight if self._reader else 0.0
        answers = {}
        for id_, window in chosen.items():
            reading = readings[window]
            best = max(zip(reading.sentences, window.sentences, strict=True), default=(0, (0, 0)))
            is_lacking = lacks_amount(query.text, window.text[slice(*best[1])])
            answers[id_] = reading.answers + weight * cosines[id_] - _NO_AMOUNT * is_lacking
        return answers

    def _readings(self, query: Query, windows: Iterable[Window]) -> dict[Window, Reading]:
        """Return the question's readings, including those of these windows, each read once."""
        missing = [each for each in windows if each not in query.readings]
        if missing and self._reader:
            read = self._reader.read(query.text, missing)
            query.readings.update(zip(missing, read, strict=True))
        return query.readings

    def excerpts(self, question: str, passages: Sequence[Passage]) -> dict[int, PassageExcerpt]:
        """Return the excerpt of each passage, by its id.

        If `find` had passages read, the reader now reads all windows of the first passage; of the
        others it has read only the closest window.
        """
        query = Query.of(question)
        found = {}
        for place, passage in enumerate(passages):
            spans = units(passage.text)
            shares = [0.0] * len(spans)
            windows = [(at, window_of(passage, at)) for at in window_spans(passage.text)]
            is_first = not place and query.readings
            readings = self._readings(query, (each for _, each in windows if is_first))
            for at, window in windows:
                if reading := readings.get(window):
                    for unit, share in zip(_units_in(spans, at), reading.shares(), strict=True):
                        shares[unit] = max(shares[unit], share)
            found[passage.id] = excerpt_of(query.text, passage.text, shares)
        return found

    def _vector_of(self, query: Query) -> Floats:
        """The vector of a question, made once."""
        assert self.embedder is not None
        name = self.embedder.name
        if name not in query.vectors:
            asked = self.embedder.question_prompt + query.text
            query.vectors[name] = self.embedder.embed([asked])[0]
        return query.vectors[name]

    def _rank_by_text(self, words: "_Words") -> Ranking:
        rare, common = words.by_frequency()
        if not rare:
            return []
        wanted = _matching(" OR ", rare)
        if common:
            # A chunk must contain a rare word; common words then add to its score.
            wanted = f"({_matching(' OR ', rare)}) AND ({_matching(' OR ', (*rare, *common))})"
        rows = self.index.rows(
            "SELECT c.id, c.document, f.score * CASE c.whose WHEN 'other' THEN ? ELSE 1.0 END"
            # The weights of title, heading, date and text.
            " FROM (SELECT rowid AS id, -bm25(chunk_search, 5.0, 2.0, 1.0, 1.0) AS score"
            " FROM chunk_search WHERE chunk_search MATCH ? ORDER BY score DESC, id LIMIT ?) f"
            " JOIN chunks c ON c.id = f.id",
            _OTHERS_FACTOR,
            wanted,
            RANKED,
        )
        return _with_post_scores(rows)

    def _vectors(self) -> StoredVectors | None:
        """Return the stored vectors; None if most passages have none yet.

        The few with a vector would push out all others, whatever their words.
        """
        vectors = self.index.vectors(self.embedder.name) if self.embedder else None
        is_enough = vectors and 0 < self.index.size() <= 2 * len(vectors.passages)
        return vectors if is_enough else None

    def _title_matches(
        self, query: Query, words: "_Words", ranking: Ranking
    ) -> tuple[list[int], bool]:
        """Return the best chunk of each post that the question names, and whether by exact title.

        An exact title is the whole question or a quoted part of it. Otherwise a post is named if
        only its title has all words of the question: "What is Ogooreck?" asks for "Ogooreck, a
        sneaky testing library", not for a post that mentions it more often.
        """
        titles = {folded(part) for part in (query.text, *query.quotations)}
        exact = named = self.index.documents_titled(titles - {""})
        if not exact and words.chunks_of and all(words.chunks_of.values()):
            with_all = self.index.column(
                "SELECT DISTINCT c.document FROM chunk_search f JOIN chunks c ON c.id = f.rowid"
                " WHERE chunk_search MATCH ? LIMIT 2",
                f"title : ({_matching(' AND ', words.chunks_of)})",
            )
            named = with_all if len(with_all) == 1 else []
        best = (_in_order(self.index.chunks(document), ranking)[:1] for document in named)
        return [id_ for ids in best for id_ in ids], bool(exact)

    def _top_passages(
        self, ranking: Ranking, limit: int, found_by: Mapping[str, set[int]]
    ) -> list[Passage]:
        """Return the first passages, without copies and with at most three per post.

        The order of the posts stays; within a post, those with an exact phrase come first.
        """
        chosen: list[Passage] = []
        of_post: Counter[str] = Counter()
        shown: set[tuple[str, ...]] = set()
        for start in range(0, len(ranking), _AT_ONCE):
            found = self.index.passages(ranking[start : start + _AT_ONCE], found_by)
            left = sorted(found, key=lambda each: "phrase" not in each.found_by)
            for place in found:
                passage = next(each for each in left if each.document == place.document)
                left.remove(passage)
                words = passage.text.split()
                runs = set(zip(*(words[at:] for at in range(min(_RUN, len(words)))), strict=False))
                is_copy = len(runs & shown) > _COPY_SHARE * len(runs)
                if is_copy or of_post[passage.document] == MAX_OF_A_POST:
                    continue
                of_post[passage.document] += 1
                shown |= runs
                chosen.append(replace(passage, score=place.score))
                if len(chosen) == limit:
                    return chosen
        return chosen


@dataclass(frozen=True)
class _Words:
    """The words of a question, the chunks that have each, and the number of all chunks.

    The weight of a word is its inverse document frequency (IDF), as in SQLite's bm25.
    """

    chunks_of: Mapping[QueryTerm, Set[int]]
    size: int

    def _idf(self, chunks: Set[int]) -> float:
        return max(_MIN_IDF, math.log((self.size - len(chunks) + 0.5) / (len(chunks) + 0.5)))

    @property
    def rarity(self) -> float:
        """The mean IDF of the words relative to the largest, 0 for absent words."""
        most = len(self.chunks_of) * self._idf(set())
        present = sum(self._idf(chunks) for chunks in self.chunks_of.values() if chunks)
        return present / most if self.chunks_of else 0.0

    def stand_together(self, by_text: Ranking) -> bool:
        return any(all(id_ in chunks for chunks in self.chunks_of.values()) for id_, _ in by_text)

    def absent_from(self, passages: Sequence[Passage]) -> list[QueryTerm]:
        """Return the words that no passage has, those with the highest IDF first."""
        ids = {passage.id for passage in passages}
        absent = (term for term, chunks in self.chunks_of.items() if not chunks & ids)
        return sorted(absent, key=lambda term: -self._idf(self.chunks_of[term]))

    def by_frequency(self) -> tuple[list[QueryTerm], list[QueryTerm]]:
        """Return the rare words that select chunks, and the common ones that only add to scores."""
        counts = {term: len(chunks) for term, chunks in self.chunks_of.items() if chunks}
        ordered = sorted(counts, key=lambda term: counts[term])[:_MAX_WORDS]
        sums = accumulate(counts[term] for term in ordered)
        rare = max(1, sum(held <= _MAX_HELD for held in sums))
        return ordered[:rare], ordered[rare:]


def reordered(ranking: Ranking, answers: Mapping[int, float]) -> Ranking:
    """Return the ranking with the passages first that were read, by their scores and log odds."""
    scores = dict(ranking)
    read = [(id_, scores[id_] + _READING_WEIGHT * odds) for id_, odds in answers.items()]
    read.sort(key=lambda entry: (-entry[1], entry[0]))
    rest = [entry for entry in ranking if entry[0] not in answers]
    top = read[-1][1] - rest[0][1] if read and rest else 0.0  # scores decrease
    return read + [(id_, score + min(0.0, top)) for id_, score in rest]


def _units_in(spans: Sequence[Span], window: Span) -> list[int]:
    """Return the indices of the units that overlap a window."""
    return [n for n, (a, b) in enumerate(spans) if a < window[1] and b > window[0]]


def window_of(passage: Passage, at: Span) -> Window:
    """Return a window of a passage as the reader takes it."""
    spans, (begin, end) = units(passage.text), at
    inside = (spans[n] for n in _units_in(spans, at))
    sentences = tuple((max(a, begin) - begin, min(b, end) - begin) for a, b in inside)
    return Window(head_of(passage.title, passage.heading), passage.text[begin:end], sentences)


def _with_post_scores(rows: Iterable[tuple[int, str, float]]) -> Ranking:
    """Rank rows of (id, document, score), with a share of the scores of the post's other chunks."""
    scores: dict[str, list[float]] = {}
    ordered = sorted(rows, key=lambda row: (-row[2], row[0]))
    for _, document, score in ordered:
        scores.setdefault(document, []).append(score)
    ranking: Ranking = []
    for id_, document, score in ordered:
        best = scores[document][: _OTHER_CHUNKS + 1]
        others = sum(best) - (score if score >= best[-1] else best[-1])
        ranking.append((id_, score + _OTHER_SHARE * others))
    return sorted(ranking, key=lambda entry: (-entry[1], entry[0]))


def _matching(operator: str, terms: Iterable[QueryTerm]) -> str:
    return operator.join(term.match for term in terms)


def _in_order(ids: Iterable[int], ranking: Ranking) -> list[int]:
    places = {id_: place for place, (id_, _) in enumerate(ranking)}
    return sorted(ids, key=lambda id_: (places.get(id_, len(places)), id_))


def _put_first(ranking: Ranking, ids: Sequence[int]) -> Ranking:
    """Return the ranking with these chunks first, with higher scores than the others."""
    top = ranking[0][1] if ranking else 0.0
    first = [(id_, top + len(ids) - place) for place, id_ in enumerate(ids)]
    return first + [entry for entry in ranking if entry[0] not in set(ids)]
