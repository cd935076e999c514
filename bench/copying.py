"""The copy guard with a deliberately overfitted model: what is copied, and what the guard costs.

    python bench/copying.py                    trains the model, a few minutes of one thread
    python bench/copying.py --model FOLDER     keeps the model there, or uses the one that is there
    python bench/copying.py --quick            fewer texts

A model of 0.9M parameters learns POSTS posts of the sample blog by heart. Then it writes SAMPLES
texts of TOKENS tokens, each continuing words at a random place of these posts, greedily and at
temperatures 0.5 and 1 in turn, once with the guard of its own directory and once without. The
"longest run" is of words, or of tokens, that a post also has and that ends in what was written. It
is found by comparison with the posts; words are separated by other code than the guard's.

The cost is what the guard adds to the time of writing one text at a time on one thread: the same
requests in turns with and without it, the minimum of REPEATS for each step. With so small a model,
the guard's share is as large as it gets.
"""

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import ROOT

if TYPE_CHECKING:
    from ownwords.inference.generation import GenerationRequest, GenerationState
    from ownwords.inference.model import Model
    from ownwords.tokenizers.tokenizer import Tokenizer

BLOG = ROOT / "examples" / "blog"
POSTS, STEPS = 8, 400
SAMPLES, TOKENS, ROWS = 1000, 200, 8
MAX_GIVEN = 14  # words of a post that a text continues: more than the guard allows
HEATS = (0.0, 0.5, 1.0)
TIMED, REPEATS = 6, 12

# Runs of letters and digits; only ASCII capitals are treated as small letters, as documented.
_WORD = re.compile(r"[^\W_]+")
_SMALL = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}

Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    import torch

    from ownwords.inference.model import Model

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as scratch:
        texts = posts(Path(scratch))
        folder = arguments.model or Path(scratch) / "model"
        if not (folder / "config.json").exists():
            learn_by_heart(texts, folder)
        model = Model.load(folder, threads=1)
    guard = model.guard
    assert guard is not None
    print(
        f"{model.engine.name}; {sum(map(len, texts)):,} characters by heart;"
        f" no {guard.longest} tokens and no {guard.words} words in a row",
        flush=True,
    )
    requests = some_requests(texts, model, SAMPLES // 10 if arguments.quick else SAMPLES)
    source_texts = KnownTexts.of(texts, model)
    is_copied = False
    print(
        f"{'':10} {'copied':>7}  longest run: {'tokens':>6} {'words':>6} {'90%':>5} {'median':>6}"
    )
    for name, used_guard in (("no guard", None), ("guard", guard)):
        runs = [
            source_texts.longest_runs(request.ids, ids)
            for request, ids in generate_all(
                model, [replace(request, guard=used_guard) for request in requests]
            )
        ]
        copied = sum(tokens >= guard.longest or words >= guard.words for tokens, words in runs)
        tokens, words = (sorted(run_pair) for run_pair in zip(*runs, strict=True))
        print(
            f"{name:10} {copied / len(runs):>7.1%} {tokens[-1]:>20} {words[-1]:>6}"
            f" {words[len(words) * 9 // 10]:>5} {words[len(words) // 2]:>6}",
            flush=True,
        )
        is_copied = copied > 0
    tell_cost(model, [request for request in requests if request.sampling.temperature][:TIMED])
    return 1 if is_copied else 0


def posts(scratch: Path) -> list[str]:
    """Return the training texts that `make` takes from the first posts of the sample blog."""
    from ownwords.archive import corpus
    from ownwords.archive.look import look
    from ownwords.archive.store import Archive

    look([BLOG], workspace=scratch / "blog.ownwords")
    with Archive(scratch / "blog.ownwords" / "archive.sqlite") as archive:
        return [text.text for text in list(corpus.load_corpus(archive).train)[:POSTS]]


def learn_by_heart(texts: Sequence[str], folder: Path, steps: int = STEPS) -> None:
    """Overfit a model without regularisation, and save it with its guard."""
    from bench.ours import Setting, make

    from ownwords.archive.corpus import TrainingText
    from ownwords.inference import copy_guard
    from ownwords.models import bundle
    from ownwords.training.settings import LoopConfig, OptimConfig

    setting = Setting(
        {"width": 128, "layers": 4, "heads": 4, "head_dim": 32, "hidden": 352},
        LoopConfig(
            steps=steps,
            batch_size=8,
            sequence_length=256,
            precision="autocast",
            checkpoint_every_s=3600,
        ),
        vocabulary=1024,
        optim=OptimConfig(weight_decay=0.0, learning_rate=1e-2),
    )
    trained = make([TrainingText(str(number), text) for number, text in enumerate(texts)], setting)
    documents = [np.array(trained.tokenizer.encode(text), np.int32) for text in texts]
    guard_bytes = copy_guard.build(documents, trained.tokenizer).to_bytes()
    bundle.save(folder, trained.model, trained.tokenizer, copy_guard=guard_bytes)
    print(f"learned in {trained.outcome.seconds:.0f} s", flush=True)


def some_requests(texts: Sequence[str], model: "Model", count: int) -> "list[GenerationRequest]":
    """Return requests with prompts of up to MAX_GIVEN words from random places of random posts."""
    from ownwords.inference.generation import GenerationRequest
    from ownwords.inference.sampling import SamplingParams
    from ownwords.inference.text_generation import encode_prompt

    dice = random.Random(1)
    requests = []
    for number in range(count):
        words = dice.choice(texts).split(" ")
        begin = dice.randrange(len(words) - MAX_GIVEN)
        prompt = " ".join(words[begin : begin + dice.randint(1, MAX_GIVEN)])
        requests.append(
            GenerationRequest(
                ids=encode_prompt(model.tokenizer, prompt),
                max_tokens=TOKENS,
                sampling=SamplingParams(temperature=HEATS[number % len(HEATS)]),
                seed=number,
            )
        )
    return requests


def generate_all(
    model: "Model", requests: "Sequence[GenerationRequest]"
) -> "list[tuple[GenerationRequest, list[int]]]":
    """Generate the texts of all requests, ROWS at a time, ignoring end tokens."""
    from ownwords.inference.generation import BatchScheduler

    scheduler = BatchScheduler(model.engine, rows=ROWS, length=TOKENS + 128)
    ids: dict[GenerationState, list[int]] = {scheduler.submit(request): [] for request in requests}
    while scheduler.busy:
        for ticket, token in scheduler.step():
            ids[ticket] += [] if token is None else [token]
    scheduler.close()
    assert all(len(token_ids) == TOKENS for token_ids in ids.values())
    return [(ticket.request, token_ids) for ticket, token_ids in ids.items()]


@dataclass(frozen=True)
class KnownTexts:
    """The texts as token ids and as numbered words, with -1 between two texts."""

    tokenizer: "Tokenizer"
    numbers: dict[str, int]
    tokens: Numbers
    words: Numbers

    @classmethod
    def of(cls, texts: Sequence[str], model: "Model") -> "KnownTexts":
        numbers: dict[str, int] = {}
        words = [
            [numbers.setdefault(word, len(numbers)) for word in words_of(text)] for text in texts
        ]
        ids = [model.tokenizer.encode(text) for text in texts]
        return cls(model.tokenizer, numbers, _joined(ids), _joined(words))

    def longest_runs(self, prompt: Sequence[int], ids: Sequence[int]) -> tuple[int, int]:
        """Return the longest copied runs, in tokens and in words, that end beyond the prompt."""
        encode_prompt, text_numbers = (
            [self.numbers.get(word, -2) for word in words_of(self.tokenizer.decode(id_list))]
            for id_list in (prompt, [*prompt, *ids])
        )
        tokens = _longest_run(self.tokens, [*prompt, *ids], len(prompt))
        return tokens, _longest_run(self.words, text_numbers, len(encode_prompt))


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.translate(_SMALL))


def _joined(texts: Sequence[Sequence[int]]) -> Numbers:
    return np.array([number for text in texts for number in (*text, -1)], np.int64)


def _longest_run(known_numbers: Numbers, text: Sequence[int], length: int) -> int:
    longest, runs = 0, np.zeros(len(known_numbers) + 1, np.int64)  # that end before each place
    for index, number in enumerate(text):
        runs[1:] = np.where(known_numbers == number, runs[:-1] + 1, 0)
        if index >= length:
            longest = max(longest, int(runs.max()))
    return longest


def tell_cost(model: "Model", requests: "Sequence[GenerationRequest]") -> None:
    least: dict[bool, Seconds] = {}
    for _ in range(REPEATS):
        for is_guarded in (False, True):
            guard = model.guard if is_guarded else None
            took = np.concatenate(
                [_steps(model, replace(request, guard=guard)) for request in requests]
            )
            least[is_guarded] = np.minimum(least.get(is_guarded, took), took)
    plain, guarded = (least[is_guarded].mean() * 1e6 for is_guarded in (False, True))
    print(
        f"a step takes {plain:.1f} us without the guard, {guarded:.1f} us with it:"
        f" {guarded / plain - 1:.1%} more"
    )


def _steps(model: "Model", request: "GenerationRequest") -> Seconds:
    """Return the seconds of each step except the first, which reads the prompt."""
    from ownwords.inference.generation import generate

    times = [time.perf_counter()]
    for _ in generate(model.engine, request):
        times.append(time.perf_counter())
    return np.diff(times[1:])


if __name__ == "__main__":
    raise SystemExit(main())
