"""Fluency of samples: made-up words, broken sentences, repetition, each beside real posts.

Real posts also have repetitions, new words and unfinished sentences, so every figure of the samples
is compared with that of held-out posts, in passages of the same length.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from ownwords.core.text import count_words
from ownwords.evaluation.intervals import PairedEstimate, beside, rate
from ownwords.evaluation.lexicon import Lexicon, begins_sentence, is_in_the_language, words_in
from ownwords.evaluation.passages import openings
from ownwords.evaluation.repetition import Loop, repetition
from ownwords.evaluation.sentences import FAULTS, Fault, Sentence, SentenceConventions, sentences

_EXAMPLES = 8


@dataclass(frozen=True, slots=True)
class Fluency:
    """Shares, in samples and in real held-out passages of the same length."""

    passage_words: int
    repeated: PairedEstimate  # runs of 4 words that occurred before in the same text
    looped: PairedEstimate  # words in immediate repetitions
    sample_loop: Loop
    held_out_loop: Loop
    new_words: PairedEstimate  # words that occur in no training post
    non_words: PairedEstimate | None  # also not in the lexicon; without names and numbers
    unknown_names: PairedEstimate | None  # the same for capitalized words in mid-sentence
    broken: PairedEstimate  # sentences with any fault
    faults: Mapping[Fault, PairedEstimate]
    examples: Mapping[str, tuple[str, ...]]  # of the samples: non-words, broken sentences by fault
    reason: str = ""  # why something is None


def fluency(
    samples: Sequence[str],
    held_out: Sequence[str],
    training: Sequence[str],
    lexicon: Lexicon | None,
) -> Fluency:
    """Measure samples and held-out posts alike; `training` posts define what is usual.

    Without samples, or without held-out text half as long as one, the figures are 0 of 0.
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
    reason = "" if lexicon else "There is no word list to recognize made-up words."
    if lexicon and not is_in_the_language(held_out or training, lexicon.frequent):
        lexicon = None
        reason = (
            "The word list is English, but these posts are not, so made-up words cannot be"
            " recognized."
        )
    judge = _FluencyJudge(Lexicon.of(training), lexicon, SentenceConventions.of(training))
    findings = [[judge.look(text) for _, text in kind] for kind in (ours, real)]
    sources = [[source for source, _ in kind] for kind in (ours, real)]

    def share(part: str, total: str) -> PairedEstimate:
        sides = [
            rate([text.counts[part] for text in kind], [text.counts[total] for text in kind], of)
            for kind, of in zip(findings, sources, strict=True)
        ]
        return beside(*sides)

    loops = [
        max((text.loop for text in kind), key=lambda loop: loop.words, default=Loop())
        for kind in findings
    ]
    return Fluency(
        passage_words=length,
        repeated=share("repeated", "runs"),
        looped=share("looped", "words"),
        sample_loop=loops[0],
        held_out_loop=loops[1],
        new_words=share("new", "judged"),
        non_words=share("non-words", "judged") if lexicon else None,
        unknown_names=share("unknown names", "judged") if lexicon else None,
        broken=share("broken", "sentences"),
        faults={fault: share(fault, "sentences") for fault in FAULTS},
        examples=_examples(findings[0]),
        reason=reason,
    )


class _TextFindings(NamedTuple):
    """Counts and examples of one text."""

    counts: Counter[str]
    loop: Loop
    strange: tuple[str, ...]
    broken: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class _FluencyJudge:
    own: Lexicon
    lexicon: Lexicon | None
    habits: SentenceConventions

    def look(self, text: str) -> _TextFindings:
        again = repetition(text)
        counts = Counter(
            words=again.words, runs=again.runs, repeated=again.repeated, looped=again.looped
        )
        strange = self._words(text, counts)
        judged = sentences(text, self.habits)
        counts["sentences"] = len(judged)
        counts["broken"] = sum(bool(sentence.faults) for sentence in judged)
        counts.update(fault for sentence in judged for fault in sentence.faults)
        return _TextFindings(
            counts,
            again.longest,
            strange,
            tuple(sentence for sentence in judged if sentence.faults),
        )

    def _words(self, text: str, counts: Counter[str]) -> tuple[str, ...]:
        """Count words that are in no list; return those that are not names."""
        strange: list[str] = []
        words = words_in(text)
        counts["judged"] = len(words)
        for match in words:
            word = match[0]
            if self.own.knows(word):
                continue
            counts["new"] += 1
            if self.lexicon is None or self.lexicon.knows(word):
                continue
            if not word[0].isupper():
                counts["non-words"] += 1
                strange.append(word)
            elif not begins_sentence(match):  # there a capital does not indicate a name
                counts["unknown names"] += 1
        return tuple(strange)


def _examples(findings: Sequence[_TextFindings]) -> dict[str, tuple[str, ...]]:
    """A few examples of each fault, the most frequent first."""
    strange = Counter(word for text in findings for word in text.strange)
    examples = {"non-words": tuple(word for word, _ in strange.most_common(_EXAMPLES))}
    for fault in FAULTS:
        sentences = [
            sentence.text
            for text in findings
            for sentence in text.broken
            if fault in sentence.faults
        ]
        examples[fault] = tuple(sentences[:_EXAMPLES])
    return examples
