"""Old shards are deleted; recently used ones and those of runs are kept."""

import os
import shutil
from pathlib import Path

import pytest

from ownwords.core.errors import WorkspaceError
from ownwords.models import atomic_dir
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.training import shard_cache
from ownwords.training.shards import TrainingText, build_shards, open_shards

COUNT = shard_cache.MAX_SHARDS + 4


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "pretrain-1").mkdir(parents=True)
    return tmp_path / "runs"


@pytest.fixture
def keys(tokens: Path) -> list[str]:
    """Shards, the least recently used first."""
    shards = [
        build_shards([TrainingText("a", "hat " * n)], ByteTokenizer(), tokens).key
        for n in range(1, COUNT + 1)
    ]
    for n, key in enumerate(shards):
        os.utime(tokens / key, (1e9 + n, 1e9 + n))
    return shards


def shard_names(tokens: Path) -> set[str]:
    return {path.name for path in tokens.iterdir()}


def test_the_last_used_stay(tokens: Path, runs: Path, keys: list[str]) -> None:
    shard_cache.prune(tokens, runs)
    assert shard_names(tokens) == set(keys[-shard_cache.MAX_SHARDS :])


def test_opening_is_using(tokens: Path, runs: Path, keys: list[str]) -> None:
    assert open_shards(tokens / keys[0]).documents == 1
    assert build_shards([TrainingText("a", "hat hat ")], ByteTokenizer(), tokens).key == keys[1]
    shard_cache.prune(tokens, runs)
    assert shard_names(tokens) == {keys[0], keys[1], *keys[-shard_cache.MAX_SHARDS + 2 :]}


def test_shards_named_by_a_run_are_kept(tokens: Path, runs: Path, keys: list[str]) -> None:
    shard_cache.name_shards(runs / "pretrain-1", keys[:2])
    shard_cache.prune(tokens, runs)
    assert shard_names(tokens) == {*keys[:2], *keys[-shard_cache.MAX_SHARDS :]}
    (runs / "pretrain-1" / "tokens.json").unlink()
    (runs / "pretrain-1").rmdir()
    shard_cache.prune(tokens, runs)
    assert shard_names(tokens) == set(keys[-shard_cache.MAX_SHARDS :])


@pytest.mark.parametrize("record", ["", "[1]", "{}", '{"keys": "all"}', '{"keys": '])
def test_with_an_unreadable_run_nothing_is_pruned(
    tokens: Path, runs: Path, keys: list[str], record: str
) -> None:
    (runs / "pretrain-1" / "tokens.json").write_text(record)
    shard_cache.prune(tokens, runs)
    assert shard_names(tokens) == set(keys)


def test_other_folders_are_not_pruned(tokens: Path, runs: Path, keys: list[str]) -> None:
    (tokens / "tokenizer-1").mkdir()
    (tokens / "tokenizer-1" / "tokenizer.json").write_text("{}")
    (tokens / "notes.txt").write_text("mine")
    (tokens / f".{keys[0]}.x.writing").mkdir()
    shard_cache.prune(tokens, runs)
    assert shard_names(tokens) >= {"tokenizer-1", "notes.txt", f".{keys[0]}.x.writing", keys[-1]}


def test_a_kill_while_pruning_leaves_complete_shards_only(
    tokens: Path, runs: Path, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path, ignore_errors: bool = False) -> None:
        if folder.exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            shard_cache.prune(tokens, runs)
    remaining = shard_names(tokens) - set(keys)
    assert [name.endswith(".deleted") for name in remaining] == [True]
    shard_cache.prune(tokens, runs)
    assert shard_names(tokens) == set(keys[-shard_cache.MAX_SHARDS :])


def test_undeletable_shards_stay_complete(
    tokens: Path, runs: Path, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path) -> None:
        raise WorkspaceError(f"{folder} cannot be written")

    monkeypatch.setattr(atomic_dir, "delete_dir", refused)
    shard_cache.prune(tokens, runs)
    assert all(open_shards(tokens / key).documents == 1 for key in keys)


def test_no_tokens_and_no_runs_yet(tmp_path: Path) -> None:
    shard_cache.prune(tmp_path / "tokens", tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
