"""Count how others and language models write, for the voice card; write `manner.npz.xz`.

    python base/manner.py modern-1.txt.xz
    python base/manner.py --language de german.txt.xz

The file holds documents that begin with the character U+001C and, on a line, their name, such as
"source/number". The package gets rates, and no text. Language models are counted in English only.
"""

import argparse
import io
import json
import lzma
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from machine_prose import MACHINES
from ownwords.core.workspace import write_atomically
from ownwords.evaluation.manner import count_text, measures, rates
from ownwords.evaluation.style import reference_file
from reference import OUT, documents, evenly

DOCUMENTS = 50  # of a source
MIN_SPREAD = 0.25  # share of the sources that have a word
MAX_STORED = 65_000  # what 16 bits can hold: "de" is more than that in a million Spanish words
# Language models wrote only single paragraphs, with straight quotation marks.
NOT_OF_MACHINES = (
    *("Words in a paragraph", "Paragraphs of one sentence"),
    *("Dashes", "Ellipses", "Words in quotation marks"),
)  # nor anything of group "ends"


def main() -> int:
    """Count each source's documents and all paragraphs by machines; write the rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modern", type=Path)
    parser.add_argument("--language", default="en")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    texts: dict[str, list[str]] = defaultdict(list)
    for name, text in documents(args.modern):
        texts[name.partition("/")[0]].append(text)
    code, people, words_of = args.language, [], list[dict[str, float]]()
    for _, found in sorted(texts.items()):
        counted = [count_text(text, code) for text in evenly(found, DOCUMENTS)]
        people.append(rates(counted)[0])
        words = sum((each.words for each in counted), Counter[str]())
        words_of.append({word: 1e6 * n / words.total() for word, n in words.items()})
    machines, counted = np.full(len(measures(code)), np.nan), []
    if code == "en":
        with lzma.open(MACHINES, "rt", encoding="utf-8") as file:
            counted = [count_text(json.loads(line)["text"]) for line in file]
        machines = rates(counted)[0]
        machines[[each.group == "ends" or each.label in NOT_OF_MACHINES for each in measures()]] = (
            np.nan
        )
    by_machines = sum((each.words for each in counted), Counter[str]())
    spread = Counter(word for words in words_of for word in words)
    known = sorted(word for word, n in spread.items() if n >= MIN_SPREAD * len(texts))
    by_people = [np.mean([words.get(word, 0) for words in words_of]) for word in known]
    total = max(1, by_machines.total()) / 1e6
    stored = {
        "people": np.array(people),
        "machines": machines,
        "spread": np.array([spread[word] / len(texts) for word in known]),
        "by_people": np.array(by_people),
        "by_machines": np.array([by_machines[word] / total for word in known]),
    }
    file = io.BytesIO()
    np.savez(
        file,
        labels=np.frombuffer("\n".join(each.label for each in measures(code)).encode(), np.uint8),
        words=np.frombuffer("\n".join(known).encode(), np.uint8),
        **{
            name: np.minimum(array, MAX_STORED).astype(np.float16) for name, array in stored.items()
        },
    )
    path = args.out / reference_file("manner", code)
    write_atomically(path, lzma.compress(file.getvalue(), preset=9))
    print(f"{len(texts)} sources, {len(known):,} words; {path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
