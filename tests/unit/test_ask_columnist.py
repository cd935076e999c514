"""Search in a columnist's posts: titles, readers' questions, unanswerable ones."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher

UNANSWERABLE = Path(__file__).parents[1] / "unanswerable_questions.txt"

# Asked after reading the posts, in other words than theirs where a reader would use others. The
# number is that of the post that answers; some have a near-copy, which will do as well.
ANSWERABLE = {
    "Why is there no statue of Shakspere in England?": {10},
    "Why should nobody mind chasing his hat in the wind?": {4},
    "What did I say about people who lose their temper with a drawer that sticks?": {4},
    "Do books about how to get on in life teach anybody to succeed?": {3, 37},
    "Which battle was not won on the cricket fields of Eton?": {7},
    "What would somebody from the moon think of London?": {8},
    "What is the difference between an international and a cosmopolitan man?": {9},
    "Are any of the students at Oxford really poor?": {11},
    "Do I think that shared kitchens are a good idea?": {12},
    "What did I think of the suffragettes who chained themselves to the railings?": {13},
    "Should it be known who gives money to the parties?": {14},
    "Who complained that I called Edward the King of England?": {15},
    "How did somebody in a captain's uniform fool the Germans?": {16},
    "What do public schools teach a boy about lying?": {17},
    "Should writers in a newspaper sign what they write?": {19, 18, 1},
    "Why are speeches reported so badly?": {20},
    "How do the papers flatter millionaires today?": {21},
    "Can science prove that there never was a Fall of man?": {22},
    "Which religion did the recruit write down when he became a soldier?": {23},
    "Is it wrong to joke about ghosts and spirits?": {24},
    "Should a jury be made up of people without any opinion?": {25},
    "What do I have against spelling words as they sound?": {26},
    "What did the doctors declare about alcohol?": {28},
    "Which town says that it is Eatanswill in Pickwick?": {29},
    "Are fairy tales bad for children?": {30},
    "Is Fielding an immoral novelist?": {31},
    "What is wrong with Anatole France's book on Joan of Arc?": {32},
    "Which poet did I compare with Browning when he died?": {33},
    "Is it cruel to eat turkey at Christmas?": {34},
    "Why do people laugh at jokes about a mother-in-law?": {2},
}

# Written when the search was settled, and looked at with no threshold in mind.
ASKED_LATER = {
    "Are Nonconformists too refined to attack the newspapers?": {18},
    "Why did I call Battersea a Venice?": {4},
    "What do the success writers make of the story of King Midas?": {3, 37},
    "Do soldiers worship force?": {16},
    "What did the Yorkshire paper call me?": {2},
    "How has the flattery of rich men changed since the courtiers?": {21},
    "Why are optimists better reformers than pessimists?": {5},
    "Why do people like hide and seek?": {14},
    "What do I think of vivisection?": {34},
    "Why do modern martyrs fail to impress anybody?": {13},
    "What does the word republic really mean?": {26},
    "Which play about a shipwreck did I quarrel over with a friend?": {9},
    "Are agnostics impartial?": {25},
    "Did Joan of Arc learn her visions from a priest?": {32},
    "What is the moral of Pandora's box?": {30},
    "Who said that Presbyterianism was no religion for a gentleman?": {15},
    "How should public-houses be changed?": {28},
    "Who wrote to me about spiritualism?": {24},
    "Do savages talk about heredity?": {27},
    "Which headline was really about feeding horses?": {20},
}


@dataclass(frozen=True)
class SearchedSite:
    searcher: ArchiveSearcher
    titles: dict[str, set[str]]  # the documents of each title
    links: dict[str, set[tuple[str, str]]]  # (source, target) of each link text
    unanswerable: list[str]


def searched(site: Path, folder: Path) -> Iterator[SearchedSite]:
    look([site], workspace=folder)
    path = folder / "archive.sqlite"
    with SearchIndex(path) as index, Archive(path) as archive:
        index.refresh()
        titles: dict[str, set[str]] = defaultdict(set)
        links: dict[str, set[tuple[str, str]]] = defaultdict(set)
        words: set[str] = set()
        for document in archive.documents([post.document for post in index.posts()]):
            titles[document.title].add(document.id)
            words.update(re.findall(r"\w+", f"{document.title} {document.text()}".casefold()))
        for source, text, target in archive.internal_links():
            if source != target and target in {post.document for post in index.posts()}:
                links[text].add((source, target))
        lines = UNANSWERABLE.read_text(encoding="utf-8").splitlines()
        topics = (line.split(" | ") for line in lines if not line.startswith("#"))
        unanswerable = [
            question
            for topic, question in topics
            if not any(word.startswith(topic) for word in words)
        ]
        yield SearchedSite(ArchiveSearcher(index), titles, links, unanswerable)


@pytest.fixture(scope="module")
def columnists(columnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchedSite]:
    yield from searched(columnist, tmp_path_factory.mktemp("columnist") / "columnist.ownwords")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchedSite]:
    site = Path(__file__).resolve().parents[2] / "examples" / "blog"
    yield from searched(site, tmp_path_factory.mktemp("blog") / "blog.ownwords")


@pytest.fixture(params=["samples", pytest.param("columnists", marks=pytest.mark.shared)])
def either(request: pytest.FixtureRequest) -> SearchedSite:
    searched: SearchedSite = request.getfixturevalue(request.param)
    return searched


def test_every_exact_title_ranks_first(either: SearchedSite) -> None:
    for title, documents in either.titles.items():
        result = either.searcher.find(title)
        assert not result.is_weak
        assert result.passages[0].document in documents


def test_unanswerable_questions_are_refused_or_name_their_missing_word(
    either: SearchedSite,
) -> None:
    results = [either.searcher.find(question) for question in either.unanswerable]
    assert len(results) >= 80
    assert sum(result.is_weak for result in results) >= 0.6 * len(results)
    assert sum(result.is_weak or bool(result.absent) for result in results) >= 0.9 * len(results)


def test_the_author_s_own_links_are_found_by_their_words(samples: SearchedSite) -> None:
    asked = hits = refused = 0
    for text, ends in samples.links.items():
        sources, targets = ({end[at] for end in ends} for at in (0, 1))
        if len(targets) > 1:
            continue
        result = samples.searcher.find(text, limit=16)
        # The post that has the link has its words, too.
        others = [p.document for p in result.passages if p.document not in sources]
        asked += 1
        hits += bool(targets.intersection(others[:5]))
        refused += result.is_weak
    assert asked >= 25
    assert hits >= 0.85 * asked
    assert refused <= 0.1 * asked


@pytest.mark.shared
@pytest.mark.parametrize(("questions", "how_many"), [(ANSWERABLE, 30), (ASKED_LATER, 20)])
def test_readers_questions_are_answered_and_not_refused(
    columnists: SearchedSite, questions: dict[str, set[int]], how_many: int
) -> None:
    hits, refused = 0, []
    for question, posts in questions.items():
        result = columnists.searcher.find(question)
        wanted = {f"columnist:post/{number}" for number in posts}
        hits += any(passage.document in wanted for passage in result.passages[:5])
        if result.is_weak:
            refused.append(question)
    assert len(questions) == how_many
    assert hits >= 0.85 * len(questions)
    assert len(refused) <= 0.1 * len(questions), refused
