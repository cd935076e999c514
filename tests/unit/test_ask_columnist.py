"""Search in a columnist's posts: titles, readers' questions, unanswerable ones."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import items
from ownwords.archive.look import look
from ownwords.archive.sources import publii
from ownwords.archive.store import Archive
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher

# A link to another post in a Publii site, in HTML or in Markdown.
_LINK = re.compile(
    r"""<a href=\\?"#INTERNAL_LINK#/(?P<html>post/\d+)\\?"[^>]*>([^<]*)</a>"""
    r"""|\[([^\]]*)\]\(#INTERNAL_LINK#/(?P<markdown>post/\d+)\)"""
)
UNANSWERABLE = Path(__file__).parents[1] / "unanswerable_questions.txt"
ANSWERABLE = Path(__file__).parents[1] / "columnist_questions.txt"


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
        posts = {post.document for post in index.posts()}
        prefix = min(posts).partition(":")[0]
        for ref, post in items.documents(publii.read(site)).items():
            for link in _LINK.finditer(post.body):
                to, text = link["html"] or link["markdown"], link[2] or link[3]
                source, target = f"{prefix}:{ref}", f"{prefix}:{to}"
                if source != target and target in posts:
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
        assert result.kind == "answer"
        assert result.passages[0].document in documents


def test_unanswerable_questions_are_told_or_name_what_is_missing(
    either: SearchedSite,
) -> None:
    results = [either.searcher.find(question) for question in either.unanswerable]
    assert len(results) >= 80
    told = [result.kind != "answer" or result.notes for result in results]
    assert sum(map(bool, told)) >= 0.9 * len(results)


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
        refused += result.kind == "absent"
    assert asked >= 25
    assert hits >= 0.85 * asked
    assert refused <= 0.1 * asked


@pytest.mark.shared
@pytest.mark.parametrize("part", [0, 1])
def test_readers_questions_are_answered_and_not_refused(
    columnists: SearchedSite, part: int
) -> None:
    hits, refused = 0, []
    lines = ANSWERABLE.read_text(encoding="utf-8").split("\n\n")[1 + part].splitlines()
    for question, _, posts in (line.partition(" | ") for line in lines):
        result = columnists.searcher.find(question)
        wanted = {f"columnist:post/{number}" for number in posts.split()}
        hits += any(passage.document in wanted for passage in result.passages[:5])
        if result.kind == "absent":
            refused.append(question)
    assert len(lines) >= 20
    assert hits >= 0.85 * len(lines)
    assert len(refused) <= 0.1 * len(lines), refused
