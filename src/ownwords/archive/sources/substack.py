"""Source: a Substack export, posts.csv and a folder of HTML, as a zip or unpacked.

The export also lists readers' addresses and what they opened; those files are never read.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ownwords.archive import readability, untrusted_files
from ownwords.archive.dates import parse_iso_date
from ownwords.archive.document import ExpectedCount, RawDocument, SiteInfo, SkippedItem, SourceItem
from ownwords.core.errors import SourceError

NAME = "Substack"

_READERS = re.compile(r"email_list[^/]*\.csv$|(delivers|opens)\.csv$")
_HEADER = (b"post_id", b"is_published")
# Subscribe boxes, buttons, and previews of others' posts and comments.
_CHROME = """
.subscription-widget-wrap, .subscription-widget-wrap-editor, .subscription-widget,
.subscribe-widget, .button-wrapper, .captioned-button-wrap, .install-substack-app-embed,
.embedded-post-wrap, .digest-post-embed, .embedded-publication-wrap, div.comment[data-attrs],
.community-chat, .poll-embed, .file-embed-details-h2, .file-embed-button, .footnote-number,
label.hide-text
"""
_OWN_LINK = re.compile(r"https?://([\w.-]+)/p/([\w-]+)")


class _PostRow(NamedTuple):
    """A row of posts.csv, and the archive member that holds its text ("" for none)."""

    id: str
    slug: str
    fields: dict[str, str]
    member: str


def detect(path: Path) -> str | None:
    """Recognise a zip or folder with a posts.csv that has Substack's columns."""
    if path.is_dir():  # the whole folder is the export only if posts.csv is at its top
        is_ours = _is_table(untrusted_files.read_head(path / "posts.csv", 4096))
        return "an unpacked Substack export" if is_ours else None
    return "a Substack export" if untrusted_files.export_holds(path, _has_table) else None


def _has_table(files: untrusted_files.ExportFiles) -> bool:
    table = _table(files)
    return bool(table) and _is_table(files.read(table, first=4096))


def _is_table(start: bytes) -> bool:
    return all(column in start.partition(b"\n")[0] for column in _HEADER)


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the posts in the order of posts.csv; unpublished posts have the status "draft"."""
    with untrusted_files.open_export(path) as members:
        table = _table(members)
        if not table:
            raise SourceError(
                f"{path} holds no posts.csv",
                hint="export again: Settings > Exports > Create new export, and give the zip",
            )
        yield from members.skipped
        rows = _rows(path, members, table)
        home = _home(members, rows)
        yield SiteInfo(home, identity="substack")
        yield ExpectedCount(len(rows))
        for row in rows:
            yield from _post(members, row, home)
        read = {table, *(row.member for row in rows)}
        yield from (_left_out(name) for name in members.names if name not in read)


def _table(members: untrusted_files.ExportFiles) -> str:
    """Return the name of the posts.csv with the shortest path; "" if there is none."""
    tables = (name for name in members.names if name.rpartition("/")[2] == "posts.csv")
    return min(tables, key=len, default="")


def _rows(path: Path, members: untrusted_files.ExportFiles, table: str) -> list[_PostRow]:
    text = untrusted_files.decode_text(members.read(table)).replace("\0", "")
    folder = table.removesuffix("posts.csv") + "posts/"
    # The id is "123" or "123.slug"; the file always "123.slug.html".
    files = {
        name.removeprefix(folder).partition(".")[0]: name
        for name in members.names
        if name.startswith(folder) and name.endswith(".html")
    }
    try:
        table_rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise SourceError(f"{path}: its posts.csv is not a table: {error}") from error
    rows = []
    for fields in table_rows:
        post_id = (fields.get("post_id") or "").strip()
        number, _, slug = post_id.partition(".")
        if not number:
            continue
        member = files.get(number, "")
        slug = slug or member.removeprefix(f"{folder}{number}.").removesuffix(".html")
        # DictReader puts surplus fields of a row under the key None.
        plain = {key: value or "" for key, value in fields.items() if isinstance(key, str)}
        rows.append(_PostRow(number, slug, plain, member))
    if not rows and "post_id" not in text.partition("\n")[0]:
        raise SourceError(f"{path}: its posts.csv has no column post_id")
    return rows


def _home(members: untrusted_files.ExportFiles, rows: list[_PostRow]) -> str:
    """Guess the newsletter's host, which the export omits: that of most links to its posts."""
    slugs = {row.slug for row in rows}
    hosts: Counter[str] = Counter()
    for row in rows:
        try:
            text = untrusted_files.decode_text(members.read(row.member)) if row.member else ""
        except SourceError:
            continue  # `_post` reports it
        hosts.update({host.lower() for host, slug in _OWN_LINK.findall(text) if slug in slugs})
    return max(sorted(hosts), key=hosts.__getitem__, default="")


def _post(members: untrusted_files.ExportFiles, row: _PostRow, home: str) -> Iterator[SourceItem]:
    title = row.fields.get("title", "").strip()
    ref = f"post/{row.id}"
    if not row.member:
        yield SkippedItem("post", "its text is missing from the export", title=title, ref=ref)
        return
    try:
        html = untrusted_files.decode_text(members.read(row.member))
    except SourceError as error:
        yield SkippedItem("post", f"it cannot be unpacked: {error.message}", title=title, ref=ref)
        return
    published = row.fields.get("is_published", "").strip().lower() in ("true", "1", "t")
    url = f"https://{home}/p/{row.slug}" if home else ""
    yield RawDocument(
        ref=ref,
        title=title,
        body=readability.remove_chrome(html, _CHROME),
        markup="html",
        status="published" if published else "draft",
        kind="page" if row.fields.get("type", "") == "page" else "post",
        date=parse_iso_date(row.fields.get("post_date", "")),
        url=url if published else "",
    )


def _left_out(name: str) -> SkippedItem:
    if _READERS.search(name):
        return SkippedItem("file", "your readers' addresses and what they opened; never read")
    if name.endswith(".html") and "/posts/" in f"/{name}":
        reason = "posts.csv does not list it, so nothing shows that it was published"
        return SkippedItem("post", reason)
    return SkippedItem("file", "not a post")
