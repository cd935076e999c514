"""The voice card: how the author writes, counted, for a model or a ghost-writer to follow.

Each rate is compared with those of others today and of language models (`evaluation.manner`), and
is left out if the difference could be chance. Then follow words, set phrases, and whole passages of
the author, near the task and unlike each other. Held-out posts are not used, so that the card's
effect can be measured on them; nor are posts that are left out or not published.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import filterfalse, islice

import msgspec
import numpy as np
import numpy.typing as npt

from ownwords.archive.blog_name import new_name
from ownwords.archive.document import Document
from ownwords.archive.store import Archive, KeptFile
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher
from ownwords.core.errors import CorpusError
from ownwords.core.text import distinct, hash_words, sentences, shingles
from ownwords.drafts.mark_choices import MarksFile, Rule
from ownwords.drafts.rewriting import MARKS, Habits
from ownwords.evaluation.manner import (
    Floats,
    Habit,
    ReferenceManner,
    TextCounts,
    count_text,
    habits_of,
    lengths_of,
    rates,
)
from ownwords.evaluation.style import (
    LANGUAGES_OF_OTHERS,
    REFERENCE,
    judged_language,
    reference_file,
)
from ownwords.language.words import content_words, is_in_the_language, language

_KEPT_FILE, _KEPT_FORMAT = "voice.json", "5"
_MIN_WORDS = 1000  # of the author's
_GENERAL, _USUAL = 0.6, 0.75  # share of others who have a word that depends on no topic
_SPREAD = 0.75  # of posts, of the number that chance would give: "above", not "function"
_CHOICE_CHARS = 400_000  # of posts, to learn which of several forms the author uses
_PHRASE_WORDS = (5, 4, 3)
_PASSAGES_SHARE = 0.6  # of the words of a card
_MIN_PASSAGES, _MAX_PASSAGES = 5, 10
_PASSAGE_WORDS = (50, 160)
_MAX_FORMS = 14
_FOUND = 60  # passages of the search that are looked at
_PER_PARAGRAPH = (
    *("Question marks", "Exclamation marks", "Parentheses", "Dashes", "Colons", "Semicolons"),
    "Commas",
)
_EXAMPLE_WORDS = (5, 22)  # of a sentence that shows a habit
_EXAMPLE_POSTS, _EXAMPLE_SENTENCES = 60, 3000  # that are looked at for them
_NO_EXAMPLE = re.compile(r"[`{}<>|%=_]|https?:|\n|\w[(./]\w|:\Z")
_EXEMPLARY = ("openings", "joining", "attitude", "marks", "asides")  # groups with examples
_NO_PROSE = re.compile(r"[`{}<>|]|https?:|\n")
_QUOTED = re.compile(r"[“\"][^”\"]*[”\"]")
_PHRASE = re.compile(r"[\w'’]+(?: (?:I(?:['’]\w+)?|[^\WA-Z][\w'’]*))*")  # no titles of books
GROUPS = {
    "lengths": "Sentences and paragraphs",
    "openings": "How sentences begin",
    "person": "Person and contractions",
    "joining": "Connecting words",
    "attitude": "Attitude",
    "marks": "Punctuation",
    "asides": "Asides and jokes",
    "ends": "How posts begin and end",
}


@dataclass(frozen=True, slots=True)
class Portrait:
    """What is counted in the posts of an author."""

    key: str  # of what was counted
    name: str  # of the blog
    words: int
    posts: int
    sentences: tuple[int, int, int]  # words: one in ten shorter, the middle, one in ten longer
    paragraphs: tuple[int, int, int]
    titles: str
    habits: tuple[Habit, ...]
    examples: dict[str, str]  # a sentence of the author's for the label of a habit
    choices: tuple[str, ...]  # of equivalent forms
    favourites: tuple[str, ...]  # words used twice as often as by others, whatever the subject
    avoided: tuple[str, ...]  # usual words that they never use
    machine_words: tuple[str, ...]  # words of language models that they hardly use
    phrases: tuple[str, ...]
    language: str = "en"
    other_posts: int = 0  # in other languages, which are not counted

    @property
    def per_paragraph(self) -> list[str]:
        """What a paragraph of median length has, on average."""
        words, rates = self.paragraphs[1], {each.label: each.own for each in self.habits}
        sentences = max(1.0, words / rates["Words in a sentence"])
        short = next(label for label in rates if label.startswith("Sentences of up to"))
        expected = {"sentences": sentences, "short sentences": sentences * rates[short]}
        expected |= {label.lower(): words * rates[label] for label in _PER_PARAGRAPH}
        return [
            f"{label}: {number:.0f}" if number >= 1.5 else f"{label}: {_now_and_then(number)}"
            for label, number in expected.items()
        ]


def _now_and_then(number: float) -> str:
    """Return how often something is in a paragraph that has less than two of it."""
    if number >= 0.75:
        return "1"
    return f"1 per {1 / number:.0f} paragraphs" if number >= 0.01 else "none"


@dataclass(frozen=True, slots=True)
class VoicePassage:
    """A whole passage of the author."""

    text: str
    post: str  # its id
    title: str
    day: str


@dataclass(frozen=True, slots=True)
class VoiceCard:
    """How the author writes: what is counted, and passages."""

    portrait: Portrait
    passages: tuple[VoicePassage, ...]
    max_words: int  # approximate
    rules: tuple[Rule, ...] = ()

    @property
    def text(self) -> str:
        """The card as text: what to do, in plain sentences, and what to write like."""
        return "\n".join(self._lines()).strip() + "\n"

    def _lines(self) -> Iterator[str]:
        own = self.portrait
        yield f"# How the author writes, counted in {own.words:,} words of {own.posts:,} posts"
        yield ""
        if own.language != "en" or own.other_posts:
            besides = f"; {own.other_posts:,} posts in other languages are left out"
            name = language(own.language)["name"]
            yield f"The author writes in {name}{besides if own.other_posts else ''}."
        yield (
            "Write so that counts of your text would give these figures. “Others” are other"
            " people who write today. Figures without % are per 1,000 words, except lengths."
        )
        yield "\n## Sentences and paragraphs"
        low, middle, high = own.sentences
        sentence = next(each for each in own.habits if each.label == "Words in a sentence")
        yield (
            f"- Sentences: median {middle} words, one in ten shorter than {low}, one in ten"
            f" longer than {high}; average {sentence.said(sentence.own)}, others"
            f" {sentence.said(sentence.middle)}. Vary the length as the passages below do."
        )
        low, middle, high = own.paragraphs
        yield f"- Paragraphs: median {middle} words, one in ten longer than {high}"
        yield f"- On average, a paragraph of {middle} words has: {', '.join(own.per_paragraph)}"
        shown = self._habits()
        for group, heading in GROUPS.items():
            lines = [self._line(each) for each in shown if each.group == group]
            if lines and group != "lengths":
                yield f"\n## {heading}"
            yield from lines
        yield "\n## Words and forms"
        yield f"- Titles: {own.titles}"
        yield from (f"- {each}" for each in own.choices)
        yield from (f"- “{each.write}” not “{each.instead_of}”" for each in self.rules)
        for label, words in (
            ("Words used more than twice as often as by others", own.favourites),
            ("Set phrases", own.phrases),
            ("Words never used, though others use them", own.avoided),
            ("Words hardly used, though language models like them", own.machine_words),
        ):
            if words:
                yield f"- {label}: {', '.join(words)}"
        yield "\n## Passages by the author: write like these, about something else"
        yield from (f"\n{passage.text}" for passage in self.passages)

    def _line(self, habit: Habit) -> str:
        example = self.portrait.examples.get(habit.label)
        return f"- {habit}, such as: {example}" if example else f"- {habit}"

    def _habits(self) -> list[Habit]:
        """Return the habits that tell the author apart most, as many as there is room for."""
        found = [each for each in self.portrait.habits if each.label != "Words in a sentence"]
        marked = [each for each in found if each.is_marked]
        marked.sort(key=lambda each: -each.distance)
        number = max(8, int(self.max_words * (1 - _PASSAGES_SHARE) / 20))
        chosen = {each.label + each.group for each in marked[:number]}
        return [each for each in self.portrait.habits if each.label + each.group in chosen]

    @property
    def skill(self) -> str:
        """Return the card as SKILL.md, which agents read when they are asked to write."""
        name = re.sub(r"[^a-z0-9]+", "-", self.portrait.name.lower()).strip("-")[:40] or "me"
        about = f"Write in the voice of the author of {self.portrait.name or 'this blog'}"
        front = f"---\nname: write-like-{name}\ndescription: {_one_line(about)}. Use it for posts,"
        return f"{front} drafts and rewriting.\n---\n\n{LOOP}\n{self.text}"

    def modelfile(self, base: str = "gemma3:4b") -> str:
        """Return the card as the system prompt of a model in Ollama."""
        system = f"{_TASK}\n\n{self.text}".replace('"""', "“")
        return (
            f"# ollama create in-my-voice -f Modelfile\nFROM {base}\n"
            f'PARAMETER num_ctx 8192\nSYSTEM """{system}"""\n'
        )


_TASK = (
    "You write for one author, in the author’s voice, as the card below describes it. Keep every"
    " number, name, quotation and “not” of the notes or the draft that you are given, and add no"
    " facts. Take the manner of the passages and not their subject; never copy ten words in a row."
)
LOOP = f"""{_TASK}

1. Write the text, following the card.
2. Check it once, with `ownwords check draft.txt --json` or the tool `check` of `ownwords mcp`.
   Compare the facts with the notes, with the tool `facts_kept`.
3. Put lost facts back, and reword what is copied from a post. Change a marked sentence only if the
   reason names words or a habit and the sentence does not get worse: do not write to please the
   figure.
4. Show the text, and say what is still marked.
"""


@dataclass(frozen=True, slots=True)
class _Named:
    """The part of a report that names the blog."""

    name: str = ""


def _one_line(text: str) -> str:
    return " ".join(text.replace(":", " ").split())


def voice_card(archive: Archive, about: str = "", words: int = 1200) -> VoiceCard:
    """Return a card of about `words` words on how the author writes, for a task if given."""
    report = msgspec.json.decode(archive.get_meta("report") or "{}", type=_Named)
    name = new_name(archive.path.parent) or report.name
    documents = _documents(archive)
    files = (REFERENCE / reference_file("manner", code) for code in LANGUAGES_OF_OTHERS)
    counts = (file.read_bytes() for file in files)
    kept = KeptFile.of(archive, _KEPT_FILE, _KEPT_FORMAT, name, *counts)
    portrait, decided = _portrait(kept, name, documents), MarksFile.beside(archive.path)()
    code, room = portrait.language, words * _PASSAGES_SHARE
    found = tuple(_passages(archive, documents, code, about, room))
    is_own = decided.allowed.__contains__
    portrait = replace(
        portrait,
        avoided=tuple(filterfalse(is_own, portrait.avoided)),
        machine_words=tuple(filterfalse(is_own, portrait.machine_words)),
    )
    return VoiceCard(portrait, found, words, decided.rule)


def passages(archive: Archive, about: str, words: int) -> tuple[VoicePassage, ...]:
    """Return passages of the author near a task, unlike each other, of about `words` words."""
    documents = _documents(archive)
    code = judged_language(_prose_of(documents))
    return tuple(_passages(archive, documents, code, about, words))


def _documents(archive: Archive) -> list[Document]:
    """Return the published posts that are trained on."""
    selection = archive.selection()
    used = {id_ for id_, row in selection.items() if row[0] != "leave out" and row[2] == "train"}
    return [each for each in archive.documents(used) if each.status == "published"]


def _prose_of(documents: Sequence[Document]) -> list[str]:
    return [each.text(frozenset({"prose"})) for each in documents]


def _portrait(kept: KeptFile, name: str, documents: Sequence[Document]) -> Portrait:
    """Count the posts, or read what was counted."""
    with suppress(msgspec.DecodeError):  # none yet, or damaged
        counted = msgspec.json.decode(kept.read(), type=Portrait)
        if counted.key == kept.key:
            return counted
    portrait = replace(_count(documents), key=kept.key, name=name)
    kept.write(msgspec.json.encode(portrait))
    return portrait


def _count(documents: Sequence[Document]) -> Portrait:
    every = _prose_of(documents)
    code = judged_language(every)
    reference = ReferenceManner.load(code)
    pairs = [(text, count_text(text, code)) for text in every]
    pairs = [(text, each) for text, each in pairs if reference.is_in_the_language(each)]
    texts, counted = [text for text, _ in pairs], [each for _, each in pairs]
    total = sum(each.words.total() for each in counted)
    if documents and not counted:
        raise CorpusError(
            "your posts are not in English, German, French or Spanish, the only languages in which"
            " ownwords can describe how you write"
        )
    if total < _MIN_WORDS:
        raise CorpusError(
            f"{total:,} of your own words are too few to describe how you write; about 1,000"
            " are needed",
            hint="add posts, and read the blog again: ownwords look PATH",
        )
    favourites, avoided, machine_words = _telling_words(counted, reference)
    habits = habits_of(*rates(counted), reference)
    step = max(1, sum(map(len, texts)) // _CHOICE_CHARS)
    sentences, paragraphs = (_spread(each) for each in lengths_of(counted))
    return Portrait(
        key="",
        name="",
        words=total,
        posts=len(texts),
        sentences=sentences,
        paragraphs=paragraphs,
        titles=_titles([each.title for each in documents if each.title]),
        habits=habits,
        examples=_examples(texts, habits, code),
        choices=tuple(_choices(Habits(texts[::step], code), code)),
        favourites=favourites,
        avoided=avoided,
        machine_words=machine_words,
        phrases=_phrases(texts, reference),
        language=code,
        other_posts=len(documents) - len(texts),
    )


def _spread(lengths: Floats) -> tuple[int, int, int]:
    low, middle, high = np.quantile(lengths, (0.1, 0.5, 0.9)).round().astype(int).tolist()
    return low, middle, high


def _titles(titles: Sequence[str]) -> str:
    sizes = [len(title.split()) for title in titles] or [0]
    asked = sum(title.rstrip().endswith("?") for title in titles) / max(1, len(titles))
    parted = sum(": " in title for title in titles) / max(1, len(titles))
    later = [word for title in titles for word in title.split()[1:] if word[0].isalpha()]
    capitals = sum(word[0].isupper() for word in later) / max(1, len(later))
    case = "title case" if capitals > 0.6 else "sentence case"
    found = f"median {np.median(sizes):.0f} words, {case if later else 'one word each'}"
    found += f"; {asked:.0%} are questions" if asked >= 0.05 else ""
    return found + (f"; {parted:.0%} have a colon" if parted >= 0.1 else "")


def _examples(texts: Sequence[str], habits: Sequence[Habit], code: str) -> dict[str, str]:
    """Return a short sentence for each habit that the author has more than others."""
    wanted = {
        n: habit.label
        for n, habit in enumerate(habits)
        if habit.group in _EXEMPLARY and habit.is_marked and habit.own > habit.middle
    }
    found = dict[str, str]()
    every = texts[:: max(1, len(texts) // _EXAMPLE_POSTS)]  # from all times
    found_sentences = (text[start:end] for text in every for start, end in sentences(text))
    for sentence in islice(found_sentences, _EXAMPLE_SENTENCES):
        least, most = _EXAMPLE_WORDS
        if not least <= len(sentence.split()) <= most or _NO_EXAMPLE.search(sentence):
            continue
        counts = count_text(sentence, code).counts
        if (n := next((n for n in wanted if counts[n]), None)) is not None:
            found[wanted.pop(n)] = sentence
        if not wanted:
            break
    return found


def _choices(habits: Habits, code: str) -> Iterator[str]:
    """Yield which of several equivalent forms the author uses."""
    words = list[str]()
    british, american = habits.spellings()
    if total := british + american:
        name = "British" if british > american else "American"
        yield f"Spelling: {name} ({max(british, american):,} of {total:,})"
    elif code == "en":
        yield "Spelling: no word shows whether it is American or British"
    for kind, form, others, count, total in sorted(habits.choices(), key=lambda each: -each[3]):
        of = f"{count:,} of {total:,}"
        if kind == "numerals":
            yield f"Numbers from 2 to 12: in {form} ({of})"
        elif kind in MARKS:
            yield f"{kind.capitalize()}: “{form}” ({of})"
        elif kind != "spelling":
            words.append(f"“{form}” not “{others}”")
    if words:
        yield f"Preferred forms: {', '.join(words[:_MAX_FORMS])}"


def _telling_words(
    counted: Sequence[TextCounts], reference: ReferenceManner
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the words used far more than by others, those never used, and those of machines.

    A word of one topic is concentrated in few posts: it is left out if it is in less than
    `_SPREAD` of the number of posts that a random spread would give.
    """
    own, posts = Counter[str](), Counter[str]()
    for text in counted:
        own.update(text.words)
        posts.update(text.words.keys())
    total = own.total() / 1e6
    count = np.array([own[word] for word in reference.words], float)
    in_posts = np.array([posts[word] for word in reference.words])
    lengths = np.array([text.words.total() for text in counted])
    by_chance = sum(1 - np.exp(-count * length / own.total()) for length in lengths)
    is_spread = in_posts >= np.maximum(_SPREAD * by_chance, max(5, 0.08 * len(counted)))
    people, machines = reference.by_people * total, reference.by_machines * total
    usual = reference.spread >= _USUAL

    def best(score: Floats, mask: npt.NDArray[np.bool_], most: int) -> tuple[str, ...]:
        order = np.argsort(-np.where(mask, score, -np.inf), kind="stable")[:most]
        return tuple(reference.words[n] for n in order if mask[n])

    more = np.log((count + 1) / (people + 1))
    is_more = usual & (count > 2 * people) & is_spread
    z = (count - people) / np.sqrt(people + 1)
    never = (count == 0) & (people > 6) & usual
    of_machines = (machines > 3 * count + 6) & (machines > 2 * people) & ~never
    return (
        best(more * np.sqrt(np.maximum(z, 0)), is_more, 24),
        best(people, never, 24),
        best(machines - people, of_machines, 16),
    )


def _phrases(texts: Sequence[str], reference: ReferenceManner) -> tuple[str, ...]:
    """Return runs of words, none about a topic, that are in many posts and more often than chance.

    They are ranked by the pointwise mutual information of their words, in nats, times the square
    root of the number of posts.
    """
    general = {w for w, n in zip(reference.words, reference.spread, strict=True) if n >= _GENERAL}
    hashed = [hash_words(text) for text in texts]
    words, counts = np.unique(np.concatenate([each.hashes for each in hashed]), return_counts=True)
    logs = np.log(counts / counts.sum())
    found = list[tuple[float, str]]()
    for length in _PHRASE_WORDS:
        runs = [shingles(each.hashes, length) for each in hashed]
        kinds, posts = np.unique(np.concatenate(list(map(distinct, runs))), return_counts=True)
        frequent = kinds[posts >= max(4, 0.02 * len(texts))]
        in_all = np.concatenate(runs)
        every = Counter(in_all[np.isin(in_all, frequent)].tolist())
        in_posts = dict(zip(kinds.tolist(), posts.tolist(), strict=True))
        seen = set[int]()
        for text, run, each in zip(texts, runs, hashed, strict=True):
            for at in np.flatnonzero(np.isin(run, frequent)).tolist():
                kind = int(run[at])
                phrase = text[each.starts[at] : each.ends[at + length - 1]]
                if kind in seen or not _PHRASE.fullmatch(phrase):
                    continue
                seen.add(kind)
                if general.issuperset(phrase.lower().replace("’", "'").split()):
                    alone = logs[np.searchsorted(words, each.hashes[at : at + length])].sum()
                    together = np.log(every[kind] / counts.sum()) - alone
                    found.append((float(np.sqrt(in_posts[kind]) * together), phrase))
    chosen, taken = list[str](), set[str]()
    for _, phrase in sorted(found, reverse=True):
        parts = phrase.lower().split()
        threes = {" ".join(parts[n : n + 3]) for n in range(len(parts) - 2)}
        if len(chosen) < 16 and taken.isdisjoint(threes):
            taken |= threes
            chosen.append(phrase)
    return tuple(chosen)


# ---- passages


def _passages(
    archive: Archive, documents: Sequence[Document], code: str, about: str, room: float
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
        and segment.text.rstrip('”’")_*').endswith((".", "!", "?", "…"))
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
    frequent = ReferenceManner.load(code).frequent
    used, number = set[str](), 0
    like = np.zeros(len(found))
    while number < _MAX_PASSAGES and found:
        best = int(np.argmax(score - 0.5 * like))
        if not np.isfinite(score[best]):
            return
        passage, size = found[best], len(found[best].text.split())
        score[best] = -np.inf
        if not is_in_the_language([passage.text], frequent):  # unlike a translation
            continue
        if passage.post in used or (number >= _MIN_PASSAGES and size > room):
            continue
        yield passage
        used.add(passage.post)
        number += 1
        room -= size
        overlap = [len(topic & topics[best]) / max(1, len(topics[best])) for topic in topics]
        like = np.maximum(like, overlap)


def _near(archive: Archive, about: str) -> dict[str, float]:
    """Return how near each post is whose passages the search finds: 1 for the best."""
    with SearchIndex(archive.path) as index:
        index.refresh()
        passages = ArchiveSearcher(index, None).find(about, _FOUND).passages
    posts = dict.fromkeys(each.document for each in passages)
    return {post: 1 - n / len(posts) for n, post in enumerate(posts)}
