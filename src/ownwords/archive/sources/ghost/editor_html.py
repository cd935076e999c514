"""Convert the documents of Ghost's editors (Lexical, Mobiledoc) to HTML, if an export lacks it."""

import html
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from markdown_it import MarkdownIt

from ownwords.archive.files import readability

Node = Mapping[str, Any]

# Bits of a Lexical text's `format`. Underline has no meaning of its own and is left out.
_FORMATS = ((16, "code"), (1, "strong"), (2, "em"), (4, "s"))
_MOBILEDOC_MARKS = {"a", "b", "strong", "i", "em", "code", "s", "sub", "sup"}
_SILENT = {"paywall", "signup", "button", "horizontalrule", "hr", "divider"}


class UnreadableError(ValueError):
    """The stored document does not have the structure its editor writes."""


# Parts of rendered cards: buttons, players' times, and the descriptions of linked pages.
_CARD_CHROME = (
    ".kg-bookmark-container, .kg-button-card, .kg-signup-card, .kg-callout-emoji, .kg-audio-player,"
    " .kg-video-player-container, .kg-file-card-metadata, .kg-btn, .kg-header-card-button,"
    " .kg-product-card-button, .kg-product-card-rating, .kg-cta-button,"
    " .kg-cta-sponsor-label-wrapper"
)


def without_chrome(rendered: str) -> str:
    """Remove from rendered HTML what Ghost's cards hold besides the author's text."""
    if "kg-" not in rendered:
        return rendered
    body = readability.parse(rendered)
    return (body.inner_html or "") if readability.remove(body, _CARD_CHROME) else rendered


def from_lexical(document: Node) -> str:
    """Convert a Lexical document (parsed JSON) to HTML; raises UnreadableError."""
    try:
        return "\n".join(filter(None, map(_lexical_block, document["root"]["children"])))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UnreadableError from error


def from_mobiledoc(document: Node) -> str:
    """Convert a Mobiledoc document (parsed JSON, version 0.3) to HTML; raises UnreadableError."""
    try:
        return "\n".join(
            filter(
                None, (_mobiledoc_section(document, section) for section in document["sections"])
            )
        )
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise UnreadableError from error


def _lexical_block(node: Node) -> str:
    kind = node["type"].removeprefix("extended-")
    match kind:
        case "paragraph":
            return _wrapped("p", _inline(node))
        case "heading":
            return _wrapped(_heading_tag(node.get("tag")), _inline(node))
        case "quote" | "aside":
            return _wrapped("blockquote", _inline(node))
        case "list":
            tag = "ol" if node.get("listType") == "number" else "ul"
            return _wrapped(tag, "".join(map(_list_item, node.get("children", ()))))
        case "text" | "linebreak" | "link" | "autolink":
            return _wrapped("p", _lexical_inline(node))
    return _card(kind, node)


def _list_item(node: Node) -> str:
    """A list item; a nested list is a child of type "list"."""
    children = node.get("children", ())
    return _wrapped(
        "li",
        "".join(
            _lexical_block(child) if child["type"] == "list" else _lexical_inline(child)
            for child in children
        ),
    )


def _inline(node: Node) -> str:
    return "".join(map(_lexical_inline, node.get("children", ())))


def _lexical_inline(node: Node) -> str:
    kind = node["type"].removeprefix("extended-")
    if kind == "linebreak":
        return "<br>"
    if kind in ("link", "autolink"):
        return f'<a href="{html.escape(str(node.get("url") or ""))}">{_inline(node)}</a>'
    if kind == "list":
        return _lexical_block(node)
    if "text" not in node:
        return _inline(node)
    text = html.escape(str(node["text"]), quote=False)
    given = node.get("format") or 0
    for bit, tag in _FORMATS:
        if isinstance(given, int) and given & bit:
            text = f"<{tag}>{text}</{tag}>"
    return text


def _mobiledoc_section(document: Node, section: list[Any]) -> str:
    match section:
        case [1, tag, markers, *_]:
            tag = tag if tag in ("p", "blockquote", "aside", "pull-quote") else _heading_tag(tag)
            tag = "blockquote" if tag in ("aside", "pull-quote") else tag
            return _wrapped(tag, _markers(document, markers))
        case [3, tag, items, *_]:
            lines = (_wrapped("li", _markers(document, item)) for item in items)
            return _wrapped("ol" if tag == "ol" else "ul", "".join(lines))
        case [10, index, *_]:
            name, *payload = document["cards"][index]
            return _card(name.removeprefix("card-"), payload[0] if payload else {})
        case [2, *_]:  # an image, of which only the address is stored
            return ""
    raise UnreadableError


def _markers(document: Node, markers: Iterable[list[Any]]) -> str:
    """The HTML of text runs; each opens some tags and closes a number of the innermost open."""
    out: list[str] = []
    still_open: list[str] = []
    for kind, opened, closed, value in markers:
        for index in opened:
            tag, *attributes = document["markups"][index]
            tag = tag.lower()
            still_open.append(tag if tag in _MOBILEDOC_MARKS else "")
            if tag == "a":
                pairs = attributes[0] if attributes else []
                href = dict(zip(pairs[::2], pairs[1::2], strict=False)).get("href", "")
                out.append(f'<a href="{html.escape(str(href))}">')
            elif still_open[-1]:
                out.append(f"<{tag}>")
        if kind == 0:
            out.append(html.escape(str(value), quote=False))
        else:
            name = document["atoms"][value][0]
            out.append("<br>" if name == "soft-return" else "")
        for _ in range(closed):
            tag = still_open.pop()
            out.append(f"</{tag}>" if tag else "")
    return "".join(out)


def _card(kind: str, card: Node) -> str:
    if kind in _SILENT:
        return ""
    render = _CARDS.get(kind)
    return render(card) if render else _wrapped("p", _inline(card))


def _image(card: Node) -> str:
    source, alt = html.escape(_word(card, "src")), html.escape(_word(card, "alt"))
    return f'<figure><img src="{source}" alt="{alt}">{_caption(card)}</figure>'


def _gallery(card: Node) -> str:
    return "".join(map(_image, card.get("images") or ())) + _wrapped("figure", _caption(card))


def _code(card: Node) -> str:
    language = html.escape(_word(card, "language"))
    named = f' class="language-{language}"' if language else ""
    code = html.escape(_word(card, "code"), quote=False)
    return f"<pre><code{named}>{code}</code></pre>{_wrapped('figure', _caption(card))}"


def _markdown(card: Node) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(_word(card, "markdown")))


def _html(card: Node) -> str:
    return _word(card, "html")


def _embed(card: Node) -> str:
    return f"<figure>{_word(card, 'html')}{_caption(card)}</figure>"


def _callout(card: Node) -> str:
    return _wrapped("p", _word(card, "calloutText"))


def _bookmark(card: Node) -> str:
    # The title and description are those of the linked page.
    return _wrapped("figure", _caption(card))


def _call_to_action(card: Node) -> str:
    return _word(card, "textValue")


def _toggle(card: Node) -> str:
    return _wrapped("h4", _word(card, "heading")) + _word(card, "content")


def _header(card: Node) -> str:
    heading = _word(card, "heading") or _word(card, "header")
    subheading = _word(card, "subheading") or _word(card, "subheader")
    return _wrapped("h2", heading) + _wrapped("p", subheading)


def _product(card: Node) -> str:
    return _wrapped("h4", _word(card, "productTitle")) + _word(card, "productDescription")


def _file(card: Node) -> str:
    return _wrapped("p", _word(card, "fileTitle")) + _wrapped("p", _word(card, "fileCaption"))


_CARDS: dict[str, Callable[[Node], str]] = {
    "image": _image,
    "gallery": _gallery,
    "video": _embed,
    "audio": _embed,
    "embed": _embed,
    "code": _code,
    "codeblock": _code,
    "markdown": _markdown,
    "html": _html,
    "email": _html,
    "email-cta": _html,
    "bookmark": _bookmark,
    "call-to-action": _call_to_action,
    "callout": _callout,
    "toggle": _toggle,
    "header": _header,
    "product": _product,
    "file": _file,
}


def _caption(card: Node) -> str:
    return _wrapped("figcaption", _word(card, "caption"))


def _heading_tag(tag: object) -> str:
    return str(tag) if tag in ("h1", "h2", "h3", "h4", "h5", "h6") else "p"


def _wrapped(tag: str, inside: str) -> str:
    return f"<{tag}>{inside}</{tag}>" if inside else ""


def _word(card: Node, name: str) -> str:
    value = card.get(name)
    return value if isinstance(value, str) else ""
