"""The voice card: how the author writes, counted, for a model or a ghost-writer to follow.

Each rate is compared with those of others today and of language models (`evaluation.manner`), and
is left out if the difference could be chance. Then follow words, set phrases, and whole passages of
the author, near the task and unlike each other. Held-out posts take no part, so that what the card
brings can be measured with them; nor do posts that are left out or not published.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ownwords.archive.document import Document
from ownwords.archive.store import Archive
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher
from ownwords.core.errors import CorpusError
from ownwords.evaluation.manner import (
    Floats,
    ReferenceManner,
    TextCounts,
    count_text,
    lengths_of,
    measures,
    rates,
)
from ownwords.language.words import content_words

_MIN_WORDS = 1000  # of the author's
_CERTAIN = 2.0  # standard errors
_PASSAGES_SHARE = 0.6  # of the words of a card
_MIN_PASSAGES, _MAX_PASSAGES = 5, 10
_PASSAGE_WORDS = (50, 160)
_FOUND = 60  # passages of the search that are looked at
_NO_PROSE = re.compile(r"[`{}<>|]|https?:|\n")
_QUOTED = re.compile(r"[“\"][^”\"]*[”\"]")
_HEADINGS = {
    "lengths": "Sentences and paragraphs",
    "openings": "How sentences begin",
    "person": "Person and contractions",
    "joining": "Words that join",
    "attitude": "Attitude",
    "marks": "Punctuation",
    "asides": "Asides",
}


@dataclass(frozen=True, slots=True)
class Habit:
    """A rate of the author beside others'."""

    group: str
    label: str
    per: str
    own: float
    error: float  # standard
    others: tuple[float, ...]  # of each of the reference authors, in ascending order
    machines: float | None

    @property
    def middle(self) -> float:
        return float(np.median(self.others))

    @property
    def above(self) -> float:
        """The share of the others who do it less."""
        return float(np.searchsorted(self.others, self.own)) / len(self.others)

    @property
    def is_marked(self) -> bool:
        """Whether it is beyond the middle half of others, or unlike machines, and not by chance."""
        low, high = np.quantile(self.others, (0.25, 0.75))
        margin = _CERTAIN * self.error
        if self.own + margin < low or self.own - margin > high:
            return True
        if self.machines is None or abs(self.own - self.machines) < margin:
            return False
        return max(self.own, self.machines) > 2 * min(self.own, self.machines)

    @property
    def distance(self) -> float:
        """How far it is from others and from machines, as a factor."""
        others = (self.middle, *([] if self.machines is None else [self.machines]))
        least = 0.1 * max(self.own, *others) + 1e-6
        return max(abs(float(np.log((self.own + least) / (each + least)))) for each in others)

    def __str__(self) -> str:
        machines = "" if self.machines is None else f", language models {self.said(self.machines)}"
        return f"{self.label}: {self.said(self.own)}; others {self.said(self.middle)}{machines}"

    def said(self, rate: float) -> str:
        """Return a rate with its unit, as "12%" or "3.4 in 1,000 words"."""
        if self.label.startswith("Words in a "):
            return f"{rate:.0f}"
        if self.per != "words":
            return f"{rate:.0%}" if rate >= 0.02 or not rate else f"{rate:.1%}"
        return f"{1000 * rate:.0f}" if rate >= 0.01 else f"{1000 * rate:.1f}"


@dataclass(frozen=True, slots=True)
class VoicePassage:
    """A whole passage of the author."""

    text: str
    post: str  # its id
    title: str
    day: str


@dataclass(frozen=True, slots=True)
class VoiceCard:
    """How the author writes: rates, words, phrases and passages."""

    words: int  # of the author, that were counted
    posts: int
    sentences: tuple[int, int, int]  # words: one in ten shorter, the middle, one in ten longer
    paragraphs: tuple[int, int, int]
    habits: tuple[Habit, ...]
    favourites: tuple[str, ...]  # words that they use far more than others
    avoided: tuple[str, ...]  # usual words that they never use
    machine_words: tuple[str, ...]  # words of language models that they hardly use
    passages: tuple[VoicePassage, ...]

    @property
    def text(self) -> str:
        """The card as text: what to do, in plain sentences."""
        return "\n".join(self._lines()).rstrip() + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# How this author writes, counted in {self.words:,} words of {self.posts:,} posts"
        yield ""
        yield (
            "Write so that the same would be counted. “Others” are other people today; a figure"
            " without a unit is per 1,000 words."
        )
        low, middle, high = self.sentences
        sentence, *_ = (each for each in self.habits if each.group == "lengths")
        yield ""
        yield "## Sentences and paragraphs"
        yield (
            f"- Sentences: {middle} words in the middle; one in ten shorter than {low}, one in ten"
            f" longer than {high}. On average {sentence.said(sentence.own)}; others"
            f" {sentence.said(sentence.middle)}. Mix them as the passages do."
        )
        low, middle, high = self.paragraphs
        yield f"- Paragraphs: {middle} words in the middle, one in ten longer than {high}."
        marked = [each for each in self.habits if each.is_marked and each is not sentence]
        for group, heading in _HEADINGS.items():
            lines = [f"- {each}" for each in marked if each.group == group]
            if lines and group != "lengths":
                yield f"\n## {heading}"
            yield from lines
        yield "\n## Words"
        for label, words in (
            ("Far more than others", self.favourites),
            ("Never", self.avoided),
            ("Language models like these; this author hardly uses them", self.machine_words),
        ):
            if words:
                yield f"- {label}: {', '.join(words)}"
        yield "\n## Passages by this author"
        for passage in self.passages:
            yield f"\n{passage.text}"


def voice_card(archive: Archive, about: str = "", words: int = 1200) -> VoiceCard:
    """Return a card of about so many words on how the author writes, for a task if given."""
    selection = archive.selection()
    used = {id_ for id_, row in selection.items() if row[0] != "leave out" and row[2] == "train"}
    documents = [each for each in archive.documents(used) if each.status == "published"]
    prose = {each.id: each.text(frozenset({"prose"})) for each in documents}
    counted = [count_text(text) for text in prose.values()]
    total = sum(each.words.total() for each in counted)
    if total < _MIN_WORDS:
        raise CorpusError(
            f"{total:,} words of yours are too few to say how you write; about 1,000 are needed",
            hint="add posts, and read the blog again: ownwords look PATH",
        )
    reference = ReferenceManner.load()
    favourites, avoided, machine_words = _telling_words(counted, reference)
    lengths = [
        tuple(map(round, np.quantile(each, (0.1, 0.5, 0.9)))) for each in lengths_of(counted)
    ]
    room = words * _PASSAGES_SHARE
    return VoiceCard(
        total,
        len(documents),
        lengths[0],
        lengths[1],
        _habits(counted, reference),
        favourites,
        avoided,
        machine_words,
        tuple(_passages(archive, documents, about, room)),
    )


def _habits(counted: Sequence[TextCounts], reference: ReferenceManner) -> tuple[Habit, ...]:
    rate, error = rates(counted)
    return tuple(
        Habit(
            measure.group,
            measure.label,
            measure.per,
            float(rate[n]),
            float(error[n]),
            tuple(np.sort(reference.people[:, n]).tolist()),
            None if np.isnan(reference.machines[n]) else float(reference.machines[n]),
        )
        for n, measure in enumerate(measures())
    )


def _telling_words(
    counted: Sequence[TextCounts], reference: ReferenceManner
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the words far more used than by others, those never used, and those of machines."""
    own, posts = Counter[str](), Counter[str]()
    for text in counted:
        own.update(text.words)
        posts.update(text.words.keys())
    total = own.total() / 1e6
    count = np.array([own[word] for word in reference.words], float)
    in_posts = np.array([posts[word] for word in reference.words])
    people, machines = reference.by_people * total, reference.by_machines * total
    general = reference.spread >= 0.6

    def best(score: Floats, mask: npt.NDArray[np.bool_], most: int) -> tuple[str, ...]:
        order = np.argsort(-np.where(mask, score, -np.inf), kind="stable")[:most]
        return tuple(reference.words[n] for n in order if mask[n])

    more = np.log((count + 1) / (people + 1))
    is_more = general & (count > 3 * people) & (in_posts >= max(5, 0.08 * len(counted)))
    z = (count - people) / np.sqrt(people + 1)
    never = (count == 0) & (people > 6) & general
    of_machines = (machines > 3 * count + 6) & (machines > 2 * people) & ~never
    return (
        best(more * np.sqrt(np.maximum(z, 0)), is_more, 24),
        best(people, never, 24),
        best(machines - people, of_machines, 16),
    )


# ---- passages


def _passages(
    archive: Archive, documents: Sequence[Document], about: str, room: float
) -> Iterator[VoicePassage]:
    """Yield whole paragraphs near the task and unlike each other, of different posts."""
    least, most = _PASSAGE_WORDS
    found = [
        VoicePassage(segment.text, document.id, document.title, document.day)
        for document in documents
        for segment in document.segments
        if segment.kind == "prose"
        and least <= len(segment.text.split()) <= most
        and not _NO_PROSE.search(segment.text)
        and len("".join(_QUOTED.findall(segment.text))) < len(segment.text) / 3
    ]
    near = _near(archive, about) if about.strip() else {}
    topics = [content_words(each.text).keys() for each in found]
    wanted = content_words(about).keys()
    spread = {id_: n for n, id_ in enumerate(sorted({each.post for each in found}))}
    score = np.array(
        [
            near.get(each.post, 0.0)
            + len(wanted & topic) / max(1, len(wanted))
            + 1e-3 * ((spread[each.post] * 0.618034) % 1)  # without a task, from all times
            for each, topic in zip(found, topics, strict=True)
        ]
    )
    used, number = set[str](), 0
    like = np.zeros(len(found))
    while number < _MAX_PASSAGES and found:
        best = int(np.argmax(score - 0.5 * like))
        if not np.isfinite(score[best]):
            return
        passage, size = found[best], len(found[best].text.split())
        score[best] = -np.inf
        if passage.post in used or (number >= _MIN_PASSAGES and size > room):
            continue
        yield passage
        used.add(passage.post)
        number += 1
        room -= size
        overlap = [len(topic & topics[best]) / max(1, len(topics[best])) for topic in topics]
        like = np.maximum(like, overlap)


def _near(archive: Archive, about: str) -> dict[str, float]:
    """Return how near the posts of the passages are that the search finds: 1 for the best."""
    with SearchIndex(archive.path) as index:
        index.refresh()
        passages = ArchiveSearcher(index, None).find(about, _FOUND).passages
    posts = dict.fromkeys(each.document for each in passages)
    return {post: 1 - n / len(posts) for n, post in enumerate(posts)}
