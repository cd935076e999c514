"""GGUF files against the two programs that define them: llama.cpp and the `gguf` package."""

import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import small_bases
from llama import open_llama
from ownwords.models.configs.config import RopeScaling
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import Gemma3Config, LlamaConfig, Qwen2Config, Qwen3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.models.gguf import saving
from ownwords.models.gguf.container import WRITABLE, open_gguf
from ownwords.tokenizers import bpe
from ownwords.tokenizers.bpe import ByteTokenizer

pytestmark = pytest.mark.reference

TEXT = (
    "The trouble with backups is that nobody's tested them, and they're 2024's best-kept secret."
    "  I've said: 12345 times!\n\n\tdef f(x):\n        return x\r\n Ça où été ß œ — naïve café.\n"
    "Дневник: привет, мир! 日本語のテキスト。 العربية עברית ไทย हिन्दी 한국어 🎉👩‍👩‍👧 e\u0301\n"
) * 40
VOCABULARY = 400

CONFIGS = {
    "gpt2": GPT2Config(vocabulary=405, context=160, width=48, layers=3, heads=4),
    "gpt2-untied": GPT2Config(
        vocabulary=405, context=160, width=36, layers=2, heads=3, hidden=100, tied=False
    ),
    "llama": LlamaConfig(
        vocabulary=405, context=160, width=48, layers=3, heads=4, kv_heads=2, hidden=100
    ),
    "llama3": LlamaConfig(
        vocabulary=405,
        context=160,
        width=64,
        layers=2,
        heads=4,
        kv_heads=1,
        head_dim=32,
        hidden=96,
        tied=True,
        rope_base=500_000.0,
        rope_scaling=RopeScaling(kind="llama3", factor=8.0, original_context=64),
    ),
    "llama-linear": LlamaConfig(
        vocabulary=405,
        context=160,
        width=48,
        layers=2,
        heads=6,
        kv_heads=3,
        hidden=64,
        rope_scaling=RopeScaling(kind="linear", factor=4.0),
    ),
    "qwen2": Qwen2Config(
        vocabulary=405, context=160, width=64, layers=3, heads=4, kv_heads=2, hidden=96
    ),
    "qwen3": Qwen3Config(
        vocabulary=405, context=160, width=64, layers=3, heads=4, kv_heads=2, head_dim=32, hidden=96
    ),
    "qwen3-untied": Qwen3Config(
        vocabulary=405,
        context=160,
        width=40,
        layers=2,
        heads=5,
        kv_heads=1,
        head_dim=10,
        hidden=72,
        tied=False,
        rope_base=1e6,
    ),
    "gemma3": Gemma3Config(
        vocabulary=405,
        context=160,
        width=48,
        layers=7,
        heads=4,
        kv_heads=1,
        head_dim=16,
        hidden=96,
        window=24,
        query_scalar=16,
    ),
    "gemma3-pattern": Gemma3Config(
        vocabulary=405,
        context=160,
        width=64,
        layers=4,
        heads=2,
        kv_heads=2,
        head_dim=32,
        hidden=64,
        window=16,
        query_scalar=32,
        sliding=(True, True, False, True),
        rope_scaling=RopeScaling(kind="linear", factor=8.0),
        softcap=20.0,
    ),
}


def model_of(name: str, seed: int = 0) -> CausalLM:
    """Weights with decisive logits: no two tokens stay nearly equally likely."""
    model = build(CONFIGS[name])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                around = 0.0 if key.endswith("bias") or name.startswith("gemma") else 1.0
                parameter.copy_(around + 0.2 * noise)
            else:
                parameter.copy_(
                    noise * (1.0 if "embedding" in key else 1.5 / parameter.shape[1] ** 0.5)
                )
    return model.eval()


@pytest.fixture(scope="session")
def tokenizer() -> bpe.BPETokenizer:
    return bpe.train([TEXT], VOCABULARY)


@contextmanager
def silent() -> Iterator[None]:
    """Suppress what llama.cpp writes to the process's stderr."""
    sys.stderr.flush()
    saved_stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved_stderr, 2)
        os.close(saved_stderr)
        os.close(null)


@contextmanager
def llama(path: Path, **options: Any) -> Iterator[Any]:  # noqa: ANN401 - llama-cpp-python has no types
    with silent():
        opened = open_llama(
            path,
            n_ctx=160,
            n_batch=160,
            n_threads=1,
            n_threads_batch=1,
            type_k=0,
            type_v=0,
            flash_attn=False,
            **options,
        )
    try:
        yield opened
    finally:
        with silent():
            opened.close()


def ours(model: CausalLM, prompt: list[int], count: int) -> tuple[list[int], np.ndarray]:
    ids = list(prompt)
    rows = []
    with torch.no_grad():
        for _ in range(count):
            logits = model.logits(model(torch.tensor([ids])))[0, -1]
            rows.append(logits.numpy())
            ids.append(int(logits.argmax()))
    return ids[len(prompt) :], np.stack(rows)


def theirs(opened: Any, prompt: list[int], count: int) -> tuple[list[int], np.ndarray]:  # noqa: ANN401
    token_ids, rows = [], []
    tokens = list(prompt)
    for _ in range(count):
        opened.eval(tokens)
        logits = np.array(opened._ctx.get_logits_ith(-1)[: opened.n_vocab()])
        rows.append(logits)
        tokens = [int(logits.argmax())]
        token_ids += tokens
    return token_ids, np.stack(rows)


@pytest.mark.parametrize("name", CONFIGS)
def test_llama_cpp_generates_the_same_64_tokens(
    name: str, tokenizer: bpe.BPETokenizer, tmp_path: Path
) -> None:
    model = model_of(name)
    path = tmp_path / "model.gguf"
    saving.save(path, model, tokenizer.files(), type="f32")
    prompt = tokenizer.encode("The trouble with backups is that nobody's tested them")
    with llama(path) as opened:
        got, logits = theirs(opened, prompt, 64)
    expected, right = ours(model, prompt, 64)
    apart = np.abs(logits - right).max() / np.abs(right).max()
    assert apart < 1e-3, apart
    assert got == expected


SCRIPTS = (
    (0x20, 0x7F),
    (0xA0, 0x17F),
    (0x370, 0x3FF),
    (0x400, 0x4FF),
    (0x590, 0x6FF),
    (0x900, 0x97F),
    (0xE00, 0xE7F),
    (0x1100, 0x11FF),
    (0x2000, 0x206F),
    (0x3040, 0x30FF),
    (0x4E00, 0x4FFF),
    (0xAC00, 0xACFF),
    (0xFE00, 0xFE0F),
    (0x1F300, 0x1F64F),
    (0x00, 0x1F),
)
PIECES = (
    *("'s", "'S", "'ſ", "'LL", "don't", "1", "12", "123", "1234567", "½", "²", "٣٤٥", "\u0301"),
    *(" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u2028", "\u3000", "\x85"),
    *(
        "\x1c",
        "\x00",
        "\ufeff",
        "\u200b",
        "\u200d",
        "!?",
        "...",
        "—",
        "<|end|>",
        "<|title|>",
        "<s>",
    ),
)


def fuzzed(count: int, seed: int) -> list[str]:
    """Strings of ten scripts and separators, one in five from all of Unicode."""
    rng = random.Random(seed)
    words = TEXT[:400].split(" ")
    texts = []
    for number in range(count):
        parts = []
        for _ in range(rng.randint(1, 12)):
            low, high = rng.choice(SCRIPTS)
            letters = [chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))]
            parts.append(rng.choice([rng.choice(PIECES), rng.choice(words), "".join(letters)]))
        if number % 5 == 0:
            parts += [chr(rng.choice([*range(0xD800), *range(0xE000, 0x110000)])) for _ in "1234"]
        texts.append("".join(parts))
    return texts


def differing(opened: Any, encode: Any, texts: list[str]) -> list[tuple[str, list[int], list[int]]]:  # noqa: ANN401
    differences = []
    for text in texts:
        got = opened.tokenize(text.encode("utf-8"), add_bos=False, special=False)
        if got != encode(text):
            differences.append((text, got, encode(text)))
    return differences


@pytest.mark.parametrize("kind", ["trained", "bytes"])
def test_ids_equal_llama_cpp(kind: str, tokenizer: bpe.BPETokenizer, tmp_path: Path) -> None:
    used = tokenizer if kind == "trained" else ByteTokenizer()
    path = tmp_path / "model.gguf"
    report = saving.save(path, model_of("qwen3"), used.files(), type="f32")
    assert not report.notes
    with llama(path) as opened:
        wrong = differing(opened, used.encode, fuzzed(1000, seed=1))
        special = "<|author|>The trouble<|title|>\n<|end|>"
        got = opened.tokenize(special.encode(), add_bos=False, special=True)
        assert opened.token_bos() == used.start
        assert opened.token_eos() == used.end
        assert opened.detokenize(used.encode(TEXT)) == TEXT.encode()
    assert not wrong, f"{len(wrong)} of 1000: {wrong[:3]}"
    assert got == used.encode(special, special=True)


def imported(kind: str) -> Mapping[str, bytes]:
    """A tokenizer.json of the kinds that come with published models, and its settings."""
    hf = pytest.importorskip("tokenizers")
    special = ["<s>", "</s>"]
    if kind in ("llama2", "gemma"):
        return sentencepiece(prefix=kind == "llama2")
    tokenizer_made = hf.Tokenizer(hf.models.BPE())
    if kind == "gpt2":
        tokenizer_made.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif kind == "smollm":
        tokenizer_made.pre_tokenizer = hf.pre_tokenizers.Sequence(
            [
                hf.pre_tokenizers.Digits(individual_digits=True),
                hf.pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    else:
        digits = r"\p{N}" if kind == "qwen2" else r"\p{N}{1,3}"
        pattern = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits
            + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )  # fmt: skip
        tokenizer_made.pre_tokenizer = hf.pre_tokenizers.Sequence(
            [
                hf.pre_tokenizers.Split(hf.Regex(pattern), "isolated"),
                hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer_made.decoder = hf.decoders.ByteLevel()
    trainer = hf.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer_made.train_from_iterator([TEXT], trainer)
    settings = b'{"bos_token": "<s>", "eos_token": {"content": "</s>"}}'
    return {"tokenizer.json": tokenizer_made.to_str().encode(), "tokenizer_config.json": settings}


def sentencepiece(*, prefix: bool) -> Mapping[str, bytes]:
    hf = pytest.importorskip("tokenizers")
    learned = hf.Tokenizer(hf.models.BPE())
    learned.pre_tokenizer = hf.pre_tokenizers.Metaspace()
    learned.train_from_iterator(
        [TEXT], hf.trainers.BpeTrainer(vocab_size=390 - 259, show_progress=False)
    )
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = sorted(learned.get_vocab(), key=learned.get_vocab().__getitem__)
    tokens += [piece for piece in pieces if piece not in tokens]
    ids = {token: number for number, token in enumerate(tokens)}
    merges = []
    for piece in pieces:
        pairs = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known_pairs = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
        merges += sorted(known_pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    tokenizer_made = hf.Tokenizer(
        hf.models.BPE(
            vocab=ids, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True
        )
    )
    spaces = hf.normalizers.Replace(" ", "▁")
    tokenizer_made.normalizer = (
        hf.normalizers.Sequence([hf.normalizers.Prepend("▁"), spaces]) if prefix else spaces
    )
    tokenizer_made.add_special_tokens(["<unk>", "<s>", "</s>"])
    settings = b'{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}'
    return {"tokenizer.json": tokenizer_made.to_str().encode(), "tokenizer_config.json": settings}


# The long s and composition are what llama.cpp does otherwise, and says so of itself.
def known_alike(text: str) -> bool:
    return "'ſ" not in text


@pytest.mark.parametrize("kind", ["gpt2", "smollm", "qwen2", "llama3", "llama2", "gemma"])
def test_ids_of_imported_tokenizers_equal_llama_cpp(kind: str, tmp_path: Path) -> None:
    hf = pytest.importorskip("tokenizers")
    files = imported(kind)
    path = tmp_path / "model.gguf"
    report = saving.save(path, model_of("llama"), files, type="f32")
    assert not report.notes
    there = hf.Tokenizer.from_str(files["tokenizer.json"].decode())
    back = hf.Tokenizer.from_str(
        small_bases.read_gguf(path).tokenizer_files["tokenizer.json"].decode()
    )

    def encode(text: str) -> list[int]:
        ids: list[int] = there.encode(text, add_special_tokens=False).ids
        return ids

    # Special tokens in a text are theirs in `tokenizers`, and text in llama.cpp.
    texts = [t for t in fuzzed(1100, seed=2) if "<s>" not in t and known_alike(t)][:1000]
    with llama(path) as opened:
        wrong = differing(opened, encode, texts)
    assert not wrong, f"{len(wrong)} of {len(texts)}: {wrong[:3]}"
    for text in texts:
        assert back.encode(text, add_special_tokens=False).ids == encode(text), text
        assert back.decode(encode(text)) == there.decode(encode(text)) or kind in (
            "llama2",
            "gemma",
        )


@pytest.mark.parametrize("type", WRITABLE)
@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen2", "qwen3", "gemma3"])
def test_the_gguf_package_reads_our_files(
    name: str, type: str, tokenizer: bpe.BPETokenizer, tmp_path: Path
) -> None:
    package = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    report = saving.save(path, model_of(name), tokenizer.files(), type=type, name="Дневник")
    read = package.GGUFReader(path)
    assert {tensor.name for tensor in read.tensors} == set(report.tensors)
    assert read.fields["general.name"].contents() == "Дневник"
    assert read.fields["tokenizer.ggml.pre"].contents() == "llama-bpe"
    with open_gguf(path) as contents:
        assert set(contents.metadata) == {k for k in read.fields if not k.startswith("GGUF.")}
        for tensor in read.tensors:
            values = package.dequantize(tensor.data, tensor.tensor_type)
            assert tensor.tensor_type.name.lower() == report.tensors[tensor.name]
            assert np.array_equal(values, contents.tensor(tensor.name))


@pytest.mark.parametrize("type", ["f16", "bf16", "q8_0", "q4_0"])
@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen2", "qwen3", "gemma3"])
def test_llama_cpp_computes_with_every_type(
    name: str, type: str, tokenizer: bpe.BPETokenizer, tmp_path: Path
) -> None:
    """llama.cpp's output for a file equals ours for the same file read back."""
    path = tmp_path / "model.gguf"
    saving.save(path, model_of(name), tokenizer.files(), type=type)
    rounded = small_bases.read_gguf(path).model.eval()
    prompt = tokenizer.encode("The trouble with backups is that nobody's tested them")
    with llama(path) as opened:
        _, got = theirs(opened, prompt, 1)
    _, expected = ours(rounded, prompt, 1)
    # llama.cpp rounds what it multiplies with, too: to the type's own precision, or 8 bits.
    bound = {"f16": 5e-3, "bf16": 4e-2, "q8_0": 4e-2, "q4_0": 6e-2}[type]
    apart = np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected**2))
    assert apart < bound, apart
