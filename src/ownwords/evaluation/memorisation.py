"""Measures how much of its training text a model has memorised.

Shapes: B samples, T tokens, C width, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ownwords.core.text import hash_words
from ownwords.evaluation.intervals import share
from ownwords.evaluation.verbatim import Extraction
from ownwords.models.decoder import CausalLM, eval_mode
from ownwords.tokenizers.tokenizer import Tokenizer

# Words to give and to extract: about as much text as the 50 tokens of Carlini et al. 2021 and 2023.
WORDS = 40

_MIN_WORDS = 5
_BATCH_SIZE = 32


def extraction(
    model: CausalLM,
    tokenizer: Tokenizer,
    training: Sequence[str],
    held_out: Sequence[str],
    *,
    samples: int = 256,
    words: int = WORDS,
) -> Extraction:
    """Measure how often greedy decoding continues training and held-out posts word for word.

    Passages are counted in words, so that models with different vocabularies can be compared. Their
    length is halved if no training post is long enough, or most passages exceed the context.
    """
    context = model.config.context
    while True:
        kinds = [_word_passages(tokenizer, texts, words, samples) for texts in (training, held_out)]
        sizes = [len(passage.ids) for passage in kinds[0]]
        if words <= _MIN_WORDS or (sizes and np.median(sizes) <= context + 1):
            break
        words //= 2
    shares = []
    for kind in kinds:
        fitting = [passage for passage in kind if len(passage.ids) <= context + 1]
        shares.append(share(_reproduced(model, fitting), [passage.post for passage in fitting]))
    return Extraction(words, *shares)


class _Passage(NamedTuple):
    """The ids of a passage, how many of them are given, and the number of its post."""

    ids: npt.NDArray[np.int64]
    prefix: int
    post: int = 0


def _word_passages(
    tokenizer: Tokenizer, posts: Sequence[str], words: int, samples: int
) -> list[_Passage]:
    """Draw non-overlapping passages of 2 * `words` words, each within one post."""
    generator = np.random.default_rng(1)
    posts = [posts[i] for i in generator.permutation(len(posts))[:samples]]
    cut = [(number, half) for number, post in enumerate(posts) for half in _halves(post, words)]
    drawn = [cut[i] for i in generator.permutation(len(cut))[:samples]]
    halves = [half for _, both in drawn for half in both]
    ids = tokenizer.encode_batch(halves)
    start = [] if tokenizer.row_start is None else [tokenizer.row_start]
    return [
        _Passage(
            np.concatenate((start, given, following)).astype(np.int64),
            len(start) + len(given),
            number,
        )
        for (number, _), given, following in zip(drawn, ids[::2], ids[1::2], strict=True)
    ]


def _halves(post: str, words: int) -> Iterator[tuple[str, str]]:
    """Yield the consecutive passages of a post, each as two halves of `words` words."""
    _, starts, ends = hash_words(post)
    for first in range(0, len(starts) - 2 * words + 1, 2 * words):
        middle, last = int(ends[first + words - 1]), first + 2 * words
        end = int(starts[last]) if last < len(starts) else len(post)
        yield post[int(starts[first]) : middle], post[middle:end].rstrip()


def _reproduced(model: CausalLM, rows: Sequence[_Passage]) -> list[bool]:
    """Return whether greedy decoding continues the prefix of each passage with its other ids.

    One forward pass replaces generation: greedy decoding reproduces a passage exactly if each of
    its tokens is the most likely one given the true tokens before it.
    """
    device = next(model.final_norm.parameters()).device
    reproduced: list[bool] = []
    with eval_mode(model):
        for at in range(0, len(rows), _BATCH_SIZE):
            batch = rows[at : at + _BATCH_SIZE]
            ids = [torch.from_numpy(passage.ids).to(device) for passage in batch]
            # Right padding: causal attention never reaches it from a real token.
            ids_BT = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
            hidden_BTC = model(ids_BT[:, :-1])
            # Row by row: over a large vocabulary the logits of all rows would take gigabytes.
            for hidden_TC, ids_T, passage in zip(hidden_BTC, ids, batch, strict=True):
                logits_TV = model.logits(hidden_TC[passage.prefix - 1 : len(ids_T) - 1])
                targets_T1 = ids_T[passage.prefix :, None]
                # Compared by value: in bfloat16 several logits are often equal.
                is_right_T = logits_TV.gather(-1, targets_T1)[:, 0] == logits_TV.amax(-1)
                reproduced.append(bool(is_right_T.all()))
    return reproduced
