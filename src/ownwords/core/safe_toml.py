"""Parses untrusted TOML in bounded time and memory."""

import re
import tomllib
from typing import Any

# `tomllib` stores every prefix of a dotted key, so its memory use is quadratic in the key's length.
_LONG_KEY = re.compile(r"""(?<![\w"'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; ValueError if it is invalid or nested too deeply."""
    if long_key := _LONG_KEY.search(text):
        line = text.count("\n", 0, long_key.start()) + 1
        raise ValueError(f"a key of more than 32 parts (at line {line})")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
