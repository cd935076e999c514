"""Convert bodies of Publii's block editor, a JSON list of typed blocks, to HTML."""

import json
from collections import Counter
from collections.abc import Callable
from html import escape
from typing import Any

from ownwords.archive.text_repair import repair_line
from ownwords.core.errors import SourceError


def blocks_to_html(text: str, dropped: Counter[str]) -> list[str]:
    """Convert each block of a body to HTML on its own, so that none affects the next.

    A block of an unknown type, or whose content does not fit its type, is skipped and counted.
    Raises SourceError if the body is not a JSON list.
    """
    try:
        blocks = json.loads(text)
    except (ValueError, RecursionError):
        raise SourceError("the text is not valid block-editor JSON") from None
    if not isinstance(blocks, list):
        raise SourceError("the block-editor text is not a list of blocks")
    return [html for block in blocks if (html := _block_html(block, dropped))]


def _block_html(block: object, dropped: Counter[str]) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        dropped["broken block"] += 1
        return ""
    name = repair_line(kind)[:40]
    if kind in _BLOCKS_WITHOUT_TEXT:
        if reason := _BLOCKS_WITHOUT_TEXT[kind]:
            dropped[reason] += 1
        return ""
    if kind not in _BLOCKS:
        dropped[f"unknown block {name}"] += 1
        return ""
    config = block.get("config")
    html = _BLOCKS[kind](block.get("content"), config if isinstance(config, dict) else {})
    if html is None:
        dropped[f"broken block {name}"] += 1
    return html or ""


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _linked(config: dict[str, Any], html: str) -> str:
    link = config.get("link")
    url = link.get("url") if isinstance(link, dict) else None
    return f'<a href="{escape(url)}">{html}</a>' if url and isinstance(url, str) else html


def _paragraph(content: object, _: dict[str, Any]) -> str | None:
    return f"<p>{content}</p>" if isinstance(content, str) else None


def _header(content: object, config: dict[str, Any]) -> str | None:
    level = config.get("headingLevel")
    try:
        level = min(6, max(1, int(str(level))))
    except ValueError:
        level = 2
    return f"<h{level}>{_linked(config, content)}</h{level}>" if isinstance(content, str) else None


def _list(content: object, config: dict[str, Any]) -> str | None:
    tag = "ol" if config.get("listType") == "ol" else "ul"
    return f"<{tag}>{content}</{tag}>" if isinstance(content, str) else None


def _quote(content: object, _: dict[str, Any]) -> str | None:
    if not isinstance(content, dict) or not isinstance(content.get("text"), str):
        return None
    author = f"<footer>{_string(content.get('author'))}</footer>"
    return f"<blockquote><p>{content['text']}</p>{author}</blockquote>"


def _code_block(content: object, config: dict[str, Any]) -> str | None:
    language = escape(_string(config.get("language")))
    if not isinstance(content, str):
        return None
    return f'<pre class="language-{language}">\n{escape(content, quote=False)}</pre>'


def _html(content: object, _: dict[str, Any]) -> str | None:
    return content if isinstance(content, str) else None


def _image(content: object, config: dict[str, Any]) -> str | None:
    if not isinstance(content, dict):
        return None
    return f"{_linked(config, '')}<figcaption>{_string(content.get('caption'))}</figcaption>"


def _gallery(content: object, _: dict[str, Any]) -> str | None:
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list):
        return None
    return "".join(_image(image, {}) or "" for image in images)


_BLOCKS: dict[str, Callable[[object, dict[str, Any]], str | None]] = {
    "publii-paragraph": _paragraph,
    "publii-header": _header,
    "publii-list": _list,
    "publii-quote": _quote,
    "publii-code": _code_block,
    "publii-html": _html,
    "publii-image": _image,
    "publii-gallery": _gallery,
}
_BLOCKS_WITHOUT_TEXT = {
    "publii-separator": "",
    "publii-readmore": "",
    "publii-toc": "table of contents",
    "publii-embed": "embedded frame",
}
