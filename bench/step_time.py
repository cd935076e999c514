"""Where the time of a training step goes: real batches, the real optimizer, PyTorch's profiler.

    python bench/step_time.py [MODEL] [--parameters N] [--context T] [--rows B] [--precision P]

Every operation is counted once, under the kind of the nearest thing around it that has one: a
product within the loss is loss. What the backward pass does for an operation counts under that
operation's kind. On a GPU the time is that of the device's kernels.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from ownwords.core.hardware import Speed, torch_product
from ownwords.models import bundle
from ownwords.models.configs.llama import config_for_budget
from ownwords.models.decoder import CausalLM, build
from ownwords.training.batches import Batch, Batches, prefetched
from ownwords.training.device import Device, choose
from ownwords.training.metrics import LossModule
from ownwords.training.optim import Optimizer
from ownwords.training.settings import DataConfig, OptimConfig, Precision
from ownwords.training.step_time import flops_per_token
from ownwords.training.token_dataset import TokenDataset

Phase = Literal["data", "forward", "backward", "optimizer"]

PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")
_LABEL = "ownwords/"
HOST = "host"  # Python and dispatch, while nothing is computed

# Kinds by the names of operations; the first kind found wins over those further down.
_OPERATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("whole blocks", ("_Whole",)),
    ("loss", ("ChunkedCrossEntropy", "cross_entropy", "log_softmax")),
    ("attention", ("scaled_dot_product", "flash_attention", "efficient_attention", "_Attention")),
    ("norms", ("layer_norm", "LayerNorm", "rms_norm", "RMSNorm", "_Norm")),
    ("heads and positions", ("_Heads",)),
    (
        "matrix products",
        ("aten::mm", "aten::bmm", "addmm", "baddbmm", "linear_pointwise", "aten::linear", "matmul"),
    ),
    ("activation", ("_Gate", "gelu", "silu")),
    ("embedding", ("embedding", "index_select")),
)
_KINDS = tuple(kind for kind, _ in _OPERATIONS)
REST = "elementwise and the rest"


@dataclass(frozen=True)
class Share:
    """A part of a step: its phase, its kind, and its time."""

    phase: Phase
    kind: str
    seconds: float
    share: float  # of the step


@dataclass(frozen=True)
class StepTime:
    """A step, broken down. The parts add up to `seconds`, the median without the profiler."""

    device: str
    precision: str
    parameters: int
    vocabulary: int
    context: int
    rows: int
    seconds: float
    tokens_per_s: float
    flops_per_token: float
    limit: Speed  # of matrix products in this precision, measured beside
    share_of_limit: float
    # On a CPU: of the step, what Python and the dispatch between operations take. On another
    # device: the time in which it has nothing to do because the host has not yet asked it to.
    host_share: float
    parts: tuple[Share, ...]  # by phase, the largest of each first


def subject(
    device: Device,
    precision: Precision,
    folder: Path | None,
    parameters: int,
    vocabulary: int,
    context: int,
) -> CausalLM:
    """The model to measure: that of a directory, or a new one of about that size."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if folder is not None:
        return bundle.load(folder, device=str(device.torch_device), dtype=dtype).model
    shape = config_for_budget(parameters, vocabulary, context)
    model = build(shape, device=device.torch_device, dtype=dtype)
    model.init_weights(1)
    return model


def measure(
    model: CausalLM,
    device: Device,
    *,
    rows: int,
    context: int,
    precision: Precision,
    optim: OptimConfig,
    dropout: float = 0.0,
    for_s: float = 3.0,
) -> StepTime:
    """Train the model for a few seconds on random ids, and say where the time goes.

    The model is changed. OwnwordsError where a batch does not fit its context.
    """
    optimizer = Optimizer(model, optim, master_weights=precision == "bf16")
    model.train()
    model.dropout = dropout
    dataset = _random_dataset(model.config.vocabulary, rows * context)
    batches = Batches(dataset, rows=rows, context=context, seed=1, config=DataConfig())
    pinned = device.torch_device.type == "cuda"
    with closing(prefetched(batches, 0, 10**9, pinned=pinned)) as stream:
        steps = _Steps(model, optimizer, stream, device, precision)
        for _ in range(3):  # memory is found, kernels are chosen, the stream fills
            steps.run()
        seconds = _timed(steps, device, for_s)
        count = max(1, min(10, round(for_s / 3 / seconds)))
        profile = _profiled(model, steps, device, count)
    limit = torch_product(torch, device.kind, "float32" if precision == "float32" else "bfloat16")
    parts, host = _parts(profile, seconds)
    flops_each = flops_per_token(model.config, context)
    speed = rows * context / seconds
    return StepTime(
        device=f"{device.kind}: {device.name}",
        precision=precision,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        vocabulary=model.config.vocabulary,
        context=context,
        rows=rows,
        seconds=seconds,
        tokens_per_s=speed,
        flops_per_token=flops_each,
        limit=limit,
        share_of_limit=speed * flops_each / (limit.value * 1e9),
        host_share=host,
        parts=parts,
    )


class _Steps:
    """A training step, phase by phase."""

    def __init__(
        self,
        model: CausalLM,
        optimizer: Optimizer,
        stream: Iterator[tuple[int, Batch]],
        device: Device,
        precision: Precision,
    ) -> None:
        self._loss, self._optimizer, self._stream = LossModule(model), optimizer, stream
        self._device, self._precision = device, precision

    def run(self) -> None:
        with record_function(_LABEL + "data"):
            step, batch = next(self._stream)
            batch = batch.to(self._device.torch_device)
        with record_function(_LABEL + "forward"), self._device.autocast(self._precision):
            loss = self._loss(batch)
        with record_function(_LABEL + "backward"):
            torch.autograd.backward(loss / batch.tokens)
        with record_function(_LABEL + "optimizer"):
            self._optimizer.step(1.0, step)
            self._optimizer.zero_grad()


def _timed(steps: _Steps, device: Device, for_s: float) -> float:
    """Median seconds of a step; on a GPU several at once, to avoid synchronisation."""
    times: list[float] = []
    together = 1
    device.synchronize()
    while not times or (sum(times) * together < for_s and len(times) < 200) or len(times) < 3:
        began = time.perf_counter()
        for _ in range(together):
            steps.run()
        device.synchronize()
        times.append((time.perf_counter() - began) / together)
        if device.is_asynchronous and together == 1:
            together, times = 8, []
    return statistics.median(times)


@dataclass
class Profile:
    """Microseconds by phase and kind; `wall` is the time of the steps themselves."""

    by_kind: dict[tuple[Phase, str], float]
    wall: float
    busy: float  # of the device, or on a CPU of operations
    on_device: bool


def _profiled(model: CausalLM, steps: _Steps, device: Device, count: int) -> Profile:
    on_device = device.kind in ("cuda", "rocm", "xpu")
    activities = [ProfilerActivity.CPU]
    if on_device:
        activities.append(ProfilerActivity.XPU if device.kind == "xpu" else ProfilerActivity.CUDA)
    profiler: Any = profile(activities=activities, acc_events=True)  # parts of it have no types
    with _labelled(model):
        with _without_its_own_log():
            profiler.start()
        try:
            began = time.perf_counter()
            for _ in range(count):
                steps.run()
            device.synchronize()
            wall = (time.perf_counter() - began) * 1e6
        finally:
            with _without_its_own_log():
                profiler.stop()
    events: Sequence[Any] = profiler.events() or ()
    return _classify([event for event in events if not event.is_async], wall, on_device)


@contextmanager
def _without_its_own_log() -> Iterator[None]:
    """The profiler's library writes to the terminal that it starts and stops: that is left out.

    It writes past Python; whatever else is written meanwhile is passed on afterwards.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with tempfile.TemporaryFile() as output:
            os.dup2(output.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(terminal, 2)
                output.seek(0)
                for line in output:
                    if not line.startswith(b"USDT:"):
                        os.write(2, line)
    finally:
        os.close(terminal)


def _classify(events: Sequence[Any], wall: float, on_device: bool) -> Profile:
    forward = _forward_kinds(events)
    by_kind: dict[tuple[Phase, str], float] = {}
    busy = 0.0
    for event in events:
        if str(event.device_type).rpartition(".")[2] != "CPU":
            continue
        phase, kind = _phase_and_module(event, forward)
        if phase is None:
            continue
        own = event.self_device_time_total if on_device else event.self_cpu_time_total
        is_label = event.name == _LABEL + phase
        if is_label and not on_device:
            kind = HOST
        else:
            busy += own
        if own > 0:
            by_kind[phase, kind] = by_kind.get((phase, kind), 0.0) + own
    return Profile(by_kind, wall, busy, on_device)


def _forward_kinds(events: Sequence[Any]) -> Mapping[int, str]:
    """The forward kind of each autograd sequence number."""
    kinds: dict[int, str] = {}
    for event in events:
        if event.sequence_nr >= 0 and not _is_backward(event):
            kind = _kind(event)
            # Of several operations with one number the outermost comes first and is the vaguest.
            if kind != REST or event.sequence_nr not in kinds:
                kinds.setdefault(event.sequence_nr, kind)
    return kinds


def _phase_and_module(event: Any, forward: Mapping[int, str]) -> tuple[Phase | None, str]:  # noqa: ANN401
    """The phase and the kind of an event of the profiler."""
    kind, phase = _kind(event), None
    for parent in _around(event):
        if _is_backward(parent):
            phase = "backward"
            kind = forward.get(parent.sequence_nr, REST) if kind == REST else kind
        elif parent.name.startswith(_LABEL) and parent.name.removeprefix(_LABEL) in PHASES:
            phase = phase or parent.name.removeprefix(_LABEL)
    if phase in {"data", "optimizer"} and kind != "matrix products":
        kind = REST if phase == "optimizer" else "waiting and copying"
    return phase, kind  # type: ignore[return-value]


def _kind(event: Any) -> str:  # noqa: ANN401 - the profiler's events have no public type
    """The highest kind among an event and all that is around it."""
    best = len(_KINDS)
    for parent in _around(event):
        if parent.name.startswith(_LABEL):
            name = parent.name.removeprefix(_LABEL)
            if name in _KINDS:
                best = min(best, _KINDS.index(name))
            continue
        for rank, (_, words) in enumerate(_OPERATIONS[:best]):
            if any(word in parent.name for word in words):
                best = rank
                break
    return _KINDS[best] if best < len(_KINDS) else REST


def _around(event: Any) -> Iterator[Any]:  # noqa: ANN401
    while event is not None:
        yield event
        event = event.cpu_parent


def _is_backward(event: Any) -> bool:  # noqa: ANN401
    return bool(event.name.startswith("autograd::engine::evaluate_function"))


@contextmanager
def _labelled(model: nn.Module) -> Iterator[None]:
    """Label norms by their modules: their operations are used elsewhere as well."""
    with ExitStack() as stack:
        for module in model.modules():
            if "Norm" in type(module).__name__:
                open_: list[record_function] = []

                def enter(*_: object, marks: list[record_function] = open_) -> None:
                    marks.append(record_function(_LABEL + "norms"))
                    marks[-1].__enter__()  # type: ignore[no-untyped-call]

                def leave(*_: object, marks: list[record_function] = open_) -> None:
                    marks.pop().__exit__(None, None, None)

                stack.callback(module.register_forward_pre_hook(enter).remove)
                stack.callback(module.register_forward_hook(leave).remove)
        yield


def _parts(profile: Profile, seconds: float) -> tuple[tuple[Share, ...], float]:
    """The parts of a step, scaled to what it takes without the profiler; and the host's share."""
    total = sum(profile.by_kind.values()) or 1.0
    host = sum(us for (_, kind), us in profile.by_kind.items() if kind == HOST) / total
    scale = seconds
    if profile.on_device:
        host = max(0.0, 1 - profile.busy / profile.wall) if profile.wall else 0.0
        scale = seconds * (1 - host)
    parts = [
        Share(phase, kind, us / total * scale, us / total * scale / seconds)
        for (phase, kind), us in profile.by_kind.items()
    ]
    parts.sort(key=lambda part: (PHASES.index(part.phase), -part.seconds))
    return tuple(parts), host


def _random_dataset(vocabulary: int, batch_tokens: int) -> TokenDataset:
    """Random ids in documents of about 700 tokens, as posts are; enough for some batches."""
    random = np.random.default_rng(1)
    tokens = min(max(4 * batch_tokens, 10_000), 5_000_000)
    lengths = random.integers(200, 1200, size=tokens // 700 + 1)
    offsets_D1 = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    ids = random.integers(0, vocabulary, size=int(offsets_D1[-1])).astype(np.uint32)
    return TokenDataset(
        key="random",
        tokenizer="none",
        vocabulary=vocabulary,
        ids=ids,
        offsets_D1=offsets_D1,
        text_bytes=len(ids),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("model", type=Path, nargs="?", help="a directory, or a new random model")
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--context", type=int, default=256, help="tokens of a row")
    parser.add_argument("--rows", type=int, default=16, help="rows of a batch")
    parser.add_argument("--precision", choices=get_args(Precision), default="float32")
    parser.add_argument("--device", help="cpu, cuda, rocm, mps, xpu; the best if not given")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    device = choose(args.device)
    step = measure(
        subject(
            device,
            args.precision,
            args.model,
            args.parameters,
            args.vocabulary,
            args.context,
        ),
        device,
        rows=args.rows,
        context=args.context,
        precision=args.precision,
        optim=OptimConfig(),
        for_s=args.seconds,
    )
    print(json.dumps(asdict(step), indent=1) if args.json else format_report(step))
    return 0


def format_report(step: StepTime) -> str:
    """A bar for each part, as long as its share of the step."""
    lines = [
        f"{step.parameters:,} parameters, {step.vocabulary:,} tokens, {step.precision},"
        f" {step.rows} rows of {step.context:,} tokens, {step.device}",
        f"{step.seconds * 1e3:,.1f} ms a step, {step.tokens_per_s:,.0f} tokens/s,"
        f" {step.share_of_limit:.0%} of {step.limit.value:,.0f} GFLOP/s of matrix products",
        f"host: {step.host_share:.1%}",
    ]
    longest = max((part.share for part in step.parts), default=1.0)
    for phase in dict.fromkeys(part.phase for part in step.parts):
        parts = [part for part in step.parts if part.phase == phase]
        lines.append(f"{phase} {sum(part.share for part in parts):.1%}")
        lines += [
            f"  {part.kind:24} {'█' * round(40 * part.share / longest):40}"
            f" {part.seconds * 1e3:10,.1f} ms {part.share:6.1%}"
            for part in parts
            if part.share >= 0.0005
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from bench.machine import measuring

    with measuring():
        sys.exit(main())
