"""GPT-2 trains as llm.c trains it, step by step.

The figures to follow come from a second GPT-2 in this file: NumPy, float64, its backward pass
written out by hand, its weights read from a checkpoint of llm.c by their place in the file. It
shares no line with the project and uses no automatic differentiation.
"""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from llmc import save_checkpoint
from ownwords.models import registry
from ownwords.models.decoder import CausalLM, build
from ownwords.models.weight_mapping import hf_names

pytestmark = pytest.mark.reference

Array = np.ndarray
Parameters = dict[str, Array]

B, T, V, C, L, H = 4, 24, 131, 48, 3, 4
STEPS = 20


class Numpy:
    """llm.c's GPT-2: learned positions, norms before each part, gelu by tanh, head tied."""

    def __init__(self, parameters: Parameters) -> None:
        self.p = parameters

    @classmethod
    def from_checkpoint(cls, path: Path) -> "Numpy":
        header = np.fromfile(path, "<i4", 256)
        context, vocabulary, layers, _, width, padded = (int(n) for n in header[2:8])
        assert header[0] == 20240326 and header[1] == 3
        shapes = {
            "wte": (padded, width),
            "wpe": (context, width),
            "ln1w": (layers, width),
            "ln1b": (layers, width),
            "qkvw": (layers, 3 * width, width),
            "qkvb": (layers, 3 * width),
            "attprojw": (layers, width, width),
            "attprojb": (layers, width),
            "ln2w": (layers, width),
            "ln2b": (layers, width),
            "fcw": (layers, 4 * width, width),
            "fcb": (layers, 4 * width),
            "fcprojw": (layers, width, 4 * width),
            "fcprojb": (layers, width),
            "lnfw": (width,),
            "lnfb": (width,),
        }
        numbers = np.fromfile(path, "<f4", offset=1024).astype(np.float64)
        parameters: Parameters = {}
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            parameters[name], numbers = numbers[:size].reshape(shape), numbers[size:]
        assert not numbers.size
        parameters["wte"] = parameters["wte"][:vocabulary]
        return cls(parameters)

    def step(self, ids: Array, targets: Array) -> tuple[float, Parameters]:
        """The mean loss, and the gradient of every parameter."""
        p = self.p
        g = {name: np.zeros_like(value) for name, value in p.items()}
        b, t = ids.shape
        width = p["wte"].shape[1]
        size = width // H
        future = np.triu(np.ones((t, t), bool), 1)

        x = p["wte"][ids] + p["wpe"][:t]
        saved = []
        for i in range(L):
            n1, back1 = norm(x, p["ln1w"][i], p["ln1b"][i])
            qkv = n1 @ p["qkvw"][i].T + p["qkvb"][i]
            q, k, v = (
                part.reshape(b, t, H, size).transpose(0, 2, 1, 3)
                for part in np.split(qkv, 3, axis=-1)
            )
            scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(size)
            att = softmax(np.where(future, -np.inf, scores))
            y = (att @ v).transpose(0, 2, 1, 3).reshape(b, t, width)
            middle = x + y @ p["attprojw"][i].T + p["attprojb"][i]
            n2, back2 = norm(middle, p["ln2w"][i], p["ln2b"][i])
            h = n2 @ p["fcw"][i].T + p["fcb"][i]
            tanh = np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))
            a = 0.5 * h * (1 + tanh)
            saved.append((n1, back1, q, k, v, att, y, n2, back2, h, tanh, a))
            x = middle + a @ p["fcprojw"][i].T + p["fcprojb"][i]
        n, back = norm(x, p["lnfw"], p["lnfb"])
        logits = n @ p["wte"].T
        probabilities = softmax(logits)
        rows = np.arange(b)[:, None], np.arange(t)[None, :], targets
        loss = float(-np.log(probabilities[rows]).mean())

        d_logits = probabilities
        d_logits[rows] -= 1
        d_logits /= b * t
        g["wte"] += outer(d_logits, n)
        dx, g["lnfw"], g["lnfb"] = back(d_logits @ p["wte"])
        for i in reversed(range(L)):
            n1, back1, q, k, v, att, y, n2, back2, h, tanh, a = saved[i]
            g["fcprojw"][i], g["fcprojb"][i] = outer(dx, a), dx.sum((0, 1))
            slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * h**2)
            dh = (dx @ p["fcprojw"][i]) * (0.5 * (1 + tanh) + 0.5 * h * (1 - tanh**2) * slope)
            g["fcw"][i], g["fcb"][i] = outer(dh, n2), dh.sum((0, 1))
            d_middle, g["ln2w"][i], g["ln2b"][i] = back2(dh @ p["fcw"][i])
            dx = dx + d_middle
            g["attprojw"][i], g["attprojb"][i] = outer(dx, y), dx.sum((0, 1))
            dy = (dx @ p["attprojw"][i]).reshape(b, t, H, size).transpose(0, 2, 1, 3)
            d_att = dy @ v.transpose(0, 1, 3, 2)
            d_scores = att * (d_att - (d_att * att).sum(-1, keepdims=True)) / np.sqrt(size)
            parts = d_scores @ k, d_scores.transpose(0, 1, 3, 2) @ q, att.transpose(0, 1, 3, 2) @ dy
            d_qkv = np.concatenate(
                [part.transpose(0, 2, 1, 3).reshape(b, t, width) for part in parts], axis=-1
            )
            g["qkvw"][i], g["qkvb"][i] = outer(d_qkv, n1), d_qkv.sum((0, 1))
            d_below, g["ln1w"][i], g["ln1b"][i] = back1(d_qkv @ p["qkvw"][i])
            dx = dx + d_below
        g["wpe"][:t] = dx.sum(0)
        np.add.at(g["wte"], ids, dx)
        return loss, g


def norm(x: Array, w: Array, b: Array) -> tuple[Array, "Back"]:
    mean = x.mean(-1, keepdims=True)
    spread = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    hat = (x - mean) * spread
    return hat * w + b, Back(hat, spread, w)


class Back:
    """The backward pass of a norm: the gradients of its input, weight and bias."""

    def __init__(self, hat: Array, spread: Array, w: Array) -> None:
        self.hat, self.spread, self.w = hat, spread, w

    def __call__(self, dy: Array) -> tuple[Array, Array, Array]:
        d_hat = dy * self.w
        centred = d_hat - d_hat.mean(-1, keepdims=True)
        dx = self.spread * (centred - self.hat * (d_hat * self.hat).mean(-1, keepdims=True))
        return dx, (dy * self.hat).sum((0, 1)), dy.sum((0, 1))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    shares: Array = e / e.sum(-1, keepdims=True)
    return shares


def outer(dy: Array, x: Array) -> Array:
    """The gradient of a matrix (out, in) applied to x, given that of its output."""
    gradient: Array = np.einsum("bto,bti->oi", dy, x)
    return gradient


class AdamW:
    """`gpt2_update` of train_gpt2.c: decay beside the step, not in the gradient."""

    def __init__(self, parameters: Parameters, decay: float) -> None:
        self.p, self.decay, self.count = parameters, decay, 0
        self.m = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.v = {name: np.zeros_like(value) for name, value in parameters.items()}

    def step(self, gradients: Parameters) -> None:
        self.count += 1
        for name, grad in gradients.items():
            self.m[name] = 0.9 * self.m[name] + 0.1 * grad
            self.v[name] = 0.999 * self.v[name] + 0.001 * grad**2
            m = self.m[name] / (1 - 0.9**self.count)
            v = self.v[name] / (1 - 0.999**self.count)
            self.p[name] -= 1e-4 * (m / (np.sqrt(v) + 1e-8) + self.decay * self.p[name])


@pytest.fixture
def model() -> CausalLM:
    config = registry.config_from_json(
        {
            "model_type": "gpt2",
            "vocab_size": V,
            "n_positions": T + 8,
            "n_embd": C,
            "n_layer": L,
            "n_head": H,
        }
    )
    model = build(config)
    model.init_weights(3)
    # Norms start as one and biases as zero, which would hide what they are multiplied with.
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source), alpha=0.05)
    return model.train()


def batches(count: int) -> list[tuple[Array, Array]]:
    source = np.random.default_rng(7)
    rows = source.integers(0, V, (count, B, T + 1))
    return [(row[:, :-1], row[:, 1:]) for row in rows]


def mean_loss(model: CausalLM, ids: Array, targets: Array) -> torch.Tensor:
    total, count = model.loss(torch.from_numpy(ids), torch.from_numpy(targets))
    return total / count


def in_our_names(model: CausalLM, parameters: Parameters) -> Parameters:
    """llm.c's tensors under our names, one per layer."""
    places = {
        "transformer.wte.weight": "wte",
        "transformer.wpe.weight": "wpe",
        "transformer.ln_f.weight": "lnfw",
        "transformer.ln_f.bias": "lnfb",
    }
    parts = {
        "ln_1": "ln1",
        "attn.c_attn": "qkv",
        "attn.c_proj": "attproj",
        "ln_2": "ln2",
        "mlp.c_fc": "fc",
        "mlp.c_proj": "fcproj",
    }
    own_parameters: Parameters = {}
    for ours, theirs, _ in hf_names(model.config):
        if theirs in places:
            own_parameters[ours] = parameters[places[theirs]]
            continue
        _, _, layer, tail = theirs.split(".", 3)
        part, kind = tail.rsplit(".", 1)
        own_parameters[ours] = parameters[parts[part] + kind[0]][int(layer)]
    return own_parameters


def test_gradients_equal_the_independent_gpt2(model: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "model.bin", model)
    reference = Numpy.from_checkpoint(tmp_path / "model.bin")
    ids, targets = batches(1)[0]
    loss = mean_loss(model, ids, targets)
    torch.autograd.backward(loss)
    expected_loss, gradients = reference.step(ids, targets)
    assert abs(loss.item() - expected_loss) < 1e-5
    expected = in_our_names(model, gradients)
    ours = dict(model.named_parameters())
    assert expected.keys() == ours.keys()
    for name, wanted in expected.items():
        got = ours[name].grad
        assert got is not None, name
        distance = np.abs(got.double().numpy() - wanted).max() / np.abs(wanted).max()
        assert distance < 1e-4, f"{name}: {distance}"


# 0 is what train_gpt2.c trains with, 0.01 what test_gpt2.c tests with.
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_twenty_steps_of_adamw_follow_the_independent_gpt2(
    model: CausalLM, tmp_path: Path, decay: float
) -> None:
    save_checkpoint(tmp_path / "model.bin", model)
    reference = Numpy.from_checkpoint(tmp_path / "model.bin")
    theirs = AdamW(reference.p, decay)
    ours = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay
    )
    distances = []
    for ids, targets in batches(4) * (STEPS // 4):
        ours.zero_grad()
        loss = mean_loss(model, ids, targets)
        torch.autograd.backward(loss)
        ours.step()
        expected, gradients = reference.step(ids, targets)
        theirs.step(gradients)
        distances.append(abs(loss.item() - expected))
    assert len(distances) == STEPS
    assert max(distances) < 1e-4, distances


def test_the_independent_gradients_equal_finite_differences(
    tmp_path: Path, model: CausalLM
) -> None:
    """The reference itself is checked against the definition of a gradient."""
    save_checkpoint(tmp_path / "model.bin", model)
    reference = Numpy.from_checkpoint(tmp_path / "model.bin")
    ids, targets = batches(1)[0]
    _, gradients = reference.step(ids, targets)
    source = np.random.default_rng(11)
    for name, values in reference.p.items():
        direction = 1e-6 * source.standard_normal(values.shape)
        reference.p[name] = values + direction
        above, _ = reference.step(ids, targets)
        reference.p[name] = values - direction
        below, _ = reference.step(ids, targets)
        reference.p[name] = values
        slope, wanted = (above - below) / 2, float((gradients[name] * direction).sum())
        assert abs(slope - wanted) < 1e-6 * abs(wanted) + 1e-12, name
