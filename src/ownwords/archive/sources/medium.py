"""Source: a Medium export, one h-entry page per story or draft, as a zip or unpacked."""

import re
from collections.abc import Iterator
from pathlib import Path

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

NAME = "Medium"

# posts/2020-01-31_The-Title-0a1b2c3d4e5f.html, posts/draft_The-Title-0a1b2c3d4e5f.html
_STORY = re.compile(r"(?:^|/)posts/(?:draft|\d{4}-\d{2}-\d{2})_[^/]*\.html$")
_ID = re.compile(r"-{1,2}([0-9a-f]{8,14})$")
# A link preview: the title and description of another page.
_PREVIEW = ".graf--mixtapeEmbed"
_SHORT_WORDS = 100


def detect(path: Path) -> str | None:
    """Recognise a zip or folder whose `posts` folder holds files with Medium's names and markup."""
    if path.is_dir():
        is_ours = untrusted_files.export_holds(path / "posts", _has_story)
        return "an unpacked Medium export" if is_ours else None
    return "a Medium export" if untrusted_files.export_holds(path, _has_story) else None


def _has_story(files: untrusted_files.ExportFiles) -> bool:
    name = next((name for name in files.names if _STORY.search(f"{files.path}/{name}")), "")
    start = files.read(name, first=64 << 10) if name else b""
    return b"h-entry" in start and b"p-name" in start


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the stories sorted by file name, which begins with the date; then the drafts."""
    with untrusted_files.open_export(path) as members:
        names = sorted(filter(_STORY.search, members.names))
        if not names:
            raise SourceError(
                f"{path} holds no stories in a folder named posts",
                hint="give the zip that Medium sends by mail, or the folder it was unpacked to",
            )
        yield from members.skipped
        yield ExpectedCount(len(names))
        yield from _stories(members, names)
        if rest := len(members.names) - len(names):
            reason = "reading history, addresses, lists and settings; never read"
            yield SkippedItem("file", reason, rest)


def _stories(members: untrusted_files.ExportFiles, names: list[str]) -> Iterator[SourceItem]:
    site = SiteInfo("", identity="medium")
    likely_responses = 0
    for name in names:
        try:
            tree = readability.parse_page(members.read(name))
        except SourceError as error:
            yield SkippedItem("post", f"it cannot be unpacked: {error.message}", ref=name)
            continue
        if not site.name:
            site = _site(tree)
            yield site
        body = tree.css_first("section[data-field=body]")
        if body is None:
            yield SkippedItem("post", "it has no body: the page may be cut off", ref=name)
            continue
        title = readability.text_of(tree, ".p-name")
        is_draft = name.rpartition("/")[2].startswith("draft_")
        if not is_draft and _looks_like_response(tree, body, title):
            if readability.count_words(body) < _SHORT_WORDS:
                reason = "looks like a response to somebody else's post"
                yield SkippedItem("post", reason, title=title, ref=f"post/{_story_id(name)}")
                continue
            likely_responses += 1
        readability.remove_heading(body, title)
        readability.remove(body, _PREVIEW)
        yield _story(tree, name, title, body.inner_html or "", is_draft)
    if likely_responses:
        yield SourceNote(
            f"{likely_responses} of Medium's stories look like responses to other people's, because"
            f" they have no title. They have {_SHORT_WORDS} words or more and were kept. The export"
            " does not distinguish responses."
        )


def _site(tree: LexborHTMLParser) -> SiteInfo:
    return SiteInfo(readability.text_of(tree, "a.p-author[href]"), identity="medium")


def _story_id(name: str) -> str:
    file = name.rpartition("/")[2].removesuffix(".html")
    match = _ID.search(file)
    return match[1] if match else file


def _story(tree: LexborHTMLParser, name: str, title: str, body: str, is_draft: bool) -> RawDocument:
    file = name.rpartition("/")[2].removesuffix(".html")
    url = readability.web_url(readability.attribute_of(tree, "a.p-canonical[href]", "href"))
    time = readability.attribute_of(tree, "time.dt-published[datetime]", "datetime")
    return RawDocument(
        ref=f"post/{_story_id(name)}",
        title=title,
        body=body,
        markup="html",
        status="draft" if is_draft else "published",
        date=None if is_draft else dates.parse_date(time) or dates.date_in_name(file),
        url="" if is_draft else url,
        author=readability.text_of(tree, ".p-author"),
    )


def _looks_like_response(tree: LexborHTMLParser, body: LexborNode, title: str) -> bool:
    """Return whether a story has no heading and begins with its title, as responses do."""
    if body.css_first("h1, h2, h3, h4") is not None:
        return False
    text = readability.node_text(body).casefold()
    openings = (title, readability.text_of(tree, "section[data-field=subtitle]"))
    return all(text.startswith(opening.rstrip("….").casefold().strip()) for opening in openings)
