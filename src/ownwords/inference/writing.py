"""Text that goes on: the one room where ids and their tokenizer meet.

Shapes: B texts, T tokens of the prompt, N new tokens, V vocabulary.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError
from ownwords.inference.sampling import Sampling, choose
from ownwords.models.cache import Cache
from ownwords.models.family import CausalLM
from ownwords.tokenizers.tokenizer import Tokenizer


def write(
    network: CausalLM,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    tokens: int,
    seed: int = 1,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.05,
    repetition_penalty: float = 1.0,
) -> Iterator[str]:
    """What follows the prompt, in whole characters as they come, up to so many tokens.

    It ends earlier where the model ends the document or begins another. The same seed writes the
    same text. Beyond the context the text goes on from its later half.
    """
    ids = [] if tokenizer.start is None else [tokenizer.start]
    ids += tokenizer.encode(prompt)
    if not ids and tokenizer.end is not None:
        ids = [tokenizer.end]  # where one document ends the next begins
    stops = {stop for stop in (tokenizer.end, tokenizer.start) if stop is not None}
    sampling = Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    written = generate(network, ids, tokens=tokens, sampling=sampling, seed=seed, stops=stops)
    return tokenizer.stream(written)


def generate(
    network: CausalLM,
    ids: Sequence[int],
    *,
    tokens: int,
    sampling: Sampling,
    seed: int,
    stops: Collection[int] = (),
) -> Iterator[int]:
    """The ids that follow `ids`, up to so many; one of `stops` ends them and is not given."""
    if not ids:
        raise OwnwordsError(
            "there is nothing to begin with: the prompt is empty, and this model knows no token"
            " that begins a text",
            hint="give the first words",
        )
    # Checked here, and not when the first token is asked for.
    return _generated(network, list(ids), tokens, sampling, seed, stops)


def _generated(
    network: CausalLM,
    text: list[int],
    tokens: int,
    sampling: Sampling,
    seed: int,
    stops: Collection[int],
) -> Iterator[int]:
    reader = _Reader(network, rows=1, length=len(text) + tokens)
    unread = text
    for drawn in range(tokens):
        logits_BV = reader.read(torch.tensor([unread]))
        chosen = int(choose(logits_BV, sampling, [seed], drawn, [text])[0])
        if chosen in stops:
            return
        yield chosen
        text.append(chosen)
        unread = [chosen]


def continue_ids(network: CausalLM, ids_BT: Tensor, tokens: int) -> Tensor:
    """The likeliest `tokens` ids after each row, [B, N], on the device of the rows."""
    if ids_BT.ndim != 2 or ids_BT.shape[1] == 0:
        raise OwnwordsError(f"ids must be [texts, tokens], not {list(ids_BT.shape)}")
    if tokens < 1:
        return ids_BT[:, :0]
    reader = _Reader(network, rows=ids_BT.shape[0], length=ids_BT.shape[1] + tokens)
    chosen_B = reader.read(ids_BT).argmax(-1)
    new = [chosen_B]
    while len(new) < tokens:
        chosen_B = reader.read(chosen_B[:, None]).argmax(-1)
        new.append(chosen_B)
    return torch.stack(new, dim=1).to(ids_BT.device)


class _Reader:
    """Reads texts of equal length on and on; a full context is read anew from its later half."""

    def __init__(self, network: CausalLM, *, rows: int, length: int) -> None:
        self._network = network
        self._rows = rows
        self._length = min(length, network.config.context)
        self._device = network.embedding.weight.device
        self._held_BT = torch.zeros(rows, 0, dtype=torch.int64, device=self._device)
        self._cache: Cache | None = None

    def read(self, ids_BT: Tensor) -> Tensor:
        """Scores of what follows when these ids are read after all earlier ones, [B, V]."""
        ids_BT = ids_BT.to(self._device)
        self._held_BT = torch.cat((self._held_BT, ids_BT), dim=1)
        if self._held_BT.shape[1] > self._length:
            self._held_BT = self._held_BT[:, -max(1, self._length // 2) :]
            self._cache, ids_BT = None, self._held_BT
        with _reading(self._network):
            if self._cache is None:
                self._cache = self._network.new_cache(self._rows, self._length)
            hidden_BTC = self._network(ids_BT, cache=self._cache)
            return self._network.logits(hidden_BTC[:, -1:])[:, 0]


@contextmanager
def _reading(network: CausalLM) -> Iterator[None]:
    """No gradients and no dropout, for this call alone: samples are written while a model trains.

    Held over a `yield` either would reach into the code of whoever takes the ids.
    """
    was_training = network.training
    if was_training:
        network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if was_training:
            network.train()
