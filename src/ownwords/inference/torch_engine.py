"""The PyTorch engine: runs a model on any device, including a model still in training.

Shapes: R rows of the cache, B rows of a batch, T tokens, N positions, C width, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import (
    QUANTIZED,
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
from ownwords.models.kv_cache import KVCache, KVCacheRows, StaticKVCache
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
        if weights in QUANTIZED and not stored:
            quantize(network, QUANTIZED[weights])
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
        self._graphs: _GraphedForward | None = None
        if engine.frozen and engine.device.type == "cuda":
            self._graphs = _GraphedForward(engine, self._kv_cache)

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
                if self._graphs is not None and self._graphs.fits(batch):
                    parts = self._graphs.forward(batch, all_positions)
                else:
                    parts = self._forward(kv_cache, batch, all_positions)
                logits.update(zip(rows, parts, strict=True))
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
        self._kv_cache = self._graphs = None

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

    def _forward(
        self, kv_cache: KVCache, inputs: RowInputs, all_positions: bool
    ) -> Sequence[Tensor]:
        """Run the network eagerly; return each row's logits, after every id or only the last."""
        hidden: dict[int, list[Tensor]] = {row: [] for row in inputs}
        for first in range(0, max(map(len, inputs.values())), _CHUNK):
            chunks = {
                row: ids[first : first + _CHUNK] for row, ids in inputs.items() if len(ids) > first
            }
            counts = [len(chunk) for chunk in chunks.values()]
            ids_BT = torch.zeros(len(chunks), max(counts), dtype=torch.int64)
            for ids_T, chunk in zip(ids_BT, chunks.values(), strict=True):
                ids_T[: len(chunk)] = torch.as_tensor(chunk)
            hidden_BTC = self._network(
                ids_BT.to(self._engine.device),
                cache=KVCacheRows(kv_cache, [*chunks]),
                lengths_B=torch.tensor(counts),
            )
            for row, hidden_TC, count in zip(chunks, hidden_BTC, counts, strict=True):
                if all_positions:
                    hidden[row].append(hidden_TC[:count])
                else:
                    hidden[row] = [hidden_TC[count - 1 : count]]
        parts = [torch.cat(chunks) for chunks in hidden.values()]
        logits_NV = self._network.logits(torch.cat(parts)[None])[0]
        return torch.split(logits_NV, [len(part) for part in parts])


class _GraphedForward:
    """Short forward passes of all rows in a few fixed shapes, each captured when it first occurs.

    A shape is the number of tokens per row and the span of KV slots attended to. Rows without input
    are computed as well; at these sizes that costs nothing.
    """

    def __init__(self, engine: TorchEngine, kv_cache: KVCache) -> None:
        self._network, self._kv_cache = engine.network, kv_cache
        self._graphs: dict[tuple[int, int], _CapturedStep] = {}
        self._capturer = Capturer(engine.device) if engine.device.type == "cuda" else None

    def fits(self, inputs: RowInputs) -> bool:
        return all(len(ids) <= _SHORT for ids in inputs.values())

    def forward(self, inputs: RowInputs, all_positions: bool) -> Sequence[Tensor]:
        kv_cache = self._kv_cache
        ends = {row: kv_cache.lengths[row] + len(ids) for row, ids in inputs.items()}
        tokens = _next_power_of_two(max(map(len, inputs.values())))
        span = min(max(_MIN_SPAN, _next_power_of_two(max(ends.values()))), kv_cache.length)
        ids_RT = np.zeros((kv_cache.batch, tokens), np.int64)
        slots_RT = np.full_like(ids_RT, kv_cache.length)
        for row, ids in inputs.items():
            ids_RT[row, : len(ids)] = ids
            slots_RT[row, : len(ids)] = range(kv_cache.lengths[row], ends[row])
        if (tokens, span) not in self._graphs:
            step = _CapturedStep(self._network, kv_cache, tokens, span, self._capturer)
            self._graphs[tokens, span] = step
        logits_RTV = self._graphs[tokens, span].replay(ids_RT, slots_RT)
        for row, end in ends.items():
            kv_cache.lengths[row] = end
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

    def replay(self, ids_RT: npt.NDArray[np.int64], slots_RT: npt.NDArray[np.int64]) -> Tensor:
        self._ids_RT.copy_(torch.from_numpy(ids_RT))
        self._slots_RT.copy_(torch.from_numpy(slots_RT))
        return self._run()

    def _forward(self) -> Tensor:
        static = StaticKVCache(self._kv_cache, self._slots_RT, self._span)
        return self._network.logits(self._network(self._ids_RT, cache=static))


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
