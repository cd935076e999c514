"""The engine for every device PyTorch knows, over a model of ours; also one still in training.

Shapes: R rows of the cache, B rows read at once, T tokens, N ids asked about, C width,
V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import (
    ROUNDED,
    ForwardInput,
    Logits,
    WeightFormat,
    check_cache_size,
    check_copy,
    check_cut,
    check_feeds,
    check_row,
    check_weight_format,
    closed_cache_error,
    not_finite_error,
)
from ownwords.models import bundle
from ownwords.models.decoder import CausalLM
from ownwords.models.kv_cache import KVCache, KVCacheRows, StaticKVCache
from ownwords.models.quantization_scheme import QuantizationScheme
from ownwords.models.quantize import quantize

_PIECE = 1024  # tokens of a text read at once, which bounds the memory of scores and masks
_SHORT = 16  # tokens a row up to which padding costs nothing: the weights are read all the same
_SPANS = 128  # the least of the spans of slots for which steps are recorded
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class TorchEngine:
    """A network as an engine. `settled`: its weights stay as they are, and where they are.

    Then, on CUDA, short reads are recorded once and played again, which saves the time that
    launching takes. With `compiled` they are compiled as well, which takes a minute for each cache
    of another size, and so pays for a server. A network that is not settled may be in training: it
    is read without gradients or dropout, and left as it was.
    """

    def __init__(self, network: CausalLM, *, settled: bool = False, compiled: bool = False) -> None:
        self.network = network.eval() if settled else network
        self.settled = settled
        self.compiled = compiled and settled
        self.vocabulary = network.config.vocabulary
        self.context = network.config.context
        weight = _plain(network)
        self.device = weight.device
        self.weights = _weights(network)
        kind = self.weights if self.weights != "stored" else str(weight.dtype).split(".")[1]
        self.name = f"torch {kind}, {self.device.type}"

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "cpu",
        weights: WeightFormat = "stored",
        compiled: bool = False,
    ) -> "TorchEngine":
        """The model of a directory; bundle.load says what may be wrong with it.

        OwnwordsError for a device that is not there.
        """
        _check_device(device)
        network = bundle.load(folder, device=device, dtype=_DTYPES.get(weights)).model
        check_weight_format(_weights(network), weights, folder)
        for name, parameter in network.named_parameters():
            if not parameter.isfinite().all():
                raise not_finite_error(name, folder)
        if weights in ROUNDED and _weights(network) != weights:
            quantize(network, *ROUNDED[weights])
        return cls(network, settled=True, compiled=compiled)

    def cache(self, rows: int, length: int) -> "TorchCache":
        return TorchCache(self, rows, length)


class TorchCache:
    """The contract's cache over one of `models/kv_cache.py`."""

    def __init__(self, engine: TorchEngine, rows: int, length: int) -> None:
        check_cache_size(rows, length, engine)
        self.rows = rows
        self.length = length
        self._engine = engine
        self._network = engine.network
        self._kept: KVCache | None = engine.network.new_cache(rows, length)
        self._steps: _Steps | None = None
        if engine.settled and (engine.device.type == "cuda" or engine.compiled):
            self._steps = _Steps(engine, self._kept)

    def held(self, row: int) -> int:
        check_row(row, self)
        return self._open().lengths[row]

    def read(self, feeds: Sequence[ForwardInput], *, every: bool = False) -> Logits:
        kept = self._open()
        check_feeds(feeds, self, self._engine)
        scores: list[Tensor] = [torch.empty(0)] * len(feeds)
        with _reading(self._network, settled=self._engine.settled):
            for group in _groups([len(feed.ids) for feed in feeds]):
                some = [feeds[number] for number in group]
                if self._steps is not None and self._steps.fits(some):
                    made = self._steps.read(some, every)
                else:
                    made = self._read(kept, some, every)
                for number, made_NV in zip(group, made, strict=True):
                    scores[number] = made_NV
            array: Logits = torch.cat(scores).float().cpu().numpy()
        return array

    def cut(self, row: int, length: int) -> None:
        check_cut(row, length, self)
        self._open().cut(row, length)

    def copy(self, source: int, row: int, length: int) -> None:
        check_copy(source, row, length, self)
        with torch.inference_mode():
            self._open().copy(source, row, length)

    def close(self) -> None:
        self._kept = self._steps = None

    def _open(self) -> KVCache:
        if self._kept is None:
            raise closed_cache_error()
        return self._kept

    def _read(self, kept: KVCache, feeds: Sequence[ForwardInput], every: bool) -> Sequence[Tensor]:
        """Scores after each id of each feed, or after its last, as the network itself reads."""
        hidden: list[list[Tensor]] = [[] for _ in feeds]
        for first in range(0, max(len(feed.ids) for feed in feeds), _PIECE):
            now = [number for number, feed in enumerate(feeds) if len(feed.ids) > first]
            pieces = [feeds[number].ids[first : first + _PIECE] for number in now]
            counts = [len(piece) for piece in pieces]
            ids_BT = torch.zeros(len(now), max(counts), dtype=torch.int64)
            for ids_T, piece in zip(ids_BT, pieces, strict=True):
                ids_T[: len(piece)] = torch.as_tensor(piece)
            made_BTC = self._network(
                ids_BT.to(self._engine.device),
                cache=KVCacheRows(kept, [feeds[number].row for number in now]),
                lengths_B=torch.tensor(counts),
            )
            for number, made_TC, count in zip(now, made_BTC, counts, strict=True):
                if every:
                    hidden[number].append(made_TC[:count])
                else:
                    hidden[number] = [made_TC[count - 1 : count]]
        parts = [torch.cat(made) for made in hidden]
        scores_NV = self._network.logits(torch.cat(parts)[None])[0]
        return torch.split(scores_NV, [len(part) for part in parts])


class _Steps:
    """Short reads of all rows at once in a few fixed shapes, each recorded when it first comes.

    A shape is how many tokens a row has and among how many slots they look around. Rows that have
    nothing to read take part all the same: in these shapes a device hardly notices.
    """

    def __init__(self, engine: TorchEngine, kept: KVCache) -> None:
        self._engine, self._kept = engine, kept
        self._records: dict[tuple[int, int], _Record] = {}
        self._forward: Callable[[Tensor, Tensor, int], Tensor] = self._plain
        if engine.compiled:
            self._forward = torch.compile(self._plain, dynamic=False)
        self._pool = torch.cuda.graph_pool_handle() if engine.device.type == "cuda" else None

    def fits(self, feeds: Sequence[ForwardInput]) -> bool:
        return all(len(feed.ids) <= _SHORT for feed in feeds)

    def read(self, feeds: Sequence[ForwardInput], every: bool) -> Sequence[Tensor]:
        kept = self._kept
        counts = [len(feed.ids) for feed in feeds]
        tokens, span = self._shape(max(counts), max(map(self._end, feeds)))
        ids_RT = np.zeros((kept.batch, tokens), np.int64)
        slots_RT = np.full_like(ids_RT, kept.length)
        for feed, count in zip(feeds, counts, strict=True):
            ids_RT[feed.row, :count] = feed.ids
            slots_RT[feed.row, :count] = range(kept.lengths[feed.row], self._end(feed))
        scores_RTV = self._record(tokens, span).play(ids_RT, slots_RT)
        for feed in feeds:
            kept.lengths[feed.row] = self._end(feed)
        return [
            scores_RTV[feed.row, 0 if every else count - 1 : count]
            for feed, count in zip(feeds, counts, strict=True)
        ]

    def _end(self, feed: ForwardInput) -> int:
        return self._kept.lengths[feed.row] + len(feed.ids)

    def _shape(self, tokens: int, span: int) -> tuple[int, int]:
        """The next larger shape: of few where each takes a compiler's time."""
        if self._engine.compiled:
            return 1 if tokens == 1 else _SHORT, self._kept.length
        return _power(tokens), min(max(_SPANS, _power(span)), self._kept.length)

    def _record(self, tokens: int, span: int) -> "_Record":
        if (tokens, span) not in self._records:
            record = _Record(self._forward, self._kept, tokens, span, self._pool)
            self._records[tokens, span] = record
        return self._records[tokens, span]

    def _plain(self, ids_RT: Tensor, slots_RT: Tensor, span: int) -> Tensor:
        network = self._engine.network
        return network.logits(network(ids_RT, cache=StaticKVCache(self._kept, slots_RT, span)))


class _Record:
    """One shape of short reads, as a CUDA graph where that can be had."""

    def __init__(
        self,
        forward: Callable[[Tensor, Tensor, int], Tensor],
        kept: KVCache,
        tokens: int,
        span: int,
        pool: object | None,
    ) -> None:
        shape = (kept.batch, tokens)
        self._forward, self._span = forward, span
        self._ids_RT = torch.zeros(shape, dtype=torch.int64, device=kept.device)
        # Nothing is read while recording: all goes to the slot that nobody looks at.
        self._slots_RT = torch.full_like(self._ids_RT, kept.length)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._scores_RTV: Tensor
        if pool is not None:
            self._begin(pool)

    def play(self, ids_RT: npt.NDArray[np.int64], slots_RT: npt.NDArray[np.int64]) -> Tensor:
        self._ids_RT.copy_(torch.from_numpy(ids_RT))
        self._slots_RT.copy_(torch.from_numpy(slots_RT))
        if self._graph is None:
            return self._forward(self._ids_RT, self._slots_RT, self._span)
        self._graph.replay()
        return self._scores_RTV

    def _begin(self, pool: object) -> None:
        device = self._ids_RT.device
        with torch.cuda.device(device):
            aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream(device))
            try:
                with torch.cuda.stream(aside):
                    for _ in range(2):  # what is set up at a first call must not be recorded
                        self._forward(self._ids_RT, self._slots_RT, self._span)
                torch.cuda.current_stream(device).wait_stream(aside)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):  # type: ignore[arg-type]
                    scores_RTV = self._forward(self._ids_RT, self._slots_RT, self._span)
            except RuntimeError:
                # Something in the network waits for the device, as a replaced layer may: then the
                # same steps are launched one by one.
                torch.cuda.synchronize(device)
                return
        self._graph, self._scores_RTV = graph, scores_RTV


def _groups(counts: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of the feeds to be padded to one length: together no more than twice as long."""
    group: list[int] = []
    for number in sorted(range(len(counts)), key=lambda number: -counts[number]):
        longest = counts[group[0]] if group else 0
        if group and longest > max(_SHORT, 2 * counts[number]):
            yield sorted(group)
            group = []
        group.append(number)
    yield sorted(group)


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # which one depends on how PyTorch was built
        why = str(error).split("\n")[0].split(". ")[0]  # a page may follow
        raise OwnwordsError(
            f"PyTorch cannot use the device {device!r} here: {why}",
            hint="`ownwords doctor` shows the devices there are",
        ) from error


def _power(count: int) -> int:
    """The power of two that is not less."""
    return 1 << (count - 1).bit_length()


def _plain(network: CausalLM) -> Tensor:
    """A weight of a norm, which is never quantised, as the embedding may be."""
    return next(network.final_norm.parameters())


def _weights(network: CausalLM) -> WeightFormat:
    schemes = {getattr(module, "scheme", None) for module in network.blocks.modules()}
    bits = {scheme.bits for scheme in schemes if isinstance(scheme, QuantizationScheme)}
    if bits:
        return "int4" if 4 in bits else "int8"
    kinds: dict[torch.dtype, WeightFormat] = {torch.float32: "f32", torch.bfloat16: "bf16"}
    return kinds.get(_plain(network).dtype, "stored")


@contextmanager
def _reading(network: CausalLM, settled: bool) -> Iterator[None]:
    """No gradients and no dropout for this call alone, as samples are written in training."""
    training = [] if settled else [module for module in network.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
