"""The KV cache: keys and values of the tokens already read, allocated once at full length.

The token at position p is stored in slot p of its row, even in layers with a sliding window, so
that a text can be truncated anywhere and its prefix copied to another row. An extra slot at the end
receives padding; no token attends to it.

Shapes: B rows, T tokens of this call, S slots, K key/value heads, D dimensions of a head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class KVCache:
    """The KV cache of a model: keys and values of each layer, and the length of each row."""

    def __init__(
        self,
        layers: int,
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
        self.keys_BKSD = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        self.values_BKSD = [torch.zeros_like(keys_BKSD) for keys_BKSD in self.keys_BKSD]

    def cut(self, row: int, length: int) -> None:
        """Truncate a row to its first `length` tokens."""
        self.lengths[row] = min(self.lengths[row], length)

    def copy(self, source: int, row: int, length: int) -> None:
        """Replace the contents of `row` with the first `length` tokens of the row `source`."""
        for stored_BKSD in (*self.keys_BKSD, *self.values_BKSD):
            stored_BKSD[row, :, :length] = stored_BKSD[source, :, :length]
        self.lengths[row] = length


class KVCacheView:
    """The rows and slots of a cache that one forward pass uses.

    `slots_BT` holds the slot of each token, and the extra slot for padding. Tokens attend to the
    first `span` slots, up to their own. The caller updates the lengths of the cache.
    """

    def __init__(
        self, cache: KVCache, slots_BT: Tensor, span: int, rows: Sequence[int] | None = None
    ) -> None:
        self._cache, self._slots_BT, self._span = cache, slots_BT, span
        self.positions_BT = slots_BT.clamp(max=cache.length - 1)  # of padding, the last one
        rows = range(cache.batch) if rows is None else rows
        # A slice of rows needs no copy.
        self._rows: slice | Tensor = slice(rows[0], rows[0] + len(rows))
        numbers_B = torch.arange(rows[0], rows[0] + len(rows), device=cache.device)
        if list(rows) != list(range(rows[0], rows[0] + len(rows))):
            self._rows = numbers_B = torch.tensor(rows, device=cache.device)
        self._numbers_B1 = numbers_B[:, None]

    def mask(self, window: int | None) -> Tensor:
        """Return which slots the tokens attend to, [B, 1, T, S].

        A window of W is the token itself and the W - 1 tokens before it.
        """
        query = self._slots_BT.clamp(max=self._span - 1)[:, None, :, None]
        key = torch.arange(self._span, device=self._slots_BT.device)
        allowed = key <= query
        return allowed if window is None else allowed & (key > query - window)

    def extend(self, layer: int, keys_BKTD: Tensor, values_BKTD: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values; return all that this call's tokens attend to."""
        keys_BKSD = self._extend(self._cache.keys_BKSD[layer], keys_BKTD)
        values_BKSD = self._extend(self._cache.values_BKSD[layer], values_BKTD)
        return keys_BKSD, values_BKSD

    def _extend(self, stored_BKSD: Tensor, new_BKTD: Tensor) -> Tensor:
        # No gradient outlives a call.
        detached_BTKD = new_BKTD.detach().to(stored_BKSD.dtype).transpose(1, 2)
        stored_BKSD[self._numbers_B1, :, self._slots_BT] = detached_BTKD
        return stored_BKSD[self._rows, :, : self._span].to(new_BKTD.dtype)
