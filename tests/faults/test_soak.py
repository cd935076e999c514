"""A desk that is asked for texts all day: each request is answered, and memory stays flat."""

import gc
import os
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("torch")

from ownwords.inference import guard
from ownwords.inference.desk import Desk, Ticket
from ownwords.inference.engine import Engine
from ownwords.inference.generation import Request, generate
from ownwords.inference.guard import Guard
from ownwords.inference.opening import open_engine
from ownwords.inference.sampling import Sampling
from ownwords.inference.speculate import PromptLookup, Proposer
from ownwords.models import bundle
from ownwords.models.configs.qwen3 import Qwen3Config
from ownwords.models.family import build
from ownwords.native import engine as native
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer

pytestmark = pytest.mark.skipif(not native.available(), reason="the part in C++ is not there")

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
    return open_engine(folder, device="cpu", threads=1)


@pytest.fixture(scope="module")
def kept() -> Guard:
    return guard.build([np.arange(250)], ByteTokenizer(), longest=4)


def request(chance: Random, kept: Guard) -> Request:
    """Short and long, alike and unlike, beyond the context, with all that can be asked for."""
    prompt = [chance.randrange(3)] * chance.randint(1, 12)
    if chance.random() < 0.5:
        prompt += chance.choices(range(261), k=chance.choice([1, 8, 40, 90]))
    lively = Sampling(
        temperature=chance.choice([0.0, 0.7, 1.5]),
        top_k=chance.choice([0, 20]),
        top_p=chance.choice([1.0, 0.9]),
        min_p=chance.choice([0.0, 0.02]),
        repetition_penalty=chance.choice([1.0, 1.2]),
        no_repeat=chance.choice([0, 3]),
    )
    return Request(
        ids=prompt,
        tokens=chance.choice([0, 1, 5, 20, 60]),
        sampling=lively,
        seed=chance.randrange(1 << 31),
        stops=frozenset(chance.sample(range(261), chance.choice([0, 1, 5]))),
        logprobs=chance.choice([0, 0, 3]),
        guard=chance.choice([None, kept]),
    )


def serve(engine: Engine, kept: Guard, requests: int, seed: int) -> None:
    """One day at the desk: so many requests come, some leave; those checked are as if alone."""
    chance = Random(seed)
    proposer: Proposer | None = chance.choice([None, PromptLookup()])
    desk = Desk(engine, rows=ROWS, length=CONTEXT, proposer=proposer)
    written: dict[Ticket, list[int]] = {}
    left: set[Ticket] = set()
    checked: list[Ticket] = []
    coming = requests
    while coming or desk.busy:
        while coming and len(written) < ROWS + WAITING:
            ticket = desk.submit(request(chance, kept))
            written[ticket] = []
            if coming % CHECKED == 0:
                checked.append(ticket)
            coming -= 1
        for ticket, drawn, finished in desk.step():
            assert ticket not in left
            written[ticket] += [one.id for one in drawn]
            if not finished:
                if ticket not in checked and chance.random() < 0.003:
                    desk.cancel(ticket)
                    del written[ticket]
                    left.add(ticket)
                continue
            assert finished in ("stop", "length")
            ids = written.pop(ticket)
            if ticket in checked:
                assert ids == [one.id for one in generate(engine, ticket.request)]
    assert not written
    desk.close()


def resident_kb() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def soak(engine: Engine, kept: Guard, requests: int, warm: int) -> None:
    days = requests // A_DAY
    for day in range(warm):
        serve(engine, kept, A_DAY, day)
    before = resident_kb()
    for day in range(warm, days):
        serve(engine, kept, A_DAY, day)
    grown = resident_kb() - before
    assert grown < FLAT_KB, f"{grown} kB more after {(days - warm) * A_DAY} requests"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thousand_requests_leave_nothing_behind(engine: Engine, kept: Guard) -> None:
    soak(engine, kept, 1_000, warm=2)


@pytest.mark.fuzz
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_twenty_thousand_requests_leave_nothing_behind(engine: Engine, kept: Guard) -> None:
    soak(engine, kept, 20_000, warm=8)
