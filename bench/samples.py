"""Twenty unedited texts by a model, with the first seeds and without selection.

    python bench/samples.py WORKSPACE --out docs/samples.md
    python bench/samples.py WORKSPACE --openings 40         only how 40 texts begin, unprompted

Half start from an empty prompt, half from titles of test posts. Above them are the shares of
made-up words and broken sentences, and those of the author's own held-out posts.
"""

import argparse
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import ownwords
from ownwords.archive import corpus
from ownwords.archive.store import Archive
from ownwords.core.workspace import Workspace, write_atomically
from ownwords.evaluation.fluency import fluency
from ownwords.evaluation.intervals import PairedEstimate
from ownwords.language.words import Lexicon

HOW_MANY = 20
TOKENS, OPENING_TOKENS = 300, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--out", type=Path, help="a Markdown file; printed unless given")
    parser.add_argument("--openings", type=int, default=0)
    args = parser.parse_args()
    workspace = Workspace(args.workspace)
    if args.openings:
        model = ownwords.load(workspace.root / "model")
        seeds = range(1, args.openings + 1)
        for text in model.write_several("", seeds=seeds, max_tokens=OPENING_TOKENS):
            print(f"---\n{text.strip()}")
        return
    with Archive(workspace.archive) as archive:
        posts = corpus.load_corpus(archive)
    model = ownwords.load(workspace.root / "model")
    titles = [post.title for post in posts.test if post.title]
    prompts = [""] * (HOW_MANY // 2)
    prompts += [f"{titles[number % len(titles)]}\n\n" for number in range(HOW_MANY - len(prompts))]
    texts = [
        "".join(model.write(prompt, seed=seed, max_tokens=TOKENS))
        for seed, prompt in enumerate(prompts, start=1)
    ]
    scores = fluency(
        texts,
        [post.text for post in posts.test],
        [post.text for post in posts.train],
        Lexicon.load(),
    )
    lines = [
        f"# {HOW_MANY} texts of one model",
        "",
        f"Written by `python bench/samples.py WORKSPACE`: seeds 1 to {HOW_MANY}, at most {TOKENS} "
        "tokens each, the settings of `ownwords write`; nothing selected, nothing edited.",
        "",
        "Compared with the author's own held-out posts: "
        f"{_percent(scores.non_words)} of its words are not real words, "
        f"{_percent(scores.broken)} of its sentences are broken, "
        f"{_percent(scores.repeated)} of its runs of four words repeat earlier ones in the same"
        " text.",
    ]
    for seed, (prompt, text) in enumerate(zip(prompts, texts, strict=True), start=1):
        title = prompt.strip()
        lines += ["", f"## {seed}" + (f": {title}" if title else ", from an empty prompt"), ""]
        # In a fence, so that nothing in the text is read as markup.
        lines += ["````text", text.strip("\n"), "````"]
    report = "\n".join(lines) + "\n"
    if args.out:
        write_atomically(args.out, report)
    else:
        print(report)


def _percent(figure: PairedEstimate | None) -> str:
    if figure is None:
        return "not known"
    return f"{figure.samples.value:.1%} (theirs: {figure.held_out.value:.1%})"


if __name__ == "__main__":
    main()
