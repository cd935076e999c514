"""One damaged model directory after another, for the quick test and for fuzzing."""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import damage
import model_directories as models
from ownwords.core.errors import OwnwordsError
from ownwords.inference import native_engine
from ownwords.inference.engine import ForwardInput
from ownwords.models import bundle, directory
from ownwords.models.quantization_scheme import INT4, INT8
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

# Of what kind, and in files of how many bytes; a quantised model is one file.
CASES: list[tuple[str, int | None]] = [
    *((kind, size) for kind in models.CONFIGS for size in (None, 6000)),
    *(("int8", None), ("int4", None)),
]
VOCABULARY = 300  # all bytes, and some
# How often the time of an undamaged load, and the size of its files, a damaged one may take.
SLOWER = 300
LARGER = 1000


def peak_bytes() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def load_network(folder: Path) -> None:
    """Load it as PyTorch's model."""
    loaded = bundle.load(folder)
    loaded.check_tokenizer(Tokenizer(loaded.tokenizer_files))


def load_engine(folder: Path) -> None:
    """Load it into the native engine, and read some ids."""
    opened = directory.read(folder)
    engine = native_engine.load(folder, opened.config, threads=1)
    assert engine is not None
    length = min(30, engine.context)
    scores = engine.cache(2, length).forward([ForwardInput(1, [1] * length), ForwardInput(0, [2])])
    assert scores.shape == (2, engine.vocabulary)


def try_damaged(
    folder: Path,
    kind: str,
    shard_bytes: int | None,
    generator: random.Random,
    goes_on: Callable[[int], bool],
    load: Callable[[Path], None] = load_network,
) -> int:
    """Damage one file of a kind's directory at a time and load it; returns the number of tries.

    Any error but our own, a message of more than a line, a hang or a surge of memory fails.
    """
    model = models.model(kind if kind in models.CONFIGS else "qwen3", vocab_size=VOCABULARY)
    schemes = {"int8": (INT8, INT8), "int4": (INT4, INT8)}.get(kind)
    bundle.save(folder, model, ByteTokenizer(), schemes=schemes)
    models.shard(folder, shard_bytes)
    files = sorted(folder.iterdir())
    originals = {path: path.read_bytes() for path in files}
    began = time.process_time()
    load(folder)
    undamaged_s = max(time.process_time() - began, time.get_clock_info("process_time").resolution)
    largest = LARGER * sum(map(len, originals.values()))
    before, tried, refused = peak_bytes(), 0, 0
    while goes_on(tried):
        path = generator.choice(files)
        path.write_bytes(damage.of_file(path, originals[path], generator))
        began = time.process_time()
        try:
            load(folder)
        except OwnwordsError as error:
            refused += 1
            assert error.message
            assert "\n" not in str(error)
            assert len(str(error)) < 1200
            str(error).encode("utf-8")
        assert time.process_time() - began < SLOWER * undamaged_s, path.read_bytes()[:2000]
        assert peak_bytes() - before < largest, path.read_bytes()[:2000]
        path.write_bytes(originals[path])
        tried += 1
    assert refused > tried // 4
    return tried
