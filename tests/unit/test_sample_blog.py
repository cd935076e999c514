"""The sample blog that a first model learns from: built from its sources, like a real database."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

import scripts

BLOG = scripts.ROOT / "examples" / "blog"
TABLES = ("authors", "posts", "posts_additional_data", "posts_images", "posts_tags", "tags")

Rows = dict[str, list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def sample() -> ModuleType:
    return scripts.load("examples/blog/build.py")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the sample's sources, for a test to spoil."""
    shutil.copytree(BLOG, tmp_path / "blog", ignore=shutil.ignore_patterns("input"))
    return tmp_path / "blog"


def rows(database_path: Path) -> Rows:
    with closing(sqlite3.connect(database_path)) as database:
        return {
            table: database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            for table in TABLES
        }


def test_the_sample_resembles_real_databases(sample: ModuleType) -> None:
    posts = sample.read_posts(BLOG / "posts")
    statuses = {post.status for post in posts.values()}
    editors = {post.editor for post in posts.values()}
    text = "".join(str(row[4]) for row in rows(BLOG / "input" / "db.sqlite")["posts"])
    targets = [int(target) for target in re.findall(r"#INTERNAL_LINK#/post/(\d+)", text)]

    assert {
        *("published", "draft", "published,hidden"),
        *("published,trashed", "published,is-page"),
    } == statuses
    assert editors == {None, "tinymce", "markdown", "blockeditor"}
    assert len(targets) >= 25
    assert [target for target in targets if target not in posts] == [9999]


def test_a_fresh_build_equals_the_committed_files(sample: ModuleType, tmp_path: Path) -> None:
    for name in ("first", "second"):
        sample.build(BLOG, tmp_path / name)
    checked_in = {path.relative_to(BLOG / "input") for path in (BLOG / "input").rglob("*.*")}

    assert rows(tmp_path / "first" / "db.sqlite") == rows(tmp_path / "second" / "db.sqlite")
    assert rows(tmp_path / "first" / "db.sqlite") == rows(BLOG / "input" / "db.sqlite")
    assert checked_in == {
        path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*.*")
    }


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("tags: [house, kitchen]", "tags: house", "tags must be a list"),
        ("status: published", "status: printed", "status has an unknown flag"),
        ("date: 2017-03-05 18:15", "date: Sunday", "does not match format"),
        ("The lid still", "[The lid](2017-03-06-lid.md) still", "links to 2017-03-06-lid.md"),
    ],
)
def test_a_source_that_will_not_do_is_named(
    sample: ModuleType, sources: Path, old: str, new: str, complaint: str
) -> None:
    kettle = sources / "posts" / "2017-03-05-kettle.md"
    text = kettle.read_text(encoding="utf-8")
    assert old in text
    kettle.write_text(text.replace(old, new, 1), encoding="utf-8")

    with pytest.raises(sample.BuildError, match=complaint) as raised:
        sample.build(sources, sources / "input")

    assert "2017-03-05-kettle.md" in str(raised.value)
    assert not (sources / "input" / "db.sqlite").exists()
