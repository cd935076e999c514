"""Words missing in the archive and their replacements."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ownwords.ask.answer import answer
from ownwords.ask.index import SearchIndex
from ownwords.ask.query import QueryTerms
from ownwords.ask.search import ArchiveSearcher, IndexVocabulary, WordSubstitution
from small_archives import Entry, put

ENGLISH = {
    "music": Entry("Lot 212", ("I bought a concertina at the auction in the rain.",)),
    "letters": Entry("Letters", ("They come from Ísafjörður, and the e-mail never does.",)),
    "weather": Entry("The glass", ("The barometer fell. A draught came in.",)),
    "cycle": Entry("Two wheels", ("The bicycle needs a new chain. My grandmother rode it.",)),
    "pot": Entry("A pot", ("The pot stood on the stove.",)),
}
OTHERS = {
    "gauge": Entry(
        "Der Regenmesser",
        ("Ich lese ihn jeden Morgen ab, auch wenn es nicht geregnet hat und mir kalt ist.",),
    ),
    "tram": Entry(
        "Die Straßenbahn",
        ("Sie fährt bis zum Friedhof und wieder zurück, und ich bin immer gern mit ihr gefahren.",),
    ),
    "copies": Entry(
        "Die Küche",
        ("Von jeder Datei habe ich drei Kopien, weil ich einmal keine hatte, als es so weit war.",),
    ),
    "fish": Entry("Karp w wannie", ("Przed świętami pływał karp, kosztował dziesięć złotych.",)),
    "cake": Entry("奶奶的蛋糕", ("做蛋糕需要黄油和面粉。",)),
    "library": Entry("静かな朝", ("図書館は朝から開いている。",)),
}


def searching(path: Path, posts: dict[str, Entry]) -> Iterator[ArchiveSearcher]:
    put(path, posts)
    with SearchIndex(path) as index:
        index.refresh()
        yield ArchiveSearcher(index)


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSearcher]:
    yield from searching(tmp_path_factory.mktemp("english") / "archive.sqlite", ENGLISH)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSearcher]:
    yield from searching(tmp_path_factory.mktemp("others") / "archive.sqlite", OTHERS)


@pytest.mark.parametrize(
    ("question", "document", "searched"),
    [
        ("concertena", "music", "concertina"),  # another letter
        ("concertinaa", "music", "concertina"),  # one too many
        ("barometr", "weather", "barometer"),  # one too few
        ("baromteer", "weather", "barometer"),  # two that changed places
        ("Isafjordur", "letters", "ísafjörður"),
        ("email", "letters", "e-mail"),
    ],
)
def test_an_unknown_word_is_replaced_by_a_near_one(
    english: ArchiveSearcher, question: str, document: str, searched: str
) -> None:
    result = english.find(question)
    assert [passage.document for passage in result.passages] == [document]
    assert not result.is_weak
    assert [substitution.replacements for substitution in result.substitutions] == [(searched,)]


@pytest.mark.parametrize(
    "question",
    [
        "drought",  # a word of its own, not a slip for "draught"
        "poet",  # not "pot" with an umlaut
        "rains and gains",  # too short to be a slip
        "zebra",
        "Quxibo",
    ],
)
def test_a_correct_word_is_not_replaced(english: ArchiveSearcher, question: str) -> None:
    assert english.find(question).substitutions == ()


@pytest.mark.parametrize(
    "question",
    [
        "Summarise my blog",
        "What is my blog about?",
        "What are my main themes?",
        "Give me a summary",
    ],
)
def test_a_question_about_the_whole_archive_is_not_searched_by_its_words(
    english: ArchiveSearcher, question: str
) -> None:
    result = answer(question, english)
    assert (result.answer, result.passages, result.nearest) == ("", (), ())
    assert "cannot summarise" in result.why
    assert "the report does" in result.why
    assert "No post contains" not in result.why


@pytest.mark.parametrize(
    ("question", "document"),
    [
        ("Straßenbahn", "tram"),
        ("STRASSENBAHN", "tram"),
        ("Wo habe ich über Regen geschrieben?", "gauge"),
        ("Wie viele Dateien habe ich?", "copies"),
        ("Kueche", "copies"),
        ("Co pisałem o karpiu?", "fish"),
        ("zlotych", "fish"),
        ("我奶奶怎么做蛋糕?", "cake"),
        ("図書館についてどう思いますか", "library"),
    ],
)
def test_questions_in_other_languages_find_their_posts(
    foreign: ArchiveSearcher, question: str, document: str
) -> None:
    result = foreign.find(question)
    assert result.passages[0].document == document
    assert not result.is_weak


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("Was habe ich über Elefanten geschrieben?", "no post contains “elefanten”"),
        ("Co myślę o polityce?", "no post contains “polityce”"),
        ("我写过关于火车的文章吗", "no post contains “火车”"),
    ],
)
def test_a_refusal_names_only_the_topic(foreign: ArchiveSearcher, question: str, why: str) -> None:
    result = foreign.find(question)
    assert result.is_weak
    assert result.why == why


@pytest.mark.parametrize(
    ("question", "language", "words"),
    [
        ("What did I say about backups?", "en", ["backups"]),
        ("On Running After One's Hat", "en", ["running", "hat"]),  # "hat" is a word in German
        ("Was habe ich über den Hut gesagt?", "de", ["hut"]),
        ("Qu'est-ce que j'ai écrit sur le pain ?", "fr", ["pain"]),
        ("¿Qué escribí sobre la lluvia?", "es", ["lluvia"]),
        ("backups", "en", ["backups"]),
    ],
)
def test_stop_words_depend_on_the_language_of_the_question(
    question: str, language: str, words: list[str]
) -> None:
    terms = QueryTerms.of(question)
    assert terms.language == language
    assert [term.label for term in terms.words] == words


def test_the_vocabulary_is_reloaded_when_the_archive_changes(tmp_path: Path) -> None:
    path = tmp_path / "archive.sqlite"
    put(path, ENGLISH)
    with SearchIndex(path) as index:
        index.refresh()
        vocabulary = IndexVocabulary(index)
        assert vocabulary.substitutes("accordian") == ()
        put(path, {**ENGLISH, "new": Entry("Another", ("An accordion, too.",))})
        index.refresh()
        assert vocabulary.substitutes("accordian") == ("accordion",)


def test_replacements_are_spelled_as_in_the_post(foreign: ArchiveSearcher) -> None:
    assert foreign.find("Was ist auf der strasse?").substitutions == (
        WordSubstitution("strasse", ("straßenbahn",)),
    )
