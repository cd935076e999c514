"""Every file of the paths that were read: what became of it, why, and what to do about it."""

import mimetypes
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ownwords.archive.document import SkippedItem
from ownwords.archive.report import PostSummary, Report, SourceSummary
from ownwords.archive.sources import FILE_BY_FILE, MEDIA, suffix_advice, text_suffixes
from ownwords.archive.untrusted_files import NOT_TEXTS, relative_name, walk_files

FileStatus = Literal["read", "read in part", "left out"]

_BY_NAME = FILE_BY_FILE | {"html"}  # sources that name their texts after the files
_DRAFTS = "include drafts: under “What is read” on the page, or with --drafts"
# What to do about a file that was left out, by reason.
_TO_DO = {
    "still a draft": _DRAFTS,
    "scheduled, not yet published": _DRAFTS,
    "a private post": "include private posts: under “What is read” on the page, or with --private",
    "hidden: live at its address, listed nowhere": (
        "include hidden posts: under “What is read” on the page, or with --hidden"
    ),
    "a page, not a post": "include pages: under “What is read” on the page, or with --pages",
    "a picture without text": "add the text with a text-recognition program such as ocrmypdf",
    "not read yet": "read the blog again",
}


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, or an export as a whole, whose `name` is relative to its source."""

    name: str
    source: str  # the name of the path that was read
    status: FileStatus
    texts: int
    words: int
    reasons: list[str]  # for what was left out, the most frequent first
    advice: str

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether each of these words in lower case is in the name or a reason."""
        text = " ".join((self.name, self.source, *self.reasons)).casefold()
        return all(word in text for word in words)


def list_files(report: Report, root: Path) -> list[FileEntry]:
    """Return the files of all sources of a report; `root` is the folder of the workspace."""
    return [
        entry
        for number, source in enumerate(report.sources)
        for entry in _files_of(
            source,
            source.located(root),
            [post for post in report.posts if post.source == number],
            [item for item in report.excluded if item.source == number and item.what != "part"],
        )
    ]


def _files_of(
    source: SourceSummary, place: Path, posts: list[PostSummary], skipped: list[SkippedItem]
) -> Iterator[FileEntry]:
    label = source.prefix or place.name
    if not place.is_dir() or source.kind not in _BY_NAME:
        yield _entry(place.name, label, posts, skipped, "not read yet")
        return
    posts_of: dict[str, list[PostSummary]] = defaultdict(list)
    skipped_of: dict[str, list[SkippedItem]] = defaultdict(list)
    for post in posts:  # "blog:notes/a.txt#2" is the second text of a file
        ref = post.id.removeprefix(f"{source.prefix}:")
        posts_of[ref].append(post)
        if ref != (name := ref.rpartition("#")[0]):
            posts_of[name].append(post)
    for item in skipped:
        skipped_of[item.ref].append(item)
    for file in walk_files(place, leave=NOT_TEXTS):
        if isinstance(file, SkippedItem):
            yield _entry(file.ref, label, [], [file], "")
        elif not file.name.startswith("."):
            name = relative_name(file, place)
            yield _entry(name, label, posts_of.get(name, []), skipped_of.get(name, []), _why(file))


def _why(file: Path) -> str:
    """Return why a file that a look does not mention was not read."""
    if file.suffix.lower() in text_suffixes():
        return "not read yet"
    kind = (mimetypes.guess_type(file.name)[0] or "").partition("/")[0]
    return MEDIA.get(kind, f"not a text ({file.suffix.lower() or 'without a suffix'})")


def _entry(
    name: str, source: str, posts: list[PostSummary], skipped: list[SkippedItem], why: str
) -> FileEntry:
    reasons = [item.reason for item in sorted(skipped, key=lambda item: -item.count)]
    if not posts and not reasons:
        reasons = [why]
    reasons = list(dict.fromkeys(reasons))
    advice = next((_TO_DO[reason] for reason in reasons if reason in _TO_DO), "")
    return FileEntry(
        name=name,
        source=source,
        status="left out" if not posts else "read in part" if reasons else "read",
        texts=len(posts),
        words=sum(post.own_words for post in posts),
        reasons=reasons,
        advice=advice or ("" if posts else suffix_advice(name)),
    )
