"""What `ownwords draft` keeps of notes, on posts that the model has not read.

    python bench/drafting.py WORKSPACE MODEL --paragraphs 30

The notes are made by rule of paragraphs of the workspace's test posts, as somebody takes them who
writes full notes; MODEL has learned to write from notes. Prints what of their content words the
written lines keep, how many lines stay notes, and what is made up, then the bits per byte of the
author's own paragraphs with and without their notes, and the drafts.
"""

import argparse
import random
from pathlib import Path

import numpy as np

from ownwords.archive.corpus import load_corpus
from ownwords.archive.store import Archive
from ownwords.core.workspace import Workspace
from ownwords.drafts import drafting, notes
from ownwords.inference.model import Model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workspace", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--paragraphs", type=int, default=30)
    args = parser.parse_args()
    with Archive(Workspace(args.workspace).archive) as archive:
        posts = list(load_corpus(archive).test)
    pairs = [pair for post in posts for pair in notes.pairs(post)]
    random.Random(1).shuffle(pairs)
    model = Model.load(args.model)
    lines: list[drafting.DraftLine] = []
    invented: list[str] = []
    bits, sizes = {"with": 0.0, "without": 0.0}, 0
    for pair in pairs[: args.paragraphs]:
        marked = [line[2:] for line in pair.prompt.split("\n") if line.startswith("- ")]
        noted = [part for line in marked for part in line.split("; ")]
        draft = drafting.draft(model, drafting.Notes("", (tuple(noted),)))
        lines += draft.lines
        written = " ".join(line.text for line in draft.lines if line.kept)
        invented += notes.Content.of(written).invented("\n".join(noted))
        bits["with"] += drafting.bits(model, pair.prompt, pair.text)
        bits["without"] += drafting.bits(model, "", pair.text)
        sizes += pair.bytes
        print(f"\nWAS {pair.text}\nNOW {draft}")
    kept = [line for line in lines if line.kept]
    shares = [notes.Content.of(x.text).share_of(notes.Content.of(x.note)) for x in kept]
    per_byte = {name: total / sizes for name, total in bits.items()}
    print(f"\n{args.workspace.name}, {args.model}: {min(args.paragraphs, len(pairs))} paragraphs")
    print(f"lines written {len(kept)} of {len(lines)}, the others stay notes")
    print(f"content words kept in them {np.mean(shares):.3f}; made up {invented or 'nothing'}")
    print(f"bits per byte with notes {per_byte['with']:.3f}, without {per_byte['without']:.3f}")


if __name__ == "__main__":
    main()
