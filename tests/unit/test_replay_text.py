"""A base's own writing: enough, the same each time, kept, and second to what it brings."""

import lzma
from pathlib import Path

import pytest

import small_bases
from ownwords.inference.model import Model
from ownwords.models.untrusted_files import ModelError
from ownwords.training import replay_text
from ownwords.training.replay_text import DIVIDER, SHIPPED, find_or_write, read, sample_texts


@pytest.fixture
def base(tmp_path: Path) -> Path:
    small_bases.write(tmp_path / "base")
    return tmp_path / "base"


def test_replay_text_has_the_requested_size_and_is_deterministic(base: Path) -> None:
    model = Model.load(base)
    texts = list(sample_texts(model, 3000))
    assert texts == list(sample_texts(model, 3000))
    assert len(set(texts)) > 1
    # Of bytes each token is one; those that are no UTF-8 become three.
    assert sum(len(text.encode()) for text in texts) >= 2500


def test_it_ends_with_its_time(base: Path) -> None:
    assert sum(map(len, sample_texts(Model.load(base), 10**9, 0.0))) < 10_000


def test_generated_replay_text_is_cached(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = find_or_write(base, 500, 60.0, cache)
    monkeypatch.setattr(replay_text, "sample_texts", None)  # whoever writes again fails
    assert find_or_write(base, 500, 60.0, cache) == first
    (cached,) = cache.iterdir()
    assert cached == first
    cached.write_bytes(b"no archive")
    with pytest.raises(ModelError, match="is damaged"):
        read(cached)


def test_the_replay_text_of_a_base_is_used(base: Path, tmp_path: Path) -> None:
    (base / SHIPPED).write_bytes(lzma.compress(f"One.{DIVIDER}Two, ä.{DIVIDER} ".encode()))
    texts = read(find_or_write(base, 500, 60.0, tmp_path / "cache"))
    assert [text.text for text in texts] == ["One.", "Two, ä."]
    assert not (tmp_path / "cache").exists()
