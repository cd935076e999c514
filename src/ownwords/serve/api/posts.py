"""The texts of an archive as lines: sorted, narrowed down, a page at a time."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ownwords.archive.report import PostSummary, summary
from ownwords.archive.report import formatting as say
from ownwords.serve.api.report_cache import CachedReport

Sort = Literal["date", "words", "share", "title", "training_words"]
PAGE = 50  # lines a page has unless asked for otherwise
MOST = 200  # lines a page may have
_FACETS = 200  # tags that can be chosen among
_UNDATED = "none"

_BY: Mapping[Sort, Callable[[PostSummary], tuple[Any, ...]]] = {
    "date": lambda post: (post.day,),
    "words": lambda post: (post.own_words, post.words),
    "share": lambda post: (post.share,),
    "title": lambda post: (post.title.casefold(),),
    "training_words": lambda post: (post.training_words,),
}


@dataclass(frozen=True, slots=True)
class PostQuery:
    """Which lines, in which order; what is empty narrows nothing down."""

    sort: Sort = "date"
    descending: bool = True
    first: int = 0
    most: int = PAGE
    decision: str = ""
    split: str = ""  # train | validation | test
    tag: str = ""
    year: str = ""  # "2014", or "none" for what has no date
    kind: str = ""  # post | page
    flag: str = ""
    title: str = ""  # words that stand in it, in any order


def wanted(query: Mapping[str, str]) -> PostQuery:
    """What an address asks for; what cannot be understood is taken as not asked for."""
    sort = query.get("sort", "")
    known = [one for one in get_args(Sort) if one == sort]
    return PostQuery(
        sort=known[0] if known else "date",
        descending=query.get("order", "") != "up",
        first=_number(query.get("first", ""), 0, 10_000_000),
        most=max(1, _number(query.get("most", ""), PAGE, MOST)),
        decision=query.get("decision", ""),
        split=query.get("split", ""),
        tag=query.get("tag", ""),
        year=query.get("year", ""),
        kind=query.get("kind", ""),
        flag=query.get("flag", ""),
        title=query.get("title", "")[:200],
    )


def page_of(known: CachedReport, ask: PostQuery) -> dict[str, Any]:
    """The lines asked for, how many there are in all, and how many words they come to."""
    found = [post for post in known.report.posts if _fits(post, known.tags, ask)]
    # The report's own order, longest first, settles what is equal, whichever way it is sorted.
    dated = [post for post in found if post.day] if ask.sort == "date" else found
    rest = [post for post in found if not post.day] if ask.sort == "date" else []
    dated = sorted(dated, key=_BY[ask.sort], reverse=ask.descending)
    ordered = dated + rest  # what has no date comes last
    shown = ordered[ask.first : ask.first + ask.most]
    return {
        "total": len(found),
        "own_words": sum(post.own_words for post in found),
        "training_words": sum(post.training_words for post in found),
        "first": ask.first,
        "rows": [line(post, known.tags) for post in shown],
    }


def line(post: PostSummary, tags: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """One text as JSON, with the words for what was decided about it."""
    return asdict(post) | {
        "title": say.title_of(post.title),
        "tags": list(tags.get(post.id, ())),
        "decided": summary.decision(post),
        "flagged": summary.flags(post),
        "reason": say.sentence(post.reason) if post.reason else "",
    }


def facets(known: CachedReport) -> dict[str, list[tuple[str, int]]]:
    """What can be chosen among, with how many texts each leaves."""
    posts = known.report.posts
    tags = Counter(tag for post in posts for tag in known.tags.get(post.id, ()))
    return {
        "years": sorted(Counter(post.day[:4] or _UNDATED for post in posts).items(), reverse=True),
        "tags": sorted(tags.most_common(_FACETS), key=lambda one: one[0].casefold()),
        "decisions": Counter(post.decision for post in posts).most_common(),
        "splits": Counter(post.split for post in posts if post.split).most_common(),
        "kinds": Counter(post.kind for post in posts).most_common(),
        "flags": Counter(flag for post in posts for flag in post.flags).most_common(),
    }


def _fits(post: PostSummary, tags: Mapping[str, tuple[str, ...]], ask: PostQuery) -> bool:
    if ask.decision and post.decision != ask.decision:
        return False
    if ask.split and post.split != ask.split:
        return False
    if ask.kind and post.kind != ask.kind:
        return False
    if ask.year and (post.day[:4] or _UNDATED) != ask.year:
        return False
    if ask.flag and ask.flag not in post.flags:
        return False
    if ask.tag and ask.tag not in tags.get(post.id, ()):
        return False
    if ask.title:
        title = post.title.casefold()
        return all(word in title for word in ask.title.casefold().split())
    return True


def _number(text: str, default: int, most: int) -> int:
    # isdecimal, or a superscript two would pass and int refuse it; nine digits, or int takes long.
    return min(int(text), most) if text.isdecimal() and len(text) < 10 else default
