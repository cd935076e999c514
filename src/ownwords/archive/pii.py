"""Find e-mail addresses and phone numbers in a text; counts them and shows only masked examples.

Avoids false alarms: a number counts as a phone only if it is written as one (a leading `+` or
`00`, an area code in brackets, groups as people group phone numbers after a word such as "tel."),
so that dates, amounts, ISBNs, versions, IP addresses and order numbers do not count. A bare run
of digits never counts as a phone number.
"""

import re
from dataclasses import dataclass

EXAMPLES = 3  # distinct examples per kind and document

_EMAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}(?!png|jpe?g|gif|svg|webp|css|js)"
    r"[^\W\d_]{2,24}(?![\w@-])(?!:[\w/])",  # not an image name, nor git's host:path
)
# +48 601 234 567, 0048 601 234 567, +1 (415) 555-0132, (020) 7946 0958
_PHONE = re.compile(
    r"(?<![\w.,/#=+\-@])(?<!\d:)"
    r"(?P<number>(?:\+[1-9]|00[1-9]|\(0?[1-9]\d{1,4}\)[ .-]?\d)(?:[ .()/-]{0,3}\d){5,14})"
    r"(?![\w@]|[.,:/-]\d)"
)
# tel. 601 234 567, phone: 555-0132, call 020 7946 0958
_NAMED = re.compile(
    r"(?i:\b(?:tel|tel[eé]fono?|telefon|phone|mobile|mobil|cell|fax|kom|t[eé]l|handy)\b)"
    r"[ .:]{0,4}(?:[^\W\d]{1,8}[ .:]{1,3})?"
    r"(?P<number>\(?\d(?:[ .()/-]{0,3}\d){5,14})(?!\w|[.,:/-]\d)"
)
_DIGITS = re.compile(r"\d")
_SEVEN = re.compile(r"[0-9](?:[ .()/-]{0,3}[0-9]){6}")
_DATE = re.compile(
    r"\(?(?:(?:19|20)\d\d[ ./-]{1,2}\d{1,2}[ ./-]{1,2}\d{1,2}\b"
    r"|\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d)|\((?:19|20)\d\d\)"
)


@dataclass(frozen=True, slots=True)
class PiiMatches:
    """The numbers of e-mail addresses and phone numbers in a text, and masked examples."""

    emails: int = 0
    phones: int = 0
    examples: tuple[str, ...] = ()


NO_PII = PiiMatches()


def find_pii(text: str) -> PiiMatches:
    """Find the e-mail addresses and phone numbers in `text`."""
    emails = _EMAIL.findall(text) if "@" in text else []
    phones = _phones(text)
    if not emails and not phones:
        return NO_PII
    masked = list(dict.fromkeys(mask_email(match) for match in emails))[:EXAMPLES]
    masked += list(dict.fromkeys(mask_phone(match) for match in phones))[:EXAMPLES]
    return PiiMatches(len(emails), len(phones), tuple(masked))


def _phones(text: str) -> list[str]:
    # Fast path: a phone number has at least seven close digits, which most texts lack.
    if not _SEVEN.search(text):
        return []
    spans: dict[int, str] = {}
    if "+" in text or "00" in text or "(" in text:
        for match in _PHONE.finditer(text):
            spans[match.end()] = match["number"]
    for match in _NAMED.finditer(text):
        spans.setdefault(match.end(), match["number"])
    return [spans[end] for end in sorted(spans) if _plausible(spans[end])]


def _plausible(number: str) -> bool:
    digits = _DIGITS.findall(number)
    # With a country code it needs more digits: "+1 000 000" is not a phone number.
    least = 9 if number.startswith(("+", "00")) else 7
    return least <= len(digits) <= 15 and len(set(digits)) > 1 and not _DATE.match(number)


def mask_email(address: str) -> str:
    """Mask `jane@example.org` as `j…@e….org`."""
    name, _, host = address.partition("@")
    return f"{name[0]}…@{host[0]}….{host.rpartition('.')[2]}"


def mask_phone(number: str) -> str:
    """Mask `+48 601 234 567` as `+48 … 67`: keeps a separate country code and two digits."""
    digits = "".join(_DIGITS.findall(number))
    start = re.match(r"\+\d{1,3}(?=[ ().-])", number)
    lead = start.group() + " " if start else ("+" if number.startswith("+") else "")
    return f"{lead}… {digits[-2:]}"
