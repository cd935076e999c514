"""Find the elements of a page that are not visible text, and limit the nesting of HTML."""

import re
from collections import Counter

from selectolax.lexbor import LexborNode

_ELEMENTS = {
    **dict.fromkeys(("script", "publii-script"), "script"),
    **dict.fromkeys(
        ("iframe", "object", "embed", "applet", "noembed", "noframes"), "embedded frame"
    ),
    **dict.fromkeys(("svg", "canvas"), "drawing"),
    **dict.fromkeys(("input", "select", "textarea", "button", "datalist", "option"), "form"),
    **dict.fromkeys(("output", "meter", "progress"), "form"),
    "style": "style",
    "noscript": "shown only without scripts",
    "template": "template",
    "rt": "reading aid",
    "rp": "reading aid",
    "rtc": "reading aid",
    "math": "formula",
    "video": "video",
    "audio": "audio",
    "nav": "navigation",
    "title": "page title",
    "publii-amp": "AMP-only part",
}
_UNSEEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)"
    r"|(?:font-size|opacity)\s*:\s*0*\.?0+(?:[a-z%]+|(?![\d.]))"
    # Positioned far off the page, clipped to nothing, or transparent.
    r"|(?:left|right|top|bottom|text-indent|margin(?:-left|-top)?)\s*:\s*"
    r"-(?:\d{4,}(?:\.\d+)?px|\d{3,}(?:\.\d+)?(?:r?em|v[wh]|%))"
    r"|clip(?:-path)?\s*:\s*(?:rect\(\s*[01](?:px)?[\s,)]|inset\(\s*(?:50|100)%)"
    r"|(?<![\w-])color\s*:\s*transparent",
    re.IGNORECASE,
)
_CONTENTS = re.compile(
    r"(?:^|\s)(?:post__toc|toc|toc_container|table-of-contents|(?:ez-toc|lwptoc)[\w-]*)(?:\s|$)"
)
_CONTENTS_ELEMENTS = frozenset({"div", "nav", "ul", "ol", "aside", "section", "details", "p"})
_FOOTNOTE_MARK = re.compile(
    r"(?:^|\s)(?:footnote-(?:ref|backref|anchor)|footnotes?__backlink|fn)(?:\s|$)"
)
_TO_NOTE = re.compile(
    r"#_?(?:fn|ftn|edn|footnote|endnote|cite|note-|reference-|easy-footnote|sdfootnote)",
    re.IGNORECASE,
)
_MARK = re.compile(r"[\W_]*(?:\d{1,3}|[a-z]|[ivx]{1,4})?[\W_]*", re.IGNORECASE)
_LONGEST_MARK = 8
_TO_ITSELF = frozenset("¶#§🔗⚓")
_BACK = re.compile("[↩↑⤴⬆⏎↵⮐\ufe0e\ufe0f\\s]+")
_PLAYER = re.compile(r"(?:^|\s)(?:kg-(?:audio|video)-player|kg-file-card-metadata)(?:\s|$)")
_LINE_NUMBERS = re.compile(r"(?:^|\s)(?:linenos?|lineno|gutter|\w+-gutter|blob-num)(?:\s|$)")
_LONGEST_FORM = 500


def drop_reason(node: LexborNode) -> str | None:
    """The reason to drop an element and all within it as not the author's text, or None."""
    tag = node.tag or ""
    if reason := _ELEMENTS.get(tag):
        return reason
    # Some pages wrap everything in one form; a form to fill in is short.
    if tag == "form" and len(node.text(deep=True, strip=True)) < _LONGEST_FORM:
        return "form"
    attributes = node.attributes
    if not attributes:
        return None
    if tag == "a" and (attributes.get("href") or "")[:1] == "#" and (reason := _mark(node)):
        return reason
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return "hidden element"
    if (style := attributes.get("style")) and _UNSEEN_STYLE.search(style):
        return "hidden element"
    named = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    return None if named == " " else _by_name(tag, named)


def _by_name(tag: str, named: str) -> str | None:
    if tag in _CONTENTS_ELEMENTS and _CONTENTS.search(named):
        return "table of contents"
    if tag in ("a", "sup") and _FOOTNOTE_MARK.search(named):
        return "footnote mark"
    if tag in ("td", "span", "div", "pre") and _LINE_NUMBERS.search(named):
        return "line numbers"
    if tag == "div" and _PLAYER.search(named):
        return "player"
    if tag == "label" and named.startswith("hide-text "):
        return "hidden element"
    return None


def _mark(link: LexborNode) -> str | None:
    """The reason to drop a link to an anchor: a note mark, a link back from one, a heading mark."""
    text = link.text(deep=True).strip()
    if not text or len(text) > _LONGEST_MARK:
        return None
    if text in _TO_ITSELF:
        return "heading mark"
    if _BACK.fullmatch(text):
        return "footnote mark"
    href, parent = link.attributes.get("href") or "", link.parent
    raised = (parent is not None and parent.tag == "sup") or link.css_first("sup") is not None
    to_note = _TO_NOTE.match(href) or (raised and "#" not in href[1:])
    return "footnote mark" if to_note and _MARK.fullmatch(text) else None


_MOST_OPEN = 200
_MOST_FORMATTING = 30
_MOST_ATTRIBUTES = 1000
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)|<!--", re.ASCII)
_VERY_LONG_TAG = re.compile(r"<[a-zA-Z][^<>]{10000,}>?")
# Void elements, and elements the parser closes by itself.
_CLOSED = frozenset(
    {"area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "param"}
    | {"source", "track", "wbr", "p", "li", "dt", "dd", "option"}
    | {"tr", "td", "th", "thead", "tbody", "tfoot", "colgroup"}
)
_FORMATTING = frozenset(
    {"b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"}
)
_RAW = frozenset({"script", "style", "textarea", "title", "iframe", "noembed", "noframes", "xmp"})


def limit_nesting(html: str) -> str:
    """Limit the depth and the attributes of the elements in HTML so that parsing stays fast.

    Parsing time grows with the square of the depth: 100,000 nested elements would take half a
    minute. Removes tags beyond a depth that no person writes, never text.
    """
    if len(html) > 10_000:
        html = _VERY_LONG_TAG.sub(_without_attributes, html)
    return _without_depths(html) if html.count("<") > _MOST_OPEN else html


def find_closing_tag(html: str, name: str, start: int, never_closed: set[str]) -> int:
    """The index of the closing tag of a raw-text element, or of a comment's end (`name` is "").

    Returns `start` if it is never closed, and adds it to `never_closed` to avoid a second search.
    """
    if name in never_closed:
        return start
    closer = re.compile(f"</{re.escape(name)}" if name else "-->", re.ASCII | re.IGNORECASE)
    if match := closer.search(html, start):
        return match.start()
    never_closed.add(name)
    return start


def _without_attributes(tag: re.Match[str]) -> str:
    words = tag[0].split()
    return tag[0] if len(words) < _MOST_ATTRIBUTES else words[0] + ">"


def _without_depths(html: str) -> str:
    pieces: list[str] = []
    opened: list[str] = []
    open_count: Counter[str] = Counter()
    never_closed: set[str] = set()
    formatting = position = start = 0
    while tag := _TAG.search(html, start):
        start = tag.end()
        name = (tag[2] or "").lower()
        if not name or (name in _RAW and not tag[1]):
            start = find_closing_tag(html, name, start, never_closed)
        elif tag[1]:
            formatting -= name in _FORMATTING and formatting > 0
            closed = not open_count[name]
            while not closed:
                last = opened.pop()
                open_count[last] -= 1
                closed = last == name
        elif len(opened) >= _MOST_OPEN or (name in _FORMATTING and formatting >= _MOST_FORMATTING):
            pieces.append(html[position : tag.start()])
            start = position = html.find(">", start) + 1 or len(html)
        elif name not in _CLOSED:
            opened.append(name)
            open_count[name] += 1
            formatting += name in _FORMATTING
    pieces.append(html[position:])
    return "".join(pieces)


# ---- classify HTML elements by their class names, which say more than tags

_LANGUAGE = re.compile(r"(?:^|\s)(?:lang(?:uage)?-|brush:\s*)\{?\.?([\w+#.-]{1,40})")
_VERSE = re.compile(r"(?:^|\s)wp-block-verse(?:\s|$)")
_VERSE_AROUND = "preformatted-block"  # Substack's block for poems
_CAPTION = re.compile(r"(?:^|\s)tr-caption(?:\s|$)")  # Blogger's caption cell beside a picture
_CARD = re.compile(
    r"(?:^|\s)(?:kg-bookmark-content|graf--mixtapeEmbed|embedded-post|digest-post-embed)(?:\s|$)"
)


def _class(node: LexborNode | None) -> str:
    return (node.attributes.get("class") or "") if node is not None else ""


def is_card(node: LexborNode) -> bool:
    """Whether an element is a link card: the title and description of another page."""
    return _CARD.search(_class(node)) is not None


def is_caption(cell: LexborNode) -> bool:
    """Whether a table cell is the caption of the picture in another cell."""
    return _CAPTION.search(_class(cell)) is not None


def is_verse(pre: LexborNode) -> bool:
    """Whether a preformatted block is a poem rather than code."""
    return bool(_VERSE.search(_class(pre))) or _class(pre.parent) == _VERSE_AROUND


def is_layout_table(table: LexborNode) -> bool:
    """Whether a table is only for layout: one cell, a captioned picture, or nested tables."""
    if table.attributes.get("role") == "presentation":
        return True
    cells = [cell for cell in table.css("td, th") if not drop_reason(cell)]
    return len(cells) < 2 or any(map(is_caption, cells)) or len(table.css("table")) > 1


def code_language(pre: LexborNode) -> str:
    """The language named by a code block, its inner `code`, or the `div`s around it; "" if none."""
    code, around = pre.css_first("code"), pre.parent
    for node in (pre, code, around, around.parent if around else None):
        if node is not None and (match := _LANGUAGE.search(node.attributes.get("class") or "")):
            return "" if match[1] in ("none", "plaintext") else match[1]
    return ""
