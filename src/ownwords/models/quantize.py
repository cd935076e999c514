"""Weight-only quantisation: matrices as small integers, with one scale per group.

`int8` has one scale per row (output channel), `int4` one per 32 numbers of a row. Scales
are signed: b-bit codes range from -2^(b-1) to 2^(b-1) - 1, one step further below zero than above,
so the sign that maps the larger extreme to the negative side allows a smaller step. The half step
of rounding beyond the outermost codes is used too, so every number of a matrix satisfies

    |weight - code * scale| <= |scale| / 2        (up to float32 rounding)

At equal bits per number this loses less than a step of max|w|/7, llama.cpp's q4_0, or a minimum or
zero point stored with the scale. Measured: docs/verification.md.

PyTorch computes with the restored numbers; only the C++ engine computes with codes. Only int8 is
stored; weights are rounded to int4 when a model is loaded.

Suffixes of tensors: O outputs (rows), I inputs (columns), G groups in a row, N numbers in a group.
"""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import is_matrix

_GROUP: Final = 32  # numbers that share a scale in int4
# Numbers converted to float32 at a time: 4 MiB, which fits a processor's cache.
_CHUNK: Final = 1 << 20


def quantize_matrix(weight_OI: Tensor, bits: int = 8) -> tuple[Tensor, Tensor]:
    """Return codes [O, I] and scales [O, G]; ModelError if the matrix has non-finite numbers."""
    parts = torch.split(weight_OI.detach(), _rows_at_once(weight_OI.shape[1]))
    codes, scales = zip(*(_rounded(part_OI, bits) for part_OI in parts), strict=True)
    return torch.cat(codes), torch.cat(scales)


def _rounded(weight_OI: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    weight_OI = weight_OI.float()
    if not weight_OI.isfinite().all():
        raise ModelError("it holds numbers that are not finite")
    columns = weight_OI.shape[1]
    group = columns if bits == 8 else _GROUP
    padded_OI = functional.pad(weight_OI, (0, -columns % group))
    weight_OGN = padded_OI.view(len(padded_OI), -1, group)
    half = 1 << (bits - 1)
    high_OG = weight_OGN.amax(-1).clamp_min(0)
    low_OG = weight_OGN.amin(-1).clamp_max(0).neg()
    plain_OG = torch.maximum(low_OG / (half + 0.5), high_OG / (half - 0.5))
    mirrored_OG = torch.maximum(high_OG / (half + 0.5), low_OG / (half - 0.5))
    step_OG = torch.minimum(plain_OG, mirrored_OG)
    # Avoid division by zero for groups of zeros.
    step_OG = step_OG.clamp_min(torch.finfo(torch.float32).tiny)
    if bits == 4:
        step_OG = _raised_to_bfloat16(step_OG)
    scale_OG = torch.where(plain_OG <= mirrored_OG, step_OG, -step_OG)
    codes_OGN = (weight_OGN / scale_OG[..., None]).round_().clamp_(-half, half - 1)
    return codes_OGN.flatten(1)[:, :columns].to(torch.int8).contiguous(), scale_OG


def _raised_to_bfloat16(step: Tensor) -> Tensor:
    """Round up to bfloat16, the engine's type: a smaller step would not reach the extremes."""
    return ((step.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)


def dequantize(codes_OI: Tensor, scale_OG: Tensor) -> Tensor:
    """Return the float32 matrix [O, I] of codes and scales."""
    if scale_OG.shape[1] > 1:
        scale_OG = scale_OG.repeat_interleave(_GROUP, 1)[:, : codes_OI.shape[1]]
    return codes_OI * scale_OG


def _rows_at_once(columns: int) -> int:
    return max(1, _CHUNK // columns)


def quantize(model: nn.Module, bits: int) -> None:
    """Round a model's matrices in place to what codes and scales can represent.

    Norms, biases and learned positions stay. Raises ModelError for non-finite weights.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_matrix(name, parameter.shape):
                for rows_OI in torch.split(parameter, _rows_at_once(parameter.shape[1])):
                    rows_OI.copy_(dequantize(*quantize_matrix(rows_OI, bits)))


def int8_tensors(model: nn.Module, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Return all tensors as stored: `<module>.packed`, `<module>.scale`, and the unquantised ones.

    The unquantised ones are in `dtype`, or keep their type.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if is_matrix(name, parameter.shape):
            owner = name.removesuffix(".weight")
            tensors[f"{owner}.packed"], tensors[f"{owner}.scale"] = quantize_matrix(parameter)
        else:
            tensors[name] = parameter.detach().to(dtype or parameter.dtype)
    return tensors
