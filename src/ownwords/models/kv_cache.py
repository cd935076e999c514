"""The KV cache: keys and values of the tokens already read, allocated once at full length.

The token at position p is stored in slot p of its row, even in layers with a sliding window, so
that a text can be truncated anywhere and its prefix copied to another row. An extra slot at the end
receives padding; no token attends to it.

Shapes: B rows, T tokens of this call, S slots or keys, K key/value heads, D dimensions of a head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class KVCache:
    """The KV cache of a model: keys and values of each layer, and the length of each row."""

    numbers_B: Tensor | None = None  # the indices of the rows, if they are not contiguous

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
        self.lengths = [0] * batch  # Python ints: reading them never synchronises with the device
        # Zeros, not uninitialised memory: masked slots are multiplied by 0, and 0 * NaN is NaN.
        shape = (batch, kv_heads, length + 1, head_dim)
        self.keys_BKSD = [torch.zeros(shape, device=device, dtype=dtype) for _ in windows]
        self.values_BKSD = [torch.zeros_like(keys_BKSD) for keys_BKSD in self.keys_BKSD]

    def counts(self, tokens: int, lengths_B: Tensor | None) -> list[int]:
        return [tokens] * self.batch if lengths_B is None else [int(n) for n in lengths_B.tolist()]

    def positions(self, tokens: int) -> Tensor:
        """Return the positions of each row's next `tokens`: [B, T], or [1, T] if all are equal."""
        lengths = self.lengths[:1] if len(set(self.lengths)) == 1 else self.lengths
        starts_B1 = torch.tensor(lengths, device=self.device)[:, None]
        return starts_B1 + torch.arange(tokens, device=self.device)

    def advance(self, counts: Sequence[int]) -> None:
        """Add a call's token counts to the lengths, after all layers have stored the tokens."""
        self.lengths = [length + more for length, more in zip(self.lengths, counts, strict=True)]

    def cut(self, row: int, length: int) -> None:
        """Truncate a row to its first `length` tokens."""
        self.lengths[row] = min(self.lengths[row], length)

    def copy(self, source: int, row: int, length: int) -> None:
        """Replace the contents of `row` with the first `length` tokens of the row `source`."""
        for stored_BKSD in (*self.keys_BKSD, *self.values_BKSD):
            stored_BKSD[row, :, :length] = stored_BKSD[source, :, :length]
        self.lengths[row] = length

    def view(self, window: int | None, tokens: int, counts: Sequence[int]) -> "KVCacheView":
        """Return the view of the slots that the next tokens use in layers with this window."""
        alike = len(set(self.lengths)) == 1 and len(set(counts)) == 1
        length, count = self.lengths[0], counts[0]
        slots: slice | Tensor = slice(length, length + count)
        if not alike:
            is_real_BT = torch.arange(tokens) < torch.tensor(counts)[:, None]
            slots = torch.where(is_real_BT.to(self.device), self.positions(tokens), self.length)
        if max(self.lengths) == 0 and (window is None or window >= tokens):
            return KVCacheView(self, slots, causal=True)
        ends = [length + count for length, count in zip(self.lengths, counts, strict=True)]
        first, end = 0 if window is None else max(0, min(self.lengths) + 1 - window), max(1, *ends)
        if alike and count == tokens == 1:
            return KVCacheView(self, slots, first, end)
        # Padding gets the mask of its row's last token, because attention over no slots is NaN.
        last_B1 = torch.tensor(ends, device=self.device)[:, None] - 1
        positions_BT = torch.minimum(self.positions(tokens), last_B1.clamp(min=first))
        slots_1S = torch.arange(first, end, device=self.device)[None]
        return KVCacheView(self, slots, first, end, visible(positions_BT, slots_1S, window))


class KVCacheRows(KVCache):
    """A view of some rows of a cache, sharing its memory, for one call."""

    def __init__(self, cache: KVCache, rows: Sequence[int]) -> None:
        self._cache, self._rows = cache, rows
        self.batch, self.length, self.device = len(rows), cache.length, cache.device
        self.lengths = [cache.lengths[row] for row in rows]
        self.keys_BKSD, self.values_BKSD = cache.keys_BKSD, cache.values_BKSD
        first, end = rows[0], rows[0] + len(rows)
        if list(rows) == list(range(first, end)):
            self.keys_BKSD = [stored_BKSD[first:end] for stored_BKSD in cache.keys_BKSD]
            self.values_BKSD = [stored_BKSD[first:end] for stored_BKSD in cache.values_BKSD]
        else:
            self.numbers_B = torch.tensor(rows, device=cache.device)

    def advance(self, counts: Sequence[int]) -> None:
        super().advance(counts)
        for row, length in zip(self._rows, self.lengths, strict=True):
            self._cache.lengths[row] = length


class StaticKVCache(KVCache):
    """All rows of a cache, for calls with constant shapes, which a CUDA graph can capture.

    `slots_BT` holds the slot of each token; padding goes to the extra slot at the end. Tokens
    attend to the first `span` slots. The caller updates the lengths of the cache.
    """

    def __init__(self, cache: KVCache, slots_BT: Tensor, span: int) -> None:
        self.batch, self.length, self.device = cache.batch, cache.length, cache.device
        self.keys_BKSD, self.values_BKSD = cache.keys_BKSD, cache.values_BKSD
        self._slots_BT, self._span = slots_BT, span

    def counts(self, tokens: int, lengths_B: Tensor | None) -> list[int]:
        return []

    def positions(self, tokens: int) -> Tensor:
        return self._slots_BT

    def advance(self, counts: Sequence[int]) -> None:
        pass

    def view(self, window: int | None, tokens: int, counts: Sequence[int]) -> "KVCacheView":
        slots_1S = torch.arange(self._span, device=self.device)[None]
        positions_BT = self._slots_BT.clamp(max=self._span - 1)
        mask = visible(positions_BT, slots_1S, window)
        return KVCacheView(self, self._slots_BT, 0, self._span, mask)


class KVCacheView:
    """Access to the cache during one call, for all layers with the same window."""

    def __init__(
        self,
        cache: "KVCache",
        slots: slice | Tensor,
        first: int = 0,
        end: int = 0,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> None:
        """Tokens go to `slots`, the same slice in all rows or [B or 1, T].

        They attend to the slots from `first` to `end`, except those that `mask` [B or 1, 1, T, end
        - first] excludes. If `causal`, the cache was empty, and they attend only to each other.
        """
        self.cache, self.mask, self.causal = cache, mask, causal
        self._slots, self._first, self._end = slots, first, end
        rows_B: Tensor | slice = slice(None) if cache.numbers_B is None else cache.numbers_B
        self._rows_B = rows_B
        if isinstance(slots, Tensor):
            if isinstance(rows_B, slice):
                rows_B = torch.arange(cache.batch, device=cache.device)
            self._rows_B1 = rows_B[:, None]

    def extend(self, layer: int, keys_BKTD: Tensor, values_BKTD: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values; return all that this call's tokens attend to."""
        keys_BKSD = self._extend(self.cache.keys_BKSD[layer], keys_BKTD)
        values_BKSD = self._extend(self.cache.values_BKSD[layer], values_BKTD)
        return keys_BKSD, values_BKSD

    def _extend(self, stored_BKSD: Tensor, new_BKTD: Tensor) -> Tensor:
        slots = self._slots
        detached_BKTD = new_BKTD.detach().to(stored_BKSD.dtype)  # no gradient outlives a call
        if isinstance(slots, slice):
            stored_BKSD[self._rows_B, :, slots] = detached_BKTD[:, :, : slots.stop - slots.start]
        else:
            stored_BKSD[self._rows_B1, :, slots] = detached_BKTD.transpose(1, 2)
        if self.causal:
            return new_BKTD
        return stored_BKSD[self._rows_B, :, self._first : self._end].to(new_BKTD.dtype)


def visible(queries_BT: Tensor, keys_BS: Tensor, window: int | None) -> Tensor:
    """Return the causal attention mask [B, 1, T, S] from the positions of queries and keys.

    A window of W is the token itself and the W - 1 tokens before it.
    """
    query = queries_BT[:, None, :, None]
    key = keys_BS[:, None, None, :]
    allowed = key <= query
    return allowed if window is None else allowed & (key > query - window)
