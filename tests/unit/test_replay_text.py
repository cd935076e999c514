"""Replay text of a base: read as it was stored, refused if damaged."""

import lzma
from pathlib import Path

import pytest

from ownwords.models.untrusted_files import ModelError
from ownwords.training import replay_text
from ownwords.training.replay_text import DIVIDER, SHIPPED, read


def test_replay_text_that_would_fill_the_memory_or_breaks_off_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_text, "_MAX_BYTES", 1 << 20, raising=False)
    packed = lzma.compress(bytes(8 << 20))
    whole = lzma.compress(b"One. " * 99)
    for damaged in (packed, whole[:-20], b"no archive"):
        (tmp_path / SHIPPED).write_bytes(damaged)
        with pytest.raises(ModelError, match="is damaged"):
            read(tmp_path / SHIPPED)


def test_texts_are_read_as_they_were_stored(tmp_path: Path) -> None:
    (tmp_path / SHIPPED).write_bytes(lzma.compress(f"One.{DIVIDER}Two, ä.{DIVIDER} ".encode()))
    assert [text.text for text in read(tmp_path / SHIPPED)] == ["One.", "Two, ä."]
