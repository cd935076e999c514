"""Source: a folder of Markdown (Hugo, Jekyll, Eleventy, Obsidian, or none of these), or a file."""

import json
import re
import tomllib
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import yaml

from ownwords.archive import dates, readability, untrusted_files
from ownwords.archive.document import (
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
    Status,
)
from ownwords.archive.sources import read_texts
from ownwords.core.errors import SourceError

# ---- front matter

_FENCED = re.compile(
    r"(?P<fence>-{3,}|\+{3,})[ \t]*\n(?P<head>.*?)^(?P=fence)[ \t]*(?:\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast if it was compiled
_SIMPLE_LINE = re.compile(r"^([A-Za-z_]\w*)[ \t]*[:=][ \t]*(\S.*)$", re.MULTILINE)
_DATE_KEYS = (
    *("date", "published", "publishdate", "published_at", "pubdate"),
    *("created", "created_at"),
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
        """Return the first named value that is text or a number, on one line; "" for none."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return " ".join(str(value).split())
        return ""

    def words(self, *names: str) -> tuple[str, ...]:
        """Split the named values into words: lists, or text separated by commas, else spaces."""
        found: list[str] = []
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str):
                found.extend(value.split("," if "," in value else None))
            elif isinstance(value, list):
                found.extend(str(entry) for entry in value if isinstance(entry, str | int | float))
        plain = (word.strip(" \t\"'[]").removeprefix("#") for word in found)
        return tuple(dict.fromkeys(word for word in plain if word))

    def names(self, *names: str) -> tuple[str, ...]:
        """Return the named values as a list of names, which may hold spaces and commas."""
        found: list[object] = []
        for name in names:
            value = self.values.get(name)
            found.extend(value if isinstance(value, list) else [value])
        return tuple(entry.strip() for entry in found if isinstance(entry, str) and entry.strip())

    def says(self, name: str, yes: bool = True) -> bool:
        """Return whether the value is present and true (or, with `yes=False`, false)."""
        return str(self.values.get(name, "")).strip().casefold() in (_YES if yes else _NO)

    def date(self) -> datetime | None:
        found = (dates.parse_date(self.values.get(key)) for key in _DATE_KEYS)
        return next((date for date in found if date), None)

    def status(self) -> Status:
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
    fenced = _FENCED.match(plain)
    head, body = (fenced["head"], plain[fenced.end() :]) if fenced else ("", "")
    try:
        if fenced is None:
            values, end = json.JSONDecoder().raw_decode(plain) if plain[:1] == "{" else (None, 0)
            body = plain[end:]
        elif plain[0] == "+":
            values = tomllib.loads(head)
        else:
            values = yaml.load(head, _YAML)  # noqa: S506 - a safe loader
            values = {} if values is None else values
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        if fenced is None:
            return FrontMatter(body=text)  # a text that begins with a brace
        # Simple lines such as "draft: true" still count in malformed front matter.
        values = {key: value.strip().strip("\"'") for key, value in _SIMPLE_LINE.findall(head)}
        return FrontMatter(_lower(values), body, broken=True, present=True)
    if not isinstance(values, dict):
        return FrontMatter(body=text)  # text between two horizontal rules
    return FrontMatter(_lower(values), body, present=True)


def _lower(values: dict[Any, Any]) -> dict[str, Any]:
    return {str(key).casefold(): value for key, value in values.items()}


# ---- convert the link syntax of note-taking and site programs to Markdown links

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})")
_LINKS = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`{1,20})(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<embed>!)?\[\[(?P<target>[^\[\]|\n\s][^\[\]|\n]*)(?:\\?\|(?P<text>[^\[\]\n]*))?\]\](?!\()"
    r"|\{%-?\s*(?:post_url|link)\s++(?P<post>[^%{}]+)%\}"
    r"|\{\{[<%]\s*(?:rel)?ref\s++\"?(?P<file>[^\"{}<>]+)(?:\"\s*)?[>%]\}\}"
)
_NAME_OF_PARAGRAPH = re.compile(r"(?:^|(?<![ \t])[ \t]+)\^[A-Za-z0-9-]+[ \t]*$")
_MARKED = re.compile(r"(?<!=)==(?=[^\s=])([^=\n]*[^\s=])==(?!=)")
_FILES = re.compile(
    r"\.(png|jpe?g|gif|svg|webp|avif|bmp|pdf|mp[34]|m4a|wav|ogg|webm|mov|canvas|base)$",
    re.IGNORECASE,
)


def rewrite_wikilinks(text: str, vault: bool = False) -> str:
    """Rewrite `[[note|words]]`, `{% post_url %}` and `{{< ref >}}` to links outside code.

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
        elif not fence:
            lines[number] = _LINKS.sub(_link, line)
            if vault:
                lines[number] = _NAME_OF_PARAGRAPH.sub("", lines[number])
            if vault and "`" not in line:
                lines[number] = _MARKED.sub(r"\1", lines[number])
    return "\n".join(lines)


def _link(match: re.Match[str]) -> str:
    if match["code"]:
        return match[0]
    if post := match["post"]:
        return _address(post.removesuffix("-").strip().strip("\"'"))
    if file := match["file"]:
        return _address(file.partition("#")[0])
    target, _, part = match["target"].strip().rstrip("\\").partition("#")
    if match["embed"] and _FILES.search(target):
        return ""
    text = (match["text"] or (f"{target} > {part}" if target and part else target or part)).strip()
    shown = re.sub(r"([\[\]])", r"\\\1", text)
    return f"[{shown}](<{_address(target)}>)" if target else shown


def _address(name: str) -> str:
    return quote(re.sub(r"\.(?:md|markdown)$", "", name.strip()), safe="/")


# ---- the source

NAME = "Markdown"

SUFFIXES = frozenset({".md", ".markdown", ".mdown", ".mkd"})
_PAGES = frozenset({".html", ".htm"})
_WITH_PAGES = frozenset({"hugo", "jekyll", "eleventy"})
_CONFIGS = {
    "hugo": ("hugo.toml", "hugo.yaml", "hugo.json", "config.toml", "config.yaml", "config.yml"),
    "jekyll": ("_config.yml", "_config.yaml", "_config.toml", "_posts"),
    "eleventy": tuple(
        f"{name}.{end}" for name in (".eleventy", "eleventy.config") for end in ("js", "mjs", "cjs")
    ),
    "obsidian": (".obsidian",),
}
_SEEN_AS = {
    "hugo": "a Hugo site",
    "jekyll": "a Jekyll site",
    "eleventy": "an Eleventy site",
    "obsidian": "an Obsidian vault",
}
_NEVER = untrusted_files.NOT_TEXTS | {
    *(".github", ".obsidian", ".vscode", ".jekyll-cache", ".venv", ".cache", ".claude", ".cursor"),
    *("_site", "_includes", "_layouts", "_sass", "_data"),
}
_OUTPUTS = frozenset({"public", "vendor"})
_ABOUT_A_PROJECT = re.compile(
    r"(readme|changelog|licen[cs]e|contributing|code_of_conduct|security|authors|copying|agents"
    r"|claude)\b.*",
    re.IGNORECASE,
)
_PROJECT_FILES = (
    *("package.json", ".git", ".github", "Gemfile", "Makefile", "pyproject.toml", "go.mod"),
)
_MADE_OF_TAGS = re.compile(r"\{%-?\s*(?:for|include|paginate)\b")
_TAGS = re.compile(r"\{%[^{}]*%\}|\{\{[^{}]*\}\}")
_HEADING = re.compile(r"^ {0,3}#[ \t]+(\S(?:.*[^ \t#])?)[ \t#]*$")
_UNDERLINED = re.compile(r"^={2,}[ \t]*$")


def detect(path: Path) -> str | None:
    """Recognise a Markdown file, a known generator's site, or a folder of mostly Markdown."""
    if not path.is_dir():
        return "a Markdown file" if path.is_file() and _is_markdown(path) else None
    tool = _tool(path)
    names = untrusted_files.count_suffixes(path)
    texts = sum(names[suffix] for suffix in SUFFIXES)
    others = max(names[".html"] + names[".htm"], names[".txt"] + names[".text"])
    if tool and (texts or tool == "jekyll"):
        return _SEEN_AS[tool]
    return "a folder of Markdown files" if texts and texts >= others else None


def _is_markdown(path: PurePosixPath | Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _tool(folder: Path) -> str:
    """Return the program of a folder, found by its configuration file; "" if unknown."""
    for tool, names in _CONFIGS.items():
        if any(untrusted_files.path_exists(folder / name) for name in names) and (
            tool != "hugo" or untrusted_files.path_exists(folder / "content")
        ):
            return tool
    return ""


def read(path: Path, only: Set[Path] | None = None) -> Iterator[SourceItem]:
    """Yield the texts sorted by file; front matter and folders give their statuses."""
    if path.is_dir():
        yield from _folder(path, only)
        return
    meta = parse_front_matter(untrusted_files.read_lines(path))
    yield _document(meta, PurePosixPath(path.name), "", "")
    yield from _notes(int(meta.broken))


def _folder(path: Path, only: Set[Path] | None) -> Iterator[SourceItem]:
    tool = _tool(path)
    title, home = _site(path, tool)
    if title or home:
        yield SiteInfo(title or home)
    broken = 0
    is_project = bool(tool) or any(
        untrusted_files.path_exists(path / name) for name in _PROJECT_FILES
    )

    def read_file(file: Path, name: str) -> Iterator[SourceItem]:
        nonlocal broken
        place = PurePosixPath(name)
        # If there is also a 403.md, the posts are numbered, and 404.md is a post, not an error
        # page.
        is_error = place.stem == "404" and not untrusted_files.path_exists(file.with_stem("403"))
        reason = "an error page" if is_error else _no_post(place, tool, is_project)
        meta = FrontMatter() if reason else parse_front_matter(untrusted_files.read_lines(file))
        if not reason and not _is_markdown(place):
            if not meta.present:
                reason = "a page without front matter, not a post"
            elif _MADE_OF_TAGS.search(meta.body) and "_posts" not in name:
                reason = "a page made of template tags, not a post"
        if reason:
            yield SkippedItem("file", reason, ref=name)
            return
        broken += meta.broken
        yield _document(meta, place, tool, home)

    suffixes = SUFFIXES | (_PAGES if tool in _WITH_PAGES else frozenset())
    yield from read_texts(path, suffixes, read_file, "Markdown", only, leave=_NEVER)
    yield from _notes(broken)


def _notes(broken: int) -> Iterator[SourceNote]:
    if broken:
        yield SourceNote(
            f"The front matter of {broken} file{'s' if broken > 1 else ''} is broken; all the text"
            " was kept, and only plain lines of the front matter, such as a title, were read."
        )


def _site(folder: Path, tool: str) -> tuple[str, str]:
    """Return the name and the address of the site in a folder; "" if unknown."""
    if tool == "obsidian":
        return untrusted_files.normalize_filename(folder.resolve().name), ""
    if tool not in ("hugo", "jekyll"):
        return "", ""
    for name in (*_CONFIGS[tool], *(f"config/_default/{name}" for name in _CONFIGS["hugo"])):
        try:
            text = untrusted_files.read_lines(folder / name, most=1 << 20)
        except SourceError:
            continue
        fence = {".toml": "+++", ".json": ""}.get(PurePosixPath(name).suffix, "---")
        config = parse_front_matter(f"{fence}\n{text}\n{fence}\n")
        base = config.text("baseurl")
        if tool == "jekyll":
            base = f"{config.text('url').rstrip('/')}/{base.strip('/')}"
        return config.text("title"), readability.web_url(base.rstrip("/") + "/")
    return "", ""


def _no_post(path: PurePosixPath, tool: str, is_project: bool) -> str:
    """Return why a file cannot be a post, judged by its name alone; "" if it may be one."""
    parts = path.parts
    if len(parts) == 1 and is_project and _ABOUT_A_PROJECT.fullmatch(path.stem):
        return "about the project (README, LICENSE and the like), not a post"
    if tool == "hugo" and parts[0] != "content":
        return "outside Hugo's content folder"
    if tool and parts[0] in _OUTPUTS:
        return "generated by the site's software, not written by you"
    if re.fullmatch(r"_index(\.[\w-]+)?", path.stem):
        return "a listing page"
    return ""


def _document(meta: FrontMatter, path: PurePosixPath, tool: str, home: str) -> RawDocument:
    # A text with its own folder is called index.md; its name is that of the folder.
    called = path.parent if path.stem == "index" and path.parent.name else path.with_suffix("")
    date = meta.date() or dates.date_in_comment(meta.body) or dates.date_in_path(called)
    title, body = meta.text("title"), meta.body
    if _is_markdown(path):
        body = rewrite_wikilinks(body, vault=tool == "obsidian")
        title, body = split_heading(title, body)
    elif tool:
        body = _TAGS.sub("", body)
    permalink = meta.text("permalink", "url")
    is_pattern = ":" in re.sub(r"^https?:", "", permalink)  # Jekyll's "/:year/:title/"
    permalink = "" if is_pattern else permalink
    is_relative = permalink and home and not permalink.startswith("http")
    is_loose = date is None and len(path.parts) == (2 if tool == "hugo" else 1)
    is_page = "page" in (meta.text("layout"), meta.text("type")) or (
        date is None and readability.PAGE_NAME.fullmatch(called.name)
    )
    status = "draft" if "_drafts" in path.parts else meta.status()
    return RawDocument(
        ref=str(path),
        title=title or dates.title_from_filename(called.name),
        body=body.strip("\n"),
        markup="markdown" if _is_markdown(path) else "html",
        status="trashed" if ".trash" in path.parts else status,
        kind="page" if is_page or (is_loose and tool in ("hugo", "jekyll")) else "post",
        date=date,
        url=readability.web_url(home + permalink.lstrip("/") if is_relative else permalink),
        author=meta.text("author") or ", ".join(meta.names("author") or meta.names("authors")),
        tags=tuple(dict.fromkeys((*meta.words("tags", "categories"), *meta.names("category")))),
    )


def split_heading(title: str, body: str) -> tuple[str, str]:
    """Return title and body, without a first heading that is or repeats the title."""
    lines = body.split("\n")
    is_fenced = has_text = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            is_fenced = not is_fenced
        if is_fenced or not line.strip():
            continue
        match = _HEADING.match(line)
        below = lines[number + 1] if number + 1 < len(lines) else ""
        is_underlined = not match and not has_text and _UNDERLINED.match(below)
        if match or is_underlined:
            heading = _plain(match[1] if match else line)
            if not title or heading.casefold() == title.casefold():
                del lines[number : number + (2 if is_underlined else 1)]
                return title or heading, "\n".join(lines)
        if match or is_underlined or title:
            return title, body
        has_text = True
    return title, body


def _plain(heading: str) -> str:
    words = re.sub(r"(?<!\s)\s*\{#[^{}]*\}$", "", heading)
    words = re.sub(r"!?\[([^\[\]]*)\]\((?:[^()]*)\)", r"\1", words)
    return " ".join(re.sub(r"[*`]|(?<!\w)_+|(?<!_)_+(?!\w)", "", words).split())
