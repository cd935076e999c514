"""The author's decisions about marks, in marks.toml: what is not marked, and rules to follow."""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from ownwords.core.config import as_toml
from ownwords.core.errors import ConfigError
from ownwords.core.text import Span, sentences
from ownwords.core.validation import Meta, decode
from ownwords.core.workspace import locked, write_atomically

MARKS_FILE: Final = "marks.toml"
UNLIKE: Final = "unlike you"
WORD_KINDS: Final = frozenset(("wording", "stock_phrase", "spelling", "numerals"))
MARKED: Final = 0.1  # share of the author's own sentences that are marked
_BEFORE: Final = ("choice", "declined")  # sections of earlier versions, which were counted
_HEAD = Path(__file__).with_name("marks.toml")
_LOCK = ".marks.lock"


@dataclass(frozen=True)
class Rule:
    """Words that the author wants replaced."""

    instead_of: Annotated[str, Meta(min_length=1)]
    write: str


@dataclass(frozen=True)
class MarkChoices:
    """All decisions."""

    sentences: tuple[str, ...] = ()
    silenced: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    marked: Annotated[float, Meta(ge=0, le=0.3)] = MARKED
    rule: tuple[Rule, ...] = ()

    # ---- what is marked

    def hides(self, kind: str, words: str = "") -> bool:
        """Whether a mark of a kind on some words is not shown."""
        return kind in self.silenced or plain_form(words) in self.allowed

    @cached_property
    def allowed(self) -> frozenset[str]:
        return frozenset(map(plain_form, self.words))

    @cached_property
    def _kept(self) -> frozenset[str]:
        return frozenset(map(_on_one_line, self.sentences))

    def keeps(self, sentence: str) -> bool:
        """Whether the author has decided to keep a sentence as it is."""
        return bool(self._kept) and _on_one_line(sentence) in self._kept

    def kept_spans(self, text: str) -> list[Span]:
        """Return the sentences of a text that are kept."""
        found = sentences(text) if self._kept else ()
        return [(start, end) for start, end in found if self.keeps(text[start:end])]

    def replacements(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Yield what the rules replace: the place, the words there, and the words instead."""
        for rule in self.rule:
            pattern = re.escape(rule.instead_of).replace("'", "['’]")
            for found in re.finditer(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE):
                after = rule.write
                if found[0][0].isupper():
                    after = after[:1].upper() + after[1:]
                if after != found[0]:
                    yield found.start(), found[0], after

    def follow(self, text: str) -> str:
        """Return a text with the rules applied."""
        for start, before, after in sorted(self.replacements(text), reverse=True):
            text = text[:start] + after + text[start + len(before) :]
        return text

    # ---- decisions

    def keep(self, sentence: str) -> "MarkChoices":
        """Keep a sentence as it is."""
        return replace(self, sentences=_with(self.sentences, _on_one_line(sentence)))

    def allow(self, kind: str, words: str = "") -> "MarkChoices":
        """Never mark these words again; for a kind without words, never this kind."""
        if kind in WORD_KINDS or (kind == UNLIKE and words):
            return replace(self, words=_with(self.words, plain_form(words)))
        return replace(self, silenced=_with(self.silenced, kind))

    def remove(self, name: str, value: str) -> "MarkChoices":
        """Take back a decision of a list, or `marked`; of a rule, the value is what it replaces."""
        if name == "marked":
            return replace(self, marked=MARKED)
        if name == "rule":
            return replace(self, rule=tuple(each for each in self.rule if each.instead_of != value))
        changed: dict[str, Any] = {name: tuple(x for x in getattr(self, name) if x != value)}
        return replace(self, **changed)

    def to_toml(self) -> str:
        lists = {"sentences": self.sentences, "silenced": self.silenced, "words": self.words}
        lines = [f"{name} = {_in_lines(values)}\n" for name, values in lists.items() if values]
        lines += [f"marked = {self.marked}\n"] if self.marked != MARKED else []
        for rule in self.rule:
            values = "".join(f"{key} = {as_toml(value)}\n" for key, value in vars(rule).items())
            lines.append(f"\n[[rule]]\n{values}")
        return _HEAD.read_text("utf-8") + "".join(lines)


class MarksFile:
    """The marks.toml of a workspace; a call returns the decisions, read again after a change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[object, MarkChoices] = None, MarkChoices()

    @classmethod
    def beside(cls, archive: Path) -> "MarksFile":
        return cls(archive.with_name(MARKS_FILE))

    def __call__(self) -> MarkChoices:
        """Return the decisions; raises ConfigError if the file is invalid."""
        try:
            stat = self._path.stat()
        except OSError:
            return MarkChoices()
        stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if stamp != self._read[0]:
            self._read = stamp, self._parsed()
        return self._read[1]

    def _parsed(self) -> MarkChoices:
        try:
            document = tomllib.loads(self._path.read_text("utf-8-sig"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self._path} cannot be read: {error}", hint="correct it, or move the file away"
            ) from error
        known = {name: value for name, value in document.items() if name not in _BEFORE}
        return decode(MarkChoices, known, source=str(self._path))

    def change(self, update: Callable[[MarkChoices], MarkChoices]) -> MarkChoices:
        """Change the decisions, and return them."""
        busy = f"another program is changing {self._path}", "try again"
        with locked(self._path.with_name(_LOCK), *busy):
            before = self()
            after = update(before)
            if after != before:
                write_atomically(self._path, after.to_toml())
        return after


def plain_form(words: str) -> str:
    """Return words in lower case, with straight apostrophes."""
    return words.lower().replace("’", "'")


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _with(values: tuple[Any, ...], value: object) -> tuple[Any, ...]:
    return values if value in values else (*values, value)


def _in_lines(values: Sequence[str]) -> str:
    return "[\n" + "".join(f"  {as_toml(value)},\n" for value in values) + "]"
