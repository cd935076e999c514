"""Answers questions of when, how often and how many by counting posts, which no search can do.

English only. A question is taken apart into a period ("in March 2014"), a topic ("about the
kettle") and what is left; that must consist of words known here, which say what to count. Whatever
else a question says, it is left to the search.
"""

import calendar
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
from ownwords.view.format import count, joined, quoted

_LONGEST = 300  # characters; longer questions ask for more than a date
_TIES = 3  # ties named one by one; above that, only their number is given
_RECENT = 3  # posts for "lately"
_MAX_MONTHS = 24  # months listed one by one; above that, years are listed

# ---- periods

_MONTH_NUMBERS = {name[:3].casefold(): number for number, name in enumerate(MONTHS, 1)}
_MONTH = rf"(?:(?:{'|'.join(MONTHS)}|{'|'.join(_MONTH_NUMBERS)}|sept)\.?)"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
# "March 2014", "5 March 2014", "March 5th, 2014"
_NAMED_DATE = re.compile(
    rf"(?<!\w)(?:({_DAY})(?:st|nd|rd|th)?(?: of)? )?({_MONTH})(?: ({_DAY})(?:st|nd|rd|th)?)?,?"
    r" (?:of )?((?:19|20)\d\d)(?!\w)",
    re.IGNORECASE,
)
_DATE = r"((?:19|20)\d\d(?:-(?:0[1-9]|1[0-2])(?:-\d\d)?)?)"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
_FEW = {"few": 3, "couple of": 2, "": 1}
_IN = (
    r"(?:back )?(?:in|on|during|of|from|for|throughout|within)(?: the)?(?: whole)?(?: year)?"
    r"(?: of)?"
)
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
    text = _NAMED_DATE.sub(_iso_of, question)
    for pattern, period_of in _PERIODS:
        if match := re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.IGNORECASE):
            groups = ((group or "").casefold() for group in match.groups())
            try:
                period = period_of(today, *groups)
            except ValueError:  # there is no such day
                return None, question
            return period, " ".join(f"{text[: match.start()]} {text[match.end() :]}".split())
    return None, question


def _iso_of(match: re.Match[str]) -> str:
    before, month, after, year = match.groups()
    iso = f"{year}-{_MONTH_NUMBERS[month[:3].casefold()]:02}"
    day = before or after
    return f"{iso}-{int(day):02}" if day else iso


def _span(first: date, end: date, label: str) -> Period:
    return Period(first.isoformat(), end.isoformat(), label)


def _at(iso: str) -> Period:
    """A year, a month or a day."""
    year, month, day = (*map(int, iso.split("-")), 0, 0)[:3]
    first = date(year, month or 1, day or 1)
    if day:
        return _span(first, first + timedelta(days=1), f"on {fmt.day(iso)}")
    return _span(first, _later(first, 1 if month else 12), f"in {_month(iso)}")


def _later(day: date, months: int) -> date:
    """The day so many months later, or the last one of a shorter month."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _decade(today: date, decade: str) -> Period:
    return _span(first := date(int(decade), 1, 1), _later(first, 120), f"in the {decade}s")


def _range(today: date, *named: str) -> Period:
    first, last = sorted(map(_at, named), key=lambda each: each.start)
    label = f"from {first.label.partition(' ')[2]} to {last.label.partition(' ')[2]}"
    return Period(first.start, last.end, label)


def _side(today: date, side: str, named: str) -> Period:
    whole = _at(named)
    label = f"{side} {whole.label.partition(' ')[2]}"
    if side in ("before", "until", "till"):
        return Period("0000-01-01", whole.start if side == "before" else whole.end, label)
    return Period(whole.end if side == "after" else whole.start, "9999-12-31", label)


def _past(today: date, many: str, unit: str) -> Period:
    """So many units before today, with today."""
    number = int(many) if many.isdecimal() else _FEW.get(many) or _NUMBERS.index(many) + 1
    if unit in ("day", "week"):
        first = today - timedelta(days=number * (7 if unit == "week" else 1))
    else:
        first = _later(today, -number * (12 if unit == "year" else 1))
    label = f"in the last {many} {unit}s" if many else f"in the past {unit}"
    return _span(first, today + timedelta(days=1), label)


def _calendar(today: date, which: str, unit: str) -> Period:
    """This or the last week, month or year."""
    back = which == "last"
    if unit == "week":
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return _span(monday, monday + timedelta(days=7), f"{which} week")
    if unit == "year":
        return _at(str(today.year - back))
    return _at(f"{_later(today.replace(day=1), -back):%Y-%m}")


def _day_near(today: date, word: str) -> Period:
    first = today - timedelta(days=word == "yesterday")
    return _span(first, first + timedelta(days=1), word)


_PERIODS: tuple[tuple[str, Callable[..., Period]], ...] = (
    (rf"(?:between|from|in) {_DATE} ?(?:and|to|until|till|-|–) ?{_DATE}", _range),
    (rf"{_IN} (?:the )?((?:19|20)\d0)'?s", _decade),
    (rf"(before|until|till|after|since) {_DATE}", _side),
    (rf"{_IN} {_DATE}", lambda _, iso: _at(iso)),
    (
        rf"(?:(?:in|during|of|from|over|within|for) )?the (?:last|past|previous)"
        rf" (\d{{1,3}}|{'|'.join(_NUMBERS)}|few|couple of) (day|week|month|year)s?",
        _past,
    ),
    (r"(?:(?:in|during|of|from|over|within) )?the past()? (day|week|month|year)", _past),
    (r"(?:(?:in|during|of|from) )?(this|last) (year|month|week)", _calendar),
    (r"(today|yesterday)", _day_near),
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
_SEVERAL = re.compile(rf"(?<=st )([1-9]\d?|{'|'.join(_NUMBERS[1:10])}) (?={_POST}|things)")
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
    left = _Question(index, period, limit, rest or "posts")
    return left.answer() or left.when_written()


Posts = Sequence[IndexedPost]


@dataclass(frozen=True, slots=True)
class _Topic:
    match: str  # as an FTS5 query
    label: str
    is_phrase: bool


class _Question:
    """A question without its period: the topic, what is asked, and the posts that it is about."""

    def __init__(self, index: SearchIndex, period: Period | None, limit: int, text: str) -> None:
        self._index, self._limit, self._period, self._text = index, limit, period, text
        self._when = f" {period.label}" if period else ""
        text = re.sub(r"\b(what|which|when|who)'s\b", r"\1 is", text, flags=re.IGNORECASE)
        # "What did I write about last about rain": the first of them is no topic.
        text = re.sub(r"about (?=(?:first|last|recently|lately)\b)", "", text, flags=re.IGNORECASE)
        text = re.sub(r" (?:are|is) there$", "", _ON_MY_BLOG.sub("", text), flags=re.IGNORECASE)
        match = _TOPIC_FIRST.fullmatch(text) or _TOPIC.fullmatch(text)
        topic = match["topic"] if match else ""
        self._topic_text = re.sub(r"^(?:are|is) there (?:of )?", "", topic)
        asked = (f"{match['head']}{match['tail']}" if match else text).casefold()
        for pattern, word in _ASKED:
            asked = re.sub(rf"\b(?:{pattern})\b", word, asked)
        several = _SEVERAL.search(asked)
        self._several = several[1] if several else "one"
        self._asked = _SEVERAL.sub("", asked)
        self._words = set(re.findall(r"[^\s,?.!:]+", self._asked))

    def kind(self) -> Callable[[Posts], DateAnswer] | None:
        """What answers the question; None if it has words that are not known here."""
        words, topic = self._words, self._topic_text
        known = _FIRST | _LAST | _LENGTHS | _OTHER_WORDS
        if not all(word in known or _VERBS.fullmatch(word) for word in words):
            return None
        is_about_posts = any(map(_VERBS.fullmatch, words)) or "blog" in words
        is_list = re.search(rf"{_POST}.* (?:mention|contain)", self._asked) and "i" not in words
        is_yes_no = re.match(r"(?:have|did|do|does|is|are|any) ", self._asked) or is_list
        is_of_mentions = words & {"mention", "mentions"} and not re.search(_POST, self._asked)
        many, often = "how-many" in words, "how-often" in words
        if "most" in words and words & {"year", "month"}:
            return self._when_most if is_about_posts or "productive" in words else None
        if words & {"per-year", "per-month"} and (is_about_posts or topic):
            return self._by_time
        if words & _LENGTHS and (is_about_posts or words & {"which", "what"}):
            return self._longest
        if many and "words" in words:
            return self._how_many_words
        if words & (_FIRST | _LAST) and (is_about_posts or topic):
            return self._first_or_last
        if topic and (often or (many and is_of_mentions)):
            return self._how_often
        if ((many or (often and "i" in words)) and is_about_posts) or (topic and is_yes_no):
            return self._how_many
        if self._period and "when" not in words and is_about_posts:
            return self._in_the_period
        return self._when_about if "when" in words and topic and "i" in words else None

    # ---- answers

    def answer(self) -> DateAnswer | None:
        kind = self.kind()
        if kind is None:
            return None
        posts = self._posts()
        if not posts and kind != self._in_the_period:
            return None if kind == self._when_about else self._none()
        are_dated = any(post.day for post in posts)
        if kind in (self._first_or_last, self._by_time, self._when_most) and not are_dated:
            kind = self._how_many
        return kind(posts)

    def _first_or_last(self, every: Posts) -> DateAnswer:
        posts = [post for post in every if post.day]
        several = self._several
        many = int(several) if several.isdecimal() else _NUMBERS.index(several) + 1
        if self._words & _LATELY and not self._topic:
            many = _RECENT
        which, chosen = "first", posts[:many]
        if self._words & _LAST:
            which, chosen = "last", posts[-many:][::-1]
        your = f"Your {which} post{self._about(1)} is"
        if len(chosen) > 1:
            your = f"Your {which} {len(chosen)} posts{self._about(len(chosen))} are"
        missing = len(every) - len(posts)
        undated = f", not counting {missing} without a date" if missing else ""
        return self._answer(f"{your} {joined(map(_post_label, chosen))}{undated}", chosen)

    def _by_time(self, posts: Posts) -> DateAnswer:
        dated = [post.day for post in posts if post.day]
        counts = Counter(day[:7] for day in dated)
        if "per-year" in self._words or len(counts) > _MAX_MONTHS:
            counts = Counter(day[:4] for day in dated)
        times = joined(f"{counts[time]} in {_month(time)}" for time in sorted(counts))
        undated = len(posts) - len(dated)
        without = f", and {undated} without a date" if undated else ""
        return self._answer(f"{self._wrote(posts)}: {times}{without}", posts)

    def _how_many(self, posts: Posts) -> DateAnswer:
        return self._answer(f"{self._wrote(posts)}{_span_of(posts)}", posts)

    def _how_often(self, posts: Posts) -> DateAnswer:
        topic = self._topic
        if topic is None or not topic.is_phrase:
            return self._how_many(posts)
        documents = {post.document for post in posts}
        times, titles = 0, {}
        for document, title, _, text in self._marked(topic):
            if document in documents:
                times += _marks(text)
                titles[document] = _marks(title)
        times += sum(titles.values())
        often = {1: "once", 2: "twice"}.get(times, f"{count(times)} times")
        number = f"{count(len(posts), 'post')}{self._when}"
        return self._answer(f"{topic.label} appears {often} in {number}{_span_of(posts)}", posts)

    def _how_many_words(self, posts: Posts) -> DateAnswer:
        words = count(sum(post.words for post in posts), "word")
        return DateAnswer(f"You wrote {words}{self._when}, in {count(len(posts), 'post')}.")

    def _longest(self, posts: Posts) -> DateAnswer:
        which, best = ("longest", max) if "longest" in self._words else ("shortest", min)
        post = best(posts, key=lambda each: each.words)
        words = count(post.words, "word")
        sentence = f"Your {which} post{self._about(1)} is {_post_label(post)}, with {words}"
        return self._answer(sentence, [post])

    def _in_the_period(self, posts: Posts) -> DateAnswer:
        topic = self._topic
        if posts:
            passages = self._passages(posts, topic)
            shown = f"; these are the first {len(passages)}" if len(passages) < len(posts) else ""
            return DateAnswer(f"{self._wrote(posts)}{shown}.", passages, is_complete=topic is None)
        if topic is None:
            return self._none()
        # A topic that no post of the period mentions may be written about at another time.
        elsewhere = self._index_posts(topic)
        sentence = f"No post{self._when} mentions {topic.label}"
        if elsewhere:
            of = "of other times" if any(post.day for post in elsewhere) else "without a date"
            sentence += f"; {count(len(elsewhere), 'post')} {of} {_do(len(elsewhere))}"
        return DateAnswer(f"{sentence}.", self._passages(elsewhere, topic), is_complete=False)

    def _when_about(self, posts: Posts) -> DateAnswer:
        return self._how_many(posts)

    def when_written(self) -> DateAnswer | None:
        """The date of the post whose title is in the question; None if there is no such post."""
        if not (match := _TITLE.fullmatch(self._text)):
            return None
        titles = {folded(match["title"] or match["dated"])} - {""}
        documents = set(self._index.documents_titled(titles))
        every = [post for post in self._index_posts(None) if self._is_in_period(post)]
        posts = [post for post in every if post.document in documents and post.day]
        if not posts:
            return None
        written = " and ".join(f"{quoted(post.title)} on {fmt.day(post.day)}" for post in posts)
        return DateAnswer(f"You wrote {written}.", self._passages(posts, None))

    def _when_most(self, posts: Posts) -> DateAnswer:
        unit, digits = ("month", 7) if "month" in self._words else ("year", 4)
        counts = Counter(post.day[:digits] for post in posts if post.day)
        most = max(counts.values())
        times = [_month(time) for time in sorted(counts) if counts[time] == most]
        about = self._about(most).removeprefix(self._when)
        posted = f"{count(most, 'post')}{about}{' each' if len(times) > 1 else ''}"
        if len(times) > _TIES:
            return DateAnswer(f"{len(times)} {unit}s have the same number: {posted}.")
        return DateAnswer(f"You wrote most in {joined(times)}: {posted}.")

    def _none(self) -> DateAnswer:
        every = self._index_posts(self._topic)
        days = [post.day for post in every if post.day]
        undated = len(every) - len(days)
        if self._topic:
            sentence = f"No post{self._when} mentions {self._topic.label}"
            if undated:  # and a period, in which it may or may not be
                sentence += f"; {count(undated, 'post')} without a date {_do(undated)}"
        elif undated and not days:
            none = f"none of your {count(undated, 'post')} has a date"
            sentence = f"It is not known what you wrote{self._when}: {none}"
        else:
            yours = f": yours are from {fmt.day(days[0])} to {fmt.day(days[-1])}" if days else ""
            without = f", {undated} without a date" if undated else ""
            sentence = f"You wrote no post{self._when}{yours}{without}"
        return DateAnswer(f"{sentence}.")

    # ---- posts

    def _about(self, posts: int) -> str:
        mention = "mentions" if posts == 1 else "mention"
        return self._when + (f" that {mention} {self._topic.label}" if self._topic else "")

    def _wrote(self, posts: Posts) -> str:
        return f"You wrote {count(len(posts), 'post')}{self._about(len(posts))}"

    def _answer(self, sentence: str, posts: Posts) -> DateAnswer:
        return DateAnswer(f"{sentence}.", self._passages(posts, self._topic))

    @cached_property
    def _topic(self) -> _Topic | None:
        """The topic of the question: a phrase if any post has it, otherwise all of its words."""
        marked = quotations(self._topic_text)
        article = r"^(?:(?:the|an?|my|our|your|this|that|these|those)\s+)+(?:words?\s+)?"
        shown = marked[0] if marked else re.sub(article, "", self._topic_text, flags=re.IGNORECASE)
        if not (words := words_of(shown)):
            return None
        phrase = QueryTerm(tuple(words))
        if marked or len(words) == 1 or self._index.has(phrase.match):
            return _Topic(phrase.match, f"“{shown}”", is_phrase=True)
        single = QueryTerms.of(shown).words
        together = " and ".join(f"“{' '.join(term.words)}”" for term in single)
        return _Topic(" AND ".join(term.match for term in single), together, is_phrase=False)

    def _posts(self) -> list[IndexedPost]:
        """The author's posts of the period on the topic, oldest first, undated last."""
        return [post for post in self._index_posts(self._topic) if self._is_in_period(post)]

    def _is_in_period(self, post: IndexedPost) -> bool:
        return self._period is None or self._period.holds(post.day)

    def _index_posts(self, topic: _Topic | None) -> list[IndexedPost]:
        """The author's posts of all times, on the topic if there is one."""
        posts = [post for post in self._index.posts() if (post.kind, post.whose) == ("post", "own")]
        if topic is None:
            return posts
        about = {row[0] for row in self._marked(topic) if any(map(_marks, row[1:]))}
        return [post for post in posts if post.document in about]

    def _passages(self, posts: Posts, topic: _Topic | None) -> tuple[Passage, ...]:
        """One passage of each post: the best for the topic, or else the first."""
        best: dict[str, int] = {}
        if topic:
            rows = self._index.rows(
                "SELECT c.document, c.id FROM chunk_search JOIN chunks c"
                " ON c.id = chunk_search.rowid WHERE chunk_search MATCH ?"
                " ORDER BY bm25(chunk_search, 0, 1, 0, 1), c.id",
                topic.match,
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
        return self._index.rows(
            "SELECT c.document, highlight(chunk_search, 0, char(1), ''),"
            " highlight(chunk_search, 1, char(1), ''), highlight(chunk_search, 3, char(1), '')"
            " FROM chunk_search JOIN chunks c ON c.id = chunk_search.rowid"
            " WHERE chunk_search MATCH ? AND c.whose = 'own'",
            topic.match,
        )


# What is in an address, a path or a file name is no mention.
_FILE_NAME = re.compile(r"(?<!\S)(?:\S*/|\S*\.[a-z][a-z0-9]{1,4}(?![\w.]))\S*", re.IGNORECASE)


def _marks(text: str) -> int:
    return _FILE_NAME.sub("", text).count("\x01") if "\x01" in text else 0


def _do(posts: int) -> str:
    return "does" if posts == 1 else "do"


def _span_of(posts: Posts) -> str:
    """The dates of the first and the last post, and the number of undated ones."""
    days = [fmt.day(post.day) for post in posts if post.day]
    undated = len(posts) - len(days)
    if not days:
        return ", which has no date" if len(posts) == 1 else ", none of which has a date"
    span = f"from {days[0]} to {days[-1]}" if len(days) > 1 else f"of {days[0]}"
    return f", {span}" + (f", {undated} without a date" if undated else "")


def _post_label(post: IndexedPost) -> str:
    return quoted(post.title) + (f" of {fmt.day(post.day)}" if post.day else "")


def _month(time: str) -> str:
    """A month or a year as words."""
    year, _, number = time.partition("-")
    return f"{MONTHS[int(number) - 1]} {year}" if number else year
