"""Source: a folder of Markdown (Hugo, Jekyll, Eleventy, Obsidian, or none of these), or a file."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from ownwords.archive.document import (
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
    Status,
)
from ownwords.archive.files import (
    dates,
    front_matter,
    readability,
    untrusted_files,
)
from ownwords.core.errors import SourceError

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
_FENCE = re.compile(r"^[ \t>]*(```|~~~)")


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
    meta = front_matter.parse_front_matter(untrusted_files.read_lines(path))
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
        meta = front_matter.parse_front_matter(untrusted_files.read_lines(file))
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
        values = front_matter.parse_front_matter(f"{fence}\n{text}\n{fence}\n")
        address = values.text("baseurl") if tool == "hugo" else values.text("url")
        below = values.text("baseurl").strip("/") if tool == "jekyll" else ""
        home = f"{address.rstrip('/')}/{below}".rstrip("/") + "/"
        patterns = values.values.get("permalinks" if tool == "hugo" else "permalink")
        return _SiteConfig(
            tool, values.text("title"), readability.web_url(home), front_matter.by_section(patterns)
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


def _document(meta: front_matter.FrontMatter, name: str, site: _SiteConfig) -> RawDocument:
    path = PurePosixPath(name)
    markdown = path.suffix.lower() in SUFFIXES
    # A text with its own folder is called index.md; the folder carries its name.
    called = path.parent if path.stem == "index" and path.parent.name else path.with_suffix("")
    date = meta.date() or dates.date_in_name(called.name)
    title, body = meta.text("title"), meta.body
    if markdown:
        body = front_matter.rewrite_wikilinks(body, vault=site.tool == "obsidian")
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
        summary=meta.text("description", "summary", "excerpt"),
        base=name,
        aliases=_aliases(called, meta, site, permalink, date),
    )


def _status(path: PurePosixPath, meta: front_matter.FrontMatter) -> Status:
    if ".trash" in path.parts:
        return "trashed"
    return "draft" if "_drafts" in path.parts else meta.status()


def _aliases(
    called: PurePosixPath,
    meta: front_matter.FrontMatter,
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
        title = front_matter.slugify(meta.text("title"))
        for shown in (slug, title):
            names.append(
                pattern
                and front_matter.expand_permalink(pattern, in_content, slug=shown, date=date)
            )
    elif site.tool == "jekyll" and date and {"_posts", "_drafts"} & set(called.parts):
        day = dates.date_in_name(called.name) or date
        categories = (*meta.words("categories"), *meta.names("category"))
        below = "/".join((*categories, f"{day:%Y/%m/%d}"))
        names += [f"/{day:%Y/%m/%d}/{slug}", f"/{below}/{slug}"]
        for pattern in (meta.text("permalink"), site.permalinks.get("", "")):
            if ":" in pattern or pattern in front_matter.NAMED:
                place = called.relative_to(called.parts[0])
                address = front_matter.expand_permalink(
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
