"""The posts a model is judged by, with what a reader is told of them; and a fair choice of some."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ownwords.archive.document import Document
from ownwords.core.fingerprint import digest


class SplitText(Protocol):
    """One text as a model reads it."""

    @property
    def id(self) -> str: ...
    @property
    def text(self) -> str: ...


class SplitTexts(Protocol):
    """The texts of an archive on their three sides, as `training.corpus.load_corpus` gives them."""

    @property
    def train(self) -> Iterable[SplitText]: ...
    @property
    def validation(self) -> Iterable[SplitText]: ...
    @property
    def test(self) -> Iterable[SplitText]: ...
    @property
    def key(self) -> str: ...


@dataclass(frozen=True)
class EvaluationPost:
    """A post as a model reads it, its title first, and where its author finds it."""

    id: str
    text: str
    title: str = ""
    day: str = ""  # ISO
    url: str = ""

    @cached_property
    def bytes(self) -> int:
        return len(self.text.encode())

    @cached_property
    def key(self) -> str:
        return digest(self.id, self.text)

    @property
    def words(self) -> int:
        return len(self.text.split())

    @property
    def beginning(self) -> tuple[str, str]:
        """What stands before the body, and the body."""
        head, gap, body = self.text.partition("\n\n")
        return (head + gap, body) if self.title and body else ("", self.text)


@dataclass(frozen=True)
class EvaluationPosts:
    """What was learned from, what chose between models, and what neither has seen."""

    train: Sequence[EvaluationPost]
    validation: Sequence[EvaluationPost]
    test: Sequence[EvaluationPost]
    key: str = ""  # of the whole division, as a model that was trained on it says

    @classmethod
    def of(cls, texts: SplitTexts, documents: Iterable[Document]) -> "EvaluationPosts":
        """The texts with the titles, dates and addresses of the archive's documents."""
        known = {document.id: document for document in documents}
        train, validation, test = (
            [_told(text, known) for text in side]
            for side in (texts.train, texts.validation, texts.test)
        )
        return cls(train, validation, test, texts.key)


def some(
    posts: Sequence[EvaluationPost], most_bytes: int, most: int | None = None
) -> list[EvaluationPost]:
    """Whole posts drawn by lot, the same ones each time, of so many bytes together at most.

    In their own order. Where even the shortest is longer than that, it alone.
    """
    drawn: list[EvaluationPost] = []
    room = most_bytes
    for post in sorted(posts, key=lambda one: one.key):
        if post.bytes <= room and (most is None or len(drawn) < most):
            drawn.append(post)
            room -= post.bytes
    if not drawn and posts:
        drawn = [min(posts, key=lambda one: (one.bytes, one.key))]
    taken = {post.id for post in drawn}
    return [post for post in posts if post.id in taken]


def keys(posts: Iterable[EvaluationPost]) -> str:
    """One key of all the posts, in their order."""
    return digest(*(post.key for post in posts))


def _told(text: SplitText, known: Mapping[str, Document]) -> EvaluationPost:
    document = known.get(text.id)
    if document is None:
        return EvaluationPost(text.id, text.text)
    day = document.date.date().isoformat() if document.date else ""
    return EvaluationPost(text.id, text.text, document.title, day, document.url)
