"""Parse dates from texts and file names: "2020-01-31 10:00 -0500", "31 January 2020"."""

import re
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import PurePath

from ownwords.language.words import month_number

_MONTH = r"(?P<month>[a-z]{3,9})\.?,?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?[.,]?"
_WITH_WORDS = [
    re.compile(rf"(?:[a-z]+,?\s+)?{day_and_month}\s+(?P<year>\d{{4}})\b")
    for day_and_month in (rf"{_DAY}\s+{_MONTH}", rf"{_MONTH}\s+{_DAY}")
]
_YEAR_FIRST = re.compile(r"^(\d{4})[-/.](\d{1,2})(?:[-/.](\d{1,2}))?(?:$|[T\s])")
_IN_NAME = re.compile(r"(?<!\d)((?:19|20)\d\d)([-_./]?)(\d{2})\2(\d{2})(?!\d)")
_IN_FOLDERS = re.compile(r"(?:^|/)((?:19|20)\d\d/\d{2})[-_/](\d{2})(?!\d)")
_IN_COMMENT = re.compile(r"<!--\s*(?:date|published)\s*:\s*([^<>]+?)\s*-->", re.IGNORECASE)
_LONGEST = 64
_HEAD_CHARACTERS = 2_000


def parse_date(value: object) -> datetime | None:
    """Parse a date from front matter, a meta tag or an attribute to UTC; None if it is not a date.

    Takes text, a date, a datetime or a year. Without a zone it is read as UTC, without a time as
    midnight, and a year or a month alone as its first day.
    """
    try:
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)  # YAML reads `date: 2020` as a number
        return _from_text(value.strip()) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _from_text(text: str) -> datetime | None:
    if not text or len(text) > _LONGEST:
        return None
    if re.fullmatch(r"\d{4}", text):
        return datetime(int(text), 1, 1, tzinfo=UTC)
    # Jekyll puts a space before the offset and spells out "UTC".
    tidy = re.sub(r"\s+(?=[+-]\d\d:?\d\d$)", "", re.sub(r"\s*(?:UTC|GMT|Z)$", "Z", text))
    parsed = parse_iso_date(tidy)
    if parsed:
        return parsed
    if re.match(r"[A-Za-z]{3},|\d{1,2} [A-Za-z]{3} \d{4} \d", text):
        try:
            return parse_date(parsedate_to_datetime(text))
        except (ValueError, TypeError, IndexError):
            pass  # "Sat, 31 January 2020" without a time is parsed below
    for pattern in _WITH_WORDS:
        match = pattern.match(text.casefold())
        if match and (month := month_number(match["month"])):
            return datetime(int(match["year"]), month, int(match["day"]), tzinfo=UTC)
    if match := _YEAR_FIRST.match(text):
        return datetime(int(match[1]), int(match[2]), int(match[3] or 1), tzinfo=UTC)
    return None


def date_in_comment(text: str) -> datetime | None:
    """Find the date in a comment at the head of a page ("<!-- date: 2024-05-01 -->")."""
    match = _IN_COMMENT.search(text[:_HEAD_CHARACTERS])
    return parse_date(match[1]) if match else None


def date_in_name(name: str) -> datetime | None:
    """Find the date in a file name or address ("2020-01-31-hats.md", "20200131", "2020/01/31/")."""
    for match in _IN_NAME.finditer(name):
        try:
            return datetime(int(match[1]), int(match[3]), int(match[4]), tzinfo=UTC)
        except ValueError:
            continue
    return None


def date_in_path(path: PurePath) -> datetime | None:
    """Find the date in a file's name, else in its folders ("2020/01-31-hats", "2020/01/31/x")."""
    in_folders = _IN_FOLDERS.search(path.as_posix())
    return date_in_name(path.name) or (in_folders and date_in_name("/".join(in_folders.groups())))


def strip_date(stem: str) -> str:
    """Return a file name without its leading date: "2020-01-31-hats" becomes "hats"."""
    return re.sub(r"^(?:19|20)\d\d([-_.]?)\d{2}\1\d{2}[-_. ]+(?=\S)", "", stem)


def title_from_filename(stem: str) -> str:
    """Make a title from a file name.

    Remove the date, and replace dashes by spaces if the name contains no spaces.
    """
    name = strip_date(stem)
    if " " in name or not re.search(r"[^\W\d_]", name):
        return name
    return re.sub(r"[-_]+", " ", name).strip() or stem


# ---- parse the timestamps of exports: variants of ISO 8601, and milliseconds since 1970

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_iso_date(text: str) -> datetime | None:
    """Parse an ISO date and time ("2020-01-31 10:00:00", "2020-01-31T10:00:00.001Z") to UTC.

    A time without an offset is taken as UTC; an invalid one ("0000-00-00 00:00:00") gives None.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def parse_moment(value: object) -> datetime | None:
    """Parse milliseconds since 1970, as a number or digits, or an ISO date; 0 means "not set"."""
    try:
        milliseconds = int(value) if isinstance(value, int | float | str) else 0
        return _EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None
    except (ValueError, OverflowError):
        return parse_iso_date(value) if isinstance(value, str) else None
