"""A site exported again: the same posts under the same ids, decisions and splits."""

import importlib
import random
from pathlib import Path

import pytest

from ownwords.archive.look import look
from ownwords.archive.report import PostSummary
from ownwords.archive.selection import read_choices
from ownwords.archive.settings import LookSettings, SplitConfig

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


def test_choices_are_kept_when_the_folder_is_renamed(tmp_path: Path) -> None:
    folder, choices = tmp_path / "notes", tmp_path / "w" / "choices.toml"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.md").write_text(f"# Note {number}\n\nIt rained {number} days.\n")
    look([folder], workspace=tmp_path / "w")
    choices.write_text('[[post]]\nid = "notes:1.md"\ndecision = "cap"\n', encoding="utf-8")
    look([folder.rename(tmp_path / "letters")], workspace=tmp_path / "w")
    assert list(read_choices(choices)) == ["letters:1.md"]
