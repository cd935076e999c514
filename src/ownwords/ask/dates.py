"""Answers questions of when, how often and how many by counting posts, which no search can do.

English only. A question is taken apart into a period ("in March 2014"), a topic ("about the
kettle") and what is left; that must consist of words known here, which say what to count. Whatever
else a question says, it is left to the search.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

from ownwords.ask.index import MONTHS, IndexedPost, SearchIndex, folded
from ownwords.ask.passages import Passage
from ownwords.ask.query import (
    QueryTerm,
    QueryTerms,
    normalized_question,
    quotations,
    words_of,
)
from ownwords.view import format as fmt
from ownwords.view.format import count, quoted

_LONGEST = 300  # characters; longer questions ask for more than a date
_TIES = 3  # ties named one by one; above that, only their number is given
_RECENT = 3  # posts for "lately"
_MAX_MONTHS = 24  # months listed one by one; above that, years are listed

# ---- periods

_MONTH_NUMBERS = {name[:3].casefold(): number for number, name in enumerate(MONTHS, 1)}
_MONTH = rf"((?:{'|'.join(MONTHS)}|{'|'.join(_MONTH_NUMBERS)}|sept)\.?)"
_YEAR = r"((?:19|20)\d\d)"
_MONTH_YEAR = rf"(?:{_MONTH} (?:of )?)?{_YEAR}"
_DAY = r"(0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
_IN = r"(?:back )?(?:in|during|of|from|for|throughout|within)(?: the)?(?: whole)?(?: year)?(?: of)?"
# Times that are not understood: seasons, relative times without a date, months without a year.
_UNREAD = re.compile(
    r"(?<!\w)(?:(?:in|during|over|for|from|of|since) )?(?:the )?(?:last|this|past|previous)"
    r" (?:\w+ )?(?:fortnight|decade|century|quarter|weekend|semester|term|season|christmas|easter"
    rf"|night|{_SEASON})s?(?!\w)"
    r"|(?<!\w)(?:a|an|\w+) (?:day|week|month|year|summer|winter)s? ago(?!\w)"
    r"|(?<!\w)(?:in|during|around|at|since|before|after|until) (?:the )?"
    rf"(?:last |early |late |mid-?)?(?:{_MONTH}|{_SEASON}|christmas|easter)(?! (?:\d|of \d))(?!\w)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Period:
    """A half-open range of ISO days, with a label such as "in March 2014"."""

    start: str
    end: str
    label: str

    def holds(self, day: str) -> bool:
        """Whether an ISO day is in it; an empty day is in none."""
        return bool(day) and self.start <= day < self.end


def find_period(question: str, today: date) -> tuple[Period | None, str]:
    """The first period in a question, and the question without it."""
    for pattern, period_of in _PERIODS:
        if match := re.search(rf"(?<!\w)(?:{pattern})(?!\w)", question, re.IGNORECASE):
            if (
                period := period_of(today, *((x or "").casefold() for x in match.groups()))
            ) is None:
                continue  # an invalid day
            rest = f"{question[: match.start()]} {question[match.end() :]}"
            return period, " ".join(rest.split())
    return None, question


def _months(year: int, month: int, number: int, label: str) -> Period:
    first = year * 12 + month - 1
    start, end = (f"{at // 12:04}-{at % 12 + 1:02}-01" for at in (first, first + number))
    return Period(start, end, label)


def _of(month: str, year: str) -> Period:
    """A month of a year, or the whole year."""
    if not month:
        return _months(int(year), 1, 12, f"in {year}")
    number = int(month) if month.isdecimal() else _MONTH_NUMBERS[month[:3]]
    return _months(int(year), number, 1, f"in {MONTHS[number - 1]} {year}")


def _range(today: date, *named: str) -> Period:
    first, last = sorted((_of(*named[:2]), _of(*named[2:])), key=lambda each: each.start)
    label = f"from {first.label.removeprefix('in ')} to {last.label.removeprefix('in ')}"
    return Period(first.start, last.end, label)


def _side(today: date, side: str, *named: str) -> Period:
    whole = _of(*named)
    label = f"{side} {whole.label.removeprefix('in ')}"
    if side in ("before", "until", "till"):
        return Period("0000-01-01", whole.start if side == "before" else whole.end, label)
    return Period(whole.end if side == "after" else whole.start, "9999-12-31", label)


def _day_of(
    today: date, day: str, month: str, month_first: str, day_last: str, year: str
) -> Period | None:
    try:
        chosen = date(int(year), _MONTH_NUMBERS[(month or month_first)[:3]], int(day or day_last))
    except ValueError:
        return None
    return _days(chosen, 1, f"on {fmt.day(chosen.isoformat())}")


def _iso_day(today: date, text: str) -> Period | None:
    try:
        return _days(date.fromisoformat(text), 1, f"on {fmt.day(text)}")
    except ValueError:
        return None


def _days(first: date, number: int, label: str) -> Period:
    return Period(first.isoformat(), (first + timedelta(days=number)).isoformat(), label)


def _past(today: date, many: str, unit: str) -> Period:
    """The units before today, from the last day of its month where that is shorter."""
    some = {"few": 3, "couple of": 2, "": 1}
    number = int(many) if many.isdecimal() else some.get(many) or _NUMBERS.index(many) + 1
    if unit in ("day", "week"):
        first = today - timedelta(days=number * (7 if unit == "week" else 1))
    else:
        at = today.year * 12 + today.month - 1 - number * (12 if unit == "year" else 1)
        last = date.fromisoformat(_months(at // 12, at % 12 + 1, 1, "").end) - timedelta(days=1)
        first = last.replace(day=min(today.day, last.day))
    label = f"in the last {many} {unit}s" if many else f"in the past {unit}"
    return Period(first.isoformat(), (today + timedelta(days=1)).isoformat(), label)


def _near(today: date, which: str, unit: str) -> Period:
    back = which == "last"
    if unit == "week":
        return _days(today - timedelta(days=today.weekday() + 7 * back), 7, f"{which} week")
    if unit == "year":
        return _of("", str(today.year - back))
    month = today.replace(day=1) - timedelta(days=back)
    return _of(str(month.month), str(month.year))


_PERIODS: tuple[tuple[str, Callable[..., Period | None]], ...] = (
    (rf"(?:between|from|in) {_MONTH_YEAR} ?(?:and|to|until|till|-|–) ?{_MONTH_YEAR}", _range),
    (rf"{_IN} (?:the )?((?:19|20)\d0)'?s", lambda _, y: _months(int(y), 1, 120, f"in the {y}s")),
    (rf"(before|until|till|after|since) {_MONTH_YEAR}", _side),
    (rf"(?:on|of|from)(?: the)? (?:{_DAY}(?: of)? {_MONTH}|{_MONTH} {_DAY}),? {_YEAR}", _day_of),
    (r"(?:on|of|from) ((?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))", _iso_day),
    (rf"{_IN} {_MONTH},? (?:of )?{_YEAR}", lambda _, month, year: _of(month, year)),
    (rf"{_IN} {_YEAR}(?:-(0[1-9]|1[0-2]))?", lambda _, year, month: _of(month, year)),
    (
        rf"(?:(?:in|during|of|from|over|within|for) )?the (?:last|past|previous)"
        rf" (\d{{1,3}}|{'|'.join(_NUMBERS)}|few|couple of) (day|week|month|year)s?",
        _past,
    ),
    (r"(?:(?:in|during|of|from|over|within) )?the past()? (day|week|month|year)", _past),
    (r"(?:(?:in|during|of|from) )?(this|last) (year|month|week)", _near),
    (r"(today)", lambda today, word: _days(today, 1, word)),
    (r"(yesterday)", lambda today, word: _days(today - timedelta(days=1), 1, word)),
)

# ---- what is asked

_POST = r"(?:posts?|articles?|entry|entries|essays?|columns?|pieces?|texts?|notes?)"
_WRITE = (
    r"(?:write|wrote|written|writing|publish|published|post|posted|blog|blogged|talk|talked|say"
    r"|said|speak|spoke|spoken|think|thought|thinking)"
)
_TOPIC = re.compile(
    r"(?P<head>(?:.*? )??(?:about|regarding|concerning|mentions?(?: of)?|mentioned|mentioning"
    r"|contains?|containing|discuss(?:es|ed|ing)?|includes?|uses?|used|deals? with"
    rf"|refer(?:s|red)? to|(?:{_WRITE}|{_POST}|have) (?:on|of)))"
    r" (?P<topic>.+?)(?P<tail>(?: (?:first|last|before|most"
    r" recently|for the first time|(?:(?:in )?(?:each|every|per|by|a)) (?:year|month)))?)",
    re.IGNORECASE,
)
_TOPIC_FIRST = re.compile(
    rf"(?P<head>(?:.* )?(?:when|how often|how many times|in how many {_POST})"
    r" (?:is|was|are|were|does|do|did)) (?P<topic>.+?)(?P<tail>(?: (?:first|last|most recently))?"
    r" (?:mentioned|named|used|come up|appear|occur|turn up|discussed))",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"(?:when|(?:on )?what day|(?:in )?(?:which|what) (?:year|month)) (?:(?:did i|was)"
    rf" (?:{_WRITE} )?(?:the {_POST} )?)(?P<title>.+?)(?: {_WRITE})?"
    rf"|(?:what is )?(?:the )?date of (?:the {_POST} )?(?P<dated>.+)",
    re.IGNORECASE,
)
_ON_MY_BLOG = re.compile(
    r" (?:on|in) (?:my|the|your|this) (?:blog|archive|site|posts|notes)\b", re.IGNORECASE
)
# Each is replaced by one word that says what is asked.
_ASKED = (
    (r"for the first time|since when|how long", "when first"),
    (r"most recent(?:ly)?", "last"),
    (r"how often|how many times", "how-often"),
    (r"how many|(?:what )?number of|count", "how-many"),
    (r"(?:which|what) (year|month)s|(?:each|every|per|by|a) (year|month)", r"per-\1\2"),
)
_FIRST = frozenset(("first", "earliest", "oldest", "start", "begin", "started", "began"))
_LATELY = frozenset(("recently", "lately"))
_LAST = frozenset(("last", "latest", "newest", "stop")) | _LATELY
_LENGTHS = frozenset(("longest", "shortest"))
_SEVERAL = re.compile(rf"(?<=st )(\d\d?|{'|'.join(_NUMBERS[1:10])}) (?={_POST}|things)")
_VERBS = re.compile(
    rf"{_WRITE}|{_POST}|things?|everything|publishing|posting|blogging|talking|saying|speaking"
    r"|working|doing|mention\w*|contain\w*|discuss\w*|includes?|uses?|deals?|refer\w*"
)
_OTHER_WORDS = frozenset(
    """
    a about all altogether an any anything appear are been before begin blog can come concerning
    could do does did discussed everything ever exist find for from give has have how-many how-often
    i i've in is it list me mentioned mine month most my named occur of on one out overall per-month
    per-year please productive regarding show so far something tell that the there thing this time
    times to total turn up used very was were what when which who whole with word words year
    you your
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class DateAnswer:
    """An answer from the dates and counts of the posts, with passages of these posts.

    If not `is_complete`, the sentence only names the posts that the question is about; without
    passages, it only says what was not understood or not found, and the search goes on.
    """

    sentence: str
    passages: tuple[Passage, ...] = ()
    is_complete: bool = True


def answer_from_dates(
    index: SearchIndex, question: str, *, limit: int = 8, today: date | None = None
) -> DateAnswer | None:
    """The answer if the question asks when or how often, otherwise None.

    Posts that were left out as somebody else's do not count.
    """
    text = normalized_question(question).rstrip(" ?!.").replace("’", "'")
    if len(text) > _LONGEST:
        return None
    period, rest = find_period(text, today or date.today())
    if unread := _UNREAD.search(rest):
        known = " ".join(rest.replace(unread[0], " ").split())
        if _Question(index, Period("", "", ""), limit, known).kind():
            sentence = f"“{unread[0]}” was not understood as a time"
            hint = "name a year, a month of a year, or a day"
            return DateAnswer(f"{sentence}: {hint}.", is_complete=False)
    return _Question(index, period, limit, rest or "posts").answer()


@dataclass(frozen=True, slots=True)
class _Topic:
    match: str  # as an FTS5 query
    label: str
    is_phrase: bool


class _Question:
    """A question without its period: the topic, what is asked, and the posts that it is about."""

    def __init__(self, index: SearchIndex, period: Period | None, limit: int, text: str) -> None:
        self._index, self._limit, self._period, self._text = index, limit, period, text
        text = re.sub(r"\b(what|which|when|who)'s\b", r"\1 is", text, flags=re.IGNORECASE)
        # "What did I write about last about rain": the first of them is no topic.
        text = re.sub(r"about (?=(?:first|last|recently|lately)\b)", "", text, flags=re.IGNORECASE)
        text = re.sub(r" (?:are|is) there$", "", _ON_MY_BLOG.sub("", text), flags=re.IGNORECASE)
        match = _TOPIC_FIRST.fullmatch(text) or _TOPIC.fullmatch(text)
        self._topic_text = (
            re.sub(r"^(?:are|is) there (?:of )?", "", match["topic"]) if match else ""
        )
        asked = f"{match['head']}{match['tail']}" if match else text
        asked = asked.casefold()
        for pattern, word in _ASKED:
            asked = re.sub(rf"\b(?:{pattern})\b", word, asked)
        several = _SEVERAL.search(asked)
        self._several = several[1] if several else ""
        self._asked = _SEVERAL.sub("", asked)
        self._words = set(re.findall(r"[^\s,?.!:]+", self._asked))

    def kind(self) -> Callable[[], DateAnswer | None] | None:
        """What answers the question; None if it has words that are not known here."""
        words, topic = self._words, self._topic_text
        known = _FIRST | _LAST | _LENGTHS | _OTHER_WORDS
        if not all(word in known or _VERBS.fullmatch(word) for word in words):
            return None
        is_about_posts = any(map(_VERBS.fullmatch, words)) or "blog" in words
        is_list = re.search(rf"{_POST}.* (?:mention|contain)", self._asked) and "i" not in words
        is_yes_no = re.match(r"(?:have|did|do|does|is|are|any) ", self._asked) or is_list
        if (
            "most" in words
            and words & {"year", "month"}
            and is_about_posts | ("productive" in words)
        ):
            return self._when_most
        if words & {"per-year", "per-month"} and (is_about_posts or topic):
            return self._by_time
        if words & _LENGTHS and is_about_posts | bool(words & {"which", "what"}):
            return self._longest
        if {"how-many", "words"} <= words:
            return self._how_many_words
        if words & (_FIRST | _LAST) and (is_about_posts or topic):
            return self._first_or_last
        if "how-often" in words and (topic or words & {"i"}) and (topic or is_about_posts):
            return self._how_often if topic else self._how_many
        if (
            "how-many" in words
            and {"mention", "mentions"} & words
            and not re.search(_POST, self._asked)
        ):
            return self._how_often
        if ("how-many" in words and is_about_posts) or (topic and is_yes_no):
            return self._how_many
        if self._period and "when" not in words and is_about_posts:
            return self._in_the_period
        return self._when_about if "when" in words and topic and "i" in words else None

    def answer(self) -> DateAnswer | None:
        kind = self.kind()
        return (kind() if kind else None) or self._when_written()

    # ---- answers

    def _first_or_last(self) -> DateAnswer | None:
        every = self._posts()
        posts = [post for post in every if post.day]
        if not posts:
            return self._how_many()
        if self._words & _LATELY:
            many = 1 if self._topic else _RECENT
        else:
            several = self._several
            many = int(several) if several.isdecimal() else _NUMBERS.index(several or "one") + 1
        is_first = not self._words & _LAST
        chosen = posts[:many] if is_first else posts[-many:][::-1]
        which = f"{'first' if is_first else 'last'}{f' {len(chosen)}' if len(chosen) > 1 else ''}"
        is_or_are = "is" if len(chosen) == 1 else "are"
        listed = _joined([_post_label(post) for post in chosen])
        missing = len(every) - len(posts)
        undated = f", not counting {missing} without a date" if missing else ""
        return self._answer(
            f"Your {which} {'post' if len(chosen) == 1 else 'posts'}{self._about(len(chosen))}"
            f" {is_or_are} {listed}{undated}",
            chosen,
        )

    def _by_time(self) -> DateAnswer | None:
        posts = self._posts()
        dated = [post.day for post in posts if post.day]
        if not dated:
            return self._how_many()
        by_month = Counter(day[:7] for day in dated)
        is_monthly = "per-month" in self._words and len(by_month) <= _MAX_MONTHS
        counts = by_month if is_monthly else Counter(day[:4] for day in dated)
        times = [f"{counts[time]} in {_month(time)}" for time in sorted(counts)]
        undated = len(posts) - len(dated)
        without = f", and {undated} without a date" if undated else ""
        return self._answer(f"{self._wrote(posts)}: {_joined(times)}{without}", posts)

    def _how_many(self) -> DateAnswer | None:
        posts = self._posts()
        return self._answer(f"{self._wrote(posts)}{_span(posts)}", posts) if posts else self._none()

    def _how_often(self) -> DateAnswer | None:
        topic, posts = self._topic, self._posts()
        if topic is None or not topic.is_phrase or not posts:
            return self._how_many()
        times = self._mentions(topic, posts)
        often = {1: "once", 2: "twice"}.get(times, f"{count(times)} times")
        number = f"{count(len(posts), 'post')}{self._when}"
        return self._answer(f"{topic.label} appears {often} in {number}{_span(posts)}", posts)

    def _how_many_words(self) -> DateAnswer | None:
        if not (posts := self._posts()):
            return self._none()
        words = count(sum(post.words for post in posts), "word")
        return DateAnswer(f"You wrote {words}{self._when}, in {count(len(posts), 'post')}.")

    def _longest(self) -> DateAnswer | None:
        if not (posts := self._posts()):
            return self._none()
        which = "longest" if "longest" in self._words else "shortest"
        post = (max if which == "longest" else min)(posts, key=lambda each: each.words)
        sentence = f"Your {which} post{self._about(1)} is {_post_label(post)}"
        return self._answer(f"{sentence}, with {count(post.words, 'word')}", [post])

    def _in_the_period(self) -> DateAnswer | None:
        topic, posts = self._topic, self._posts()
        if posts:
            passages = self._passages(posts)
            shown = f"; these are the first {len(passages)}" if len(passages) < len(posts) else ""
            return DateAnswer(f"{self._wrote(posts)}{shown}.", passages, is_complete=topic is None)
        if topic is None:
            return self._none()
        # A topic that no post of the period mentions may be written about at another time.
        elsewhere = self._posts(is_of_all_time=True)
        sentence = f"No post{self._when} mentions {topic.label}"
        if elsewhere:
            of = "of other times" if any(post.day for post in elsewhere) else "without a date"
            sentence += f"; {count(len(elsewhere), 'post')} {of} {_do(len(elsewhere))}"
        return DateAnswer(f"{sentence}.", self._passages(elsewhere), is_complete=False)

    def _when_about(self) -> DateAnswer | None:
        return self._how_many() if self._posts() else None

    def _when_written(self) -> DateAnswer | None:
        """The date of the post whose title is in the question; None if there is no such post."""
        if not (match := _TITLE.fullmatch(self._text)):
            return None
        titles = {folded(match["title"] or match["dated"])} - {""}
        documents = {document for _, document in self._index.documents_titled(titles)}
        posts = [x for x in self._posts(has_topic=False) if x.document in documents and x.day]
        if not posts:
            return None
        written = " and ".join(f"{quoted(post.title)} on {fmt.day(post.day)}" for post in posts)
        return DateAnswer(f"You wrote {written}.", self._passages(posts, has_topic=False))

    def _when_most(self) -> DateAnswer | None:
        posts = [post for post in self._posts() if post.day]
        if not posts:
            return self._how_many()
        unit, digits = ("month", 7) if "month" in self._words else ("year", 4)
        counts = Counter(post.day[:digits] for post in posts)
        most = max(counts.values())
        times = [_month(time) for time in sorted(counts) if counts[time] == most]
        about = self._about(most).removeprefix(self._when)
        posted = f"{count(most, 'post')}{about}{' each' if len(times) > 1 else ''}"
        if len(times) > _TIES:
            return DateAnswer(f"{len(times)} {unit}s have the same number: {posted}.")
        return DateAnswer(f"You wrote most in {_joined(times)}: {posted}.")

    def _none(self) -> DateAnswer:
        every = self._posts(is_of_all_time=True)
        days = [post.day for post in every if post.day]
        undated = len(every) - len(days)
        if self._topic:
            sentence = f"No post{self._when} mentions {self._topic.label}"
            if undated:  # and a period, in which it may or may not be
                sentence += f"; {count(undated, 'post')} without a date {_do(undated)}"
            return DateAnswer(f"{sentence}.")
        if not days and self._period:
            none = (
                f"none of your {count(undated, 'post')} has a date" if undated else "you have none"
            )
            return DateAnswer(f"It is not known what you wrote{self._when}: {none}.")
        yours = f": yours are from {fmt.day(days[0])} to {fmt.day(days[-1])}" if days else ""
        without = f", {undated} without a date" if undated else ""
        return DateAnswer(f"You wrote no post{self._when}{yours}{without}.")

    # ---- posts

    @property
    def _when(self) -> str:
        return f" {self._period.label}" if self._period else ""

    def _about(self, posts: int) -> str:
        mention = "mentions" if posts == 1 else "mention"
        return self._when + (f" that {mention} {self._topic.label}" if self._topic else "")

    def _wrote(self, posts: Sequence[IndexedPost]) -> str:
        return f"You wrote {count(len(posts), 'post')}{self._about(len(posts))}"

    def _answer(self, sentence: str, posts: Sequence[IndexedPost]) -> DateAnswer:
        return DateAnswer(f"{sentence}.", self._passages(posts))

    @cached_property
    def _topic(self) -> _Topic | None:
        """The topic of the question: a phrase if any post has it, otherwise all of its words."""
        marked = quotations(self._topic_text)
        article = r"^(?:(?:the|an?|my|our|your|this|that|these|those)\s+)+(?:words?\s+)?"
        shown = marked[0] if marked else re.sub(article, "", self._topic_text, flags=re.IGNORECASE)
        if not (words := words_of(shown)):
            return None
        phrase = QueryTerm(tuple(words))
        if marked or len(words) == 1 or self._index.count(phrase.match):
            return _Topic(phrase.match, f"“{shown}”", is_phrase=True)
        single = QueryTerms.of(shown).words
        together = " and ".join(f"“{' '.join(term.words)}”" for term in single)
        return _Topic(" AND ".join(term.match for term in single), together, is_phrase=False)

    def _posts(self, *, is_of_all_time: bool = False, has_topic: bool = True) -> list[IndexedPost]:
        """The author's posts of the period on the topic, oldest first, undated last."""
        topic, period = self._topic if has_topic else None, self._period
        about = (
            {row[0] for row in self._marked(topic) if any(map(_marks, row[1:]))} if topic else ()
        )
        return [
            post
            for post in self._index.posts()
            if post.kind == "post"
            and post.whose == "own"
            and (topic is None or post.document in about)
            and (is_of_all_time or period is None or period.holds(post.day))
        ]

    def _mentions(self, topic: _Topic, posts: Sequence[IndexedPost]) -> int:
        """How often a phrase occurs in the titles and texts of posts."""
        documents = {post.document for post in posts}
        rows = [row for row in self._marked(topic) if row[0] in documents]
        titles = {document: _marks(title) for document, title, _, _ in rows}
        return sum(_marks(text) for _, _, _, text in rows) + sum(titles.values())

    def _passages(
        self, posts: Sequence[IndexedPost], *, has_topic: bool = True
    ) -> tuple[Passage, ...]:
        """One passage of each post: the best for the topic, or else the first."""
        best: dict[str, int] = {}
        if has_topic and self._topic:
            with self._index.reading() as db:
                rows = db.execute(
                    "SELECT c.document, c.id FROM chunk_search JOIN chunks c"
                    " ON c.id = chunk_search.rowid WHERE chunk_search MATCH ?"
                    " ORDER BY bm25(chunk_search, 0, 1, 0, 1), c.id",
                    (self._topic.match,),
                )
                for document, id_ in rows:
                    best.setdefault(document, id_)
        ids = [
            best.get(post.document) or self._index.chunks(post.document)[0]
            for post in posts[: self._limit]
        ]
        ranked = [(id_, 1.0 / place) for place, id_ in enumerate(ids, 1)]
        return tuple(self._index.passages(ranked, dict.fromkeys(ids, ("date",))))

    def _marked(self, topic: _Topic) -> list[tuple[str, str, str, str]]:
        """(document, title, heading, text) of the author's chunks with the topic marked."""
        with self._index.reading() as db:
            return db.execute(
                "SELECT c.document, highlight(chunk_search, 0, char(1), ''),"
                " highlight(chunk_search, 1, char(1), ''),"
                " highlight(chunk_search, 3, char(1), '')"
                " FROM chunk_search JOIN chunks c ON c.id = chunk_search.rowid"
                " WHERE chunk_search MATCH ? AND c.whose = 'own'",
                (topic.match,),
            ).fetchall()


# What is in an address, a path or a file name is no mention.
_FILE_NAME = re.compile(r"(?<!\S)(?:\S*/|\S*\.[a-z][a-z0-9]{1,4}(?![\w.]))\S*", re.IGNORECASE)


def _marks(text: str) -> int:
    return _FILE_NAME.sub("", text).count("\x01") if "\x01" in text else 0


def _do(posts: int) -> str:
    return "does" if posts == 1 else "do"


def _span(posts: Sequence[IndexedPost]) -> str:
    """The dates of the first and the last post, and the number of undated ones."""
    days = [post.day for post in posts if post.day]
    undated = len(posts) - len(days)
    if not days:
        return ", which has no date" if len(posts) == 1 else ", none of which has a date"
    span = (
        f"from {fmt.day(days[0])} to {fmt.day(days[-1])}"
        if len(days) > 1
        else f"of {fmt.day(days[0])}"
    )
    return f", {span}" + (f", {undated} without a date" if undated else "")


def _post_label(post: IndexedPost) -> str:
    return quoted(post.title) + (f" of {fmt.day(post.day)}" if post.day else "")


def _month(time: str) -> str:
    """A month or a year as words."""
    year, _, number = time.partition("-")
    return f"{MONTHS[int(number) - 1]} {year}" if number else year


def _joined(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
