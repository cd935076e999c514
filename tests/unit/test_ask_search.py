"""Search by words and by vectors, and the replacements of missing words."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ownwords.archive.document import Segment
from ownwords.ask.index import Floats, Ids, SearchIndex
from ownwords.ask.query import Query
from ownwords.ask.reader import Reading, Window
from ownwords.ask.search import (
    MAX_OF_A_POST,
    ArchiveSearcher,
    fuse,
    kind_of,
)
from small_archives import Entry, put

# Every post contains this sentence, so its words cannot distinguish posts.
DAILY = "It was an ordinary grey morning."

POSTS = {
    "hats": Entry("On Running After One's Hat", ("The wind took it along the pier.", DAILY)),
    "gazette": Entry('The "Eatanswill Gazette."', ("Two towns claim the paper.", DAILY)),
    "rain": Entry("SELECT * FROM rain", ("I keep the rainfall in a table.", DAILY), "2019-04-28"),
    "letters": Entry("Letters, to and from Ísafjörður", ("She writes in ink.", DAILY)),
    "degrees": Entry("36.2", ("It was a hot week.", DAILY)),
    "what": Entry("???", ("Nobody knows.", DAILY)),
    "clip": Entry("The clip", ("It held the gutter for ten years.", DAILY)),
    "clips": Entry("The clip on the gutter", ("Another one.", DAILY)),
    "woman": Entry("Woman", ("A column.", DAILY)),
    "backups": Entry(
        "Three copies, one of them in Leeds",
        ("I bought a drive for the backups. A backup is a copy that somebody tested.", DAILY),
    ),
    "bicycle": Entry("The same bicycle", ("The bottom bracket clicks. I bought it used.", DAILY)),
    "bees": Entry("A swarm", ("The bees left the hive and sat in the plum tree.", DAILY)),
}


def filler(seed: int, words: int = 40) -> str:
    """Words that occur nowhere else."""
    return " ".join(f"q{seed}x{n}" for n in range(words))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("posts") / "archive.sqlite"
    put(path, POSTS)
    return path


@pytest.fixture(scope="module")
def searcher(path: Path) -> Iterator[ArchiveSearcher]:
    with SearchIndex(path) as index:
        index.refresh()
        yield ArchiveSearcher(index)


def searching(path: Path, posts: dict[str, Entry]) -> ArchiveSearcher:
    put(path, posts)
    index = SearchIndex(path)
    index.refresh()
    return ArchiveSearcher(index)


def documents(searcher: ArchiveSearcher, question: str) -> list[str]:
    return [passage.document for passage in searcher.find(question).passages]


@pytest.mark.parametrize("way", ["{}", '"{}"', "“{}”?", "  {} !"])
def test_an_exact_title_is_always_first(searcher: ArchiveSearcher, way: str) -> None:
    for id_, post in POSTS.items():
        for title in (post.title, post.title.upper(), post.title.lower()):
            if id_ == "what" and "!" in way:
                # Adding punctuation to a title of only punctuation makes it a different title.
                continue
            result = searcher.find(way.format(title))
            assert result.passages[0].document == id_
            assert "title" in result.passages[0].found_by
            assert result.kind == "answer"


def test_the_longest_title_within_a_question_ranks_first(
    searcher: ArchiveSearcher,
) -> None:
    assert documents(searcher, "what did I write in On running after one’s hat?")[0] == "hats"
    assert documents(searcher, "what about the clip on the gutter")[0] == "clips"


def test_the_only_title_with_all_words_of_a_question_ranks_first(tmp_path: Path) -> None:
    naming = {
        str(n): Entry(f"Diary {n}", (f"Quipu, quipu and quipu: a quipu. {filler(n, 3)}",))
        for n in range(6)
    }
    about = {"about": Entry("Quipu, knots that count", (f"A string. {filler(7, 200)}",))}
    searcher = searching(tmp_path / "archive.sqlite", naming | about)
    assert documents(searcher, "What is a quipu?")[0] == "about"
    assert documents(searcher, "Which diary names a quipu?")[0] in naming
    second = {"second": Entry("Another quipu", (f"A cord. {filler(8, 200)}",))}
    assert documents(searching(searcher.index.path, second), "quipu")[0] != "about"


def test_all_posts_of_the_same_title_are_found(tmp_path: Path) -> None:
    same = {str(n): Entry("January", (f"Cold {n}. " + filler(n),)) for n in range(3)}
    other_posts = {
        f"o{n}": Entry(f"Other {n}", ("In January it froze. " + filler(9 + n),)) for n in range(6)
    }
    searcher = searching(tmp_path / "archive.sqlite", same | other_posts)
    assert set(documents(searcher, "January")[:3]) == set(same)


def test_a_date_finds_posts_of_that_time(searcher: ArchiveSearcher) -> None:
    for date in ("April of 2019", "2019-04-28"):
        assert documents(searcher, date) == ["rain"]


def test_a_word_of_a_heading_is_found_and_shown_with_it(tmp_path: Path) -> None:
    parts = (Segment("heading", "Thermostats", "2"), f"Turn it down. {DAILY}")
    posts = POSTS | {"heat": Entry("Warmth", parts)}
    first = searching(tmp_path / "archive.sqlite", posts).find("thermostat").passages[0]
    assert (first.document, first.heading) == ("heat", "Thermostats")


def test_quoted_words_match_exactly(searcher: ArchiveSearcher) -> None:
    result = searcher.find('Where is "copy that somebody tested"?')
    assert result.passages[0].document == "backups"
    assert result.passages[0].found_by[0] == "phrase"
    assert result.kind == "answer"
    result = searcher.find('"somebody tested that copy"')
    assert (result.kind, result.notes) == (
        "unjudged",
        ("No post contains “somebody tested that copy”.",),
    )


def test_search_without_vectors_reports_only_missing_words(searcher: ArchiveSearcher) -> None:
    result = searcher.find("What did I say about volcanoes?")
    assert (result.kind, result.passages) == ("unjudged", ())
    assert result.notes == ("No post contains “volcanoes”.",)
    assert not searcher.find("Did the swarm leave the hive?").notes


@pytest.mark.parametrize("question", ["", "   ", "?", "\x00", "what did I do?", "\u200b\U000e0041"])
def test_a_question_of_stop_words_has_nothing_to_search_for(
    searcher: ArchiveSearcher, question: str
) -> None:
    result = searcher.find(question)
    assert result.kind == "unjudged"
    assert "The question contains no word to search for." in result.notes


@example('"')
@example("NEAR(hat gutter, 2)")
@example('title: hat AND (NOT "x" OR *)')
@example("hat* ^hat -hat +hat {title}:hat")
@example("'; DROP TABLE chunks; --")
@example("\ud800 hat \udc00")
@example("“hat „hat” «hat ‘hat’ 'hat")
@example("中文搜索 Wörter ქართული हिन्दी 🎩")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), max_size=80))
def test_any_text_can_be_asked(searcher: ArchiveSearcher, question: str) -> None:
    result = searcher.find(question)
    assert len(result.passages) <= 8


def test_a_query_of_ten_kilobytes_is_accepted(searcher: ArchiveSearcher) -> None:
    for text in ("hat " * 2500, '"' * 10_000, "a" * 10_000, " ".join(f"w{n}" for n in range(2000))):
        searcher.find(text)
    assert documents(searcher, "The bees left the hive. " * 400)[0] == "bees"


def test_no_post_takes_all_passages_and_scores_decrease(tmp_path: Path) -> None:
    long = Entry("Kettles", tuple(f"The kettle boils. {filler(50 + n, 200)}" for n in range(12)))
    other_posts = {f"o{n}": Entry(f"Note {n}", (f"A kettle, once. {filler(n)}",)) for n in range(8)}
    other_posts |= {f"n{n}": Entry(f"Other {n}", (filler(100 + n),)) for n in range(30)}
    searcher = searching(tmp_path / "archive.sqlite", {"long": long} | other_posts)
    passages = searcher.find("kettle").passages
    assert len(passages) == 8
    assert sum(item.document == "long" for item in passages) == MAX_OF_A_POST
    scores = [item.score for item in passages]
    assert scores == sorted(scores, reverse=True)
    assert len(searcher.find("kettle", limit=3).passages) == 3
    assert [item.document for item in searcher.find("Kettles").passages].count("long") == 3


def test_of_duplicates_only_one_is_shown(tmp_path: Path) -> None:
    text = " ".join(f"word{n}" for n in range(120)) + " kettle"
    posts = {
        "a": Entry("First", (text,), "2001-01-01"),
        "b": Entry("Again", (text + " and more",), "2002-01-01"),
        "c": Entry("Other", (f"A kettle. {DAILY}",)),
    }
    searcher = searching(tmp_path / "archive.sqlite", posts)
    found_documents = documents(searcher, "kettle")
    assert len(found_documents) == 2
    assert {"a", "b"} - set(found_documents)
    assert documents(searcher, "Again")[0] == "b"


def test_the_author_s_own_words_rank_before_quotations(tmp_path: Path) -> None:
    text = "The kettle sings in the morning. "
    posts = {
        "a": Entry("Note", (text + filler(1),), decision="leave out", flags=("unlike",)),
        "b": Entry("Note too", (text + filler(2),)),
        "c": Entry("Else", (filler(3),)),
    }
    passages = searching(tmp_path / "archive.sqlite", posts).find("kettle").passages
    assert [(item.document, item.whose) for item in passages] == [("b", "own"), ("a", "other")]


def test_chinese_is_searched_by_character_bigrams(tmp_path: Path) -> None:
    posts = {
        "tea": Entry("绿茶", ("我喜欢喝绿茶。",)),
        "sea": Entry("大海", ("绿色的大海。喝水。",)),
    }
    searcher = searching(tmp_path / "archive.sqlite", posts)
    assert documents(searcher, "喝绿茶")[0] == "tea"


class OddsReader:
    """Says of each window the log odds of the first key that is in it, otherwise -9."""

    cosine_weight = 0.0

    def __init__(self, odds: dict[str, float]) -> None:
        self.odds, self.windows = odds, list[Window]()

    def read(self, question: str, windows: Sequence[Window]) -> list[Reading]:
        self.windows += windows
        return [
            Reading(self._of(x.text), tuple(self._of(x.text[a:b]) for a, b in x.sentences))
            for x in windows
        ]

    def _of(self, text: str) -> float:
        return next((odds for key, odds in self.odds.items() if key in text), -9.0)


class Letters:
    """Counts letters: texts with the same letters are close to each other."""

    name, dimensions = "letters", 26
    question_prompt = passage_prompt = ""
    reader: Any = None

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = np.array(
            [[text.casefold().count(chr(97 + n)) for n in range(26)] for text in texts], np.float32
        )
        lengths: npt.NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.maximum(1e-6, lengths), np.float32)


class Unrelated:
    """Sees no likeness between any question and any passage."""

    name, dimensions = "unrelated", 2
    question_prompt, passage_prompt = "? ", ""
    reader: Any = None

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array([[1, 0] if text.startswith("? ") else [0, 1] for text in texts], np.float32)


def with_vectors(index: SearchIndex, embedder: Letters | Unrelated) -> ArchiveSearcher:
    rows = embedder.embed(
        [x.text for x in index.passages([(id_, 0.0) for id_ in index.without_vectors("")])]
    )
    index.put_vectors(
        embedder.name,
        [(id_, row[None]) for id_, row in zip(index.without_vectors(""), rows, strict=True)],
    )
    return ArchiveSearcher(index, embedder)


def test_without_a_reader_only_literal_hits_are_called_answers(tmp_path: Path) -> None:
    searcher = with_vectors(searching(tmp_path / "archive.sqlite", POSTS).index, Unrelated())
    for words in ("gutter", "Leeds", "bottom bracket", "'ten years'", "The same bicycle"):
        assert searcher.find(words, reads=True).kind == "answer", words
    for question in ("zeppelin", "How many zeppelins fit into a gutter?", "Who left the hive?"):
        assert searcher.find(question, reads=True).kind == "unjudged", question


def test_vectors_find_posts_without_shared_words_and_both_are_fused(tmp_path: Path) -> None:
    posts = {
        "a": Entry("One", ("zzzz zzzz zzzz",)),
        "b": Entry("Two", ("yyyy xxxx",)),
        "c": Entry("Three", (f"zebra {DAILY}",)),
    }
    plain = searching(tmp_path / "archive.sqlite", posts)
    searcher = with_vectors(plain.index, Letters())
    by_vectors = searcher.find("zzz").passages
    assert (by_vectors[0].document, by_vectors[0].found_by) == ("a", ("vectors",))
    assert plain.find("zebra").passages[0].document == "c"
    assert not any("yet to read" in note for note in searcher.find("zebra zzz").notes)
    both = searcher.find("zebra zzz").passages
    assert {item.document: item.found_by for item in both}["c"] == ("text", "vectors")


def test_posts_without_vectors_are_found_by_words(
    searcher: ArchiveSearcher, tmp_path: Path
) -> None:
    result = ArchiveSearcher(searcher.index, Letters()).find("hive")
    assert result.passages[0].document == "bees"
    passages = f"{searcher.index.size()} passages"
    assert result.notes[-1] == (
        f"The search by meaning has not read {passages} yet: these were searched by words only."
    )
    assert not searcher.find("hive").notes
    index = searching(tmp_path / "archive.sqlite", POSTS).index
    few = index.without_vectors("")[:2]
    index.put_vectors("letters", [(id_, np.eye(1, 26, dtype=np.float32)) for id_ in few])
    found = ArchiveSearcher(index, Letters()).find("hive").passages
    assert [(item.document, item.found_by) for item in found] == [("bees", ("text",))]


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("Which Bentley did the swarm of the hive follow?", "Bentley"),
        ("Did 300 bees leave the hive?", "300"),
        ("What is the warranty of the hive?", ""),
        ("Warranty of the hive", ""),
        ("What Is The Warranty Of The Hive?", ""),
        ("Was ist mit den Bienen und dem Hive?", ""),
    ],
)
def test_with_vectors_missing_words_are_reported_only_if_names_or_numbers(
    tmp_path: Path, question: str, missing: str
) -> None:
    searcher = with_vectors(searching(tmp_path / "archive.sqlite", POSTS).index, Letters())
    note = f"None of these passages contains “{missing.lower()}”."
    assert searcher.find(question).notes == ((note,) if missing else ())


def read_with(folder: Path, odds: dict[str, float]) -> tuple[ArchiveSearcher, OddsReader]:
    embedder = Letters()
    embedder.reader = reader = OddsReader(odds)
    return with_vectors(searching(folder / "archive.sqlite", POSTS).index, embedder), reader


@pytest.mark.parametrize(("odds", "kind"), [(3.0, "answer"), (-2.0, "nearest")])
def test_the_reader_decides_what_is_said_and_what_comes_first(
    tmp_path: Path, odds: float, kind: str
) -> None:
    searcher, reader = read_with(tmp_path, {"plum tree": odds, "": -9.0})
    result = searcher.find(f"Where did they go after {kind}?", reads=True)
    assert (result.kind, result.passages[0].document) == (kind, "bees")
    assert len(reader.windows) == len({*reader.windows})


@pytest.mark.parametrize(
    ("odds", "cosine", "kind"),
    [(-3.0, 0.1, "absent"), (-3.0, 0.5, "nearest"), (0.1, 0.1, "nearest"), (2.0, 0.1, "answer")],
)
def test_nothing_is_absent_if_a_passage_is_close_or_rather_answers(
    odds: float, cosine: float, kind: str
) -> None:
    assert kind_of(odds, cosine) == kind


@pytest.mark.parametrize(
    ("question", "kind"),
    [("How many bees were there?", "nearest"), ("What did the bees do then?", "answer")],
)
def test_a_sentence_without_the_number_that_is_asked_for_answers_less(
    tmp_path: Path, question: str, kind: str
) -> None:
    searcher, _ = read_with(tmp_path, {"plum tree": 0.3, "": -9.0})
    assert searcher.find(question, reads=True).kind == kind


def test_a_literal_hit_is_an_answer_whatever_the_reader_says(tmp_path: Path) -> None:
    searcher, _ = read_with(tmp_path, {})
    assert searcher.find("The same bicycle", reads=True).kind == "answer"
    assert searcher.find("“ten years”", reads=True).kind == "answer"


def test_the_sentence_that_the_reader_chose_is_marked_first(tmp_path: Path) -> None:
    searcher, _ = read_with(tmp_path, {"somebody tested": 4.0, "drive": -9.0})
    question = "What makes it more than a copy?"
    passages = searcher.find(question, reads=True).passages
    excerpt = searcher.excerpts(question, passages)[passages[0].id]
    best = passages[0].text[slice(*excerpt.matching[0])]
    assert best == "A backup is a copy that somebody tested."


def vectors(cosines: dict[int, float]) -> tuple[Ids, Floats]:
    ids = sorted(cosines)
    return np.array(ids, np.int64), np.array([cosines[id_] for id_ in ids], np.float32)


COSINES = {1: 0.4, 2: 0.6, 3: 0.5}


def test_words_and_vectors_are_fused_by_how_rare_the_words_are() -> None:
    def ranked(by_text: list[tuple[int, float]], rarity: float) -> list[int]:
        return [id_ for id_, _ in fuse(by_text, *vectors(COSINES), rarity=rarity)]

    assert ranked([(1, 9.0)], 0.0) == [2, 3, 1]  # every word is common: vectors rank alone
    assert ranked([(1, 9.0), (3, 1.0)], 1.0)[0] == 1
    # A passage without a vector gets the lowest cosine of the nearest passages.
    unknown = dict(fuse([(9, 5.0), (1, 4.0)], *vectors(COSINES), rarity=0.0))
    assert np.isclose(unknown[9], 0.4)
    by_text = [(4, 3.0), (2, 1.0)]
    assert fuse(by_text, *vectors({}), rarity=0.1) == by_text


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


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSearcher]:
    yield searching(tmp_path_factory.mktemp("others") / "archive.sqlite", OTHERS)


@pytest.mark.parametrize(
    ("question", "document"),
    [
        ("Straßenbahn", "tram"),
        ("Kiedy pływał karp?", "fish"),
        ("我奶奶怎么做蛋糕?", "cake"),
        ("図書館についてどう思いますか", "library"),
    ],
)
def test_questions_in_other_languages_find_their_posts(
    foreign: ArchiveSearcher, question: str, document: str
) -> None:
    result = foreign.find(question)
    assert result.passages[0].document == document
    assert result.kind != "absent"


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("Was habe ich über Elefanten geschrieben?", "elefanten"),
        ("Co myślę o polityce?", "polityce"),
        ("我写过关于火车的文章吗", "火车"),
    ],
)
def test_only_the_topic_is_named_as_missing(
    foreign: ArchiveSearcher, question: str, word: str
) -> None:
    result = foreign.find(question)
    assert result.kind == "unjudged"
    assert result.notes == (f"No post contains “{word}”.",)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What did I say about backups?", ["backups"]),
        ("On Running After One's Hat", ["running", "hat"]),  # "hat" is a word in German
        ("Was habe ich über den Hut gesagt?", ["hut"]),
        ("Qu'est-ce que j'ai écrit sur le pain ?", ["pain"]),
        ("¿Qué escribí sobre la lluvia?", ["lluvia"]),
        ("backups", ["backups"]),
        ("What have I written about writing?", ["written", "writing"]),
        ("To be or not to be", ["to", "be", "or", "not"]),
    ],
)
def test_stop_words_depend_on_the_language_of_the_question(question: str, words: list[str]) -> None:
    terms = Query.of(question)
    assert [term.label for term in terms.words] == words
