"""Weight-only quantisation: matrices as int8 codes, with one scale per row (output channel).

Scales are signed: codes range from -128 to 127, one step further below zero than above, so the sign
that maps the larger extreme to the negative side allows a smaller step. The half step of rounding
beyond the outermost codes is used too, so every number of a matrix satisfies

    |weight - code * scale| <= |scale| / 2        (up to float32 rounding)

PyTorch computes with the restored numbers; only the C++ engine computes with codes.

Suffixes of tensors: O outputs (rows), I inputs (columns).
"""

from typing import Final

import torch
from torch import Tensor, nn

from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import is_matrix

# Numbers converted to float32 at a time: 4 MiB, which fits a processor's cache.
_CHUNK: Final = 1 << 20


def quantize_matrix(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes [O, I] and scales [O, 1]; ModelError if the matrix has non-finite numbers."""
    parts = torch.split(weight_OI.detach(), _rows_at_once(weight_OI.shape[1]))
    codes, scales = zip(*map(_rounded, parts), strict=True)
    return torch.cat(codes), torch.cat(scales)


def _rounded(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    weight_OI = weight_OI.float()
    if not weight_OI.isfinite().all():
        raise ModelError("it holds numbers that are not finite")
    high_O1 = weight_OI.amax(-1, keepdim=True).clamp_min(0)
    low_O1 = weight_OI.amin(-1, keepdim=True).clamp_max(0).neg()
    plain_O1 = torch.maximum(low_O1 / 128.5, high_O1 / 127.5)
    mirrored_O1 = torch.maximum(high_O1 / 128.5, low_O1 / 127.5)
    # Avoid division by zero for rows of zeros.
    step_O1 = torch.minimum(plain_O1, mirrored_O1).clamp_min(torch.finfo(torch.float32).tiny)
    scale_O1 = torch.where(plain_O1 <= mirrored_O1, step_O1, -step_O1)
    codes_OI = (weight_OI / scale_O1).round_().clamp_(-128, 127)
    return codes_OI.to(torch.int8), scale_O1


def _rows_at_once(columns: int) -> int:
    return max(1, _CHUNK // columns)


def quantize(model: nn.Module) -> None:
    """Round a model's matrices in place to what codes and scales can represent.

    Norms, biases and learned positions stay. Raises ModelError for non-finite weights.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_matrix(name, parameter.shape):
                for rows_OI in torch.split(parameter, _rows_at_once(parameter.shape[1])):
                    codes_OI, scale_O1 = quantize_matrix(rows_OI)
                    rows_OI.copy_(codes_OI * scale_O1)


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
