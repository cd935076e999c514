"""The posts of an archive as table rows: filtered, sorted, and in pages."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ownwords.archive import report_view as summary
from ownwords.archive.report import PostSummary
from ownwords.serve.report_cache import CachedReport
from ownwords.view import format as say

Sort = Literal["date", "words", "share", "title", "learned_words"]
PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
_MAX_TAGS = 200
_UNDATED = "none"
HELD_OUT = ("validation", "test")

_SORT_KEYS: Mapping[Sort, Callable[[PostSummary], tuple[Any, ...]]] = {
    "date": lambda post: (post.day,),
    "words": lambda post: (post.own_words, post.words),
    "share": lambda post: (post.share,),
    "title": lambda post: (post.title.casefold(),),
    "learned_words": lambda post: (word_counts([post]).learned_words,),
}


@dataclass(frozen=True, slots=True)
class PostQuery:
    """The filters, order and page of a query for posts; empty filters match everything."""

    sort: Sort = "date"
    descending: bool = True
    first: int = 0
    most: int = PAGE_SIZE
    decision: str = ""
    split: str = ""  # train, validation, test
    tag: str = ""
    year: str = ""  # a year such as "2014", or "none" for posts without a date
    kind: str = ""  # post, page
    flag: str = ""
    title: str = ""  # words that must occur, in any order

    def matches(self, post: PostSummary, tags: tuple[str, ...]) -> bool:
        """Whether the post passes all filters."""
        pairs = (
            (self.decision, post.decision),
            (self.split, post.split),
            (self.kind, post.kind),
            (self.year, post.day[:4] or _UNDATED),
        )
        if any(wanted and wanted != value for wanted, value in pairs):
            return False
        if (self.flag and self.flag not in post.flags) or (self.tag and self.tag not in tags):
            return False
        title = post.title.casefold()
        return all(word in title for word in self.title.casefold().split())


def parse_query(query: Mapping[str, str]) -> PostQuery:
    """Parse the query string of a URL; invalid values are ignored."""
    sorts = [sort for sort in get_args(Sort) if sort == query.get("sort")]
    filters = ("decision", "split", "tag", "year", "kind", "flag")
    return PostQuery(
        sort=sorts[0] if sorts else "date",
        descending=query.get("order", "") != "up",
        first=_number(query.get("first", ""), 0, 10_000_000),
        most=max(1, _number(query.get("most", ""), PAGE_SIZE, MAX_PAGE_SIZE)),
        title=query.get("title", "")[:200],
        **{name: query.get(name, "") for name in filters},
    )


def find_posts(cached: CachedReport, query: PostQuery) -> dict[str, Any]:
    """A page of rows, with the totals of posts and words that match."""
    posts = [x for x in cached.report.posts if query.matches(x, cached.tags.get(x.id, ()))]
    # Posts without a date come last. Ties keep the report's order, longest first.
    undated = [post for post in posts if not post.day] if query.sort == "date" else []
    dated = [post for post in posts if post.day] if query.sort == "date" else posts
    rows = sorted(dated, key=_SORT_KEYS[query.sort], reverse=query.descending) + undated
    return {
        "total": len(posts),
        "texts": count_texts(posts),
        "own_words": sum(post.own_words for post in posts),
        **asdict(word_counts(posts)),
        "first": query.first,
        "rows": [row(post, cached.tags) for post in rows[query.first : query.first + query.most]],
    }


def count_texts(posts: Iterable[PostSummary]) -> str:
    """Count posts and pages in words, such as "53 posts and 1 page"."""
    kinds = Counter("page" if post.kind == "page" else "post" for post in posts)
    counted = (say.count(kinds[kind], kind) for kind in ("post", "page") if kinds[kind])
    return " and ".join(counted) or "No posts"


@dataclass(frozen=True, slots=True)
class WordCounts:
    """What becomes of the author's own words: the three add up to all of them."""

    learned_words: int  # a model is trained on
    held_out_words: int  # held back, to choose and to judge the model by
    left_out_words: int


def word_counts(posts: Iterable[PostSummary]) -> WordCounts:
    """Count what becomes of the words of some posts."""
    learned = held_out = own = 0
    for post in posts:
        own += post.own_words
        learned += post.training_words if post.split == "train" else 0
        held_out += post.training_words if post.split in HELD_OUT else 0
    return WordCounts(learned, held_out, own - learned - held_out)


def row(post: PostSummary, tags: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """One post as JSON, with its decision in words."""
    return asdict(post) | {
        "title": say.title_of(post.title),
        **asdict(word_counts([post])),
        "tags": list(tags.get(post.id, ())),
        "decided": summary.decision(post),
        "flagged": summary.flags(post),
        "reason": say.sentence(post.reason) if post.reason else "",
    }


def facets(cached: CachedReport) -> dict[str, list[tuple[str, int]]]:
    """The values of each filter, with the number of posts that match."""
    posts = cached.report.posts
    tags = Counter(tag for post in posts for tag in cached.tags.get(post.id, ()))
    return {
        "years": sorted(Counter(post.day[:4] or _UNDATED for post in posts).items(), reverse=True),
        "tags": sorted(tags.most_common(_MAX_TAGS), key=lambda item: item[0].casefold()),
        "decisions": Counter(post.decision for post in posts).most_common(),
        "splits": Counter(post.split for post in posts if post.split).most_common(),
        "kinds": Counter(post.kind for post in posts).most_common(),
        "flags": Counter(flag for post in posts for flag in post.flags).most_common(),
    }


def _number(text: str, default: int, most: int) -> int:
    # isdecimal: int() rejects superscript digits; at most nine: int() of many digits is slow.
    return min(int(text), most) if text.isdecimal() and len(text) < 10 else default
