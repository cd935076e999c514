"""Answers questions about when and how often by counting posts, which ranked search cannot do."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from ownwords.archive.report.formatting import count, quoted
from ownwords.ask.index import MONTHS, IndexedPost, SearchIndex
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.periods import find_period
from ownwords.ask.post_counts import PostCounts, Topic
from ownwords.ask.query_terms import normalized_question

_LONGEST = 300  # characters; longer questions ask for more than a date
_TIES = 3  # ties named one by one; above that, only their number is given
_RECENT = 3  # posts for "lately"
_MOST_MONTHS = 24  # months listed one by one; above that, years are listed
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_COUNTED = {word: number for number, word in enumerate(_NUMBERS, 2)}

_POST = r"(?:blog ?)?(?:posts?|articles?|entry|entries|essays?|columns?|pieces?|texts?)"
_WROTE = r"(?:wrote|written|write|published|publish|posted|post|blogged|blog)"
_I_WROTE = rf"(?: (?:that )?(?:did i|have i|do i|i have|i've|i)(?: ever)? {_WROTE})?"
_SAID = (
    r"(?:(?:mention|mentioned|mentioning|write|written|wrote|writing|talk|talked|talking|say|said"
    r"|saying|speak|spoke|spoken|speaking|discuss|discussed|discussing|blog|blogged|blogging"
    r"|post|posted|posting|publish|published|publishing)(?: about| of| on)?"
    r"|(?:use|used) the words?|(?:refer|referred) to)"
)
_OF = (
    r"(?:(?:mention|mentioned|discuss|discussed)|(?:write|written|wrote|talk|talked|say|said|speak"
    r"|spoke|spoken|blog|blogged|post|posted|publish|published) (?:about|of|on)) (?P<topic>.+?)"
)
_THOUGHT = rf"(?:{_SAID}|(?:think|thought|thinking)(?: about| of)?)"
_TOPIC = (
    r"(?: (?:about|on|of|regarding|concerning|mentioning|containing|with"
    r"|(?:that|which) (?:mentions?|contains?|(?:is|are|was|were) about)) (?P<topic>.+))?"
)
_FIRST = r"(?P<which>first|earliest|oldest|last|latest|newest|most recent)"
_ORDINALS = tuple("second third fourth fifth sixth seventh eighth ninth tenth".split())  # noqa: SIM905
_NTH = rf"(?P<nth>{'|'.join(_ORDINALS)}|\d{{1,4}}(?:st|nd|rd|th))"
_EACH = r" (?:(?:in )?(?:each|every)|per|a|by) (?P<each>year|month)"
_LATELY = ("recently", "most recently", "lately")
_OLDEST = ("first", "earliest", "oldest", "start", "begin", "started", "began")
_PLEASE = r"(?:please )?(?:(?:can|could) you )?(?:(?:tell me|show me|show|list|give me) )?(?:all )?"


@dataclass(frozen=True, slots=True)
class DateAnswer:
    """An answer from the dates and counts of the posts, with passages of these posts.

    If not `is_complete`, the sentence only names the posts that the question is about.
    """

    sentence: str
    passages: tuple[RetrievedPassage, ...] = ()
    is_complete: bool = True


def answer_from_dates(
    index: SearchIndex, question: str, *, limit: int = 8, today: date | None = None
) -> DateAnswer | None:
    """The answer if the question asks when or how often, otherwise None.

    English only. Posts that were left out as somebody else's do not count.
    """
    text = normalized_question(question).rstrip(" ?!.").replace("’", "'")
    if len(text) > _LONGEST:
        return None
    period, rest = find_period(text, today or date.today())
    for pattern, answer in _ANSWERS:
        if match := pattern.fullmatch(rest or "posts"):
            groups = match.groupdict()
            groups["topic"] = groups.get("topic") or groups.get("mentioned")
            if answered := answer(PostCounts(index, period, limit), groups):
                return answered
    return None


Groups = dict[str, str | None]


def _first_or_last(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    posts = [post for post in counting.posts(topic) if post.day]
    if not posts:
        return _no_posts(counting, topic)
    if (which := _group(groups, "which")) in _LATELY:
        many = _RECENT
    else:
        several = _group(groups, "several")
        many = _COUNTED.get(several) or (int(several) if several.isdecimal() else 1)
    is_first = which in _OLDEST
    chosen = posts[:many] if is_first else posts[-many:][::-1]
    which = f"Your {'first' if is_first else 'last'}"
    when = _when(counting)
    if len(chosen) == 1:
        sentence = f"{which} post{when}{_about(topic, 1)} is {_post_label(chosen[0])}."
    else:
        listed = _joined([_post_label(post) for post in chosen])
        sentence = f"{which} {len(chosen)} posts{when}{_about(topic, 2)} are {listed}."
    return DateAnswer(sentence, counting.passages(chosen, topic))


def _nth(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    posts = [post for post in counting.posts(topic) if post.day]
    ordinal = _group(groups, "nth")
    place = int(ordinal[:-2]) if ordinal[0].isdecimal() else _ORDINALS.index(ordinal) + 2
    if not posts or not place:
        return _no_posts(counting, topic)
    about = f"{_when(counting)}{_about(topic, len(posts))}"
    if place > len(posts):
        return DateAnswer(f"You wrote {count(len(posts), 'post')}{about}, but no {ordinal} one.")
    post = posts[place - 1]
    about = f"{_when(counting)}{_about(topic, 1)}"
    return DateAnswer(
        f"Your {ordinal} post{about} is {_post_label(post)}.", counting.passages([post], topic)
    )


def _when_about(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    """The answer about when posts mention a topic; None if no post contains these words."""
    topic = counting.topic(groups.get("topic"))
    return _how_many(counting, groups) if counting.posts(topic) else None


def _by_time(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    posts = counting.posts(topic)
    with_date = [post for post in posts if post.day]
    if not with_date:
        return _no_posts(counting, topic)
    by_month = Counter(post.day[:7] for post in with_date)
    is_monthly = _group(groups, "each") == "month" and len(by_month) <= _MOST_MONTHS
    counts = by_month if is_monthly else Counter(post.day[:4] for post in with_date)
    times = [f"{counts[time]} in {_month(time) if is_monthly else time}" for time in sorted(counts)]
    sentence = f"You wrote {count(len(posts), 'post')}{_when(counting)}{_about(topic, len(posts))}"
    undated = len(posts) - len(with_date)
    without = f", and {undated} without a date" if undated else ""
    return DateAnswer(f"{sentence}: {_joined(times)}{without}.", counting.passages(posts, topic))


def _how_many(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    posts = counting.posts(topic)
    if not posts:
        return _no_posts(counting, topic)
    sentence = f"You wrote {count(len(posts), 'post')}{_when(counting)}{_about(topic, len(posts))}"
    return DateAnswer(f"{sentence}{_span(posts)}.", counting.passages(posts, topic))


def _how_often(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    if topic is None or not topic.is_phrase:
        return _how_many(counting, groups)
    posts = counting.posts(topic)
    if not posts:
        return _no_posts(counting, topic)
    times = counting.mentions(topic, posts)
    often = {1: "once", 2: "twice"}.get(times, f"{count(times)} times")
    sentence = f"{topic.label} appears {often} in {count(len(posts), 'post')}{_when(counting)}"
    return DateAnswer(f"{sentence}{_span(posts)}.", counting.passages(posts, topic))


def _how_many_words(counting: PostCounts, _: Groups) -> DateAnswer | None:
    posts = counting.posts()
    if not posts:
        return _no_posts(counting, None)
    words = count(sum(post.words for post in posts), "word")
    return DateAnswer(f"You wrote {words}{_when(counting)}, in {count(len(posts), 'post')}.")


def _longest(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    posts = counting.posts(topic)
    if not posts:
        return _no_posts(counting, topic)
    which = _group(groups, "which")
    lengths = [post.words for post in posts]
    post = posts[lengths.index(max(lengths) if which == "longest" else min(lengths))]
    sentence = f"Your {which} post{_when(counting)}{_about(topic, 1)} is {_post_label(post)}"
    return DateAnswer(
        f"{sentence}, with {count(post.words, 'word')}.", counting.passages([post], topic)
    )


def _in_a_period(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    posts = counting.posts(topic)
    if counting.period is None or (topic and not posts):
        # The author may have written about it later: leave the question to the search.
        return None
    if not posts:
        return _no_posts(counting, None)
    sentence = f"You wrote {count(len(posts), 'post')}{_when(counting)}{_about(topic, len(posts))}"
    passages = counting.passages(posts, topic)
    shown = f"; these are the first {len(passages)}" if len(passages) < len(posts) else ""
    return DateAnswer(f"{sentence}{shown}.", passages, is_complete=topic is None)


def _when_written(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    """The date of the post whose title is in the question; None if there is no such post."""
    documents = counting.titled(_group(groups, "title"))
    posts = [post for post in counting.posts() if post.document in documents and post.day]
    if not posts:
        return None
    written = " and ".join(f"{quoted(post.title)} on {_day(post.day)}" for post in posts)
    return DateAnswer(f"You wrote {written}.", counting.passages(posts))


def _when_most(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    posts = [post for post in counting.posts(topic) if post.day]
    if not posts:
        return _no_posts(counting, topic)
    digits = 7 if _group(groups, "unit") == "month" else 4
    counts = Counter(post.day[:digits] for post in posts)
    most = max(counts.values())
    times = [
        _month(unit) if digits == 7 else unit for unit in sorted(counts) if counts[unit] == most
    ]
    posted = f"{count(most, 'post')}{_about(topic, most)}"
    if len(times) > _TIES:
        unit = "months" if digits == 7 else "years"
        return DateAnswer(f"{len(times)} {unit} have the same number: {posted} each.")
    each = " each" if len(times) > 1 else ""
    return DateAnswer(f"You wrote most in {_joined(times)}: {posted}{each}.")


def _no_posts(counting: PostCounts, topic: Topic | None) -> DateAnswer:
    every = [post for post in counting.all_posts() if post.day]
    if topic:
        return DateAnswer(f"No post{_when(counting)} mentions {topic.label}.")
    sentence = f"You wrote no post{_when(counting)}"
    if not every:
        return DateAnswer(
            f"{sentence}: none of them has a date." if counting.period else f"{sentence}."
        )
    return DateAnswer(f"{sentence}: yours are from {_day(every[0].day)} to {_day(every[-1].day)}.")


def _group(groups: Groups, name: str) -> str:
    return (groups.get(name) or "").strip().casefold()


def _when(counting: PostCounts) -> str:
    return f" {counting.period.label}" if counting.period else ""


def _about(topic: Topic | None, posts: int) -> str:
    return f" that {'mentions' if posts == 1 else 'mention'} {topic.label}" if topic else ""


def _span(posts: Sequence[IndexedPost]) -> str:
    """The dates of the first and the last post, and the number of undated ones."""
    days = [post.day for post in posts if post.day]
    undated = len(posts) - len(days)
    parts: list[str] = []
    if len(days) > 1:
        parts.append(f"from {_day(days[0])} to {_day(days[-1])}")
    elif days:
        parts.append(f"of {_day(days[0])}")
    if undated:
        parts.append(f"{undated} without a date" if days else "without a date")
    return f", {', '.join(parts)}" if parts else ""


def _post_label(post: IndexedPost) -> str:
    return quoted(post.title) + (f" of {_day(post.day)}" if post.day else "")


def _day(day: str) -> str:
    year, month, number = day.split("-")
    return f"{int(number)} {MONTHS[int(month) - 1]} {year}"


def _month(month: str) -> str:
    year, number = month.split("-")
    return f"{MONTHS[int(number) - 1]} {year}"


def _joined(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(_PLEASE + text, re.IGNORECASE)


_ANSWERS: tuple[tuple[re.Pattern[str], Callable[[PostCounts, Groups], DateAnswer | None]], ...] = (
    (
        _pattern(
            rf"(?:(?:what|which|where|when) (?:is|was|are|were) )?(?:(?:my|the|your) )?(?:very )?"
            rf"{_FIRST}(?: (?P<several>\d\d?|{'|'.join(_NUMBERS)}))? {_POST}{_I_WROTE}"
            rf"(?:{_TOPIC}| about)"
        ),
        _first_or_last,
    ),
    (
        _pattern(
            r"when (?:did|have) i (?P<which>first|last|start|begin)(?: to)?"
            rf" {_SAID}(?: (?P<topic>.+))?"
        ),
        _first_or_last,
    ),
    (
        _pattern(
            rf"when (?:was|is) the {_FIRST} time (?:that )?i(?: ever)? {_SAID}(?: (?P<topic>.+))?"
        ),
        _first_or_last,
    ),
    (
        _pattern(r"when (?:was|is|were) (?P<topic>.+) (?P<which>first|last) mentioned"),
        _first_or_last,
    ),
    (
        _pattern(
            rf"(?:what|which {_POST}) (?:did|have) i(?: ever)? {_SAID}"
            rf" (?P<which>first|last|{'|'.join(_LATELY)}){_TOPIC}"
        ),
        _first_or_last,
    ),
    (
        _pattern(
            rf"(?:(?:what|which|when) (?:is|was) )?(?:my|the|your) {_NTH} {_POST}{_I_WROTE}{_TOPIC}"
        ),
        _nth,
    ),
    (
        _pattern(
            rf"how (?:often|many times|many {_POST}) (?:did|do|have) i(?: ever)? {_SAID}"
            rf"(?: (?P<topic>.+?))?{_EACH}"
        ),
        _by_time,
    ),
    (_pattern(rf"(?:how many )?{_POST}{_I_WROTE}{_TOPIC}{_EACH}"), _by_time),
    (
        _pattern(rf"(?:in )?(?:which|what) (?P<each>year|month)s? (?:did|have) i(?: ever)? {_OF}"),
        _by_time,
    ),
    (
        _pattern(
            rf"how (?:often|many times) (?:did|do|have) i(?: ever)? {_SAID}(?: (?P<topic>.+))?"
        ),
        _how_often,
    ),
    (
        _pattern(
            r"how (?:often|many times) (?:is|was|are|were|does|do|did) (?P<topic>.+)"
            r" (?:mentioned|named|come up|appear|occur|turn up)"
        ),
        _how_often,
    ),
    (
        _pattern(
            rf"how many {_POST}(?: (?:are|were) there| exist)?{_I_WROTE}(?: in all)?"
            rf"(?:{_TOPIC}| (?:mention|contain|are about|were about) (?P<mentioned>.+))"
        ),
        _how_many,
    ),
    (_pattern(rf"how many words{_I_WROTE}(?: in all)?"), _how_many_words),
    (
        _pattern(
            r"(?:(?:what|which) (?:is|was) )?(?:(?:my|the|your) )?(?P<which>longest|shortest)"
            rf" {_POST}{_I_WROTE}{_TOPIC}"
        ),
        _longest,
    ),
    (
        _pattern(
            r"(?:in )?(?:which|what) (?P<unit>year|month) (?:did|have) i"
            rf" {_WROTE}(?: the)? most(?: {_POST}| often)?{_TOPIC}"
        ),
        _when_most,
    ),
    (
        _pattern(rf"(?:what|which {_POST}) (?:did|have) i(?: ever)? {_THOUGHT}(?: (?P<topic>.+))?"),
        _in_a_period,
    ),
    (
        _pattern(
            rf"(?:(?:what|which) )?(?:(?:is|was|are|were) )?(?:(?:my|the|your) )?{_POST}"
            rf"{_I_WROTE}{_TOPIC}"
        ),
        _in_a_period,
    ),
    (_pattern(rf"what was i {_THOUGHT}"), _in_a_period),
    (_pattern(rf"when (?:did|have|do) i(?: ever)? {_OF}"), _when_about),
    (
        _pattern(rf"when (?:did i {_WROTE}|was) (?:the {_POST} )?(?P<title>.+?)(?: {_WROTE})?"),
        _when_written,
    ),
)
