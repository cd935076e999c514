"""Finds periods in questions: "in March 2014", "since 2019", "last summer", "yesterday"."""

import re
from dataclasses import dataclass
from datetime import date, timedelta

from ownwords.ask.index import MONTHS

_NUMBERS = {month.casefold(): number for number, month in enumerate(MONTHS, 1)}
_NUMBERS |= {name[:3]: number for name, number in _NUMBERS.items()} | {"sept": 9}
_MONTH = r"(?:" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + r")\.?"
_YEAR = r"(?:19|20)\d\d"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_FIRST, _END = "0000-01-01", "9999-12-31"
# Their first months in the northern hemisphere; labels name the months.
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_SMALL = "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905

_IN = r"(?:back )?(?:in|during|of|from|for|throughout|within)(?: the)?(?: whole)?(?: year)?(?: of)?"
_PATTERNS = tuple(
    re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE)
    for pattern in (
        rf"(?:between|from) (?P<from_month>{_MONTH}) (?:of )?(?P<from_year>{_YEAR})"
        rf" ?(?:and|to|until|till|-|–) ?(?P<to_month>{_MONTH}) (?:of )?(?P<to_year>{_YEAR})",
        rf"(?:between|from|in) (?P<from>{_YEAR}) ?(?:and|to|until|till|-|–) ?(?P<to>{_YEAR})",
        rf"{_IN} (?:the )?(?P<decade>(?:19|20)\d0)'?s",
        rf"(?P<side>before|until|till|after|since) (?:(?P<side_month>{_MONTH}) (?:of )?)?"
        rf"(?P<side_year>{_YEAR})",
        rf"(?:on|of|from)(?: the)? (?P<day>{_DAY})(?: of)? (?P<day_month>{_MONTH}),?"
        rf" (?P<day_year>{_YEAR})",
        rf"(?:on|of|from)(?: the)? (?P<month_first>{_MONTH}) (?P<day_second>{_DAY}),?"
        rf" (?P<year_last>{_YEAR})",
        rf"(?:on|of|from) (?P<iso>{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))",
        rf"{_IN}(?: the)? (?P<season>{'|'.join(_SEASONS)}),? (?:of )?(?P<season_year>{_YEAR})",
        rf"{_IN} (?P<month>{_MONTH}),? (?:of )?(?P<month_year>{_YEAR})",
        rf"{_IN} (?P<iso_year>{_YEAR})-(?P<iso_month>0[1-9]|1[0-2])",
        rf"{_IN} (?P<year>{_YEAR})",
        rf"(?:(?:in|during|of|from|over|within|for) )?the (?:last|past|previous)"
        rf" (?P<many>\d{{1,3}}|{'|'.join(_SMALL)}|few|couple of) (?P<units>day|week|month|year)s?",
        r"(?:(?:in|during|of|from|over|within) )?the past (?P<past>day|week|month|year)",
        rf"(?:(?:in|during|of|from) )?last (?P<last_season>{'|'.join(_SEASONS)})",
        r"(?:(?:in|during|of|from) )?(?P<near>this|last) (?P<unit>year|month|week)",
        r"(?P<relative>today|yesterday)",
    )
)

# Times that are not understood: relative ones without a date, and seasons without a year.
_UNREAD = re.compile(
    r"(?<!\w)(?:(?:in|during|over|for|from|of|since) )?(?:the )?(?:last|this|past|previous)"
    r" (?:\w+ )?(?:fortnight|decade|century|quarter|weekend|semester|term|season|christmas|easter"
    r"|night)s?"
    r"(?!\w)|(?<!\w)(?:a|an|\w+) (?:day|week|month|year|summer|winter)s? ago(?!\w)"
    rf"|(?<!\w)(?:in|during|around|at|since|before|after|until) (?:last |early |late |mid-?)?"
    rf"(?:{_MONTH}|{'|'.join(_SEASONS)}|christmas|easter)(?! (?:\d|of \d))(?!\w)",
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
    for pattern in _PATTERNS:
        if match := pattern.search(question):
            if (period := _period(match.groupdict(), today)) is None:
                continue
            rest = f"{question[: match.start()]} {question[match.end() :]}"
            return period, " ".join(rest.split())
    return None, question


def unread_period(question: str) -> str:
    """The part of a question that seems to name a time but is none that is understood; or ""."""
    match = _UNREAD.search(question)
    return match[0] if match else ""


def _period(named: dict[str, str | None], today: date) -> Period | None:
    """The period of a match; None for an invalid day."""
    groups = {name: word for name, word in named.items() if word}
    if {"near", "relative", "many", "past", "last_season"} & groups.keys():
        return _from_today(groups, today)
    if {"day", "day_second", "iso"} & groups.keys():
        return _of_day(groups)
    if "from_month" in groups:
        first = _of_month(int(groups["from_year"]), _number(groups["from_month"]))
        last = _of_month(int(groups["to_year"]), _number(groups["to_month"]))
        first, last = sorted((first, last), key=lambda month: month.start)
        words = f"{first.label.removeprefix('in ')} to {last.label.removeprefix('in ')}"
        return Period(first.start, last.end, f"from {words}")
    if "from" in groups:
        one, other = sorted((groups["from"], groups["to"]))
        return Period(f"{one}-01-01", _january(int(other) + 1), f"from {one} to {other}")
    if decade := groups.get("decade"):
        return Period(f"{decade}-01-01", _january(int(decade) + 10), f"in the {decade}s")
    if side := groups.get("side"):
        return _on_one_side(side.casefold(), groups.get("side_month"), int(groups["side_year"]))
    if season := groups.get("season"):
        return _of_season(int(groups["season_year"]), season.casefold())
    if month := groups.get("month"):
        return _of_month(int(groups["month_year"]), _number(month))
    if month := groups.get("iso_month"):
        return _of_month(int(groups["iso_year"]), int(month))
    return _of_year(int(groups["year"]))


def _from_today(groups: dict[str, str], today: date) -> Period | None:
    if season := groups.get("last_season"):
        # The most recent one that is over.
        years = (_of_season(today.year - back, season.casefold()) for back in range(3))
        return next(period for period in years if period.end <= today.isoformat())
    tomorrow = (today + timedelta(days=1)).isoformat()
    if many := groups.get("many"):
        words = f"in the last {many} {groups['units']}s"
        number = _many(many.casefold())
        return Period(_back(today, groups["units"].casefold(), number), tomorrow, words)
    if past := groups.get("past"):
        return Period(_back(today, past.casefold(), 1), tomorrow, f"in the past {past}")
    if word := groups.get("relative"):
        day = today - timedelta(days=word.casefold() == "yesterday")
        return Period(day.isoformat(), (day + timedelta(days=1)).isoformat(), word.casefold())
    is_last = groups["near"].casefold() == "last"
    unit = groups["unit"].casefold()
    if unit == "year":
        return _of_year(today.year - is_last)
    if unit == "week":
        monday = today - timedelta(days=today.weekday() + 7 * is_last)
        words = f"{groups['near'].casefold()} week"
        return Period(monday.isoformat(), (monday + timedelta(days=7)).isoformat(), words)
    day = today.replace(day=1) - timedelta(days=1) if is_last else today
    return _of_month(day.year, day.month)


def _of_day(groups: dict[str, str]) -> Period | None:
    year = groups.get("day_year") or groups.get("year_last")
    month = groups.get("day_month") or groups.get("month_first")
    number = groups.get("day") or groups.get("day_second") or ""
    try:
        if iso := groups.get("iso"):
            day = date.fromisoformat(iso)
        else:
            day = date(int(year or 0), _number(month or ""), int(number.rstrip("stndrh")))
    except ValueError:
        return None
    words = f"on {day.day} {MONTHS[day.month - 1]} {day.year}"
    return Period(day.isoformat(), (day + timedelta(days=1)).isoformat(), words)


def _of_season(year: int, season: str) -> Period:
    first = _SEASONS[season]
    last = (first + 1) % 12 + 1
    end = f"{year + (last < first):04}-{last + 1:02}-01"
    months = f"{MONTHS[first - 1]} to {MONTHS[last - 1]}"
    return Period(f"{year:04}-{first:02}-01", end, f"in the {season} of {year} ({months})")


def _back(today: date, unit: str, many: int) -> str:
    """The day `many` units before today, clipped to the last day of its month."""
    if unit in ("day", "week"):
        return (today - timedelta(days=many * (7 if unit == "week" else 1))).isoformat()
    months = today.year * 12 + today.month - 1 - many * (12 if unit == "year" else 1)
    year, month = max(1, months // 12), months % 12 + 1
    last = 31 if month == 12 else (date(year, month + 1, 1) - timedelta(days=1)).day
    return date(year, month, min(today.day, last)).isoformat()


def _many(number: str) -> int:
    if number.isdecimal():
        return int(number)
    return {"few": 3, "couple of": 2}.get(number) or _SMALL.index(number) + 1


def _on_one_side(side: str, month: str | None, year: int) -> Period:
    whole = _of_month(year, _number(month)) if month else _of_year(year)
    groups = f"{side} {whole.label.removeprefix('in ')}"
    if side in ("before", "until", "till"):
        return Period(_FIRST, whole.start if side == "before" else whole.end, groups)
    return Period(whole.end if side == "after" else whole.start, _END, groups)


def _of_year(year: int) -> Period:
    return Period(f"{year:04}-01-01", _january(year + 1), f"in {year}")


def _of_month(year: int, month: int) -> Period:
    end = _january(year + 1) if month == 12 else f"{year:04}-{month + 1:02}-01"
    return Period(f"{year:04}-{month:02}-01", end, f"in {MONTHS[month - 1]} {year}")


def _january(year: int) -> str:
    return f"{year:04}-01-01"


def _number(month: str) -> int:
    return _NUMBERS[month.casefold().rstrip(".")]
