"""Counts the author's posts by period and by topic."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ownwords.ask.index import IndexedPost, SearchIndex, folded
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.periods import Period
from ownwords.ask.query_terms import QueryTerm, QueryTerms, quotations, words_of
from ownwords.ask.term_statistics import TermStatistics

_ARTICLE = re.compile(
    r"^(?:(?:the|an?|my|our|your|this|that|these|those)\s+)+(?:words?\s+)?", re.IGNORECASE
)
# An address, a path or a file name; what is in it is no mention.
_MARK = "\x01"
_NAME = re.compile(r"(?<!\S)(?:\S*/|\S*\.[a-z][a-z0-9]{1,4}(?![\w.]))\S*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that posts mention: its FTS5 query and its label."""

    match: str
    label: str
    is_phrase: bool


class PostCounts:
    """The posts of an index, filtered and counted for one question."""

    def __init__(self, index: SearchIndex, period: Period | None, limit: int) -> None:
        self.index = index
        self._limit = limit
        self.period = period

    def posts(self, topic: Topic | None = None) -> list[IndexedPost]:
        """The author's posts of the period that mention the topic, oldest first, undated last."""
        about = self._documents(topic) if topic else None
        return [
            post
            for post in self.index.posts()
            if post.kind == "post"
            and post.whose == "own"
            and (about is None or post.document in about)
            and (self.period is None or self.period.holds(post.day))
        ]

    def all_posts(self, topic: Topic | None = None) -> list[IndexedPost]:
        """The author's posts of all periods that mention the topic."""
        return PostCounts(self.index, None, self._limit).posts(topic)

    def titled(self, title: str) -> set[str]:
        """The documents with this title, ignoring case and punctuation."""
        return {document for _, document in self.index.documents_titled({folded(title)} - {""})}

    def topic(self, label: str | None) -> Topic | None:
        """The topic of a question: a phrase if any post has it, otherwise all of its words."""
        if not label:
            return None
        marked = quotations(label)
        shown = marked[0] if marked else _ARTICLE.sub("", label)
        words = words_of(shown)
        if not words:
            return None
        phrase = QueryTerm(tuple(words))
        if marked or len(words) == 1 or TermStatistics(self.index).counts([phrase])[phrase]:
            return Topic(phrase.match, f"“{shown}”", is_phrase=True)
        single = QueryTerms.of(shown).words
        together = " and ".join(f"“{' '.join(term.words)}”" for term in single)
        return Topic(" AND ".join(term.match for term in single), together, is_phrase=False)

    def mentions(self, topic: Topic, posts: Iterable[IndexedPost]) -> int:
        """How often a phrase occurs in the titles and texts of posts."""
        documents = {post.document for post in posts}
        titles: dict[str, int] = {}
        total = 0
        for document, title, _, text in self._marked(topic):
            if document in documents:
                titles[document] = _mentions(title)
                total += _mentions(text)
        return total + sum(titles.values())

    def passages(
        self, posts: Sequence[IndexedPost], topic: Topic | None = None
    ) -> tuple[RetrievedPassage, ...]:
        """One passage of each post: the best for the topic, or else the first."""
        best: dict[str, int] = {}
        if topic:
            with self.index.reading() as db:
                rows = db.execute(
                    "SELECT c.document, c.id FROM chunk_search JOIN chunks c"
                    " ON c.id = chunk_search.rowid WHERE chunk_search MATCH ?"
                    " ORDER BY bm25(chunk_search, 0, 1, 0, 1), c.id",
                    (topic.match,),
                )
                for document, id_ in rows:
                    best.setdefault(document, id_)
        ids = [
            best.get(post.document) or self.index.chunks(post.document)[0]
            for post in posts[: self._limit]
        ]
        ranked = [(id_, 1.0 / place) for place, id_ in enumerate(ids, 1)]
        return tuple(self.index.passages(ranked, dict.fromkeys(ids, ("date",))))

    def _documents(self, topic: Topic) -> set[str]:
        return {document for document, *parts in self._marked(topic) if any(map(_mentions, parts))}

    def _marked(self, topic: Topic) -> list[tuple[str, str, str, str]]:
        """(document, title, heading, text) of the author's chunks with the topic marked."""
        with self.index.reading() as db:
            return db.execute(
                "SELECT c.document, highlight(chunk_search, 0, char(1), ''),"
                " highlight(chunk_search, 1, char(1), ''),"
                " highlight(chunk_search, 3, char(1), '')"
                " FROM chunk_search JOIN chunks c ON c.id = chunk_search.rowid"
                " WHERE chunk_search MATCH ? AND c.whose = 'own'",
                (topic.match,),
            ).fetchall()


def _mentions(marked: str) -> int:
    """The marked places that are not in the name of a file or an address."""
    return _NAME.sub("", marked).count(_MARK) if _MARK in marked else 0
