"""What quantisation costs: bits/byte on held-out text, beside llama.cpp on the same text.

    python bench/quality.py MODEL                  the columnist's posts that no model has read
    python bench/quality.py MODEL --text FILE      another text, its documents separated by U+001C
    python bench/quality.py MODEL --limit 20000    about 20,000 bytes of it

MODEL is a model directory; nothing is trained. Each document is read on its own, its end included,
in windows of the model's context that overlap by half. Every engine reads the same ids in the same
windows; "torch f32" is computed by other code, evaluation/bits_per_byte.py. llama.cpp's Q8_0 and
Q4_0 are made by llama.cpp; "Q4_0 throughout" is our export, in which embedding and head are Q4_0,
too. "lost" is the increase over float32 in the same engine.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import run
from bench.random_models import QUANTISED, quantise

if TYPE_CHECKING:
    from ownwords.tokenizers.tokenizer import Tokenizer

OURS = ("f32", "bf16", "int8")
THEIRS = {"f32": "F32", "bf16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0", "all": "Q4_0 throughout"}
SEPARATOR = "\x1c"
PIECE = 128  # ids read at a time, whose logits are in memory together
THREADS = 2

# Reads a piece of a window, a new window if the second is true; returns the logits after each id.
Reader = Callable[[Sequence[int], bool], npt.NDArray[np.float32]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--limit", type=int, default=0, help="about so many bytes; 0: all")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        engine, source, texts = arguments.child
        documents = Path(texts).read_text(encoding="utf-8").split(SEPARATOR)
        print(json.dumps({"bits": bits(arguments.model, engine, source, documents)}))
        return 0
    model = arguments.model.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        texts = Path(scratch) / "texts"
        documents = held_out(arguments.text, arguments.limit)
        texts.write_text(SEPARATOR.join(documents), encoding="utf-8")
        size = sum(len(document.encode()) for document in documents)
        print(f"{arguments.model}: {len(documents)} documents, {size:,} bytes held out", flush=True)
        _rows(model, texts, [("torch f32", "torch", "f32")])
        _rows(model, texts, [(f"ours {kind}", "ours", kind) for kind in OURS])
        files = gguf_files(model, Path(scratch))
        named = [(f"llama.cpp {THEIRS[kind]}", "llama", str(files[kind])) for kind in THEIRS]
        _rows(model, texts, named)
    return 0


def _rows(model: Path, texts: Path, rows: Sequence[tuple[str, str, str]]) -> None:
    exact: float | None = None
    for name, engine, source in rows:
        try:
            ran = run("quality", str(model), "--child", engine, source, str(texts))
            note = ""
        except SystemExit:
            if engine != "llama":
                raise
            ran = run("quality", str(model), "--child", "plain", source, str(texts))
            note = "  without its layouts"
        bits_per_byte = float(ran.figures["bits"])
        exact = exact or bits_per_byte
        print(
            f"{name:26} {bits_per_byte:.5f} bits/byte {bits_per_byte / exact - 1:+9.3%} lost{note}",
            flush=True,
        )


def held_out(text: Path | None, limit: int) -> list[str]:
    """Return documents up to a number of bytes; the last one is cut."""
    if text is not None:
        texts = [
            text_part
            for text_part in text.read_text(encoding="utf-8").split(SEPARATOR)
            if text_part.strip()
        ]
    else:
        from bench.data_efficiency import SITE, sides

        if not SITE.exists():
            raise SystemExit("the columnist's site is not beside the repository: give --text")
        texts = [text_part.text for text_part in sides().held_out]
    texts_kept, left = [], limit or math.inf
    for text_part in texts:
        if left > 0:
            texts_kept.append(text_part if left == math.inf else text_part[: int(left)])
        left -= len(text_part.encode())
    return texts_kept


def gguf_files(model: Path, folder: Path) -> dict[str, Path]:
    from ownwords.inference.export import export

    types = {"f32": "f32", "bf16": "bf16", "all": "q4_0"}
    files = {kind: folder / f"{kind}.gguf" for kind in THEIRS}
    for kind, type in types.items():
        export(model, "gguf", out=files[kind], type=type)
    for kind in QUANTISED:
        quantise(files["f32"], files[kind], kind)
    return files


def bits(model: Path, engine: str, source: str, documents: Sequence[str]) -> float:
    """Return the bits per byte of these documents, read by an engine."""
    from ownwords.models import directory
    from ownwords.tokenizers import tokenizer

    opened = directory.read(model)
    its_own = tokenizer.Tokenizer(opened.tokenizer_files)
    if engine == "torch":
        from ownwords.evaluation.bits_per_byte import score
        from ownwords.models import bundle

        return score(bundle.load(model).model, its_own, documents).bits_per_byte
    context = opened.config.context
    if engine == "ours":
        read = _ours(model, source, context)
    else:
        read = _llama(Path(source), context, repacked=engine == "llama")
    nats = sum(_nats(read, ids, context) for ids in _encoded(its_own, documents))
    return nats / math.log(2) / sum(len(document.encode()) for document in documents)


def _encoded(tokenizer: "Tokenizer", documents: Sequence[str]) -> Iterator[list[int]]:
    """Yield the ids of each document with its start and end tokens."""
    before = tokenizer.end if tokenizer.start is None else tokenizer.start
    for document in documents:
        ids = [] if before is None else [before]
        ids += tokenizer.encode(document)
        yield ids if tokenizer.end is None else [*ids, tokenizer.end]


def _nats(read: Reader, ids: Sequence[int], context: int) -> float:
    """Return the nats of all ids but the first."""
    lost, scored = 0.0, 1  # `scored` counts the ids that are scored or given
    begin = 0
    while scored < len(ids):
        window = ids[begin : begin + context + 1]
        for first in range(0, len(window) - 1, PIECE):
            piece = window[first : min(first + PIECE, len(window) - 1)]
            scores_NV = read(piece, first == 0).astype(np.float64)
            scores_NV -= scores_NV.max(-1, keepdims=True)
            scores_NV -= np.log(np.exp(scores_NV).sum(-1, keepdims=True))
            for at, scores_V in enumerate(scores_NV, begin + first + 1):
                if at >= scored:
                    lost -= float(scores_V[ids[at]])
        scored = begin + len(window)
        begin += context // 2
    return lost


def _ours(model: Path, kind: str, context: int) -> Reader:
    from ownwords.inference.model import load_engine
    from ownwords.models import directory

    engine = load_engine(
        model,
        directory.read(model).config,
        device="cpu",
        weights=kind,  # type: ignore[arg-type]
        threads=THREADS,
    )
    if not engine.name.startswith("native"):
        raise SystemExit(f"the native engine is not there; what serves is {engine.name}")
    cache = engine.cache(1, context)

    def read(ids: Sequence[int], begins: bool) -> npt.NDArray[np.float32]:
        if begins:
            cache.truncate(0, 0)
        return cache.forward({0: ids}, all_positions=True)

    return read


def _llama(path: Path, context: int, *, repacked: bool) -> Reader:
    from bench.llama import Llama

    llama = Llama(path, rows=1, length=context, threads=THREADS, repacked=repacked)

    def read(ids: Sequence[int], begins: bool) -> npt.NDArray[np.float32]:
        if begins:
            llama.clear()
        return llama.read([(0, ids)], every=True)

    return read


if __name__ == "__main__":
    sys.exit(main())
