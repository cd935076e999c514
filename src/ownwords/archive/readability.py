"""Extract from web pages the encoding, the article among menus and footers, and the metadata."""

import codecs
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ownwords.archive import dates, untrusted_files
from ownwords.archive.markup import parse_html
from ownwords.core.config import toml_beside

_SELECTORS: Final = toml_beside(__file__, "selectors.toml")
# A comments section with fewer words and no comment elements only says "no comments yet".
_WORDS_OF_A_COMMENT = 20
_LONGEST_SIGN = 3
_HEAD_BYTES = 4096  # of a page: its declared encoding, and comments about it
# Encodings a page may declare; Python also knows codecs that are not text ("zip", "punycode").
_ENCODINGS = re.compile(
    r"utf-8|cp125\d|cp866|cp87\d|cp9\d\d|iso8859-\d+|koi8-[rut]|mac-\w+|shift_jis|euc_(jp|kr)"
    r"|iso2022_jp|gbk|gb2312|gb18030|big5|tis-620"
)
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,80}encoding=["']([\w-]+)|<meta[^>]{0,200}charset=["']?\s*([\w-]+)""", re.I
)
# Undated texts of these names are pages, not posts.
PAGE_NAME: Final = re.compile(
    r"about(-me)?|contact|imprint|impressum|privacy(-policy)?|colophon|now|uses|index",
    re.IGNORECASE,
)
_SUFFIX = re.compile(r"(?<!\s)\s+(?:[|–—·•«»:]|-{1,2}|::)\s+")


def decode(data: bytes) -> str:
    """Decode a page by its byte order mark, else its declared encoding, else `decode_text`."""
    if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return untrusted_files.decode_text(data)
    declared = _DECLARED.search(data[:_HEAD_BYTES])
    if declared:
        try:
            label = (declared[1] or declared[2]).decode("ascii", "replace")
            encoding = codecs.lookup(label).name
            # Browsers read Latin-1 as its superset Windows-1252, and authors rely on that.
            encoding = "cp1252" if encoding in ("iso8859-1", "ascii") else encoding
            if encoding != "utf-8" and _ENCODINGS.fullmatch(encoding):
                return data.decode(encoding, errors="replace")
        except LookupError:
            pass  # an unknown label
    return untrusted_files.decode_text(data)


def parse_page(data: bytes) -> LexborHTMLParser:
    """Parse a page."""
    return parse_html(decode(data))


def parse(html: str) -> LexborNode:
    """Parse HTML and return its body; an empty body if it has none."""
    return parse_html(html).body or parse_html("<body></body>").body  # type: ignore[return-value]


def node_text(node: LexborNode) -> str:
    """Return the text of a node with whitespace collapsed."""
    return " ".join(node.text().split())


def count_words(node: LexborNode) -> int:
    """Count the words in a node; those of adjacent blocks are kept apart."""
    return len(node.text(separator=" ").split())


def remove(node: LexborNode, selectors: str) -> int:
    """Remove what the selectors match; returns the number of outermost matches."""
    matches = outermost(node, selectors)
    for match in matches:
        match.decompose()
    return len(matches)


def remove_chrome(html: str, selectors: str) -> str:
    """Return HTML without what a program puts beside the text of a post."""
    body = parse(html)
    return (body.inner_html or "") if remove(body, selectors) else html


def outermost(node: LexborNode, selectors: str) -> list[LexborNode]:
    """Return the matches of the selectors below `node` that are not inside another match."""
    matches = [match for match in node.css(selectors) if match.mem_id != node.mem_id]
    ids = {match.mem_id for match in matches}
    return [match for match in matches if not any(up.mem_id in ids for up in _above(match, node))]


def _above(node: LexborNode, top: LexborNode) -> Iterator[LexborNode]:
    up = node.parent
    while up is not None and up.mem_id != top.mem_id:
        yield up
        up = up.parent


def remove_comments(body: LexborNode) -> int:
    """Remove readers' comments from a page; returns their number."""
    count = 0
    for section in outermost(body, _SELECTORS["comments"]):
        remove(section, _SELECTORS["machinery"] + ", form, #respond, .comment-respond")
        if not section.css_matches("#respond, .comment-respond"):
            numbers = (len(section.css(selector)) for selector in _SELECTORS["one_comment"])
            comments = next(filter(None, numbers), 0)
            count += comments or (1 if count_words(section) >= _WORDS_OF_A_COMMENT else 0)
        section.decompose()
    return count


def remove_anchors(body: LexborNode) -> None:
    """Remove the permalink signs beside headings ("¶")."""
    for node in outermost(body, _SELECTORS["anchors"]):
        if node.tag != "a" or len(node_text(node)) < _LONGEST_SIGN:
            node.decompose()


def extract_article(body: LexborNode) -> LexborNode:
    """Find the article of a page and remove menus and footers; changes `body`."""
    remove(body, _SELECTORS["machinery"])
    for selector in _SELECTORS["article"]:
        sized = [(len(node_text(match)), match) for match in outermost(body, selector)]
        longest, node = max(sized, key=lambda pair: pair[0], default=(0, body))
        # Several matches of similar size are a listing or cards; try the next, wider selector.
        if longest and longest * 2 > sum(size for size, _ in sized):
            remove(node, _SELECTORS["around"])
            for frame in outermost(node, "header, footer"):
                if not any(up.tag == "blockquote" for up in _above(frame, node)):
                    frame.decompose()
            return node
    remove(body, _SELECTORS["around"])
    remove(body, _SELECTORS["frame"])
    return body


def remove_heading(node: LexborNode, title: str) -> None:
    """Remove the first heading if it repeats the title."""
    heading = node.css_first("h1, h2, h3")
    if heading is not None and title and node_text(heading).casefold() == title.casefold():
        heading.decompose()


def meta_content(tree: LexborHTMLParser, *names: str) -> str:
    """Return the first non-empty content of the named meta elements (by name or property)."""
    for name in names:
        for node in tree.css(f'meta[property="{name}"], meta[name="{name}"]'):
            content = (node.attributes.get("content") or "").strip()
            if content:
                return content
    return ""


def page_url(tree: LexborHTMLParser) -> str:
    """Return the page's canonical address or og:url; "" for none."""
    address = attribute_of(tree, "link[rel=canonical]", "href")
    return web_url(address) or web_url(meta_content(tree, "og:url"))


def attribute_of(tree: LexborHTMLParser, selector: str, name: str) -> str:
    """Return an attribute of the first match of a selector; "" if there is none."""
    node = tree.css_first(selector)
    return ((node.attributes.get(name) or "") if node is not None else "").strip()


def text_of(tree: LexborHTMLParser | LexborNode, selector: str) -> str:
    """Return the text of the first match of a selector; "" if there is none."""
    node = tree.css_first(selector)
    return node_text(node) if node is not None else ""


def web_url(text: str) -> str:
    """Return the address if it is a valid absolute http or https URL, else ""."""
    text = text.strip()
    try:
        parts = urlsplit(text)
    except ValueError:  # "http://["
        return ""
    is_absolute = parts.scheme in ("http", "https") and parts.netloc and not re.search(r"\s", text)
    return text if is_absolute else ""


def page_date(tree: LexborHTMLParser, path: str) -> datetime | None:
    """Find the publication date in a page's metadata, `time` elements, comments or path."""
    published = dates.parse_date(
        meta_content(tree, "article:published_time", "datePublished", "parsely-pub-date")
    )
    published = published or _date_in_json(tree)
    for selector, attribute in (
        ("meta[itemprop=datePublished]", "content"),
        ("[itemprop=datePublished][datetime]", "datetime"),
        ("time.dt-published[datetime], time.published[datetime], time[pubdate]", "datetime"),
        ("article time[datetime], main time[datetime], header time[datetime]", "datetime"),
        ("time[datetime]", "datetime"),
    ):
        if published:
            return published
        published = dates.parse_date(attribute_of(tree, selector, attribute))
    return (
        published
        or dates.parse_date(meta_content(tree, "date", "dc.date", "DC.date"))
        or dates.date_in_comment((tree.raw_html or b"")[:_HEAD_BYTES].decode(errors="replace"))
        or dates.date_in_name(path)
    )


def _date_in_json(tree: LexborHTMLParser) -> datetime | None:
    for script in tree.css('script[type="application/ld+json"]'):
        try:
            waiting = [json.loads(script.text())]
        except (ValueError, RecursionError):
            continue
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                published = dates.parse_date(value.get("datePublished"))
                if published:
                    return published
                waiting.extend(value.values())
            elif isinstance(value, list):
                waiting.extend(value)
    return None


def page_titles(tree: LexborHTMLParser) -> tuple[str, str]:
    """Return the page's own title (og:title or its only h1), and its <title>."""
    own = meta_content(tree, "og:title")
    if not own:
        headings = tree.css("article h1, main h1") or tree.css("h1")
        own = node_text(headings[0]) if len(headings) == 1 else ""
    return " ".join(own.split()), text_of(tree, "head title")


def strip_site_name(title: str, site: str) -> str:
    """Remove the site name from the end or beginning of a title ("Hats | The Blog": "Hats")."""
    parts = _SUFFIX.split(title)
    if len(parts) < 2 or not site:
        return title
    if parts[-1].casefold() == site.casefold():
        return title[: title.rindex(parts[-1])].rstrip(" |–—·•«»:-")
    if parts[0].casefold() == site.casefold():
        return title[len(parts[0]) :].lstrip(" |–—·•«»:-")
    return title


def last_title_part(title: str) -> str:
    """Return the part after a title's last separator, often the site name, or ""."""
    parts = _SUFFIX.split(title)
    return parts[-1] if len(parts) > 1 else ""
