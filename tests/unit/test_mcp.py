"""`ownwords mcp`, as an agent uses it: with the protocol's own client, over stdin and stdout."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("torch")
pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters, stdio_client

import model_directories
from ownwords.archive.look import look
from ownwords.cli.mcp import _Tools
from ownwords.core.workspace import Workspace
from ownwords.models import bundle
from ownwords.tokenizers.bpe import ByteTokenizer

BLOG = Path(__file__).resolve().parents[2] / "examples" / "blog"


@pytest.fixture(scope="module")
def workspace(sample_blog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mcp") / "w.ownwords"
    shutil.copytree(sample_blog, root)
    bundle.save(root / "model", model_directories.model("qwen3", vocab_size=300), ByteTokenizer())
    return root


def call_all(workspace: Path, calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[Any], Any]:
    """The results of the calls, and the tools that there are."""

    async def talk() -> tuple[list[Any], Any]:
        command = ["-m", "ownwords", "mcp", str(workspace)]
        # No base is installed there.
        environment = {**os.environ, "OWNWORDS_HOME": str(workspace.parent / "home")}
        parameters = StdioServerParameters(command=sys.executable, args=command, env=environment)
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            return [await session.call_tool(name, given) for name, given in calls], tools

    return anyio.run(talk)


def test_an_agent_finds_reads_and_writes(workspace: Path) -> None:
    before = {p: p.read_bytes() for p in workspace.rglob("*.json")}
    notes = "- kettle broken since 12 March\n- no answer"
    results, tools = call_all(
        workspace,
        [
            ("search", {"query": "gutter", "limit": 2}),
            ("ask", {"question": "How many posts did I write in 2019?"}),
            ("posts", {"limit": 3}),
            ("read_post", {"id": "nowhere"}),
            ("check", {"draft": "The gutter is a small river. I like it as it is, most days."}),
            ("draft", {"notes": "rain fell"}),
            ("read_post", {"id": "blog:post/57"}),
            ("facts_kept", {"notes": notes, "draft": "The kettle has been broken since 13 March."}),
            ("voice", {"about": "the rain gauge"}),
            ("find_passages", {"about": "the rain gauge", "words": 300}),
        ],
    )
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    texts = ["\n".join(part.text for part in result.content) for result in results]
    failed = [number for number, result in enumerate(results) if result.is_error]
    assert failed == [3, 5]
    assert "gutter" in texts[0]
    assert json.loads(texts[1])["sentence"]
    assert texts[2].count('"title"') == 3
    assert "`posts` lists them" in texts[3]
    assert 0 <= json.loads(texts[4])["yours"] <= 1
    assert "no model here can write from notes" in texts[5]
    assert {p: p.read_bytes() for p in before} == before
    assert "jubilee clip" in json.loads(texts[6])["text"]
    assert json.loads(texts[7])["not_shown"] == ["kettle broken since 12 March", "no answer"]
    assert "others" in texts[8] and "language models" in texts[8] and "gauge" in texts[8]
    assert "gauge" in texts[9]


def test_newer_posts_and_a_newer_model_are_used_at_once(tmp_path: Path) -> None:
    root, new = tmp_path / "w.ownwords", tmp_path / "new.txt"
    new.write_text("Ladders\n\nThe zeppelin has stood behind the shed since March.")
    tools, texts = _Tools(Workspace(root)), []
    for seed, sources in enumerate(([BLOG], [BLOG, new])):
        look(sources, workspace=root)
        model = model_directories.model("qwen3", seed, vocab_size=300)
        bundle.save(root / "model", model, ByteTokenizer())
        assert any("zeppelin" in each["text"] for each in tools.search("zeppelin")) == bool(seed)
        texts.append(tools.model(tools.own_model()).write_several("It", seeds=[1], max_tokens=20))
    assert texts[0] != texts[1]
