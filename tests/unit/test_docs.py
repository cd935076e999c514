import os
import shutil
import subprocess
import sys
from pathlib import Path

from ownwords.cli.main import build
from ownwords.cli.options import Settings
from ownwords.core.config import settings_of

ROOT = Path(__file__).resolve().parents[2]
GENERATE = ROOT / "docs" / "generate.py"


def generate(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(GENERATE), *arguments],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | env,
        check=False,
    )


def test_the_pages_are_up_to_date_and_the_reference_is_the_same_for_any_terminal() -> None:
    process = generate("--check")
    assert process.returncode == 0, process.stderr
    plain, narrow = (
        generate("--print", PYTHONIOENCODING="utf-8", **env)
        for env in ({}, {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "dumb"})
    )
    assert plain.returncode == 0, plain.stderr
    assert narrow.stdout == plain.stdout


def test_stale_pages_are_reported(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "how-it-works.md", tmp_path / "docs")
    copy = tmp_path / "docs" / "generate.py"
    copy.write_text(GENERATE.read_text(encoding="utf-8"), encoding="utf-8")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "README.md").write_text(readme.replace("53  posts", "54  posts"), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, str(copy), "--check"],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert process.returncode == 1
    assert "README.md is stale: run python docs/generate.py" in process.stderr


def test_the_reference_covers_every_setting_and_verb_and_no_machine() -> None:
    text = generate("--print", PYTHONIOENCODING="utf-8").stdout
    settings = list(settings_of(Settings()))
    assert len(settings) > 50
    assert not [setting.key for setting in settings if f"`{setting.key}`" not in text]
    verbs = [name for name in build() if not name.startswith("-")]
    assert not [verb for verb in verbs if f"`ownwords {verb}" not in text]
    assert "\x1b" not in text
    assert str(Path.home()) not in text
