"""Source: a folder of Markdown (Hugo, Jekyll, Eleventy, Obsidian, or none of these), or a file."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

import yaml
from frontmatter.default_handlers import YAMLHandler

from ownwords.archive import (
    dates,
    readability,
    untrusted_files,
)
from ownwords.archive.document import (
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
    Status,
)
from ownwords.core.config import parse_toml
from ownwords.core.errors import SourceError

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


# ---- the source


LABEL = "a folder of Markdown files"

SUFFIXES = frozenset({".md", ".markdown", ".mdown", ".mkd"})
_PAGES = frozenset({".html", ".htm"})
_WITH_PAGES = frozenset({"hugo", "jekyll", "eleventy"})
_CONFIGS = {
    "hugo": ("hugo.toml", "hugo.yaml", "hugo.json", "config.toml", "config.yaml", "config.yml"),
    "jekyll": ("_config.yml", "_config.yaml", "_config.toml"),
    "eleventy": (
        ".eleventy.js",
        "eleventy.config.js",
        "eleventy.config.mjs",
        "eleventy.config.cjs",
    ),
    "obsidian": (".obsidian",),
}
_SEEN_AS = {
    "hugo": "a Hugo site",
    "jekyll": "a Jekyll site",
    "eleventy": "an Eleventy site",
    "obsidian": "an Obsidian vault",
    "": LABEL,
}
_NEVER = untrusted_files.PROGRAM_FOLDERS | {
    *(".git", ".github", ".obsidian", ".vscode", ".jekyll-cache", ".venv", ".cache"),
    *("_site", "_includes", "_layouts", "_sass", "_data"),
}
_OUTPUTS = frozenset({"public", "vendor"})
_ABOUT_A_PROJECT = re.compile(
    r"(readme|changelog|license|licence|contributing|code_of_conduct|security|authors|copying)\b.*",
    re.IGNORECASE,
)
_PROJECT_FILES = (
    "package.json",
    ".git",
    ".github",
    "Gemfile",
    "Makefile",
    "pyproject.toml",
    "go.mod",
)
_MADE_OF_TAGS = re.compile(r"\{%-?\s*(?:for|include|paginate)\b")
_TAGS = re.compile(r"\{%[^{}]*%\}|\{\{[^{}]*\}\}")
_HEADING = re.compile(r"^ {0,3}#[ \t]+(\S.*?)[ \t]*#*[ \t]*$")
_UNDERLINED = re.compile(r"^={2,}[ \t]*$")


@dataclass(frozen=True, slots=True)
class _SiteConfig:
    """The site generator (or Obsidian) a folder is made for, and its configuration."""

    tool: str
    name: str = ""
    url: str = ""
    # Permalink patterns by section; "" is for all other sections.
    permalinks: Mapping[str, str] = field(default_factory=dict)


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
    return LABEL if texts and texts >= others else None


def _is_markdown(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _tool(folder: Path) -> str:
    """The program the folder is made for, found by its configuration file; "" if unknown."""
    for tool, names in _CONFIGS.items():
        if any(untrusted_files.path_exists(folder / name) for name in names):
            if tool == "hugo" and not untrusted_files.path_exists(folder / "content"):
                continue
            return tool
    return "jekyll" if untrusted_files.path_exists(folder / "_posts") else ""


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the texts sorted by file; front matter and folders give their statuses."""
    if path.is_dir():
        yield from _folder(path)
        return
    meta = parse_front_matter(untrusted_files.read_lines(path))
    yield SiteInfo("", whole=False)
    yield _document(meta, path.name, _SiteConfig(""))
    yield from _notes(int(meta.broken))


def _folder(path: Path) -> Iterator[SourceItem]:
    site = _configured(path)
    if site.name or site.url:
        yield SiteInfo(site.name or site.url, site.url)
    left: Counter[str] = Counter()
    broken: list[str] = []
    project = bool(site.tool) or any(
        untrusted_files.path_exists(path / name) for name in _PROJECT_FILES
    )

    def read_file(file: Path, name: str) -> Iterator[SourceItem]:
        reason = _no_post(PurePosixPath(name), site.tool, project)
        if reason:
            left[reason] += 1
            return
        meta = parse_front_matter(untrusted_files.read_lines(file))
        if not _is_markdown(file) and _MADE_OF_TAGS.search(meta.body) and "_posts" not in name:
            left["a page made of template tags, no post"] += 1
            return
        if not _is_markdown(file) and not meta.present:
            left["a page without front matter, no post"] += 1
            return
        if meta.broken:
            broken.append(name)
        yield _document(meta, name, site)

    missing = SourceError(f"{path} holds no texts", hint="give the folder your posts are in")
    suffixes = SUFFIXES | (_PAGES if site.tool in _WITH_PAGES else frozenset())
    yield from untrusted_files.read_texts(
        path, suffixes, _NEVER, read_file, missing, kind="Markdown"
    )
    for reason, count in left.items():
        yield SkippedItem("file", reason, count)
    yield from _notes(len(broken))


def _notes(broken: int) -> Iterator[SourceNote]:
    if broken:
        yield SourceNote(
            f"The front matter of {broken} file{'s' if broken > 1 else ''} is broken; all the text"
            " was kept, and of what stands above it only plain lines such as a title were read."
        )


def _configured(folder: Path) -> _SiteConfig:
    tool = _tool(folder)
    if tool == "obsidian":
        return _SiteConfig(tool, untrusted_files.normalize_filename(folder.resolve().name))
    if tool not in ("hugo", "jekyll"):
        return _SiteConfig(tool)
    for name in (*_CONFIGS[tool], *(f"config/_default/{name}" for name in _CONFIGS["hugo"])):
        try:
            text = untrusted_files.read_lines(folder / name, most=1 << 20)
        except SourceError:
            continue
        fence = {".toml": "+++", ".json": ""}.get(PurePosixPath(name).suffix, "---")
        values = parse_front_matter(f"{fence}\n{text}\n{fence}\n")
        address = values.text("baseurl") if tool == "hugo" else values.text("url")
        below = values.text("baseurl").strip("/") if tool == "jekyll" else ""
        home = f"{address.rstrip('/')}/{below}".rstrip("/") + "/"
        patterns = values.values.get("permalinks" if tool == "hugo" else "permalink")
        return _SiteConfig(
            tool, values.text("title"), readability.web_url(home), by_section(patterns)
        )
    return _SiteConfig(tool)


def _no_post(path: PurePosixPath, tool: str, project: bool) -> str:
    """The reason why a file cannot be a post, judged by its name alone; "" if it may be one."""
    parts = path.parts
    if len(parts) == 1 and project and _ABOUT_A_PROJECT.fullmatch(path.stem):
        return "about the project (README, LICENSE and the like), no post"
    if tool == "hugo" and parts[0] != "content":
        return "outside Hugo's content folder"
    if tool and parts[0] in _OUTPUTS:
        return "made by the site's program, not by you"
    if tool and path.stem == "404":
        return "an error page"
    if re.fullmatch(r"_index(\.[\w-]+)?", path.stem):
        return "a listing page"
    return ""


def _document(meta: FrontMatter, name: str, site: _SiteConfig) -> RawDocument:
    path = PurePosixPath(name)
    markdown = path.suffix.lower() in SUFFIXES
    # A text with its own folder is called index.md; the folder carries its name.
    called = path.parent if path.stem == "index" and path.parent.name else path.with_suffix("")
    date = meta.date() or dates.date_in_name(called.name)
    title, body = meta.text("title"), meta.body
    if markdown:
        body = rewrite_wikilinks(body, vault=site.tool == "obsidian")
        title, body = _with_heading(title, body)
    elif site.tool:
        body = _TAGS.sub("", body)
    permalink = meta.text("permalink", "url")
    permalink = "" if ":" in permalink.removeprefix("https:").removeprefix("http:") else permalink
    relative = permalink and site.url and not permalink.startswith("http")
    address = f"{site.url}{permalink.lstrip('/')}" if relative else permalink
    loose = date is None and len(path.parts) == (2 if site.tool == "hugo" else 1)
    page = meta.text("layout") == "page" or meta.text("type") == "page"
    return RawDocument(
        ref=name,
        title=title or dates.title_from_filename(called.name),
        body=body.strip("\n"),
        markup="markdown" if markdown else "html",
        status=_status(path, meta),
        kind="page" if page or (loose and site.tool in ("hugo", "jekyll")) else "post",
        date=date,
        url=readability.web_url(address),
        author=meta.text("author") or ", ".join(meta.names("author") or meta.names("authors")),
        tags=tuple(dict.fromkeys((*meta.words("tags", "categories"), *meta.names("category")))),
        base=name,
        aliases=_aliases(called, meta, site, permalink, date),
    )


def _status(path: PurePosixPath, meta: FrontMatter) -> Status:
    if ".trash" in path.parts:
        return "trashed"
    return "draft" if "_drafts" in path.parts else meta.status()


def _aliases(
    called: PurePosixPath,
    meta: FrontMatter,
    site: _SiteConfig,
    permalink: str,
    date: datetime | None,
) -> tuple[str, ...]:
    """The names that links may use, from the file, the front matter and the permalink patterns."""
    slug = meta.text("slug") or dates.strip_date(called.name)
    names = [str(called), called.name, permalink]
    if site.tool == "hugo":
        in_content = PurePosixPath(*called.parts[1:])
        names += [f"/{in_content}", f"/{in_content.parent / slug}"]
        pattern = site.permalinks.get(in_content.parts[0] if in_content.parts else "", "")
        title = slugify(meta.text("title"))
        for shown in (slug, title):
            names.append(pattern and expand_permalink(pattern, in_content, slug=shown, date=date))
    elif site.tool == "jekyll" and date and {"_posts", "_drafts"} & set(called.parts):
        day = dates.date_in_name(called.name) or date
        categories = (*meta.words("categories"), *meta.names("category"))
        below = "/".join((*categories, f"{day:%Y/%m/%d}"))
        names += [f"/{day:%Y/%m/%d}/{slug}", f"/{below}/{slug}"]
        for pattern in (meta.text("permalink"), site.permalinks.get("", "")):
            if ":" in pattern or pattern in NAMED:
                place = called.relative_to(called.parts[0])
                address = expand_permalink(
                    pattern, place, slug=slug, date=day, categories=categories
                )
                names.append(address)
    elif site.tool == "eleventy":
        names += [f"/{called.parent / slug}"]
    names += [*meta.names("aliases"), *meta.names("alias"), *meta.names("redirect_from")]
    names = [name for name in names if name and name != "/"]
    if site.url:
        # Links within a site may also start with its address or with its base path.
        inside = [name for name in names if name.startswith("/")]
        below = urlsplit(site.url).path.rstrip("/")
        names += [f"{site.url.rstrip('/')}{name}" for name in inside]
        names += [f"{below}{name}" for name in inside if below]
    return tuple(dict.fromkeys(names))


def _with_heading(title: str, body: str) -> tuple[str, str]:
    """Title and body; a first heading that is or repeats the title is removed from the body."""
    lines = body.split("\n")
    fenced = started = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        if fenced or not line.strip():
            continue
        below = lines[number + 1] if number + 1 < len(lines) else ""
        underlined = not started and _UNDERLINED.match(below) is not None
        match = _HEADING.match(line)
        if match or underlined:
            heading = _plain(match[1] if match else line)
            if not title or heading.casefold() == title.casefold():
                del lines[number : number + (2 if underlined and not match else 1)]
                return title or heading, "\n".join(lines)
            return title, body
        if title:
            return title, body  # text precedes any heading
        started = True
    return title, body


def _plain(heading: str) -> str:
    words = re.sub(r"\s*\{#[^{}]*\}$", "", heading)
    words = re.sub(r"!?\[([^\[\]]*)\]\((?:[^()]*)\)", r"\1", words)
    return " ".join(re.sub(r"[*`]|(?<!\w)_+|_+(?!\w)", "", words).split())
