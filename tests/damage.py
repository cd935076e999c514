"""Accidental or malicious damage to files: changed bytes, or changed JSON values."""

import copy
import json
import random
from pathlib import Path

WILD: list[object] = [
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, 7, 97, 1 << 20, 1 << 31, 1 << 62, 10**30),
    *("", "x", "F64", "BF16", "../../etc/passwd", "\ud800", "a" * 5000, [], {}, [1], [[]]),
    *({"a": 1}, [0] * 100, [1 << 40, 1 << 40], ["model.safetensors"], {"0": {"0": {}}}),
]


def of_bytes(data: bytes, generator: random.Random) -> bytes:
    """Flip, cut out, duplicate, overwrite or truncate bytes."""
    changed = bytearray(data)
    for _ in range(generator.choice([1, 1, 2, 5, 20])):
        if not changed:
            break
        start = generator.randrange(len(changed))
        end = min(len(changed), start + generator.choice([1, 4, 64, 4096]))
        match generator.randrange(5):
            case 0:
                changed[start] ^= 1 << generator.randrange(8)
            case 1:
                del changed[start:end]
            case 2:
                changed[start:start] = changed[start:end]
            case 3:
                changed[start:end] = generator.randbytes(end - start)
            case _:
                del changed[start:]
    return bytes(changed)


def of_json(data: bytes, generator: random.Random) -> bytes:
    """Replace, remove, rename or move some values; still valid JSON."""
    document: object = json.loads(data)
    for _ in range(generator.choice([1, 1, 1, 2, 4])):
        node, key = document, None
        for _ in range(generator.choice([1, 1, 2, 3, 4])):
            keys = _keys(node)
            if not keys:
                break
            key = generator.choice(keys)
            parent, node = node, node[key]  # type: ignore[index]
        if key is None:
            continue
        _change(parent, key, generator)
    return json.dumps(document).encode()


def _keys(node: object) -> list[object]:
    if isinstance(node, dict):
        return list(node)
    return list(range(len(node))) if isinstance(node, list) else []


def _change(parent: object, key: object, generator: random.Random) -> None:
    assert isinstance(parent, dict | list)
    other_key = generator.choice(_keys(parent))
    match generator.randrange(6):
        case 0:
            del parent[key]  # type: ignore[arg-type]
        case 1 if isinstance(parent, dict):
            parent["x" + str(key)] = parent.pop(key)
        case 2:
            parent[key], parent[other_key] = parent[other_key], parent[key]  # type: ignore[call-overload]
        case 3 if type(parent[key]) is int:  # type: ignore[call-overload]
            parent[key] += generator.choice([-1, 1, 4, 1 << 16, 1 << 33])  # type: ignore[call-overload]
        case _:
            parent[key] = copy.deepcopy(generator.choice(WILD))  # type: ignore[call-overload]


def of_safetensors(data: bytes, generator: random.Random) -> bytes:
    """Change its bytes, or its header, whose length is then mostly corrected."""
    if generator.random() < 0.3:
        return of_bytes(data, generator)
    begin = 8 + int.from_bytes(data[:8], "little")
    change = of_json if generator.random() < 0.8 else of_bytes
    header = change(data[8:begin], generator)
    length = len(header) if generator.random() < 0.95 else generator.choice([0, 1, 1 << 40, begin])
    return length.to_bytes(8, "little") + header + data[begin:]


def of_file(path: Path, data: bytes, generator: random.Random) -> bytes:
    if path.suffix == ".safetensors":
        return of_safetensors(data, generator)
    if path.suffix == ".json" and generator.random() < 0.7:
        return of_json(data, generator)
    return of_bytes(data, generator)
