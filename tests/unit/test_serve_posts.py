"""The page's Corpus part, asked by its addresses, against the files the texts came from."""

import sqlite3
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from selectolax.lexbor import LexborHTMLParser as HTMLParser
from starlette.testclient import TestClient

from ownwords.archive.document import OWN_KINDS
from ownwords.archive.look import look
from ownwords.archive.report import Report as Whole
from ownwords.archive.store import Archive
from ownwords.core.text import count_words
from ownwords.core.workspace import Workspace
from ownwords.serve.app_state import AppState
from page_client import page_client

SEASONS = ("spring", "summer", "autumn", "winter")
RAIN = "The gauge stood empty on the wall and nobody came to read it for {0} weeks of that year. "


def sentences(subject: str, count: int) -> str:
    return " ".join(f"Of {subject} number {n} I will say only what I saw." for n in range(count))


def write_posts(folder: Path) -> Path:
    """Eight posts: a long one, two that share their text, one with quotes and code, one undated."""
    folder.mkdir()
    posts = {
        "long": ("2019-03-01", ["garden"], sentences("the hedge", 400)),
        "copy": ("2020-05-05", ["rain"], RAIN.format("nine") * 1 + sentences("the gauge", 30)),
        "again": ("2021-05-05", ["rain"], RAIN.format("nine") * 1 + sentences("the gauge", 30)),
        "mixed": (
            "2021-07-01",
            ["rain", "books"],
            sentences("the shelf", 20)
            + "\n\n> Somebody else wrote these few words.\n\n"
            + "```python\nprint('not prose')\n```\n\n"
            + sentences("the lamp", 5),
        ),
        "undated": ("", [], sentences("nothing in particular", 12)),
    }
    for n, season in enumerate(SEASONS):
        posts[season] = (f"2022-0{n + 1}-10", ["garden"], sentences(season, 25 + 7 * n))
    for name, (day, tags, text) in posts.items():
        head = [f"title: {name.capitalize()} <b>day</b>", f"tags: [{', '.join(tags)}]"]
        head += [f"date: {day}"] if day else []
        (folder / f"{name}.md").write_text("---\n" + "\n".join(head) + f"\n---\n\n{text}\n")
    return folder


@dataclass
class Served:
    """A workspace, and what its addresses answer."""

    blog: Path
    workspace: Workspace
    client: TestClient

    def get(self, path: str, **query: str | int) -> Any:  # noqa: ANN401 - JSON
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def decide(self, id_: str, decision: str) -> Any:  # noqa: ANN401 - JSON
        answer = self.client.post("/api/corpus/decide", json={"id": id_, "decision": decision})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def look(self) -> Whole:
        return look([self.blog], workspace=self.workspace.root)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("corpus")
    yield from _served(write_posts(root / "blog"), Workspace(root / "w.ownwords"))


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """One that may be changed."""
    yield from _served(write_posts(tmp_path / "blog"), Workspace(tmp_path / "w.ownwords"))


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Served]:
    yield from _served(tmp_path, Workspace(tmp_path / "none.ownwords"), is_read=False)


def _served(blog: Path, workspace: Workspace, *, is_read: bool = True) -> Iterator[Served]:
    if is_read:
        look([blog], workspace=workspace.root)

    with page_client(AppState(workspace)) as client:
        yield Served(blog, workspace, client)


def ids(served: Served) -> dict[str, str]:
    """Ids by the first word of the title, which is the name of the file."""
    rows = served.get("/api/corpus/posts", most=200)["rows"]
    return {row["title"].split()[0].lower(): row["id"] for row in rows}


def texts(page: HTMLParser, selector: str) -> list[str]:
    return [node.text() for node in page.css(selector)]


def test_the_report_has_the_figures_of_the_files(served: Served) -> None:
    page = HTMLParser(served.get("/api/corpus")["html"])
    totals = dict(zip(texts(page, ".totals dt"), texts(page, ".totals b"), strict=True))
    assert totals["posts"] == "9"
    with Archive(served.workspace.archive) as archive:
        own = sum(
            count_words(segment.text)
            for document in archive.documents()
            for segment in document.segments
            if segment.kind in OWN_KINDS
        )
    assert totals["words of your own"] == f"{own:,}"
    # The page has buttons, and its reader need not know where files are.
    said = page.text()
    assert "Read from blog, " in said
    assert not any(
        each in said for each in ("choices.toml", "ownwords look", str(served.blog.parent))
    )
    assert page.css_first("#decisions a[href$='/posts/decisions']")
    kinds = [row.text(separator="|") for row in page.css("#whose tbody tr")]
    assert kinds[0].startswith(f"Your own words|{own:,}|")
    assert kinds[1].startswith("Quoted|6|")
    years = texts(page, "#years")[0]
    assert all(year in years for year in ("2019", "2020", "2021", "2022")) and "1 text" in years
    assert len(page.css("#duplicates li")) == 1
    assert texts(page, ".lede")[0].startswith("One post is ")
    long = quote(ids(served)["long"], safe="")
    assert page.css_first(f'#lengths a[href="#/posts/post/{long}"]') is not None


def test_titles_are_escaped(served: Served) -> None:
    rows = served.get("/api/corpus/posts")["rows"]
    assert {row["title"].split(maxsplit=1)[1] for row in rows} == {"<b>day</b>"}


@pytest.mark.parametrize("sort", ["words", "share", "learned_words", "title", "date"])
@pytest.mark.parametrize("order", ["up", "down"])
def test_posts_are_sorted_as_requested(served: Served, sort: str, order: str) -> None:
    rows = served.get("/api/corpus/posts", sort=sort, order=order)["rows"]
    key = {"words": "own_words", "date": "day", "title": "title"}.get(sort, sort)
    values = [row[key] for row in rows if row[key] != ""]
    assert values == sorted(values, reverse=order == "down")
    if sort == "date":
        assert rows[-1]["day"] == ""  # what has no date is last, whichever way


def test_pages_contain_every_post_once(served: Served) -> None:
    ids_found = [
        row["id"]
        for first in range(0, 9, 2)
        for row in served.get("/api/corpus/posts", first=first, most=2, sort="words")["rows"]
    ]
    assert len(ids_found) == len(set(ids_found)) == 9


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"tag": "rain"}, {"copy", "again", "mixed"}),
        ({"year": "2022"}, set(SEASONS)),
        ({"year": "none"}, {"undated"}),
        ({"tag": "garden", "year": "2019"}, {"long"}),
        ({"title": "DAY win"}, {"winter"}),
        ({"flag": "duplicate"}, {"copy", "again"}),
        ({"tag": "no such tag"}, set()),
        # What no page sends is ignored.
        (
            {"tag": "rain", "sort": "x", "first": "²", "most": "9" * 5000},
            {"copy", "again", "mixed"},
        ),
    ],
)
def test_lines_are_narrowed_down(served: Served, query: dict[str, str], names: set[str]) -> None:
    page = served.get("/api/corpus/posts", **query)
    assert {row["title"].split()[0].lower() for row in page["rows"]} == names
    assert page["total"] == len(names)
    assert page["own_words"] == sum(row["own_words"] for row in page["rows"])


def test_facets_count_the_posts_of_each_value(served: Served) -> None:
    facets = served.get("/api/corpus/facets")
    for name, key in (("years", "year"), ("tags", "tag"), ("decisions", "decision")):
        assert facets[name]
        for value, n in facets[name]:
            assert served.get("/api/corpus/posts", **{key: value})["total"] == n


def test_a_post_is_shown_as_the_archive_has_it(served: Served) -> None:
    id_ = ids(served)["mixed"]
    post = served.get("/api/corpus/post", id=id_)
    with Archive(served.workspace.archive) as archive:
        document = next(archive.documents([id_]))
        side = archive.selection()[id_][2]
    assert [segment["text"] for segment in post["segments"]] == [s.text for s in document.segments]
    whose = {segment["kind"]: segment["whose"] for segment in post["segments"]}
    assert whose == {"prose": "own", "quote": "quoted", "code": "code"}
    learned = {"own"} if side == "train" else set()
    assert all(segment["learned"] == (segment["whose"] in learned) for segment in post["segments"])
    assert sorted(post["post"]["tags"]) == ["books", "rain"]


def test_an_excluded_post_is_not_learned_and_its_copy_is_named(served: Served) -> None:
    named = ids(served)
    post = served.get("/api/corpus/post", id=named["again"])
    assert post["post"]["decision"] == "leave out"
    assert not any(segment["learned"] for segment in post["segments"])
    assert [twin["id"] for twin in post["twins"]] == [named["copy"]]


def test_the_next_look_follows_the_decisions(fresh: Served) -> None:
    named = ids(fresh)
    fresh.decide(named["long"], "keep")
    fresh.decide(named["winter"], "leave out")
    fresh.decide(named["again"], "keep")
    foreseen = fresh.get("/api/corpus/decisions")
    report = fresh.look()
    then = {row["id"]: row["then"] for row in foreseen["rows"]}
    assert named["copy"] in then  # the twin of what is kept now is what is left out
    for post in report.posts:
        if post.id in then:
            assert then[post.id]["decision"] == post.decision
            assert then[post.id]["training_words"] == post.training_words
    assert foreseen["pending"] > 0
    assert foreseen["words_then"] == report.totals.training_words
    after = fresh.get("/api/corpus/decisions")
    assert after["pending"] == 0
    assert after["words_now"] == after["words_then"] == report.totals.training_words


def test_other_decisions_of_the_author_are_kept(fresh: Served) -> None:
    named = ids(fresh)
    fresh.workspace.choices.write_text(
        '[[post]]\nid = "gone"\ndecision = "keep"\n\n'
        f'[[post]]\nid = "{named["spring"]}"\ndecision = "leave out"\n'
    )
    fresh.decide(named["summer"], "cap")
    entries = {
        entry["id"]: entry
        for entry in tomllib.loads(fresh.workspace.choices.read_text("utf-8"))["post"]
    }
    assert entries["gone"]["decision"] == "keep"
    assert entries[named["spring"]]["decision"] == "leave out"
    assert entries[named["summer"]]["decision"] == "cap"
    assert "proposed" not in entries[named["summer"]]


def test_a_decision_can_be_returned_to_ownwords(fresh: Served) -> None:
    named = ids(fresh)
    before = fresh.get("/api/corpus/post", id=named["long"])["decision"]
    changed = fresh.decide(named["long"], "leave out")["changed"]
    assert (changed["by"], changed["pending"], changed["then"]["training_words"]) == (
        "you",
        True,
        0,
    )
    back = fresh.decide(named["long"], "proposed")["changed"]
    assert back == before
    entries = tomllib.loads(fresh.workspace.choices.read_text("utf-8"))["post"]
    entry = next(entry for entry in entries if entry["id"] == named["long"])
    assert entry["proposed"] == entry["decision"]


def test_all_posts_that_match_are_decided_on_at_once(fresh: Served) -> None:
    posts = fresh.client.get("/api/corpus/posts").json()["rows"]
    year = posts[0]["day"][:4]
    of_year = [post["id"] for post in posts if post["day"].startswith(year)]
    assert 0 < len(of_year) < len(posts)
    body = {"matching": {"year": year}, "decision": "leave out"}
    assert fresh.client.post("/api/corpus/decide", json=body).json()["decided"] == len(of_year)
    rows = fresh.client.get("/api/corpus/decisions").json()["rows"]
    assert {row["id"] for row in rows if row["by"] == "you"} == set(of_year)


def test_the_effect_of_workspace_settings_is_previewed(fresh: Served) -> None:
    fresh.workspace.settings.write_text("[provenance]\nmax_post_share = 0.5\n[train]\nlr = 1\n")
    row = next(
        row for row in fresh.get("/api/corpus/decisions")["rows"] if row["id"] == ids(fresh)["long"]
    )
    assert row["then"]["training_words"] > row["now"]["training_words"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": "no such", "decision": "keep"}, 404),
        ({"id": ["a", "list"], "decision": "keep"}, 400),
        ({"decision": "keep"}, 400),
        ([], 400),
        ("keep", 400),
    ],
)
def test_invalid_decisions_are_refused(served: Served, body: object, status: int) -> None:
    before = served.workspace.choices.read_bytes()
    answer = served.client.post("/api/corpus/decide", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert served.workspace.choices.read_bytes() == before


def test_during_a_look_no_decision_is_accepted(
    fresh: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "timeout": 0}))
    named = ids(fresh)
    before = fresh.workspace.choices.read_bytes()
    decision = {"id": named["long"], "decision": "keep"}
    with Archive(fresh.workspace.archive) as archive, archive.transaction():
        answer = fresh.client.post("/api/corpus/decide", json=decision)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "another program is writing" in answer.json()["error"]["message"]
    assert fresh.workspace.choices.read_bytes() == before


def test_a_mistake_in_choices_toml_is_reported(fresh: Served) -> None:
    fresh.workspace.choices.write_text("[[post]\n")
    answer = fresh.client.get("/api/corpus/decisions")
    assert answer.status_code == 400
    assert "choices.toml" in answer.json()["error"]["message"]
    text = fresh.get("/api/corpus/post", id=ids(fresh)["long"])  # can be read all the same
    assert text["segments"]
    assert "choices.toml" in text["decision"]["error"]["message"]


def test_a_new_look_is_visible_immediately(fresh: Served) -> None:
    assert fresh.get("/api/corpus/posts")["total"] == 9
    (fresh.blog / "new.md").write_text("---\ntitle: New\ndate: 2024-01-01\n---\n\nNewly written.\n")
    fresh.look()
    assert fresh.get("/api/corpus/posts")["total"] == 10
    assert fresh.get("/api/corpus/facets")["years"][0] == ["none", 1]
    assert ["2024", 1] in fresh.get("/api/corpus/facets")["years"]


@pytest.mark.parametrize("id_", ["", "../../etc/passwd", "blog:none.md", "\x00", "x" * 5000])
def test_a_missing_post_is_reported(served: Served, id_: str) -> None:
    answer = served.client.get("/api/corpus/post", params={"id": id_})
    assert answer.status_code == 404
    assert len(answer.text) < 1000


@pytest.mark.parametrize("path", ["", "/facets", "/posts", "/post", "/decisions"])
def test_before_the_first_look_the_error_says_what_to_do(unread: Served, path: str) -> None:
    answer = unread.client.get(f"/api/corpus{path}")
    assert answer.status_code == 404
    assert "ownwords" in answer.json()["error"]["hint"]
