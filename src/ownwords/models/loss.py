"""Cross entropy straight from hidden states, a few rows of logits at a time.

With 262,000 tokens in the vocabulary the logits of one batch outweigh the model. Here they exist
for one chunk of rows only: the gradient is taken in the forward pass, chunk by chunk, and the
backward pass merely scales it.

Shapes: N tokens, C width, V vocabulary.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ownwords.models import fused

IGNORED = -100
# A chunk's logits fit the processor's cache where they can (16 MB in float32); but with fewer rows
# than this, adding up the head's gradient once a chunk costs more than the chunk. A single chunk
# needs no sum in float32: as long as its logits take less memory than that, it is the better.
CHUNK_LOGITS = 2**22
LEAST_ROWS = 256
LARGEST_ROWS = 2048


def chunked_cross_entropy(
    hidden_NC: Tensor,
    head_VC: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None = None,
    *,
    softcap: float | None = None,
    z_weight: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The summed loss in nats and how many tokens it is the sum over.

    Targets of -100 count for nothing. With weights, the loss is the weighted sum and the count the
    sum of the weights, so that their ratio stays the mean. `softcap` bounds the logits as
    softcap * tanh(logits / softcap); `z_weight` adds that much of log(sum(exp(logits)))**2.
    """
    counted_N = targets_N != IGNORED
    precise = torch.promote_types(hidden_NC.dtype, torch.float32)
    if weights_N is None:
        weights_N, count = counted_N.to(precise), counted_N.sum()
    else:
        weights_N = weights_N.to(precise) * counted_N
        count = weights_N.sum()
    device = hidden_NC.device.type
    mixed = torch.is_autocast_enabled(device)
    compute = torch.get_autocast_dtype(device) if mixed else hidden_NC.dtype
    wanted = torch.is_grad_enabled() and (hidden_NC.requires_grad, head_VC.requires_grad)
    with torch.autocast(device, enabled=False):
        loss: Tensor = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden_NC,
            head_VC,
            targets_N.clamp(min=0),
            weights_N,
            softcap,
            z_weight,
            compute,
            wanted or (False, False),
        )
    return loss, count


def _gather(
    part: slice,
    slope: Tensor,
    hidden: Tensor,
    head: Tensor,
    grad_hidden_NC: Tensor | None,
    grad_head_VC: Tensor | None,
) -> None:
    """Write what a chunk's slopes mean for the hidden states, and add what for the head."""
    if grad_hidden_NC is not None:
        grad_hidden_NC[part] = slope @ head
    if grad_head_VC is None:
        return
    if part.start == 0 and slope.dtype == grad_head_VC.dtype:
        torch.mm(slope.T, hidden, out=grad_head_VC)
    elif part.start == 0:
        grad_head_VC.copy_(slope.T @ hidden)
    elif slope.dtype == grad_head_VC.dtype:
        grad_head_VC.addmm_(slope.T, hidden)
    else:
        grad_head_VC += slope.T @ hidden


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's own context has no public type
        hidden_NC: Tensor,
        head_VC: Tensor,
        targets_N: Tensor,
        weights_N: Tensor,
        softcap: float | None,
        z_weight: float,
        compute: torch.dtype,
        wanted: tuple[bool, bool],
    ) -> Tensor:
        precise = weights_N.dtype
        head = head_VC.to(compute)
        loss = torch.zeros((), dtype=precise, device=hidden_NC.device)
        tokens, width = hidden_NC.shape
        # No fewer than the width: adding up the head's gradient then costs less than making it.
        as_large = width * precise.itemsize // compute.itemsize
        rows = max(LEAST_ROWS, CHUNK_LOGITS // head.shape[0], min(as_large, LARGEST_ROWS))
        rows = max(1, math.ceil(tokens / max(1, math.ceil(tokens / rows))))
        grad_hidden_NC = torch.empty_like(hidden_NC) if wanted[0] else None
        grad_head_VC = None
        if wanted[1]:
            # A sum over many chunks is gathered in float32 at least.
            grad_head_VC = torch.empty_like(head_VC, dtype=precise if rows < tokens else compute)
            if tokens == 0:
                grad_head_VC.zero_()
        for start in range(0, tokens, rows):
            part = slice(start, start + rows)
            hidden, weights = hidden_NC[part].to(compute), weights_N[part]
            logits = hidden @ head.T
            if softcap is None and fused.is_supported(logits, weights):
                sums = (logits, targets_N[part].contiguous(), weights, z_weight, any(wanted))
                loss += fused.cross_entropy_(*sums)
                if any(wanted):
                    _gather(part, logits, hidden, head, grad_hidden_NC, grad_head_VC)
                continue
            logits = logits.to(precise)
            if softcap is not None:
                logits = logits.div_(softcap).tanh_().mul_(softcap)
            total = logits.logsumexp(-1)
            target = targets_N[part, None]
            each = total - logits.gather(-1, target)[:, 0] + z_weight * total.square()
            loss += (weights * each).sum()
            if not any(wanted):
                continue
            slope = (
                logits.sub(total[:, None]).exp_() if softcap else logits.sub_(total[:, None]).exp_()
            )
            slope *= (1 + 2 * z_weight * total)[:, None]
            slope.scatter_add_(-1, target, -torch.ones_like(target, dtype=precise))
            slope *= weights[:, None]
            if softcap is not None:
                slope *= logits.div_(softcap).square_().neg_().add_(1)
            _gather(part, slope.to(compute), hidden, head, grad_hidden_NC, grad_head_VC)
        if grad_head_VC is not None:
            grad_head_VC = grad_head_VC.to(head_VC.dtype)
        # Saved, they are let go after the backward pass; what else hangs on the loss lives as it.
        ctx.save_for_backward(grad_hidden_NC, grad_head_VC)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """A second backward would need the gradients again: they are kept, and never written to."""
        (grad,) = grads
        scaled = [None if one is None else one * grad.to(one.dtype) for one in ctx.saved_tensors]
        return scaled[0], scaled[1], None, None, None, None, None, None
