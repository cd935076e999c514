"""Parse the untrusted front matter of a Markdown text: YAML, TOML or JSON."""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import yaml
from frontmatter.default_handlers import YAMLHandler

from ownwords.archive.document import Status
from ownwords.archive.files import dates
from ownwords.core.config import parse_toml

_YAML = YAMLHandler()
_TOML_FENCE = re.compile(r"^\+{3,}[ \t]*$", re.MULTILINE)
_SIMPLE_LINE = re.compile(r"^([A-Za-z_]\w*)[ \t]*[:=][ \t]*(\S.*)$", re.MULTILINE)
# Longer YAML is not front matter, and slow to parse.
_LONGEST = 256 << 10
_DATE_KEYS = (
    "date",
    "published",
    "publishdate",
    "published_at",
    "pubdate",
    "created",
    "created_at",
)
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Front matter by lower-case name, the body, and whether the front matter was malformed."""

    values: dict[str, Any] = field(default_factory=dict)
    body: str = ""
    broken: bool = False
    present: bool = False

    def text(self, *names: str) -> str:
        """The first of the named values that is text or a number, on one line; "" for none."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return " ".join(str(value).split())
        return ""

    def words(self, *names: str) -> tuple[str, ...]:
        """The named values split into words: lists, or text separated by commas, else spaces."""
        found: list[str] = []
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str):
                found.extend(value.split("," if "," in value else None))
            elif isinstance(value, list):
                found.extend(str(entry) for entry in value if isinstance(entry, str | int | float))
        plain = (word.strip(" \t\"'[]").removeprefix("#") for word in found)
        return tuple(dict.fromkeys(word for word in plain if word))

    def names(self, name: str) -> tuple[str, ...]:
        """The named value as a list of names, which may hold spaces and commas."""
        value = self.values.get(name)
        found = value if isinstance(value, list) else [value]
        return tuple(entry.strip() for entry in found if isinstance(entry, str) and entry.strip())

    def says(self, name: str, yes: bool = True) -> bool:
        """Whether the value is present and true (or, with `yes=False`, false)."""
        return str(self.values.get(name, "")).strip().casefold() in (_YES if yes else _NO)

    def date(self) -> datetime | None:
        """The publication date; None if there is none."""
        return next(
            (d for key in _DATE_KEYS if (d := dates.parse_date(self.values.get(key)))), None
        )

    def status(self) -> Status:
        """The publication status that the front matter gives."""
        word = self.text("status", "visibility").casefold()
        if self.says("private") or word == "private" or self.says("publish", yes=False):
            return "private"
        if self.says("draft") or self.says("published", yes=False) or word in ("draft", "drafts"):
            return "draft"
        if self.says("hidden") or self.says("unlisted") or word in ("hidden", "unlisted"):
            return "hidden"
        return "published"


def parse_front_matter(text: str) -> FrontMatter:
    """Split a text into front matter and body; malformed front matter is read line by line."""
    plain = text.lstrip("\n\r\t ")
    try:
        if plain.startswith("---"):
            return _yaml(text, plain)
        if plain.startswith("+++"):
            return _toml(text, plain)
        if re.match(r"\{\s*[\"}]", plain):
            return _json(text, plain)
    except RecursionError:
        return FrontMatter(body=text, broken=True)
    return FrontMatter(body=text)


def _yaml(text: str, plain: str) -> FrontMatter:
    if not _YAML.detect(plain):
        return FrontMatter(body=text)
    try:
        head, body = _YAML.split(plain)
    except ValueError:
        return FrontMatter(body=text)  # a single line of dashes is a horizontal rule
    if len(head) > _LONGEST:
        return FrontMatter(body=text, broken=True)
    try:
        # The handler's default loader is in C, where deep nesting crashes the process.
        values = _YAML.load(head, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError):
        return _broken(head, body)
    if values is None:
        return FrontMatter(body=body, present=True)
    if not isinstance(values, dict):
        return FrontMatter(body=text)  # text between two horizontal rules
    return FrontMatter(_lower(values), body, present=True)


def _toml(text: str, plain: str) -> FrontMatter:
    parts = _TOML_FENCE.split(plain, 2)
    if len(parts) != 3 or parts[0]:
        return FrontMatter(body=text)
    try:
        return FrontMatter(_lower(parse_toml(parts[1])), parts[2], present=True)
    except ValueError:
        return _broken(parts[1], parts[2])


def _json(text: str, plain: str) -> FrontMatter:
    try:
        values, end = json.JSONDecoder().raw_decode(plain)
    except ValueError:
        return FrontMatter(body=text)  # a text that begins with a brace
    if not isinstance(values, dict):
        return FrontMatter(body=text)
    return FrontMatter(_lower(values), plain[end:], present=True)


def _lower(values: dict[Any, Any]) -> dict[str, Any]:
    return {str(key).casefold(): value for key, value in values.items()}


def _broken(head: str, body: str) -> FrontMatter:
    # Simple lines such as "draft: true" still count in malformed front matter.
    values = {key: value.strip().strip("\"'") for key, value in _SIMPLE_LINE.findall(head)}
    return FrontMatter(_lower(values), body, broken=True, present=True)
