"""Quantisation schemes and their fields in a safetensors header; does not import torch.

`models/quantize.py` has the arithmetic.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from ownwords.models.untrusted_files import ModelError, parse_json

FIELD: Final = "ownwords.quantization"
VERSION: Final = 1
# The token embedding and the head, which lose most by rounding.
ENDS: Final = ("embedding", "head")

# A type, as safetensors names it, and a shape.
StoredTensor = tuple[str, tuple[int, int]]


@dataclass(frozen=True)
class QuantizationScheme:
    """Bits per number, and how many numbers share a scale (`group`; 0 means a whole row)."""

    bits: int
    group: int = 0

    @property
    def name(self) -> str:
        return f"int{self.bits}"

    def groups(self, columns: int) -> int:
        """How many scales a row of `columns` numbers has; its last group may be shorter."""
        return -(-columns // self.group) if self.group else 1

    def stored(self, rows: int, columns: int) -> tuple[StoredTensor, StoredTensor]:
        """Return the types and shapes of the packed codes and scales of a matrix."""
        width, groups = columns if self.bits == 8 else -(-columns // 2), self.groups(columns)
        # int4 groups use bfloat16 scales to save 16 bits each; per int8 row, float32 costs little.
        kinds = ("I8", "F32") if self.bits == 8 else ("U8", "BF16")
        return (kinds[0], (rows, width)), (kinds[1], (rows, groups))


# Of the matrices, and of the ends.
Schemes = tuple[QuantizationScheme, QuantizationScheme]

INT8: Final = QuantizationScheme(8)
INT4: Final = QuantizationScheme(4, 32)


def scheme_of(
    name: str, dimensions: int, body: QuantizationScheme, ends: QuantizationScheme
) -> QuantizationScheme | None:
    """Return the scheme of a weight; None for norms, biases and learned positions."""
    owner = name.removesuffix(".weight")
    if dimensions != 2 or owner == "positions":
        return None
    return ends if owner in ENDS else body


def schemes(header: Mapping[str, str], path: Path) -> Schemes:
    """Read the schemes of the matrices and of the ends from a header; ModelError if unknown."""
    where = f"{FIELD} in the header of {path}"
    fields = parse_json(header.get(FIELD, "{}").encode(), where)
    for body, ends in product((INT8, INT4), repeat=2):
        if fields == _fields(body, ends):
            return body, ends
    raise ModelError(
        f"{where} names an unknown quantisation: {str(fields)[:80]}",
        hint="a newer ownwords may have written it",
    )


def metadata_of(body: QuantizationScheme, ends: QuantizationScheme) -> dict[str, str]:
    """Return the header fields that `schemes` reads."""
    return {FIELD: json.dumps(_fields(body, ends))}


def _fields(body: QuantizationScheme, ends: QuantizationScheme) -> dict[str, object]:
    parts = [{"scheme": each.name, "group": each.group} for each in (body, ends)]
    return {"version": VERSION, **parts[0], "ends": parts[1]}
