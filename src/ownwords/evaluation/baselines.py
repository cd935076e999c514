"""What needs no neural network: compressors and counted models, on the same held-out documents.

Each is primed with the training documents and then scores every held-out one from that state, with
nothing of the other held-out ones in it. xz, gzip and PPM go on learning within the document, as
compressors do; Kneser-Ney does not.
"""

import lzma
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ownwords.core.progress import Progress
from ownwords.evaluation.ngram import KneserNey
from ownwords.evaluation.ppm import PPM
from ownwords.evaluation.scores import DocumentScore, Score

_LEAST_DICTIONARY, _LARGEST_DICTIONARY = 1 << 20, 3 << 29  # bytes; liblzma takes no more


@dataclass(frozen=True, slots=True)
class Baseline:
    """A name, how it was primed and whether it adapts, and what it makes of the documents."""

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
    """All of them, for up to some 10 MB of training text: the models are counted in Python."""
    progress = Progress() if progress is None else progress
    known = [text.encode() for text in training]
    documents = [text.encode() for text in held_out]
    all_names = list(names) or [str(i) for i in range(len(documents))]
    found = []
    with progress.stage("baselines", 4 * len(documents), "documents") as stage:

        def scored(name: str, how: str, nats: Callable[[bytes], float]) -> None:
            rows = []
            for title, document in zip(all_names, documents, strict=True):
                rows.append(DocumentScore(title, nats(document), len(document), len(document) + 1))
                stage.advance()
            found.append(Baseline(name, how, Score(tuple(rows))))

        joined = b"\n".join(known)
        for name, packed in (("xz", xz_bytes), ("gzip", gzip_bytes)):
            alone = packed(joined)
            scored(
                name,
                "what a document adds to the packed training text",
                lambda document, packed=packed, alone=alone: (  # type: ignore[misc]
                    (packed(joined + b"\n" + document) - alone) * 8 * math.log(2)
                ),
            )
        ppm = PPM(ppm_order)
        ppm.learn(known)
        scored("PPM", f"method D, order {ppm_order}, exact; adapts within a document", ppm.nats)
        ngram = KneserNey(known, ngram_order)
        scored("Kneser-Ney", f"{ngram_order}-grams of bytes, interpolated; static", ngram.nats)
    return found


def xz_bytes(data: bytes) -> int:
    """How small LZMA makes it at its slowest, all of it within reach of its end."""
    size = max(_LEAST_DICTIONARY, 1 << max(0, len(data) - 1).bit_length())
    chain = [
        {
            "id": lzma.FILTER_LZMA2,
            "preset": 9 | lzma.PRESET_EXTREME,
            "dict_size": min(size, _LARGEST_DICTIONARY),
        }
    ]
    # Raw: a container's header and check tell nothing about the text.
    return len(lzma.compress(data, format=lzma.FORMAT_RAW, filters=chain))


def gzip_bytes(data: bytes) -> int:
    """How small deflate makes it; it reaches back 32 kB only."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return len(packer.compress(data) + packer.flush())
