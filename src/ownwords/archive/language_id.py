"""Identify the language of a text by its script or its most frequent words."""

import re
from typing import Final

MIN_WORDS: Final = 25  # shorter texts are not identified
_SAMPLE_CHARACTERS = 6_000
_MIN_SHARE = 0.1  # minimum share of the text's words in a language's list
_MARGIN = 1.4  # minimum ratio to the next language's share
_WORDS = re.compile(r"[^\W\d_]+")
# Words common in any text of a language, chosen to tell related languages apart.
_FREQUENT: Final = {
    language: frozenset(words.split())
    for language, words in {
        "English": "the and of to that is it was for with as his he be not by but have are which",
        "German": "der die und das ist nicht ich sich auch mit dem den ein eine auf wird noch war",
        "Dutch": "de het een van en niet dat ik zijn voor met aan ook maar bij nog wel geen naar",
        "Swedish": "och att det som en på är av för med den till inte har jag ett om var så men",
        "Danish": "og at det som en på er af for med den til ikke har jeg et om var så men",
        "French": "le la les des et est que dans une pour pas qui sur avec plus vous nous cette au",
        "Spanish": "el la los las que y en del se por con una para es lo como pero más su al",
        "Italian": "il la che di e non per un una del sono con anche della nel gli più ma questo",
        "Portuguese": "o os as que e do da em um uma para com não mas por mais se dos na no",
        "Polish": "i w nie na się z do to że jest jak ale po co tak za od przez tylko już",
        "Czech": "a se na je že v to s z do jako ale si byl jsem by po pro které tak",
        "Hungarian": "a az és hogy nem egy is de van ez meg csak volt el már mint még",
        "Turkish": "ve bir bu da de için ile çok daha ne gibi olarak ama kadar sonra var",
        "Finnish": "ja on ei se että hän oli mutta kun niin kuin jos ovat ole joka myös",
        "Russian": "и в не на что я с он как это по но из за так все она бы же от",
        "Ukrainian": "і в не на що я з він як це до але за так усе вона та її від",
    }.items()
}
_SCRIPTS: Final = (
    ("Japanese", re.compile(r"[\u3040-\u30ff]")),
    ("Chinese", re.compile(r"[\u4e00-\u9fff]")),
    ("Korean", re.compile(r"[\uac00-\ud7af]")),
    ("Greek", re.compile(r"[\u0370-\u03ff]")),
    ("Hebrew", re.compile(r"[\u0590-\u05ff]")),
    ("Arabic", re.compile(r"[\u0600-\u06ff]")),
    ("Hindi", re.compile(r"[\u0900-\u097f]")),
    ("Thai", re.compile(r"[\u0e00-\u0e7f]")),
)


def identify_language(text: str) -> str:
    """The English name of a text's language; empty if the text is too short or unknown."""
    sample = text[:_SAMPLE_CHARACTERS]
    letters = sum(map(len, _WORDS.findall(sample)))
    for language, script in _SCRIPTS:
        if letters >= MIN_WORDS and len(script.findall(sample)) > letters / 4:
            return language
    words = [word.lower() for word in _WORDS.findall(sample)]
    if len(words) < MIN_WORDS:
        return ""
    shares = sorted(
        (sum(word in frequent for word in words) / len(words), language)
        for language, frequent in _FREQUENT.items()
    )
    (second, _), (best, language) = shares[-2:]
    return language if best >= max(_MIN_SHARE, _MARGIN * second) else ""
