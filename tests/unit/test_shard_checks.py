"""Verified files are read again when they have changed, and after a while."""

import json
import os
import random
import time
from pathlib import Path

import pytest

import damage
from ownwords.core.errors import WorkspaceError
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.training import shard_cache
from ownwords.training import shards as room
from ownwords.training.shards import TrainingText, build_shards, open_shards


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Encoded texts that were verified and stamped."""
    monkeypatch.setattr(shard_cache, "SETTLED_S", -1.0)
    folder = build_shards(
        [TrainingText("a", "hats " * 200), TrainingText("b", "")], ByteTokenizer(), tmp_path
    ).folder
    assert (folder / shard_cache.STAMP).exists()
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files read from here on."""
    names: list[str] = []
    check = room._check

    def watched(folder: Path, name: str, nbytes: int, checksum: str) -> None:
        names.append(name)
        check(folder, name, nbytes, checksum)

    monkeypatch.setattr(room, "_check", watched)
    return names


def flip_bit(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    return bytes(data)


def test_files_with_an_unchanged_stamp_are_not_read_again(folder: Path, read: list[str]) -> None:
    assert open_shards(folder).text_bytes == 1000
    assert open_shards(folder).document(0).tolist()[1:-1] == list(b"hats " * 200)
    assert read == []


def test_a_file_just_written_is_not_stamped(tmp_path: Path, read: list[str]) -> None:
    folder = build_shards([TrainingText("a", "hats")], ByteTokenizer(), tmp_path).folder
    assert len(read) == 4
    assert not (folder / shard_cache.STAMP).exists()
    open_shards(folder)
    assert len(read) == 8


@pytest.mark.parametrize("name", ["tokens.bin", "offsets.bin", "bytes.bin", "names.json"])
def test_a_changed_file_is_read_and_reported(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(flip_bit(path))
    for _ in range(2):
        with pytest.raises(WorkspaceError, match="damaged"):
            open_shards(folder)


@pytest.mark.skipif(os.name == "nt", reason="Windows does not note when a file was changed")
def test_setting_the_time_back_hides_no_change(folder: Path) -> None:
    path = folder / "tokens.bin"
    before = path.stat()
    path.write_bytes(flip_bit(path))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(WorkspaceError, match="damaged"):
        open_shards(folder)


def test_another_file_of_the_same_size_and_time_is_read(folder: Path) -> None:
    path, replacement = folder / "tokens.bin", folder.parent / "other"
    before = path.stat()
    replacement.write_bytes(flip_bit(path))
    os.utime(replacement, ns=(before.st_atime_ns, before.st_mtime_ns))
    replacement.replace(path)
    with pytest.raises(WorkspaceError, match="damaged"):
        open_shards(folder)


def test_a_missing_file_is_reported(folder: Path) -> None:
    (folder / "bytes.bin").unlink()
    with pytest.raises(WorkspaceError, match=r"bytes\.bin is missing"):
        open_shards(folder)


def test_silent_corruption_is_found_within_a_week(
    folder: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    path, stamp = folder / "tokens.bin", folder / shard_cache.STAMP
    path.write_bytes(flip_bit(path))
    record = json.loads(stamp.read_text())
    record["looks"]["tokens.bin"] = shard_cache._look(path)
    stamp.write_text(json.dumps(record))
    open_shards(folder)
    assert read == []
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7 * 24 * 3600 + 60)
    with pytest.raises(WorkspaceError, match="damaged"):
        open_shards(folder)


def test_a_clock_set_back_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    open_shards(folder)
    assert len(read) == 4


def test_a_damaged_stamp_is_ignored(folder: Path, read: list[str]) -> None:
    stamp = folder / shard_cache.STAMP
    data = stamp.read_bytes()
    record = json.loads(data)
    generator = random.Random(3)
    for attempt in range(60):
        change = damage.of_json if attempt % 2 else damage.of_bytes
        stamp.write_bytes(change(data, generator))
        read.clear()
        open_shards(folder)
        # Read again, unless nothing that counts was hit; and vouched for again, or still.
        assert len(read) in (0, 4)
        rewritten = json.loads(stamp.read_bytes())
        assert (rewritten["key"], rewritten["looks"]) == (record["key"], record["looks"])


def test_a_stamp_is_of_one_manifest(folder: Path, read: list[str]) -> None:
    stamp = folder / shard_cache.STAMP
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | {"key": "0" * 32}))
    open_shards(folder)
    assert len(read) == 4


def test_a_read_only_folder_is_verified_each_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    def refused(path: Path, content: str) -> None:
        raise WorkspaceError(f"{path} cannot be written")

    (folder / shard_cache.STAMP).unlink()
    monkeypatch.setattr(shard_cache, "write_atomically", refused)
    assert open_shards(folder).documents == open_shards(folder).documents == 2
    assert len(read) == 8
