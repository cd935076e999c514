"""Speeds on this CPU: training, training beside other programs, writing, reading a blog, vectors.

    python bench/processors.py                             all groups at the level in use
    python bench/processors.py --isa avx2,avx512           at these levels, which must be compiled
    python bench/processors.py --groups training,vectors   some of the groups
    python bench/processors.py --only gemma                rows whose name has this in it
    python bench/processors.py --against DIR               each row also with the checkout in DIR
    python bench/processors.py --profile --only gpt        where a training step spends its time

Prints Markdown. Each row is a fresh process, with --against one per checkout; they take turns, one
per round. The best of each turn's repeats counts, because other processes can only slow it down.
Beside other programs, it is the mean over a turn, and the median over the turns. A * marks the
fastest of the precisions that the plan may choose for a shape.

Limits: for training and prompts, the FLOP/s that the library's own float products reach in
registers on all threads; for writing, memory bandwidth, because each token reads all weights once
(bench/bandwidth.cpp). FLOPs of training: training/step_time.py. A LoRA has rank 16 on all seven
matrices.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench.fresh import ROOT, children_peak_mb, own_peak_mb, run
from bench.inference import bandwidth
from bench.machine import measuring

from ownwords.base.catalogue import KNOWN_BASES
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import Qwen3Config

GROUPS = ("training", "neighbours", "mixes", "writing", "look", "vectors")
BUSY = "while True: pass"
SPINNING = "import torch\nx = torch.ones(256, 256)\nwhile True: x @ x"
NEIGHBOURS: "dict[str, Sequence[str]]" = {
    "alone": (),
    "beside a busy process": (BUSY,),
    "beside two": (BUSY, BUSY),
    "beside a program of spinning threads": (SPINNING,),
    "on one core": (),
}
BURSTS = "import time\nwhile True: sum(range({work})); time.sleep({pause})"
MIXES = 20
PROMPT, STREAMS = 128, 8  # tokens
PASSAGES, PASSAGE = 32, 110  # tokens


@dataclass(frozen=True)
class Shape:
    """A model to train and a batch of it."""

    config: ModelConfig
    rows: int
    context: int
    rank: int = 0  # of LoRA; 0: all weights
    optimizer: str = "muon"


BOX = Qwen3Config(
    vocabulary=8192, context=512, width=256, layers=18, heads=4, kv_heads=2, head_dim=64, hidden=704
)
TINY = Qwen3Config(vocabulary=65, context=64, width=128, layers=4, heads=4, head_dim=32, hidden=352)
GPT2 = GPT2Config(vocabulary=50_304, context=1024, width=768, layers=12, heads=12)
KNOWN = {base.name: base.config for base in KNOWN_BASES}
SHAPES = {
    "the box, 15.4M, 2 x 512": Shape(BOX, 2, 512),
    "4 layers of 128, 12 x 64": Shape(TINY, 12, 64),
    "GPT-2 124M, 4 x 256": Shape(GPT2, 4, 256, optimizer="adamw"),
    "SmolLM2 135M, LoRA, 4 x 512": Shape(KNOWN["smollm2-135m"], 4, 512, 16),
    "Gemma 3 270M, 32k vocabulary, LoRA, 4 x 512": Shape(
        replace(KNOWN["gemma3-270m"], vocabulary=32_768), 4, 512, 16
    ),
}


@dataclass(frozen=True)
class Work:
    """What a process repeats: `kind` names the function that prepares it."""

    name: str
    kind: str
    subject: str  # a shape's name, or the files that it works on
    variant: str = ""  # the precision of training or the type of weights
    streams: int = 1
    cores: int = 0  # at most; 0: all


@dataclass(frozen=True)
class Turn:
    """What a process measured in one turn: the amount per second, and its peak memory so far."""

    best: float
    mean: float
    mb: float


@dataclass(frozen=True)
class Cell:
    """A table's cell: a speed, its share of the limit or of the speed alone, and memory."""

    speed: float
    share: float
    mb: float


@dataclass(frozen=True)
class Worker:
    """A process that does some work: the costs that it replied first, and how to ask for a turn."""

    costs: dict[str, Any]
    ask: Callable[[float], Turn]


@dataclass(frozen=True)
class Prepared:
    """Work that is ready: `repeat(n)` does `amount` of something for the nth time."""

    repeat: Callable[[int], object]
    amount: int
    costs: Mapping[str, float]  # per unit of the amount: "flops" or "bytes"


@measuring()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--isa", default=os.environ.get("OWNWORDS_ISA", ""))
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--against", type=Path, help="a checkout with its .venv and library")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    parser.add_argument("--posts", type=int, default=2_000)
    parser.add_argument("--profile", action="store_true", help="by PyTorch's profiler")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _answer(Work(**json.loads(options.worker)))
    if options.profile:
        return _profile(next(name for name in SHAPES if options.only.lower() in name.lower()))
    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as scratch:
        for isa in options.isa.split(","):
            Table(options, isa, Path(scratch)).show()
    return 0


class Table:
    """The rows of one level."""

    def __init__(self, options: argparse.Namespace, isa: str, scratch: Path) -> None:
        self.options, self.isa, self.scratch = options, isa, scratch
        self.checkouts = [ROOT, *([options.against.resolve()] if options.against else [])]
        with self._worker(Work("rates", "rates", ""), ROOT) as worker:
            self.machine = worker.costs
        self.rates: dict[str, float] = self.machine["rates"]

    def show(self) -> None:
        level, processor, threads = (self.machine[k] for k in ("level", "processor", "threads"))
        print(f"\n## {level}, {processor}, {threads} threads\n")
        rates = ", ".join(f"{name} {value / 1e9:,.0f}" for name, value in self.rates.items())
        print(f"GFLOP/s of all threads: {rates}; memory {bandwidth(1 << 28):.1f} GB/s\n")
        groups = self.options.groups.split(",")
        columns = ["here, a second", "share", "MB"]
        columns += ["there", "share", "MB", "ratio"] if self.options.against else []
        for group in groups:
            print(f"| {group} | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
            getattr(self, f"_{group}")()
            print(flush=True)

    # --- groups ----------------------------------------------------------------------------------

    def _training(self) -> None:
        for name in SHAPES:
            if not self._is_chosen(name):
                continue
            work = Work(name, "training", name)
            precisions = self._ask_precisions(work)
            rows = [self._in_turns(replace(work, variant=precision)) for precision in precisions]
            fastest = [max(cell.speed for cell in column) for column in zip(*rows, strict=True)]
            for precision, row in zip(precisions, rows, strict=True):
                self._print(f"{name}, {precision}", row, fastest)

    def _neighbours(self) -> None:
        tiny, box = "4 layers of 128, 12 x 64", "the box, 15.4M, 2 x 512"
        for subject in (tiny, box):
            work = Work(subject, "training", subject)
            self._beside(replace(work, variant=self._ask_precisions(work)[0]))
        self._beside(Work("30M writes, int8", "writing", self._model("30m"), "int8"))

    def _writing(self) -> None:
        for shape, title in (("30m", "30M"), ("gpt2", "GPT-2 124M")):
            for weights in ("bf16", "int8", "f32"):
                folder = self._model(shape)
                for kind, what, streams in (
                    ("reading", "reads prompts", 1),
                    ("writing", "writes", 1),
                    ("writing", f"{STREAMS} texts together", STREAMS),
                ):
                    name = f"{title} {weights}, {what}"
                    if self._is_chosen(name):
                        row = self._in_turns(Work(name, kind, folder, weights, streams))
                        self._print(name, row)

    def _look(self) -> None:
        from bench import look

        posts = self.options.posts
        folder = self.scratch / f"posts-{posts}"
        if not folder.exists():
            words = look._words(look.COLUMNIST if look.COLUMNIST.exists() else look.SAMPLE)
            look._many_posts(folder, words, posts, megabytes=max(1, posts * 6 // 1000))
        work = Work(f"{posts:,} posts of 6 kB", "look", f"{posts} {folder}")
        self._print(work.name, self._in_turns(work))

    def _vectors(self) -> None:
        work = Work(
            f"MiniLM, passages of {PASSAGE} tokens", "vectors", str(self.scratch / "minilm")
        )
        self._print(work.name, self._in_turns(work))

    # --- rows ------------------------------------------------------------------------------------

    def _is_chosen(self, name: str) -> bool:
        return self.options.only.lower() in name.lower()

    def _model(self, shape: str) -> str:
        folder = self.scratch / shape
        if not folder.exists():
            run("random_models", shape, str(folder), "--no-gguf")
        return str(folder)

    def _ask_precisions(self, work: Work) -> list[str]:
        """Return all precisions that the plans of the checkouts may choose, the likeliest first."""
        asked = replace(work, kind="precisions")
        found: dict[str, None] = {}
        for checkout in self.checkouts:
            with self._worker(asked, checkout) as worker:
                found |= dict.fromkeys(worker.costs["precisions"])
        return list(found)

    def _in_turns(self, work: Work) -> list[Cell]:
        """Return the best turn of each checkout."""
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(self._worker(work, each)) for each in self.checkouts]
            turns = self._take_turns(workers)
            limit = self._limit(workers[0].costs)
        best = [(max(turn.best for turn in each), each[-1].mb) for each in turns]
        return [Cell(speed, speed / limit if limit else 0.0, mb) for speed, mb in best]

    def _mixes(self) -> None:
        """Measure a small model beside one or two programs of three kinds, with a fixed seed."""
        draw = random.Random(1)
        mixes: dict[str, Sequence[str]] = {"alone": ()}
        for number in range(1, MIXES + 1):
            bursts = BURSTS.format(work=draw.randint(10_000, 1_000_000), pause=draw.random() / 50)
            kinds = {"busy": BUSY, "spinning": SPINNING, "bursts": bursts}
            chosen = draw.choices(list(kinds), k=draw.randint(1, 2))
            mixes[f"mix {number}: {' and '.join(chosen)}"] = [kinds[kind] for kind in chosen]
        tiny = "4 layers of 128, 12 x 64"
        work = Work(tiny, "training", tiny)
        self._beside(replace(work, variant=self._ask_precisions(work)[0]), mixes)

    def _beside(self, work: Work, conditions: "Mapping[str, Sequence[str]]" = NEIGHBOURS) -> None:
        """Print the row of each condition, with its share of the speed alone."""
        alone: list[float] = []
        for condition, programs in conditions.items():
            name = f"{work.name}, {condition}"
            if not self._is_chosen(name):
                continue
            placed = replace(work, cores=1) if condition == "on one core" else work
            with contextlib.ExitStack() as stack:
                workers = [stack.enter_context(self._worker(placed, c)) for c in self.checkouts]
                for program in programs:
                    stack.enter_context(_neighbour(program))
                turns = self._take_turns(workers)
            means = [statistics.median(turn.mean for turn in each) for each in turns]
            alone = alone or means
            row = [
                Cell(mean, mean / quiet, each[-1].mb)
                for mean, quiet, each in zip(means, alone, turns, strict=True)
            ]
            self._print(name, row)

    def _take_turns(self, workers: "Sequence[Worker]") -> list[list[Turn]]:
        turns: list[list[Turn]] = [[] for _ in workers]
        for _ in range(self.options.rounds):
            for each, worker in zip(turns, workers, strict=True):
                each.append(worker.ask(self.options.seconds))
        return turns

    def _limit(self, costs: Mapping[str, float]) -> float:
        """Return how many units of these costs this machine can do per second."""
        if "bytes" in costs:
            return 1e9 * bandwidth(int(costs["bytes"])) / costs["bytes"]
        floats = max(rate for name, rate in self.rates.items() if name != "int16")
        return floats / costs["flops"] if "flops" in costs else 0.0

    def _print(self, name: str, row: Sequence[Cell], fastest: Sequence[float] = ()) -> None:
        cells = [name]
        for at, cell in enumerate(row):
            mark = " *" if fastest and cell.speed == fastest[at] else ""
            speed = f"{cell.speed:,.0f}" if cell.speed >= 100 else f"{cell.speed:,.1f}"
            cells += [speed + mark, f"{cell.share:.0%}" if cell.share else "", f"{cell.mb:,.0f}"]
        if len(row) > 1:
            cells.append(f"{row[0].speed / row[1].speed:.2f}x")
        print(f"| {' | '.join(cells)} |", flush=True)

    @contextlib.contextmanager
    def _worker(self, work: Work, checkout: Path) -> "Iterator[Worker]":
        """Yield a process of that checkout's Python."""
        command = [str(checkout / ".venv" / "bin" / "python"), "-P", __file__]
        environment = os.environ | ({"OWNWORDS_ISA": self.isa} if self.isa else {})
        with subprocess.Popen(
            [*command, "--worker", json.dumps(asdict(work))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=checkout,
            env=environment,
            text=True,
        ) as process:
            assert process.stdin and process.stdout
            inputs, outputs = process.stdin, process.stdout

            def reply() -> Any:  # noqa: ANN401 - JSON
                line = outputs.readline()
                if not line:
                    raise SystemExit(f"{checkout}: {work.name} failed, see above")
                return json.loads(line)

            def ask(seconds: float) -> Turn:
                inputs.write(f"{seconds}\n")
                inputs.flush()
                return Turn(**reply())

            try:
                yield Worker(reply(), ask)
            finally:
                process.kill()


_READY = "print(flush=True)\n"
# A killed benchmark closes the pipe; a program that kept running would slow the next measurement.
_ENDS_WITH_US = """\
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
"""


@contextlib.contextmanager
def _neighbour(program: str) -> Iterator[None]:
    """Run another program within the block."""
    spinning = os.environ | {"OMP_WAIT_POLICY": "active"}
    command = [sys.executable, "-c", _ENDS_WITH_US + program.replace("while", _READY + "while")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=spinning
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


# --- in the process of a row ---------------------------------------------------------------------


def _answer(work: Work) -> int:
    """Print the work's costs, then its speed for each line of stdin, a number of seconds."""
    if work.cores:  # before anything counts the cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: work.cores])
    if work.kind in ("rates", "precisions"):
        print(json.dumps(_rates() if work.kind == "rates" else _precisions(work)))
        return 0
    prepare = {"training": _train, "reading": _read, "writing": _write, "look": _look}
    prepared = prepare.get(work.kind, _embed)(work)
    prepared.repeat(0)  # warm-up: allocates memory, chooses kernels
    print(json.dumps(prepared.costs), flush=True)
    number = 1
    for line in sys.stdin:
        taken: list[float] = []
        while not taken or sum(taken) < float(line):
            began = time.perf_counter()
            prepared.repeat(number)
            taken.append(time.perf_counter() - began)
            number += 1
        mb = max(own_peak_mb(), children_peak_mb())
        amount = prepared.amount
        turn = Turn(amount / min(taken), amount * len(taken) / sum(taken), mb)
        print(json.dumps(asdict(turn)), flush=True)
    return 0


def _profile(shape: str) -> int:
    from torch.profiler import ProfilerActivity, profile

    work = Work(shape, "training", shape)
    work = replace(work, variant=_precisions(work)["precisions"][0])
    prepared = _train(work)
    prepared.repeat(0)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for number in range(1, 4):
            prepared.repeat(number)
    print(f"{shape}, {work.variant}, three steps")
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=25))
    return 0


def _rates() -> dict[str, Any]:
    from ownwords.core.hardware import read_cpu, threads
    from ownwords.native.bindings import load_library

    library, cpu = load_library(), read_cpu()
    if library is None:
        raise SystemExit("no compiled library: python -m ownwords.native.build")
    count = threads(cpu)
    rates = {name: 1e9 * rate * count for name, rate in asdict(library.rates).items()}
    facts = {"threads": count, "level": library.isa.label, "processor": cpu.model}
    return facts | {"rates": rates}


def _precisions(work: Work) -> dict[str, list[str]]:
    from ownwords.training.device import choose
    from ownwords.training.throughput import precisions

    is_lora = SHAPES[work.subject].rank > 0
    return {"precisions": list(precisions(choose("cpu"), is_lora=is_lora))}


def _train(work: Work) -> Prepared:
    """Prepare whole training steps on random ids, as in `training/loop.py`."""
    import torch

    from ownwords.models import fused, lora
    from ownwords.models.decoder import build
    from ownwords.training.device import choose
    from ownwords.training.optim import Optimizer
    from ownwords.training.settings import OptimConfig

    shape, device = SHAPES[work.subject], choose("cpu")
    config = shape.config
    masters = work.variant == "bf16"
    # As `recipes.plan_finetuning` does for a base that is stored in bfloat16.
    keeps_bf16 = getattr(fused, "keeps_bf16", lambda _: work.variant == "autocast")
    keeps = shape.rank and keeps_bf16(torch.empty(0, dtype=torch.bfloat16))
    model = build(config, dtype=torch.bfloat16 if keeps else torch.float32)
    model.init_weights(1)
    exact = {name: p.detach() for name, p in model.named_parameters()} if masters else {}
    if masters:
        model.to(torch.bfloat16)
    if shape.rank:
        lora.attach(model, lora.AdapterConfig(rank=shape.rank, alpha=2.0 * shape.rank), 1)
    optim = OptimConfig(kind="adamw" if shape.rank else shape.optimizer)  # type: ignore[arg-type]
    optimizer = Optimizer(model.train(), optim, exact=exact)
    exact.clear()
    generator = torch.Generator().manual_seed(1)
    ids_BT1 = torch.randint(
        0, config.vocabulary, (shape.rows, shape.context + 1), generator=generator
    )
    ids_BT, targets_BT = ids_BT1[:, :-1].contiguous(), ids_BT1[:, 1:].contiguous()

    def step(number: int) -> None:
        optimizer.zero_grad()
        with device.autocast(work.variant):  # type: ignore[arg-type]
            loss, tokens = model.loss(ids_BT, targets_BT)
        torch.autograd.backward(loss / tokens)
        optimizer.step(1.0, number)
        loss.item()

    costs = {}
    with contextlib.suppress(ImportError):  # an earlier checkout, whose costs are not used
        from ownwords.training.step_time import flops_per_token

        costs["flops"] = flops_per_token(config, shape.context, shape.rank)
    return Prepared(step, shape.rows * shape.context, costs)


def _read(work: Work) -> Prepared:
    from bench.engines import some_ids

    runner, parameters = _runner(work), _parameters(Path(work.subject))
    prompts = some_ids(1, PROMPT)
    return Prepared(lambda _: runner.begin(prompts), PROMPT, {"flops": 2.0 * parameters["blocks"]})


def _write(work: Work) -> Prepared:
    from bench.engines import some_ids
    from bench.inference import BYTES

    runner, steps = _runner(work), some_ids(PROMPT, work.streams)
    prompts = some_ids(work.streams, PROMPT)

    def step(number: int) -> None:
        at = number % PROMPT
        if at == 0:
            runner.begin(prompts)
        runner.step(steps[at])

    read = BYTES[work.variant] * _parameters(Path(work.subject))["all"]
    return Prepared(step, work.streams, {"bytes": read} if work.streams == 1 else {})


def _runner(work: Work) -> Any:  # noqa: ANN401
    from bench.engines import Ours

    from ownwords.core.hardware import read_cpu, threads

    length, count = 2 * PROMPT, threads(read_cpu())
    folder, rows = Path(work.subject), work.streams
    return Ours(folder, work.variant, rows=rows, length=length, threads=count)


def _parameters(folder: Path) -> dict[str, float]:
    """Count the weights that are multiplied: those of the blocks, and with the head."""
    from bench.random_models import DIRECTORY

    from ownwords.models import directory

    config = directory.read(folder / DIRECTORY).config
    size = (folder / DIRECTORY / "model.safetensors").stat().st_size / 2  # bfloat16
    if config.MODEL_TYPE == "gpt2":
        size -= config.context * config.width  # positions are looked up
    return {"blocks": size - config.vocabulary * config.width, "all": size}


def _look(work: Work) -> Prepared:
    from bench.look import _run

    posts, _, site = work.subject.partition(" ")
    scratch = tempfile.mkdtemp(dir=Path(site).parent)
    return Prepared(lambda n: _run(Path(site), Path(scratch) / str(n)), int(posts), {})


def _embed(work: Work) -> Prepared:
    sys.path.append(str(ROOT / "tests"))
    from tokenizers import Tokenizer

    import sentence_folders
    from ownwords.ask.encoder import KNOWN, SentenceModel

    sizes = {"context": 512, "width": 384, "layers": 6, "heads": 12, "kv_heads": 12}
    sizes |= {"head_dim": 32, "hidden": 1536}
    minilm = replace(sentence_folders.CONFIG, **sizes)  # type: ignore[arg-type]
    folder = Path(tempfile.mkdtemp(dir=Path(work.subject).parent))
    sentence_folders.folder_in(folder, config=minilm)
    words = sentence_folders.WORDS
    passage = " ".join(words[i % len(words)] for i in range(PASSAGE - 2))
    encoder = SentenceModel(folder, KNOWN[0])
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(passage).ids
    assert len(ids) == PASSAGE
    per_token = 2.0 * 6 * (4 * 384 * 384 + 2 * 384 * 1536) + 4.0 * 6 * 384 * PASSAGE
    cost = {"flops": PASSAGE * per_token}
    return Prepared(lambda _: encoder.embed([passage] * PASSAGES), PASSAGES, cost)


if __name__ == "__main__":
    sys.exit(main())
