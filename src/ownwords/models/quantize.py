"""Weight-only quantisation: matrices stored as small integers, with one scale per group.

`int8` has one scale per row (output channel), `int4` one per 32 numbers of a row. Scales
are signed: b-bit codes range from -2^(b-1) to 2^(b-1) - 1, one step further below zero than above,
so the sign that maps the larger extreme to the negative side allows a smaller step. The half step
of rounding beyond the outermost codes is used too, so every number of a matrix satisfies

    |weight - code * scale| <= |scale| / 2        (up to float32 rounding)

At equal bits per number this loses less than a step of max|w|/7, llama.cpp's q4_0, or a minimum or
zero point stored with the scale. Measured: docs/verification.md.

PyTorch computes with the restored numbers; only the C++ engine computes with codes.

Suffixes of tensors: O outputs (rows), I inputs (columns), G groups in a row, N numbers in a group,
P packed bytes in a row.
"""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from ownwords.models.quantization_scheme import (
    INT4,
    INT8,
    QuantizationScheme,
    scheme_of,
)
from ownwords.models.untrusted_files import ModelError

# Numbers converted to float32 at a time: 4 MiB, which fit a processor's cache.
_CHUNK: Final = 1 << 20


def pack(codes_OI: Tensor) -> Tensor:
    """Pack codes -8..7, plus 8, two per byte, even columns in the low half: [O, ceil(I / 2)]."""
    shifted_OI = functional.pad((codes_OI + 8).to(torch.uint8), (0, codes_OI.shape[1] % 2))
    return shifted_OI[:, 0::2] | (shifted_OI[:, 1::2] << 4)


def unpack(packed_OP: Tensor, columns: int) -> Tensor:
    """Invert `pack`: return the codes as int8, [O, columns]."""
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
    """Return the float32 matrix [O, I] of packed codes and scales."""
    codes_OI = packed if scheme.bits == 8 else unpack(packed, columns)
    rows, groups = scale_OG.shape
    group = scheme.group or columns
    codes_OI = functional.pad(codes_OI, (0, groups * group - columns))
    weight_OGN = codes_OI.view(rows, groups, group) * scale_OG.float()[..., None]
    return weight_OGN.view(rows, -1)[:, :columns]


def _rows_at_once(columns: int) -> int:
    return max(1, _CHUNK // columns)


def quantize(
    model: nn.Module, scheme: QuantizationScheme = INT4, ends: QuantizationScheme = INT8
) -> None:
    """Round a model's matrices in place to what codes and scales can represent.

    `ends` is the scheme of the embedding and the head. Norms, biases and learned positions stay.
    Raises ModelError for non-finite weights.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if chosen := scheme_of(name, parameter.dim(), scheme, ends):
                for rows_OI in torch.split(parameter, _rows_at_once(parameter.shape[1])):
                    codes_scales = quantize_matrix(rows_OI, chosen)
                    rows_OI.copy_(dequantize(*codes_scales, chosen, rows_OI.shape[1]))


def quantized_tensors(
    model: nn.Module,
    scheme: QuantizationScheme,
    ends: QuantizationScheme,
    dtype: torch.dtype | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors by name: `<module>.packed`, `<module>.scale`, and the unquantised ones.

    These are in `dtype`, or keep their type.
    """
    for name, parameter in model.named_parameters():
        if chosen := scheme_of(name, parameter.dim(), scheme, ends):
            owner = name.removesuffix(".weight")
            parts = zip(("packed", "scale"), quantize_matrix(parameter, chosen), strict=True)
            yield from ((f"{owner}.{part}", tensor) for part, tensor in parts)
        else:
            yield name, parameter.detach().to(dtype or parameter.dtype)
