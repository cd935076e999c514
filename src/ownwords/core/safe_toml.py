"""TOML that somebody else may have written, parsed in bounded time and memory."""

import re
import tomllib
from typing import Any

# `tomllib` remembers every prefix of a dotted key: the memory grows with the square of its length.
_LONG_KEY = re.compile(r"""(?<![\w"'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; ValueError if it is not valid, or is nested absurdly deep."""
    if long_key := _LONG_KEY.search(text):
        line = text.count("\n", 0, long_key.start()) + 1
        raise ValueError(f"a key of more than 32 parts (at line {line})")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
