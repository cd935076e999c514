"""The copy guard against a deliberately overfitted model; bench/copying.py is the long version."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from ownwords.inference import copy_guard
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.generation import BatchScheduler, GenerationRequest, GenerationState
from ownwords.inference.model import Model
from ownwords.inference.sampling import SamplingParams
from ownwords.models import bundle
from ownwords.models.configs.llama import Qwen3Config
from ownwords.models.decoder import build
from ownwords.tokenizers import bpe

torch.set_num_threads(1)

POSTS = Path(__file__).parents[2] / "examples" / "blog" / "posts"
NAMES = ("2017-03-05-kettle.md", "2017-05-14-the-94.md")
CONTEXT, TOKENS = 128, 60


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [(POSTS / name).read_text("utf-8").split("---", 2)[2].strip() for name in NAMES]


@pytest.fixture(scope="module")
def model(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Model:
    tokenizer = bpe.train(texts, 400)
    network = build(
        Qwen3Config(
            vocabulary=tokenizer.vocabulary_size + 19,  # padded, as others' are
            context=CONTEXT,
            width=96,
            layers=2,
            heads=3,
            head_dim=32,
            hidden=192,
        )
    )
    network.init_weights(1)
    documents = [tokenizer.encode(text) for text in texts]
    ids_N = torch.tensor([i for document in documents for i in document])
    optimizer = torch.optim.AdamW(network.parameters(), lr=6e-3)
    uniform = torch.Generator().manual_seed(1)
    for step in range(200):
        begin_R1 = torch.randint(0, len(ids_N) - CONTEXT, (8, 1), generator=uniform)
        rows_RT = ids_N[begin_R1 + torch.arange(CONTEXT)]
        loss, tokens = network.loss(rows_RT[:, :-1], rows_RT[:, 1:])
        optimizer.zero_grad()
        torch.autograd.backward(loss / tokens)
        for group in optimizer.param_groups:
            group["lr"] = 6e-3 * min(1, 2 - step / 100)
        optimizer.step()
    folder = tmp_path_factory.mktemp("heart") / "model"
    watching = copy_guard.build([np.array(document) for document in documents], tokenizer)
    bundle.save(folder, network, tokenizer, copy_guard=watching.to_bytes())
    return Model.load(folder, threads=1)


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", re.sub(r"[A-Z]", lambda match: match[0].lower(), text))


def copies(texts: list[str], model: Model, watching: CopyGuard | None, count: int) -> int:
    """The number of texts with too long a run after the prompt."""
    guard = model.guard
    assert guard is not None
    dice = random.Random(1)
    # With guesses, as those are right where a text is copied.
    scheduler = BatchScheduler(model.engine, rows=8, length=CONTEXT)
    outputs: dict[GenerationState, list[int]] = {}
    for number in range(count):
        words_of_text = dice.choice(texts).split(" ")
        begin = dice.randrange(len(words_of_text) - 14)
        request = GenerationRequest(
            ids=model.tokenizer.encode(
                " ".join(words_of_text[begin : begin + dice.randint(1, 14)])
            ),
            max_tokens=TOKENS,
            sampling=SamplingParams(temperature=(0, 0.5, 1)[number % 3]),
            vocabulary=model.tokenizer.vocabulary_size,
            seed=number,
            guard=watching,
        )
        outputs[scheduler.submit(request)] = []
    while scheduler.busy:
        for ticket, token in scheduler.step():
            outputs[ticket] += [] if token is None else [token]
    scheduler.close()
    tokens = runs([model.tokenizer.encode(text) for text in texts], guard.longest)
    passages = runs([words(text) for text in texts], guard.words)
    copied = 0
    for ticket, ids in outputs.items():
        assert len(ids) == TOKENS
        all_ids = [*ticket.request.ids, *ids]
        of_tokens = runs(
            [all_ids[max(0, len(all_ids) - TOKENS - guard.longest + 1) :]], guard.longest
        )
        prompt_words = len(words(model.tokenizer.decode(ticket.request.ids)))
        all_words = words(model.tokenizer.decode(all_ids))
        of_words = runs([all_words[max(0, prompt_words - guard.words + 1) :]], guard.words)
        copied += bool(of_tokens & tokens or of_words & passages)
    return copied


def runs(texts: list[list[int]] | list[list[str]], size: int) -> set[tuple[object, ...]]:
    return {tuple(text[i : i + size]) for text in texts for i in range(len(text) - size + 1)}


@pytest.mark.slow
def test_an_overfitted_model_does_not_recite_its_texts(texts: list[str], model: Model) -> None:
    assert copies(texts, model, None, 60) > 20  # it could
    assert copies(texts, model, model.guard, 150) == 0
