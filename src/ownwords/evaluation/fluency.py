"""Fluency of samples: made-up words, broken sentences and repetition, compared with real posts.

Real posts also have repetitions, new words and unfinished sentences, so every figure of the samples
is compared with that of held-out posts. The passages have the same length, because short texts
repeat themselves less and contain fewer rare words.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ownwords.core.text import END_MARK, count_words, distinct, hash_words, shingles
from ownwords.core.text import sentences as sentence_spans
from ownwords.evaluation.intervals import PairedEstimate, beside, rate
from ownwords.language.words import Lexicon, begins_sentence, is_in_the_language, words_in

_RUN = 4  # words; a run of this length rarely occurs twice on a page of real text
_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]]*\s++(?=\W{0,40}[^\W\da-z_])|[。！？]")


@dataclass(frozen=True, slots=True)
class Fluency:
    """Shares in samples, and in held-out passages of the same length."""

    passage_words: int
    repeated: PairedEstimate  # runs of 4 words that occurred before in the same text
    new_words: PairedEstimate  # words that occur in no training post
    non_words: PairedEstimate | None  # also not in the lexicon; without names and numbers
    unknown_names: PairedEstimate | None  # the same for capitalized words in mid-sentence
    broken: PairedEstimate  # sentences with any fault
    reason: str = ""  # why something is None

    def measured(self, field: str) -> PairedEstimate | None:
        """Return a figure; None if it was not measured, or if `non_words` replaces it."""
        pair: PairedEstimate | None = getattr(self, field)
        return None if field == "new_words" and self.non_words else pair


def fluency(
    samples: Sequence[str],
    held_out: Sequence[str],
    training: Sequence[str],
    lexicon: Lexicon | None,
) -> Fluency:
    """Measure samples and held-out posts alike; the training posts define the author's usage.

    Without samples, or if no held-out text is half as long as a sample, the figures are 0 of 0.
    """
    length = max(1, round(median([count_words(text) for text in samples] or [0])))
    ours = [
        (number, text)
        for number, sample in enumerate(samples)
        for text in openings(sample, length)[:1] or [sample]
    ]
    real = [
        (number, text) for number, post in enumerate(held_out) for text in openings(post, length)
    ]
    reason = ""
    if lexicon and not is_in_the_language(held_out or training, lexicon.frequent):
        lexicon = None
        reason = (
            "The word list is English, but these posts are not, so made-up words cannot be"
            " recognised."
        )
    own = Lexicon.of(training)
    findings = [[_examine(text, own, lexicon) for _, text in kind] for kind in (ours, real)]
    sources = [[source for source, _ in kind] for kind in (ours, real)]

    def share(part: str, total: str) -> PairedEstimate:
        sides = [
            rate([text[part] for text in kind], [text[total] for text in kind], of)
            for kind, of in zip(findings, sources, strict=True)
        ]
        return beside(*sides)

    return Fluency(
        passage_words=length,
        repeated=share("repeated", "runs"),
        new_words=share("new", "judged"),
        non_words=share("non-words", "judged") if lexicon else None,
        unknown_names=share("unknown names", "judged") if lexicon else None,
        broken=share("broken", "sentences"),
        reason=reason,
    )


def openings(text: str, words: int) -> list[str]:
    """Cut a text into passages of `words` words that begin at the start of a line.

    If no line starts soon enough, a passage begins with a sentence. A shorter text, or the rest of
    one, is a passage if it has at least half as many words.
    """
    _, starts, _ = hash_words(text)
    stretches: list[str] = []
    begin = 0
    while True:
        first = int(starts.searchsorted(begin))
        if len(starts) - first < max(1, words / 2):
            return stretches
        last = first + words
        end = int(starts[last]) if last < len(starts) else len(text)
        stretches.append(text[begin:end].strip())
        near = int(starts[min(last + words // 2, len(starts) - 1)])
        begin = _beginning(text, end, near)


def _beginning(text: str, after: int, near: int) -> int:
    """Return where the next line begins; if that is too far, the next sentence or line."""
    line = text.find("\n", after)
    if 0 <= line <= near:
        return line + 1
    sentence = _SENTENCE.search(text, after)
    if sentence:
        return sentence.end()
    return line + 1 if line >= 0 else len(text)


def _examine(text: str, own: Lexicon, lexicon: Lexicon | None) -> Counter[str]:
    """Count the words, sentences and runs of words of a text, and their faults."""
    runs, repeated = repetition(text)
    words, broken = words_in(text), broken_sentences(text)
    counts = Counter(
        runs=runs,
        repeated=repeated,
        sentences=len(broken),
        broken=sum(broken),
        judged=len(words),
    )
    for match in words:
        word = match[0]
        if own.knows(word):
            continue
        counts["new"] += 1
        if lexicon is None or lexicon.knows(word):
            continue
        if not word[0].isupper():
            counts["non-words"] += 1
        elif not begins_sentence(match):  # at the start, a capital does not indicate a name
            counts["unknown names"] += 1
    return counts


def repetition(text: str) -> tuple[int, int]:
    """Count the runs of words of a text, and those that occurred before in it."""
    runs = shingles(hash_words(text).hashes, _RUN)
    return len(runs), len(runs) - len(distinct(runs))


# --- broken sentences -----------------------------------------------------------------------------

# Formal faults can be found without understanding the text. A text consists of lines (a newline in
# an archive's text is a visible break), and a line consists of sentences. A short line without an
# end mark is a heading or a list item, not a sentence. A passage cut from a longer text may begin
# within quotes and end anywhere: neither counts as a fault.

HEADING_WORDS = 12  # a longer line should have an end mark
MAX_SENTENCE = 60  # words; an author who writes longer ones has them in held-out posts, too

# Doubled words that are correct English: "all that that means", "he had had enough".
_DOUBLED_CORRECTLY = frozenset({"that", "had"})
_MARKER = re.compile(r"^(?:[-–—*•·▪◦]|\(?\w{1,2}[.)])\s+(?=\S)")
_DOUBLED = re.compile(r"\b([^\W\d_]+)\s+\1\b", re.IGNORECASE)
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_QUOTES = '"“”„«»'
_SMILEY = re.compile(r"[:;=]-?[()]")
_GOES_ON = (":", ";", ",", "—", "–", "-")  # continues below with a list or a quotation


def broken_sentences(text: str) -> list[bool]:
    """Return whether each sentence of a text is broken, without one that the text cuts off."""
    judged: list[bool] = []
    lines = _lines(text)
    after_end = False  # whether the line before ended a sentence
    for number, line in enumerate(lines):
        spans = sentence_spans(line)
        is_last = number == len(lines) - 1
        has_end = any(mark.end() == len(line) for mark in END_MARK.finditer(line))
        if not has_end and len(spans) == 1 and len(_WORD.findall(line)) <= HEADING_WORDS:
            after_end = False
            continue
        is_cut = is_last and not has_end
        following = "" if is_last else lines[number + 1]
        cut_from = spans[-1][0] if is_last else len(line)
        unpaired = _unpaired(line, following, is_first=number == 0, cut_from=cut_from)
        for start, end in spans[:-1] if is_cut else spans:
            sentence = line[start:end]
            words = len(_WORD.findall(sentence))
            first = next(filter(str.isalnum, sentence), "")
            doubled = {match[1].casefold() for match in _DOUBLED.finditer(sentence)}
            is_broken = (
                (end == len(line) and not has_end and not line.endswith(_GOES_ON))
                or any(start <= at < end for at in unpaired)
                or (first.islower() and (start > 0 or after_end))
                or words > MAX_SENTENCE
                or bool(doubled - _DOUBLED_CORRECTLY)
            )
            if words:
                judged.append(is_broken)
        after_end = has_end
    return judged


def _lines(text: str) -> list[str]:
    lines = (_MARKER.sub("", line.strip(), count=1).strip() for line in text.split("\n"))
    return [line for line in lines if line]


def _unpaired(line: str, following: str, *, is_first: bool, cut_from: int) -> list[int]:
    """Return the positions of unpaired brackets and double quotes, except where a text was cut.

    Single quotes are not checked: they cannot be distinguished from apostrophes.
    """
    unpaired: list[int] = []
    opened: list[int] = []
    quotes: list[int] = []
    for at, char in enumerate(_SMILEY.sub(lambda smiley: " " * len(smiley[0]), line)):
        if char in _QUOTES:
            quotes.append(at)
        elif char in "([":
            opened.append(at)
        elif char in ")]":
            if opened:
                opened.pop()
            elif not is_first:
                unpaired.append(at)
    unpaired += [at for at in opened if at < cut_from]
    # Speech that continues in the next paragraph gets another opening quote there.
    goes_on = not following or is_first or following[0] in _QUOTES
    return unpaired if len(quotes) % 2 == 0 or goes_on else [*unpaired, quotes[-1]]
