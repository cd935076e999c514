"""The baseline: nanoGPT's model and training recipe, reimplemented from its train.py of 2024-12.

A GPT-2 without biases (they are an option), tied embeddings, exact gelu; AdamW with decay on
matrices and tables only; warm-up, then a cosine; batches from random offsets; float32, eager.
Random numbers are drawn in nanoGPT's order, so a seed gives its losses: with seed 1337, both print
4.1794, 3.2325, 3.0685 for steps 0, 10, 20 of a run of 20 (warm-up 5, evaluated every 10 steps on 3
batches). Its checkpoint, written at each best evaluation, is left out.

Shapes: B rows, T tokens, C width, H heads, D dimensions of a head, V vocabulary, N tokens.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The shape in nanoGPT's README for a computer without a GPU."""

    vocabulary: int
    context: int = 64
    layers: int = 4
    heads: int = 4
    width: int = 128
    dropout: float = 0.0
    bias: bool = False


@dataclass(frozen=True)
class Recipe:
    """config/train_shakespeare_char.py with that command's changes."""

    rows: int = 12
    steps: int = 2000
    rate: float = 1e-3
    least_rate: float = 1e-4
    warmup: int = 100
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.1
    clip: float = 1.0
    evaluate_every: int = 250
    evaluation_batches: int = 20
    seed: int = 1337


class Norm(nn.Module):
    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x_BTC: Tensor) -> Tensor:
        return functional.layer_norm(x_BTC, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=shape.bias)
        self.output = nn.Linear(shape.width, shape.width, bias=shape.bias)

    def forward(self, x_BTC: Tensor) -> Tensor:
        rows, tokens, width = x_BTC.shape
        query, key, value = (
            part.view(rows, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in self.query_key_value(x_BTC).chunk(3, dim=2)
        )
        mixed_BHTD = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        mixed_BTC = mixed_BHTD.transpose(1, 2).reshape(rows, tokens, width)
        return functional.dropout(self.output(mixed_BTC), self.dropout, self.training)


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dropout = shape.dropout
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=shape.bias)
        self.output = nn.Linear(4 * shape.width, shape.width, bias=shape.bias)

    def forward(self, x_BTC: Tensor) -> Tensor:
        out_BTC = self.output(functional.gelu(self.up(x_BTC)))
        return functional.dropout(out_BTC, self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = Norm(shape.width, shape.bias)
        self.attention = Attention(shape)
        self.feed_forward_norm = Norm(shape.width, shape.bias)
        self.feed_forward = FeedForward(shape)

    def forward(self, x_BTC: Tensor) -> Tensor:
        x_BTC = x_BTC + self.attention(self.attention_norm(x_BTC))
        out_BTC: Tensor = x_BTC + self.feed_forward(self.feed_forward_norm(x_BTC))
        return out_BTC


class NanoGPT(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.final_norm = Norm(shape.width, shape.bias)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.tokens.weight = self.head.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, 0.0, 0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
        for name, parameter in self.named_parameters():
            if name.endswith("output.weight"):
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * shape.layers))

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Return logits, [B, T, V]."""
        places_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        x_BTC = self.tokens(ids_BT) + self.positions(places_T)
        x_BTC = functional.dropout(x_BTC, self.shape.dropout, self.training)
        for block in self.blocks:
            x_BTC = block(x_BTC)
        logits_BTV: Tensor = self.head(self.final_norm(x_BTC))
        return logits_BTV

    def loss(self, ids_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Return the mean nats per token."""
        return functional.cross_entropy(self(ids_BT).flatten(0, 1), targets_BT.flatten())


def optimizer(model: NanoGPT, recipe: Recipe) -> torch.optim.AdamW:
    parameters = list(model.parameters())
    return torch.optim.AdamW(
        [
            {
                "params": [p for p in parameters if p.dim() >= 2],
                "weight_decay": recipe.weight_decay,
            },
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=recipe.rate,
        betas=(recipe.beta1, recipe.beta2),
    )


def rate(step: int, recipe: Recipe) -> float:
    """Return the learning rate of a step, counted from 0."""
    if step < recipe.warmup:
        return recipe.rate * (step + 1) / (recipe.warmup + 1)
    if step > recipe.steps:
        return recipe.least_rate
    progress = (step - recipe.warmup) / (recipe.steps - recipe.warmup)
    falling = 0.5 * (1 + math.cos(math.pi * progress))
    return recipe.least_rate + falling * (recipe.rate - recipe.least_rate)


def update(
    model: NanoGPT,
    adamw: torch.optim.AdamW,
    recipe: Recipe,
    step: int,
    batch: tuple[Tensor, Tensor],
    *,
    autocast: AbstractContextManager[object] | None = None,
    following: Callable[[], tuple[Tensor, Tensor]] | None = None,
) -> tuple[Tensor, Tensor] | None:
    """Train for one step, and draw the next batch, as nanoGPT does before the backward pass.

    It uses autocast on GPUs only.
    """
    for group in adamw.param_groups:
        group["lr"] = rate(step, recipe)
    with autocast or nullcontext():
        loss = model.loss(*batch)
    drawn = following() if following else None
    torch.autograd.backward(loss)
    if recipe.clip:
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    adamw.step()
    adamw.zero_grad(set_to_none=True)
    loss.item()  # nanoGPT prints it
    return drawn


@dataclass
class TrainedNanoGPT:
    model: NanoGPT
    steps: int = 0
    evaluations: list[tuple[int, float]] = field(default_factory=list)  # nanoGPT's own estimates


def train(
    training_N: Tensor,
    held_out_N: Tensor,
    shape: Shape,
    recipe: Recipe,
    look: Callable[[NanoGPT, int], bool] | None = None,
) -> TrainedNanoGPT:
    """Run the whole recipe; `look`, called at each evaluation, ends it early by returning True."""
    torch.manual_seed(recipe.seed)
    model = NanoGPT(shape)
    adamw = optimizer(model, recipe)
    trained = TrainedNanoGPT(model)

    def drawn(ids_N: Tensor) -> tuple[Tensor, Tensor]:
        starts_B1 = torch.randint(len(ids_N) - shape.context, (recipe.rows,))[:, None]
        ids_BT1 = ids_N[starts_B1 + torch.arange(shape.context + 1)]
        return ids_BT1[:, :-1].contiguous(), ids_BT1[:, 1:].contiguous()

    batch = drawn(training_N)
    # nanoGPT stops only after one step more than it was asked for.
    for step in range(recipe.steps + 1):
        if step % recipe.evaluate_every == 0:
            model.eval()
            with torch.no_grad():
                means = [
                    sum(model.loss(*drawn(ids)).item() for _ in range(recipe.evaluation_batches))
                    / max(1, recipe.evaluation_batches)
                    for ids in (training_N, held_out_N)
                ]
            trained.evaluations.append((step, means[1]))
            stop = look is not None and look(model, step)
            model.train()
            if stop:
                break
        batch = update(
            model, adamw, recipe, step, batch, following=lambda: drawn(training_N)
        ) or drawn(training_N)
        trained.steps += 1
    model.eval()
    return trained


@torch.no_grad()
def nats(model: NanoGPT, ids_N: Tensor, stride: int = 0) -> float:
    """Return the sum over all ids but the first, in adjacent windows, or windows with a stride."""
    context = model.shape.context
    stride = stride or context
    model.eval()
    total, scored, targets = 0.0, 0, len(ids_N) - 1
    rows: list[tuple[int, int, int]] = []
    while scored < targets:
        end = min(targets, scored + (stride if scored else context))
        begin = scored if stride == context else max(0, end - context)
        rows.append((begin, end, scored))
        scored = end
    # Rows of the same length are read together.
    rows.sort(key=lambda row: row[1] - row[0])
    at = 0
    while at < len(rows):
        length = rows[at][1] - rows[at][0]
        same = [row for row in rows[at : at + 64] if row[1] - row[0] == length]
        at += len(same)
        begins_B1 = torch.tensor([row[0] for row in same])[:, None]
        ids_BT1 = ids_N[begins_B1 + torch.arange(length + 1)]
        losses_BT = functional.cross_entropy(
            model(ids_BT1[:, :-1]).transpose(1, 2), ids_BT1[:, 1:], reduction="none"
        )
        skipped_B1 = torch.tensor([row[2] - row[0] for row in same])[:, None]
        total += float(losses_BT.double()[torch.arange(length) >= skipped_B1].sum())
    return total


class Characters:
    """nanoGPT's tokenizer: each character that occurs anywhere, in order."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.all = sorted(set().union(*texts))
        self._ids = {character: i for i, character in enumerate(self.all)}

    def encode(self, text: str) -> Tensor:
        return torch.tensor([self._ids[character] for character in text], dtype=torch.int64)
