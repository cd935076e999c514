"""Generation compared with llama.cpp and transformers: tokens/s, share of bandwidth, memory.

    python bench/inference.py                          5M and 30M, GPT-2 124M, Gemma 3 270M
    python bench/inference.py --shapes gemma1b         others: see bench/random_models.py
    python bench/inference.py --only ours llama        engines whose name has this in it
    python bench/inference.py --models FOLDER          keep the models there, or use those there
    python bench/inference.py --quick                  one round of few steps

Two threads. Each row is a fresh process, all rows of a shape take turns, and the best round counts:
on a busy machine, the best round shows what the engine can do. "reads" is a prompt of 128 tokens;
"writes" is 128 tokens after it, the minimum over repeats for each step; "8 streams" is the same for
8 texts at once, total tokens/s. Ratios are to llama.cpp with weights of the same number of bits.

Memory bandwidth limits writing, because each token reads all weights. "of limit" is the share of
the bandwidth that two threads reach here over as many bytes as the row reads (bench/bandwidth.cpp).
"MB" is the peak resident memory for one text; "beyond" is the part that is neither weights nor
cache: the interpreter, libraries, and what loading used.

The first word is that of `ownwords write` in a cold process: interpreter, imports, loading, reading
the prompt, the word. It is the minimum of FIRST_WORDS runs, for models of the sizes trained here.

llama.cpp's own weight layouts crash some of its builds; such a row is measured without them and
says so.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.engines import LlamaCpp, Ours, Runner, Transformers, some_ids
from bench.fresh import own_peak_mb, run
from bench.machine import measuring
from bench.random_models import DIRECTORY, TITLES, config, gguf_file

PROMPT, STEPS, STREAMS, THREADS = 128, 128, 8, 2
STREAM_STEPS = 32
ROUNDS, SECONDS = 3, 2.0
FIRST_WORDS = 5
BEGINNING = "the trouble"
WRITERS = ("5m", "30m")  # their tokenizers are like those of models trained here


@dataclass(frozen=True)
class Row:
    """One line of the table; `beside` names the row it is compared with."""

    name: str
    engine: str  # transformers, llama, ours
    kind: str
    beside: str = ""
    repacked: bool = True  # llama.cpp with layouts of its own


ROWS = (
    Row("transformers f32", "transformers", "f32"),
    Row("transformers bf16", "transformers", "bf16"),
    Row("llama.cpp BF16", "llama", "bf16"),
    Row("llama.cpp Q8_0", "llama", "q8_0"),
    Row("ours bf16", "ours", "bf16", "llama.cpp BF16"),
    Row("ours int8", "ours", "int8", "llama.cpp Q8_0"),
)
# Bytes read per weight, including its share of the scales.
BYTES = {"f32": 4.0, "bf16": 2.0, "int8": 1.0}


@dataclass(frozen=True)
class Figures:
    """The figures of one process."""

    prompt_s: float
    steps_s: float  # of STEPS tokens
    streams_s: float  # of STREAM_STEPS in all STREAMS
    peak_mb: float


@measuring()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    default_shapes = [shape for shape in TITLES if shape != "gemma1b"]
    parser.add_argument("--shapes", nargs="+", choices=[*TITLES], default=default_shapes)
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--models", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        settings = json.loads(arguments.child)
        figures = measure(Path(settings["folder"]), Row(**settings["row"]), settings["seconds"])
        print(json.dumps(asdict(figures)))
        return 0
    rounds, seconds = (1, 0.3) if arguments.quick else (arguments.rounds, SECONDS)
    rows = [row for row in ROWS if any(part in row.name for part in arguments.only)]
    with tempfile.TemporaryDirectory() as scratch:
        for shape in arguments.shapes:
            folder = (arguments.models or Path(scratch)) / shape
            if not (folder / DIRECTORY).exists():
                run("random_models", shape, str(folder))
            print(f"\n{TITLES[shape]}, best of {rounds}", flush=True)
            measured = _in_turn(folder, rows, rounds, seconds)
            show(shape, folder, measured)
            if shape in WRITERS and any(row.engine == "ours" for row in rows):
                first_word(folder / DIRECTORY)
            if not arguments.models:
                shutil.rmtree(folder)
    return 0


def _in_turn(
    folder: Path, rows: Sequence[Row], rounds: int, seconds: float
) -> dict[Row, list[Figures]]:
    pending = list(rows)
    measured: dict[Row, list[Figures]] = {}
    for _ in range(rounds):
        for index, row in enumerate(pending):
            try:
                figures = _measure_child(folder, row, seconds)
            except SystemExit:
                if row.engine != "llama" or not row.repacked:
                    raise
                pending[index] = row = replace(row, repacked=False)  # noqa: PLW2901
                figures = _measure_child(folder, row, seconds)
            measured.setdefault(row, []).append(figures)
    return measured


def _measure_child(folder: Path, row: Row, seconds: float) -> Figures:
    settings = json.dumps({"folder": str(folder), "row": asdict(row), "seconds": seconds})
    return Figures(**run("inference", "--child", settings).figures)


def measure(folder: Path, row: Row, seconds: float) -> Figures:
    """Measure in this process: one text, the memory so far, many texts."""
    single = _runner(folder, row, 1)
    prompt_s, steps_s = _timed(single, 1, STEPS, seconds)
    peak_mb = own_peak_mb()
    del single
    batch = _runner(folder, row, STREAMS)
    _, streams_s = _timed(batch, STREAMS, STREAM_STEPS, seconds)
    return Figures(prompt_s, steps_s, streams_s, peak_mb)


def _runner(folder: Path, row: Row, rows: int) -> Runner:
    length = PROMPT + STEPS
    if row.engine == "ours":
        return Ours(folder, row.kind, rows=rows, length=length, threads=THREADS)
    if row.engine == "llama":
        return LlamaCpp(
            folder, row.kind, rows=rows, length=length, threads=THREADS, repacked=row.repacked
        )
    return Transformers(folder, row.kind, threads=THREADS)


def _timed(runner: Runner, rows: int, steps: int, seconds: float) -> tuple[float, float]:
    """Return the minimum seconds of the prompts, and the sum of each step's minimum."""
    prompts, following = some_ids(rows, PROMPT), some_ids(steps, rows)
    runner.begin(prompts)  # warm-up: allocates memory, chooses kernels
    runner.step(following[0])
    prompt_s, least = float("inf"), [float("inf")] * steps
    until = time.perf_counter() + seconds
    while least[-1] == float("inf") or time.perf_counter() < until:
        began = time.perf_counter()
        runner.begin(prompts)
        prompt_s = min(prompt_s, time.perf_counter() - began)
        for number, ids in enumerate(following):
            began = time.perf_counter()
            runner.step(ids)
            least[number] = min(least[number], time.perf_counter() - began)
    return prompt_s, sum(least)


def show(shape: str, folder: Path, figures: dict[Row, list[Figures]]) -> None:
    best = {
        row.name: Figures(*(min(column) for column in zip(*map(_values, all), strict=True)))
        for row, all in figures.items()
    }
    print(
        f"{'':20} {'reads':>8} {'ratio':>6} {'writes':>8} {'ratio':>6} {'of limit':>9}"
        f" {'8 streams':>10} {'ratio':>6} {'of one':>7} {'MB':>6} {'beyond':>7}"
    )
    for row in figures:
        figure, beside = best[row.name], best.get(row.beside)
        weights = _weight_bytes(shape, folder, row)
        writes, streams = STEPS / figure.steps_s, STREAMS * STREAM_STEPS / figure.streams_s
        kept_mb = (weights + _cache_bytes(shape, row)) / (1 << 20)
        print(
            f"{row.name:20} {PROMPT / figure.prompt_s:8,.0f} {_ratio(beside, figure, 'prompt_s')}"
            f" {writes:8,.1f} {_ratio(beside, figure, 'steps_s')}"
            f" {writes * weights / (bandwidth(int(weights)) * 1e9):9.0%}"
            f" {streams:10,.0f} {_ratio(beside, figure, 'streams_s')} {streams / writes:6.1f}x"
            f" {figure.peak_mb:6,.0f} {figure.peak_mb - kept_mb:7,.0f}"
            f"{'' if row.repacked else '  without its layouts'}",
            flush=True,
        )
    sizes = {_weight_bytes(shape, folder, row) for row in figures}
    limits = ", ".join(
        f"{bandwidth(int(s)):.0f} GB/s over {s / 1e6:,.0f} MB" for s in sorted(sizes)
    )
    print(f"memory: {limits}")


def first_word(model: Path) -> None:
    command = [sys.executable, "-m", "ownwords", "write", BEGINNING, "--max-tokens", "1"]
    # As after an install, compiled Python is kept between runs.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    times = []
    for kind in ("stored", "int8"):
        command_line = [*command, "--model", str(model), "--weights", kind]
        seconds_each = []
        for _ in range(FIRST_WORDS):
            began = time.perf_counter()
            with subprocess.Popen(command_line, stdout=subprocess.PIPE, env=environment) as process:
                assert process.stdout is not None
                process.stdout.read(len(BEGINNING) + 1)  # the first letter after the prompt
                seconds_each.append(time.perf_counter() - began)
                process.stdout.read()
            if process.returncode:
                raise SystemExit(f"{' '.join(command_line)} ended with {process.returncode}")
        times.append(f"{min(seconds_each):.2f} s {kind}")
    print(f"first word: {', '.join(times)}")


def _values(figures: Figures) -> tuple[float, ...]:
    return (figures.prompt_s, figures.steps_s, figures.streams_s, figures.peak_mb)


def _ratio(beside: Figures | None, figures: Figures, name: str) -> str:
    if beside is None:
        return f"{'':6}"
    return f"{getattr(beside, name) / getattr(figures, name):5.2f}x"


def _weight_bytes(shape: str, folder: Path, row: Row) -> float:
    """Return the bytes read per token: llama.cpp's file, or all matrices except lookup tables."""
    if row.engine == "llama":
        return gguf_file(folder, row.kind).stat().st_size
    from ownwords.models.decoder import build

    sizes = {name: p.numel() for name, p in build(config(shape), device="meta").named_parameters()}
    return BYTES[row.kind] * sum(size for name, size in sizes.items() if "position" not in name)


def _cache_bytes(shape: str, row: Row) -> float:
    shape_config = config(shape)
    width = 4 if row.kind == "f32" else 2
    return (
        2.0
        * shape_config.layers
        * shape_config.kv_heads
        * shape_config.head_dim
        * (PROMPT + STEPS)
        * width
    )


@cache
def bandwidth(size: int) -> float:
    """Return the GB/s at which THREADS threads read a buffer of that size repeatedly."""
    from ownwords.native.build import compiler

    compiler_path = compiler()
    if compiler_path is None:
        raise SystemExit("the limit cannot be measured: no C++ compiler was found")
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "bandwidth"
        source = Path(__file__).with_name("bandwidth.cpp")
        flags = ("-O3", "-march=native", "-pthread")
        subprocess.run([compiler_path, *flags, str(source), "-o", str(program)], check=True)
        command = [str(program), str(size), str(THREADS), "1.0"]
        return float(subprocess.run(command, check=True, capture_output=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
