"""Searches the archive by words (BM25) and by vectors, and judges what it finds.

The two are fused by score. Fusion by rank (reciprocal rank fusion) gives the first hit of either
search the same weight, even if only a stray word of the question matched. Here the words count for
as much as they tell: a convex combination of scores (Bruch et al. 2023, "An analysis of fusion
functions for hybrid retrieval") whose weight depends on how rare the words of the question are.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ownwords.ask.index import Floats, Ids, SearchIndex, StoredVectors, folded
from ownwords.ask.passages import Passage, stems
from ownwords.ask.query import QueryTerm, QueryTerms, forms_of, normalized_question, quotations
from ownwords.core.sentences import sentences
from ownwords.view import format as say

if TYPE_CHECKING:
    from ownwords.ask.encoder import Embedder


Ranking = list[tuple[int, float]]  # ids of chunks and their scores, best first
Kind = Literal["answer", "nearest", "absent"]

RANKED = 60  # chunks of a ranking
# What the best match of words adds, in standard deviations of the cosines, if each word stands in
# one passage only: 1.5 to 4.5 find as many, on 112 questions in other words (docs/log.md).
_WORDS_WEIGHT = 3.0


def fuse(by_text: Ranking, passages: Ids, closeness: Floats, rarity: float) -> Ranking:
    """Rank the best of both: closeness + 3 * rarity² * text score / best text score.

    `passages` are the ids with a vector, in order; a passage without one counts as the last of the
    best. `rarity`, from 0 to 1, is that of the question's words: words that many passages have rank
    little, since questions in other words than the post's consist of them.
    """
    if not len(passages):
        return by_text
    best = nearest(passages, closeness, RANKED)
    least = best[-1][1]
    known = dict(best)
    ids = [id_ for id_, _ in by_text]
    places = np.minimum(np.searchsorted(passages, ids), len(passages) - 1)
    for id_, place in zip(ids, places.tolist(), strict=True):
        known[id_] = float(closeness[place]) if passages[place] == id_ else least
    weight = _WORDS_WEIGHT * rarity**2
    top = by_text[0][1] if by_text else 1.0
    text = {id_: score / top for id_, score in by_text}
    fused = [(id_, close + weight * text.get(id_, 0.0)) for id_, close in known.items()]
    return sorted(fused, key=lambda entry: (-entry[1], entry[0]))


def nearest(passages: Ids, scores: Floats, limit: int) -> Ranking:
    """The passages with the highest scores, best first, equal ones by id."""
    if not len(passages) or limit < 1:
        return []
    if limit < len(passages):
        places = np.argpartition(-scores, limit - 1)[:limit]
    else:
        places = np.arange(len(passages))
    places = places[np.lexsort((passages[places], -scores[places]))]
    return list(zip(passages[places].tolist(), scores[places].tolist(), strict=True))


# ---- what was found


@dataclass(frozen=True)
class Logistic:
    """A logistic regression of a few figures of a search."""

    intercept: float
    weights: Mapping[str, float]

    def probability(self, figures: Mapping[str, float]) -> float:
        """The probability of what it was fitted to."""
        score = sum(weight * figures[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-self.intercept - score))


# Fitted to half of the public questions (`python -m bench.ask_quality FOLDER --fit`); what they
# tell of the other half is in docs/log.md. "cosine" is the best of a passage, "deviation" by how
# many standard deviations it exceeds the mean; "absent" the share of the question's IDF that no
# shown passage has.
_IS_ABOUT: Final = Logistic(-16.24, {"cosine": 58.70, "deviation": -1.27})
_ANSWERS: Final = Logistic(3.17, {"cosine": 6.92, "absent": -4.86, "deviation": -0.86})
_IS_ABOUT_BY_WORDS: Final = Logistic(-6.80, {"strength": 5.33, "words": 1.12})
# Below these a question is not in the archive: that it is should never be denied.
_ABSENT, _ABSENT_BY_WORDS = 0.2, 0.1
_ANSWERED = 0.4  # below this, nothing answers directly


def kind_of(figures: Mapping[str, float]) -> Kind:
    """What the passages with these figures are to the question."""
    if "cosine" not in figures:
        probability = _IS_ABOUT_BY_WORDS.probability(figures)
        if probability < _ABSENT_BY_WORDS:
            return "absent"
    elif _IS_ABOUT.probability(figures) < _ABSENT:
        return "absent"
    else:
        probability = _ANSWERS.probability(figures)
    return "nearest" if probability < _ANSWERED else "answer"


_MAX_NAMED = 4  # terms named in a sentence
_LONGEST_NAMED = 40  # characters of each
_BESIDE = 3  # sentences between words that say something of each other, at most

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
# The kinds of things that English questions ask for, and what each looks like in a text.
_KINDS: Final = {
    "an amount": (
        r"\bhow (?:much|many|long|old|high|tall|deep|far|fast|loud|big|large|heavy|wide|often)\b"
        r"|\b(?:price|salary|wage|fee|phone number|calories|temperature|percentage)\b"
        r"|\bwhat (?:\w+ ){0,4}(?:cost|weigh)s?\b",
        r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty"
        r"|fifty|hundred|thousand|million|dozen|half|twice|once|couple)\b",
    ),
    "a date": (
        r"^when (?!.*\b(?:I|my|me)\b)|\b(?:what|which) (?:day|date|month|year|season)\b",
        rf"\b(?:1[89]|20)\d\d\b|\b(?:{_MONTHS})\b|\b\w+day\b|\b\d+(?:st|nd|rd|th)\b"
        r"|\b(?:ago|yesterday|tomorrow|last (?:week|month|year))\b",
    ),
    "a place": (
        r"^where\b|\b(?:what|which) (?:\w+ )?(?:city|country|town|suburb|village|street|place"
        r"|university|hospital|school|state)\b",
        r"\b(?:in|at|from|to|near|of|around) (?:the )?(?-i:[A-Z])[a-z]+",
    ),
    "a name": (
        r"^who(?:m|se)?\b|\b(?:what|which) (?:\w+ )?(?:brand|company|airline|lawyer|doctor"
        r"|candidate|author|person|insurance|bank)\b",
        r"(?<=[a-z,;] )(?!I\b)(?-i:[A-Z])[A-Za-z]+",
    ),
}


# Questions about the whole archive, which no passage answers.
_OVERVIEW = re.compile(
    r"\b(?:summari[sz]e|summary|overview|sum up|main (?:themes?|topics?|subjects?))\b"
    r"|\bwhat (?:is|are) (?:my|this|the) (?:blog|archive|site|posts|writing) (?:\w+ )?about\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Missing:
    """What a question asks for and the passages shown do not say, most telling first.

    `absent` words are in none of them, `apart` words never near the `subject`, and the `thing` is
    an amount, a date, a place or a name that stands near no word of the question.
    """

    absent: tuple[QueryTerm, ...] = ()
    apart: tuple[QueryTerm, ...] = ()
    subject: QueryTerm | None = None
    thing: str = ""

    def notes(self) -> list[str]:
        """As sentences."""
        notes = []
        if self.absent:
            notes.append(f"None of these passages contains {quoted_list(self.absent, 'or')}.")
        if self.subject and self.apart:
            near = quoted_list([self.subject], "or")
            notes.append(f"None of them has {quoted_list(self.apart, 'or')} near {near}.")
        if self.thing:
            notes.append(f"None of them gives {self.thing} there.")
        return notes


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The passages of a search, best first, and what they are to the question.

    `kind` is "answer", "nearest" if nothing answers directly, "absent" if the archive has nothing
    about it: then `passages` are the best of the three closest posts. `notes` say what is missing.
    `window_cosines` are those of each passage's windows by its id, where vectors were searched.
    """

    passages: tuple[Passage, ...]
    kind: Kind = "answer"
    notes: tuple[str, ...] = ()
    window_cosines: Mapping[int, Sequence[float]] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)  # by which `kind` was judged


def quoted_list(terms: Sequence[QueryTerm], word: str) -> str:
    """The terms in quotation marks, the last one joined by "or" or "and"."""
    labels = (say.plain(term.label, _LONGEST_NAMED) for term in terms[:_MAX_NAMED])
    return say.joined((f"“{label}”" for label in labels), word)


# ---- the search

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
_FEW = 50  # chunks; with fewer, IDF means little
_MIN_IDF = 1e-6  # for terms in half of the chunks or more
_NO_VECTORS = (np.empty(0, np.int64), np.empty(0, np.float32))


class ArchiveSearcher:
    """Searches an index, with vectors if there is an embedder; thread-safe."""

    def __init__(self, index: SearchIndex, embedder: "Embedder | None" = None) -> None:
        self.index = index
        self.embedder = embedder

    def find(self, question: str, limit: int = 8) -> RetrievalResult:
        """The passages that answer a question best, at most `limit`, three of a post.

        A post whose title is the question or quoted in it, or the only one whose title has all of
        its words, comes first.
        """
        terms = QueryTerms.of(question)
        chunks_of = {term: set(self.index.chunks_with(term.match)) for term in terms.words}
        words = _Words(chunks_of, self.index.size())
        by_text = self._rank_by_text(words)
        embedded = self._vectors(question)
        ids, cosines = embedded[0].cosines(embedded[1]) if embedded else _NO_VECTORS
        closeness = embedded[0].closeness(cosines) if embedded else cosines
        phrase_chunks = self.index.chunks_with(_all(terms.phrases)) if terms.phrases else []
        title_chunks, is_title = self._title_matches(question, words, by_text)

        ranking = fuse(by_text, ids, closeness, words.rarity)
        ranking = _put_first(_put_first(ranking, _in_order(phrase_chunks, ranking)), title_chunks)
        found_by = {
            "title": set(title_chunks),
            "phrase": set(phrase_chunks),
            "text": {id_ for id_, _ in by_text},
            "vectors": {id_ for id_, _ in nearest(ids, closeness, RANKED)},
        }
        passages = self._top_passages(ranking, limit, found_by)
        missing = Missing() if is_title else words.missing_from(passages, question)
        unread = self.index.size() - len(ids) if self.embedder else 0
        # A passage without a vector may answer: then the words judge.
        figures = self._figures(words, by_text, _NO_VECTORS[1] if unread else cosines, missing)
        kind: Kind
        if is_title:
            kind = "answer"
        elif terms.phrases:
            kind = "answer" if phrase_chunks else "absent"
        elif not (terms.has_subject or embedded):
            kind = "absent"
        elif terms.is_bare and words.stand_together(by_text):
            kind = "answer"  # "limescale" asks where the word is
        else:
            kind = kind_of(figures) if passages else "absent"
        if kind == "absent":
            firsts = {passage.document: passage for passage in reversed(passages)}
            passages = [each for each in passages if firsts[each.document] is each][:_NEAREST]
        notes = [] if terms.has_subject else ["The question has no word to search for."]
        if _OVERVIEW.search(question):
            notes.append("A search cannot summarise the whole archive; the report does.")
        if unread:
            of = say.count(unread, "passage")
            notes.append(f"The search by meaning has yet to read {of}; it compared words there.")
        return RetrievalResult(
            tuple(passages),
            kind,
            (*missing.notes(), *notes),
            {x.id: embedded[0].of_windows(embedded[1], x.id) for x in passages if embedded},
            figures,
        )

    def _figures(
        self, words: "_Words", by_text: Ranking, cosines: Floats, missing: Missing
    ) -> dict[str, float]:
        """What the kind of the result is judged by; cosines only where they can be compared."""
        figures = {
            "strength": words.strength(by_text),
            "absent": words.share_of(missing.absent),
            "words": len(words.chunks_of),
        }
        if len(cosines) and self.embedder and self.embedder.cosine_scale:
            scale, shift = self.embedder.cosine_scale
            best = float(cosines.max())
            deviation = (best - float(cosines.mean())) / (float(cosines.std()) or 1.0)
            figures |= {"cosine": scale * best + shift, "deviation": deviation}
        return figures

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

    def share_of(self, terms: Iterable[QueryTerm]) -> float:
        """The share of the summed IDF that these words have."""
        return self._told_by(terms) / self._total if self._total else 0.0

    def stand_together(self, by_text: Ranking) -> bool:
        """Whether a passage has all words."""
        return any(all(id_ in chunks for chunks in self.chunks_of.values()) for id_, _ in by_text)

    def missing_from(self, passages: Sequence[Passage], question: str) -> Missing:
        """What these passages do not say."""
        ordered = sorted(self.chunks_of, key=lambda term: -self._idf(self.chunks_of[term]))
        ids = {passage.id for passage in passages}
        present = [term for term in ordered if self.chunks_of[term] & ids]
        absent = tuple(term for term in ordered if term not in present)
        if not present:
            return Missing(absent)
        subject, *others = present
        apart = set(others)
        for passage in passages:
            there = [term for term in (subject, *apart) if passage.id in self.chunks_of[term]]
            if subject in there and len(there) > 1:
                said = [set(stems(passage.text[slice(*at)])) for at in sentences(passage.text)]
                places = {term: _sentences_with(term, said) for term in there}
                apart -= {term for term in there if _are_near(places[subject], places[term])}
        unsaid = tuple(term for term in others if term in apart)
        words = {stem for term in present for word in term.words for stem in stems(word)}
        for thing, (asked, given) in _KINDS.items():
            if re.search(asked, question, re.IGNORECASE):
                parts = (part for passage in passages for part in _parts_with(words, passage))
                if not any(re.search(given, part, re.IGNORECASE) for part in parts):
                    return Missing(absent, unsaid, subject, thing)
                break
        return Missing(absent, unsaid, subject)

    def strength(self, by_text: Ranking) -> float:
        """How much of what the question says the best passage says, from 0 to 1.

        The BM25 score of the best passage, relative to the summed IDF of the words and multiplied
        by the share of that IDF that occurs in any post. Of few chunks, the most words in one.
        """
        if not by_text:
            return 0.0
        if self.size < _FEW:
            chunks_of = self.chunks_of.values()
            most = max(sum(id_ in chunks for chunks in chunks_of) for id_, _ in by_text)
            return most / len(self.chunks_of)
        return min(1.0, by_text[0][1] / self._total * self._present / self._total)

    def by_frequency(self) -> tuple[list[QueryTerm], list[QueryTerm]]:
        """The rare words that select chunks, and the common ones that only add to their scores."""
        counts = {term: len(chunks) for term, chunks in self.chunks_of.items() if chunks}
        ordered = sorted(counts, key=lambda term: counts[term])[:_MAX_WORDS]
        sums = list(accumulate(counts[term] for term in ordered))
        rare = max(1, sum(held <= _MAX_HELD for held in sums))
        return ordered[:rare], ordered[rare:]


def _sentences_with(term: QueryTerm, said: Sequence[Set[str]]) -> list[int]:
    """The numbers of the sentences that have a word; none if only the title has it."""
    wanted = set(stems(" ".join([*term.words, *forms_of(term.words[0])])))
    return [number for number, words in enumerate(said) if wanted & words]


def _are_near(some: Sequence[int], others: Sequence[int]) -> bool:
    """Whether words stand near each other; those of the title stand near all."""
    if not some or not others:
        return True
    return any(abs(one - other) <= _BESIDE for one in some for other in others)


def _parts_with(words: Set[str], passage: Passage) -> Iterable[str]:
    """The sentences with one of these stems, each with the next one; all if the title has one."""
    text = passage.text
    if words & set(stems(f"{passage.title} {passage.heading}")):
        yield text
    spans = [*sentences(text), (len(text), len(text))]
    for (begin, end), (_, after) in pairwise(spans):
        if words & set(stems(text[begin:end])):
            yield text[begin : max(end, after)]


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
