"""Chunked cross entropy from hidden states, without holding all logits in memory.

With a vocabulary of 262,000 tokens the logits of one batch take more memory than the model. Here
they exist for only one chunk of rows at a time: the forward pass computes the gradient chunk by
chunk, and the backward pass only scales it.

Shapes: N tokens, C width, V vocabulary.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ownwords.models import fused

IGNORED = -100
# CHUNK_LOGITS keeps a chunk's logits in the processor's cache (16 MB in float32). With fewer rows
# than MIN_ROWS, accumulating the head's gradient costs more than the chunk itself.
CHUNK_LOGITS = 2**22
MIN_ROWS = 256
LARGEST_ROWS = 2048
# On a GPU the launches cost most, so chunks are larger, up to a share of the card's memory.
GPU_ROWS = 8192
_GPU_SHARE = 1 / 32
# The library packs the head for each chunk, and accumulates its gradient if it is trained.
TRAINED_ROWS = 1024


def chunked_cross_entropy(
    hidden_NC: Tensor,
    head_VC: Tensor,
    targets_N: Tensor,
    *,
    weights_N: Tensor | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the summed loss in nats, and the number of targets that are not ignored.

    Targets of -100 are ignored; `weights_N` multiplies the losses of the others.
    `softcap` bounds the logits as softcap * tanh(logits / softcap).
    """
    counted_N = targets_N != IGNORED
    factors_N = counted_N.to(torch.promote_types(hidden_NC.dtype, torch.float32))
    if weights_N is not None:
        factors_N = factors_N * weights_N
    device = hidden_NC.device.type
    autocast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else hidden_NC.dtype
    needs_grad = (hidden_NC.requires_grad, head_VC.requires_grad)
    with torch.autocast(device, enabled=False):
        loss: Tensor = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden_NC,
            head_VC,
            targets_N.clamp(min=0),
            factors_N,
            softcap,
            dtype,
            needs_grad if torch.is_grad_enabled() else (False, False),
        )
    return loss, counted_N.sum()


def _backpropagate(
    part: slice,
    grad_logits: Tensor,
    hidden: Tensor,
    head: Tensor,
    grad_hidden_NC: Tensor | None,
    grad_head_VC: Tensor | None,
) -> None:
    """Write the gradient of a chunk's hidden states; accumulate the head's gradient."""
    if grad_hidden_NC is not None:
        grad_hidden_NC[part] = grad_logits @ head
    if grad_head_VC is None:
        return
    if part.start == 0 and grad_logits.dtype == grad_head_VC.dtype:
        torch.mm(grad_logits.T, hidden, out=grad_head_VC)
    elif part.start == 0:
        grad_head_VC.copy_(grad_logits.T @ hidden)
    elif grad_logits.dtype == grad_head_VC.dtype:
        grad_head_VC.addmm_(grad_logits.T, hidden)
    else:
        grad_head_VC += grad_logits.T @ hidden


@cache
def _card_bytes(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory


def _even_rows(tokens: int, at_most: int) -> int:
    """Return the rows per chunk for the fewest chunks of nearly equal size."""
    return max(1, math.ceil(tokens / max(1, math.ceil(tokens / at_most))))


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's own context has no public type
        hidden_NC: Tensor,
        head_VC: Tensor,
        targets_N: Tensor,
        weights_N: Tensor,
        softcap: float | None,
        dtype: torch.dtype,
        needs_grad: tuple[bool, bool],
    ) -> Tensor:
        precise = weights_N.dtype
        loss = torch.zeros((), dtype=precise, device=hidden_NC.device)
        tokens, width = hidden_NC.shape
        if softcap is None and fused.supports_head_loss(hidden_NC, head_VC, dtype):
            rows = TRAINED_ROWS if needs_grad[1] else MIN_ROWS
            rows = _even_rows(tokens, max(rows, CHUNK_LOGITS // head_VC.shape[0]))
            total, *grads = fused.head_loss(
                *(hidden_NC, head_VC, targets_N, weights_N, dtype, rows, needs_grad)
            )
            ctx.save_for_backward(
                grads[0], None if grads[1] is None else grads[1].to(head_VC.dtype)
            )
            return loss + total
        rows = max(MIN_ROWS, CHUNK_LOGITS // head_VC.shape[0])
        if hidden_NC.is_cuda:
            numbers = _card_bytes(hidden_NC.device) * _GPU_SHARE / precise.itemsize
            rows = max(MIN_ROWS, min(GPU_ROWS, int(numbers) // head_VC.shape[0]))
        elif needs_grad[1]:
            # Use at least about `width` rows, so that accumulating the head's gradient costs less
            # than computing it.
            rows = max(rows, min(width * precise.itemsize // dtype.itemsize, LARGEST_ROWS))
        rows = _even_rows(tokens, rows)
        head = head_VC.to(dtype)
        grad_hidden_NC = torch.empty_like(hidden_NC) if needs_grad[0] else None
        grad_head_VC = None
        if needs_grad[1]:
            # Accumulate over several chunks in at least float32.
            grad_head_VC = torch.empty_like(head_VC, dtype=precise if rows < tokens else dtype)
            if tokens == 0:
                grad_head_VC.zero_()
        for start in range(0, tokens, rows):
            part = slice(start, start + rows)
            hidden, weights = hidden_NC[part].to(dtype), weights_N[part]
            logits = hidden @ head.T
            logits = logits.to(precise)
            if softcap is not None:
                logits = logits.div_(softcap).tanh_().mul_(softcap)
            log_sum = logits.logsumexp(-1)
            target = targets_N[part, None]
            nats = log_sum - logits.gather(-1, target)[:, 0]
            loss += (weights * nats).sum()
            if not any(needs_grad):
                continue
            centred = logits.sub(log_sum[:, None]) if softcap else logits.sub_(log_sum[:, None])
            grad_logits = centred.exp_()
            grad_logits.scatter_add_(-1, target, -torch.ones_like(target, dtype=precise))
            grad_logits *= weights[:, None]
            if softcap is not None:
                grad_logits *= logits.div_(softcap).square_().neg_().add_(1)
            _backpropagate(part, grad_logits.to(dtype), hidden, head, grad_hidden_NC, grad_head_VC)
        if grad_head_VC is not None:
            grad_head_VC = grad_head_VC.to(head_VC.dtype)
        # Tensors saved here are freed after the backward pass; attributes live as long as the loss.
        ctx.save_for_backward(grad_hidden_NC, grad_head_VC)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Scale the saved gradients out of place, because a second backward pass may need them."""
        (grad,) = grads
        scaled = [None if x is None else x * grad.to(x.dtype) for x in ctx.saved_tensors]
        return scaled[0], scaled[1], None, None, None, None, None
