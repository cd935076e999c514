"""The posts a model is evaluated on, with their titles and addresses; reproducible subsets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ownwords.archive.document import Document
from ownwords.core.fingerprint import digest


class SplitText(Protocol):
    """A text as it is given to a model."""

    @property
    def id(self) -> str: ...
    @property
    def text(self) -> str: ...


class SplitTexts(Protocol):
    """The split texts of an archive, as from `training.corpus.load_corpus`."""

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
    """A post as it is given to a model, title first, with its date and address."""

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
    def head_and_body(self) -> tuple[str, str]:
        """Return the title with the blank line below it, and the body."""
        head, gap, body = self.text.partition("\n\n")
        return (head + gap, body) if self.title and body else ("", self.text)


@dataclass(frozen=True)
class EvaluationPosts:
    """The training, validation and test posts."""

    train: Sequence[EvaluationPost]
    validation: Sequence[EvaluationPost]
    test: Sequence[EvaluationPost]
    key: str = ""  # key of the whole split, which models trained on it store

    @classmethod
    def of(cls, texts: SplitTexts, documents: Iterable[Document]) -> "EvaluationPosts":
        """Join the split texts with the titles, dates and addresses of the archive's documents."""
        by_id = {document.id: document for document in documents}
        train, validation, test = (
            [_with_document(text, by_id) for text in side]
            for side in (texts.train, texts.validation, texts.test)
        )
        return cls(train, validation, test, texts.key)


def sample_posts(
    posts: Sequence[EvaluationPost], max_bytes: int, max_posts: int | None = None
) -> list[EvaluationPost]:
    """Choose a reproducible random sample of whole posts of up to `max_bytes` in total.

    The posts keep their order. If no post fits, the shortest one is chosen.
    """
    chosen: list[EvaluationPost] = []
    left = max_bytes
    for post in sorted(posts, key=lambda post: post.key):
        if post.bytes <= left and (max_posts is None or len(chosen) < max_posts):
            chosen.append(post)
            left -= post.bytes
    if not chosen and posts:
        chosen = [min(posts, key=lambda post: (post.bytes, post.key))]
    ids = {post.id for post in chosen}
    return [post for post in posts if post.id in ids]


def posts_key(posts: Iterable[EvaluationPost]) -> str:
    """Return a fingerprint of all the posts in their order."""
    return digest(*(post.key for post in posts))


def _with_document(text: SplitText, by_id: Mapping[str, Document]) -> EvaluationPost:
    document = by_id.get(text.id)
    if document is None:
        return EvaluationPost(text.id, text.text)
    day = document.date.date().isoformat() if document.date else ""
    return EvaluationPost(text.id, text.text, document.title, day, document.url)
