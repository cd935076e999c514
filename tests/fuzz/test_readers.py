"""Long random input for every reader: `make fuzz`. Damage ends in items or in one sentence."""

import importlib
import random
import time
from pathlib import Path

import pytest

from ownwords.archive import sources
from ownwords.archive.document import RawDocument
from ownwords.archive.segments import read_body
from ownwords.core.errors import SourceError

pytestmark = pytest.mark.fuzz

SECONDS_EACH = 30


def damaged(data: bytes, generator: random.Random) -> bytes:
    """A file after an accident: bytes flipped, a stretch cut out, doubled, overwritten; cut off."""
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


@pytest.mark.parametrize("name", sources.SOURCE_NAMES)
def test_a_damaged_export_is_read_or_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    seed = time.time_ns()
    generator = random.Random(seed)
    print(f"seed {seed}")  # noqa: T201 - shown by pytest when the test fails
    path = importlib.import_module(f"exports.{name}").write(tmp_path)
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    whole = {file: file.read_bytes() for file in files}
    ends = time.monotonic() + SECONDS_EACH
    tried = 0
    while time.monotonic() < ends:
        file = generator.choice(files)
        file.write_bytes(damaged(whole[file], generator))
        sources.source(name).detect(path)
        try:
            for item in sources.source(name).read(path):
                if isinstance(item, RawDocument):
                    for segment in read_body(item.body, item.markup).segments:
                        assert segment.text.strip()
        except SourceError as error:
            assert error.message
            assert "\n" not in error.message
        file.write_bytes(whole[file])
        tried += 1
    assert tried > 20
