"""The files for comparing our training with llm.c."""

from pathlib import Path

import numpy as np
import torch

from llmc import load_checkpoint, save_checkpoint
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.decoder import build


def test_the_layout_is_that_of_llm_c(tmp_path: Path) -> None:
    """Header and offsets as `train_gpt2.c` computes them (`fill_in_parameter_sizes`)."""
    model = build(GPT2Config(vocabulary=131, context=12, width=16, layers=3, heads=2))
    model.init_weights(1)
    path = tmp_path / "model.bin"
    save_checkpoint(path, model)
    header = np.fromfile(path, "<i4", 256)
    assert header[:8].tolist() == [20240326, 3, 12, 131, 3, 2, 16, 256]
    assert not header[8:].any()
    numbers = np.fromfile(path, "<f4", offset=1024)
    v, t, c, n = 256, 12, 16, 3
    sizes = [v * c, t * c, n * c, n * c, n * 3 * c * c, n * 3 * c, n * c * c, n * c, n * c, n * c]
    sizes += [n * 4 * c * c, n * 4 * c, n * c * 4 * c, n * c, c, c]
    assert numbers.size == sum(sizes)
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    embedding = parts[0].reshape(v, c)
    assert np.array_equal(embedding[:131], model.get_parameter("embedding.weight").detach())
    assert not embedding[131:].any()
    fc = model.get_parameter("blocks.2.mlp.up.weight").detach()  # (out, in), the last of three
    assert np.array_equal(parts[10].reshape(n, 4 * c, c)[2], fc)
    reloaded = load_checkpoint(path)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, reloaded.get_parameter(name)), name
