"""Our ids and splits against transformers."""

import json
import random
import unicodedata
from pathlib import Path

import pytest

from foreign_tokenizers import DOCUMENTS, files_of
from ownwords.tokenizers.bpe import BPETokenizer, ByteTokenizer, train
from ownwords.tokenizers.tokenizer import Tokenizer

pytestmark = pytest.mark.reference

BOOK = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
SCRIPTS = [
    (0x20, 0x7E), (0xA0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x3040, 0x30FF), (0x4E00, 0x4FFF),
    (0xAC00, 0xACFF), (0x2000, 0x206F), (0x1F300, 0x1FAFF), (0x0, 0x1F), (0x7F, 0xA0),
    (0xE000, 0xE0FF), (0xFE00, 0xFE0F), (0xE0000, 0xE01FF), (0x10FF00, 0x10FFFF), (0x300, 0x36F),
]  # fmt: skip
FIXED = [
    "", " ", "  ", "\n", " \n", "\r\n\r\n x", "   x", "\t\tx", "\xa0\xa0x", "\u3000\u3000日本",
    " 1", "  1", "12345678901", "٣٤٥٦", "½⅓Ⅻ①", "they'RE we'Ve I'M he'lL 'ſ",
    "e\u0301a\u0308 ﬁ Å Å",
    "👩\u200d👩\u200d👧🏳️\u200d🌈🇩🇪👍🏽", "\x00\x01\x1c\x1d\x85\u2028\u2029\ufeff",
    "\u0378\U000e0fff\uffff\U0010ffff", " " * 50_000 + "x", "\n" * 5000 + " x", "9" * 1000,
    "a" * 5000, "<|end|", "<|start|", "``` code\n    x = 1\n",
]  # fmt: skip


def strings(count: int, seed: int) -> list[str]:
    """Runs of a few scripts, with blanks and digits between, in NFC, NFD or neither."""
    rng = random.Random(seed)
    texts = list(FIXED)
    while len(texts) < count:
        runs = []
        for _ in range(rng.randint(1, 8)):
            low, high = rng.choice(SCRIPTS) if rng.random() < 0.9 else (0, 0x10FFFF)
            runs.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))))
            runs.append(
                rng.choice(["", "", " ", "  ", "\n", " \n\n ", "\t ", "'s", "1234", "...\n"])
            )
        text = "".join(c for c in "".join(runs) if not "\ud800" <= c <= "\udfff")
        nfc, nfd = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
        texts.append(rng.choice([text, nfc, nfd]))
    return texts


LEARNED = train([BOOK, *strings(300, seed=1)], 1500)
OURS: dict[str, Tokenizer] = {
    "bpe": LEARNED,
    "bpe without merges": BPETokenizer(),
    "bytes": ByteTokenizer(),
}


def saved_in(folder: Path, tokenizer: Tokenizer, model_type: str) -> Path:
    for name, data in tokenizer.files().items():
        (folder / name).write_bytes(data)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("model_type", ["qwen3", "llama", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("kind", OURS)
def test_transformers_gives_the_same_ids_from_our_files(
    kind: str, model_type: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    ours = OURS[kind]
    theirs = transformers.AutoTokenizer.from_pretrained(saved_in(tmp_path, ours, model_type))
    assert len(theirs) == ours.vocabulary_size
    assert (theirs.bos_token_id, theirs.eos_token_id) == (ours.start, ours.end)
    texts = strings(2000, seed=2)
    batch = ours.encode_batch(texts)
    for text, ids, expected in zip(texts, batch, theirs(texts)["input_ids"], strict=True):
        assert ids.tolist() == expected, repr(text[:200])
        assert ours.decode(ids) == text
        assert theirs.decode(expected) == text
    text = "so <|end|> it <|turn|>\n"
    assert theirs(text)["input_ids"] == ours.encode(text, special=True)
    assert theirs(text, split_special_tokens=True)["input_ids"] == ours.encode(text)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_transformers_gives_the_same_ids_from_imported_files(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer(files_of(kind))
    theirs = transformers.AutoTokenizer.from_pretrained(saved_in(tmp_path, ours, ""))
    assert len(theirs) == ours.vocabulary_size
    texts = strings(1000, seed=3)
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    for text, ids in zip(texts, expected, strict=True):
        assert ours.encode(text) == ids, repr(text[:200])
        normalized = unicodedata.normalize("NFC", text) if kind == "Qwen" else text
        if kind != "Qwen" or unicodedata.is_normalized("NFC", text):
            assert ours.decode(ids) == normalized
            assert theirs.decode(ids, clean_up_tokenization_spaces=False) == normalized
