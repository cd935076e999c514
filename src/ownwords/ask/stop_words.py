"""Stop words of questions in languages other than English; `query_terms` has the English ones."""

import re
from collections.abc import Sequence
from typing import Final

# They include words about posts in general: "geschrieben", "artykuł".
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
OTHERS: Final = tuple(_WORDS.values())

# Chinese stop words, which no spaces delimit; single characters only if few words contain them.
_PARTICLES = re.compile(
    "为什么|为何|什么时候|什么|怎么样|怎么|怎样|如何|哪里|哪儿|哪个|哪些|哪|谁|多少|有没有|没有|"
    "是不是|关于|对于|我们|你们|他们|我|你|您|的|了|吗|呢|是|说过|写过|说了|写了|提到|看法|文章|博客"
)
_KANA = re.compile("[\u3040-\u309f]")


def language_stop_words(
    words: Sequence[str], english: frozenset[str]
) -> tuple[str, frozenset[str]]:
    """The language of most of the words, "en" if in doubt, and its stop words."""
    most, language, empty = sum(word in english for word in words), "en", english
    for name, known in _WORDS.items():
        if (matches := sum(word in known for word in words)) > most:
            most, language, empty = matches, name, known
    return language, empty


def without_particles(text: str) -> str:
    """A Chinese question with spaces in place of its stop words."""
    return text if text.isascii() or _KANA.search(text) else _PARTICLES.sub(" ", text)


def is_written_out(unit: Sequence[str]) -> bool:
    """Whether single characters include hiragana, as Japanese endings and particles do."""
    return all(len(sign) == 1 for sign in unit) and any(map(_KANA.match, unit))
