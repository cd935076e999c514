"""A thousand damaged model directories; `make fuzz` tries for longer."""

import random
from pathlib import Path

import pytest

from damaged_models import CASES, model, try_damaged


@pytest.mark.parametrize(("kind", "shard_bytes"), CASES)
def test_a_damaged_model_is_loaded_or_refused_with_a_sentence(
    kind: str, shard_bytes: int | None, tmp_path: Path
) -> None:
    generator = random.Random(f"{kind} {shard_bytes}")
    assert (
        try_damaged(tmp_path / "m", model(kind), shard_bytes, generator, lambda n: n < 130) == 130
    )
