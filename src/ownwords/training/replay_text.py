"""Text that a base model writes itself, mixed into fine-tuning so that it forgets less.

The text that a base was trained on is seldom available, and hundreds of times its size. Text
sampled from its unchanged distribution has, on average, the same words in the same places.
"""

import lzma
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ownwords.archive.corpus import TrainingText
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.workspace import translate_os_errors, write_atomically
from ownwords.inference.generation import BatchScheduler, GenerationState
from ownwords.inference.model import Model
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import build_request
from ownwords.models.directory import model_fingerprint
from ownwords.models.untrusted_files import ModelError, read_bytes

# A model directory may contain its replay text, which saves the time to write it.
SHIPPED = "replay.txt.xz"
DIVIDER = "\x1c"
_BATCH_SIZE = 32  # enough texts at once to keep the matrix units busy
_UNCHANGED = SamplingParams(temperature=1.0)
_MAX_CACHED = 4  # texts
_MAX_BYTES = 64 << 20  # a hundred times what a base writes
_MAX_UNPACKER_BYTES = 128 << 20  # twice what LZMA's largest preset needs


def find_or_write(
    base: Path,
    tokens: int,
    seconds: float,
    cache: Path,
    progress: Progress | None = None,
    device: str = "auto",
) -> Path:
    """The file with a base's replay text: shipped with the base, cached, or written now.

    Newly written text has about `tokens` tokens, and takes about `seconds` at most.
    """
    if (base / SHIPPED).exists():
        return base / SHIPPED
    key = digest(model_fingerprint(base), f"{tokens} {seconds}")[:16]
    path = cache / f"replay-{key}.txt.xz"
    if not path.exists():
        model = Model.load(base, device=device)
        text = DIVIDER.join(sample_texts(model, tokens, seconds, progress))
        with translate_os_errors(path):
            cache.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lzma.compress(text.encode("utf-8")))
        cached = sorted(cache.glob("replay-*.txt.xz"), key=lambda file: file.stat().st_mtime)
        for old in cached[:-_MAX_CACHED]:
            old.unlink(missing_ok=True)
    return path


def read(path: Path) -> list[TrainingText]:
    """Read the texts in a replay file; ModelError if it is damaged."""
    unpacker = lzma.LZMADecompressor(memlimit=_MAX_UNPACKER_BYTES)
    try:
        data = unpacker.decompress(read_bytes(path, _MAX_BYTES), _MAX_BYTES)
        joined = data.decode("utf-8") if unpacker.eof else None
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is damaged ({error})", hint="delete it") from error
    if joined is None:
        reason = f"it breaks off, or unpacks to more than {_MAX_BYTES >> 20} MiB"
        raise ModelError(f"{path} is damaged ({reason})", hint="delete it")
    texts = [text for text in joined.split(DIVIDER) if text.strip()]
    return [TrainingText(f"replay/{number:06d}", text) for number, text in enumerate(texts)]


def without_opening(text: TrainingText) -> TrainingText:
    """A text without its first paragraph, which is its title, so that replay teaches no titles."""
    _, _, rest = text.text.partition("\n\n")
    return TrainingText(text.id, rest) if rest.strip() else text


def sample_texts(
    model: Model, tokens: int, seconds: float = math.inf, progress: Progress | None = None
) -> Iterator[str]:
    """Sample unprompted texts from a model, with seeds from 1 on, up to about `tokens` tokens."""
    length, ends = model.engine.context, time.perf_counter() + seconds
    unprompted = build_request(model.tokenizer, "", max_tokens=length, sampling=_UNCHANGED)
    scheduler = BatchScheduler(model.engine, rows=_BATCH_SIZE, length=length)
    ids: dict[GenerationState, list[int]] = {}
    seed = 0
    try:
        with (progress or Progress()).stage("Writing replay text", tokens, "tokens") as stage:
            while True:
                while len(ids) < _BATCH_SIZE and stage.done < tokens:
                    seed += 1
                    ids[scheduler.submit(replace(unprompted, seed=seed))] = []
                for handle, drawn, finished in scheduler.step():
                    ids[handle] += [token.id for token in drawn]
                    stage.advance(len(drawn))
                    if finished is not None:
                        yield model.tokenizer.decode(ids.pop(handle))
                if stage.done >= tokens or time.perf_counter() > ends:
                    break
        # Do not wait until the last texts end: it would take as long as all the others.
        yield from (model.tokenizer.decode(row) for row in ids.values() if row)
    finally:
        scheduler.close()
