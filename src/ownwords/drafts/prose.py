"""Finds the prose of a draft in Markdown: the text that is judged and that may be changed.

The Markdown parser finds the blocks; within a block, one expression finds all that is not prose:
code, HTML tags, addresses, titles of links, pictures, formulas and template tags. Front matter,
tables and quoted lines are left out as a whole.
"""

import re
from collections.abc import Container, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ownwords.archive.markup import markdown_parser
from ownwords.archive.sources.markdown import parse_front_matter
from ownwords.core.text import Span

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# Signs that enclose what is no prose: template tags, attributes, formulas, comments, links between
# notes. They are not nested, and what is not closed within 8,000 characters is text, so that the
# work stays linear.
_PAIRS = r"{{ }}  {% %}  {: }  {# }  {. }  ![[ ]]  [[ ]]  $$ $$  \( \)  \[ \]  %% %%  <!-- -->"
_ENCLOSED = "|".join(
    rf"{begin}(?:(?!{begin}).){{0,8000}}?{end}"
    for begin, end in (map(re.escape, pair.split()) for pair in _PAIRS.split("  "))
)
# A tag as Markdown reads it; in a block of HTML it may have any signs, and end in a later block.
_ATTRIBUTE = (
    r"""\s++[a-z_:][\w:.-]*+(?:\s*+=\s*+(?:"[^"]{0,2000}+"|'[^']{0,2000}+'|[^\s"'=<>`]++))?+"""
)
_TAG = rf"</?[a-z][a-z0-9-]*+(?:{_ATTRIBUTE}){{0,99}}+\s*+/?>"
_HTML_TAG = r"""</?[a-z](?:"[^"]{0,2000}"|'[^']{0,2000}'|[^"'<>]){0,2000}+>|</?[a-z][^<>]*\Z"""
_LABEL = r"[^\[\]]{0,1000}+"
_PICTURE = rf"!\[(?:[^\[\]]|\[{_LABEL}\]){{0,1000}}+\]"
# The address and the title of a link, each with one level of parentheses; or whatever has none.
_ADDRESS = r"(?:<[^<>]{0,2000}+>|(?:[^\s()\\]|\\.|\([^\s()]{0,2000}+\)){0,2000}+)"
_TITLE = r"""(?:"(?:[^"\\]|\\.){0,2000}+"|'(?:[^'\\]|\\.){0,2000}+'|\([^()]{0,2000}+\))"""
_TARGET = rf"\((?:\s*+{_ADDRESS}(?:\s++{_TITLE})?+\s*+|[^()]{{0,2000}}+)\)"
_NO_PROSE, _NO_PROSE_IN_HTML = (
    re.compile(
        r"(?<!`)(?P<ticks>`{1,99}+).{0,2000}?(?<!`)(?P=ticks)(?!`)"  # code
        rf"|{_ENCLOSED}|{tag}|<[a-z][a-z0-9+.-]*:[^\s<>]*>"
        rf"|{_PICTURE}(?:{_TARGET}|\[{_LABEL}\])?"
        rf"|\^\[{_LABEL}\]|\[\^{_LABEL}\]"  # a footnote
        rf"|\[(?=(?P<label>{_LABEL})\](?P<then>\[\]|[(\[])?)|\](?:{_TARGET}|\[{_LABEL}\])"  # a link
        r"|\\[!-/:-@\[-`{-~]|\*+|~~+|(?<!\w)_+|_+(?!\w)",  # an escape, emphasis
        re.DOTALL | re.IGNORECASE,
    )
    for tag in (_TAG, _HTML_TAG)
)
# Elements and template tags around code or the words of others; they may hold blank lines.
_OPENS = re.compile(
    r"<(?P<element>pre|code|kbd|samp|var|tt|script|style|textarea|svg|math|blockquote|q|cite|table"
    r")\b|\{[{%][<%]?-?\s*(?P<tag>highlight|code\w*|raw|verbatim|mermaid|math|katex|\w*quote)\b"
    r"|\[(?P<bracket>(?:source)?code|quote)\b",
    re.IGNORECASE,
)
_CLOSES = {
    "element": r"</NAME\b",
    "tag": r"\{[{%][<%]?-?\s*(?:end|/\s*)NAME\b",
    "bracket": r"\[/NAME\]",
}
# Addresses, names of files, identifiers; hashtags and mentions; entities. "and/or" is words.
_ALTERNATIVES = r"[(“\"]*[^\W_]+(?:[/'’-][^\W_]+)*[.,;:!?…)”\"]*(?!\S)"
_NO_WORD = re.compile(
    rf"(?<!\S)(?!{_ALTERNATIVES})\S*(?:\w(?:[/\\@=_]|\.(?=[a-z]{{2}})|\(\))|://|::)\S*"
    r"|(?<!\S)[@#]\w+|&#?\w+;"
)
_AFTER_WORDS = ".,;:!?…)]}\"'”’*_"
_OTHERS = frozenset(("blockquote", "table"))  # blocks that hold none of the author's prose
_CODE_BLOCK = re.compile(r"\s*<(?:[!?]|(?:script|pre|style|textarea)\b)", re.IGNORECASE)
_WORDS_OF_PARAGRAPH = range(8, 160)
_UNPROSAIC = re.compile(r"https?:\S{60}|[|{}<>\[\]\\]| = |\n")
_MAX_MISSING = 20  # kinds of tags that are never closed: each is searched for up to the end


def prose_of(draft: str) -> tuple[str, list[Span]]:
    """Return the draft, all but its prose replaced by as many spaces, and its headings."""
    text = draft.replace("\r\n", " \n").replace("\r", "\n").replace("\0", "\ufffd")
    # Python strips more signs than Markdown: at the end of a line, they become spaces.
    text = re.sub(r"(?m)(?<![^\S\n])[^\S\n]++$", lambda signs: " " * len(signs[0]), text)
    head = len(text) - len(parse_front_matter(text).body)
    text = re.sub(r"[^\n]", " ", text[:head]) + text[head:]
    is_prose = bytearray(len(text))
    opened, headings = _read_blocks(text, is_prose, _parser())
    if not any(is_prose):  # a plain text whose paragraphs are indented
        opened, headings = _read_blocks(text, is_prose, _parser(has_indented_code=False))
    for begin, end in [*_enclosed(text, opened), *_no_words(text)]:
        is_prose[begin:end] = bytes(end - begin)
    characters = zip(draft, is_prose, strict=True)
    return "".join(c if kept or c.isspace() else " " for c, kept in characters), headings


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph consists of sentences, and is neither too short nor too long."""
    return (
        len(paragraph.split()) in _WORDS_OF_PARAGRAPH
        and paragraph.rstrip()[-1] in '.!?”")…'
        and not _UNPROSAIC.search(paragraph)
    )


@cache
def _parser(*, has_indented_code: bool = True) -> "MarkdownIt":
    """Return a parser of blocks."""
    parser = markdown_parser()
    parser.core.ruler.enableOnly(["normalize", "block"])
    if not has_indented_code:
        parser.block.ruler.disable("code")
    return parser


def _read_blocks(
    text: str, is_prose: bytearray, parser: "MarkdownIt"
) -> tuple[list[int], list[Span]]:
    """Mark the prose of each block; return where elements may begin, and the headings."""
    ends = accumulate(len(line) + 1 for line in text.split("\n"))
    lines = [0, *(min(end, len(text)) for end in ends)]
    env: dict[str, Any] = {}
    opened, headings = list[int](), list[Span]()
    outside, before = 0, ""
    for token in parser.parse(text, env):
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind in _OTHERS:
            outside += token.nesting
        elif not outside and token.map and kind in ("inline", "html_block"):
            begin, end = (lines[line] for line in token.map)
            if before == "heading":
                headings.append((begin, end))
            if kind == "inline":  # without the mark of a list or a heading, which may be closed
                first, *others = map(str.strip, token.content.split("\n"))
                begin = text.rindex(first, begin, lines[token.map[0] + 1])
                end = lines[token.map[0] + 1 + len(others)] if others else begin + len(first)
            if kind == "html_block" and _CODE_BLOCK.match(text, begin):
                opened.append(text.index("<", begin))
            else:
                is_prose[begin:end] = b"\1" * (end - begin)
                no_prose = _NO_PROSE if kind == "inline" else _NO_PROSE_IN_HTML
                matches = no_prose.finditer(text, begin, end)
                opened += _read_matches(matches, is_prose, env.get("references", {}))
        before = kind
    return opened, headings


def _read_matches(
    matches: Iterator[re.Match[str]], is_prose: bytearray, references: Container[str]
) -> Iterator[int]:
    """Unmark what is no prose; yield where elements or template tags may begin."""
    from markdown_it.common.utils import normalizeReference  # noqa: PLC0415

    for found in matches:
        yield found.start()
        stop = found.end()
        if (label := found["label"]) is not None and found["then"] not in ("(", "["):
            if normalizeReference(label) not in references:
                continue
            stop += len(label) + 1 + len(found["then"] or "")  # the text names the address
        is_prose[found.start() : stop] = bytes(stop - found.start())


def _no_words(text: str) -> Iterator[Span]:
    for word in _NO_WORD.finditer(text):
        end = word.end() if word[0][0] == "&" else word.start() + len(word[0].rstrip(_AFTER_WORDS))
        yield word.start(), end


def _enclosed(text: str, opened: Sequence[int]) -> Iterator[Span]:
    """Yield the span of each element or template tag around code, with its end."""
    over, missing = 0, set[str]()
    for begin in opened:
        found = _OPENS.match(text, begin)
        if begin < over or found is None or found.lastgroup is None:
            continue
        pattern = _CLOSES[found.lastgroup].replace("NAME", found[found.lastgroup])
        if pattern in missing or len(missing) > _MAX_MISSING:
            continue
        close = re.compile(pattern, re.IGNORECASE).search(text, found.end())
        if close is None and found.lastgroup != "element":
            missing.add(pattern)
            continue
        over = close.end() if close else len(text)
        yield begin, over


# ---- other markup

_HTML_NO_PROSE = re.compile(
    r"<!--.*?-->|<(head|script|style|pre|code|blockquote|q|cite|table|svg|math|textarea)\b"
    r".*?(?:</\1\s*>|\Z)|<[/!?a-z][^<>]*>|&#?\w+;",
    re.DOTALL | re.IGNORECASE,
)
_HTML_INLINE = re.compile(
    r"</?(?:a|abbr|b|code|cite|em|i|kbd|mark|q|s|small|span|strong|su[bp]|u)\b|&", re.IGNORECASE
)
_RST_NO_PROSE = re.compile(
    r"^([ \t]*)\.\. .*(?:\n(?:\1[ \t]+\S.*|[ \t]*$))*"  # a directive, a comment, a target
    r"|(?<=::)[ \t]*\n(?:[ \t]*\n)+(?:[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)*"  # a literal block
    r"|^[ \t]*:[\w -]+:.*$|^[ \t]*[+|].*$"  # a field, a table, lines kept as they are
    r"|``.+?``|:[\w:-]+:`[^`]*`|`(?=[^`<]*<[^`>]*>`_)|(?<=\S) <[^`<>]*>`__?|\|[^|\s][^|]*\|_*",
    re.MULTILINE,
)
_RST_LINE = re.compile(r"^([!-/:-@[-`{-~])\1{2,}[ \t]*$", re.MULTILINE)


def as_markdown(text: str, markup: str) -> str:
    """Return HTML or reStructuredText with its prose in place, as Markdown of the same length.

    Any other text stays as it is.
    """
    if markup == "html":
        found = _HTML_NO_PROSE.sub(_html_gap, text)
        # A block begins at the start of its line, or it would be code.
        return re.sub(r"\s*\n\s*\n[^\S\n]+", lambda gap: "\n" * len(gap[0]), "\n\n" + found)[2:]
    if markup == "restructuredtext":
        found = _RST_NO_PROSE.sub(lambda part: re.sub(r"\S", " ", part[0]), text)
        return _RST_LINE.sub(lambda line: "=" * len(line[0].rstrip()), found)
    return text


def _html_gap(part: re.Match[str]) -> str:
    if _HTML_INLINE.match(part[0]):
        return " " * len(part[0])
    return "\n" * len(part[0])
