"""Source: a folder of web pages or one page; extracts the articles without menus and footers."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
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
from ownwords.archive.sources import list_texts
from ownwords.core.errors import SourceError

NAME = "web pages"

SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
# Repeated blocks are found on about this many pages, spread evenly, to bound memory.
_SAMPLE_PAGES = 400
_REPEATS_MATTER_FROM_PAGES = 4
_BLOCK = re.compile(
    r"p|li|h[1-6]|div|section|article|dt|dd|figcaption|blockquote|[uod]l|table|pre|address|header"
    r"|footer|aside|nav"
)
_LISTING_PATH = re.compile(
    r"(^|/)(tags?|categor(y|ies)|authors?|search)/.*index\.x?html?$"
    r"|(^|/)(tags?|categor(y|ies)|archives?|sitemap)\.html?$|(^|/)(tags?|categor(y|ies))/[^/]+\.html?$"
    r"|(^|/)archives?/index\.html?$|(^|/)page/\d+/|(^|/)(19|20)\d\d(/\d\d)?/index\.html?$"
)
_ERROR_PAGE = re.compile(r"(^|/)(404|500)(\.html?|/index\.html?)$")
_MANY_LINKS = 5
_FEW_WORDS_PER_LINK = 6


@dataclass(slots=True)
class _ParsedPage:
    """One parsed file: its extracted article and its metadata."""

    tree: LexborHTMLParser
    article: LexborNode
    own_title: str
    title: str
    comments: int
    is_listing: bool
    blocks: frozenset[bytes]  # hashes of all blocks of the page; empty unless requested


@dataclass(slots=True)
class _SharedBlocks:
    """The site name, address and repeated blocks that the pages of a folder share."""

    site: str = ""
    url: str = ""
    repeated: frozenset[bytes] = frozenset()
    # For pages without a recognised article: also counts blocks outside other pages' articles.
    repeated_around: frozenset[bytes] = frozenset()


def detect(path: Path) -> str | None:
    """Recognise a web page, or a folder with at least as many pages as other texts."""
    if path.is_dir():
        names = untrusted_files.count_suffixes(path)
        pages = sum(names[suffix] for suffix in SUFFIXES)
        others = max(names[".md"] + names[".markdown"], names[".txt"] + names[".text"])
        return "a folder of web pages" if pages and pages >= others else None
    start = untrusted_files.read_head(path, 1024)
    if not start or untrusted_files.is_binary(start):
        return None
    looks = re.match(
        rb"(\xef\xbb\xbf)?\s*(<!--.*?-->\s*)?<(!doctype\s+html|html|head|body)\b", start, re.I
    )
    return "a web page" if looks or path.suffix.lower() in SUFFIXES else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the articles sorted by file, without blocks that repeat on half of the pages."""
    if not path.is_dir():
        page = _page(untrusted_files.read_file(path), path.name)
        if page.comments:
            yield SkippedItem("comment", "other people's words", page.comments)
        yield _document(page, path.name, _SharedBlocks())
        return
    files: list[Path] = []
    for each in list_texts(path, SUFFIXES, "web pages"):
        if isinstance(each, SkippedItem):
            yield each
        else:
            files.append(each)
    common = _in_common(files, path)
    if common.site or common.url:
        yield SiteInfo(common.site or common.url)
    yield ExpectedCount(len(files))
    yield from _articles(files, path, common)


def _articles(files: list[Path], folder: Path, common: _SharedBlocks) -> Iterator[SourceItem]:
    for file in files:
        name = untrusted_files.relative_name(file, folder)
        if _ERROR_PAGE.search(name):
            yield SkippedItem("page", "an error page")
            continue
        try:
            page = _page(untrusted_files.read_file(file), name)
        except SourceError as error:
            yield SkippedItem("file", error.message.removeprefix(f"{file} "), ref=name)
            continue
        if page.comments:
            yield SkippedItem("comment", "other people's words", page.comments)
        if page.is_listing:
            reason = "a listing page: links to other pages, little text of its own"
            yield SkippedItem("page", reason)
            continue
        doomed = common.repeated_around if page.article.tag == "body" else common.repeated
        repeated = [node for node, key in _keyed_blocks(page.article) if key in doomed]
        for node in repeated:
            node.decompose()
        if repeated:
            reason = "it repeats on at least half of the pages: menus, footers"
            yield SkippedItem("block", reason, len(repeated))
        has_text = readability.node_text(page.article)
        if not has_text and not page.article.css_first("img, pre, video, audio"):
            yield SkippedItem("page", "no text of its own was found on it", ref=name)
            continue
        yield _document(page, name, common)
    yield SourceNote(
        "Articles were extracted from whole web pages by rules; if you still have the original"
        " files (Markdown files, a database, an export), read those instead: the result is more"
        " accurate."
    )


def _page(data: bytes, name: str, with_blocks: bool = False) -> _ParsedPage:
    tree = readability.parse_page(data)
    body = tree.body or readability.parse("")
    readability.remove_anchors(body)
    own, title = readability.page_titles(tree)
    comments = readability.remove_comments(body)
    is_listing = _is_listing(tree, body, name)
    blocks = frozenset(key for _, key in _keyed_blocks(body)) if with_blocks else frozenset()
    article = readability.extract_article(body)
    is_listing = is_listing or _is_mostly_links(tree, article)
    return _ParsedPage(tree, article, own, title, comments, is_listing, blocks)


def _is_listing(tree: LexborHTMLParser, body: LexborNode, name: str) -> bool:
    if _LISTING_PATH.search(name):
        return True
    cards = readability.outermost(body, "article, .post-card, .h-entry, li.post")
    linked = [card for card in cards if card.css_first("h1 a[href], h2 a[href], h3 a[href]")]
    if len(linked) < 3:
        return False
    sizes = sorted(len(readability.node_text(card)) for card in cards)
    return sizes[-1] * 2 <= sum(sizes) and not tree.css_first(
        "meta[property='article:published_time']"
    )


def _is_mostly_links(tree: LexborHTMLParser, article: LexborNode) -> bool:
    links = article.css("a[href]")
    own = readability.count_words(article) - sum(readability.count_words(link) for link in links)
    is_website = readability.meta_content(tree, "og:type") == "website"
    allowed = _FEW_WORDS_PER_LINK * (2 if is_website else 1)
    return len(links) >= _MANY_LINKS and own < allowed * len(links)


def _in_common(files: list[Path], folder: Path) -> _SharedBlocks:
    """Find the site's name and address, and the blocks on at least half of a sample of pages."""
    blocks: Counter[bytes] = Counter()
    around: Counter[bytes] = Counter()
    names: Counter[str] = Counter()
    homes: Counter[str] = Counter()
    articles = 0
    for file in files[:: max(1, len(files) // _SAMPLE_PAGES)]:
        try:
            name = untrusted_files.relative_name(file, folder)
            page = _page(untrusted_files.read_file(file), name, with_blocks=True)
        except SourceError:
            continue  # `_articles` reports it
        address = urlsplit(readability.page_url(page.tree))
        homes[f"{address.scheme}://{address.netloc}/" if address.netloc else ""] += 1
        names[
            readability.meta_content(page.tree, "og:site_name")
            or readability.last_title_part(page.title)
        ] += 1
        if not page.is_listing:
            articles += 1
            blocks.update({key for _, key in _keyed_blocks(page.article)})
            around.update(page.blocks)
    common = _SharedBlocks()
    if articles >= _REPEATS_MATTER_FROM_PAGES:
        common.repeated = frozenset(key for key, n in blocks.items() if n * 2 >= articles)
        common.repeated_around = frozenset(key for key, n in around.items() if n * 2 >= articles)
    name, pages_named = next(((n, c) for n, c in names.most_common() if n), ("", 0))
    common.site = name if pages_named * 2 >= names.total() and pages_named > 1 else ""
    common.url = next((home for home, _ in homes.most_common() if home), "")
    return common


def _keyed_blocks(article: LexborNode) -> Iterator[tuple[LexborNode, bytes]]:
    """Yield the innermost blocks and a hash of their text; code and tables are left out."""
    for node in article.traverse():
        if not _is_block(node) or node.tag in ("pre", "table") or node.mem_id == article.mem_id:
            continue
        words = readability.node_text(node).casefold()
        if words and not any(_is_block(child) for child in node.iter()):
            yield node, blake2b(words.encode(errors="replace"), digest_size=8).digest()


def _is_block(node: LexborNode) -> bool:
    return _BLOCK.fullmatch(node.tag or "") is not None


def _document(page: _ParsedPage, name: str, common: _SharedBlocks) -> RawDocument:
    site = common.site or readability.meta_content(page.tree, "og:site_name")
    if readability.last_title_part(page.title).casefold() == page.own_title.casefold():
        site = site or page.own_title
    # On some pages the only h1 is the site's name.
    own = "" if page.own_title.casefold() == site.casefold() else page.own_title
    shown = readability.strip_site_name(own, site) or readability.strip_site_name(page.title, site)
    path = PurePosixPath(name)
    stem = path.parent.name if path.stem == "index" and path.parent.name else path.stem
    shown = shown or readability.text_of(page.article, "h1, h2") or dates.title_from_filename(stem)
    readability.remove_heading(page.article, shown)
    date = readability.page_date(page.tree, name)
    return RawDocument(
        ref=name,
        title=shown,
        body=page.article.inner_html or "",
        markup="html",
        kind="page" if readability.PAGE_NAME.fullmatch(stem) and date is None else "post",
        date=date,
        url=readability.page_url(page.tree),
        author=readability.meta_content(page.tree, "author", "article:author"),
        tags=_tags(page.tree),
    )


def _tags(tree: LexborHTMLParser) -> tuple[str, ...]:
    contents = (node.attributes.get("content") for node in tree.css('meta[property="article:tag"]'))
    return tuple(dict.fromkeys(" ".join(tag.split()) for tag in contents if tag and tag.strip()))
