"""The words and phrases that a question searches for: stop words, irregular forms."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ownwords.archive.text_repair import repair_text

# Stop words of languages other than English. They include words about posts in general:
# "geschrieben", "artykuł".
_LISTS: Final[dict[str, str]] = {
    "de": """
        aber alle als also am an ans auch auf aus bei beim bin bis bist da damals damit dann das
        dass dazu dein dem den denn der des dich die dies diese diesem diesen dieser dieses dir
        doch dort du durch ein eine einem einen einer eines einmal er es etwas euch für gab gar
        gegen gehabt gewesen habe haben hab hat hatte hatten hier ich ihm ihn ihnen ihr ihre
        ihrem ihren im immer in ins ist ja jede jeder jedes kann kannst kein keine keinen konnte
        machen man mehr mein meine meinem meinen meiner meines mich mir mit muss musste nach
        nicht nie noch nur ob oder ohne schon sehr sein seine seinem seinen seiner seit sich sie
        sind so soll über um und uns unser unsere unserem unseren unter viel viele vom von vor
        wann war waren warum was welche welchem welchen welcher welches wem wen wenn wer werden
        weshalb wie wieder wieso wir wird wo woher wohin worüber wurde wurden zu zum zur artikel
        beitrag beiträge denke erwähnt gedacht geschrieben gesagt meinung schreibe schreiben
        schrieb text texte thema alles jemand jemandem jemanden niemand niemandem niemanden
        nichts irgendwas irgendwer irgendwo selbst euer eure eurem euren
    """,
    "pl": """
        a albo ale bardzo bez bo być był była było były by byłem byłam bym chyba ci ciebie co
        czego czemu czy czyj dla dlaczego do gdy gdzie go i ich ile im ja jaka jaki jakie jakich
        jak jako je jego jej jest jestem jeszcze już kiedy kim kogo komu kto która które którego
        której który których ku lub ma mam mamy mi miał miała mieć mną mnie moja moje mojego
        mojej moją mój mu my na nad nam nami nas nasz nasza nasze nich nie nim nią niż o od on
        ona oni ono po pod podczas ponieważ przed przez przy sam się skąd są ta tak tam tego tej
        ten też to tu twój ty tych tym u w we wasz więc wiele wszystko z za ze że artykuł blog
        blogu myślę myślałem napisałam napisałem napisać notka opinia pisałam pisałem piszę post
        postów sądzę tekst temat wpis wpisy wspominałam wspominałem wspomniałam wspomniałem ktoś
        kogoś nikt nikogo coś czegoś nic niczego wszyscy wszystkich każdy sobie siebie swój
        swoje
    """,
    "fr": """
        à ai aux avec avais avait avez avons as au ça car ce ceci cela ces cet cette chez
        comment dans de des depuis donc du elle elles en encore est et étais était eu eux fait
        il ils j je l la le les leur leurs lui m ma mais me mes moi mon même n ne ni nos notre
        nous on ont ou où par parce pas pendant plus pour pourquoi qu quand que quel quelle
        quelles quels qui quoi sa sans se ses si son sont suis sur t ta te tes toi ton très tu
        un une vos votre vous y article articles avis billet billets dit écrire écris écrit
        mentionné parlé pense pensé aucun aucune chacun personne quelqu quelque quelques rien
        tous tout toute toutes
    """,
    "es": """
        a al algo ante aquí así aún como con cómo cual cuál cuáles cuando cuándo cuánto cuántos
        cuántas de del desde donde dónde dos e el él ella ellas ellos en entre era es esa ese
        eso esta está estaba estas este esto estos fue ha había han hasta hay he la las le les
        lo los más me mi mí mis mucho muy ni no nos nosotros nuestra nuestro o para pero por
        porque qué que quien quién se sea ser si sí sin sobre son soy su sus también te tiene
        tengo todo tu tú tus un una uno unos y ya yo artículo artículos dije dicho entrada
        entradas escribí escrito hablé mencioné opinión pienso pensé tema texto alguien cada
        cualquiera nada nadie ninguno ti todas todos vosotros
    """,
    "it": """
        a ad ai al alla alle anche avevo c che chi ci ciò come con cosa cui da dal dalla dei del
        della delle dello di dove due e è ed era ero gli ha hanno ho i il in io l la le lei li
        lo loro lui ma mai me mi mia mie miei mio molto ne nei nel nella no noi non nostra
        nostro o per perché più poi qual quale quali quando quanta quante quanti quanto quel
        quella quello questa queste questi questo se sei si sì sono sta stato su sua sue sugli
        sui sul sulla suo ti tra tu tua tuo un una uno articolo articoli detto opinione penso
        pensato parlato scritto scrissi tema testo nessuno niente nulla ogni qualcosa qualcuno
        qualche stesso tutta tutte tutti tutto
    """,
    "pt": """
        a ao aos as às até com como da das de dela dele do dos e é ela elas ele eles em era essa
        esse esta está estava este eu foi há isso isto já lhe mais mas me meu meus minha minhas
        muito na nas não nem no nos nós nossa nosso num numa o onde os ou para pela pelo por
        porque qual quais quando quanto quantos quantas que quem se sem ser seu sua são só sobre
        também te tem tenho teu um uma você artigo artigos disse dito escrevi escrito falei
        mencionei opinião penso pensei tema texto algo alguém cada nada ninguém nenhum toda
        todas todo todos tudo
    """,
    "nl": """
        aan al als bij ben bent daar dan dat de deze die dit doen door dus een en er ge geen had
        haar heb hebben heeft hem het hier hij hoe hoeveel hun ik in is ja je jij jou kan kon
        maar me meer men met mij mijn moet na naar niet niets nog nu of om omdat onder ons onze
        ook op over te tegen toen tot u uit uw van vaak veel voor waar waarom wanneer waren was
        wat we welk welke werd wie wij wil worden zal ze zich zij zijn zo zonder zou artikel
        artikelen bericht denk dacht gedacht genoemd geschreven gezegd mening schreef schrijf
        stuk tekst alles elk elke ieder iedereen iemand iets niemand niks zelf
    """,
    "sv": """
        alla att av bara blev bli blir de dem den denna det detta dig din dina då där efter
        eller en ett ej från för ha hade han har hon hur här i inte ja jag kan kunde man med mer
        mig min mina mitt mot mycket ni nu när och om oss på sig sin sina sitt ska skulle som så
        till under upp ut vad var varför vart vem vi vid vilka vilken vilket vår våra vårt än är
        åt över artikel artiklar inlägg nämnt sa sagt skrev skriva skrivit text tycker tyckte
        tänker allt ingen inget inga någon något några själv varje
    """,
}
_WORDS: Final = {name: frozenset(words.split()) for name, words in _LISTS.items()}

# Chinese stop words, which no spaces delimit; single characters only if few words contain them.
_PARTICLES = re.compile(
    "为什么|为何|什么时候|什么|怎么样|怎么|怎样|如何|哪里|哪儿|哪个|哪些|哪|谁|多少|有没有|没有|"
    "是不是|关于|对于|我们|你们|他们|我|你|您|的|了|吗|呢|是|说过|写过|说了|写了|提到|看法|文章|博客"
)
_KANA = re.compile("[\u3040-\u309f]")


def without_particles(text: str) -> str:
    """A Chinese question with spaces in place of its stop words."""
    return text if text.isascii() or _KANA.search(text) else _PARTICLES.sub(" ", text)


def is_written_out(unit: Sequence[str]) -> bool:
    """Whether single characters include hiragana, as Japanese endings and particles do."""
    return all(len(sign) == 1 for sign in unit) and any(map(_KANA.match, unit))


# Invisible characters that the archive keeps because some scripts and emoji need a single one of
# them: text could be hidden in runs of these, and in tags, of which only flags are made.
_HIDDEN = re.compile(
    "(\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f)"
    "|[\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\U0001d173-\U0001d17a\U000e0000-\U000e01ef]+"
    "|[\u180b-\u180f\ufe00-\ufe0f]{2,}"
)
_BLANKS = re.compile("[\u2800\u2000-\u200a\u3000]")

# Longer texts are cut; their beginning says what they are about.
_LONGEST = 10_000  # characters
MAX_WORDS = 64

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
        text = normalized_question(question).lower()
        all_words = word_units(without_particles(text)) or word_units(text)
        language, empty = detect_stop_words([unit[0] for unit in all_words])
        content_words = _content_words(all_words, empty)
        words = list(dict.fromkeys(QueryTerm(unit) for unit in all_words if unit in content_words))
        words = words[:MAX_WORDS]
        phrases = [
            QueryTerm(tuple(part for unit in word_units(quotation) for part in unit))
            for quotation in quotations(text)
        ]
        return cls(
            tuple(words),
            tuple(dict.fromkeys(phrase for phrase in phrases if phrase.words)),
            any(unit[0] not in (_EMPTY if language == "en" else empty) for unit in all_words),
            language,
            {part for unit in word_units(text) for part in unit}
            <= {part for word in words for part in word.words},
        )


def visible(text: str) -> str:
    """The text without invisible characters."""
    return text if text.isascii() else _BLANKS.sub(" ", _HIDDEN.sub(r"\1", text))


def normalized_question(question: str) -> str:
    """The question on one line, without invisible characters, shortened."""
    return " ".join(visible(repair_text(question[:_LONGEST])[0]).split())


def is_content_word(word: str) -> bool:
    """Whether a word is neither a stop word nor a word about posts in general."""
    return word.casefold() not in _EMPTY | _OF_ANY_POST


def detect_stop_words(words: Sequence[str]) -> tuple[str, frozenset[str]]:
    """The language of most of the lower-case words, "en" if in doubt, and its stop words."""
    languages = {"en": _EMPTY | _OF_ANY_POST, **_WORDS}
    language = max(languages, key=lambda name: sum(word in languages[name] for word in words))
    return language, languages[language]


def asks_for_overview(question: str) -> bool:
    """Whether a question is about the whole archive, which no passage answers."""
    return _OVERVIEW.search(question) is not None


def forms_of(word: str) -> tuple[str, ...]:
    """The irregular forms of an English word: "kept" for "keep"."""
    return _SAME.get(word.lower(), ())


def words_of(text: str) -> list[str]:
    """Every word of a text, in order."""
    return [part for unit in word_units(normalized_question(text).lower()) for part in unit]


def quotations(question: str) -> list[str]:
    """The parts in quotation marks."""
    marked = _QUOTED.finditer(normalized_question(question))
    return [next(filter(None, match.groups())) for match in marked]


def word_units(text: str) -> list[tuple[str, ...]]:
    """The words in order; pairs of characters for scripts without spaces."""
    units: list[tuple[str, ...]] = []
    for word in _WORD.findall(_APOSTROPHE.sub(" ", _NOT.sub(" ", text))):
        start = 0
        for run in _UNSPACED.finditer(word):
            if before := word[start : run.start()]:
                units.append((before,))
            signs = run[0]
            units += list(pairwise(signs)) if len(signs) > 1 else [(signs,)]
            start = run.end()
        if rest := word[start:]:
            units.append((rest,))
    return units


def _content_words(all_words: list[tuple[str, ...]], empty: frozenset[str]) -> set[tuple[str, ...]]:
    for ignored in (empty, _EMPTY):
        left = {unit for unit in all_words if unit[0] not in ignored}
        if left:
            return {unit for unit in left if not is_written_out(unit)} or left
    return set(all_words)
