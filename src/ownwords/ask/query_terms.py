"""Extracts the words and phrases to search for from a question."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ownwords.archive.text_repair import repair_text
from ownwords.ask.chunks import visible
from ownwords.ask.stop_words import is_written_out, language_stop_words, without_particles

# Longer texts are cut; their beginning says what they are about.
_LONGEST = 10_000  # characters
MOST_WORDS = 64

# Letters and digits, with the vowel marks of India and South-East Asia. Terms are passed to FTS5 in
# quotes, so they must not contain operators or quotation marks.
_WORD = re.compile(
    "(?:[^\\W_]|[\u064b-\u065f\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])+"
)
_UNSPACED = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|„([^“”]+)[“”]|«([^»]+)»|‘([^’]+)’(?!\w)|\A\'(.+)\'\Z')
_NOT = re.compile(r"(?<=\w)n['’]t\b", re.IGNORECASE)
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")

OVERVIEW = (
    "a search finds passages about something in particular and cannot summarise the whole archive;"
    " the report does"
)
# Questions about the whole archive, which no passage answers.
_OVERVIEW = re.compile(
    r"\b(?:summari[sz]e|summary|overview|sum up|main (?:themes?|topics?|subjects?))\b"
    r"|\bwhat (?:is|are) (?:my|this|the) (?:blog|archive|site|posts|writing) (?:\w+ )?about\b",
    re.IGNORECASE,
)
# Stop words; searched for only if the question has no others.
_EMPTY = frozenset(
    """
    a about after again against ain all also although always am among an and another any anybody
    anyhow anyone anything anywhere are arent as at be because been before being between both but
    by ca can cant could couldnt d did didnt do does doesnt doing don done dont during each else
    ever every everybody everyone everything everywhere few for from get gets getting go goes
    going got had hadnt has hasnt have havent having he her here hers herself him himself his how
    however i if im in instead into is isnt it its itself ive just kind know like ll m made make
    makes making many may me might mine more most much must my myself never no nobody none nor not
    nothing now nowhere of off often on once one ones only or other our ours ourselves out over
    own please quite re really s sha shall she should shouldnt since so some somebody somehow
    someone something somewhere sort still such supposed t take taken tell than that the their
    theirs them themselves then there these they thing things this those though through to
    together too toward towards try under until up upon us use used ve very was wasnt way we well
    went were werent what whatever when where whether which while who whoever whom whose why will
    with within without wo wont would wouldnt yes yet you your youre yours yourself yourselves
    youve
    """.split()  # noqa: SIM905 - to be read
)
# Words about posts in general; searched for only if the question has no others.
_OF_ANY_POST = frozenset(
    """
    archive article articles author blog blogs column columns describe described discuss discussed
    entries entry essay essays explain explained find found journal mention mentioned mentions note
    notes opinion opinions page pages paragraph passage piece pieces post posted posting posts read
    remember said say saying says talk talked talking talks text texts think thinking thought
    thoughts told topic topics view views wonder wondered write writes writing written wrote
    """.split()  # noqa: SIM905
)


# Irregular English forms, which the stemmer of the index does not conflate.
_FORMS = """
    beat beaten, become became, begin began begun, bend bent, bet, bind bound, bite bit bitten,
    bleed bled, blow blew blown, break broke broken, bring brought, build built, burn burnt,
    buy bought, catch caught, child children, choose chose chosen, come came, creep crept,
    deal dealt, die died dying, dig dug, draw drew drawn, dream dreamt, drink drank drunk,
    drive drove driven, eat eaten, fall fell fallen, feed fed, feel felt, fight fought,
    find found, flee fled, fly flew flown, foot feet, forbid forbade forbidden,
    forget forgot forgotten, forgive forgave forgiven, freeze froze frozen, give gave given,
    goose geese, grind ground, grow grew grown, half halves, hang hung, hear heard,
    hide hid hidden, hold held, keep kept, kneel knelt, knife knives, lay laid, lead led,
    leaf leaves, lean leant, leap leapt, learn learnt, leave left, lend lent, lie lay lain lying,
    life lives, light lit, loaf loaves, lose lost, man men, mean meant, meet met, mouse mice,
    pay paid, ride rode ridden, ring rang rung, rise rose risen, run ran, see saw seen,
    seek sought, sell sold, send sent, sew sewn, shake shook shaken, shelf shelves,
    shine shone, shoot shot, show shown, shrink shrank shrunk, sing sang sung, sink sank sunk,
    sit sat, sleep slept, slide slid, smell smelt, sow sown, speak spoke spoken, spell spelt,
    spend spent, spill spilt, spin spun, split, spoil spoilt, spring sprang sprung,
    stand stood, steal stole stolen, stick stuck, sting stung, strike struck, strive strove,
    swear swore sworn, sweep swept, swim swam swum, swing swung, teach taught, tear tore torn,
    thief thieves, throw threw thrown, tie tied tying, tooth teeth, tread trod trodden,
    wake woke woken, wear wore worn, weave wove woven, weep wept, wife wives, win won,
    wind wound, wolf wolves, woman women
"""
_SAME: dict[str, tuple[str, ...]] = {}
for _line in _FORMS.split(","):
    for _form in _line.split():
        _SAME[_form] = (
            *_SAME.get(_form, ()),
            *(other for other in _line.split() if other != _form),
        )


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word or a phrase to search for; `alternatives` are searched for as well."""

    words: tuple[str, ...]
    alternatives: tuple[str, ...] = ()

    @property
    def match(self) -> str:
        """The term as an FTS5 query of quoted strings."""
        forms = forms_of(self.words[0]) if len(self.words) == 1 else ()
        all_words = (" ".join(self.words), *forms, *self.alternatives)
        query = " OR ".join(f'"{form}"' for form in all_words)
        return f"({query})" if len(all_words) > 1 else query

    @property
    def label(self) -> str:
        """The term as in the question; without spaces between Chinese characters."""
        return ("" if _UNSPACED.fullmatch("".join(self.words)) else " ").join(self.words)


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """The content words and the quoted phrases of a question.

    `has_subject` is False if it has only stop words, `is_bare` True if it has nothing but `words`.
    `language` is "en" if in doubt.
    """

    words: tuple[QueryTerm, ...]
    phrases: tuple[QueryTerm, ...]
    has_subject: bool
    language: str = "en"
    is_bare: bool = False

    @classmethod
    def of(cls, question: str) -> "QueryTerms":
        """The terms of a question."""
        text = normalized_question(question)
        all_words = _words(without_particles(text)) or _words(text)
        language, empty = detect_stop_words([unit[0] for unit in all_words])
        content_words = _content_words(all_words, empty)
        words = list(dict.fromkeys(QueryTerm(unit) for unit in all_words if unit in content_words))
        words = words[:MOST_WORDS]
        phrases = [
            QueryTerm(tuple(part for unit in _words(quotation) for part in unit))
            for quotation in quotations(text)
        ]
        return cls(
            tuple(words),
            tuple(dict.fromkeys(phrase for phrase in phrases if phrase.words)),
            any(unit[0] not in (_EMPTY if language == "en" else empty) for unit in all_words),
            language,
            {part for unit in _words(text) for part in unit}
            <= {part for word in words for part in word.words},
        )


def normalized_question(question: str) -> str:
    """The question on one line, without invisible characters, shortened."""
    return " ".join(visible(repair_text(question[:_LONGEST])[0]).split())


def is_content_word(word: str) -> bool:
    """Whether a word is neither a stop word nor a word about posts in general."""
    return word.casefold() not in _EMPTY | _OF_ANY_POST


def detect_stop_words(words: Sequence[str]) -> tuple[str, frozenset[str]]:
    """The language of lower-case words, and its stop words."""
    return language_stop_words(words, _EMPTY | _OF_ANY_POST)


def asks_for_overview(question: str) -> bool:
    """Whether a question is about the whole archive, which no passage answers."""
    return _OVERVIEW.search(question) is not None


def forms_of(word: str) -> tuple[str, ...]:
    """The irregular forms of an English word: "kept" for "keep"."""
    return _SAME.get(word.lower(), ())


def words_of(text: str) -> list[str]:
    """Every word of a text, in order."""
    return [part for unit in _words(normalized_question(text)) for part in unit]


def quotations(question: str) -> list[str]:
    """The parts in quotation marks."""
    marked = _QUOTED.finditer(normalized_question(question))
    return [next(filter(None, match.groups())) for match in marked]


def _words(text: str) -> list[tuple[str, ...]]:
    """The words in order; pairs of characters for scripts without spaces."""
    units: list[tuple[str, ...]] = []
    for word in _WORD.findall(_APOSTROPHE.sub(" ", _NOT.sub(" ", text))):
        start = 0
        for run in _UNSPACED.finditer(word):
            if before := word[start : run.start()]:
                units.append((before.lower(),))
            signs = run[0]
            units += list(pairwise(signs)) if len(signs) > 1 else [(signs,)]
            start = run.end()
        if rest := word[start:]:
            units.append((rest.lower(),))
    return units


def _content_words(all_words: list[tuple[str, ...]], empty: frozenset[str]) -> set[tuple[str, ...]]:
    for ignored in (empty, _EMPTY):
        left = {unit for unit in all_words if unit[0] not in ignored}
        if left:
            return {unit for unit in left if not is_written_out(unit)} or left
    return set(all_words)
