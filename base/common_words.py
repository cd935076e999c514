"""Count the most frequent words and marks of English prose, which a trimmed vocabulary keeps.

    python base/common_words.py FILE.txt.xz [FILE.txt.xz ...]

The files hold documents that begin with the character U+001C and a line with their name, as
base/fetch_books.py writes them. The most frequent pieces that are in several documents are written
in order to `common.txt.xz` in src/ownwords/evaluation/reference: words with their capitals and the
space before them, numbers of up to three digits, groups of marks. It holds no text.
"""

import lzma
import random
import re
import sys
from collections import Counter
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "src" / "ownwords" / "evaluation" / "reference"
PIECE = re.compile(r" ?[^\W\d_]+(?:['’][^\W\d_]+)?| ?\d{1,3}| ?[^\w\s]+")
# Each use of a word that is left out costs 11 bits, because the base has never seen the word in
# pieces: with 24,000 words, this was one token in fifty, and 4% of all bits.
KEPT = 76_000
MIN_DOCUMENTS = 3
LONGEST = 24  # characters
DOCUMENT_CHARACTERS = 60_000  # of each, so that none dominates
FILE_CHARACTERS = 40_000_000


def main(paths: list[Path]) -> None:
    """Read the files, count, write."""
    counts: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            texts = file.read().split("\x1c")
        random.Random(1).shuffle(texts)
        read = 0
        for text in texts:
            own = Counter(PIECE.findall(text.partition("\n")[2][:DOCUMENT_CHARACTERS]))
            counts.update(own)
            documents.update(own.keys())
            read += min(len(text), DOCUMENT_CHARACTERS)
            if read > FILE_CHARACTERS:
                break
    common = [
        piece
        for piece, _ in counts.most_common()
        if documents[piece] >= MIN_DOCUMENTS and len(piece) <= LONGEST
    ]
    frequent = sorted(common[:KEPT])
    data = lzma.compress("\n".join(frequent).encode(), preset=9 | lzma.PRESET_EXTREME)
    (OUT / "common.txt.xz").write_bytes(data)
    print(f"{len(frequent):,} pieces, {len(data):,} bytes")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
