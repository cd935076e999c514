"""From a question to passages: by words and by meaning, and whether they are about it at all."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ownwords.archive.report import formatting as say
from ownwords.ask.embedders import nearest
from ownwords.ask.index import SearchIndex, folded
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.query_terms import QueryTerm, QueryTerms, is_telling, plain, quotations
from ownwords.ask.rank_fusion import reciprocal_rank_fusion
from ownwords.ask.synonyms import synonyms_of
from ownwords.ask.term_statistics import TermStatistics
from ownwords.ask.vocabulary import IndexVocabulary
from ownwords.core.errors import ConfigError

if TYPE_CHECKING:
    from ownwords.ask.embedders import Embedder

SearchMode = Literal["text", "vectors", "both", ""]
Ranking = list[tuple[int, float]]  # chunks and their scores, the best first

MOST_OF_A_POST = 3  # passages: one long post must not push out all others

# What a word counts in a title, a heading, a date, the text.
_WEIGHTS = (5.0, 2.0, 1.0, 1.0)
_WITHOUT_TITLES = "{heading date text} : "
_RANKED = 60  # chunks of a ranking that are looked at
_AT_ONCE = 16
# Chunks are looked up by the rarest words first, until so many hold one of them. A word that stands
# in more says little about any, and costs the time: bm25 is computed for each.
_MOST_HELD = 6000
_SEARCHED = 24  # words at most
_TITLE_WORDS, _OF_QUESTION = 24, 48  # of a title, and of a question in which it may stand
# A passage of which so many runs of words stand in those before it is a copy.
_ALIKE, _RUN = 0.6, 5
# Somebody else's words come after the author's own that fit about as well.
_THEIRS = 0.8
# A post that comes back to a matter is about it: so much of what its best chunks beside score.
_BESIDE, _FROM_BESIDE = 2, 0.2
_NEAREST = 3
# What bm25 gives the best passage, over what the words of the question say by their rarity: about 1
# where each stands in it once; times the part of the words, so weighed, that any post has at all.
# Chosen on 150 questions that two archives answer, of which 5% are refused, and on 276 that they do
# not, of which 92% are.
_ENOUGH = 0.45
# The cosine from which on a passage is about a question, by all-MiniLM-L6-v2.
_NEAR_ENOUGH = 0.4
# In so few chunks nobody can tell a rare word: there it is enough that half of them stand in one.
_FEW, _HALF = 50, 0.5
_SAID = 4  # words named in the sentence that says why a search is weak
_LONGEST_SAID = 40  # characters of each
_MISSED = 12  # words that stand nowhere, for which others are sought


@dataclass(frozen=True, slots=True)
class WordSubstitution:
    """A word of a question that stands nowhere, and the words that were searched for instead."""

    asked: str
    searched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The passages of a search, the best first; there may be some also where it `is_weak`.

    A weak search found nothing that is about the question: `why` says so in a sentence, and
    `nearest` holds a passage of each of the posts that come closest. `instead` tells which words
    of the question stand nowhere, where others took their place.
    """

    passages: tuple[RetrievedPassage, ...]
    is_weak: bool = False
    why: str = ""
    nearest: tuple[RetrievedPassage, ...] = ()
    instead: tuple[WordSubstitution, ...] = ()


class ArchiveSearcher:
    """Searches an index, with vectors where there is an embedder; any thread may use it."""

    def __init__(self, index: SearchIndex, embedder: "Embedder | None" = None) -> None:
        self.index = index
        self.embedder = embedder
        self._occurrences = TermStatistics(index)
        self._vocabulary = IndexVocabulary(index)

    def find(
        self, question: str, most: int = 8, how: SearchMode = "", *, titles: bool = True
    ) -> SearchResult:
        """The passages that answer a question best, `most` of them at most, three of a post.

        A post whose title is asked for comes first. `how` is "text", "vectors" or "both"; empty, it
        is both where there is an embedder. Without `titles` these are not searched. Any text may
        be asked. Scores of one search fall from passage to passage.
        """
        how = how or ("both" if self.embedder else "text")
        if how != "text" and self.embedder is None:
            raise ConfigError(
                "there are no vectors to search with", hint="name a model for them with --embed"
            )
        terms = QueryTerms.of(question)
        counts = self._counts(terms)
        by_text = self._by_text(counts, titles) if how != "vectors" else []
        by_vectors = self._by_vectors(question) if how != "text" else []
        said = self._occurrences.with_all(terms.phrases) if terms.phrases else []
        named, is_title = self._named(question, by_text) if titles else ([], False)

        ranking = by_text or by_vectors
        if how == "both":
            ranking = reciprocal_rank_fusion(
                [[id_ for id_, _ in one] for one in (by_text, by_vectors)]
            )
        ranking = _put_first(_put_first(ranking, _in_order(said, ranking)), named)
        found_by = {
            "title": set(named),
            "phrase": set(said),
            "text": {id_ for id_, _ in by_text},
            "vectors": {id_ for id_, _ in by_vectors},
        }
        passages = self._chosen(ranking, most, found_by)
        why = "" if is_title else self._weakness(terms, counts, said, by_text, by_vectors)
        instead = self._searched_instead(counts)
        if not why:
            return SearchResult(tuple(passages), instead=instead)
        firsts = {one.document: one for one in reversed(passages)}
        near = [one for one in passages if firsts[one.document] is one][:_NEAREST]
        return SearchResult(
            tuple(passages), True, why, tuple(near if terms.is_about else ()), instead
        )

    def _counts(self, terms: QueryTerms) -> dict[QueryTerm, int]:
        """In how many chunks each word stands; of one that stands nowhere, what may be meant."""
        counted: dict[QueryTerm, int] = {}
        missed = 0
        for term, number in self._occurrences.counts(terms.words).items():
            found = (term, number)
            if not number and len(term.words) == 1 and missed < _MISSED:
                missed += 1
                found = self._instead(term, terms.language)
            counted[found[0]] = found[1]
        return counted

    def _instead(self, term: QueryTerm, language: str) -> tuple[QueryTerm, int]:
        (word,) = term.words
        named = QueryTerm(term.words, synonyms_of(word))
        if not (number := self._occurrences.counts([named])[named]):
            named = QueryTerm(term.words, self._vocabulary.instead(word, language))
            number = self._occurrences.counts([named])[named]
        return (named, number) if number else (term, 0)

    def _searched_instead(self, counts: Iterable[QueryTerm]) -> tuple[WordSubstitution, ...]:
        """The words that stand nowhere, and what was searched for in their place, as written."""
        return tuple(
            WordSubstitution(
                term.said, self._occurrences.as_written(QueryTerm((other,)) for other in term.alike)
            )
            for term in counts
            if term.alike
        )

    def _by_text(self, counts: Mapping[QueryTerm, int], titles: bool) -> Ranking:
        rare, common = _divided(counts)
        if not rare:
            return []
        wanted = _any(rare)
        if common:
            # Only what holds a rare word is looked at; there the common ones count too.
            wanted = f"({_any(rare)}) AND ({_any((*rare, *common))})"
        with self.index.reading() as db:
            rows = db.execute(
                "SELECT c.id, c.document, f.score * CASE c.whose WHEN 'other' THEN ? ELSE 1.0 END"
                " FROM (SELECT rowid AS id, -bm25(chunk_search, ?, ?, ?, ?) AS score"
                " FROM chunk_search WHERE chunk_search MATCH ? ORDER BY score DESC, id LIMIT ?) f"
                " JOIN chunks c ON c.id = f.id",
                (
                    _THEIRS,
                    *_WEIGHTS,
                    wanted if titles else _WITHOUT_TITLES + f"({wanted})",
                    _RANKED,
                ),
            )
            return _with_their_posts(rows.fetchall())

    def _by_vectors(self, question: str) -> Ranking:
        asked = plain(question)
        if self.embedder is None or not asked:
            return []
        ids, rows = self.index.vectors(self.embedder.name)
        if not len(ids):
            return []
        places, cosines = nearest(rows, self.embedder.embed([asked])[0], _RANKED)
        return [(int(ids[at]), cosine) for at, cosine in zip(places, cosines, strict=True)]

    def _named(self, question: str, ranking: Ranking) -> tuple[list[int], bool]:
        """The best chunk of each post whose title is asked for, and if nothing else is asked."""
        whole = folded(plain(question))
        quoted = {folded(said) for said in quotations(question)}
        found = self.index.titled({whole, *quoted, *_titles_within(whole)} - {""})
        # What is nothing but a title first, and then the longest: others may stand within it.
        found.sort(key=lambda entry: (entry[0] != whole, entry[0] not in quoted, -len(entry[0])))
        places = {id_: place for place, (id_, _) in enumerate(ranking)}
        chosen: list[int] = []
        taken: set[str] = set()
        for title, document in found:
            if any(title != longer and f" {title} " in f" {longer} " for longer in taken):
                continue
            taken.add(title)
            if not (chunks := self.index.chunks(document)):
                continue  # taken out a moment ago
            chosen.append(min(chunks, key=lambda id_: places.get(id_, len(places))))
        return chosen, bool(taken & {whole, *quoted})

    def _chosen(
        self, ranking: Ranking, most: int, found_by: Mapping[str, set[int]]
    ) -> list[RetrievedPassage]:
        """The first passages, without copies, and no more of one post than three."""
        chosen: list[RetrievedPassage] = []
        of_post: Counter[str] = Counter()
        shown: set[tuple[str, ...]] = set()
        for start in range(0, len(ranking), _AT_ONCE):
            some = ranking[start : start + _AT_ONCE]
            by = {
                id_: tuple(name for name, ids in found_by.items() if id_ in ids) for id_, _ in some
            }
            for passage in self.index.passages(some, by):
                if len(chosen) == most:
                    return chosen
                if of_post[passage.document] == MOST_OF_A_POST:
                    continue
                here = _runs(passage.text)
                if len(here & shown) > _ALIKE * len(here):
                    continue
                of_post[passage.document] += 1
                shown |= here
                chosen.append(passage)
        return chosen

    def _weakness(
        self,
        terms: QueryTerms,
        counts: Mapping[QueryTerm, int],
        said: Sequence[int],
        by_text: Ranking,
        by_vectors: Ranking,
    ) -> str:
        """Why the passages are not about the question; empty if they are."""
        if not terms.is_about:
            return "the question has no word to search for"
        if terms.phrases and not said:
            return f"no post says {_listed(terms.phrases, 'and')} word for word"
        if terms.phrases or (by_vectors and by_vectors[0][1] >= _NEAR_ENOUGH):
            return ""
        missing = [term for term, count in counts.items() if not count]
        if self._says_enough(counts, missing, by_text):
            return ""
        if missing:
            return f"no post has {_listed(missing, 'or')}"
        together = " together" if len(counts) > 1 else ""
        return f"no passage is about {_listed(list(counts), 'and')}{together}"

    def _says_enough(
        self, counts: Mapping[QueryTerm, int], missing: Sequence[QueryTerm], by_text: Ranking
    ) -> bool:
        if not by_text:
            return False
        if self._occurrences.chunks() < _FEW:
            ids = [id_ for id_, _ in by_text]
            held = Counter(id_ for term in counts for id_ in self._occurrences.among(term, ids))
            return max(held.values(), default=0) >= _HALF * len(counts)
        rarity = {term: self._occurrences.rarity(count) for term, count in counts.items()}
        says = sum(rarity.values())
        known = 1.0 - sum(rarity[term] for term in missing) / says
        return by_text[0][1] / says * known >= _ENOUGH


def _divided(counts: Mapping[QueryTerm, int]) -> tuple[list[QueryTerm], list[QueryTerm]]:
    """The words by which chunks are looked up, and those that only count where they stand."""
    ordered = sorted((term for term in counts if counts[term]), key=lambda term: counts[term])
    ordered = ordered[:_SEARCHED]
    rare: list[QueryTerm] = []
    held = 0
    for term in ordered:
        held += counts[term]
        if rare and held > _MOST_HELD:
            break
        rare.append(term)
    return rare, ordered[len(rare) :]


def _with_their_posts(rows: Iterable[tuple[int, str, float]]) -> Ranking:
    """The chunks of (id, document, score) in order, a post's other chunks counting for each."""
    scores: dict[str, list[float]] = {}
    ordered = sorted(rows, key=lambda row: (-row[2], row[0]))
    for _, document, score in ordered:
        scores.setdefault(document, []).append(score)
    ranking: Ranking = []
    for id_, document, score in ordered:
        best = scores[document][: _BESIDE + 1]
        beside = sum(best) - (score if score >= best[-1] else best[-1])
        ranking.append((id_, score + _FROM_BESIDE * beside))
    return sorted(ranking, key=lambda entry: (-entry[1], entry[0]))


def _listed(terms: Sequence[QueryTerm], joined: str) -> str:
    words = [f"“{say.plain(term.said, _LONGEST_SAID)}”" for term in terms[:_SAID]]
    return f" {joined} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _any(terms: Iterable[QueryTerm]) -> str:
    return " OR ".join(term.match for term in terms)


def _titles_within(folded_question: str) -> set[str]:
    """The parts of a question that may be titles: two telling words at least, or three words."""
    words = folded_question.split()[:_OF_QUESTION]
    telling = [is_telling(word) for word in words]
    return {
        " ".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 2, min(len(words), start + _TITLE_WORDS) + 1)
        if (many := sum(telling[start:end])) >= 2 or (many and end - start >= 3)
    }


def _in_order(ids: Iterable[int], ranking: Ranking) -> list[int]:
    places = {id_: place for place, (id_, _) in enumerate(ranking)}
    return sorted(ids, key=lambda id_: (places.get(id_, len(places)), id_))


def _put_first(ranking: Ranking, ids: Sequence[int]) -> Ranking:
    """The ranking with these chunks before all others, and scores that say so."""
    top = ranking[0][1] if ranking else 0.0
    first = [(id_, top + len(ids) - place) for place, id_ in enumerate(ids)]
    return first + [entry for entry in ranking if entry[0] not in set(ids)]


def _runs(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return set(zip(*(words[at:] for at in range(min(_RUN, len(words)))), strict=False))
