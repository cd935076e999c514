"""The plugin of LLM, as its own command line uses it."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("llm")

import llm
from click.testing import CliRunner
from llm.cli import cli
from llm.plugins import pm

import model_directories
from ownwords.cli import llm_plugin
from ownwords.models import bundle
from ownwords.tokenizers.bpe import ByteTokenizer


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "blog.ownwords" / "model"
    bundle.save(folder, model_directories.model("qwen3", vocab_size=300), ByteTokenizer())
    if not pm.is_registered(llm_plugin):
        pm.register(llm_plugin)
    return CliRunner()


def test_the_model_of_a_workspace_writes(run: CliRunner) -> None:
    listed = run.invoke(cli, ["models"])
    assert "ownwords/blog" in listed.output
    write = ["-m", "ownwords/blog", "-o", "max_tokens", "5", "It was"]
    first, again = (run.invoke(cli, write) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.output == again.output
    assert run.invoke(cli, ["-m", "ownwords/blog", "-o", "seed", "-1", "x"]).exit_code != 0


def test_a_conversation_is_one_text(run: CliRunner) -> None:
    model = llm.get_model("ownwords/blog")
    conversation = model.conversation()
    begun = conversation.prompt("It was", max_tokens=4).text()
    more = conversation.prompt(" and", max_tokens=4).text()
    assert more == model.prompt(f"It was{begun} and", max_tokens=4).text()
