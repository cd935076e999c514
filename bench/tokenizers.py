"""Training and encoding of 24 MB of books, beside tokenizers, rustbpe and tiktoken.

    python bench/tokenizers.py            1 and 2 threads, medians of 3 rounds, all in turn
    python bench/tokenizers.py --whole    train on the whole corpus: time and peak memory

Each thread count is a fresh process, since the libraries read it once. All get the same texts; the
peers get the pattern as they would find it in a saved tokenizer, and tiktoken our merges.
"""

import argparse
import json
import lzma
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOOKS = ROOT.parent / "shared" / "data" / "books-1.txt.xz"
MEGABYTES, VOCABULARY, ROUNDS = 24, 8192, 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--whole", action="store_true", help="train on all of it instead")
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)  # in a process of its own
    arguments = parser.parse_args()
    if not BOOKS.exists():
        print(f"skipped: {BOOKS.name} is not beside the repository")
        return 0
    if arguments.threads:
        print(json.dumps(_measure_whole() if arguments.whole else _measure(arguments.threads)))
        return 0
    for threads in (2,) if arguments.whole else (1, 2):
        # -P, or this file would be what `import tokenizers` finds.
        command = [sys.executable, "-P", __file__, "--threads", str(threads)]
        process = subprocess.run(
            command + ["--whole"] * arguments.whole,
            env=os.environ | {"RAYON_NUM_THREADS": str(threads)},
            stdout=subprocess.PIPE,
            check=True,
        )
        figures = json.loads(process.stdout)
        if arguments.whole:
            print(
                f"{VOCABULARY} tokens of {figures['megabytes']:.0f} MB, {threads} threads:"
                f" {figures['seconds']:.1f} s, unpacking included; peak {figures['peak_mb']:.0f} MB"
            )
            continue
        for job, speeds in figures.items():
            best = max(speed for name, speed in speeds.items() if name != "ownwords")
            print(f"{job}, {threads} threads, MB/s: ", end="")
            print(", ".join(f"{name} {speed:.1f}" for name, speed in speeds.items()), end="")
            print(f"; ownwords {speeds['ownwords'] / best:.2f} of the best peer")
    return 0


def _texts(limit: int | None = None) -> Iterator[str]:
    """The corpus a portion at a time, each ending at a line's end."""
    with lzma.open(BOOKS, "rt", encoding="utf-8", errors="replace", newline="") as file:
        read = 0
        while (limit is None or read < limit) and (lines := file.readlines(50_000)):
            text = "".join(lines)
            read += len(text.encode())
            yield text


def _measure_whole() -> dict[str, float]:
    from ownwords.tokenizers.bpe import train

    sizes = []

    def counted() -> Iterator[str]:
        for text in _texts():
            sizes.append(len(text.encode()))
            yield text

    began = time.perf_counter()
    train(counted(), VOCABULARY)
    return {
        "seconds": time.perf_counter() - began,
        "megabytes": sum(sizes) / 1e6,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _measure(threads: int) -> dict[str, dict[str, float]]:
    # ruff: noqa: I001 - in the child alone is `tokenizers` the library, not this file
    import rustbpe
    import tiktoken
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    from ownwords.tokenizers.bpe import train
    from ownwords.tokenizers.pre_tokenizer import PATTERN

    texts = list(_texts(MEGABYTES * 1_000_000))
    size = sum(len(text.encode()) for text in texts) / 1e6
    ours = train(texts, VOCABULARY, special=(), start=None, end=None)
    rust = rustbpe.Tokenizer()
    rust.train_from_iterator(iter(texts), VOCABULARY, pattern=PATTERN)
    encoding = tiktoken.Encoding(
        "bench", pat_str=PATTERN, mergeable_ranks=dict(ours.ranks), special_tokens={}
    )
    backend = tokenizers.Tokenizer.from_str(ours.files()["tokenizer.json"].decode())
    sample = texts[0]
    assert ours.encode(sample) == encoding.encode_ordinary(sample) == rust.encode(sample)
    assert ours.encode(sample) == backend.encode(sample).ids

    def train_tokenizers() -> None:
        new = tokenizers.Tokenizer(models.BPE())
        new.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        new.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        new.train_from_iterator(iter(texts), trainer)

    def train_rustbpe() -> None:
        rustbpe.Tokenizer().train_from_iterator(iter(texts), VOCABULARY, pattern=PATTERN)

    jobs: dict[str, dict[str, Callable[[], object]]] = {
        "train": {
            "ownwords": lambda: train(texts, VOCABULARY, special=(), start=None, end=None),
            "rustbpe": train_rustbpe,
            "tokenizers": train_tokenizers,
        },
        "encode": {
            "ownwords": lambda: ours.encode_batch(texts, threads=threads),
            "tiktoken": lambda: encoding.encode_ordinary_batch(texts, num_threads=threads),
            "rustbpe": lambda: rust.batch_encode(texts),
            "tokenizers": lambda: backend.encode_batch_fast(texts),
        },
    }
    return {
        job: {name: size / seconds for name, seconds in _in_turn(runs).items()}
        for job, runs in jobs.items()
    }


def _in_turn(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each; in turns, so that other load slows them all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in seconds.items()}


if __name__ == "__main__":
    sys.exit(main())
