"""How well the voice measure tells an author from others, on whole held-out posts.

    python bench/check.py TEXTS.txt.xz [--only SOURCE]... [--workspace FOLDER.ownwords]...
    python bench/check.py TEXTS.txt.xz --rewritten FILE.tsv
    python bench/check.py TEXTS.txt.xz --areas

A file holds documents that begin with the character U+001C and "source/number" on a line. A fifth
of each author's posts is held out; others' sources are held out as well. Prints the areas under the
ROC curve for passages of about 250 and 80 words, and the share of sentences that `check` marks: of
others' sentences, three of which are planted into each held-out post, and of the author's own.
With --areas it prints only the areas. All texts are in one language.

Each line of FILE has a source, a passage of a held-out post, and the same passage rewritten
neutrally. Prints how often a passage scores above a rewritten one: any, and its own.
"""

import argparse
import lzma
import random
import re
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from ownwords.archive.corpus import TrainingText, load_corpus
from ownwords.archive.store import Archive
from ownwords.drafts.check import AuthorStyle
from ownwords.evaluation.style import LENGTHS, CrossValidated, ReferenceAuthors, cut


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("texts", nargs="*", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--workspace", action="append", default=[], type=Path)
    parser.add_argument("--rewritten", type=Path)
    parser.add_argument("--areas", action="store_true")
    args = parser.parse_args()
    posts: dict[str, list[str]] = defaultdict(list)
    for path in args.texts:
        for document in lzma.decompress(path.read_bytes()).decode().split("\x1c")[1:]:
            name, _, text = document.partition("\n")
            posts[name.partition("/")[0]].append(text)
    for workspace in args.workspace:
        with Archive(workspace / "archive.sqlite") as archive:
            corpus = load_corpus(archive)
            sides = (corpus.train, corpus.validation, corpus.test)
            posts[workspace.stem] = [post.text for side in sides for post in side]
    others = ReferenceAuthors.of([post for of in posts.values() for post in of])
    if args.rewritten:
        against_rewritten(args.rewritten, posts, others)
        return
    for name in args.only or posts:
        found = [f"{words}: {auc:.3f}" for words, auc in areas(name, posts[name], others)]
        if args.areas:
            print(name, *found, flush=True)
            continue
        foreign, own, seconds = planted(name, posts, others)
        print(
            name, *found, f"marked: foreign {foreign:.2f}, own {own:.2f}; {seconds:.2f} s a draft"
        )


def split(posts: list[str]) -> tuple[list[str], list[str]]:
    """Return the posts to learn from, and those held out."""
    posts = [post for post in posts if len(post.split()) > 80]
    random.Random(0).shuffle(posts)
    return posts[len(posts) // 5 :], posts[: len(posts) // 5]


def planted(
    name: str, posts: dict[str, list[str]], others: ReferenceAuthors
) -> tuple[float, float, float]:
    """Return the marked shares of planted sentences and of the author's own, and the seconds."""
    training, held_out = split(posts[name])
    known = [TrainingText(str(n), text) for n, text in enumerate(training)]
    style = AuthorStyle.learn(known, without(name, others))
    rng = random.Random(1)
    theirs = [post for other in posts if other != name for post in split(posts[other])[1]]
    sentence = re.compile(r"(?<=[.!?] )[A-Z][^.!?\n]{40,200}[.!?](?= )")
    foreign = [found for post in theirs for found in sentence.findall(post)]
    marked: list[list[bool]] = [[], []]
    began = time.perf_counter()
    for post in held_out[:60]:
        paragraphs = post.split("\n\n")
        added = rng.sample(foreign, 3)
        for each in added:
            paragraphs.insert(rng.randrange(1, len(paragraphs) + 1), each)
        for each in style.check("\n\n".join(paragraphs)).sentences:
            if len(each.text.split()) >= 8:
                marked[each.text not in added].append(each.is_marked)
    seconds = (time.perf_counter() - began) / len(held_out[:60])
    return float(np.mean(marked[0])), float(np.mean(marked[1])), seconds


def against_rewritten(path: Path, posts: dict[str, list[str]], others: ReferenceAuthors) -> None:
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    for name in dict.fromkeys(row[0] for row in rows):
        training, _ = split(posts[name])
        known = [TrainingText(str(n), text) for n, text in enumerate(training)]
        style = AuthorStyle.learn(known, without(name, others))
        own, neutral = (
            np.array([style.check(row[side]).yours for row in rows if row[0] == name])
            for side in (1, 2)
        )
        area = float((own[:, None] > neutral).mean())
        print(f"{name}: area {area:.3f}, of the same {(own > neutral).mean():.3f}, {len(own)}")


def without(name: str, others: ReferenceAuthors) -> ReferenceAuthors:
    """Return the other authors, without this one."""
    away = [n for n, source in enumerate(others.source_of) if others.sources[source] != name]
    return replace(
        others,
        passages=tuple(others.passages[n] for n in away),
        source_of=tuple(others.source_of[n] for n in away),
    )


def areas(name: str, posts: list[str], others: ReferenceAuthors) -> list[tuple[str, float]]:
    """Return the area under the ROC curve by passage length; the others exclude the author."""
    training, held_out = split(posts)
    others = without(name, others)
    found = []
    for length, words in zip(LENGTHS, ("250", "80"), strict=True):
        known = CrossValidated(
            [others.vocabulary.pairs(post) for post in training],
            others.passages,
            others.source_of,
            others.vocabulary.size,
            length,
        )
        real, _ = cut([others.vocabulary.pairs(post) for post in held_out], length)
        ranked = [
            float((model.score(passage) > np.array([row.mean() for row in theirs])).mean())
            for model, theirs in zip(known.models, known.others, strict=True)
            for passage in real
        ]
        found.append((f"{words} words", float(np.mean(ranked))))
    return found


if __name__ == "__main__":
    main()
