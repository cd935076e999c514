"""Writes and rewrites drafts with a model of an OpenAI-compatible server.

The model gets the author's card and the notes of one paragraph, and tries several times. Each try
is judged here: what cannot be shown to keep the notes, words copied from the posts, a language
model's manner, and how far the text is from the middle of the author's own range, because the most
typical text is a caricature. The best try is mended once with what was found.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ownwords.ask.servers import (
    THINKING,
    ContextLengthError,
    Endpoint,
    EndpointError,
    Message,
    neutralized,
)
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.core.text import sentences
from ownwords.drafts.check import AuthorStyle, Check, WrittenBefore
from ownwords.drafts.drafting import SEEDS, Doubt, DraftLine, Notes, begun_lines
from ownwords.drafts.facts import Content, lines_not_shown_in
from ownwords.language.words import language_of
from ownwords.view.format import plain

TRIES: Final = 8  # per paragraph, until one is good
_SENTENCE_TRIES: Final = 3
_MENDING_TRIES: Final = 2
_MAX_EMPTY: Final = 3  # answers without text in a row, before the model is asked no more
_TEMPERATURE: Final = 0.8
_CARD_WORDS, _MIN_CARD_WORDS = 1200, 100
_MAX_BEFORE: Final = 600  # characters of the paragraph before
_MAX_COPIED: Final = 9  # words in a row of the posts
# A sentence of which less than this share of the words is in the notes was made up to fill space.
# Of faithful texts by large models 1 sentence in 160 has less, of a 1.5B's nearly half.
_MIN_KNOWN, _MIN_WORDS = 0.2, 4
_GOOD: Final = 0.25  # from the middle of the author's own passages, as a share of them
_THINKING_TOKENS: Final = 4000
_MAX_CHARS: Final = 30_000  # of an answer, for a server that ignores `max_tokens`

_RULES: Final = """\
You write for one author, in the author's own voice. Below is how the author writes, with passages \
of theirs.

1. Say all that you are given, in its order, and nothing else. Make nothing up. Keep names, \
numbers, links and quotations as they are.
2. Write as the author does: their lengths of sentences, punctuation, spelling and tone. The \
passages show the manner alone: take no facts and no wording from them.
3. Answer with the text alone: no heading, no list, no comment, no quotation marks around it. \
Write in the language of what you are given."""
_MEND: Final = """\
Write the paragraph again, and mend only this. In what follows, "you" is the author.

"""
_DIFFERS: Final = """\
You compare two sentences. If both say the same, answer with the one word SAME. Otherwise say in \
one short line what one of them says and the other does not. How they put it does not matter."""


@dataclass(frozen=True)
class Candidate:
    """A text that a model wrote, and what the judges found."""

    text: str
    doubts: tuple[Doubt, ...]
    remarks: tuple[str, ...]  # for the model, a line each: what is unlike the author
    is_machine: bool
    distance: float  # from the middle of the author's own passages, 0 to 0.5

    @property
    def is_good(self) -> bool:
        return not self.doubts and not self.is_machine and self.distance <= _GOOD

    @property
    def rank(self) -> tuple[int, bool, float]:
        """The lower, the better."""
        return len(self.doubts), self.is_machine, self.distance


class EndpointWriter:
    """Writes paragraphs from notes and rewrites sentences with an endpoint, in one author's voice.

    `learn` returns the author's style, and `card` their card with about so many words; both are
    called when they are needed. Without a style, as for other languages than English, only the
    facts are judged. `on_text` is called with the number of the try and its text so far; an
    exception that it raises ends the work. `problem` is why the rest of a rewrite was left as it
    was.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        learn: Callable[[], AuthorStyle],
        card: Callable[[int], str],
        on_text: Callable[[int, str], None] = lambda _, __: None,
    ) -> None:
        self._endpoint, self._learn, self._card_of, self._on_text = endpoint, learn, card, on_text
        self._words, self._more_tokens, self._try = _CARD_WORDS, 0, 0
        self._card, self._has_answered = "", False
        self.problem = ""

    def paragraphs(
        self, notes: Notes, *, seed: int = 1, begun: Sequence[DraftLine] = ()
    ) -> Iterator[DraftLine]:
        """Write a text from notes, and yield each paragraph as soon as it is chosen.

        A paragraph for which the model writes nothing usable stays a note. `begun` are the first
        paragraphs of an interrupted draft. Raises OwnwordsError if the endpoint fails.
        """
        rest, before = begun_lines(notes.blocks, begun), ""
        gap = f"{notes.title}\n\n" if notes.title else ""
        for number, note in enumerate(notes.blocks):
            if (line := next(rest, None)) is None:
                best = self._paragraph(notes, note, before, seed * SEEDS + 1000 * number)
                line = DraftLine(note, best.text if best else note, bool(best))
                line = replace(line, doubts=best.doubts if best else ())
            yield replace(line, before=gap)
            gap, before = "\n\n", line.text if line.kept else before

    def _paragraph(self, notes: Notes, note: str, before: str, seed: int) -> Candidate | None:
        known = Content.of("\n".join([notes.title, before, *notes.lines]))
        task = f"Title: {notes.title}\n\n" if notes.title else ""
        if before:
            task += f"The text so far ends with:\n{before[-_MAX_BEFORE:]}\n\n"
        task += "Write one paragraph from these notes:\n"
        task += "".join(f"- {line}\n" for line in note.split("\n"))

        def judge(text: str) -> Candidate | None:
            text = _without_padding(text, known)
            return self._judged(text, note.split("\n"), known) if text else None

        messages: list[Message] = [{"role": "user", "content": task}]
        tokens = 200 + 4 * self._endpoint.count(note)
        self._try = 0
        found: list[Candidate] = []
        self._collect(found, messages, tokens, range(seed, seed + TRIES), judge)
        best = min(found, key=lambda each: each.rank, default=None)
        if best and not best.is_good and (best.doubts or best.remarks):
            # Without the titles of posts, which may be unpublished.
            doubts = (f"- {replace(each, post='the posts')}\n" for each in best.doubts)
            listed = neutralized("".join([*doubts, *best.remarks]))
            messages += [
                {"role": "assistant", "content": best.text},
                {"role": "user", "content": f"{_MEND}{listed}"},
            ]
            seeds = range(seed + TRIES, seed + TRIES + _MENDING_TRIES)
            self._collect(found, messages, tokens, seeds, judge)
            best = min(found, key=lambda each: each.rank)
        return best

    def _collect(
        self,
        found: list[Candidate],
        messages: Sequence[Message],
        max_tokens: int,
        seeds: Iterable[int],
        judge: Callable[[str], Candidate | None],
    ) -> None:
        """Add what the model writes with each seed, up to the first that is good.

        An endpoint that fails is an error only as long as it has written nothing usable.
        """
        empty = 0
        for seed in seeds:
            try:
                text = self._answer(messages, max_tokens, seed)
            except (EndpointError, ContextLengthError):
                if found:
                    return
                raise
            candidate = judge(text) if text else None
            empty = 0 if candidate else empty + 1
            if candidate and all(candidate.text != each.text for each in found):
                found.append(candidate)
                if candidate.is_good:
                    return
            if empty == _MAX_EMPTY:
                return

    def _answer(
        self, messages: Sequence[Message], max_tokens: int, seed: int, rules: str = ""
    ) -> str:
        """Return the prose of an answer, "" if it has none; the card is as long as fits."""
        self._try += 1
        while True:
            if not rules and not self._card:
                self._card = self._rules_and_card()
            system: Message = {"role": "system", "content": rules or self._card}
            text = ""
            try:
                pieces = self._endpoint.write(
                    [system, *messages],
                    max_tokens + self._more_tokens,
                    temperature=0.0 if rules else _TEMPERATURE,
                    seed=seed,
                )
                with closing(pieces):
                    for piece in pieces:
                        text += piece
                        self._on_text(self._try, "" if rules else written_prose(text))
                        if len(text) > _MAX_CHARS:
                            break
            except ContextLengthError:
                if rules or self._words < 2 * _MIN_CARD_WORDS:
                    raise
                self._words, self._card, self._more_tokens = self._words // 2, "", 0
                continue
            self._has_answered = True
            answer = written_prose(text)
            if not answer and self._endpoint.ended == "length":  # it was still thinking
                self._more_tokens = _THINKING_TOKENS
            return answer if rules else whole_sentences(answer)

    def _rules_and_card(self) -> str:
        """Return the system prompt, without a card if there is too little to count."""
        try:
            return f"{_RULES}\n\n{neutralized(self._card_of(self._words))}"
        except CorpusError:
            return _RULES

    @cached_property
    def _style(self) -> AuthorStyle | None:
        try:
            return self._learn()
        except OwnwordsError:
            return None

    def _check(self, text: str, known: str) -> tuple[Check | None, list[WrittenBefore]]:
        """Return the check of a text, and what it has from posts that is not in `known`."""
        check = self._style and self._style.check(text)
        if not check:
            return None, []
        return check, [
            each
            for each in check.written_before
            if len(each.text.split()) > _MAX_COPIED and each.text not in known
        ]

    def _judged(self, text: str, lines: Sequence[str], known: Content) -> Candidate:
        doubts = [Doubt("missing", line) for line in lines_not_shown_in(text, lines)]
        invented = Content.of(text).invented(known)
        doubts += [Doubt("added", name) for name in sorted(invented)]
        check, copied = self._check(text, known.text)
        if not check:
            return Candidate(text, tuple(doubts), (), is_machine=False, distance=0.0)
        doubts += [Doubt("copied", plain(each.text, 200), plain(each.title, 90)) for each in copied]
        remarks = tuple(
            f"- “{plain(each.text, 200)}” is unlike the author: {'; '.join(each.because)}\n"
            for each in check.sentences
            if each.is_marked and each.because
        )
        if check.is_machine:
            remarks += ("- As a whole it reads like a language model, not like the author.\n",)
        return Candidate(text, tuple(doubts), remarks, check.is_machine, abs(check.above - 0.5))

    # ---- sentences of a draft

    def rewritten(self, own: Sequence[str]) -> Iterator[str]:
        """Yield each sentence of a paragraph, rewritten where that keeps its meaning.

        If the endpoint fails after the first answer, the rest stays as it is (`problem`).
        """
        paragraph = " ".join(own)
        for sentence in own:
            better = sentence
            if not self.problem:
                try:
                    better = self._rewritten(sentence, paragraph)
                except (EndpointError, ContextLengthError) as error:
                    if not self._has_answered:
                        raise
                    self.problem = str(error)
            yield better

    def _rewritten(self, sentence: str, paragraph: str) -> str:
        task = f"Rewrite one sentence of this draft in the author's voice.\n\nDraft: {paragraph}"
        messages = [{"role": "user", "content": f"{task}\n\nSentence: {sentence}"}]
        tokens, own = 60 + 3 * self._endpoint.count(sentence), Content.of(sentence)
        usual, _ = self._check(sentence, sentence)
        for seed in range(1, _SENTENCE_TRIES + 1):
            text = self._answer(messages, tokens, seed)
            if text in ("", sentence) or len(sentences(text)) > 2:
                continue
            check, copied = self._check(text, sentence)
            if (
                (not check or not usual or check.yours > usual.yours)
                and not copied
                and Content.of(text).keeps_facts_of(own)
                and self._says_the_same(sentence, text)
            ):
                return text
        return sentence

    def _says_the_same(self, one: str, other: str) -> bool:
        """Ask the model whether two sentences differ in what they say."""
        messages = [{"role": "user", "content": f"1: {one}\n2: {other}"}]
        answer = self._answer(messages, 60, 1, _DIFFERS)
        return bool(re.match(r"\W*same\b", answer, re.IGNORECASE)) and len(answer) < 40


# ---- the text of an answer

_FENCED = re.compile(r"```[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_TURN = re.compile(r"<\||</s>|<end_of_turn>|\[/?INST\]")
_KIND = r"(?:paragraph|sentence|text|draft|version|rewrite|rewriting|answer|output|result|post)"
_PREFACE = re.compile(
    r"\A\W*(?:(?:sure|certainly|of course|okay|absolutely|great)\b[^\n:]{0,80}?[!,.:]\s*)?"
    rf"(?:(?:here|below|this)(?:['’]s| is| are)\b[^\n:]{{0,80}}\b{_KIND}\b[^\n:]{{0,80}}:"
    rf"|(?:(?:final|revised|rewritten) )?{_KIND}\W{{0,4}}:"
    r"|(?:perhaps )?not in the (?:text|notes):)\W*?(?=[\w“\"'‘(])",  # a remark repeated
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"\n\s*(?:-{3,}|\W{0,3}(?:let me know|i hope (?:this|that|it)"
    r"|(?:notes?|remarks?|changes(?: made)?|explanation)\W{0,3}:)).*\Z",
    re.IGNORECASE | re.DOTALL,
)
_MARK = re.compile(r"^\s*(?:#+ .*|[-*+] (?=\S)|> ?)|\*\*|__", re.MULTILINE)
_QUOTED = re.compile(r"\A[“\"]([^“”\"]*)[”\"]\Z")
_TO_THE_LAST = re.compile(r".*[.!?…][\"”’')\]]*(?=\s|\Z)", re.DOTALL)
_MIN_LETTERS: Final = 0.5  # of the characters


def written_prose(answer: str) -> str:
    """Return the prose of a model's answer on one line, without what surrounds it.

    Dropped are thoughts, fences, a preface such as "Here is the paragraph:", headings, quotation
    marks around the whole, and remarks at the end. The result is "" if little of it is letters.
    """
    text = THINKING.sub("", answer).rpartition("</think>")[2]
    text = _TURN.split(text)[0]
    if fenced := _FENCED.search(text):
        text = fenced[1]
    text = _REMARK.sub("", _PREFACE.sub("", text))
    text = " ".join(_MARK.sub("", text).split())
    if quoted := _QUOTED.match(text):
        text = quoted[1]
    letters = sum(map(str.isalpha, text))
    return text if letters >= _MIN_LETTERS * len(text) else ""


def _without_padding(text: str, known: Content) -> str:
    """Return the sentences of an English text that say something of what is known.

    Small models add others. In other languages the forms of words are not known.
    """
    if language_of([text]) != "en":
        return text
    said = (text[begin:end] for begin, end in sentences(text))
    return " ".join(
        sentence
        for sentence in said
        if len((content := Content.of(sentence)).words) < _MIN_WORDS
        or known.share_of(content) >= _MIN_KNOWN
    )


def whole_sentences(text: str) -> str:
    """Return a text up to the end of its last whole sentence; "" if it has none."""
    found = _TO_THE_LAST.match(text)
    return found[0] if found and " " in found[0] else ""
