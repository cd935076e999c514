"""Answers questions about when and how often by counting posts, which ranked search cannot do."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from ownwords.ask import date_patterns as patterns
from ownwords.ask.index import MONTHS, IndexedPost, SearchIndex
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.periods import find_period, unread_period
from ownwords.ask.post_counts import PostCounts, Topic
from ownwords.ask.query_terms import normalized_question
from ownwords.view.format import count, quoted

_LONGEST = 300  # characters; longer questions ask for more than a date
_TIES = 3  # ties named one by one; above that, only their number is given
_RECENT = 3  # posts for "lately"
_MOST_MONTHS = 24  # months listed one by one; above that, years are listed
_COUNTED = {word: number for number, word in enumerate(patterns.NUMBERS, 2)}


@dataclass(frozen=True, slots=True)
class DateAnswer:
    """An answer from the dates and counts of the posts, with passages of these posts.

    If not `is_complete`, the sentence only names the posts that the question is about; without
    passages, it only says what was not understood or not found, and the search goes on.
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
    period, rest = find_period(patterns.simplified(text), today or date.today())
    counting = PostCounts(index, period, limit)
    if period is None and (unread := unread_period(rest)):
        known = patterns.simplified(rest.replace(unread, " "))
        if any(pattern.fullmatch(known) for some, _ in _ANSWERS for pattern in some):
            return DateAnswer(
                f"“{unread}” was not understood as a time: name a year, a month of a year, or a"
                " day.",
                is_complete=False,
            )
    for groups, answer in _readings(patterns.simplified(rest) or "posts"):
        if answered := answer(counting, groups):
            return answered
    return None


Groups = dict[str, str | None]


def _readings(text: str) -> Iterator[tuple[Groups, "_Answer"]]:
    """The ways in which a question can be understood, likeliest first."""
    for some, answer in _ANSWERS:
        for pattern in some:
            if match := pattern.fullmatch(text):
                groups = match.groupdict()
                yield groups | {"topic": groups.get("topic") or groups.get("mentioned")}, answer


def _first_or_last(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    every = counting.posts(topic)
    posts = [post for post in every if post.day]
    if not posts:
        return _no_dates(counting, topic, every)
    if (which := _group(groups, "which")) in patterns.LATELY:
        many = 1 if topic else _RECENT
    else:
        several = _group(groups, "several")
        many = _COUNTED.get(several) or (int(several) if several.isdecimal() else 1)
    is_first = not which or which in patterns.OLDEST
    chosen = posts[:many] if is_first else posts[-many:][::-1]
    which = f"Your {'first' if is_first else 'last'}"
    when = _when(counting)
    undated = _undated(every, posts)
    if len(chosen) == 1:
        sentence = f"{which} post{when}{_about(topic, 1)} is {_post_label(chosen[0])}{undated}."
    else:
        listed = _joined([_post_label(post) for post in chosen])
        sentence = f"{which} {len(chosen)} posts{when}{_about(topic, 2)} are {listed}{undated}."
    return DateAnswer(sentence, counting.passages(chosen, topic))


def _nth(counting: PostCounts, groups: Groups) -> DateAnswer | None:
    topic = counting.topic(groups.get("topic"))
    every = counting.posts(topic)
    posts = [post for post in every if post.day]
    ordinal = _group(groups, "nth")
    place = int(ordinal[:-2]) if ordinal[0].isdecimal() else patterns.ORDINALS.index(ordinal) + 2
    if not posts or not place:
        return _no_dates(counting, topic, every)
    undated = _undated(every, posts)
    about = f"{_when(counting)}{_about(topic, len(posts))}"
    if place > len(posts):
        wrote = f"You wrote {count(len(posts), 'post')}{about}{undated}"
        return DateAnswer(f"{wrote}, but no {ordinal} one.")
    post = posts[place - 1]
    about = f"{_when(counting)}{_about(topic, 1)}"
    return DateAnswer(
        f"Your {ordinal} post{about} is {_post_label(post)}{undated}.",
        counting.passages([post], topic),
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
        return _no_dates(counting, topic, posts)
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
    if counting.period is None:
        return None
    if not (posts := counting.posts(topic)):
        return _elsewhere(counting, topic) if topic else _no_posts(counting, None)
    sentence = f"You wrote {count(len(posts), 'post')}{_when(counting)}{_about(topic, len(posts))}"
    passages = counting.passages(posts, topic)
    shown = f"; these are the first {len(passages)}" if len(passages) < len(posts) else ""
    return DateAnswer(f"{sentence}{shown}.", passages, is_complete=topic is None)


def _elsewhere(counting: PostCounts, topic: Topic) -> DateAnswer:
    """A topic that no post of the period mentions, which may be written about in another."""
    posts = counting.all_posts(topic)
    sentence = f"No post{_when(counting)} mentions {topic.label}"
    if posts:
        of = (
            f"{count(len(posts), 'post')} of other times"
            if any(p.day for p in posts)
            else (f"{count(len(posts), 'post')} without a date")
        )
        sentence += f"; {of} {_do(len(posts))}"
    return DateAnswer(f"{sentence}.", counting.passages(posts, topic), is_complete=False)


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
    every = counting.posts(topic)
    posts = [post for post in every if post.day]
    if not posts:
        return _no_dates(counting, topic, every)
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


def _no_dates(
    counting: PostCounts, topic: Topic | None, posts: Sequence[IndexedPost]
) -> DateAnswer:
    """The answer where no post has a date; `posts` are those that match all the same."""
    if not posts:
        return _no_posts(counting, topic)
    wrote = f"You wrote {count(len(posts), 'post')}{_about(topic, len(posts))}"
    return DateAnswer(f"{wrote}{_span(posts)}.", counting.passages(posts, topic))


def _no_posts(counting: PostCounts, topic: Topic | None) -> DateAnswer:
    every = counting.all_posts(topic)
    dated = [post for post in every if post.day]
    undated = len(every) - len(dated)
    if topic:
        sentence = f"No post{_when(counting)} mentions {topic.label}"
        if undated:  # and a period, in which it may or may not be
            sentence += f"; {count(undated, 'post')} without a date {_do(undated)}"
        return DateAnswer(f"{sentence}.")
    sentence = f"You wrote no post{_when(counting)}"
    if not dated:
        if not counting.period:
            return DateAnswer(f"{sentence}.")
        none = f"none of your {count(undated, 'post')} has a date" if undated else "you have none"
        return DateAnswer(f"It is not known what you wrote{_when(counting)}: {none}.")
    without = f", {undated} without a date" if undated else ""
    first, last = _day(dated[0].day), _day(dated[-1].day)
    return DateAnswer(f"{sentence}: yours are from {first} to {last}{without}.")


def _undated(posts: Sequence[IndexedPost], dated: Sequence[IndexedPost]) -> str:
    undated = len(posts) - len(dated)
    return f", not counting {undated} without a date" if undated else ""


def _do(posts: int) -> str:
    return "does" if posts == 1 else "do"


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
    if not days:
        return ", which has no date" if len(posts) == 1 else ", none of which has a date"
    parts: list[str] = []
    if len(days) > 1:
        parts.append(f"from {_day(days[0])} to {_day(days[-1])}")
    else:
        parts.append(f"of {_day(days[0])}")
    if undated:
        parts.append(f"{undated} without a date")
    return f", {', '.join(parts)}"


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


_Answer = Callable[[PostCounts, Groups], DateAnswer | None]
_ANSWERS: tuple[tuple[tuple[re.Pattern[str], ...], _Answer], ...] = (
    (patterns.FIRST_OR_LAST, _first_or_last),
    (patterns.NTH, _nth),
    (patterns.BY_TIME, _by_time),
    (patterns.HOW_OFTEN, _how_often),
    (patterns.HOW_MANY, _how_many),
    (patterns.HOW_MANY_WORDS, _how_many_words),
    (patterns.LONGEST, _longest),
    (patterns.WHEN_MOST, _when_most),
    (patterns.IN_A_PERIOD, _in_a_period),
    (patterns.WHEN_ABOUT, _when_about),
    (patterns.WHEN_WRITTEN, _when_written),
)
