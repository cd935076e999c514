"""Some hundred damaged model directories; `make fuzz` tries longer."""

import random
from pathlib import Path

import pytest

from damaged_models import CASES, load_engine, try_damaged
from ownwords.native import bindings


@pytest.mark.parametrize(("kind", "shard_bytes"), CASES)
def test_a_damaged_model_is_loaded_or_refused_with_a_sentence(
    kind: str, shard_bytes: int | None, tmp_path: Path
) -> None:
    generator = random.Random(f"{kind} {shard_bytes}")
    assert try_damaged(tmp_path / "m", kind, shard_bytes, generator, lambda n: n < 40) == 40


@pytest.mark.skipif(bindings.load_library() is None, reason="the part in C++ is not built")
@pytest.mark.parametrize(("kind", "shard_bytes"), CASES)
def test_a_damaged_model_is_run_or_refused_with_a_sentence(
    kind: str, shard_bytes: int | None, tmp_path: Path
) -> None:
    generator = random.Random(f"{kind} {shard_bytes} native")
    tried = try_damaged(tmp_path / "m", kind, shard_bytes, generator, lambda n: n < 60, load_engine)
    assert tried == 60
