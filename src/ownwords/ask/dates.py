"""Answers questions of when, how often and how many by counting posts, which no search can do.

A question, translated to English if it is German, is split into a period ("in March 2014"), a topic
("about the kettle") and the rest, which must consist of known words that say what to count. All
other questions are left to the search.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Final, NamedTuple

from ownwords.ask.index import IndexedPost, SearchIndex, folded
from ownwords.ask.passages import Passage
from ownwords.ask.query import Query, QueryTerm, quotations, words_of
from ownwords.language.words import (
    filled,
    in_all_languages,
    language,
    month_number,
    months,
    number_words,
    word_set,
)
from ownwords.view.format import count, day, joined, title_of

_LONGEST = 300  # characters; longer questions ask for more than a date
_MAX_MONTHS = 24  # months listed one by one; above that, years are listed

# ---- periods

_WORDS: Final = language("en")["dates"]
_MONTH = rf"(?:(?:{'|'.join(months())}|{'|'.join(month[:3] for month in months())}|sept)\.?)"
_DAY = r"(0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
# "March 2014", "5 March 2014", "March 5th, 2014"
_NAMED_DATE = re.compile(
    rf"(?<!\w)(?:{_DAY}(?: of)? )?({_MONTH})(?: {_DAY})?,? (?:of )?((?:19|20)\d\d)(?!\w)",
    re.IGNORECASE,
)
_DATE = r"((?:19|20)\d\d(?:-(?:0[1-9]|1[0-2])(?:-\d\d)?)?)"
_NUMBERS: Final = {"a": 1} | {word: n for word, n in number_words().items() if 0 < n <= 12}
_UNITS = {
    "day": (1, "in the last {} days"),
    "week": (7, "in the last {} weeks"),
    "month": (30.44, "in the last {} months"),
    "year": (365.25, "in the last {} years"),
}
_IN = r"(?:back )?(?:(?:in|on|during|of|from|for|over|within|throughout) )?(?:the )?(?:year )?"


class Period(NamedTuple):
    """A half-open range of ISO days, with a label such as "in March 2014"."""

    start: str
    end: str
    label: str

    def holds(self, day: str) -> bool:
        """Whether the period includes an ISO day; it never includes an empty one."""
        return bool(day) and self.start <= day < self.end


def find_period(question: str, today: date) -> tuple[Period | None, str]:
    """Return the first period in a question, and the question without it."""
    text = _NAMED_DATE.sub(_iso_of, question)
    for pattern, period_of in _PERIODS:
        if match := re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE):
            try:
                period = period_of(today, *(group.casefold() for group in match.groups()))
            except ValueError:  # there is no such day
                return None, question
            return period, " ".join(f"{text[: match.start()]} {text[match.end() :]}".split())
    return None, question


def _iso_of(match: re.Match[str]) -> str:
    before, month, after, year = match.groups()
    iso = f"{year}-{month_number(month):02}"
    return f"{iso}-{int(before or after):02}" if before or after else iso


def _at(iso: str) -> Period:
    """Return the period of an ISO year, month or day."""
    year, month, number = (*map(int, iso.split("-")), 0, 0)[:3]
    first = date(year, month or 1, number or 1)
    after = first + timedelta(days=1 if number else 31 if month else 366)
    end = after if number else after.replace(day=1) if month else date(year + 1, 1, 1)
    label = f"on {day(iso)}" if number else f"during {_month(iso)}" if month else f"in {iso}"
    return Period(first.isoformat(), end.isoformat(), label)


def _range(_: date, *named: str) -> Period:
    first, last = sorted(map(_at, named))
    label = f"from {first.label.partition(' ')[2]} to {last.label.partition(' ')[2]}"
    return Period(first.start, last.end, label)


def _side(_: date, side: str, named: str) -> Period:
    whole = _at(named)
    time = whole.label.partition(" ")[2]
    labels = (f"before {time}", f"until {time}", f"after {time}", f"since {time}")
    label = next(label for label in labels if label.startswith(side))
    if side in ("before", "until"):
        return Period("0000-01-01", whole.start if side == "before" else whole.end, label)
    return Period(whole.end if side == "after" else whole.start, "9999-12-31", label)


def _past(today: date, many: str, unit: str) -> Period:
    """Return the period of the last N units, up to and including today.

    Raises ValueError if N is 0.
    """
    number = int(many) if many.isdecimal() else _NUMBERS.get(many, 1)
    if not number:
        raise ValueError
    days, label = _UNITS[unit]
    first = (today - timedelta(days=round(number * days))).isoformat()
    label = label.format(number) if number > 1 else f"since {day(first)}"
    return Period(first, (today + timedelta(days=1)).isoformat(), label)


def _calendar(today: date, which: str, unit: str) -> Period:
    """Return the current or the previous calendar week (from Monday), month or year."""
    if unit == "week":
        first = today - timedelta(days=today.weekday() + 7 * (which == "last"))
        label = f"in the week of {day(first.isoformat())}"
        return Period(first.isoformat(), (first + timedelta(days=7)).isoformat(), label)
    first = today.replace(day=1, month=today.month if unit == "month" else 1)
    if which == "last":
        first -= timedelta(days=1)
    return _at(first.isoformat()[: 4 if unit == "year" else 7])


_PERIODS: tuple[tuple[str, Callable[..., Period]], ...] = (
    (rf"(?:between) {_DATE} and {_DATE}", _range),
    (rf"(?:from|in) {_DATE} ?(?:to|until|-|–) ?{_DATE}", _range),
    (rf"from {_DATE} on(?:wards?)?", lambda today, named: _side(today, "since", named)),
    (rf"(before|until|after|since) {_DATE}", _side),
    (rf"(?=[a-z]){_IN}{_DATE}", lambda _, iso: _at(iso)),
    (
        rf"{_IN}(?:last|past) (\d{{1,3}}|{'|'.join(_NUMBERS)}) (day|week|month|year)s?",
        _past,
    ),
    # "last week" means the previous calendar week; "the last week" and "the past week" end today.
    (
        r"(?:(?:in|over|within|from|of) )?(?:the last|(?:the )?past)() (week|month|year)",
        _past,
    ),
    (rf"{_IN}(this|last) (year|month|week)", _calendar),
)

# ---- what is asked

_POST: Final = _WORDS["post"]
_TOPIC, _TITLE, _GERMAN, _ARTICLES, _VERBS = (
    re.compile(filled(pattern), re.IGNORECASE)
    for pattern in (
        "|".join(_WORDS["topic"]),
        _WORDS["title"],
        language("de")["date_question"],
        rf"^(?:(?:{'|'.join(in_all_languages('articles').values())}) )*+(?:words? |wort )?",
        _WORDS["verbs"],
    )
)
_FIRST, _LAST, _OTHER_WORDS = (word_set(_WORDS[name]) for name in ("first", "last", "other"))
_PER = frozenset(("per-year", "per-month"))
# Words such as "not" and "or": a topic that contains one cannot be answered by matching words, even
# if a post contains the phrase.
_LOGIC = word_set(" ".join(in_all_languages("logic").values()))
# A year, month or weekday is a topic only if nothing else in the question names a time.
_OTHER_TIME = re.compile(
    rf"(?:19|20)\d\d|{_MONTH}|(?:{'|'.join(language('en')['weekdays'].split())}|weekend)s?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class DateAnswer:
    """An answer from the dates and counts of the posts, with passages of these posts.

    If not `is_complete`, the sentence only counts the posts that the question is about, and the
    search continues.
    """

    sentence: str
    passages: tuple[Passage, ...] = ()
    is_complete: bool = True


def answer_from_dates(
    index: SearchIndex, question: str, *, limit: int = 8, today: date | None = None
) -> DateAnswer | None:
    """Return the answer if the question asks when or how often, otherwise None.

    Posts that were left out as somebody else's do not count.
    """
    text = Query.of(question).text.rstrip(" ?!.").replace("’", "'")
    if len(text) > _LONGEST:
        return None
    if _GERMAN.match(text):
        for pattern, word in language("de")["in_english"]:
            text = re.sub(rf"\b(?:{pattern})\b", word, text, flags=re.IGNORECASE)
        text = " ".join(text.split())
    period, rest = find_period(text, today or date.today())
    asked = _Question(index, period, limit, rest or "posts")
    return asked.answer() or asked.when_written()


class _Question:
    """A question without its period: the topic, what is asked, and the posts that it is about."""

    def __init__(self, index: SearchIndex, period: Period | None, limit: int, text: str) -> None:
        self._index, self._limit, self._period, self._text = index, limit, period, text
        self._when = period.label if period else ""
        self._post = f"post {self._when}" if period else "post"
        for pattern, word in _WORDS["same"]:
            text = re.sub(pattern, word, text, flags=re.IGNORECASE)
        parts = _TOPIC.fullmatch(text)
        found = parts.groups("") if parts else (text, "", "", "", "", "")
        head, topic, tail = map("".join, zip(found[:3], found[3:], strict=True))
        self._topic_text = re.sub(r"^(?:are|is) there (?:of )?", "", topic)
        self._asked = f"{head}{tail}".casefold()
        for pattern, word in _WORDS["asked"]:
            self._asked = re.sub(rf"\b(?:{pattern})\b", word, self._asked)
        self._words = set(re.findall(r"[^\s,?.!:]+", self._asked))

    def answer(self) -> DateAnswer | None:
        """Return the answer; None if the question asks for anything else."""
        words, topic = self._words, self._topic_text
        known = _FIRST | _LAST | _PER | _OTHER_WORDS
        is_known = all(word in known or _VERBS.fullmatch(word) for word in words)
        if not is_known or (topic and not self._topic):
            return None
        is_about_posts = bool(topic) or "blog" in words or any(map(_VERBS.fullmatch, words))
        is_counted = "how-many" in words or ("how-often" in words and (topic or "i" in words))
        is_list = re.search(rf"{_POST}.* (?:mention|contain)", self._asked) and "i" not in words
        is_yes_no = topic and (re.match(r"(?:have|did|do|does|is|are) ", self._asked) or is_list)
        is_when = bool("when" in words and topic and "i" in words)
        is_listed = bool(self._period and "when" not in words)
        is_end = bool(words & (_FIRST | _LAST))
        is_asked = is_counted or is_yes_no or is_when or is_listed or is_end or words & _PER
        if not (is_about_posts and is_asked):
            return None
        every = self._posts()
        posts = [post for post in every if not self._period or self._period.holds(post.day)]
        dated = [post for post in posts if post.day]
        only_lists = not (is_counted or is_yes_no or is_end or words & _PER)
        if not posts:
            if is_when and only_lists:
                return None
            # The search continues: posts outside the period may be about the topic.
            is_open = only_lists and bool(topic)
            return DateAnswer(
                self._none(every), self._passages(every) if is_open else (), not is_open
            )
        if is_end and dated:
            is_last = bool(words & _LAST)
            end = dated[-1] if is_last else dated[0]
            post, title, on = self._post, title_of(end.title), day(end.day)
            if self._topic:
                post = f"{post} that mentions {self._topic[1]}"
            last, first = (
                f"Your last {post} is “{title}”, from {on}",
                f"Your first {post} is “{title}”, from {on}",
            )
            parts = [last if is_last else first]
            if missing := len(posts) - len(dated):
                parts.append(f"not counting {missing} without a date")
            return DateAnswer(f"{', '.join(parts)}.", self._passages([end]))
        parts = [self._count(len(posts))]
        if words & _PER and dated:
            counts = Counter(post.day[:7] for post in dated)
            if "per-year" in words or len(counts) > _MAX_MONTHS:
                counts = Counter(post.day[:4] for post in dated)
            times = joined(f"{counts[time]} in {_month(time)}" for time in sorted(counts))
            parts = [f"{parts[0]}: {times}"]
        is_open = only_lists and bool(topic) and not is_when
        parts += [] if self._period and only_lists else _span_of(posts)
        return DateAnswer(f"{', '.join(parts)}.", self._passages(posts), not is_open)

    def when_written(self) -> DateAnswer | None:
        """Return the date of the post whose title the question names, if there is one."""
        if not (match := _TITLE.fullmatch(self._text)):
            return None
        titles = {folded(match["title"] or match["dated"])} - {""}
        documents = set(self._index.documents_titled(titles))
        posts = [post for post in self._own if post.document in documents and post.day]
        if not posts:
            return None
        days = joined(day(post.day) for post in posts)
        sentence = f"You wrote “{title_of(posts[0].title)}” on {days}."
        return DateAnswer(sentence, self._passages(posts))

    def _none(self, every: Sequence[IndexedPost]) -> str:
        post = self._post
        parts = [f"No {post} mentions {self._topic[1]}" if self._topic else f"You wrote no {post}"]
        if every:
            others = ", ".join([count(len(every), "other"), *_span_of(every)])
            parts.append(f"there is {others}" if len(every) == 1 else f"there are {others}")
        return f"{'; '.join(parts)}."

    def _count(self, number: int) -> str:
        posts = count(number, "post")
        if when := self._when:
            posts = f"1 post {when}" if number == 1 else f"{count(number)} posts {when}"
        if not self._topic:
            return f"You wrote {posts}"
        one, many = (
            f"You wrote {posts} that mentions {self._topic[1]}",
            f"You wrote {posts} that mention {self._topic[1]}",
        )
        return one if number == 1 else many

    # ---- posts

    @cached_property
    def _topic(self) -> tuple[str, str] | None:
        """The topic as an FTS5 query, and its label; None if unclear.

        A topic is a quotation, a word, words that some post has in this order, or several of these
        with "and" between them. Others, such as "rain but not snow", are not understood.
        """
        parts = [self._topic_text]
        if not quotations(self._topic_text):
            parts = re.split(r",? (?:and|und) |, ", re.sub(r"^both (?=.* and )", "", parts[0]))
        terms, labels = [], []
        for part in parts:
            shown = _ARTICLES.sub("", part)
            if marked := quotations(shown):
                shown, is_whole = marked[0], len(shown) == len(marked[0]) + 2
            else:
                is_whole = not _OTHER_TIME.fullmatch(shown) or not (
                    self._period or len(parts) > 1 or self._asked.endswith(" on")
                )
            term = QueryTerm(words_of(shown))
            if not (is_whole and term.words):
                return None
            if len(term.words) > 1 and not marked:
                has_logic = any(word in _LOGIC for word in term.words)
                if has_logic or not self._index.chunks_with(term.match):
                    return None
            terms.append(term.match)
            labels.append(f"“{shown}”")
        return " AND ".join(terms), " and ".join(labels)

    @cached_property
    def _own(self) -> list[IndexedPost]:
        """The author's posts, oldest first, undated last."""
        return [post for post in self._index.posts() if (post.kind, post.whose) == ("post", "own")]

    @cached_property
    def _mentions(self) -> dict[str, int]:
        """The first passage with the topic in the author's words, by its post."""
        rows = self._index.rows(
            "SELECT c.document, c.id, highlight(chunk_search, 0, char(1), ''),"
            " highlight(chunk_search, 1, char(1), ''), highlight(chunk_search, 3, char(1), '')"
            " FROM chunk_search JOIN chunks c ON c.id = chunk_search.rowid"
            " WHERE chunk_search MATCH ? AND c.whose = 'own' ORDER BY c.id DESC",
            self._topic[0] if self._topic else '""',
        )
        return {document: id_ for document, id_, *parts in rows if any(map(_is_mentioned, parts))}

    def _posts(self) -> list[IndexedPost]:
        """Return the author's posts of all times, on the topic if there is one."""
        return [each for each in self._own if not self._topic or each.document in self._mentions]

    def _passages(self, posts: Sequence[IndexedPost]) -> tuple[Passage, ...]:
        """Return one passage of each post: the first with the topic, or else the first."""
        ids = [
            self._mentions.get(post.document) or self._index.chunks(post.document)[0]
            for post in posts[: self._limit]
        ]
        ranked = [(id_, 1.0 / place) for place, id_ in enumerate(ids, 1)]
        return tuple(self._index.passages(ranked, {"date": ids}))


# A word in an address, a path or a file name is not a mention.
_FILE_NAME = re.compile(r"(?<!\S)(?:\S*/|\S*\.[a-z][a-z0-9]{1,4}(?![\w.]))\S*", re.IGNORECASE)


def _is_mentioned(text: str) -> bool:
    return "\x01" in text and "\x01" in _FILE_NAME.sub("", text)


def _span_of(posts: Sequence[IndexedPost]) -> list[str]:
    """Return the dates of the first and the last post, and the number of undated ones."""
    days = [day(post.day) for post in posts if post.day]
    if not days:
        return ["without a date" if len(posts) == 1 else "none of which has a date"]
    span = f"from {days[0]} to {days[-1]}" if len(days) > 1 else f"on {days[0]}"
    undated = len(posts) - len(days)
    return [span, f"{undated} without a date"] if undated else [span]


def _month(time: str) -> str:
    """Return an ISO month or year in words."""
    year, _, number = time.partition("-")
    return f"{months()[int(number) - 1]} {year}" if number else year
