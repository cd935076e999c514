"""What an element is by the names its makers gave it: classes say more than tags."""

import re

from selectolax.lexbor import LexborNode

from ownwords.archive.segments.sanitize import drop_reason

_LANGUAGE = re.compile(r"(?:^|\s)(?:lang(?:uage)?-|brush:\s*)\{?\.?([\w+#.-]{1,40})")
_VERSE = re.compile(r"(?:^|\s)wp-block-verse(?:\s|$)")
_VERSE_AROUND = "preformatted-block"  # what Substack offers for poems
_CAPTION = re.compile(r"(?:^|\s)tr-caption(?:\s|$)")  # Blogger's, in a table with the picture
_CARD = re.compile(
    r"(?:^|\s)(?:kg-bookmark-content|graf--mixtapeEmbed|embedded-post|digest-post-embed)(?:\s|$)"
)


def _class(node: LexborNode | None) -> str:
    return (node.attributes.get("class") or "") if node is not None else ""


def is_card(node: LexborNode) -> bool:
    """Whether it holds what another page says of itself, drawn as a card that links there."""
    return _CARD.search(_class(node)) is not None


def is_caption(cell: LexborNode) -> bool:
    """Whether a cell of a table is the caption of the picture in another."""
    return _CAPTION.search(_class(cell)) is not None


def is_verse(pre: LexborNode) -> bool:
    """Whether a preformatted block holds a poem, not code."""
    return bool(_VERSE.search(_class(pre))) or _class(pre.parent) == _VERSE_AROUND


def is_layout_table(table: LexborNode) -> bool:
    """Whether a table only places things: one cell, a captioned picture, or tables within."""
    if table.attributes.get("role") == "presentation":
        return True
    cells = [cell for cell in table.css("td, th") if not drop_reason(cell)]
    return len(cells) < 2 or any(map(is_caption, cells)) or len(table.css("table")) > 1


def code_language(pre: LexborNode) -> str:
    """The language that a block of code, its `code` within, or the `div`s around it name."""
    code, around = pre.css_first("code"), pre.parent
    for node in (pre, code, around, around.parent if around else None):
        if node is not None and (match := _LANGUAGE.search(node.attributes.get("class") or "")):
            return "" if match[1] in ("none", "plaintext") else match[1]
    return ""
