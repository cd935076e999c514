"""How many bits a byte of text costs under a model: the one honest measure of a language model.

Every token is counted once, the end of the document too, and each is predicted by a distribution
over the whole vocabulary that sums to one. A text may have other spellings in tokens than the one
scored, so its true cost is at most what is said here.

Shapes: B rows, T tokens of a row, N scored tokens, C width, V vocabulary, D documents.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ownwords.core.errors import ConfigError
from ownwords.evaluation.scores import DocumentScore, Score
from ownwords.models.decoder import CausalLM
from ownwords.models.loss import CHUNK_LOGITS, IGNORED, LEAST_ROWS
from ownwords.tokenizers.tokenizer import Tokenizer

Ids = npt.NDArray[np.int64]

BATCH_TOKENS = 4096  # enough to feed the units, little beside a model


@dataclass(frozen=True, slots=True)
class Window:
    """What one row reads, `begin` to `end` of a document's ids, and which targets it scores.

    Target i is the id that follows id i.
    """

    document: int
    begin: int
    end: int
    first: int  # targets are scored from here on; those before are what they are predicted from


@dataclass(frozen=True, slots=True)
class AdaptConfig:
    """How a model learns from what it has already been scored on (dynamic evaluation)."""

    kind: Literal["sgd", "adam"] = "sgd"
    rate: float = 3e-3
    decay: float = 0.0  # towards the weights it began with, a share of the distance each step
    segment: int = 0  # tokens scored between two steps; 0: half the context
    clip: float = 1.0  # of the gradient of the mean loss; 0: none
    carry: bool = True  # what one document taught is kept for the next

    def __post_init__(self) -> None:
        if self.rate < 0 or not 0 <= self.decay < 1 or self.clip < 0:
            raise ConfigError(
                f"adapting at rate {self.rate}, decay {self.decay}, clip {self.clip}",
                hint="set none below 0, and decay below 1",
            )


def score(
    model: CausalLM,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    names: Sequence[str] = (),
    context: int = 0,
    stride: int = 0,
) -> Score:
    """The static figure: the model as it is, each document on its own, read in sliding windows.

    `context` 0 is the model's, `stride` 0 half of it: each token is predicted from at least
    context - stride tokens where the document has so many before it.
    """
    context, stride = _reach(model, context, stride)
    rows = encode(tokenizer, texts)
    nats = _document_nats(model, rows, context, stride)
    return _named(model, tokenizer, texts, names, rows, nats)


def score_ids(
    model: CausalLM,
    documents: Sequence[npt.NDArray[Any]],
    sizes: Sequence[int],
    *,
    context: int = 0,
    stride: int = 0,
) -> Score:
    """The same of ids: the first of each document is given. `sizes` are the texts' bytes."""
    context, stride = _reach(model, context, stride)
    rows = [np.asarray(ids, dtype=np.int64) for ids in documents]
    scored = zip(_document_nats(model, rows, context, stride), sizes, rows, strict=True)
    return Score(
        tuple(
            DocumentScore(str(i), nats, size, max(0, len(ids) - 1))
            for i, (nats, size, ids) in enumerate(scored)
        )
    )


def score_adapting(
    model: CausalLM,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    config: AdaptConfig,
    *,
    names: Sequence[str] = (),
    context: int = 0,
) -> Score:
    """The adaptive figure: after each segment the model takes a step on it; then comes the next.

    Each token is scored before anything is learned from it, so this is a code length like any
    other; but of a model that goes on learning, never to be put beside a static one unsaid. The
    texts are read in the order given. The model itself is left as it is.
    """
    context, segment = _reach(model, context, config.segment)
    rows = encode(tokenizer, texts)
    nats_D = []
    learner = _Learner(model, config)
    for number, ids in enumerate(rows):
        if not config.carry:
            learner = _Learner(model, config)
        windows = [*_windows(number, len(ids) - 1, segment, segment)]
        nats_D.append(math.fsum(learner.read(ids, window, context) for window in windows))
    return _named(model, tokenizer, texts, names, rows, nats_D)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ids]:
    """Each text with what stands before it, and its end.

    Before it stands the start token, or, as in GPT-2, the end of the document before.
    """
    before = tokenizer.end if tokenizer.start is None else tokenizer.start
    head, tail = (
        np.array([] if token is None else [token], np.int64) for token in (before, tokenizer.end)
    )
    encoded = tokenizer.encode_batch(texts)
    return [np.concatenate((head, ids, tail)).astype(np.int64) for ids in encoded]


@contextmanager
def evaluating(model: CausalLM) -> Iterator[None]:
    """Without dropout inside, and afterwards every part of the model in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _document_nats(model: CausalLM, rows: Sequence[Ids], context: int, stride: int) -> list[float]:
    nats: list[list[float]] = [[] for _ in rows]
    windows = [
        window
        for number, ids in enumerate(rows)
        for window in _windows(number, len(ids) - 1, context, stride)
    ]
    with evaluating(model), torch.no_grad():
        for batch in _batches(windows):
            for window, sum_ in zip(batch, _window_nats(model, rows, batch), strict=True):
                nats[window.document].append(sum_)
    return [math.fsum(parts) for parts in nats]


def _windows(document: int, targets: int, context: int, stride: int) -> Iterator[Window]:
    """Rows of at most `context` ids that score each target once; all but the first full ones."""
    scored = 0
    while scored < targets:
        end = min(targets, scored + (stride if scored else context))
        # Where windows overlap, the last one reaches back as far as it can.
        begin = scored if stride == context else max(0, end - context)
        yield Window(document, begin, end, scored)
        scored = end


def _batches(windows: Sequence[Window]) -> Iterator[list[Window]]:
    """Windows of like length together, so that hardly any padding is computed."""
    batch: list[Window] = []
    for window in sorted(windows, key=lambda one: one.begin - one.end):
        longest = batch[0].end - batch[0].begin if batch else 0
        if batch and longest * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def _window_nats(model: CausalLM, rows: Sequence[Ids], batch: Sequence[Window]) -> list[float]:
    """The nats of the scored targets of each window."""
    longest = batch[0].end - batch[0].begin
    ids_BT = torch.zeros(len(batch), longest, dtype=torch.int64)
    targets_BT = torch.full((len(batch), longest), IGNORED)
    for row, window in enumerate(batch):
        ids = torch.from_numpy(rows[window.document][window.begin : window.end + 1])
        ids_BT[row, : len(ids) - 1] = ids[:-1]
        skipped = window.first - window.begin
        targets_BT[row, skipped : len(ids) - 1] = ids[skipped + 1 :]
    device = next(model.final_norm.parameters()).device
    # Padding stands on the right, where no real token looks.
    hidden_BTC = model(ids_BT.to(device))
    targets_BT = targets_BT.to(device)
    counted_BT = targets_BT != IGNORED
    nats_N = _nats(model, hidden_BTC[counted_BT], targets_BT[counted_BT])
    nats_BT = torch.zeros(targets_BT.shape, dtype=torch.float64)
    nats_BT[counted_BT.cpu()] = nats_N.double().cpu()
    sums: list[float] = nats_BT.sum(1).tolist()
    return sums


def _nats(model: CausalLM, hidden_NC: Tensor, targets_N: Tensor) -> Tensor:
    """What each target costs, a few rows of logits at a time."""
    rows = max(LEAST_ROWS, CHUNK_LOGITS // model.config.vocabulary)
    pairs = zip(torch.split(hidden_NC, rows), torch.split(targets_N, rows), strict=True)
    parts = [
        torch.nn.functional.cross_entropy(
            # Whatever the precision of the logits, these probabilities sum to one.
            model.logits(hidden[None])[0].float(),
            targets,
            reduction="none",
        )
        for hidden, targets in pairs
    ]
    return torch.cat(parts)


class _Learner:
    """A copy of a model that learns as it reads."""

    def __init__(self, model: CausalLM, config: AdaptConfig) -> None:
        self.config = config
        with evaluating(model):
            self.model = copy.deepcopy(model)  # in evaluation mode, and stays in it: no dropout
        self.parameters = [one.requires_grad_(True) for one in self.model.parameters()]
        self.first = [one.detach().clone() for one in self.parameters] if config.decay else []
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[config.kind]
        self.optimizer: torch.optim.Optimizer = kind(self.parameters, lr=config.rate)

    def read(self, ids: Ids, window: Window, context: int) -> float:
        """The nats of a window's targets, read with all the context there is; then a step."""
        begin = max(0, window.end - context)
        row = torch.from_numpy(ids[begin : window.end + 1])
        row = row.to(next(self.model.final_norm.parameters()).device)
        hidden_NC = self.model(row[None, :-1])[0, window.first - begin :]
        nats_N = _nats(self.model, hidden_NC, row[window.first - begin + 1 :])
        self.optimizer.zero_grad()
        nats_N.mean().backward()  # type: ignore[no-untyped-call]
        if self.config.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
        self.optimizer.step()
        with torch.no_grad():
            for parameter, first in zip(self.parameters, self.first, strict=False):
                parameter.lerp_(first, self.config.decay)
        return float(nats_N.detach().double().sum())


def _named(
    model: CausalLM,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    names: Sequence[str],
    rows: Sequence[Ids],
    nats: Sequence[float],
) -> Score:
    if names and len(names) != len(texts):
        raise ConfigError(f"{len(names)} names for {len(texts)} texts")
    # With nothing to stand before it, the first token is any of the vocabulary.
    bare = tokenizer.start is None and tokenizer.end is None
    return Score(
        tuple(
            DocumentScore(
                names[i] if names else str(i),
                nats[i] + (math.log(model.config.vocabulary) if bare and len(ids) else 0.0),
                len(texts[i].encode()),
                len(ids) if bare else len(ids) - 1,
            )
            for i, ids in enumerate(rows)
        )
    )


def _reach(model: CausalLM, context: int, stride: int) -> tuple[int, int]:
    context = context or model.config.context
    stride = stride or max(1, context // 2)
    if not 1 <= stride <= context <= model.config.context:
        raise ConfigError(
            f"windows of {context} tokens, {stride} apart, for a model whose context is"
            f" {model.config.context}",
            hint="set the context no larger than the model's, and the stride no larger than it",
        )
    return context, stride
