"""Learns to tell prose by large language models from prose by people; writes `machines.npz.xz`.

    python base/machine_prose.py modern-1.txt.xz

The file holds documents that begin with the character U+001C and, on a line, their name, such as
"source/number". For each paragraph in `base/machines`, the paragraph by a person that it was made
from is looked up there. A logistic regression on how often tokens and pairs of tokens occur is
fitted; the package gets its weights, and no text. Printed is the area under the ROC curve for
paragraphs of sources that the regression has not seen.
"""

import argparse
import io
import json
import lzma
import sys
from pathlib import Path

import numpy as np

from ownwords.core.fingerprint import digest
from ownwords.core.workspace import write_atomically
from ownwords.evaluation.style import (
    MACHINES_FILE,
    UNIT,
    MachineProse,
    Pairs,
    ReferenceAuthors,
    Vector,
    tokens_and_pairs,
    values_of,
)
from reference import OUT, documents

MACHINES = Path(__file__).parent / "machines" / "paragraphs.jsonl.xz"
FOLDS = 5
MIN_PARAGRAPHS = 5  # that have a feature
RIDGE = 15.0  # the prior of the weights; with 5 the area of unseen sources is .001 larger
STEPS = 25  # of Newton's method at most


def main() -> int:
    """Fit the regression without each fold of sources, to judge it, and with all; write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modern", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    vocabulary = ReferenceAuthors.load().vocabulary
    with lzma.open(MACHINES, "rt", encoding="utf-8") as file:
        written = [json.loads(line) for line in file]
    wanted = {(row["of"], row["digest"]) for row in written}
    names = {name for name, _ in wanted}
    originals = {
        (name, key): paragraph
        for name, text in documents(args.modern)
        if name in names
        for paragraph in map(str.strip, text.split("\n\n"))
        if (name, key := digest(paragraph)[:16]) in wanted
    }
    rows = [row for row in written if (row["of"], row["digest"]) in originals]
    people = [vocabulary.pairs(originals[row["of"], row["digest"]]) for row in rows]
    machines = [vocabulary.pairs(row["text"]) for row in rows]
    sources = sorted({row["of"].partition("/")[0] for row in rows})
    fold_of = np.array([sources.index(row["of"].partition("/")[0]) % FOLDS for row in rows])
    scores = np.zeros((2, len(rows)))
    for fold in range(FOLDS):
        known, unseen = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        model = fit([people[n] for n in known], [machines[n] for n in known], vocabulary.size)
        for side, texts in enumerate((people, machines)):
            scores[side, unseen] = [model.score(texts[n][:UNIT]) for n in unseen]
    area = (scores[1][:, None] > scores[0]).mean()
    print(f"{len(rows):,} paragraphs of {len(sources)} sources; unseen sources: area {area:.3f}")
    for manner in sorted({row["manner"] for row in rows}):
        of = [n for n, row in enumerate(rows) if row["manner"] == manner]
        area = (scores[1][of][:, None] > scores[0][of]).mean()
        print(f"  {manner:10} {len(of):5,} {area:.3f}")
    model = fit(people, machines, vocabulary.size)
    path = save(model, scores[1], args.out)
    print(f"{path}: {path.stat().st_size:,} bytes, {len(model.features):,} features")
    return 0


def fit(people: list[Pairs], machines: list[Pairs], size: int) -> MachineProse:
    """Fit by Newton's method in the space of the texts, of which there are fewer than features."""
    texts = [tokens_and_pairs(pairs, size) for pairs in [*people, *machines]]
    features, spread = np.unique(np.concatenate([kinds for kinds, _ in texts]), return_counts=True)
    features = features[spread >= MIN_PARAGRAPHS]
    counts = np.zeros((len(texts), len(features)), np.float32)
    for row, (kinds, values) in zip(counts, texts, strict=True):
        at, known = values_of(features, kinds, values)
        row[at] = known
    is_machine = np.repeat([0.0, 1.0], [len(people), len(machines)])
    mean = counts.mean(axis=0)
    counts -= mean
    alike = (counts @ counts.T).astype(float)
    alpha, bias = np.zeros(len(texts)), 0.0
    for _ in range(STEPS):
        odds = alike @ alpha + bias
        likely = 1 / (1 + np.exp(-odds))
        weight = likely * (1 - likely) + 1e-6
        system = alike + RIDGE * np.diag(1 / weight)
        target = np.stack([odds + (is_machine - likely) / weight, np.ones(len(texts))], axis=1)
        solved, ones = np.linalg.solve(system, target).T
        bias = float(solved.sum() / ones.sum())
        step = solved - bias * ones - alpha
        alpha += step
        if np.abs(step).max() < 1e-4:
            break
    weights = counts.T.astype(float) @ alpha
    return MachineProse(features, weights, bias - float(mean @ weights), size)


def save(model: MachineProse, scores: Vector, folder: Path) -> Path:
    """Write the weights, and the mean and spread of the scores of unseen machines' passages."""
    file = io.BytesIO()
    np.savez(
        file,
        # The steps from feature to feature compress better than the features.
        steps=np.diff(model.features, prepend=np.uint32(0)),
        weights=model.weights.astype(np.float16),
        fitted=np.array([model.bias, scores.mean(), scores.std()]),
    )
    write_atomically(folder / MACHINES_FILE, lzma.compress(file.getvalue(), preset=9))
    return folder / MACHINES_FILE


if __name__ == "__main__":
    sys.exit(main())
