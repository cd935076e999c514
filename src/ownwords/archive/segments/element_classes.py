"""Classify HTML elements by their class names, which say more than tags."""

import re

from selectolax.lexbor import LexborNode

from ownwords.archive.segments.sanitize import drop_reason

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
