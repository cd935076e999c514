"""Damaged and hostile model directories: each is loaded, or refused with one sentence."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from damaged_models import CASES, load_engine, load_network, try_damaged

pytestmark = pytest.mark.fuzz

SECONDS_EACH = 60


@pytest.mark.parametrize("load", [load_network, load_engine])
@pytest.mark.parametrize(("kind", "shard_bytes"), CASES)
def test_a_damaged_model_is_loaded_or_refused_with_a_sentence(
    kind: str, shard_bytes: int | None, load: Callable[[Path], None], tmp_path: Path
) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # noqa: T201 - shown by pytest when the test fails
    ends = time.monotonic() + SECONDS_EACH
    tried = try_damaged(
        tmp_path / "m",
        kind,
        shard_bytes,
        random.Random(seed),
        lambda _: time.monotonic() < ends,
        load,
    )
    assert tried > 200
