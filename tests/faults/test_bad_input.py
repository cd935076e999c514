"""Bad input of every kind: status 2, one clear sentence, and an unchanged workspace."""

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exports import publii as export
from ownwords.archive.store import Archive
from ownwords.cli.main import main

NAMES = ("input/db.sqlite", "db.sqlite")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A sound Publii site; `database_of` finds its database."""
    return export.write(tmp_path / "sites")


@pytest.fixture
def workspace(tmp_path: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Path]:
    """A workspace made from the sound site; checks that a failed look does not change it."""
    path = tmp_path / "w.ownwords"
    assert main(["look", str(site), "--yes", "--workspace", str(path)]) == 0
    capsys.readouterr()
    before = state_of(path)
    yield path
    assert state_of(path) == before


def state_of(workspace: Path) -> dict[str, str]:
    """The contents of a workspace, apart from the log of the last run."""
    with Archive(workspace / "archive.sqlite") as archive:
        texts = "\n".join(f"{d.id} {d.title} {d.text()}" for d in archive.documents())
    digest = hashlib.sha256(texts.encode()).hexdigest()
    files = {name: (workspace / name).read_text(encoding="utf-8") for name in ("report.html",)}
    return {"archive": digest, **files}


def database_of(site: Path) -> Path:
    return next(site / name for name in NAMES if (site / name).exists())


def refused(capsys: pytest.CaptureFixture[str], path: Path, workspace: Path, *options: str) -> str:
    """The error of `look`; checks that it is one sentence, and the status."""
    status = main(["look", str(path), "--yes", "--workspace", str(workspace), *options])
    captured = capsys.readouterr()
    assert status == 2, captured
    lines = [line for line in captured.err.splitlines() if line.startswith("ownwords: ")]
    assert len(lines) == 1, captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    return lines[0].removeprefix("ownwords: ")


def change(site: Path, *statements: tuple[str, tuple[str, ...]]) -> None:
    database = sqlite3.connect(database_of(site))
    for statement, values in statements:
        database.execute(statement, values)
    database.commit()
    database.close()


def write_post(site: Path, body: str) -> None:
    """Give the site a single published post."""
    row = "INSERT INTO posts VALUES (1, 'One', '1', 'one', ?, NULL, 0, 0, 'published', '')"
    change(site, ("DELETE FROM posts", ()), (row, (body,)))


@pytest.mark.parametrize(
    ("spoil", "options", "sentence"),
    [
        (lambda site: database_of(site).write_bytes(b"a renamed text\n" * 100), (), "db.sqlite"),
        (lambda site: change(site, ("DELETE FROM posts", ())), (), "contains no text to read"),
        (lambda site: change(site, ("UPDATE posts SET status = 'draft'", ())), (), "a draft"),
        (lambda _: None, ("--set", "archive.max_post_characters=5"), "over the limit of 5"),
    ],
)
def test_a_site_without_a_post_to_read(
    spoil: Callable[[Path], object],
    options: tuple[str, ...],
    sentence: str,
    site: Path,
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(site)
    assert sentence in refused(capsys, site, workspace, *options)


def test_a_tar_with_a_path_outside(
    tmp_path: Path, site: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "backup.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(database_of(site), "../input/db.sqlite")
    assert "points outside" in refused(capsys, path, workspace)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything"
)
def test_an_unreadable_file_or_folder_is_reported(
    site: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database_of(site).chmod(0)
    assert "cannot be read" in refused(capsys, site, workspace)
    site.chmod(0)
    assert "not of a kind that ownwords can read" in refused(capsys, site, workspace)
    site.chmod(0o700)


def test_a_workspace_whose_creation_failed_leaves_no_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"no")
    refused(capsys, bad, tmp_path / "new.ownwords")
    assert not (tmp_path / "new.ownwords").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system")
@pytest.mark.skipif(not shutil.which("mount"), reason="mounts a small file system")
def test_a_full_disk(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting takes rights that this user does not have")
    try:
        workspace = disk / "w.ownwords"
        assert main(["look", str(site), "--yes", "--workspace", str(workspace)]) == 0
        before = state_of(workspace)
        capsys.readouterr()
        write_post(site, "".join(f"<p>word{n} and word{n * 7}</p>" for n in range(20_000)))
        assert "full" in refused(capsys, site, workspace)
        assert state_of(workspace) == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_external_entities_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret").write_text("never read", encoding="utf-8")
    entity = f'<!DOCTYPE rss [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]>'
    item = "<item><title>Hats</title><description>Warm &x; hats.</description></item>"
    path = tmp_path / "feed.xml"
    path.write_text(
        f'<?xml version="1.0"?>{entity}<rss version="2.0"><channel>{item}</channel></rss>'
    )
    status = main(["look", str(path), "--json", "--workspace", str(tmp_path / "x.ownwords")])
    assert status == 0
    capsys.readouterr()
    assert b"never read" not in b"".join(
        file.read_bytes() for file in (tmp_path / "x.ownwords").rglob("*") if file.is_file()
    )
