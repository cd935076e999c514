"""Killed at any moment: the workspace holds the old state or the new one, and the choices."""

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exports import publii as export
from ownwords.archive.store import Archive

WORDS = ["hat", "cap", "brim", "felt", "straw", "crown", "ribbon", "feather", "steam", "wool"]
POSTS, KILLS = 80, 7


def rewrite(site: Path, seed: int) -> None:
    """Give the site other posts."""
    generator = random.Random(seed)
    database = sqlite3.connect(site / "input" / "db.sqlite")
    database.execute("DELETE FROM posts")
    for number in range(POSTS):
        text = " ".join(generator.choices(WORDS, k=600))
        database.execute(
            "INSERT INTO posts VALUES (?, ?, '1', ?, ?, NULL, 0, 0, 'published', '')",
            (number + 1, f"Post {seed}", f"post-{number}", f"<p>{text}</p>"),
        )
    database.commit()
    database.close()


def look(site: Path, workspace: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "ownwords", "look", str(site), "--yes", "--quiet"]
    return subprocess.Popen(
        [*command, "--workspace", str(workspace)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def titles(workspace: Path) -> set[str]:
    with Archive(workspace / "archive.sqlite") as archive:
        return {f"{head.title} of {len(archive.keys())}" for head in archive.headers()}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal on Windows")
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    site = export.write(tmp_path / "sites")
    site = next(path.parent.parent for path in site.parent.rglob("db.sqlite"))
    workspace = tmp_path / "w.ownwords"
    rewrite(site, 0)
    began = time.monotonic()
    first = look(site, workspace)
    _, error = first.communicate(timeout=60)
    assert first.returncode == 0, error
    whole_s = time.monotonic() - began
    choices_text = '[[post]]\nid = "hats:post/5"\ndecision = "leave out"\n'
    (workspace / "choices.toml").write_text(choices_text, encoding="utf-8")

    generator = random.Random(3)
    now = f"Post 0 of {POSTS}"
    for seed in range(1, KILLS + 1):
        rewrite(site, seed)
        process = look(site, workspace)
        time.sleep(whole_s * generator.uniform(0.2, 1.0))
        process.kill()
        process.communicate()
        posts = titles(workspace)
        assert posts in ({now}, {f"Post {seed} of {POSTS}"}), posts
        now = posts.pop()
        assert 'decision = "leave out"' in (workspace / "choices.toml").read_text("utf-8")

    last = look(site, workspace)
    _, error = last.communicate(timeout=60)
    assert last.returncode == 0, error
    assert titles(workspace) == {f"Post {KILLS} of {POSTS}"}
    files = {path.name for path in workspace.iterdir()}
    assert files >= {"archive.sqlite", "report.html", "choices.toml"}
    assert not [name for name in files if name.endswith(".unfinished")]
