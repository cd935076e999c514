"""Whether samples are sentences in a language: the same questions to them and to real posts.

Nothing is judged alone. A real post has repetitions, new words and sentences without an end too:
every figure of the samples stands beside that of held-out posts, in passages as long as the
samples.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from ownwords.archive.features import count_words
from ownwords.evaluation.bootstrap import ClusterBootstrap, PairedEstimate, beside
from ownwords.evaluation.lexicon import Lexicon, begins_sentence, is_in_the_language, words_in
from ownwords.evaluation.passages import openings
from ownwords.evaluation.repetition import Loop, repetition
from ownwords.evaluation.sentences import FAULTS, Fault, Sentence, SentenceConventions, sentences
from ownwords.evaluation.word_order import WordOrder

_EXAMPLES = 8


@dataclass(frozen=True, slots=True)
class Fluency:
    """Shares, each of samples and of real held-out text in passages as long."""

    passage_words: int
    repeated: PairedEstimate  # runs of 4 words that came before in the same text
    looped: PairedEstimate  # words that say again at once what was just said
    sample_loop: Loop
    held_out_loop: Loop
    new_words: PairedEstimate  # words in none of the training posts
    non_words: PairedEstimate | None  # nor in the lexicon, names and numbers apart
    unknown_names: PairedEstimate | None  # the same of words with a capital in mid-sentence
    broken: PairedEstimate  # sentences with any fault
    faults: Mapping[Fault, PairedEstimate]
    sentence_words: PairedEstimate  # the mean length of a sentence
    odd_turns: PairedEstimate  # turns of words that no training post takes: see `word_order`
    examples: Mapping[str, tuple[str, ...]]  # of the samples: non-words, broken sentences by fault
    reason: str = ""  # why something is None


def fluency(
    samples: Sequence[str],
    held_out: Sequence[str],
    training: Sequence[str],
    lexicon: Lexicon | None,
) -> Fluency:
    """Ask the same of samples and of held-out posts; `training` posts say what is usual.

    Without samples, or without held-out text half as long as one, the figures there are 0 of 0.
    """
    length = max(1, round(median([count_words(text) for text in samples] or [0])))
    ours = [
        (number, text)
        for number, one in enumerate(samples)
        for text in openings(one, length)[:1] or [one]
    ]
    real = [(number, text) for number, one in enumerate(held_out) for text in openings(one, length)]
    reason = "" if lexicon else "There is no list of words here to know non-words by."
    if lexicon and not is_in_the_language(held_out or training, lexicon.frequent):
        lexicon = None
        reason = (
            "The list of words is English, and these posts are not: which words are none cannot be "
            "said."
        )
    judge = _Judge(
        Lexicon.of(training), lexicon, SentenceConventions.of(training), WordOrder.of(training)
    )
    looked = [[judge.look(text) for _, text in kind] for kind in (ours, real)]
    draws = [ClusterBootstrap([source for source, _ in kind]) for kind in (ours, real)]

    def share(part: str, whole: str) -> PairedEstimate:
        sides = [
            ([one.counts[part] for one in kind], [one.counts[whole] for one in kind], drawn)
            for kind, drawn in zip(looked, draws, strict=True)
        ]
        return beside(*sides)

    loops = [
        max((one.loop for one in kind), key=lambda loop: loop.words, default=Loop())
        for kind in looked
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
        sentence_words=share("sentence words", "sentences"),
        odd_turns=share("odd", "turns"),
        examples=_examples(looked[0]),
        reason=reason,
    )


class _Looked(NamedTuple):
    """What was seen in one text."""

    counts: Counter[str]
    loop: Loop
    strange: tuple[str, ...]
    broken: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class _Judge:
    own: Lexicon
    lexicon: Lexicon | None
    habits: SentenceConventions
    order: WordOrder

    def look(self, text: str) -> _Looked:
        again = repetition(text)
        counts = Counter(
            words=again.words, runs=again.runs, repeated=again.repeated, looped=again.looped
        )
        strange = self._words(text, counts)
        judged = sentences(text, self.habits)
        counts["sentences"] = len(judged)
        counts["sentence words"] = sum(one.words for one in judged)
        counts["broken"] = sum(bool(one.faults) for one in judged)
        counts.update(fault for one in judged for fault in one.faults)
        counts["odd"], counts["turns"] = self.order.odd(text)
        return _Looked(counts, again.longest, strange, tuple(one for one in judged if one.faults))

    def _words(self, text: str, counts: Counter[str]) -> tuple[str, ...]:
        """Count words that nobody has; those that are no names."""
        strange: list[str] = []
        found = words_in(text)
        counts["judged"] = len(found)
        for one in found:
            word = one[0]
            if self.own.knows(word):
                continue
            counts["new"] += 1
            if self.lexicon is None or self.lexicon.knows(word):
                continue
            if not word[0].isupper():
                counts["non-words"] += 1
                strange.append(word)
            elif not begins_sentence(one):  # there a capital does not say that it is a name
                counts["unknown names"] += 1
        return tuple(strange)


def _examples(looked: Sequence[_Looked]) -> dict[str, tuple[str, ...]]:
    """A few of what was found, the most frequent first."""
    strange = Counter(word for one in looked for word in one.strange)
    examples = {"non-words": tuple(word for word, _ in strange.most_common(_EXAMPLES))}
    for fault in FAULTS:
        said = [one.text for text in looked for one in text.broken if fault in one.faults]
        examples[fault] = tuple(said[:_EXAMPLES])
    return examples
