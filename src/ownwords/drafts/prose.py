"""Where a draft in Markdown is prose: what is judged, and what may be changed.

Prose is what the Markdown parser reads as text. All else stays out: code, HTML tags, addresses,
titles of links, pictures, formulas, template tags, front matter, tables and quoted lines.
"""

import re
from bisect import bisect
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ownwords.archive.markup import markdown_parser
from ownwords.archive.sources.markdown import parse_front_matter
from ownwords.core.sentences import Span

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

# What Markdown has no rule for: template tags, attributes, formulas, comments, links between notes.
_CLOSING = {
    **{"{{": "}}", "{%": "%}", "{:": "}", "{#": "}", "{.": "}", "[[": "]]", "![[": "]]"},
    **{"$$": "$$", "\\(": "\\)", "\\[": "\\]", "%%": "%%"},
}
# Elements and template tags around code or the words of others; they may hold blank lines.
_ENCLOSING = re.compile(
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
_TAG = re.compile(r"""</?[a-z](?:"[^"]*"|'[^']*'|[^"'<>])*>""", re.IGNORECASE)
# Addresses, names of files, identifiers; hashtags and mentions; entities. "and/or" is words.
_ALTERNATIVES = r"[(“\"]*[^\W_]+(?:[/'’-][^\W_]+)*[.,;:!?…)”\"]*(?!\S)"
_NO_WORD = re.compile(
    rf"(?<!\S)(?!{_ALTERNATIVES})\S*(?:\w(?:[/\\@=_]|\.(?=[a-z]{{2}})|\(\))|://|::)\S*|(?<!\S)[@#]\w+|&#?\w+;"
)
_AFTER_WORDS = ".,;:!?…)]}\"'”’*_"
_OTHERS = frozenset(("blockquote", "table"))  # of whose lines none are the author's prose

_MAX_MISSING = 20  # kinds of tags that are never closed, each of which is looked for to the end
_MAX_BRACKETS = 300  # in a paragraph; the parser tries what lies between any two


def prose_of(draft: str) -> tuple[str, list[Span]]:
    """The draft with spaces for all that is not prose, as long as before; and its headings."""
    text = draft.replace("\r\n", " \n").replace("\r", "\n").replace("\0", "\ufffd")
    head = len(text) - len(parse_front_matter(text).body)
    reader = _Reader(re.sub(r"[^\n]", " ", text[:head]) + text[head:])
    reader.read(_parser())
    if not any(text[begin:end].strip() for begin, end in reader.spans):
        reader.read(_parser(has_indented_code=False))  # a plain text whose paragraphs are indented
    is_prose = bytearray(len(text))
    for begin, end in reader.spans:
        is_prose[begin:end] = b"\1" * (end - begin)
    for begin, end in [*reader.enclosed(), *_no_words(text)]:
        is_prose[begin:end] = bytes(end - begin)
    characters = zip(draft, is_prose, strict=True)
    return "".join(c if kept or c.isspace() else " " for c, kept in characters), reader.headings


def _no_words(text: str) -> Iterator[Span]:
    for word in _NO_WORD.finditer(text):
        end = word.end() if word[0][0] == "&" else word.start() + len(word[0].rstrip(_AFTER_WORDS))
        yield word.start(), end


class _Reader:
    """What the rules of the parser read as text, by the characters of the whole draft."""

    def __init__(self, text: str) -> None:
        self._text = text
        ends = accumulate(len(line) + 1 for line in text.split("\n"))
        self._line_starts = [0, *(min(end, len(text)) for end in ends)]
        self._state: StateInline | None = None  # of the inline text that is being read
        self._places: list[Span] = []  # where its lines begin, in it and in the draft
        self._last: dict[str, int] = {}  # where each closing sign stands last in it

    def read(self, parser: "MarkdownIt") -> None:
        """Find the spans of text, and the lines of headings."""
        from markdown_it.rules_inline import StateInline  # noqa: PLC0415

        self.spans: list[Span] = []
        self.headings: list[Span] = []
        self._enclosing: list[int] = []  # where an element or a template tag begins
        env: dict[str, Any] = {"reader": self}
        outside, before = 0, ""
        for token in parser.parse(self._text, env):
            kind = token.type.removesuffix("_open").removesuffix("_close")
            if kind in _OTHERS:
                outside += token.nesting
            elif not outside and token.map and kind in ("inline", "html_block"):
                begin, end = (self._line_starts[line] for line in token.map)
                if before == "heading":
                    self.headings.append((begin, end))
                if kind == "html_block":
                    self._read_html(begin, end)
                elif token.content.count("[") < _MAX_BRACKETS:
                    self._places, self._last = list(self._lines(token.content, token.map[0])), {}
                    self._state = StateInline(token.content, parser, env, [])
                    parser.inline.tokenize(self._state)
            before = kind

    def _lines(self, content: str, number: int) -> Iterator[Span]:
        """Where each line of an inline text begins, in it and in the draft."""
        at = 0
        for line in content.split("\n"):
            begin, end = self._line_starts[number : number + 2]
            whole, part = self._text[begin:end].rstrip(), line.strip()
            # Only a heading with closing signs goes on behind its text.
            place = len(whole) - len(part) if whole.endswith(part) else whole.rfind(part)
            if place >= 0:
                yield at + line.find(part), begin + place
            at, number = at + len(line) + 1, number + 1

    def _place(self, at: int) -> int:
        """The place in the draft of a character of the inline text."""
        within, place = self._places[bisect(self._places, at, key=lambda each: each[0]) - 1]
        return place + at - within

    def add(self, state: "StateInline", begin: int, end: int) -> None:
        """A rule has read characters as text, of this text or of a part that it holds itself."""
        if state is self._state:
            self.spans.append((self._place(begin), self._place(begin) + end - begin))

    def opens(self, state: "StateInline", begin: int) -> None:
        """A rule has read an element or a template tag."""
        if state is self._state:
            self._enclosing.append(self._place(begin))

    def closing(self, state: "StateInline", sign: str, begin: int) -> int:
        """Where a closing sign is, at `begin` or later; -1 if nowhere."""
        if state is not self._state:
            return -1
        if sign not in self._last:
            self._last[sign] = state.src.rfind(sign)
        return state.src.find(sign, begin) if self._last[sign] >= begin else -1

    def _read_html(self, begin: int, end: int) -> None:
        """The text between the tags of a block of HTML."""
        html = self._text[begin:end]
        if re.match(r"\s*<(?:[!?]|(?:script|pre|style|textarea)\b)", html, re.IGNORECASE):
            self._enclosing.append(begin + html.index("<"))
            return
        at = 0
        while (tag := html.find("<", at)) >= 0:
            self.spans.append((begin + at, begin + tag))
            self._enclosing.append(begin + tag)
            if html.startswith("<!--", tag):
                close = html.find("-->", tag)
                at = close + 3
            else:
                found = _TAG.match(html, tag)
                close, at = (0, found.end()) if found else (-1, 0)
            if close < 0:
                return  # what is not closed goes on
        self.spans.append((begin + at, end))

    def enclosed(self) -> Iterator[Span]:
        """From the beginning of each element or template tag around code to its end."""
        over, missing = 0, set[str]()
        for begin in self._enclosing:
            found = _ENCLOSING.match(self._text, begin)
            if begin < over or found is None or found.lastgroup is None:
                continue
            pattern = _CLOSES[found.lastgroup].replace("NAME", found[found.lastgroup])
            if pattern in missing or len(missing) > _MAX_MISSING:
                continue
            close = re.compile(pattern, re.IGNORECASE).search(self._text, found.end())
            if close is None and found.lastgroup != "element":
                missing.add(pattern)
                continue
            over = close.end() if close else len(self._text)
            yield begin, over


@cache
def _parser(*, has_indented_code: bool = True) -> "MarkdownIt":
    """A parser of blocks, whose rules of inline text tell the reader what they have read."""
    from markdown_it.rules_inline import html_inline, link, text  # noqa: PLC0415

    def read_text(state: "StateInline", silent: bool) -> bool:
        begin = state.pos
        if not text(state, silent):
            return False
        if not silent:
            state.env["reader"].add(state, begin, state.pos)
        return True

    def read_sign(state: "StateInline", silent: bool) -> bool:
        """A character that no rule takes is text."""
        if not silent:
            state.env["reader"].add(state, state.pos, state.pos + 1)
        state.pos += 1
        return True

    def read_pair(state: "StateInline", silent: bool) -> bool:
        begin, reader = state.pos, state.env["reader"]
        sign = next(
            (
                state.src[begin : begin + n]
                for n in (3, 2)
                if state.src[begin : begin + n] in _CLOSING
            ),
            "",
        )
        if _ENCLOSING.match(state.src, begin) and not silent:
            reader.opens(state, begin)
        close = reader.closing(state, _CLOSING[sign], begin + len(sign)) if sign else -1
        if close < 0 or close >= state.posMax:
            return False
        state.pos = close + len(_CLOSING[sign])
        return True

    def read_link(state: "StateInline", silent: bool) -> bool:
        begin, spans = state.pos, len(state.env["reader"].spans)
        if not link(state, silent):
            return False
        label = (
            state.md.helpers.parseLinkLabel(state, begin) if state.src[state.pos - 1] == "]" else 0
        )
        if not silent and state.src[label + 1 : state.pos] in ("", "[]"):
            del state.env["reader"].spans[spans:]  # the text is what names the address
        return True

    def read_tag(state: "StateInline", silent: bool) -> bool:
        begin = state.pos
        if not html_inline(state, silent):
            return False
        if not silent:
            state.env["reader"].opens(state, begin)
        return True

    parser = markdown_parser()
    parser.core.ruler.enableOnly(["normalize", "block"])
    if not has_indented_code:
        parser.block.ruler.disable("code")
    for name, rule in (("text", read_text), ("link", read_link), ("html_inline", read_tag)):
        parser.inline.ruler.at(name, rule)
    parser.inline.ruler.before("text", "pair", read_pair)
    parser.inline.ruler.push("sign", read_sign)
    return parser
