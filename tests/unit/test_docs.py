"""The pages that are written from the code."""

import re
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import scripts
from ownwords.base.catalogue import find_known
from ownwords.cli.main import build, main
from ownwords.cli.options import Settings
from ownwords.core.config import settings_of


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    return scripts.load("docs/generate.py")


def test_the_pages_are_up_to_date_and_a_stale_one_is_reported(
    docs: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert docs.main(["--check"]) == 0
    stale = tmp_path / "how-it-works.md"
    stale.write_text("`core/errors.py:0 OwnwordsError`", "utf-8")
    monkeypatch.setattr(docs, "EXPLAINED", stale)
    monkeypatch.setattr(docs, "REFERENCE", tmp_path / "reference.md")
    monkeypatch.setattr(docs, "readme", docs.README.read_text)
    assert docs.main(["--check"]) == 1
    assert "how-it-works.md is stale: run python docs/generate.py" in capsys.readouterr().err
    assert docs.main([]) == 0
    assert ":0 " not in stale.read_text("utf-8")


def test_the_reference_covers_everything_and_is_the_same_for_any_terminal(
    docs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = docs.reference()
    settings = list(settings_of(Settings()))
    assert len(settings) > 40
    assert not [setting.key for setting in settings if f"`{setting.key}`" not in text]
    verbs = [name for name in build() if not name.startswith("-")]
    assert not [verb for verb in verbs if f"`ownwords {verb}" not in text]
    assert "\x1b" not in text
    assert str(Path.home()) not in text
    for name, value in (("COLUMNS", "40"), ("FORCE_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    assert docs.reference() == text


def test_the_files_for_a_rented_gpu_are_valid_and_their_options_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    yaml = pytest.importorskip("yaml")
    page = (Path(__file__).parents[2] / "docs" / "scale-out.md").read_text("utf-8")
    rented = page.partition("## Beyond one machine")[0]
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^(?:    .*)?\n)+", rented, re.M)]
    (python,) = [block for block in blocks if "import modal" in block]
    (yaml_text,) = [block for block in blocks if "accelerators" in block]
    compile(python, "make_modal.py", "exec")
    recipe = yaml.safe_load(yaml_text)
    commands = [line for line in rented.splitlines() if line.startswith("    ownwords make ")]
    assert len(commands) == 2 and " --device cuda " in recipe["run"]
    assert main(["make", "--help"]) == 0
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    for command in [*commands, recipe["run"], "".join(re.findall(r"options = .*", python))]:
        assert set(re.findall(r"--[a-z-]+", command)) <= options
    assert all(find_known(name) for name in re.findall(r"base add (\S+)", rented))
