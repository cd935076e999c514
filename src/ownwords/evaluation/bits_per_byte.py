"""Bits per byte: how well a language model predicts texts, independent of its tokenizer.

Every token counts once, including the end token of a document. It is predicted by a distribution
over the whole vocabulary that sums to one. A text also has other tokenizations than the scored one,
so its true cost is at most this figure.

Shapes: B rows, T tokens of a row, N scored tokens, C width, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ownwords.evaluation.intervals import DocumentScore, Score
from ownwords.models.decoder import CausalLM, eval_mode
from ownwords.models.loss import CHUNK_LOGITS, IGNORED, MIN_ROWS
from ownwords.tokenizers.tokenizer import Tokenizer

Ids = npt.NDArray[np.int64]

BATCH_TOKENS = 4096  # enough to saturate the device, little memory compared with a model


@dataclass(frozen=True, slots=True)
class Window:
    """The ids `begin` to `end` of a document as input of one row, and the targets it scores.

    Target i is the id that follows id i.
    """

    document: int
    begin: int
    end: int
    first: int  # the first target scored; earlier ones are only context


def score(
    model: CausalLM,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    names: Sequence[str] = (),
    stride: int = 0,
) -> Score:
    """Score each document on its own, in sliding windows of the model's context.

    `stride` defaults to half the context: each token is predicted from at least context - stride
    tokens, if the document has that many before it.
    """
    context = model.config.context
    stride = stride or max(1, context // 2)
    rows = encode(tokenizer, texts)
    nats = document_nats(model, rows, context, stride)
    # If no token precedes the first one, it costs as much as a uniform guess.
    is_bare = tokenizer.start is None and tokenizer.end is None
    first = math.log(model.config.vocabulary) if is_bare else 0.0
    scores = (
        DocumentScore(
            name,
            cost + (first if len(ids) else 0.0),
            len(text.encode()),
            len(ids) if is_bare else len(ids) - 1,
        )
        for name, text, ids, cost in zip(
            names or map(str, range(len(texts))), texts, rows, nats, strict=True
        )
    )
    return Score(tuple(scores))


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ids]:
    """Encode each text between start and end tokens.

    Without a start token, as in GPT-2, the end token is put before the text.
    """
    before = tokenizer.end if tokenizer.start is None else tokenizer.start
    head, tail = (
        np.array([] if token is None else [token], np.int64) for token in (before, tokenizer.end)
    )
    encoded = tokenizer.encode_batch(texts)
    return [np.concatenate((head, ids, tail)).astype(np.int64) for ids in encoded]


def document_nats(model: CausalLM, rows: Sequence[Ids], context: int, stride: int) -> list[float]:
    """Return the nats of each document; its first id is only context."""
    nats: list[list[float]] = [[] for _ in rows]
    windows = [
        window
        for number, ids in enumerate(rows)
        for window in _windows(number, len(ids) - 1, context, stride)
    ]
    with eval_mode(model):
        for batch in _batches(windows):
            for window, total in zip(batch, _window_nats(model, rows, batch), strict=True):
                nats[window.document].append(total)
    return [math.fsum(parts) for parts in nats]


def _windows(document: int, targets: int, context: int, stride: int) -> Iterator[Window]:
    """Yield windows of at most `context` ids that score each target once."""
    scored = 0
    while scored < targets:
        end = min(targets, scored + (stride if scored else context))
        # Overlapping windows start as early as the context allows, including the last one.
        begin = scored if stride == context else max(0, end - context)
        yield Window(document, begin, end, scored)
        scored = end


def _batches(windows: Sequence[Window]) -> Iterator[list[Window]]:
    """Yield batches of windows of similar length, which need little padding."""
    batch: list[Window] = []
    for window in sorted(windows, key=lambda window: window.begin - window.end):
        longest = batch[0].end - batch[0].begin if batch else 0
        if batch and longest * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def _window_nats(model: CausalLM, rows: Sequence[Ids], batch: Sequence[Window]) -> list[float]:
    """Return the total nats of the scored targets of each window."""
    longest = batch[0].end - batch[0].begin
    ids_BT = torch.zeros(len(batch), longest, dtype=torch.int64)
    targets_BT = torch.full((len(batch), longest), IGNORED)
    for row, window in enumerate(batch):
        ids = torch.from_numpy(rows[window.document][window.begin : window.end + 1])
        ids_BT[row, : len(ids) - 1] = ids[:-1]
        first = window.first - window.begin
        targets_BT[row, first : len(ids) - 1] = ids[first + 1 :]
    device = next(model.final_norm.parameters()).device
    # Right padding: causal attention never reaches it from a real token.
    hidden_BTC = model(ids_BT.to(device))
    targets_BT = targets_BT.to(device)
    is_scored_BT = targets_BT != IGNORED
    nats_N = _target_nats(model, hidden_BTC[is_scored_BT], targets_BT[is_scored_BT])
    nats_BT = torch.zeros(targets_BT.shape, dtype=torch.float64)
    nats_BT[is_scored_BT.cpu()] = nats_N.double().cpu()
    sums: list[float] = nats_BT.sum(1).tolist()
    return sums


def _target_nats(model: CausalLM, hidden_NC: Tensor, targets_N: Tensor) -> Tensor:
    """Return the cross-entropy of each target, computing a limited number of logits at once."""
    rows = max(MIN_ROWS, CHUNK_LOGITS // model.config.vocabulary)
    pairs = zip(torch.split(hidden_NC, rows), torch.split(targets_N, rows), strict=True)
    parts = [
        torch.nn.functional.cross_entropy(
            # In float32, so that the probabilities sum to one.
            model.logits(hidden[None])[0].float(),
            targets,
            reduction="none",
        )
        for hidden, targets in pairs
    ]
    return torch.cat(parts)
