"""Text that a base model writes itself, to be read in between so that it forgets less.

What it was trained on is seldom at hand, and would be hundreds of times its size; what it writes,
drawn from its own probabilities as they are, has the same words in the same places on average.
"""

import lzma
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.workspace import translate_os_errors, write_atomically
from ownwords.inference.model import Model
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.scheduler import BatchScheduler, RequestHandle
from ownwords.inference.text_generation import build_request
from ownwords.models.fingerprint import model_fingerprint
from ownwords.models.untrusted_files import ModelError
from ownwords.training.shards import TrainingText

# A model directory may bring its own, so that nobody has to wait for it.
BROUGHT = "rehearsal.txt.xz"
DIVIDER = "\x1c"
_AT_ONCE = 32  # as many texts keep the matrix units busy
_AS_IT_IS = SamplingParams(temperature=1.0)
_KEPT = 4  # rehearsals in the cache


def rehearsal(
    base: Path, tokens: int, seconds: float, cache: Path, progress: Progress | None = None
) -> list[TrainingText]:
    """About so many tokens in whole texts, brought by the base or written by it now.

    It writes no longer than so many seconds. What was written is kept in the folder `cache`, so
    that the same base need not write it again.
    """
    if (base / BROUGHT).exists():
        return _read(base / BROUGHT)
    path = cache / f"rehearsal-{_key(base, tokens, seconds)}.txt.xz"
    if not path.exists():
        model = Model.load(base)
        written = DIVIDER.join(written_by(model, tokens, seconds, progress))
        with translate_os_errors(path):
            cache.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lzma.compress(written.encode("utf-8")))
        older = sorted(cache.glob("rehearsal-*.txt.xz"), key=lambda each: each.stat().st_mtime)
        for each in older[:-_KEPT]:
            each.unlink(missing_ok=True)
    return _read(path)


def written_by(
    model: Model, tokens: int, seconds: float = math.inf, progress: Progress | None = None
) -> Iterator[str]:
    """What a model writes when it is asked for nothing in particular, by seeds from 1 on."""
    length, ends = model.engine.context, time.perf_counter() + seconds
    asked = build_request(model.tokenizer, "", max_tokens=length, sampling=_AS_IT_IS)
    scheduler = BatchScheduler(model.engine, rows=_AT_ONCE, length=length)
    ids: dict[RequestHandle, list[int]] = {}
    begun = 0
    try:
        with (progress or Progress()).stage("Rehearsing", tokens, "tokens") as stage:
            while True:
                while len(ids) < _AT_ONCE and stage.done < tokens:
                    begun += 1
                    ids[scheduler.submit(replace(asked, seed=begun))] = []
                for handle, drawn, finished in scheduler.step():
                    ids[handle] += [one.id for one in drawn]
                    stage.advance(len(drawn))
                    if finished is not None:
                        yield model.tokenizer.decode(ids.pop(handle))
                if stage.done >= tokens or time.perf_counter() > ends:
                    break
        # Those cut short are whole enough, and to wait for the last would take as long as for all.
        yield from (model.tokenizer.decode(each) for each in ids.values() if each)
    finally:
        scheduler.close()


def _read(path: Path) -> list[TrainingText]:
    try:
        joined = lzma.decompress(path.read_bytes()).decode("utf-8")
    except (lzma.LZMAError, UnicodeDecodeError, EOFError) as error:
        raise ModelError(f"{path} is damaged ({error})", hint="delete it") from error
    parts = [part for part in joined.split(DIVIDER) if part.strip()]
    return [TrainingText(f"rehearsal/{number:06d}", part) for number, part in enumerate(parts)]


def _key(base: Path, tokens: int, seconds: float) -> str:
    return digest(model_fingerprint(base), f"{tokens} {seconds}")[:16]
