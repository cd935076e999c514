"""The author's decisions about marks, in marks.toml: what is not marked, and rules to follow.

A mark that is dismissed again and again, or a word of a draft that is always replaced, becomes a
proposal. Only a proposal that the author accepts changes anything.
"""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, get_close_matches
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
CHANGED: Final = "changed"  # words of a draft that the author replaced
WORD_KINDS: Final = frozenset(("wording", "stock_phrase", "spelling", "numerals"))
MARKED: Final = 0.04  # of the author's known sentences are marked; of new ones about 0.1
_MIN_ALIKE, _MIN_TEXTS = 5, 3
_MAX_CHOICES = 2000  # that are kept; the oldest go first
_MAX_CHANGED_WORDS = 3
_ALIKE = 0.5  # similarity of a draft's sentence and its saved version
_HEAD = Path(__file__).with_name("marks.toml")
_LOCK = ".marks.lock"


@dataclass(frozen=True)
class Rule:
    """Words that the author wants replaced."""

    instead_of: Annotated[str, Meta(min_length=1)]
    write: str


@dataclass(frozen=True)
class Choice:
    """What the author chose in one text: a form that they kept, or words that they replaced.

    `before` and `after` are empty for kinds without words, such as a long sentence.
    """

    text: str  # an id
    kind: str
    before: str = ""
    after: str = ""
    times: int = 1

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.before, self.after


@dataclass(frozen=True)
class MarkChoices:
    """All decisions."""

    sentences: tuple[str, ...] = ()
    silenced: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    marked: Annotated[float, Meta(ge=0, le=0.3)] = MARKED
    rule: tuple[Rule, ...] = ()
    choice: tuple[Choice, ...] = ()
    declined: tuple[tuple[str, str, str], ...] = field(default=())

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
        """Yield what the rules replace: the place, the words there, and the new words."""
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

    def keep(self, sentence: str, text: str, kind: str, before: str, after: str) -> "MarkChoices":
        """Keep a sentence as it is, and count the form for which it was marked."""
        kept = replace(self, sentences=_with(self.sentences, _on_one_line(sentence)))
        return kept._count([*kept.choice, _choice(text, kind, before, after)])

    def kept_forms(self, text: str, edits: Iterable[tuple[str, str, str]]) -> "MarkChoices":
        """Count the edits that the author has undone in a text: kind, before, after.

        They replace what was counted in this text.
        """
        others = [each for each in self.choice if each.text != text or each.kind == CHANGED]
        return self._count([*others, *(_choice(text, *edit) for edit in edits)])

    def changed_words(self, text: str, drafted: Iterable[str], saved: str) -> "MarkChoices":
        """Count the draft words that the author replaced in a text, in place of earlier counts."""
        others = [each for each in self.choice if (each.text, each.kind) != (text, CHANGED)]
        pairs = _changed_words(drafted, saved)
        return self._count([*others, *(_choice(text, CHANGED, *pair) for pair in pairs)])

    def _count(self, choices: Iterable[Choice]) -> "MarkChoices":
        """Return the decisions with these choices; equal ones are counted together."""
        times = Counter[Choice]()
        for each in choices:
            times[replace(each, times=1)] += each.times
        counted = [replace(each, times=number) for each, number in times.items()]
        return replace(self, choice=tuple(counted[-_MAX_CHOICES:]))

    def allow(self, kind: str, words: str = "") -> "MarkChoices":
        """Never mark these words again; for a kind without words, never this kind."""
        if kind in WORD_KINDS or (kind == UNLIKE and words):
            return replace(self, words=_with(self.words, plain_form(words)))
        return replace(self, silenced=_with(self.silenced, kind))

    def proposals(self) -> list[tuple[str, str, str]]:
        """Return the kind, the form and its alternative for choices made often in several texts."""
        times, texts = defaultdict[tuple[str, str, str], int](int), defaultdict[Any, set[str]](set)
        for each in self.choice:
            times[each.key] += each.times
            texts[each.key].add(each.text)
        return [
            key
            for key, number in times.items()
            if number >= _MIN_ALIKE
            and len(texts[key]) >= _MIN_TEXTS
            and key not in self.declined
            # Marking half as many sentences again would miss most of other people's.
            and not (key[0] == UNLIKE and self.marked < MARKED)
        ]

    def accept(self, kind: str, before: str, after: str) -> "MarkChoices":
        """Follow a proposal from now on."""
        rest = tuple(each for each in self.choice if each.key != (kind, before, after))
        settled = replace(self, choice=rest)
        if kind == CHANGED:
            return replace(settled, rule=_with(self.rule, Rule(before, after)))
        if kind == UNLIKE:
            return replace(settled, marked=self.marked / 2)
        return settled.allow(kind, before)

    def remove(self, name: str, value: str) -> "MarkChoices":
        """Take back a decision in a list, or `marked`; for a rule, `value` is what it replaces."""
        if name == "marked":
            return replace(self, marked=MARKED)
        if name == "rule":
            return replace(self, rule=tuple(each for each in self.rule if each.instead_of != value))
        changed: dict[str, Any] = {name: tuple(x for x in getattr(self, name) if x != value)}
        return replace(self, **changed)

    def decline(self, kind: str, before: str, after: str) -> "MarkChoices":
        """Never propose this again."""
        return replace(self, declined=_with(self.declined, (kind, before, after)))

    def to_toml(self) -> str:
        lists = {"sentences": self.sentences, "silenced": self.silenced, "words": self.words}
        lines = [f"{name} = {_in_lines(values)}\n" for name, values in lists.items() if values]
        lines += [f"marked = {self.marked}\n"] if self.marked != MARKED else []
        if self.declined:
            lines.append(f"declined = {as_toml(self.declined)}\n")
        for name, tables in (("rule", self.rule), ("choice", self.choice)):
            for table in tables:
                values = "".join(
                    f"{key} = {as_toml(value)}\n" for key, value in vars(table).items()
                )
                lines.append(f"\n[[{name}]]\n{values}")
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
        return decode(MarkChoices, document, source=str(self._path))

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


def _choice(text: str, kind: str, before: str, after: str) -> Choice:
    if kind not in (*WORD_KINDS, CHANGED):
        return Choice(text, kind)
    return Choice(text, kind, plain_form(before), plain_form(after))


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _with(values: tuple[Any, ...], value: object) -> tuple[Any, ...]:
    return values if value in values else (*values, value)


def _in_lines(values: Sequence[str]) -> str:
    return "[\n" + "".join(f"  {as_toml(value)},\n" for value in values) + "]"


def _changed_words(drafted: Iterable[str], saved: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a draft's sentences that were replaced by others in the saved text."""
    there = [_on_one_line(saved[start:end]) for start, end in sentences(saved)]
    for line in drafted:
        for start, end in sentences(line):
            sentence = _on_one_line(line[start:end])
            if sentence in there or not (close := get_close_matches(sentence, there, 1, _ALIKE)):
                continue
            own, theirs = (re.findall(r"[\w'’-]+", each) for each in (sentence, close[0]))
            for kind, a, b, c, d in SequenceMatcher(None, own, theirs).get_opcodes():
                if kind == "replace" and max(b - a, d - c) <= _MAX_CHANGED_WORDS:
                    yield plain_form(" ".join(own[a:b])), plain_form(" ".join(theirs[c:d]))
