"""Generates evaluation questions with known answers from an archive's own texts.

It also generates questions that the archive cannot answer and the search should refuse. No answer
is judged by hand: link texts were not written as queries, and a title may use a word that its text
lacks. The results are therefore better for comparing searches than as absolute quality.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import count
from typing import Final, Literal, get_args

from ownwords.archive.document import Document
from ownwords.archive.store import Archive
from ownwords.ask.query_terms import is_content_word
from ownwords.ask.sentence_matching import sentences
from ownwords.core.fingerprint import digest

Kind = Literal["links", "titles", "bodies", "summaries", "paraphrases", "unanswerable"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

UNANSWERABLE = 50
MOST = 300  # per kind; more would take minutes and barely narrow the intervals
_COMMON = 1 / 3  # of the posts; a word in more posts than this does not identify one
_LEAST_LEFT = 3  # telling words of a paraphrase
_RUN = 6  # consecutive words that identify the text a question was taken from
_WORD = re.compile(r"\w+")

_ABOUT_NAMES = (
    "Who is {}?",
    "What did I say about {}?",
    "When did I meet {} for the first time?",
    "Where does {} live now?",
    "What did {} give me for my birthday?",
)
_SYLLABLE = ("bdfghklmnprstvz", "aeiou", "lnrsxk")  # one letter from each


@dataclass(frozen=True, slots=True)
class EvalQuestion:
    """A question and the ids of the documents that answer it; none if it is unanswerable.

    `apart` holds pairs of a document id and words: passages of that document with these words are
    excluded from the ranking, because the question was taken from them.
    """

    kind: Kind
    text: str
    answers: frozenset[str] = frozenset()
    apart: tuple[tuple[str, str], ...] = ()

    def counts(self, document: str, text: str) -> bool:
        """Whether a passage counts in the ranking, which excludes the source of the question."""
        return not any(
            document == source and shares_a_run(text, words) for source, words in self.apart
        )


@dataclass(slots=True)
class EvalQuestions:
    """The questions generated from an archive, and counts of what was left out, for the report."""

    questions: list[EvalQuestion] = field(default_factory=list)
    vague_links: Counter[str] = field(default_factory=Counter)  # by link text
    title_summaries: int = 0  # summaries that only repeat the title
    topics: int = 0  # number of unanswerable questions about things
    names: int = 0  # number of unanswerable questions about invented names

    def of(self, kind: Kind) -> list[EvalQuestion]:
        return [question for question in self.questions if question.kind == kind]


def eval_questions_of(archive: Archive, searchable: Iterable[str]) -> EvalQuestions:
    """Generate the questions of all kinds from the searchable documents."""
    asked = EvalQuestions()
    heads: list[Document] = []
    frequencies: Counter[str] = Counter()
    summaries: list[EvalQuestion] = []
    beginnings: list[tuple[str, str]] = []
    for document in archive.documents(searchable):
        frequencies.update(set(_words(f"{document.title}\n{document.text()}")))
        summaries += _summary(document, asked)
        beginnings += ((document.id, text) for text in _beginnings(document))
        heads.append(replace(document, segments=()))
    asked.questions += _drawn(_links(archive, heads, frequencies, asked))
    asked.questions += _drawn(_titles(heads, "titles"))
    asked.questions += _drawn(_titles(heads, "bodies"))
    asked.questions += _drawn(summaries)
    asked.questions += _drawn(_paraphrases(beginnings, frequencies))
    asked.questions += _unanswerable(frequencies, asked)
    return asked


def shares_a_run(text: str, words: str) -> bool:
    """Whether the text contains six consecutive words of `words`, or all of them if fewer."""
    sought, here = _words(words), f" {' '.join(_words(text))} "
    length = min(_RUN, len(sought))
    return length > 0 and any(
        f" {' '.join(sought[at : at + length])} " in here for at in range(len(sought) - length + 1)
    )


def _links(
    archive: Archive, documents: Sequence[Document], frequencies: Counter[str], asked: EvalQuestions
) -> Iterator[EvalQuestion]:
    """Yield each link text as a question for the linked post, if the text identifies one post."""
    known = {document.id for document in documents}
    targets: dict[str, set[str]] = defaultdict(set)
    sources: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for source, words, target in archive.internal_links():
        if source != target and {source, target} <= known:
            plain = " ".join(_words(words))
            targets[plain].add(target)
            sources[plain, target].append((source, words))
    rare = _COMMON * len(documents)
    for (plain, target), found in sources.items():
        is_address = "://" in found[0][1] or found[0][1].startswith("www.")
        names_it = any(frequencies[word] <= rare for word in plain.split())
        if is_address or len(targets[plain]) > 1 or not names_it:
            asked.vague_links[found[0][1]] += len(found)
        else:
            yield EvalQuestion("links", found[0][1], frozenset({target}), tuple(found))


def _titles(documents: Sequence[Document], kind: Kind) -> Iterator[EvalQuestion]:
    same: dict[str, set[str]] = defaultdict(set)
    for document in documents:
        same[" ".join(_words(document.title))].add(document.id)
    named = {document.id: document.title for document in documents}
    for plain, ids in same.items():
        if plain:
            yield EvalQuestion(kind, named[min(ids)], frozenset(ids))


def _summary(document: Document, asked: EvalQuestions) -> Iterator[EvalQuestion]:
    """Yield the summary as a question for its post, without the passage it was taken from."""
    words = Counter(_words(document.summary))
    if not words:
        return
    # "A paper: <title>": one or two words beside the title are no summary.
    if (words - Counter(_words(document.title))).total() < 3:
        asked.title_summaries += 1
        return
    own = ((document.id, document.summary),)
    question = EvalQuestion("summaries", document.summary, frozenset({document.id}), own)
    if any(question.counts(document.id, segment.text) for segment in document.segments):
        yield question


def _beginnings(document: Document) -> Iterator[str]:
    """Yield the first heading and the first sentence of a post."""
    for kind in ("heading", "prose"):
        if texts := [segment.text for segment in document.segments if segment.kind == kind]:
            for begin, end in sentences(texts[0])[:1]:
                yield texts[0][begin:end]


def _paraphrases(
    beginnings: Iterable[tuple[str, str]], frequencies: Counter[str]
) -> Iterator[EvalQuestion]:
    """Yield headings and sentences without the rarer half of their words, for their posts.

    What is left are the words that many posts have: a search by words alone has little to find.
    """
    answers: dict[str, set[str]] = defaultdict(set)
    for document, text in beginnings:
        words = text.split()
        telling = {word for word in _words(text) if is_content_word(word)}
        by_rarity = sorted(telling, key=lambda word: (frequencies[word], word))
        rare = set(by_rarity[: -(-len(by_rarity) // 2)])
        if len(telling) - len(rare) >= _LEAST_LEFT:
            left = [word for word in words if not rare.intersection(_words(word))]
            answers[" ".join(left)].add(document)
    for text, documents in answers.items():
        yield EvalQuestion("paraphrases", text, frozenset(documents))


def _unanswerable(frequencies: Counter[str], asked: EvalQuestions) -> Iterator[EvalQuestion]:
    there = "\n".join(["", *frequencies])  # a newline before each word, to search for prefixes
    for topic, said in their_topics():
        if f"\n{topic}" in there or asked.topics == UNANSWERABLE:
            continue
        asked.topics += 1
        yield EvalQuestion("unanswerable", said)
    names = _names(there)
    while asked.topics + asked.names < UNANSWERABLE:
        said = _ABOUT_NAMES[asked.names % len(_ABOUT_NAMES)].format(next(names))
        asked.names += 1
        yield EvalQuestion("unanswerable", said)


def their_topics() -> list[tuple[str, str]]:
    """The packaged unanswerable questions, each after the prefix of its topic word."""
    text = files("ownwords.ask").joinpath("unanswerable.txt").read_text(encoding="utf-8")
    parts = (line.partition(" | ") for line in text.splitlines())
    return [(topic, said) for topic, bar, said in parts if bar]


def _names(there: str) -> Iterator[str]:
    """Yield invented names whose parts begin no word of the archive, in a fixed order."""
    for seed in count():
        # Not used for anything secret.
        lot = random.Random(seed)  # noqa: S311
        name = ["".join(lot.choice(letters) for letters in 2 * _SYLLABLE) for _ in range(2)]
        if not any(f"\n{part}" in there for part in name):
            yield " ".join(part.capitalize() for part in name)


def _drawn(questions: Iterable[EvalQuestion]) -> list[EvalQuestion]:
    """At most `MOST` of the questions; the choice is the same for the same archive."""
    every = list(questions)
    if len(every) <= MOST:
        return every
    return sorted(every, key=lambda question: digest(question.text, *question.answers))[:MOST]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
