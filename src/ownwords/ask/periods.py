"""The times that a question names: "in March 2014", "since 2019", "last year"."""

import re
from dataclasses import dataclass
from datetime import date, timedelta

from ownwords.ask.index import MONTHS

_NUMBERS = {month.casefold(): number for number, month in enumerate(MONTHS, 1)}
_NUMBERS |= {name[:3]: number for name, number in _NUMBERS.items()} | {"sept": 9}
_MONTH = r"(?:" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + r")\.?"
_YEAR = r"(?:19|20)\d\d"
_FIRST, _END = "0000-01-01", "9999-12-31"

_IN = r"(?:back )?(?:in|during|of|from|for|throughout|within)(?: the)?(?: whole)?(?: year)?(?: of)?"
_PATTERNS = tuple(
    re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE)
    for pattern in (
        rf"(?:between|from|in) (?P<from>{_YEAR}) ?(?:and|to|until|till|-|–) ?(?P<to>{_YEAR})",
        rf"{_IN} (?:the )?(?P<decade>(?:19|20)\d0)'?s",
        rf"(?P<side>before|until|till|after|since) (?:(?P<side_month>{_MONTH}) (?:of )?)?"
        rf"(?P<side_year>{_YEAR})",
        rf"{_IN} (?P<month>{_MONTH}),? (?:of )?(?P<month_year>{_YEAR})",
        rf"{_IN} (?P<iso_year>{_YEAR})-(?P<iso_month>0[1-9]|1[0-2])",
        rf"{_IN} (?P<year>{_YEAR})",
        r"(?:(?:in|during|of|from) )?(?P<near>this|last) (?P<unit>year|month)",
    )
)


@dataclass(frozen=True, slots=True)
class Period:
    """From a day, up to but without another one, both ISO; and in words, "in March 2014"."""

    start: str
    end: str
    said: str

    def holds(self, day: str) -> bool:
        """Whether an ISO day lies in it; what has no date lies in none."""
        return bool(day) and self.start <= day < self.end


def found_in(question: str, today: date) -> tuple[Period | None, str]:
    """The first time that a question names, and the question without it."""
    for pattern in _PATTERNS:
        if match := pattern.search(question):
            rest = f"{question[: match.start()]} {question[match.end() :]}"
            return _period(match.groupdict(), today), " ".join(rest.split())
    return None, question


def _period(named: dict[str, str | None], today: date) -> Period:
    if (first := named.get("from")) and (last := named.get("to")):
        first, last = sorted((first, last))
        return Period(f"{first}-01-01", _january(int(last) + 1), f"from {first} to {last}")
    if decade := named.get("decade"):
        return Period(f"{decade}-01-01", _january(int(decade) + 10), f"in the {decade}s")
    if (side := named.get("side")) and (year := named.get("side_year")):
        return _on_one_side(side.casefold(), named.get("side_month"), int(year))
    if (month := named.get("month")) and (year := named.get("month_year")):
        return _of_month(int(year), _number(month))
    if (month := named.get("iso_month")) and (year := named.get("iso_year")):
        return _of_month(int(year), int(month))
    if year := named.get("year"):
        return _of_year(int(year))
    is_last = (named.get("near") or "").casefold() == "last"
    if (named.get("unit") or "").casefold() == "year":
        return _of_year(today.year - is_last)
    day = today.replace(day=1) - timedelta(days=1) if is_last else today
    return _of_month(day.year, day.month)


def _on_one_side(side: str, month: str | None, year: int) -> Period:
    whole = _of_month(year, _number(month)) if month else _of_year(year)
    said = f"{side} {whole.said.removeprefix('in ')}"
    if side in ("before", "until", "till"):
        return Period(_FIRST, whole.start if side == "before" else whole.end, said)
    return Period(whole.end if side == "after" else whole.start, _END, said)


def _of_year(year: int) -> Period:
    return Period(f"{year:04}-01-01", _january(year + 1), f"in {year}")


def _of_month(year: int, month: int) -> Period:
    end = _january(year + 1) if month == 12 else f"{year:04}-{month + 1:02}-01"
    return Period(f"{year:04}-{month:02}-01", end, f"in {MONTHS[month - 1]} {year}")


def _january(year: int) -> str:
    return f"{year:04}-01-01"


def _number(month: str) -> int:
    return _NUMBERS[month.casefold().rstrip(".")]
