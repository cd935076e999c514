"""Parse what site programs add to a Markdown text: front matter, their links, permalinks."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

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


# ---- convert the link syntax of note-taking and site programs to Markdown links to `ref:`

# A longer line is not prose, and matching its pairs of backquotes takes too long.
_LONGEST_LINE = 100_000
_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})")
_LINKS = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<embed>!)?\[\[(?P<target>[^\[\]|\n\s][^\[\]|\n]*)(?:\\?\|(?P<text>[^\[\]\n]*))?\]\](?!\()"
    r"|\{%-?\s*(?:post_url|link)\s+(?P<post>[^%{}]+?)\s*-?%\}"
    r"|\{\{[<%]\s*(?:rel)?ref\s+\"?(?P<file>[^\"{}<>]+?)\"?\s*[>%]\}\}"
)
_NAME_OF_PARAGRAPH = re.compile(r"(?:^|(?<=[ \t]))\^[A-Za-z0-9-]+[ \t]*$")
_MARKED = re.compile(r"(?<!=)==(?=[^\s=])([^=\n]*[^\s=])==(?!=)")
_FILES = re.compile(
    r"\.(png|jpe?g|gif|svg|webp|avif|bmp|pdf|mp[34]|m4a|wav|ogg|webm|mov|canvas|base)$",
    re.IGNORECASE,
)


def rewrite_wikilinks(text: str, vault: bool = False) -> str:
    """Rewrite `[[note|words]]`, `{% post_url %}` and `{{< ref >}}` to `ref:` links outside code.

    `![[picture.png]]` is dropped; `![[note]]`, which embeds a note, becomes a link to it.
    In an Obsidian `vault`, `==marked==` words lose their marks and paragraphs their `^ids`.
    """
    if not vault and "[[" not in text and "{%" not in text and "{{" not in text:
        return text
    lines = text.split("\n")
    fence = ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and len(line) < _LONGEST_LINE:
            line = _LINKS.sub(_link, line)  # noqa: PLW2901
            lines[number] = line if not vault or "`" in line else _unmarked(line)
    return "\n".join(lines)


def _unmarked(line: str) -> str:
    unnamed = _NAME_OF_PARAGRAPH.sub("", line)
    return _MARKED.sub(r"\1", unnamed if unnamed == line else unnamed.rstrip())


def _link(match: re.Match[str]) -> str:
    if match["code"]:
        return match[0]
    if post := match["post"]:
        return _address(post.strip("\"'"))
    if file := match["file"]:
        return _address(file.partition("#")[0])
    target, _, part = match["target"].strip().rstrip("\\").partition("#")
    if match["embed"] and _FILES.search(target):
        return ""
    text = (match["text"] or (f"{target} > {part}" if target and part else target or part)).strip()
    shown = re.sub(r"([\[\]])", r"\\\1", text)
    return f"[{shown}](<{_address(target)}>)" if target else shown


def _address(name: str) -> str:
    path = PurePosixPath(name.strip())
    plain = str(path.with_suffix("")) if path.suffix in (".md", ".markdown") else str(path)
    return "ref:" + quote(plain, safe="/")


# ---- expand the permalink patterns of Hugo and Jekyll ("/:year/:month/:slug/")

# Jekyll's named patterns.
NAMED = {
    "date": "/:categories/:year/:month/:day/:title",
    "pretty": "/:categories/:year/:month/:day/:title",
    "ordinal": "/:categories/:year/:y_day/:title",
    "weekdate": "/:categories/:year/W:week/:short_day/:title",
    "none": "/:categories/:title",
}
_TOKEN = re.compile(r":([a-z_]+)")


def by_section(patterns: object) -> dict[str, str]:
    """The permalink patterns of a site's settings by section; "" applies to all texts."""
    if not isinstance(patterns, dict):
        return {"": patterns} if isinstance(patterns, str) else {}
    # Newer versions of Hugo have separate patterns for pages and sections.
    inner = patterns.get("page")
    patterns = patterns | inner if isinstance(inner, dict) else patterns
    return {str(key): value for key, value in patterns.items() if isinstance(value, str)}


def expand_permalink(
    pattern: str,
    called: PurePosixPath,
    *,
    slug: str,
    date: datetime | None,
    categories: Sequence[str] = (),
) -> str:
    """The address a pattern gives a text; "" if the pattern has an unknown token.

    `called` is the text's path below the folder of all texts, `slug` the address's last part.
    """
    words = {
        "slug": slug,
        "title": slug,
        "name": called.name,
        "filename": called.name,
        "contentbasename": called.name,
        "slugorfilename": slug,
        "slugorcontentbasename": slug,
        "section": called.parts[0] if len(called.parts) > 1 else "",
        "sections": called.parent.as_posix() if len(called.parts) > 1 else "",
        "path": called.as_posix(),
        "collection": called.parts[0].strip("_"),
        "categories": "/".join(map(slugify, categories)),
        "output_ext": "",
    }
    if date:
        words |= {
            "year": f"{date:%Y}",
            "short_year": f"{date:%y}",
            "month": f"{date:%m}",
            "i_month": str(date.month),
            "monthname": f"{date:%B}",
            "day": f"{date:%d}",
            "i_day": str(date.day),
            "y_day": f"{date:%j}",
            "yearday": str(date.timetuple().tm_yday),
        }
    pattern = NAMED.get(pattern, pattern)
    if any(token not in words for token in _TOKEN.findall(pattern)):
        return ""
    address = re.sub(r"/{2,}", "/", "/" + _TOKEN.sub(lambda token: words[token[1]], pattern))
    return address.rstrip("/")


def slugify(title: str) -> str:
    """A title as part of an address: "Hats & Coats" becomes "hats-coats"."""
    return re.sub(r"[\W_]+", "-", title.casefold()).strip("-")
