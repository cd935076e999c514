"""Long random input for every reader: `make fuzz`. Damage ends in items or in one sentence."""

import importlib
import random
import time
from pathlib import Path

import pytest

import damage
from ownwords.archive import sources
from ownwords.archive.document import RawDocument
from ownwords.archive.segments import parse_body
from ownwords.core.errors import SourceError

pytestmark = pytest.mark.fuzz

SECONDS_EACH = 30


@pytest.mark.parametrize("name", sources.SOURCE_NAMES)
def test_a_damaged_export_is_read_or_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    seed = time.time_ns()
    generator = random.Random(seed)
    print(f"seed {seed}")  # noqa: T201 - shown by pytest when the test fails
    path = importlib.import_module(f"exports.{name}").write(tmp_path)
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    originals = {file: file.read_bytes() for file in files}
    ends = time.monotonic() + SECONDS_EACH
    tried = 0
    while time.monotonic() < ends:
        file = generator.choice(files)
        file.write_bytes(damage.of_bytes(originals[file], generator))
        sources.load_source(name).detect(path)
        try:
            for item in sources.load_source(name).read(path):
                if isinstance(item, RawDocument):
                    for segment in parse_body(item.body, item.markup).segments:
                        assert segment.text.strip()
        except SourceError as error:
            assert error.message
            assert "\n" not in error.message
        file.write_bytes(originals[file])
        tried += 1
    assert tried > 20
