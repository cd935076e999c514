"""Handle the parts of markup that are not text: dropped elements, shortcodes, template tags.

Also converts Markdown and Publii's blocks to HTML.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ownwords.archive.text_repair import as_object, parse_json, repair_line, text_value
from ownwords.core.config import toml_beside
from ownwords.core.errors import SourceError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_DROPPED = toml_beside(__file__, "dropped_elements.toml")
_ELEMENTS = {tag: reason for reason, tags in _DROPPED.items() for tag in tags.split()}
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
_NOTE_MARK = re.compile(r"[\W_]*(?:\d{1,3}|[a-z]|[ivx]{1,4})?[\W_]*", re.IGNORECASE)
_LONGEST_MARK = 8
_TO_ITSELF = frozenset("¶#§🔗⚓")
_BACK = re.compile("[↩↑⤴⬆⏎↵⮐\ufe0e\ufe0f\\s]+")
_PLAYER = re.compile(r"(?:^|\s)(?:kg-(?:audio|video)-player|kg-file-card-metadata)(?:\s|$)")
_LINE_NUMBERS = re.compile(r"(?:^|\s)(?:linenos?|lineno|gutter|\w+-gutter|blob-num)(?:\s|$)")
_LONGEST_FORM = 500
# For most tags a parser searches all open elements, so its time would grow with the depth.
_MAX_DEPTH = 256
_MAX_FORMATS = 32  # open formatting elements (<b>, <i>); a parser reopens them in every paragraph
_NESTING = {kind: tags.split() for kind, tags in toml_beside(__file__, "nesting.toml").items()}
_STRENGTH = dict.fromkeys(_NESTING["blocks"], 1) | {"table": 2}
_TAG = re.compile(r"<(/?)([a-z][^\s/>]*)[^>]*>?", re.IGNORECASE)


def parse_html(html: str, **options: Any) -> LexborHTMLParser:  # noqa: ANN401 - as in selectolax
    """Parse HTML; replace elements nested deeper than in any real text by their contents."""
    if html.count("<") <= _MAX_DEPTH:
        return LexborHTMLParser(html, **options)
    elements: list[str] = []
    formats: list[str] = []
    authorship: list[str] = []  # counted separately, so that other open elements do not hide them
    removed: Counter[str] = Counter()

    def shallow(tag: re.Match[str]) -> str:
        name = tag[2].lower()
        if name in _NESTING["flat"]:
            return tag[0]
        opened, most = elements, _MAX_DEPTH
        if name in _NESTING["formats"]:
            opened, most = formats, _MAX_FORMATS
        elif name in _NESTING["authorship"]:
            opened = authorship
        if not tag[1]:
            if len(opened) >= most:
                removed[name] += 1
                return ""
            opened.append(name)
        elif removed[name]:
            removed[name] -= 1
            return ""
        elif name in opened:
            at = len(opened) - 1 - opened[::-1].index(name)
            strength = _STRENGTH.get(name, 0)
            if strength == 2 or all(_STRENGTH.get(x, 0) <= strength for x in opened[at:]):
                del opened[at : None if strength else at + 1]
        return tag[0]

    return LexborHTMLParser(_TAG.sub(shallow, html), **options)


def drop_reason(node: LexborNode) -> str | None:
    """Return the reason to drop an element and its contents, or None if it is the author's."""
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
    """Return the reason to drop a link to an anchor: a note mark, a link back, a heading mark."""
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
    return "footnote mark" if to_note and _NOTE_MARK.fullmatch(text) else None


def find_closing_tag(html: str, name: str, start: int, never_closed: set[str]) -> int:
    """Find the closing tag of a raw-text element, or a comment's end (`name` is "").

    Returns `start` if there is none, and adds the name to `never_closed` to avoid a second search.
    """
    if name in never_closed:
        return start
    closer = re.compile(f"</{re.escape(name)}" if name else "-->", re.ASCII | re.IGNORECASE)
    if match := closer.search(html, start):
        return match.start()
    never_closed.add(name)
    return start


# ---- classify HTML elements by their class names, which say more than tags

_LANGUAGE = re.compile(r"(?:^|\s)(?:lang(?:uage)?-|brush:\s*)\{?\.?([\w+#.-]{1,40})")
_VERSE = re.compile(r"(?:^|\s)wp-block-verse(?:\s|$)")
_VERSE_AROUND = "preformatted-block"  # Substack's block for poems
# Blogger's caption cell beside a picture.
_CAPTION_CLASS = re.compile(r"(?:^|\s)tr-caption(?:\s|$)")
_CARD = re.compile(
    r"(?:^|\s)(?:kg-bookmark-content|graf--mixtapeEmbed|embedded-post|digest-post-embed)(?:\s|$)"
)


def _class(node: LexborNode | None) -> str:
    return (node.attributes.get("class") or "") if node is not None else ""


def is_card(node: LexborNode) -> bool:
    """Return whether an element is a link card: title and description of another page."""
    return _CARD.search(_class(node)) is not None


def is_caption(cell: LexborNode) -> bool:
    """Return whether a table cell is the caption of the picture in another cell."""
    return _CAPTION_CLASS.search(_class(cell)) is not None


def is_verse(pre: LexborNode) -> bool:
    """Return whether a preformatted block is a poem rather than code."""
    return bool(_VERSE.search(_class(pre))) or _class(pre.parent) == _VERSE_AROUND


def is_layout_table(table: LexborNode) -> bool:
    """Return whether a table is only layout: one cell, a captioned picture, or nested tables."""
    if table.attributes.get("role") == "presentation":
        return True
    cells = 0
    for node in table.traverse():  # stops at an inner table, so that nesting costs no extra time
        if node.tag == "table" and node.mem_id != table.mem_id:
            return True
        if node.tag in ("td", "th") and not drop_reason(node):
            if is_caption(node):
                return True
            cells += 1
    return cells < 2


def code_language(pre: LexborNode) -> str:
    """Return the language of a code block, from it, its `code` or the `div`s around it; or ""."""
    code, around = pre.css_first("code"), pre.parent
    for node in (pre, code, around, around.parent if around else None):
        if node is not None and (match := _LANGUAGE.search(node.attributes.get("class") or "")):
            return "" if match[1] in ("none", "plaintext") else match[1]
    return ""


# ---- shortcodes

Drops = Counter[str]

SHORTCODE = "plugin shortcode"
TEMPLATE_TAG = "template tag"

# Shortcodes known by name alone, those that enclose an address or id, and those that hold code.
_KNOWN = re.compile(
    r"gallery|playlist|contact-form(-7)?|wpforms|ninja_form|gravityform|archives|mc4wp_form|(ez-)?toc"
    r"|instagram|slideshare|googlemaps|polldaddy|rev_slider|vc_(row|column|column_text)"
)
_ADDRESS = re.compile(r"embed|audio|video|youtube|vimeo|tweet|gist|soundcloud|spotify")
_CODE = re.compile(r"(source)?code|php|python|javascript|js|css|html|xml|sql|bash|ruby")
_CAPTION = re.compile(r"(wp_)?caption")
_QUOTE = re.compile(r"(block|pull)?quote")

_SHORTCODE = re.compile(
    r"(?<!\[)\[(/?)([A-Za-z][\w-]{0,40})((?:[\s=][^\[\]<>]{0,2000})?)\](?![(:]|\[\d)"
)
_ATTRIBUTE = re.compile(r"""((?:(?<![\w-])[\w-]+)?)=(?:"([^"]*)"|'([^']*)'|&quot;(.*?)&quot;)""")
_LEFT_ALONE = re.compile(r"<(pre|code|script|style|textarea|xmp)\b|<!--", re.ASCII | re.IGNORECASE)
_WRITTEN_AS_HTML = re.compile(r"&(?:lt|gt|amp|quot|#\d{1,6});|<(?:br|p)\b", re.IGNORECASE)


def expand_shortcodes(html: str, dropped: Drops) -> str:
    """Remove and count the WordPress shortcodes in HTML; captions, quotes and code in them stay.

    A word in brackets is a shortcode only if it is known by name, has a quoted attribute, or is
    closed by `[/name]` later. `pre`, `code`, scripts and comments are left unchanged.
    """
    if "[" not in html:
        return html
    tags = _shortcodes(html)
    closers: dict[str, re.Match[str]] = {}
    closer_of: dict[re.Match[str], re.Match[str] | None] = {}
    for tag in reversed(tags):
        closer_of[tag] = closers.get(tag[2])
        if tag[1]:
            closers[tag[2]] = tag
    pieces: list[str] = []
    opened: set[str] = set()
    position = 0
    for tag in tags:
        if tag.start() < position:
            continue
        if not tag[1]:
            put, end = _opened(html, tag, closer_of[tag])
        elif tag[2] in opened:
            is_caption, is_quote = _CAPTION.fullmatch(tag[2]), _QUOTE.fullmatch(tag[2])
            put = "</figcaption>" if is_caption else "</blockquote>" if is_quote else ""
            end = tag.end()
        else:
            continue
        if end:
            opened.add(tag[2])
            dropped[SHORTCODE] += not put and not tag[1]
            pieces += html[position : tag.start()], put
            position = end
    pieces.append(html[position:])
    return "".join(pieces)


def _shortcodes(html: str) -> list[re.Match[str]]:
    """Find possible shortcodes outside of closed code, scripts and comments."""
    tags: list[re.Match[str]] = []
    never_closed: set[str] = set()
    position = start = 0
    while match := _LEFT_ALONE.search(html, start):
        start = find_closing_tag(html, (match[1] or "").lower(), match.end(), never_closed)
        if start > match.end():
            tags += _SHORTCODE.finditer(html, position, match.start())
            position = start
    tags += _SHORTCODE.finditer(html, position)
    return tags


def _opened(html: str, tag: re.Match[str], closer: re.Match[str] | None) -> tuple[str, int]:
    """Return the replacement of a shortcode and the index after it; 0 if it is not one."""
    name = tag[2]
    attributes = {m[1]: m[2] or m[3] or m[4] or "" for m in _ATTRIBUTE.finditer(tag[3])}
    if closer and _CODE.fullmatch(name):
        language = attributes.get("language") or attributes.get("lang") or attributes.get("", "")
        if not language and not name.endswith("code"):
            language = name
        return code_html(html[tag.end() : closer.start()], language), closer.end()
    if closer and _ADDRESS.fullmatch(name):
        return "", closer.end()
    if closer and _CAPTION.fullmatch(name):
        return f"<figcaption>{attributes.get('caption', '')}", tag.end()
    if closer and _QUOTE.fullmatch(name):
        return "<blockquote>", tag.end()
    is_address = _ADDRESS.fullmatch(name) and "://" in tag[3]
    is_shortcode = closer or attributes or is_address or _KNOWN.fullmatch(name)
    return "", tag.end() if is_shortcode else 0


def code_html(code: str, language: str) -> str:
    """Return a code block as HTML; the code is escaped unless it already contains HTML."""
    if not _WRITTEN_AS_HTML.search(code):
        code = escape(code, quote=False)
    return f'<pre class="language-{escape(language)}">\n{code.strip(chr(10))}</pre>'


# ---- Markdown

_MARK = re.compile(
    # Code: an indented block, a fence, backquotes, HTML.
    r"(?P<indented>(?:\A|(?<=\n\n))(?:(?: {4}|\t)(?![ \t]*(?:`{3}|~{3}|[-*+] )).*(?:\n|\Z))+)"
    r"|(?P<fence>^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
    r"(?P<sign>`{3,}(?=[^`\n]*$)|~{3,})[^\n]*\n?)"
    r"|(?P<ticks>`+)"
    r"|(?P<html><(?:pre|code|script|style)\b|<!--)"
    r"|(?P<liquid>\{%-?\s*(?P<tag>\w++)(?P<words>[^%{}]{0,500})-?%\})"
    r"|(?P<hugo>\{\{[<%]\s*(?P<name>(?:/\s*)?[\w./-]++)(?P<arguments>[^{}]{0,1000})[>%]\}\})"
    # Not an empty "{{ }}", nor an object literal: {{ color: 'red' }}
    r"|(?P<output>\{\{(?![<%]?/\*|\s*[\"']?\w+[\"']?\s*:)(?=[^{}]*\w)[^{}]{0,500}\}\})"
    # Not two amounts of money, "$$5 and $$6".
    r"|(?P<formula>\$\$(?:[^$`\n]|\$(?!\$)|\n(?![ \t]*\n)){1,3000}\$\$(?!\d))"
    r"|(?P<comment>(?<![\w%])%%(?!%))",
    re.MULTILINE | re.IGNORECASE,
)
# The beginning of a list item, or of a paragraph outside of lists.
_BEGINS = re.compile(r"^[ \t]*([-*+]|\d{1,9}[.)])[ \t]|(?<=\n\n)\S", re.MULTILINE)
_FIGURE_CAPTION = re.compile(r"""\bcaption=(?:"([^"]*)"|'([^']*)')""")
_CODE_TAGS = frozenset({"highlight", "codeblock", "code", "mermaid"})
_QUOTE_TAGS = frozenset({"quote", "blockquote", "pullquote"})
_SIGNS = re.compile(r"[\\`*_{}\[\]<>()#+.!|~$=^:-]")
_PUBLII_AND_ATTRIBUTES = [
    (re.compile(r"^[ \t]*---READMORE---[ \t]*$", re.MULTILINE), "\n"),
    # Publii writes an image's size into its address: ![alt](a.png =640x480 "caption")
    (re.compile(r"(\]\([^\s()]{1,2000})[ \t]+=\d{0,5}%?x?\d{0,5}%?(?=[ \t)])"), r"\1"),
    # "~" starts a definition in Pandoc; authors write "~ Ann" as a signature.
    (re.compile(r"^( {0,3})~(?=[ \t])", re.MULTILINE), r"\1\\~"),
    # Kramdown's and Hugo's attributes: {:toc}, {: .wide}, "# Heading {#anchor}"
    (re.compile(r"^[*-] .*\n\{:toc\}[ \t]*$", re.MULTILINE), ""),
    (re.compile(r"\{:\s*(?:[.#]|toc\b|[\w-]+=)[^{}\n]{0,200}\}"), ""),
    (re.compile(r"^(#{1,6} [^\n{}]*)\{[#.][^{}\n]{1,200}\}[ \t]*$", re.MULTILINE), r"\1"),
    (
        re.compile(r"^([^\n{}]*\S)[ \t]*\{#[\w-]+\}[ \t]*(?=\n(?:=+|-+)[ \t]*$)", re.MULTILINE),
        r"\1",
    ),
    (re.compile(r"(?<![\w=])==(?=[^\s=])([^=\n]{1,500})(?<!\s)==(?![\w=])"), r"\1"),
]


def markdown_to_html(text: str, dropped: Drops) -> str:
    """Convert Markdown to HTML: CommonMark, tables, strikethrough, footnotes, raw HTML.

    Removes and counts template tags, Hugo's shortcodes and `%%comments%%` outside code; the code
    in `highlight` tags and figure captions stay. Quotes and addresses are left unchanged.
    """
    return str(_renderer().render(_TemplateStripper(text, dropped).stripped()))


def markdown_parser() -> "MarkdownIt":
    """Return a parser for CommonMark with tables, strikethrough, footnotes, definition lists."""
    # Imported here because it takes half of the start-up time, and many archives never need it.
    from markdown_it import MarkdownIt  # noqa: PLC0415
    from mdit_py_plugins.deflist import deflist_plugin  # noqa: PLC0415
    from mdit_py_plugins.footnote import footnote_plugin  # noqa: PLC0415

    class Markdown(MarkdownIt):
        """MarkdownIt without link normalisation: addresses are recorded, never followed."""

        def normalizeLink(self, url: str) -> str:  # noqa: N802
            return url

        def validateLink(self, url: str) -> bool:  # noqa: N802
            return True

    parser = Markdown("commonmark", {"html": True, "maxNesting": 100})
    parser.enable(["table", "strikethrough"]).use(footnote_plugin).use(deflist_plugin)
    return parser


_renderer = cache(markdown_parser)


class _TemplateStripper:
    """Removes template tags in one pass over the Markdown that skips code."""

    def __init__(self, text: str, dropped: Drops) -> None:
        self.text, self.dropped = text, dropped
        self.missing: set[str] = set()  # closing patterns known to be absent
        # Width in columns of the last list marker; index up to which the text was scanned.
        self.item, self.looked_at = 0, 0

    def stripped(self) -> str:
        pieces: list[str] = []
        position = 0
        while mark := _MARK.search(self.text, position):
            pieces.append(_plain(self.text[position : mark.start()]))
            position, put = self._read(mark)
            pieces.append(self.text[mark.start() : position] if put is None else put)
        pieces.append(_plain(self.text[position:]))
        return "".join(pieces)

    def _closer(self, pattern: str, start: int) -> re.Match[str] | None:
        if pattern in self.missing:
            return None
        match = re.compile(pattern, re.MULTILINE | re.IGNORECASE).search(self.text, start)
        if match is None:
            self.missing.add(pattern)
        return match

    def _read(self, mark: re.Match[str]) -> tuple[int, str | None]:
        """Return the index after a mark's construct, and its replacement (None: unchanged)."""
        if mark["indented"]:
            # Within a list item an indented block is a paragraph unless it is indented further.
            indent = mark[0][: len(mark[0]) - len(mark[0].lstrip(" \t"))]
            item = self._item_before(mark.start())
            is_code = not item or len(indent.expandtabs(4)) >= item + 4
            return mark.end() if is_code else mark.start() + len(indent), None
        if mark["comment"]:
            return self._comment(mark)
        if mark["formula"]:
            # Escape the Markdown characters: in a formula they are not markup.
            inside = _SIGNS.sub(lambda sign: chr(92) + sign[0], mark[0][2:-2])
            return mark.end(), f"$${inside}$$"
        if not (mark["fence"] or mark["ticks"] or mark["html"]):
            return self._tag(mark)
        if sign := mark["sign"]:
            closer = self._closer(rf"^[ \t>]*{sign[0]}{{{len(sign)},}}[ \t]*$", mark.end())
            return (closer.end() if closer else len(self.text)), None
        pattern = rf"(?<!`){mark[0]}(?!`)" if mark["ticks"] else f"</{mark[0][1:]}"
        closer = self._closer("-->" if mark[0] == "<!--" else pattern, mark.end())
        return (closer or mark).end(), None

    def _item_before(self, end: int) -> int:
        """Return the width of the marker of the list item around `end`, or 0 outside of lists."""
        for begin in _BEGINS.finditer(self.text, self.looked_at, end):
            self.item = len(begin[0].expandtabs(4)) if begin[1] else 0
        self.looked_at = end
        return self.item

    def _comment(self, mark: re.Match[str]) -> tuple[int, str | None]:
        closer = self._closer("%%", mark.end())
        inside = self.text[mark.end() : closer.start()] if closer else ""
        if (
            closer is None
            or self.text[closer.end() : closer.end() + 1].isalnum()  # "%%d and %%s"
            or ("\n\n" in inside and not inside.startswith("\n"))
        ):
            return mark.end(), None
        self.dropped["comment in the markup"] += 1
        return closer.end(), ""

    def _tag(self, mark: re.Match[str]) -> tuple[int, str | None]:
        name = (mark["tag"] or mark["name"] or "").lower()
        words = (mark["words"] or mark["arguments"] or "").split()
        reason = SHORTCODE if mark["hugo"] else TEMPLATE_TAG
        if name in (*_CODE_TAGS, *_QUOTE_TAGS, "raw", "comment") and (
            closer := self._closer(
                rf"\{{%-?\s*end{name}\s*-?%\}}|\{{\{{[<%]\s*/\s*{name}\s*[>%]\}}\}}", mark.end()
            )
        ):
            inside = self.text[mark.end() : closer.start()]
            if name == "raw":
                return closer.end(), inside
            if name in _CODE_TAGS:
                language = next((w[5:] for w in words if w.startswith("lang:")), "")
                if name == "highlight" and words:
                    language = words[0]
                return closer.end(), f"\n\n{code_html(inside, language)}\n\n"
            if name == "comment":
                self.dropped["comment in the markup"] += 1
                return closer.end(), ""
            self.dropped[reason] += 1
            inside = _TemplateStripper(inside, self.dropped).stripped()
            return closer.end(), f"\n\n<blockquote>\n\n{inside}\n\n</blockquote>\n\n"
        if name == "figure" and (caption := _FIGURE_CAPTION.search(mark["arguments"] or "")):
            return mark.end(), f"\n\n<figcaption>{caption[1] or caption[2]}</figcaption>\n\n"
        self.dropped[reason] += 1
        return mark.end(), ""


def _plain(stretch: str) -> str:
    if any(sign in stretch for sign in ("---READMORE---", "{", " =", "==", "~ ")):
        for pattern, replacement in _PUBLII_AND_ATTRIBUTES:
            stretch = pattern.sub(replacement, stretch)
    return stretch


# ---- Publii's block editor: a JSON list of typed blocks


def blocks_to_html(text: str, dropped: Drops) -> list[str]:
    """Convert each block of a body to HTML on its own, so that none affects the next.

    A block of an unknown type or with unsuitable content is skipped and counted. Raises SourceError
    if the body is not a JSON list.
    """
    blocks = parse_json(text)
    if not isinstance(blocks, list):
        raise SourceError("its list of blocks is damaged")
    return [html for block in blocks if (html := _block_html(block, dropped))]


_BLOCKS_WITHOUT_OWN_TEXT = {
    "publii-toc": "table of contents",
    "publii-embed": "embedded frame",
}


def _block_html(block: object, dropped: Drops) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        dropped["unreadable block"] += 1
        return ""
    config = as_object(block.get("config"))
    match kind, block.get("content"):
        case "publii-separator" | "publii-readmore", _:
            return ""
        case "publii-paragraph", str(text):
            return f"<p>{text}</p>"
        case "publii-header", str(text):
            level = str(config.get("headingLevel"))
            tag = f"h{min(6, max(1, int(level)))}" if level.isdecimal() else "h2"
            return f"<{tag}>{_linked(config, text)}</{tag}>"
        case "publii-list", str(text):
            tag = "ol" if config.get("listType") == "ol" else "ul"
            return f"<{tag}>{text}</{tag}>"
        case "publii-quote", {"text": str(text)}:
            author = text_value(as_object(block["content"]), "author")
            return f"<blockquote><p>{text}</p><p>{author and f'— {author}'}</p></blockquote>"
        case "publii-code", str(text):
            language = escape(text_value(config, "language"))
            return f'<pre class="language-{language}">\n{escape(text, quote=False)}</pre>'
        case "publii-html", str(text):
            return text
        case "publii-image", dict(image):
            return _image(image, config)
        case "publii-gallery", {"images": list(images)}:
            return "".join(_image(image, {}) for image in images if isinstance(image, dict))
    dropped[_BLOCKS_WITHOUT_OWN_TEXT.get(kind, f"unreadable block {repair_line(kind)[:40]}")] += 1
    return ""


def _image(image: Mapping[Any, Any], config: dict[str, Any]) -> str:
    return f"{_linked(config, '')}<figcaption>{text_value(image, 'caption')}</figcaption>"


def _linked(config: dict[str, Any], html: str) -> str:
    url = text_value(as_object(config.get("link")), "url")
    return f'<a href="{escape(url)}">{html}</a>' if url else html
