"""Baselines without a neural network: compressors and an n-gram model on the same held-out texts.

Each baseline is primed with the training documents and scores every held-out document from that
state, independently of the others. xz and PPM adapt within a document; Kneser-Ney does not.
"""

import lzma
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ownwords.core.progress import Progress
from ownwords.evaluation.ngram import KneserNey
from ownwords.evaluation.ppm import PPM
from ownwords.evaluation.scores import DocumentScore, Score

_MIN_DICTIONARY, _MAX_DICTIONARY = 1 << 20, 3 << 29  # bytes; the maximum is liblzma's limit


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline's name, method and score."""

    name: str
    how: str
    score: Score


def baselines(
    training: Sequence[str],
    held_out: Sequence[str],
    *,
    names: Sequence[str] = (),
    progress: Progress | None = None,
    ppm_order: int = 5,
    ngram_order: int = 7,
) -> list[Baseline]:
    """Score all baselines; meant for up to about 10 MB of training text, as they run in Python."""
    known = [text.encode() for text in training]
    documents = [text.encode() for text in held_out]
    joined = b"\n".join(known)
    joined_size = xz_bytes(joined)

    def xz_nats(document: bytes) -> float:
        return (xz_bytes(joined + b"\n" + document) - joined_size) * 8 * math.log(2)

    def ppm() -> Callable[[bytes], float]:
        model = PPM(ppm_order)
        model.learn(known)
        return model.nats

    rivals: tuple[tuple[str, str, Callable[[], Callable[[bytes], float]]], ...] = (
        ("xz", "what a document adds to the packed training text", lambda: xz_nats),
        ("PPM", f"method D, order {ppm_order}, exact; adapts within a document", ppm),
        (
            "Kneser-Ney",
            f"{ngram_order}-grams of bytes, interpolated; static",
            lambda: KneserNey(known, ngram_order).nats,
        ),
    )
    titles = list(names) or [str(i) for i in range(len(documents))]
    rows = []
    progress = progress or Progress()
    with progress.stage("baselines", len(rivals) * len(documents), "documents") as stage:
        for name, how, prime in rivals:
            nats, scores = prime(), []
            for title, document in zip(titles, documents, strict=True):
                size = len(document)
                scores.append(DocumentScore(title, nats(document), size, size + 1))
                stage.advance()
            rows.append(Baseline(name, how, Score(tuple(scores))))
    return rows


def xz_bytes(data: bytes) -> int:
    """Return the size of the data under the strongest LZMA preset.

    The dictionary spans all data, up to liblzma's limit.
    """
    size = max(_MIN_DICTIONARY, 1 << max(0, len(data) - 1).bit_length())
    chain = [
        {
            "id": lzma.FILTER_LZMA2,
            "preset": 9 | lzma.PRESET_EXTREME,
            "dict_size": min(size, _MAX_DICTIONARY),
        }
    ]
    # Raw format: the header and checksum of a container do not depend on the text.
    return len(lzma.compress(data, format=lzma.FORMAT_RAW, filters=chain))
