"""A site exported again: the same posts under the same ids, decisions and splits."""

import importlib
import random
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ownwords.archive import sources
from ownwords.archive.analysis import PostQuestion
from ownwords.archive.corpus import read_corpus
from ownwords.archive.ingest import workspace_for
from ownwords.archive.look import look
from ownwords.archive.report import PostSummary, Report
from ownwords.archive.settings import ArchiveConfig, LookSettings, SplitConfig

DATED = {
    "wordpress": ("hats.WordPress.2024-01-31.xml", "hats.WordPress.2025-02-28.xml"),
    "ghost": ("hats.ghost.2024-01-31-10-20-30.json", "hats.ghost.2025-02-28-11-21-31.json"),
    "blogger": ("takeout-20240131T100000Z-001.atom", "takeout-20250228T100000Z-001.atom"),
    "medium": (f"medium-export-{'0a' * 20}.zip", f"medium-export-{'b1' * 20}.zip"),
}


def export(name: str, folder: Path, called: str) -> Path:
    folder.mkdir(exist_ok=True)
    path: Path = importlib.import_module(f"exports.{name}").write(folder)
    if path.is_dir():
        path = next(file for file in path.rglob(f"*{Path(called).suffix}") if file.is_file())
    return path.rename(folder / called)


def posts(path: Path) -> dict[str, PostSummary]:
    return {post.id: post for post in look([path]).posts}


def test_words_without_spaces_between_are_the_author_s_own_as_well(tmp_path: Path) -> None:
    """One way of counting: a Chinese paragraph is as many words as a quoted one of its length."""
    (tmp_path / "blog").mkdir()
    (tmp_path / "blog" / "a.md").write_text(f"{'我喜欢书' * 30}。\n\n> {'a word ' * 60}\n")
    look([tmp_path / "blog"], workspace=tmp_path / "w.ownwords")
    assert read_corpus(tmp_path / "w.ownwords" / "archive.sqlite").own_share == pytest.approx(0.5)


@pytest.mark.parametrize("name", DATED)
def test_a_new_export_has_the_same_posts_in_the_same_workspace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = DATED[name]
    before = posts(export(name, tmp_path / "a", first))
    (workspace,) = tmp_path.glob("*.ownwords")
    id_ = next(iter(before))
    chosen = f'[[post]]\nid = "{id_}"\ndecision = "leave out"\n'
    (workspace / "choices.toml").write_text(chosen, encoding="utf-8")
    after = posts(export(name, tmp_path / "b", second))
    assert list(tmp_path.glob("*.ownwords")) == [workspace]
    assert after.keys() == before.keys()
    assert after[id_].decision == "leave out"
    assert all(
        after[post_id].split == before[post_id].split for post_id in before if post_id != id_
    )


def test_a_post_keeps_its_side_when_it_is_mended_and_when_others_come(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    rng = random.Random(1)

    def write(number: int, typo: str = "") -> None:
        words = " ".join(f"w{rng.randrange(999)}" for _ in range(120))
        (notes / f"{number}.md").write_text(f"# Note {number}\n\n{words}{typo}\n", "utf-8")

    def sides(**config: float) -> dict[str, str]:
        report = look(
            [notes], workspace=tmp_path / "w", settings=LookSettings(split=SplitConfig(**config))
        )
        return {post.id: post.split for post in report.posts}

    for number in range(30):
        write(number)
    before = sides()
    for number in range(30, 34):
        write(number)
    for number in range(0, 30, 2):
        write(number, " mended")
    after = sides()
    assert {id_: after[id_] for id_ in before} == before
    assert len(after) == 34
    # A renamed file is the same post.
    held_out = next(id_ for id_ in before if before[id_] == "test").partition(":")[2]
    (notes / held_out).rename(notes / "renamed.md")
    renamed = sides()
    assert [name for id_, name in renamed.items() if "renamed" in id_] == ["test"]
    # Other shares divide all anew.
    assert list(sides(test=0.2).values()).count("test") > list(after.values()).count("test")


# --- next week's export ---------------------------------------------------------------------------


def text_of(number: int, extra: str = "") -> str:
    rng = random.Random(number)
    words = " ".join(f"w{rng.randrange(999)}" for _ in range(150))
    return f"---\ntitle: Day {number}\ndate: 2024-01-{number + 1:02}\n---\n\n{words} {extra}\n"


def blog_of(folder: Path, numbers: Iterable[int], *changed: int, name: str = "{}.md") -> Path:
    folder.mkdir(parents=True)
    for number in numbers:
        extra = "and a word more" if number in changed else ""
        (folder / name.format(number)).write_text(text_of(number, extra), "utf-8")
    return folder


def zip_of(path: Path, numbers: Iterable[int], *changed: int) -> Path:
    folder = blog_of(path.with_suffix(".in"), numbers, *changed)
    return Path(shutil.make_archive(str(path.with_suffix("")), "zip", folder))


def html_of(folder: Path, numbers: Iterable[int]) -> Path:
    folder.mkdir()
    for number in numbers:
        title, day, text = re.findall(r"title: (.*)\ndate: (.*)\n---\n\n(.*)", text_of(number))[0]
        (folder / f"post-{number}.html").write_text(
            f'<html><head><title>{title}</title><meta property="article:published_time"'
            f' content="{day}"></head><body><article><h1>{title}</h1><p>{text}</p></article></body>'
        )
    return folder


FIGURES = ("new", "changed", "same", "gone")


@pytest.mark.parametrize(
    ("make", "figures"),
    [
        (lambda at: zip_of(at / "newer.zip", range(21), 4), (1, 1, 19, 0)),
        (lambda at: blog_of(at / "moved", range(20), 4, name="posts-{}.md"), (0, 1, 19, 0)),
        (lambda at: html_of(at / "html", range(22)), (2, 0, 20, 0)),  # in another format
        (lambda at: blog_of(at / "part", range(15, 21)), (1, 0, 5, 15)),
        (lambda at: blog_of(at / "few", range(12, 30)), None),
    ],
)
def test_most_posts_of_a_source_are_its_new_version(
    make: Callable[[Path], Path], figures: tuple[int, ...] | None, tmp_path: Path
) -> None:
    workspace = tmp_path / "w"
    old = zip_of(tmp_path / "blog.zip", range(20))
    before = look([old], workspace=workspace)
    choices = workspace / "choices.toml"
    choices.write_text('[[post]]\nid = "blog:17.md"\ndecision = "leave out"\n', "utf-8")
    sides = {post.title: post.split for post in before.posts}
    (tmp_path / "x").mkdir()
    new = make(tmp_path)
    questions = []

    def ask(question: PostQuestion) -> str:
        questions.append(question)
        return question.default

    report = look([new], workspace=workspace, ask=ask)
    if figures is None:
        assert not questions and not report.versions
        return
    [question] = questions
    assert list(question.options) == ["replace", "both", "cancel"]
    [version] = report.versions
    assert (version.path, version.of) == (str(new), str(old))
    assert tuple(getattr(version, name) for name in FIGURES) == figures
    assert sum(figures[:3]) == len(report.posts)
    by_title = {post.title: post for post in report.posts}
    assert {t: post.split for t, post in by_title.items() if t in sides and t != "Day 17"} == {
        t: side for t, side in sides.items() if t in by_title and t != "Day 17"
    }
    assert by_title["Day 17"].decision == "leave out"
    if new.name not in ("html", "moved"):
        assert {post.id for post in report.posts} <= {f"blog:{n}.md" for n in range(30)}
    again = look([new], workspace=workspace, ask=ask)  # asks no more, and the ids stay
    assert [post.id for post in again.posts] == [post.id for post in report.posts]
    assert len(questions) == 1 and not again.versions


@pytest.mark.parametrize("answer", ["replace", "both", "cancel", "--yes", "nobody"])
def test_two_versions_given_together_are_read_as_the_author_says(
    answer: str, tmp_path: Path
) -> None:
    old, new = zip_of(tmp_path / "a.zip", range(20)), zip_of(tmp_path / "b.zip", range(21), 4)
    settings = LookSettings(ArchiveConfig(replaces_versions=answer == "--yes"))
    is_asked = answer in ("replace", "both", "cancel")

    def reply(question: PostQuestion) -> str:
        return answer if answer in question.options else question.default

    def read() -> Report:
        return look(
            [new, old], workspace=tmp_path / "w", ask=reply if is_asked else None, settings=settings
        )

    if answer == "cancel":
        with pytest.raises(KeyboardInterrupt):
            read()
        assert not (tmp_path / "w").exists()
        return
    report = read()
    is_replaced = answer in ("replace", "--yes")
    assert len(report.posts) == 21 if is_replaced else 41
    assert report.sources[0].newest_day == "2024-01-21"
    note = "b.zip is read instead of a.zip: 1 new, 1 changed, 19 as before."
    assert (note in report.notes) == is_replaced


def test_exports_of_two_blogs_do_not_share_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blogs = {"export": range(20), "export-2024-02-01": range(30, 50)}
    names = ("export-2024-01-01", "export-2024-02-01", "export-2024-03-01")
    for n, name in enumerate(names):  # by turns of one blog and of the other
        [workspace, numbers] = list(blogs.items())[n % 2]
        report = look([zip_of(tmp_path / "in" / f"{name}.zip", numbers)])
        assert report.workspace == str(tmp_path / f"{workspace}.ownwords")
        assert len(report.posts) == 20
    assert len(list(tmp_path.glob("*.ownwords"))) == 2


def test_a_damaged_archive_keeps_its_workspace(tmp_path: Path) -> None:
    export = zip_of(tmp_path / "export-2024-03-01.zip", range(20))
    usual = tmp_path / "export.ownwords"
    usual.mkdir()
    (usual / "archive.sqlite").write_bytes(b"not a database" * 100)
    assert workspace_for(export, tmp_path).root == usual


@pytest.mark.parametrize("form", ["zip", "gztar", "tar"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_packed_texts_are_unpacked_once_and_read_as_their_folder_is(
    form: str, wrapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[Path] = []
    unpack = sources._unpack

    def counted(path: Path, folder: Path) -> None:
        unpacked.append(folder)
        unpack(path, folder)

    monkeypatch.setattr(sources, "_unpack", counted)
    notes = tmp_path / "in" / "notes"
    (notes / "old").mkdir(parents=True)
    for name in ("1", "2", "old/3"):
        (notes / f"{name}.md").write_text(f"# Note {name}\n\nIt rained {name} days.\n")
    (notes / "cat.jpg").write_bytes(b"\xff\xd8")
    top = tmp_path / "in" if wrapped else notes
    packed = Path(shutil.make_archive(str(tmp_path / "notes"), form, top))
    before = set(tmp_path.rglob("*"))
    reports = [look([path], workspace=tmp_path / f"w{n}") for n, path in enumerate((notes, packed))]
    assert len(unpacked) == 1
    look([notes, packed], workspace=tmp_path / "w0")  # which compares them, too
    assert len(unpacked) == 2
    assert not any(folder.parent.exists() for folder in unpacked)
    assert [post.id for post in reports[1].posts] == [post.id for post in reports[0].posts]
    assert reports[1].sources[0].detected_as == reports[0].sources[0].detected_as
    assert set(tmp_path.glob("[!w]*")) <= before


def test_a_path_given_beside_another_never_loses_most_of_its_posts(tmp_path: Path) -> None:
    blog, extra = tmp_path / "blog", tmp_path / "extra"
    for folder, numbers in ((blog, range(9)), (extra, range(8, 9))):
        folder.mkdir()
        for number in numbers:
            words = " ".join(f"word{number}x{place}" for place in range(60))
            (folder / f"{number}.md").write_text(f"---\ntitle: Post {number}\n---\n\n{words}.\n")
    settings = LookSettings(ArchiveConfig(replaces_versions=True))
    report = look([blog, extra], workspace=tmp_path / "w.ownwords", settings=settings)
    assert report.totals.posts >= 9
