"""Keys and values of the tokens already read, allocated once for the longest text to come.

Layers that attend through a window of W tokens keep W slots and write round and round: the token
at position p lies in slot p modulo the number of slots.

Shapes: B batch, T tokens of this call, S slots or keys, K key/value heads, D dimensions of a head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError


class Cache:
    """What a model keeps between calls: for each layer keys and values, for each row a length."""

    def __init__(
        self,
        windows: Sequence[int | None],
        *,
        batch: int,
        length: int,
        kv_heads: int,
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.batch = batch
        self.length = length
        self.device = device
        self.lengths = [0] * batch  # kept in Python: reading them never waits for a device
        # Zeros, not whatever lies there: a masked slot still takes part as 0 * its value.
        self.keys_BKSD = [
            torch.zeros(batch, kv_heads, self.slots(window), head_dim, device=device, dtype=dtype)
            for window in windows
        ]
        self.values_BKSD = [torch.zeros_like(keys_BKSD) for keys_BKSD in self.keys_BKSD]

    def slots(self, window: int | None) -> int:
        return self.length if window is None else min(window, self.length)

    def counts(self, batch: int, tokens: int, lengths_B: Tensor | None) -> list[int]:
        """How many of the next `tokens` are real in each row; what does not fit is refused."""
        if batch != self.batch:
            raise OwnwordsError(f"the cache holds {self.batch} texts, and {batch} were given")
        counts = [tokens] * batch if lengths_B is None else [int(n) for n in lengths_B.tolist()]
        if len(counts) != batch or not all(0 <= count <= tokens for count in counts):
            raise OwnwordsError(
                f"lengths {counts} do not fit {batch} texts of at most {tokens} tokens"
            )
        longest = max(have + more for have, more in zip(self.lengths, counts, strict=True))
        if longest > self.length:
            raise OwnwordsError(
                f"a text of {longest} tokens does not fit a cache made for {self.length}",
                hint="ask new_cache for more, up to the model's context",
            )
        return counts

    def positions(self, tokens: int) -> Tensor:
        """Positions of the next `tokens` of each row: [B, T], or [1, T] where all are alike."""
        lengths = self.lengths[:1] if len(set(self.lengths)) == 1 else self.lengths
        starts_B1 = torch.tensor(lengths, device=self.device)[:, None]
        return starts_B1 + torch.arange(tokens, device=self.device)

    def advance(self, counts: Sequence[int]) -> None:
        """All layers have stored a call's tokens."""
        self.lengths = [have + more for have, more in zip(self.lengths, counts, strict=True)]


class View:
    """How the layers of one window store the tokens of one call, and what these may look at."""

    def __init__(
        self, cache: Cache, window: int | None, tokens: int, counts: Sequence[int]
    ) -> None:
        self.cache = cache
        self.mask: Tensor | None = None
        self.causal = False
        slots = cache.slots(window)
        self._held = min(max(cache.lengths), slots)
        self._write = _places(cache, slots, tokens, counts)
        # A single step reads what it has just stored; several tokens at once may not, since in a
        # window the last of them has already overwritten what the first still looks at.
        self._is_step = tokens == 1 and min(counts) == 1
        if self._is_step:
            self._held = min(max(cache.lengths) + 1, slots)
            if min(cache.lengths) + 1 < self._held:
                filled_B1 = torch.tensor(cache.lengths, device=cache.device)[:, None] + 1
                slots_S = torch.arange(self._held, device=cache.device)
                self.mask = (slots_S < filled_B1)[:, None, None, :]
        elif self._held == 0 and (window is None or window >= tokens):
            self.causal = True
        else:
            positions_BT = cache.positions(tokens)
            stored_BS = _stored_positions(cache, self._held)
            keys_BS = torch.cat((stored_BS, positions_BT.expand(cache.batch, -1)), dim=1)
            self.mask = visible(positions_BT, keys_BS, window)

    def extend(self, layer: int, keys_BKTD: Tensor, values_BKTD: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values; all those that this call's tokens may look at."""
        keys_BKSD = self._extend(self.cache.keys_BKSD[layer], keys_BKTD)
        values_BKSD = self._extend(self.cache.values_BKSD[layer], values_BKTD)
        return keys_BKSD, values_BKSD

    def _extend(self, stored_BKSD: Tensor, new_BKTD: Tensor) -> Tensor:
        seen_BKSD = new_BKTD
        if self._held and not self._is_step:
            earlier_BKSD = stored_BKSD[:, :, : self._held].to(new_BKTD.dtype)
            seen_BKSD = torch.cat((earlier_BKSD, new_BKTD), dim=2)
        kept_BKTD = new_BKTD.detach().to(stored_BKSD.dtype)  # no gradient outlives a call
        if isinstance(self._write, slice):
            count = self._write.stop - self._write.start
            stored_BKSD[:, :, self._write] = kept_BKTD[:, :, :count]
        else:
            rows, tokens, slots = self._write
            stored_BKSD[rows, :, slots] = kept_BKTD[rows, :, tokens]
        if self._is_step:
            seen_BKSD = stored_BKSD[:, :, : self._held].to(new_BKTD.dtype)
        return seen_BKSD


def visible(queries_BT: Tensor, keys_BS: Tensor, window: int | None) -> Tensor:
    """[B, 1, T, S]: whether the token at a position may look at the one at another.

    A key at a negative position is an empty slot. A window of W is the token and W - 1 before it.
    """
    query = queries_BT[:, None, :, None]
    key = keys_BS[:, None, None, :]
    seen = (key <= query) & (key >= 0)
    return seen if window is None else seen & (key > query - window)


def _stored_positions(cache: Cache, held: int) -> Tensor:
    """The position last written to each of the first `held` slots, -1 where there is none."""
    slots_S = torch.arange(held, device=cache.device)
    lengths_B1 = torch.tensor(cache.lengths, device=cache.device)[:, None]
    rounds_BS = torch.div(lengths_B1 - 1 - slots_S, max(held, 1), rounding_mode="floor")
    return torch.where(slots_S < lengths_B1, slots_S + rounds_BS * held, -1)


def _places(
    cache: Cache, slots: int, tokens: int, counts: Sequence[int]
) -> slice | tuple[Tensor, Tensor, Tensor]:
    """Where a call's real tokens go: one slice if all rows are alike, else (rows, tokens, slots).

    Of more tokens than slots only the last are kept.
    """
    start, count = cache.lengths[0] % slots, counts[0]
    alike = len(set(cache.lengths)) == 1 and len(set(counts)) == 1
    if alike and start + count <= slots:
        return slice(start, start + count)
    numbers_T = torch.arange(tokens)
    counts_B1 = torch.tensor(counts)[:, None]
    rows, kept = ((numbers_T < counts_B1) & (numbers_T >= counts_B1 - slots)).nonzero(as_tuple=True)
    into = (torch.tensor(cache.lengths)[rows] + kept) % slots
    return rows.to(cache.device), kept.to(cache.device), into.to(cache.device)
