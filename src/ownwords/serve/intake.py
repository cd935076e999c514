"""Inspects uploaded files, and fetches feeds, in a process of its own.

    python -m ownwords.serve.intake FILE ARCHIVE SETTINGS
    python -m ownwords.serve.intake URL HOST FOLDER

prints one JSON object: the path to read and its kind, or an error. A file is read within a memory
limit, and its posts are compared with those of the archive. A feed is fetched only from the host
that the user has named, even if it redirects; its pages are saved as FOLDER/feed-001.xml and so on.
"""

import json
import os
import re
import shutil
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx

from ownwords.archive import readability, sources
from ownwords.archive.document import RawDocument
from ownwords.archive.ingest import Detect, versions_in
from ownwords.archive.settings import ArchiveConfig
from ownwords.archive.sources import feed
from ownwords.archive.untrusted_files import bound_memory
from ownwords.core.errors import OwnwordsError, SourceError
from ownwords.core.progress import Progress, Stage, print_answer, reporting_job
from ownwords.core.validation import decode, encode
from ownwords.core.version import __version__
from ownwords.core.workspace import path_text
from ownwords.models import atomic_dir

_MAX_MEMORY_BYTES = 4 << 30


def inspect_upload(path: Path, archive: Path, config: ArchiveConfig) -> dict[str, Any]:
    """Return `inspect_path` of an uploaded file; errors call it by its name.

    `versions` are the sources of the archive that hold most of the same posts.
    """
    try:
        detect = cache(sources.detect_source)  # which unpacks it once
        found = inspect_path(path, detect)
        found["versions"] = encode(versions_in(archive, path, config, detect))
        if not found["has_posts"]:
            raise SourceError(f"{path} holds no posts", hint="give an export of the blog")
    except MemoryError:
        raise SourceError(
            f"{path.name} takes more than {_MAX_MEMORY_BYTES >> 30} GiB of memory to read",
            hint="give a smaller export",
        ) from None
    except OwnwordsError as error:
        error.message = error.message.replace(str(path), path.name)
        error.hint = error.hint.replace(str(path), path.name)
        raise
    return found


def inspect_path(path: Path, detect: Detect = sources.detect_source) -> dict[str, Any]:
    """Detect the source of a path."""
    found = detect(path)
    # Reading the first post shows whether the file is damaged.
    has_posts = any(isinstance(item, RawDocument) and item.body.strip() for item in found.read())
    return {"path": path_text(path), "label": found.label, "has_posts": has_posts}


_MAX_PAGES = 200
_MAX_PAGE_BYTES = 32 << 20
_MAX_REDIRECTS = 5
_PAUSE_S = 0.25  # between two pages, so as not to burden the host
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_HEADERS = {"User-Agent": f"ownwords/{__version__}"}
_FEEDS = ("application/rss+xml", "application/atom+xml")
_LINK = re.compile(rb"<(?:atom:|a10:)?link\b[^<>]*>", re.IGNORECASE)
_NEXT = re.compile(rb"\brel=[\"']next[\"']", re.IGNORECASE)
_HREF = re.compile(rb"\bhref=[\"']([^\"']+)[\"']", re.IGNORECASE)
_HEAD_BYTES = 64 << 10


def fetch_feed(
    url: str,
    host: str,
    folder: Path,
    progress: Progress,
    transport: httpx.BaseTransport | None = None,
) -> dict[str, Any]:
    """Fetch all pages of the feed at an address into `folder`, which is replaced at the end.

    Raises SourceError if the address belongs to another host, or leads to no feed.
    """
    progress.expect("fetch")
    progress.begin("fetch")
    with (
        httpx.Client(
            timeout=_TIMEOUT,
            headers=_HEADERS,
            transport=transport,
            follow_redirects=True,
            max_redirects=_MAX_REDIRECTS,
            event_hooks={"request": [partial(_check_host, host.casefold())]},
        ) as client,
        atomic_dir.replace_dir(folder) as pages,
        progress.stage(f"Fetching from {host}", unit="pages") as stage,
    ):
        _fetch_pages(client, url, pages, stage)
    found = inspect_path(folder)
    if not found.pop("has_posts"):
        shutil.rmtree(folder)
        raise SourceError(f"the feed of {host} holds no posts", hint="give an export of the blog")
    return {**found, "path": path_text(folder), "name": host}


def _fetch_pages(client: httpx.Client, url: str, folder: Path, stage: Stage) -> None:
    address, data = _get(client, url)
    path = _save(folder, 1, data)
    if not feed.detect(path):
        address, data = _get(client, _feed_of_page(address, data))
        path = _save(folder, 1, data)
        if not feed.detect(path):
            raise SourceError(f"{address} is not a feed", hint="give the address of the feed")
    is_wordpress = b"wordpress.org" in data[:_HEAD_BYTES]
    before = data
    for number in range(2, _MAX_PAGES + 1):
        stage.advance()
        following = _next_page(address, data, number, is_wordpress=is_wordpress)
        if not following:
            return
        time.sleep(_PAUSE_S)
        try:
            following, data = _get(client, following)
        except SourceError:  # the page before was the last one
            return
        if data == before:
            return
        path = _save(folder, number, data)
        if not feed.detect(path):
            path.unlink()
            return
        address, before = address if is_wordpress else following, data


def _get(client: httpx.Client, url: str) -> tuple[str, bytes]:
    """Return the address after redirects, and its content."""
    try:
        with client.stream("GET", url) as response:
            url = str(response.url)
            if response.status_code != httpx.codes.OK:
                raise SourceError(
                    f"{url} answers with status {response.status_code}",
                    hint="look at the address in a browser",
                )
            data = bytearray()
            for block in response.iter_bytes():
                data += block
                if len(data) > _MAX_PAGE_BYTES:
                    raise SourceError(f"{url} is over {_MAX_PAGE_BYTES >> 20} MiB")
            return url, bytes(data)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceError(
            f"{url:.200} cannot be reached: {str(error) or type(error).__name__}",
            hint="check the address and the connection, then try again",
        ) from error


def _check_host(host: str, request: httpx.Request) -> None:
    """Refuse an address, also of a redirect, of a host that the user has not named."""
    url, name = str(request.url), request.url.host.casefold()
    if request.url.scheme not in ("http", "https") or not name:
        raise SourceError(
            f"{url!r:.200} is not the address of a page", hint="it begins with https://"
        )
    if name.removeprefix("www.") != host.removeprefix("www."):
        raise SourceError(
            f"{host} leads to another host, {name}, and nothing was fetched from there",
            hint=f"to fetch from it, give its own address: {url:.200}",
        )


def _feed_of_page(address: str, data: bytes) -> str:
    """Return the feed that a web page names."""
    for link in readability.parse_page(data).css("link[rel~=alternate]"):
        media_type = (link.attributes.get("type") or "").strip().lower()
        href = link.attributes.get("href") or ""
        if media_type in _FEEDS and href and "comments" not in href:
            return urljoin(address, href)
    raise SourceError(
        f"{address} is not a feed, and the page names none",
        hint="give the address of the feed, or an export of the blog",
    )


def _next_page(address: str, data: bytes, number: int, *, is_wordpress: bool) -> str:
    """Return the address of a feed's next page; "" if it has none."""
    if is_wordpress:
        return str(httpx.URL(address).copy_merge_params({"paged": str(number)}))
    link = next(filter(_NEXT.search, _LINK.findall(data[:_HEAD_BYTES])), b"")
    href = _HREF.search(link)
    text = href[1].decode("utf-8", "replace").replace("&amp;", "&") if href else ""
    return urljoin(address, text) if text else ""


def _save(folder: Path, number: int, data: bytes) -> Path:
    path = folder / f"feed-{number:03}.xml"
    path.write_bytes(data)
    return path


def _fetch(url: str, host: str, folder: str) -> dict[str, Any]:
    progress = Progress()
    with reporting_job(progress, os.environ):
        return fetch_feed(url, host, Path(folder), progress)


def _main(first: str, *rest: str) -> int:
    def inspect() -> dict[str, Any]:
        bound_memory(_MAX_MEMORY_BYTES)
        archive, chosen = rest
        config = decode(ArchiveConfig, json.loads(chosen))
        return inspect_upload(Path(first), Path(archive), config)

    return print_answer(partial(_fetch, first, *rest) if "://" in first else inspect)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
