"""Sampling settings: which temperature, limits and penalties keep a small model's texts sensible.

    python bench/sampling.py WORKSPACE                        its own model, about ten minutes
    python bench/sampling.py WORKSPACE --model FOLDER         another, such as the built-in base
    python bench/sampling.py WORKSPACE --choice temperature=0.8,min_p=0.05 --choice ...

For each setting, COUNT texts of TOKENS tokens are written with the first seeds, half of them
unprompted and half from the titles of held-out posts. They are measured as in the scorecard:
copies, loops, made-up words, broken sentences. Held-out posts of the same length are shown beside
them.

"bits" is the surprise of a token by the model itself, before sampling: in sampled text, too little
is dull and ends in loops, too much is babble, and real text shows the right amount. "left out" is
the share of real tokens that could not have been sampled; "real" is the bits per real token under
this setting, mixed with 1% of the model's own distribution.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.machine import measuring

if TYPE_CHECKING:
    from ownwords.inference.model import Model
    from ownwords.inference.sampling import SamplingParams
    from ownwords.language.words import Lexicon

COUNT, TOKENS, ROWS = 32, 300, 8
EVERY = 5  # one in so many tokens of real text is measured: sampling costs more than reading
ASIDE = 0.01  # of the model's own distribution: what is left out would have infinite bits
LOOPED = 0.3  # of a text's runs of four words are repeated: a reader sees a loop

Setting = Mapping[str, float]
HEATS: Sequence[Setting] = [
    {"temperature": heat, "min_p": least}
    for heat in (0.6, 0.7, 0.8, 0.9, 1.0)
    for least in (0.02, 0.05, 0.1, 0.2)
]
NUCLEI: Sequence[Setting] = [
    {"temperature": heat, "top_p": most} for heat in (0.8, 1.0) for most in (0.8, 0.9, 0.95)
]
PENALTIES: Sequence[Setting] = [
    {"temperature": 0.8, "min_p": 0.05, name: value}
    for name, values in {
        "repetition_penalty": (1.05, 1.1, 1.2, 1.3),
        "frequency_penalty": (0.1, 0.3),
    }.items()
    for value in values
]


@dataclass(frozen=True)
class RealPosts:
    """The held-out posts and the training posts of a model."""

    titles: Sequence[str]
    held_out: Sequence[str]
    training: Sequence[str]
    lexicon: "Lexicon | None"


@measuring()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--choice", action="append", default=[])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    from ownwords.inference.model import Model
    from ownwords.inference.sampling import SamplingParams

    folder = arguments.model or arguments.workspace / "model"
    model = Model.load(folder, threads=arguments.threads)
    real = read(arguments.workspace)
    settings = [parse_setting(choice) for choice in arguments.choice] or [
        *HEATS,
        *NUCLEI,
        *PENALTIES,
    ]
    scores = list(score_tokens(model, real.held_out))
    baseline = sum(-own for own, _, _, _ in scores) / len(scores) / math.log(2)
    print(
        f"{model.engine.name}; {arguments.count} texts each; real text {baseline:.2f} bits a token"
    )
    heads = ("bits", "said again", "loops", "no words", "broken", "left out")
    print("  ".join(f"{head:>10}" for head in (*heads, "real", "tokens/s")))
    real_row: Sequence[str] = ()
    for setting in settings:
        sampling = SamplingParams(**to_params(setting))
        row, real_row = measure_setting(model, real, sampling, scores, arguments.count)
        print("  ".join(f"{cell:>10}" for cell in row), describe(setting), flush=True)
    print("  ".join(f"{cell:>10}" for cell in (f"{baseline:.2f}", *real_row)), "real posts")
    return 0


def parse_setting(text: str) -> Setting:
    """Parse a setting such as "temperature=0.8,min_p=0.05"."""
    return {name: float(value) for name, value in (item.split("=") for item in text.split(","))}


def to_params(setting: Setting) -> dict[str, Any]:
    return {name: int(value) if name == "top_k" else value for name, value in setting.items()}


def describe(setting: Setting) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in setting.items())


def read(workspace: Path) -> RealPosts:
    """Return the posts of an archive, without those used to choose between models."""
    from ownwords.archive import corpus
    from ownwords.archive.store import Archive
    from ownwords.language.words import Lexicon

    with Archive(workspace / "archive.sqlite") as archive:
        texts = corpus.load_corpus(archive)
        unseen = [text.text for side in (texts.test, texts.validation) for text in side]
        training = [text.text for text in texts.train]
    return RealPosts([text.partition("\n")[0] for text in unseen], unseen, training, Lexicon.load())


Scored = tuple[float, Sequence[int], "np.ndarray[tuple[int], np.dtype[np.float32]]", int]


def log_probability(scores_V: "np.ndarray[tuple[int], np.dtype[np.float32]]", token: int) -> float:
    """Return the model's own log-probability of a token."""
    return float(scores_V[token] - np.logaddexp.reduce(scores_V.astype(float)))


def score_tokens(model: "Model", texts: Sequence[str]) -> Iterator[Scored]:
    """Yield for some tokens of real text: log-probability, prefix, logits, id."""
    from ownwords.inference.text_generation import encode_prompt

    for text in texts:
        ids = encode_prompt(model.tokenizer, text)[: min(TOKENS, model.engine.context)]
        scores_NV = model.logits(ids[:-1])
        for at in range(0, len(ids) - 1, EVERY):
            yield (
                log_probability(scores_NV[at], ids[at + 1]),
                ids[: at + 1],
                scores_NV[at],
                ids[at + 1],
            )


def measure_setting(
    model: "Model",
    real: RealPosts,
    sampling: "SamplingParams",
    scores: Sequence[Scored],
    count: int,
) -> tuple[Sequence[str], Sequence[str]]:
    """Return a row of the table, and its figures for real posts."""
    from ownwords.evaluation.fluency import fluency, openings, repetition
    from ownwords.inference.sampling import Sampler

    def loops(texts: Sequence[str]) -> float:
        shares = [repeated / max(1, runs) for runs, repeated in map(repetition, texts)]
        return sum(share >= LOOPED for share in shares) / len(texts)

    began = time.perf_counter()
    texts, surprise, tokens = write_texts(model, real.titles, sampling, count)
    took_s = time.perf_counter() - began
    fluency_scores = fluency(texts, real.held_out, real.training, real.lexicon)
    real_openings = [
        opening
        for text in real.held_out
        for opening in openings(text, fluency_scores.passage_words)
    ]
    sampler, left_out, bits = Sampler(sampling), 0.0, 0.0
    for own, before, scores_V, id_ in scores:
        chosen, weights = sampler.candidates(sampler.process(scores_V, before))
        probability = float(weights[chosen == id_].sum() / weights.sum())
        left_out += probability == 0
        bits -= math.log2((1 - ASIDE) * probability + ASIDE * math.exp(own)) / len(scores)
    shares = (
        fluency_scores.repeated,
        fluency_scores.non_words,
        fluency_scores.broken,
    )
    ours, theirs = (
        [f"{getattr(score, side).value:.2%}" if score else "-" for score in shares]
        for side in ("samples", "held_out")
    )
    row = [f"{surprise / tokens / math.log(2):.2f}", ours[0], f"{loops(texts):.1%}", *ours[1:]]
    row += [f"{left_out / len(scores):.1%}", f"{bits:.3f}", f"{tokens / took_s:.0f}"]
    return row, [theirs[0], f"{loops(real_openings):.1%}", *theirs[1:]]


def write_texts(
    model: "Model", titles: Sequence[str], sampling: "SamplingParams", count: int
) -> tuple[list[str], float, int]:
    """Return the texts as users get them, their surprise in nats, and their number of tokens."""
    from ownwords.inference.generation import BatchScheduler

    half = count // 2
    prompts = ["", *(f"{title}\n\n" for title in titles)]
    prompts_and_seeds = [("", seed) for seed in range(1, half + 1)]
    prompts_and_seeds += [
        (prompts[1 + i % len(titles)], 1 + i // len(titles)) for i in range(count - half)
    ]
    scheduler = BatchScheduler(model.engine, rows=ROWS, length=model.engine.context)
    tickets = []
    for prompt, seed in prompts_and_seeds:
        request = model.request(prompt, max_tokens=TOKENS, seed=seed, sampling=sampling)
        tickets.append(scheduler.submit(request))
    ids: dict[int, list[int]] = {id(ticket): [] for ticket in tickets}
    while scheduler.busy:
        for ticket, token in scheduler.step():
            ids[id(ticket)] += [] if token is None else [token]
    scheduler.close()
    surprise = 0.0
    for ticket in tickets:
        prompt_ids, written = ticket.request.ids, ids[id(ticket)]
        scores_NV = model.logits([*prompt_ids, *written][:-1])[len(prompt_ids) - 1 :]
        surprise -= sum(map(log_probability, scores_NV, written))
    texts = [model.tokenizer.decode(ids[id(ticket)]) for ticket in tickets]
    return texts, surprise, sum(map(len, ids.values()))


if __name__ == "__main__":
    sys.exit(main())
