"""Learn to tell language models' sentences from people's; write `machines.npz.xz`.

    python base/machine_prose.py modern-1.txt.xz

The file holds documents that begin with the character U+001C and, on a line, their name, such as
"source/number". It has the person's paragraph that each paragraph in `base/machines` was made from.
Fits a logistic regression on the tokens, pairs of tokens and lengths of their sentences; the
package gets its weights, and no text. Prints the area under the ROC curve for paragraphs and for
sentences of sources that the regression has not seen.
"""

import argparse
import io
import json
import lzma
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ownwords.core.fingerprint import digest
from ownwords.core.text import sentences
from ownwords.core.workspace import write_atomically
from ownwords.evaluation.style import (
    MACHINES_FILE,
    MachineProse,
    Normal,
    Pairs,
    ReferenceAuthors,
    StyleVocabulary,
    Vector,
    sentence_features,
)
from reference import OUT, documents

MACHINES = Path(__file__).parent / "machines" / "paragraphs.jsonl.xz"
FOLDS = 5
MIN_SENTENCES = 5  # that have a feature
MIN_TOKENS = 8  # of a sentence to learn from
RIDGE = 1.0  # the prior of the weights
EDITED = ("clarity", "formal", "improve", "neutral")  # requests that keep much of a person's text
STEPS = 60  # of L-BFGS at most


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
    texts = [[originals[row["of"], row["digest"]] for row in rows], [row["text"] for row in rows]]
    people, machines = ([in_sentences(text, vocabulary) for text in side] for side in texts)
    sources = sorted({row["of"].partition("/")[0] for row in rows})
    fold_of = np.array([sources.index(row["of"].partition("/")[0]) % FOLDS for row in rows])
    scores, unseen = np.zeros((2, len(rows))), list[Vector]()
    alone = list[float](), list[float]()
    for fold in range(FOLDS):
        known = np.flatnonzero(fold_of != fold)
        model = fit([people[n] for n in known], [machines[n] for n in known], vocabulary.size)
        for side, paragraphs in enumerate((people, machines)):
            for n in np.flatnonzero(fold_of == fold):
                weights = np.concatenate([model.of(each) for each in paragraphs[n]])
                scores[side, n] = weights.mean()
                alone[side].extend(model.score(each) for each in paragraphs[n])
                if side and rows[n]["manner"] not in EDITED:
                    unseen.append(weights)
    area = (np.array(alone[1])[:, None] > np.array(alone[0])).mean()
    print(
        f"{len(rows):,} paragraphs of {len(sources)} sources; unseen sources: sentences {area:.3f}"
    )
    for manner in ["", *sorted({row["manner"] for row in rows})]:
        of = [n for n, row in enumerate(rows) if manner in ("", row["manner"])]
        area = (scores[1][of][:, None] > scores[0][of]).mean()
        print(f"  {manner or 'all':10} {len(of):5,} {area:.3f}")
    model = replace(fit(people, machines, vocabulary.size), unseen=Normal.of(unseen))
    path = save(model, args.out)
    print(f"{path}: {path.stat().st_size:,} bytes, {len(model.features):,} features")
    return 0


def in_sentences(text: str, vocabulary: StyleVocabulary) -> list[Pairs]:
    """Return the pairs of each sentence of a paragraph."""
    found = (vocabulary.pairs(text[start:end]) for start, end in sentences(text))
    return [pairs for pairs in found if len(pairs)]


def fit(people: list[list[Pairs]], machines: list[list[Pairs]], size: int) -> MachineProse:
    """Fit the regression to the sentences of paragraphs."""
    sides = [
        [sentence_features(each, size) for text in side for each in text if len(each) >= MIN_TOKENS]
        for side in (people, machines)
    ]
    learned = [*sides[0], *sides[1]]
    kinds = np.concatenate([np.unique(each) for each in learned])
    features, spread = np.unique(kinds, return_counts=True)
    features = features[spread >= MIN_SENTENCES]
    places, values, offsets = list[np.ndarray](), list[np.ndarray](), [0]
    for each in learned:
        at = np.minimum(np.searchsorted(features, each), len(features) - 1)
        at = at[features[at] == each]
        places.append(at)
        values.append(np.full(len(at), (len(each) // 2) ** -0.5, np.float32))
        offsets.append(offsets[-1] + len(at))
    where, value = torch.tensor(np.concatenate(places)), torch.tensor(np.concatenate(values))
    offset = torch.tensor(offsets[:-1])
    is_machine = torch.tensor(np.repeat([0.0, 1.0], [len(side) for side in sides])).float()
    weights = torch.zeros(len(features), 1, requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        odds = torch.nn.functional.embedding_bag(
            where, weights, offset, mode="sum", per_sample_weights=value
        )[:, 0]
        wrong = torch.nn.functional.binary_cross_entropy_with_logits(
            odds + bias, is_machine, reduction="sum"
        )
        total: torch.Tensor = wrong + RIDGE * weights.square().sum() / 2
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    fitted = weights.detach()[:, 0].double().numpy()
    return MachineProse(features, fitted, size, Normal(0.0, 1.0, 1.0))


def save(model: MachineProse, folder: Path) -> Path:
    """Write the weights, and the distribution of the scores of unseen machines' paragraphs."""
    file = io.BytesIO()
    np.savez(
        file,
        # The differences between features compress better than the features.
        steps=np.diff(model.features, prepend=np.uint32(0)),
        weights=model.weights.astype(np.float16),
        unseen=np.array([model.unseen.mean, model.unseen.between, model.unseen.within]),
    )
    write_atomically(folder / MACHINES_FILE, lzma.compress(file.getvalue(), preset=9))
    return folder / MACHINES_FILE


if __name__ == "__main__":
    sys.exit(main())
