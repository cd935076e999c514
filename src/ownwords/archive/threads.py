"""The posts of a social network as documents; an author's replies to themselves make a thread."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from ownwords.archive.document import ExpectedCount, RawDocument, SkippedItem, SourceItem, Status

_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SocialPost:
    """A post by the author; `parent` is the id of the post that it replies to."""

    id: str
    html: str
    date: datetime | None
    parent: str = ""
    urls: tuple[str, ...] = ()  # the first is for citations
    status: Status = "published"
    title: str = ""
    tags: tuple[str, ...] = ()


def join_threads(posts: Iterable[SocialPost], author: str) -> Iterator[SourceItem]:
    """Yield a document for each post and for each thread; count replies to other people.

    A reply says little without the post it answers, which exports do not contain.
    """
    # Ids grow with time; posts of a thread may have been sent within the same second.
    ordered = sorted(posts, key=lambda post: (post.date or _FIRST, len(post.id), post.id))
    known = {post.id for post in ordered}
    threads: dict[str, list[SocialPost]] = {}
    first_of: dict[tuple[str, Status], str] = {}
    replies: set[str] = set()
    for post in ordered:
        if post.parent and (post.parent in replies or post.parent not in known):
            replies.add(post.id)
            continue
        first = first_of.get((post.parent, post.status), post.id)
        first_of[post.id, post.status] = first
        threads.setdefault(first, []).append(post)
    yield ExpectedCount(len(threads))
    for first, thread in threads.items():
        urls = [url for post in thread for url in post.urls]
        yield RawDocument(
            ref=f"post/{first}",
            title=thread[0].title,
            body="\n".join(post.html for post in thread),
            markup="html",
            status=thread[0].status,
            date=thread[0].date,
            url=urls[0] if urls else "",
            author=author,
            tags=tuple(dict.fromkeys(tag for post in thread for tag in post.tags)),
        )
    if replies:
        yield SkippedItem("post", "a reply to somebody else's post", len(replies))
