"""A scheduler under constant load: each request is answered, and memory stays flat."""

import gc
import os
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("torch")


import model_directories as models
from ownwords.inference import copy_guard
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.engine import Engine
from ownwords.inference.generation import (
    BatchScheduler,
    GenerationRequest,
    GenerationState,
    generate,
)
from ownwords.inference.sampling import SamplingParams
from ownwords.models import bundle
from ownwords.models.configs.llama import Qwen3Config
from ownwords.models.decoder import build
from ownwords.native import bindings
from ownwords.tokenizers.bpe import ByteTokenizer

pytestmark = pytest.mark.skipif(
    bindings.load_library() is None, reason="the part in C++ is not there"
)

CONTEXT, ROWS, WAITING = 64, 4, 9
A_DAY = 250  # requests until the desk is closed and another opened
CHECKED = 25  # of so many requests one is written once more, alone
FLAT_KB = 2_048  # of all that is resident


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    tokenizer = ByteTokenizer()
    network = build(
        Qwen3Config(
            vocabulary=tokenizer.vocabulary_size,
            context=CONTEXT,
            width=32,
            layers=2,
            heads=2,
            head_dim=16,
            hidden=48,
        )
    )
    network.init_weights(1)
    folder = tmp_path_factory.mktemp("soak") / "model"
    bundle.save(folder, network, tokenizer)
    return models.open_engine(folder, device="cpu", threads=1)


@pytest.fixture(scope="module")
def guard() -> CopyGuard:
    return copy_guard.build([np.arange(250)], ByteTokenizer(), longest=4)


def request(draw_uniform: Random, guard: CopyGuard) -> GenerationRequest:
    """Short and long, alike and different, beyond the context, with every option."""
    prompt = [draw_uniform.randrange(3)] * draw_uniform.randint(1, 12)
    if draw_uniform.random() < 0.5:
        prompt += draw_uniform.choices(range(261), k=draw_uniform.choice([1, 8, 40, 90]))
    lively = SamplingParams(
        temperature=draw_uniform.choice([0.0, 0.7, 1.5]),
        top_k=draw_uniform.choice([0, 20]),
        top_p=draw_uniform.choice([1.0, 0.9]),
        min_p=draw_uniform.choice([0.0, 0.02]),
        repetition_penalty=draw_uniform.choice([1.0, 1.2]),
    )
    return GenerationRequest(
        ids=prompt,
        max_tokens=draw_uniform.choice([0, 1, 5, 20, 60]),
        sampling=lively,
        seed=draw_uniform.randrange(1 << 31),
        stop_ids=frozenset(draw_uniform.sample(range(261), draw_uniform.choice([0, 1, 5]))),
        guard=draw_uniform.choice([None, guard]),
    )


def serve(engine: Engine, guard: CopyGuard, requests: int, seed: int) -> None:
    """Many requests, some cancelled; the checked ones equal single runs."""
    draw_uniform = Random(seed)
    scheduler = BatchScheduler(engine, rows=ROWS, length=CONTEXT)
    outputs: dict[GenerationState, list[int]] = {}
    cancelled: set[GenerationState] = set()
    checked: list[GenerationState] = []
    coming = requests
    while coming or scheduler.busy:
        while coming and len(outputs) < ROWS + WAITING:
            ticket = scheduler.submit(request(draw_uniform, guard))
            outputs[ticket] = []
            if coming % CHECKED == 0:
                checked.append(ticket)
            coming -= 1
        for ticket, token in scheduler.step():
            assert ticket not in cancelled
            outputs[ticket] += [] if token is None else [token]
            if not ticket.finish_reason:
                if ticket not in checked and draw_uniform.random() < 0.003:
                    scheduler.cancel(ticket)
                    del outputs[ticket]
                    cancelled.add(ticket)
                continue
            assert ticket.finish_reason in ("stop", "length")
            ids = outputs.pop(ticket)
            if ticket in checked:
                assert ids == list(generate(engine, ticket.request))
    assert not outputs
    scheduler.close()


def resident_kb() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("requests", "warm"),
    [(1_000, 2), pytest.param(20_000, 8, marks=[pytest.mark.fuzz, pytest.mark.slow])],
)
def test_many_requests_leave_nothing_behind(
    engine: Engine, guard: CopyGuard, requests: int, warm: int
) -> None:
    days = requests // A_DAY
    for number in range(1 << 16):  # fill the cache of hashes, which grows no further
        copy_guard.hash_of(b"%d" % number)
    for day in range(warm):
        serve(engine, guard, A_DAY, day)
    before = resident_kb()
    for day in range(warm, days):
        serve(engine, guard, A_DAY, day)
    grown = resident_kb() - before
    assert grown < FLAT_KB, f"{grown} kB more after {(days - warm) * A_DAY} requests"
