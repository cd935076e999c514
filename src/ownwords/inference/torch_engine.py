"""The PyTorch engine: runs a model on any device, including a model still in training.

Shapes: R rows of the cache, B rows of a batch, T tokens, N positions, C width, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import (
    Logits,
    RowInputs,
    WeightFormat,
    check_cache_size,
    check_token_ids,
    check_weight_format,
    not_finite_error,
)
from ownwords.models import bundle
from ownwords.models.cuda_graph import Capturer
from ownwords.models.decoder import CausalLM, eval_mode
from ownwords.models.kv_cache import KVCache, KVCacheView
from ownwords.models.quantize import quantize
from ownwords.models.weight_mapping import find_tensors, is_quantized

_CHUNK = 1024  # tokens of a row per forward pass; bounds the memory of attention scores and masks
_SHORT = 16  # tokens per row up to which padding is free, because reading the weights dominates
_MIN_SPAN = 128  # smallest number of attended KV slots to capture CUDA graphs for
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_FORMATS: dict[torch.dtype, WeightFormat] = {torch.float32: "f32", torch.bfloat16: "bf16"}


class TorchEngine:
    """Runs a network as an engine; `frozen`: its weights neither change nor move.

    On CUDA, short forward passes of a frozen network are captured as graphs and replayed, which
    saves kernel launches. A network that is not frozen may be in training: it runs without
    gradients and dropout, and its mode is restored afterwards.
    """

    def __init__(
        self, network: CausalLM, *, frozen: bool = False, weights: WeightFormat | None = None
    ) -> None:
        self.network = network.eval() if frozen else network
        self.frozen = frozen
        self.vocabulary = network.config.vocabulary
        self.context = network.config.context
        weight = next(network.final_norm.parameters())
        self.device = weight.device
        if self.device.type == "cuda":
            # cuDNN's attention makes a plan for every new length (pytorch/pytorch#155958): with any
            # model, a token took 66 ms on an H100.
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.weights: WeightFormat = weights or _FORMATS.get(weight.dtype, "stored")
        dtype = self.weights if self.weights != "stored" else str(weight.dtype).split(".")[1]
        self.name = f"torch {dtype}, {self.device.type}"

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "cpu",
        weights: WeightFormat = "stored",
        adapter: Path | None = None,
    ) -> "TorchEngine":
        """Load a model directory.

        Raises the errors of `bundle.load`.
        """
        # A quantised model is restored to floats here.
        stored: WeightFormat | None = "int8" if is_quantized(find_tensors(folder)) else None
        if stored:
            check_weight_format(weights, folder)
        dtype = _DTYPES.get(weights)
        network = bundle.load(folder, device=device, dtype=dtype, adapter=adapter).model
        for name, parameter in network.named_parameters():
            if not parameter.isfinite().all():
                raise not_finite_error(name, folder)
        if weights == "int8" and not stored:
            quantize(network)
            stored = weights
        return cls(network, frozen=True, weights=stored)

    def cache(self, rows: int, length: int) -> "TorchEngineCache":
        return TorchEngineCache(self, rows, length)


class TorchEngineCache:
    """Implements `EngineCache` with a `models.kv_cache.KVCache`."""

    def __init__(self, engine: TorchEngine, rows: int, length: int) -> None:
        check_cache_size(rows, length, engine)
        self._engine = engine
        self._network = engine.network
        self._kv_cache: KVCache | None = engine.network.new_cache(rows, length)
        # On CUDA, captured steps by their shape: the tokens per row, and the attended slots.
        self._has_graphs = engine.frozen and engine.device.type == "cuda"
        self._capturer = Capturer(engine.device) if self._has_graphs else None
        self._steps: dict[tuple[int, int], _CapturedStep] = {}

    def cached_length(self, row: int) -> int:
        return self._open(row).lengths[row]

    def forward(self, inputs: RowInputs, *, all_positions: bool = False) -> Logits:
        kv_cache = self._open(*inputs)
        self._check(inputs, kv_cache)
        logits: dict[int, Tensor] = {}
        mode = nullcontext() if self._engine.frozen else eval_mode(self._network)
        with torch.inference_mode(), mode:
            for rows in _groups({row: len(ids) for row, ids in inputs.items()}):
                batch = {row: inputs[row] for row in rows}
                is_short = max(map(len, batch.values())) <= _SHORT
                read = self._read_short if self._has_graphs and is_short else self._read
                logits.update(zip(rows, read(kv_cache, batch, all_positions), strict=True))
            array: Logits = torch.cat([logits[row] for row in inputs]).float().cpu().numpy()
        return array

    def truncate(self, row: int, length: int) -> None:
        if length < 0:
            raise OwnwordsError(f"row {row} cannot be cut to {length} tokens")
        self._open(row).cut(row, length)

    def copy_prefix(self, source: int, row: int, length: int) -> None:
        kv_cache = self._open(source, row)
        if not 0 <= length <= kv_cache.lengths[source]:
            raise OwnwordsError(f"row {row} cannot begin with {length} tokens of row {source}")
        with torch.inference_mode():
            kv_cache.copy(source, row, length)

    def close(self) -> None:
        self._kv_cache = None
        self._steps.clear()

    def _open(self, *rows: int) -> KVCache:
        """Return the cache; raises an error if it is closed or lacks one of these rows."""
        if self._kv_cache is None:
            raise OwnwordsError("the cache is closed")
        for row in rows:
            if not 0 <= row < self._kv_cache.batch:
                raise OwnwordsError(f"row {row} is not in a cache of {self._kv_cache.batch} rows")
        return self._kv_cache

    def _check(self, inputs: RowInputs, kv_cache: KVCache) -> None:
        if not inputs:
            raise OwnwordsError("there is no row to read")
        for row, ids in inputs.items():
            if len(ids) == 0:
                raise OwnwordsError(f"row {row} was given no ids to read")
            check_token_ids(ids, self._engine.vocabulary)
            total = kv_cache.lengths[row] + len(ids)
            if total > kv_cache.length:
                raise OwnwordsError(
                    f"a text of {total} tokens does not fit a cache of {kv_cache.length}",
                    hint="create a longer cache, up to the model's context",
                )

    def _read(self, kv_cache: KVCache, inputs: RowInputs, all_positions: bool) -> Sequence[Tensor]:
        """Run the network; return each row's logits, after every id or only the last."""
        hidden: dict[int, list[Tensor]] = {row: [] for row in inputs}
        for first in range(0, max(map(len, inputs.values())), _CHUNK):
            chunks = {
                row: ids[first : first + _CHUNK] for row, ids in inputs.items() if len(ids) > first
            }
            rows, counts = [*chunks], [*map(len, chunks.values())]
            ids_BT, slots_BT = _padded(kv_cache, chunks, rows, max(counts))
            span = max(kv_cache.lengths[row] + len(ids) for row, ids in chunks.items())
            view = KVCacheView(kv_cache, slots_BT.to(kv_cache.device), span, rows)
            hidden_BTC = self._network(ids_BT.to(kv_cache.device), cache=view)
            for row, hidden_TC, count in zip(rows, hidden_BTC, counts, strict=True):
                kv_cache.lengths[row] += count
                if all_positions:
                    hidden[row].append(hidden_TC[:count])
                else:
                    hidden[row] = [hidden_TC[count - 1 : count]]
        parts = [torch.cat(chunks) for chunks in hidden.values()]
        logits_NV = self._network.logits(torch.cat(parts)[None])[0]
        return torch.split(logits_NV, [len(part) for part in parts])

    def _read_short(
        self, kv_cache: KVCache, inputs: RowInputs, all_positions: bool
    ) -> Sequence[Tensor]:
        """The same in a few fixed shapes, each captured when it first occurs.

        Rows without input are computed as well; at these sizes that costs nothing.
        """
        tokens = _next_power_of_two(max(map(len, inputs.values())))
        ids_RT, slots_RT = _padded(kv_cache, inputs, range(kv_cache.batch), tokens)
        longest = max(kv_cache.lengths[row] + len(ids) for row, ids in inputs.items())
        span = min(max(_MIN_SPAN, _next_power_of_two(longest)), kv_cache.length)
        if (tokens, span) not in self._steps:
            step = _CapturedStep(self._network, kv_cache, tokens, span, self._capturer)
            self._steps[tokens, span] = step
        logits_RTV = self._steps[tokens, span].replay(ids_RT, slots_RT)
        for row, ids in inputs.items():
            kv_cache.lengths[row] += len(ids)
        return [
            logits_RTV[row, 0 if all_positions else len(ids) - 1 : len(ids)]
            for row, ids in inputs.items()
        ]


class _CapturedStep:
    """A forward pass of one shape, as a CUDA graph if it can be captured."""

    def __init__(
        self,
        network: CausalLM,
        kv_cache: KVCache,
        tokens: int,
        span: int,
        capturer: Capturer | None,
    ) -> None:
        shape = (kv_cache.batch, tokens)
        self._network, self._kv_cache, self._span = network, kv_cache, span
        self._ids_RT = torch.zeros(shape, dtype=torch.int64, device=kv_cache.device)
        # While capturing, everything is written to a spare slot that nothing attends to.
        self._slots_RT = torch.full_like(self._ids_RT, kv_cache.length)
        self._run = self._forward
        # A layer that synchronises with the device, as a replaced layer may, cannot be captured;
        # then the same kernels are launched one by one.
        with suppress(RuntimeError):
            if capturer is not None:
                self._run = capturer.capture(self._forward, warm_up=2)

    def replay(self, ids_RT: Tensor, slots_RT: Tensor) -> Tensor:
        self._ids_RT.copy_(ids_RT)
        self._slots_RT.copy_(slots_RT)
        return self._run()

    def _forward(self) -> Tensor:
        view = KVCacheView(self._kv_cache, self._slots_RT, self._span)
        return self._network.logits(self._network(self._ids_RT, cache=view))


def _padded(
    kv_cache: KVCache, inputs: RowInputs, rows: Sequence[int], tokens: int
) -> tuple[Tensor, Tensor]:
    """Return the ids of some rows, padded to `tokens`, and the slots of the cache they go to."""
    ids_BT = torch.zeros(len(rows), tokens, dtype=torch.int64)
    slots_BT = torch.full_like(ids_BT, kv_cache.length)
    for place, row in enumerate(rows):
        ids, begin = inputs.get(row, ()), kv_cache.lengths[row]
        ids_BT[place, : len(ids)] = torch.as_tensor(ids)
        slots_BT[place, : len(ids)] = torch.arange(begin, begin + len(ids))
    return ids_BT, slots_BT


def _groups(counts: Mapping[int, int]) -> Iterator[list[int]]:
    """Yield groups of rows to pad to one length, the longest at most twice the shortest.

    Rows stay in order, because consecutive rows are a view of the cache and not a copy.
    """
    group: list[int] = []
    for row in sorted(counts, key=lambda row: -counts[row]):
        if group and counts[group[0]] > max(_SHORT, 2 * counts[row]):
            yield sorted(group)
            group = []
        group.append(row)
    yield sorted(group)


def _next_power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
