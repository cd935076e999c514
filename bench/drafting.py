"""How much of the notes `ownwords draft` keeps, on posts that the model has not read.

    python bench/drafting.py WORKSPACE MODEL --paragraphs 30
    python bench/drafting.py WORKSPACE MODEL --paragraphs 14 --prompted BASE --blind FILE
    python bench/drafting.py WORKSPACE MODEL --jotted    notes of that name in jotted_notes.txt

The notes are made by rule from paragraphs of the workspace's test posts, some full, some terse, as
for training; MODEL has learned to write from notes. Prints the share of their content words that
the written lines keep, how many lines stay notes, and what is made up, then the bits per byte of
the author's own paragraphs with and without their notes, and the drafts.

With --prompted and --blind, FILE gets each draft beside a text that BASE, an instruction-tuned
model, writes from the same notes and three of the author's passages. Their order is random and
stored in FILE.key, so that a reader can judge them blind.
"""

import argparse
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ownwords.archive.corpus import load_corpus
from ownwords.archive.store import Archive
from ownwords.core.workspace import Workspace
from ownwords.drafts import drafting, notes
from ownwords.drafts.check import AuthorStyle
from ownwords.drafts.facts import Content
from ownwords.evaluation.intervals import ratio_interval
from ownwords.evaluation.style import ReferenceAuthors
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING

_WORDS = 20  # of a paragraph whose style is measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workspace", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--paragraphs", type=int, default=30)
    parser.add_argument("--jotted", action="store_true", help="notes that a reader jotted down")
    parser.add_argument("--prompted", type=Path, help="the folder of a model that takes orders")
    parser.add_argument("--blind", type=Path, default=Path("blind.txt"))
    args = parser.parse_args()
    if args.jotted:
        return write_jotted(args.workspace.stem, Model.load(args.model))
    with Archive(Workspace(args.workspace).archive) as archive:
        corpus = load_corpus(archive)
    pairs = [pair for post in corpus.test for pair in notes.pairs(post)]
    random.Random(1).shuffle(pairs)
    model = Model.load(args.model)
    rival = Model.load(args.prompted) if args.prompted else None
    passages = [pair.text for post in list(corpus.train)[:40] for pair in notes.pairs(post)]
    passages = random.Random(1).sample([text for text in passages if len(text) > 300], 3)
    coin, beside, key = random.Random(str(args.workspace)), "", ""
    texts: dict[str, list[str]] = {"the author": [], "the drafts": []}
    lines: list[drafting.DraftLine] = []
    invented: list[str] = []
    bits, sizes = {"with": 0.0, "without": 0.0}, 0
    for number, pair in enumerate(pairs[: args.paragraphs], 1):
        noted = [line[2:] for line in pair.prompt.split("\n") if line.startswith("- ")]
        draft = drafting.Draft(
            tuple(drafting.write_lines(model, drafting.Notes("", (tuple(noted),))))
        )
        lines += draft.lines
        written = " ".join(line.text for line in draft.lines if line.kept)
        invented += Content.of(written).invented(Content.of("\n".join(noted)))
        bits["with"] += model.score(pair.prompt, [pair.text])[0]
        bits["without"] += model.score("", [pair.text])[0]
        sizes += pair.bytes
        print(f"\nWAS {pair.text}\nNOW {draft}")
        texts["the author"].append(pair.text)
        texts["the drafts"].append(str(draft))
        if rival:
            both = [str(draft), prompted(rival, passages, noted)]
            texts.setdefault("the rival", []).append(both[1])
            ours = coin.randrange(2)
            listed = "\n".join(f"- {note}" for note in noted)
            beside += f"\n{number}\n{listed}\nA: {both[ours]}\nB: {both[1 - ours]}\n"
            key += f"{number}\t{'BA'[ours == 0]}\n"
            args.blind.write_text(beside, "utf-8")
            args.blind.with_suffix(".key").write_text(key, "utf-8")
    kept = [line for line in lines if line.kept]
    shares = [Content.of(x.text).share_of(Content.of(x.note)) for x in kept]
    per_byte = {name: total / sizes for name, total in bits.items()}
    print(f"\n{args.workspace.name}, {args.model}: {min(args.paragraphs, len(pairs))} paragraphs")
    print(f"lines written {len(kept)} of {len(lines)}, the others stay notes")
    print(f"content words kept in them {np.mean(shares):.3f}; made up {invented or 'nothing'}")
    print(f"bits per byte with notes {per_byte['with']:.3f}, without {per_byte['without']:.3f}")
    tell_style(AuthorStyle.learn(list(corpus.train), ReferenceAuthors.load()), texts)


def write_jotted(blog: str, model: Model) -> None:
    """Write drafts from a blog's notes in jotted_notes.txt, and count the written lines."""
    written = total = 0
    for block in Path(__file__).with_name("jotted_notes.txt").read_text("utf-8").split("\n\n"):
        if block.startswith(f"### {blog}\n"):
            found = drafting.Notes.parse(block.partition("\n")[2])
            draft = drafting.Draft(tuple(drafting.write_lines(model, found)))
            print(f"{block}\nNOW {draft}\n")
            written += sum(line.kept for line in draft.lines)
            total += len(draft.lines)
    print(f"{blog}: {written} of {total} lines written")


def tell_style(style: AuthorStyle, texts: dict[str, list[str]]) -> None:
    """Print how much paragraphs are like the author's, as `ownwords check` measures it."""
    for who, paragraphs in texts.items():
        each = [style.check(text).yours for text in paragraphs if len(text.split()) >= _WORDS]
        print(f"paragraphs by {who}, the author's by their style: {np.mean(each):.2f}", end=" ")
        print(ratio_interval(each, [1.0] * len(each)))


def prompted(model: Model, passages: list[str], noted: list[str]) -> str:
    """Return what an instruction-tuned model writes from notes without having learned to."""
    examples = "\n\n".join(passages)
    listed = "\n".join(f"- {note}" for note in noted)
    order = (
        f"Here are three passages that I have written:\n\n{examples}\n\nTurn these notes of mine"
        f" into one paragraph in my style. Keep every fact, add none, and write nothing else:\n"
        f"{listed}"
    )
    template = ImmutableSandboxedEnvironment().from_string(model.tokenizer.template or "")
    conversation = template.render(
        messages=[{"role": "user", "content": order}], add_generation_prompt=True
    )
    request = model.request(
        model.tokenizer.encode(conversation, special=True),
        max_tokens=40 + len(listed) // 2,
        sampling=replace(DEFAULT_SAMPLING, temperature=0.7),
    )
    return " ".join("".join(model.stream(request)).split())


if __name__ == "__main__":
    main()
