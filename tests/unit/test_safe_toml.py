import tracemalloc

import pytest

from ownwords.core.safe_toml import parse_toml


def test_ordinary_toml_is_read() -> None:
    text = 'a.b."c d" = "1. 2. 3. and e.g. so on"\n[x.y]\nz = [1.5, 2.5]\n'
    assert parse_toml(text) == {
        "a": {"b": {"c d": "1. 2. 3. and e.g. so on"}},
        "x": {"y": {"z": [1.5, 2.5]}},
    }


@pytest.mark.parametrize(
    "text", ["a" + ".a" * 20_000 + " = 1", "[" + '"a" . ' * 99 + "b]", "a = " + "[" * 20_000]
)
def test_input_that_would_exhaust_memory_is_refused(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"parts|deep"):
        parse_toml(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * len(text) + 100_000


def test_a_long_word_takes_linear_time() -> None:
    assert parse_toml(f'a = "{"b" * 200_000}"')["a"] == "b" * 200_000
