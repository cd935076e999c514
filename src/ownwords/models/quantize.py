"""Weight-only quantisation: matrices stored as small integers, with one scale per group.

`int8` has one scale per row (output channel), `int4` one per 32, 64 or 128 numbers of a row. Scales
are signed: b-bit codes range from -2^(b-1) to 2^(b-1) - 1, one step further below zero than above,
so the sign that maps the larger extreme to the negative side allows a smaller step. The half step
of rounding beyond the outermost codes is used as well. So every number of a matrix satisfies

    |weight - code * scale| <= |scale| / 2        (up to float32 rounding)

At equal bits per number this loses less than a step of max|w|/7, than llama.cpp's q4_0, and than a
minimum or a zero point stored with the scale; docs/verification.md has the figures.

Suffixes of tensors: O outputs (rows), I inputs (columns), G groups in a row, N numbers in a group,
P packed bytes in a row, B and T batch and time.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ownwords.core.workspace import writing_atomically
from ownwords.models.layers import Embedding
from ownwords.models.quantization_scheme import (
    ENDS,
    INT4,
    INT8,
    QuantizationScheme,
    metadata_of,
    schemes,
)
from ownwords.models.safetensors import DTYPES
from ownwords.models.safetensors_header import encode_header, read_header, read_metadata
from ownwords.models.untrusted_files import ModelError, open_file, preview

_DTYPE_CODES: Final = {dtype: code for code, dtype in DTYPES.items()}
# Numbers converted to float32 at a time: 4 MiB, which fit a processor's cache.
_CHUNK: Final = 1 << 20


def pack(codes_OI: Tensor) -> Tensor:
    """Pack codes -8..7, plus 8, two per byte, even columns in the low half: [O, ceil(I / 2)]."""
    shifted_OI = functional.pad((codes_OI + 8).to(torch.uint8), (0, codes_OI.shape[1] % 2))
    return shifted_OI[:, 0::2] | (shifted_OI[:, 1::2] << 4)


def unpack(packed_OP: Tensor, columns: int) -> Tensor:
    """The inverse of `pack`: the codes as int8, [O, columns]."""
    halves_OP2 = torch.stack((packed_OP & 15, packed_OP >> 4), dim=-1)
    return halves_OP2.flatten(-2)[:, :columns].to(torch.int8) - 8


def quantize_matrix(weight_OI: Tensor, scheme: QuantizationScheme) -> tuple[Tensor, Tensor]:
    """Quantise a matrix to packed codes and scales; ModelError if it has non-finite numbers."""
    parts = torch.split(weight_OI.detach(), _rows_at_once(weight_OI.shape[1]))
    packed, scales = zip(*(_rounded(part_OI, scheme) for part_OI in parts), strict=True)
    return torch.cat(packed), torch.cat(scales)


def _rounded(weight_OI: Tensor, scheme: QuantizationScheme) -> tuple[Tensor, Tensor]:
    columns, groups = weight_OI.shape[1], scheme.groups(weight_OI.shape[1])
    weight_OI = weight_OI.float()
    if not weight_OI.isfinite().all():
        raise ModelError("it holds numbers that are not finite")
    group = scheme.group or columns
    padded_OI = functional.pad(weight_OI, (0, groups * group - columns))
    weight_OGN = padded_OI.view(-1, groups, group)
    half = 1 << (scheme.bits - 1)
    high_OG = weight_OGN.amax(-1).clamp_min(0)
    low_OG = weight_OGN.amin(-1).clamp_max(0).neg()
    plain_OG = torch.maximum(low_OG / (half + 0.5), high_OG / (half - 0.5))
    mirrored_OG = torch.maximum(high_OG / (half + 0.5), low_OG / (half - 0.5))
    step_OG = torch.minimum(plain_OG, mirrored_OG)
    # Avoid division by zero for groups of zeros.
    step_OG = step_OG.clamp_min(torch.finfo(torch.float32).tiny)
    if scheme.bits == 4:
        step_OG = _raised_to_bfloat16(step_OG)
    scale_OG = torch.where(plain_OG <= mirrored_OG, step_OG, -step_OG)
    codes_OGN = (weight_OGN / scale_OG[..., None]).round_().clamp_(-half, half - 1)
    codes_OI = codes_OGN.flatten(1)[:, :columns].to(torch.int8)
    if scheme.bits == 4:
        return pack(codes_OI), scale_OG.to(torch.bfloat16)
    return codes_OI.contiguous(), scale_OG


def _raised_to_bfloat16(step: Tensor) -> Tensor:
    """Round up to bfloat16: a smaller step would not reach the extremes."""
    return ((step.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)


def dequantize(
    packed: Tensor, scale_OG: Tensor, scheme: QuantizationScheme, columns: int
) -> Tensor:
    """The float32 matrix [O, I] of packed codes and scales."""
    codes_OI = packed if scheme.bits == 8 else unpack(packed, columns)
    rows, groups = scale_OG.shape
    group = scheme.group or columns
    codes_OI = functional.pad(codes_OI, (0, groups * group - columns))
    weight_OGN = codes_OI.view(rows, groups, group) * scale_OG.float()[..., None]
    return weight_OGN.view(rows, -1)[:, :columns]


def _rows_at_once(columns: int) -> int:
    return max(1, _CHUNK // columns)


class QuantizedMatrix(nn.Module):
    """A matrix stored as packed codes and scales; on the device "meta" until it is filled."""

    packed: Tensor
    scale: Tensor

    def __init__(self, rows: int, columns: int, scheme: QuantizationScheme) -> None:
        super().__init__()
        self.rows, self.columns, self.scheme = rows, columns, scheme
        for name, (kind, shape) in zip(
            ("packed", "scale"), scheme.stored(rows, columns), strict=True
        ):
            self.register_buffer(name, torch.empty(shape, dtype=DTYPES[kind], device="meta"))

    def fill(self, weight_OI: Tensor) -> None:
        self.packed, self.scale = quantize_matrix(weight_OI, self.scheme)

    @property
    def weight(self) -> Tensor:
        """The whole dequantised float32 matrix, computed at every access."""
        return dequantize(self.packed, self.scale, self.scheme, self.columns)

    def product(self, x: Tensor) -> Tensor:
        """Multiply x by the transposed matrix, dequantising a block of rows at a time."""
        count = _rows_at_once(self.columns)
        again = torch.is_grad_enabled() and x.requires_grad
        parts = []
        for first in range(0, self.rows, count):
            rows = self.packed[first : first + count], self.scale[first : first + count]
            # The backward pass dequantises the rows again instead of keeping them all in memory.
            parts.append(
                checkpoint(self._rows, x, *rows, use_reentrant=False, preserve_rng_state=False)
                if again
                else self._rows(x, *rows)
            )
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _rows(self, x: Tensor, packed: Tensor, scale_OG: Tensor) -> Tensor:
        weight_OI = dequantize(packed, scale_OG, self.scheme, self.columns)
        return functional.linear(x, weight_OI.to(x.dtype))

    def extra_repr(self) -> str:
        return f"{self.columns} -> {self.rows}, {self.scheme.name}, group={self.scheme.group}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to a device like any module; a change of dtype does not affect codes and scales."""
        scale = self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.scale = scale.to(self.packed.device)
        return self


class QuantizedLinear(QuantizedMatrix):
    """A linear layer (`nn.Linear`) with a quantised matrix."""

    bias: nn.Parameter | None

    def __init__(
        self, rows: int, columns: int, scheme: QuantizationScheme, bias: nn.Parameter | None
    ) -> None:
        super().__init__(rows, columns, scheme)
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        y = self.product(x)
        return y if self.bias is None else y + self.bias.to(y.dtype)


class QuantizedEmbedding(QuantizedMatrix):
    """A token embedding with a quantised matrix; its vectors have the type `dtype`."""

    def __init__(
        self, rows: int, columns: int, scheme: QuantizationScheme, dtype: torch.dtype
    ) -> None:
        super().__init__(rows, columns, scheme)
        self.dtype = dtype

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.dtype = fn(torch.empty(0, dtype=self.dtype, device=self.packed.device)).dtype
        return super()._apply(fn, recurse)

    def forward(self, ids_BT: Tensor) -> Tensor:
        ids = ids_BT.reshape(-1)
        rows_NC = dequantize(self.packed[ids], self.scale[ids], self.scheme, self.columns)
        return rows_NC.to(self.dtype).view(*ids_BT.shape, self.columns)

    def as_head(self, hidden_BTC: Tensor) -> Tensor:
        return self.product(hidden_BTC)


def quantize(
    model: nn.Module, scheme: QuantizationScheme = INT4, ends: QuantizationScheme = INT8
) -> None:
    """Quantise a model in place; `ends` is the scheme of the embedding and the head.

    Norms, biases and learned positions are not quantised. Raises ModelError, and leaves the model
    unchanged, if it is already quantised or has non-finite weights.
    """
    if _quantized(model):
        raise ModelError("the model is quantised already", hint="quantise the original instead")
    plain = dict(_matrices(model))
    for name, module in plain.items():
        if not module.weight.isfinite().all():
            raise ModelError(f"{name}.weight holds numbers that are not finite")
    _replace(model, scheme, ends)
    for name, module in plain.items():
        model.get_submodule(name).fill(module.weight)  # type: ignore[operator]


def dequantize_model(model: nn.Module) -> None:
    """Turn a quantised model in place into a plain one of the same values, to train or export."""
    dtype = next(model.parameters()).dtype  # of the norms, which are never quantised
    for name, module in _quantized(model).items():
        plain: nn.Linear | nn.Embedding
        if isinstance(module, QuantizedLinear):
            plain = nn.Linear(module.columns, module.rows, bias=False, device="meta")
            plain.register_parameter("bias", module.bias)
        else:
            plain = Embedding(module.rows, module.columns, device="meta")
        plain.weight = nn.Parameter(module.weight.to(dtype))
        model.set_submodule(name, plain.train(module.training))


def quantized_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors by name: `<module>.packed`, `<module>.scale`, and the unquantised ones."""
    yield from model.state_dict().items()


def metadata(model: nn.Module) -> dict[str, str]:
    """The quantisation fields for a safetensors header; empty for a plain model."""
    found = _quantized(model)
    if not found:
        return {}
    any_of = next(iter(found.values())).scheme
    found_in = {name in ENDS: module.scheme for name, module in found.items()}
    body, ends = found_in.get(False, any_of), found_in.get(True, any_of)
    return metadata_of(body, ends)


def load_quantized(
    model: nn.Module, tensors: Iterable[tuple[str, Tensor]], header: Mapping[str, str]
) -> None:
    """Turn a plain model (also on "meta") into a quantised one from a stream of tensors.

    `header` is the `__metadata__` of the file; `tensors` come from `quantized_tensors`, in any
    order, each on its target device. ModelError if names, shapes or types do not match.
    """
    _replace(model, *schemes(header))
    wanted = dict(quantized_tensors(model))
    for name, tensor in tensors:
        if name not in wanted:
            raise ModelError(f"the file holds {preview([name])}, which the quantised model lacks")
        _check(name, tensor, wanted.pop(name))
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        old = module._parameters.get(leaf)
        if old is not None:
            weight = nn.Parameter(tensor.to(old.dtype), requires_grad=old.requires_grad)
        setattr(module, leaf, tensor if old is None else weight)
    if wanted:
        raise ModelError(f"the file lacks {preview(set(wanted))}", hint="is it whole?")


def _matrices(model: nn.Module) -> Iterator[tuple[str, nn.Linear | nn.Embedding]]:
    """Yield the modules that quantisation replaces: all linear layers and the token embedding."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Embedding) and name in ENDS):
            yield name, module


def _quantized(model: nn.Module) -> dict[str, QuantizedMatrix]:
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, QuantizedMatrix)
    }


def _replace(model: nn.Module, scheme: QuantizationScheme, ends: QuantizationScheme) -> None:
    for name, module in list(_matrices(model)):
        chosen = ends if name in ENDS else scheme
        rows, columns = module.weight.shape
        new: QuantizedMatrix
        if isinstance(module, nn.Linear):
            new = QuantizedLinear(rows, columns, chosen, module.bias)
        else:
            new = QuantizedEmbedding(rows, columns, chosen, module.weight.dtype)
        model.set_submodule(name, new.train(module.training))


def _check(name: str, tensor: Tensor, wanted: Tensor) -> None:
    is_weight = wanted.is_floating_point() and not name.endswith((".packed", ".scale"))
    fits = tensor.is_floating_point() if is_weight else tensor.dtype == wanted.dtype
    if tensor.shape != wanted.shape or not fits:
        raise ModelError(
            f"{name!r} is {_kind(tensor)}, and the model asks for {_kind(wanted)}",
            hint="is config.json the one that came with these weights?",
        )
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise ModelError(f"{name!r} holds numbers that are not finite")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def write_quantized(path: Path, model: nn.Module) -> None:
    """Write a quantised model atomically as one safetensors file, with our tensor names."""
    header_fields = metadata(model)
    if not header_fields:
        raise ModelError("the model is not quantised", hint="save it like any other model")
    tensors = quantized_tensors(model)
    header = encode_header(
        ((name, _DTYPE_CODES[t.dtype], tuple(t.shape)) for name, t in tensors), header_fields
    )
    with writing_atomically(path) as file:
        file.write(header)
        for _, tensor in quantized_tensors(model):
            file.write(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def read_quantized(path: Path, model: nn.Module, device: torch.device | str = "cpu") -> None:
    """Load a file of `write_quantized` into a plain model (best on "meta").

    After a ModelError the model is only partly filled.
    """
    stored, header = read_header(path), read_metadata(path)
    with open_file(path) as file:

        def tensors() -> Iterator[tuple[str, Tensor]]:
            wanted = dict(quantized_tensors(model))
            for info in stored.values():
                kind = DTYPES.get(info.dtype)
                if kind is None:
                    raise ModelError(f"{info.name!r} is {info.dtype}, which no quantised model has")
                if info.name not in wanted or wanted[info.name].shape != info.shape:
                    # On "meta", so `load_quantized` refuses it before it takes any memory.
                    yield info.name, torch.empty(info.shape, dtype=kind, device="meta")
                file.seek(info.start)
                data = bytearray(file.read(info.nbytes))
                if len(data) != math.prod(info.shape) * kind.itemsize:
                    raise ModelError(f"it ended within {info.name!r} while it was read")
                # `frombuffer` does not accept an empty buffer.
                flat = torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)
                yield info.name, flat.view(info.shape).to(device)

        try:
            load_quantized(model, tensors(), header)
        except ModelError as error:
            raise ModelError(f"{path}: {error.message}", hint=error.hint) from error
