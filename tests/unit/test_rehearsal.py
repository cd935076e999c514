"""A base's own writing: enough, the same each time, kept, and second to what it brings."""

import lzma
from pathlib import Path

import pytest

import small_bases
from ownwords.inference.model import Model
from ownwords.models.untrusted_files import ModelError
from ownwords.training import replay_text as room
from ownwords.training.replay_text import BROUGHT, DIVIDER, rehearsal, written_by


@pytest.fixture
def base(tmp_path: Path) -> Path:
    small_bases.write(tmp_path / "base")
    return tmp_path / "base"


def test_it_writes_as_much_as_asked_and_the_same_each_time(base: Path) -> None:
    model = Model.load(base)
    texts = list(written_by(model, 3000))
    assert texts == list(written_by(model, 3000))
    assert len(set(texts)) > 1
    # Of bytes each token is one; those that are no UTF-8 become three.
    assert sum(len(text.encode()) for text in texts) >= 2500


def test_it_ends_with_its_time(base: Path) -> None:
    assert sum(map(len, written_by(Model.load(base), 10**9, 0.0))) < 10_000


def test_what_was_written_is_kept_and_found_again(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = rehearsal(base, 500, 60.0, cache)
    monkeypatch.setattr(room, "written_by", None)  # whoever writes again fails
    assert rehearsal(base, 500, 60.0, cache) == first
    (kept,) = cache.iterdir()
    kept.write_bytes(b"no archive")
    with pytest.raises(ModelError, match="is damaged"):
        rehearsal(base, 500, 60.0, cache)


def test_what_a_base_brings_is_taken(base: Path, tmp_path: Path) -> None:
    (base / BROUGHT).write_bytes(lzma.compress(f"One.{DIVIDER}Two, ä.{DIVIDER} ".encode()))
    texts = rehearsal(base, 500, 60.0, tmp_path / "cache")
    assert [text.text for text in texts] == ["One.", "Two, ä."]
    assert not (tmp_path / "cache").exists()
