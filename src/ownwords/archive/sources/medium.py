"""Source: a Medium export, one h-entry page per story or draft, as a zip or unpacked."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ownwords.archive import dates, readability, untrusted_files
from ownwords.archive.document import (
    ExpectedCount,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
)
from ownwords.core.errors import SourceError

LABEL = "a Medium export"

# posts/2020-01-31_The-Title-0a1b2c3d4e5f.html, posts/draft_The-Title-0a1b2c3d4e5f.html
_STORY = re.compile(r"(?:^|/)posts/(?:draft|\d{4}-\d{2}-\d{2})_[^/]*\.html$")
_ID = re.compile(r"-{1,2}([0-9a-f]{8,14})$")
# A link preview: the title and description of another page.
_PREVIEW = ".graf--mixtapeEmbed"
_FIRST_STORIES = 50
_SHORT_WORDS = 100


def detect(path: Path) -> str | None:
    """Recognise a zip or folder whose `posts` folder holds files with Medium's names and markup."""
    if path.is_dir():
        try:
            stories = list(islice((path / "posts").glob("*_*.html"), _FIRST_STORIES))
        except OSError:
            return None
        named = [story for story in stories if _STORY.search(story.as_posix())]
        start = untrusted_files.read_head(named[0], 64 << 10) if named else b""
        return "an unpacked Medium export" if _is_story(start) else None
    return LABEL if untrusted_files.is_zip_with(path, _has_story) else None


def _has_story(members: untrusted_files.ExportFiles) -> bool:
    name = next((name for name in members.names if _STORY.search(name)), "")
    return bool(name) and _is_story(members.read(name, first=64 << 10))


def _is_story(start: bytes) -> bool:
    return b"h-entry" in start and b"p-name" in start


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the stories sorted by file name, which begins with the date; then the drafts."""
    with untrusted_files.open_export(path) as members:
        names = sorted(
            name
            for name in members.names
            if _STORY.search(name) and not name.startswith("__MACOSX/")
        )
        if not names:
            raise SourceError(
                f"{path} holds no stories in a folder named posts",
                hint="give the zip that Medium sends by mail, or the folder it was unpacked to",
            )
        yield from members.skipped
        yield from _site(members, names)
        yield ExpectedCount(len(names))
        yield from _stories(members, names)
        rest = len(members.names) - len(names)
        if rest:
            reason = "reading history, addresses, lists and settings; never read"
            yield SkippedItem("file", reason, rest)


def _site(members: untrusted_files.ExportFiles, names: list[str]) -> Iterator[SiteInfo]:
    for name in names:
        try:
            tree = _parsed(members, name)
        except SourceError:
            continue  # `_stories` reports it
        author = tree.css_first("a.p-author[href]")
        address = readability.web_url(_attribute(tree, "a.p-author[href]", "href"))
        if author is not None and address:
            # medium.com is shared: most links to it lead to other authors.
            shared = urlsplit(address).netloc in ("medium.com", "www.medium.com")
            yield SiteInfo(
                readability.node_text(author), "" if shared else address, identity="medium"
            )
            return
    yield SiteInfo("", identity="medium")


def _stories(members: untrusted_files.ExportFiles, names: list[str]) -> Iterator[SourceItem]:
    likely_responses = 0
    for name in names:
        try:
            tree = _parsed(members, name)
        except SourceError as error:
            yield SkippedItem("post", f"it cannot be unpacked: {error.message}", ref=name)
            continue
        body = tree.css_first("section[data-field=body]")
        if body is None:
            yield SkippedItem("post", "it has no body, as a page cut short has none", ref=name)
            continue
        story = _story(tree, name)
        if story.status == "published" and _looks_like_response(tree, body, story):
            if readability.count_words(body) < _SHORT_WORDS:
                yield SkippedItem(
                    "post",
                    "looks like a response to somebody else's post",
                    title=story.title,
                    ref=story.ref,
                )
                continue
            likely_responses += 1
        readability.remove_heading(body, story.title)
        readability.remove(body, _PREVIEW)
        yield replace(story, body=body.inner_html or "")
    if likely_responses:
        yield SourceNote(
            f"{likely_responses} of Medium's stories look like responses to other people's, since"
            f" they have no title; they have {_SHORT_WORDS} words or more and were kept. The export"
            " does not tell them apart."
        )


def _parsed(members: untrusted_files.ExportFiles, name: str) -> LexborHTMLParser:
    return readability.parse_page(members.read(name))


def _story(tree: LexborHTMLParser, name: str) -> RawDocument:
    file = name.rpartition("/")[2].removesuffix(".html")
    draft = file.startswith("draft_")
    match = _ID.search(file)
    story_id = match[1] if match else file
    url = readability.web_url(_attribute(tree, "a.p-canonical[href]", "href"))
    time = _attribute(tree, "time.dt-published[datetime]", "datetime")
    author = tree.css_first(".p-author")
    title = tree.css_first(".p-name")
    return RawDocument(
        ref=f"post/{story_id}",
        title=readability.node_text(title) if title is not None else "",
        body="",
        markup="html",
        status="draft" if draft else "published",
        date=None if draft else dates.parse_date(time) or dates.date_in_name(file),
        url="" if draft else url,
        author=readability.node_text(author) if author is not None else "",
        base=url,
        aliases=(file, f"https://medium.com/p/{story_id}"),
    )


def _attribute(tree: LexborHTMLParser, selector: str, name: str) -> str:
    node = tree.css_first(selector)
    return ((node.attributes.get(name) or "") if node is not None else "").strip()


def _looks_like_response(tree: LexborHTMLParser, body: LexborNode, story: RawDocument) -> bool:
    """Whether a story has no heading and begins with its own title, as exported responses do."""
    if body.css_first("h1, h2, h3, h4") is not None:
        return False
    text = readability.node_text(body).casefold()
    opening = story.title.rstrip("….").casefold().strip()
    node = tree.css_first("section[data-field=subtitle]")
    below = readability.node_text(node).rstrip("….").casefold().strip() if node else ""
    return text.startswith(opening) and (not below or text.startswith(below))
