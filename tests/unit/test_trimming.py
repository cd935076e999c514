"""Trimmed vocabularies: the same tokens, an exact round trip, and the model's own rows."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import large_vocabulary
from ownwords.base import trimming
from ownwords.base.trimming import trim
from ownwords.inference.model import Model
from ownwords.models import directory
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers import trimming as token_trimming


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 50),
    own=st.lists(st.text(large_vocabulary.ALPHABET, max_size=40), max_size=4),
    extra=st.text(large_vocabulary.ALPHABET, max_size=60),
    wild=st.text(max_size=20),
)
def test_texts_of_kept_tokens_are_split_as_before_and_round_trip(
    kind: str, seed: int, own: list[str], extra: str, wild: str
) -> None:
    document = large_vocabulary.random_tokenizer_json(kind, seed)
    full = large_vocabulary.load_tokenizer(document)
    small_document, old_ids = token_trimming.trim(
        document, {number for text in own for number in full.encode(text)}
    )
    small = large_vocabulary.load_tokenizer(small_document)
    kept_ids = set(old_ids)
    assert small.vocabulary_size == len(old_ids)
    for text in [*own, extra]:
        ids = full.encode(text)
        if text in own or kept_ids.issuperset(ids):
            assert [old_ids[number] for number in small.encode(text)] == ids
    for text in (extra, wild, wild + extra):
        if "▁" not in text:
            assert small.decode(small.encode(text)) == text
    assert {old_ids[number] for number in small.special.values()} == set(full.special.values())


def test_reserved_tokens_go_and_the_start_keeps_its_name() -> None:
    document = large_vocabulary.random_tokenizer_json("sentencepiece")
    after = 1 + max(document["model"]["vocab"].values())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for n in range(3):
        entry = {"id": after + n, "content": f"<unused{n}>", **flags, "special": True}
        document["added_tokens"].append(entry)
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    small, old_ids = token_trimming.trim(document, [])
    assert not any("unused" in entry["content"] for entry in small["added_tokens"])
    names = {entry["content"]: entry["id"] for entry in small["added_tokens"]}
    assert small["post_processor"]["special_tokens"]["<s>"]["ids"] == [names["<s>"]]
    assert len(old_ids) == 3 + 256 + 10  # special tokens, bytes, single characters


COMMON_WORDS = trimming.common_words()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow tiny vocabularies to be trimmed, and keep few words of English."""
    monkeypatch.setattr(trimming, "SMALL", 100)
    monkeypatch.setattr(trimming, "common_words", lambda: [" the", "in", "ra"])


TEXTS = ["rest in rain", "art is raisin\n\n", "sea  stairs"]


@pytest.mark.parametrize("tied", [True, False])
def test_a_trimmed_model_gives_kept_tokens_the_same_logits(tied: bool, tmp_path: Path) -> None:
    folder = large_vocabulary.write(tmp_path / "b", tied=tied)
    trimmed = trim(folder, TEXTS, tmp_path / "out" / "b")
    assert trimmed == tmp_path / "out" / "b"
    full, small = Model.load(folder), Model.load(trimmed)
    old = token_trimming.trim(
        json.loads((folder / "tokenizer.json").read_bytes()),
        trimming.kept_ids(full.tokenizer, TEXTS),
    )[1]
    for text in TEXTS:
        ids, theirs = small.tokenizer.encode(text), full.tokenizer.encode(text)
        assert [old[number] for number in ids] == theirs
        np.testing.assert_allclose(
            small.logits(ids), full.logits(theirs)[:, old], rtol=1e-5, atol=1e-5
        )
    read = directory.read(trimmed)
    assert read.generation["eos_token_id"] == old.index(2)
    assert (trimmed / "LICENSE").read_text() == "All rights to those who share."
    counts = read.provenance["trimmed"]
    assert counts["tokens"] == small.tokenizer.vocabulary_size < counts["tokens_before"]  # type: ignore[index]


def test_the_same_texts_are_trimmed_once(tmp_path: Path) -> None:
    folder = large_vocabulary.write(tmp_path / "b")
    trim(folder, TEXTS, tmp_path / "out")
    stamp = (tmp_path / "out" / "model.safetensors").stat().st_ino
    assert trim(folder, TEXTS, tmp_path / "out") == tmp_path / "out"
    assert (tmp_path / "out" / "model.safetensors").stat().st_ino == stamp
    trim(folder, [*TEXTS, "tress"], tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").stat().st_ino != stamp


def test_a_fully_used_vocabulary_is_unchanged(tmp_path: Path) -> None:
    folder = large_vocabulary.write(tmp_path / "b")
    document = json.loads((folder / "tokenizer.json").read_bytes())
    words = [token.replace("▁", " ") for token in document["model"]["vocab"]]
    assert trim(folder, words, tmp_path / "out") == folder and not (tmp_path / "out").exists()


def test_a_damaged_base_leaves_no_files(tmp_path: Path) -> None:
    folder = large_vocabulary.write(tmp_path / "b")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(ModelError, match="bytes"):
        trim(folder, TEXTS, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_other_languages_and_scripts_keep_their_tokens() -> None:
    document = large_vocabulary.random_tokenizer_json("sentencepiece")
    vocabulary = document["model"]["vocab"]
    after = 1 + max(vocabulary.values())
    words = "я п р и ż ó ł w при żółw żó wal ▁hello 世 世界"
    for n, word in enumerate(words.split()):
        vocabulary[word] = after + n
    full = large_vocabulary.load_tokenizer(document)
    polish = ["żółw i wał, żółwie, król, rów. Owal wala się po szosie i woła."] * 3
    kept_ids = trimming.kept_ids(full, polish)
    assert {vocabulary["żółw"], vocabulary["wal"]} <= kept_ids
    assert not {vocabulary["при"], vocabulary["世界"], vocabulary["▁hello"]} & kept_ids
    english = ["The hat was on the table, and it was not his, as far as he could see."] * 3
    kept_ids = trimming.kept_ids(full, english + polish)  # who writes in two languages
    assert kept_ids > trimming.kept_ids(full, english) | {vocabulary["żółw"], vocabulary["wal"]}
    quoted = trimming.kept_ids(full, english * 20 + polish[:1])
    assert quoted >= trimming.kept_ids(full, english) and vocabulary["wal"] not in quoted
    kept_ids = trimming.kept_ids(full, ["я и ты, да"])
    assert vocabulary["при"] in kept_ids and vocabulary["世界"] not in kept_ids


def test_common_english_words_contain_no_blanks_within() -> None:
    words = COMMON_WORDS
    assert {" the", " website", "The", "."} <= set(words)
    assert len(words) == len(set(words)) and max(map(len, words)) <= 24
    assert not any("\n" in word or " " in word.strip() for word in words)
