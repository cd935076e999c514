"""Authorship: by style, not by subject, and never by memorised text."""

import importlib
import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ownwords.archive.document import OWN_KINDS
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.core.errors import OwnwordsError
from ownwords.evaluation import voice as classifier
from ownwords.evaluation.passages import (
    character_ngrams,
    openings,
    passages,
    plain,
)
from ownwords.evaluation.reference_data import (
    AUTHORS_FILE,
    REFERENCE,
    FeatureVocabulary,
    ReferenceAuthors,
)
from ownwords.evaluation.voice import DELTA_WORDS, voice

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "base").exists():
    pytest.skip("base/ is not part of this copy", allow_module_level=True)

sys.path[:0] = [str(ROOT / "base")]
reference = importlib.import_module("reference")

_COMMON = "the of and to a in is it that he was for as with his be at by had not are but"
_BOATS = "sail mast harbour anchor tide rope deck captain wave wind"
_CAKES = "flour butter oven sugar icing spoon bowl batter cream yeast"
COMMON = tuple(_COMMON.split())
SUBJECTS = {"boats": _BOATS.split(), "cakes": _CAKES.split()}


class Writer:
    """An author with own rates of the common words, and a subject."""

    def __init__(self, seed: int, subject: str) -> None:
        self.rng = random.Random(seed)
        self.weights = [self.rng.gammavariate(1.5, 1) for _ in COMMON]
        self.subject = SUBJECTS[subject]

    def writes(self, words: int) -> str:
        words_written: list[str] = []
        while len(words_written) < words:
            words_written += self.rng.choices(COMMON, self.weights, k=3)
            words_written.append(self.rng.choice(self.subject))
        return " ".join(words_written[:words])

    def posts(self, count: int, words: int = 60) -> list[str]:
        return [self.writes(words) for _ in range(count)]


def others_of(writers: Sequence[Writer]) -> ReferenceAuthors:
    authors: ReferenceAuthors = reference.count_authors(
        {f"writer {n}": writer.posts(5, 100) for n, writer in enumerate(writers)},
        FeatureVocabulary(COMMON, 256),
        unit_words=50,
        stretch=2,
    )
    return authors


@pytest.fixture(scope="module")
def authors() -> ReferenceAuthors:
    return others_of([Writer(100 + n, "boats") for n in range(12)])


@pytest.fixture
def author() -> Writer:
    return Writer(1, "boats")


def test_the_author_s_posts_are_distinguished_from_those_of_others(
    authors: ReferenceAuthors, author: Writer
) -> None:
    result = voice(author.posts(40), author.posts(15), Writer(2, "boats").posts(15), authors)
    assert result.classification
    assert result.delta
    assert result.classification.held_out_auc.value > 0.95
    assert result.classification.held_out.value > 0.8
    assert result.classification.samples.value < 0.2
    assert result.delta.held_out.median.value < result.delta.samples.median.value
    assert (result.passage_words, result.authors, result.reason) == (50, 12, "")


def test_the_author_s_later_posts_are_not_distinguished_from_held_out_ones(
    authors: ReferenceAuthors, author: Writer
) -> None:
    result = voice(author.posts(40), author.posts(20), author.posts(20), authors)
    assert result.classification
    assert abs(result.classification.samples.value - result.classification.held_out.value) < 0.2
    assert result.classification.samples.value > 0.7


def test_delta_is_burrows_delta(authors: ReferenceAuthors, author: Writer) -> None:
    training, held_out = author.posts(20, 50), author.posts(9, 50)
    result = voice(training, held_out, author.posts(9, 50), authors).delta
    assert result
    assert result.passage_words == 50

    def rates(text: str) -> list[float]:
        words_found = re.findall(r"\w+", text.casefold())
        return [words_found.count(word) / len(words_found) for word in COMMON]

    own, real = np.array([*map(rates, training)]), np.array([*map(rates, held_out)])
    others_posts = [post for n in range(12) for post in Writer(100 + n, "boats").posts(5, 100)]
    halves = [" ".join(w) for post in others_posts for w in np.array_split(post.split(), 2)]
    spread = np.concatenate([own, np.array([*map(rates, halves)])]).std(axis=0)
    distances = np.abs((real - own.mean(axis=0)) / spread).mean(axis=1)
    assert result.held_out.median.value == pytest.approx(np.median(distances))
    assert result.words == len(COMMON)
    assert result.held_out.low <= result.held_out.median.value <= result.held_out.high


def test_longer_passages_are_used_where_there_are_enough(
    authors: ReferenceAuthors, author: Writer
) -> None:
    result = voice(author.posts(20, 100), author.posts(12, 100), author.posts(12, 100), authors)
    assert (result.passage_words, result.training, result.held_out, result.others) == (
        100,
        20,
        12,
        60,
    )
    # Of short samples the Delta takes several together, the classifier does not.
    result = voice(author.posts(20, 100), author.posts(12, 100), author.posts(12, 50), authors)
    assert result.delta
    assert (result.passage_words, result.delta.passage_words) == (50, 100)
    assert result.delta.samples.median.of == 6


def test_another_language_is_compared_with_itself_with_a_notice(
    authors: ReferenceAuthors,
) -> None:
    words = "der die das und ich nicht mit auf ein eine haus baum wasser weg"
    rng = random.Random(1)
    texts = [" ".join(rng.choices(words.split(), k=260)) for _ in range(30)]
    result = voice(texts[:15], texts[15:20], texts[20:], authors)
    assert result.classification is None
    assert "English" in result.reason
    assert result.delta
    assert result.delta.others is None
    assert result.delta.held_out.median.value > 0
    alone = voice(texts[:15], texts[15:20], texts[20:], None)
    assert alone.delta == result.delta
    assert alone.reason != result.reason


@pytest.mark.parametrize("short", ["training", "held_out", "samples"])
def test_too_little_text_is_reported_without_figures(
    authors: ReferenceAuthors, author: Writer, short: str
) -> None:
    texts = {"training": author.posts(20), "held_out": author.posts(5), "samples": author.posts(5)}
    texts[short] = ["the of and"]
    result = voice(texts["training"], texts["held_out"], texts["samples"], authors)
    assert (result.delta, result.classification) == (None, None)
    assert short.partition("_")[0] in result.reason


def test_the_classifier_reaches_the_minimum_of_its_loss() -> None:
    """Against Newton's method in double precision, implemented here."""
    rng = np.random.default_rng(1)
    features = (rng.normal(size=(60, 8)) / np.sqrt(8)).astype(np.float32)
    is_author = np.arange(60) < 25
    features[is_author, 0] += 0.5
    fold = np.arange(60) % 3
    weights = classifier.fit(features, is_author, fold)
    penalty = np.r_[np.full(8, classifier._PENALTY), 0]
    for k in range(3):
        used = fold != k
        side = is_author[used]
        sign = np.where(side, 1, -1)
        weight = np.where(side, 0.5 / side.sum(), 0.5 / (~side).sum())
        rows = np.c_[features[used].astype(float), np.ones(used.sum())] * sign[:, None]
        best = np.zeros(9)
        for _ in range(20):
            p = 1 / (1 + np.exp(rows @ best))
            slope = penalty * best - rows.T @ (weight * p)
            curve = np.diag(penalty) + rows.T @ (rows * (weight * p * (1 - p))[:, None])
            best -= np.linalg.solve(curve, slope)
        losses = [
            weight @ np.log1p(np.exp(-rows @ at)) + 0.5 * penalty @ at**2
            for at in (best, weights[:, k].astype(float))
        ]
        assert losses[0] - 1e-6 < losses[1] < losses[0] + 1e-3


def test_noise_is_distinguished_only_by_chance() -> None:
    """Scored texts were not fitted, or noise would be distinguished well."""
    rng = np.random.default_rng(1)
    counts = rng.poisson(2, (200, 300)).astype(np.float32)
    is_author = np.arange(200) < 80
    features = classifier.StandardScaler(counts)(counts)
    fold = classifier.folds(list(range(200)))
    scores = classifier.scores(features, classifier.fit(features, is_author, fold))
    unseen = scores[np.arange(200), fold]
    auc = (unseen[is_author][:, None] > unseen[~is_author]).mean()
    assert 0.38 < auc < 0.62
    own_scores = scores[np.arange(200), (fold + 1) % classifier.FOLDS]
    assert (own_scores[is_author][:, None] > own_scores[~is_author]).mean() > 0.99


def test_no_source_is_in_two_folds() -> None:
    sources = [n // 7 for n in range(100)]
    fold = classifier.folds(sources)
    for source in set(sources):
        assert len({f for f, s in zip(fold.tolist(), sources, strict=True) if s == source}) == 1
    assert max(np.bincount(fold)) - min(np.bincount(fold)) <= 7
    assert set(classifier.folds([0, 0, 1, 1, 1]).tolist()) == {0, 1}


def test_typography_of_editions_is_normalised() -> None:
    assert plain("“Don’t!” she _said_ — in 1908 …") == "don't! she said - in 0 ..."
    assert plain("'Don't!' she *said* -- in 2024 . . .") == "don't! she said - in 0 ..."


def test_each_letter_ngram_is_counted_once() -> None:
    text = "as it was"
    padded = f" {text} "
    counts = character_ngrams(text, 1 << 16)
    groups = [padded[i : i + n] for n in (3, 4, 5) for i in range(len(padded) - n + 1)]
    assert counts.sum() == len(groups)
    assert sorted(counts[counts > 0]) == sorted(groups.count(group) for group in set(groups))
    assert (character_ngrams(text + ".", 64) != character_ngrams(text, 64)).any()
    assert character_ngrams("", 64).sum() == 0


def test_passages_are_equally_long_and_of_one_text_where_they_can_be() -> None:
    texts = ["a b c d e f g", "h i", "j k l m", "n o"]
    found_passages = [(passage.text.split(), passage.source) for passage in passages(texts, 3)]
    assert found_passages[:3] == [(["a", "b", "c"], 0), (["d", "e", "f"], 0), (["j", "k", "l"], 2)]
    assert found_passages[3][0] == ["h", "i", "n"]
    assert found_passages[3][1] not in range(4)


def test_no_short_text_is_in_two_passages() -> None:
    """Or the classifier would be fitted to one part of a post and judge another."""
    texts = [" ".join([f"w{n}"] * (n % 5 + 1)) for n in range(40)]
    found_passages = passages(texts, 7)
    assert len(found_passages) > 5
    assert len({passage.source for passage in found_passages}) == len(found_passages)
    seen: set[str] = set()
    for passage in found_passages:
        assert not seen & set(passage.text.split())
        seen |= set(passage.text.split())


def test_openings_begin_where_lines_and_sentences_do() -> None:
    text = "One two three four five.\n\nSix seven eight.\n\nNine ten eleven twelve. Done"
    assert openings(text, 4) == ["One two three four", "Six seven eight.\n\nNine"]
    lines = "A b c. D e f g h. I j k l m n. O p q r s t u v w x."
    assert openings(lines, 5) == ["A b c. D e", "I j k l m", "O p q r s"]


def test_saved_reference_authors_round_trip(authors: ReferenceAuthors, tmp_path: Path) -> None:
    reference.save_authors(authors, tmp_path)
    loaded = ReferenceAuthors.load(tmp_path)
    assert (loaded.vocabulary, loaded.authors, loaded.lengths) == (
        authors.vocabulary,
        authors.authors,
        authors.lengths,
    )
    for words in authors.lengths:
        before, now = authors.passages(words), loaded.passages(words)
        assert before.sources == now.sources
        assert (before.ngrams == now.ngrams).all()
        assert before.words.sum() == now.words.sum()
    with pytest.raises(ValueError, match="none of 70"):
        authors.passages(70)


def test_others_that_are_missing_or_damaged_are_one_sentence(
    authors: ReferenceAuthors, tmp_path: Path
) -> None:
    with pytest.raises(OwnwordsError, match="cannot be read"):
        ReferenceAuthors.load(tmp_path)
    data = reference.save_authors(authors, tmp_path).read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"PK" + data, json.dumps([]).encode()):
        (tmp_path / AUTHORS_FILE).write_bytes(damaged)
        with pytest.raises(OwnwordsError, match="cannot be read"):
            ReferenceAuthors.load(tmp_path)


def test_the_others_in_the_package() -> None:
    shipped = ReferenceAuthors.load()
    assert len(shipped.authors) >= 60
    assert shipped.lengths == (250, 500, 1000)
    assert len(shipped.vocabulary.words) >= DELTA_WORDS
    left_out = ("Chesterton", "Thoreau", "Emerson", "Bierce", "Jerome", "Lamb", "Hazlitt")
    assert not [name for name in shipped.authors for author in left_out if author in name]
    counted = shipped.passages(1000)
    assert len(counted) == 5 * len(shipped.authors)
    # The commonest words are about half of any English text.
    assert 0.4 < float(counted.words.sum() / (1000 * len(counted))) < 0.8
    assert sum(file.stat().st_size for file in REFERENCE.iterdir()) <= 2_000_000


@pytest.mark.shared
def test_the_columnists_held_out_columns_are_his(columnist: Path, tmp_path: Path) -> None:
    look([columnist], workspace=tmp_path / "w.ownwords")
    sides: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    with Archive(tmp_path / "w.ownwords" / "archive.sqlite") as archive:
        for id_, (decision, _, side) in archive.selection().items():
            if decision != "leave out" and side in sides:
                (document,) = archive.documents([id_])
                sides[side].append(document.text(OWN_KINDS))
    held_out = sides["validation"] + sides["test"]
    later_posts = [passage.text for passage in passages(sides["train"][20:], 250)][:20]
    result = voice(sides["train"][:20], held_out, later_posts, ReferenceAuthors.load())
    assert result.classification
    assert result.delta
    assert result.classification.held_out_auc.value > 0.95
    assert result.classification.held_out.value > 0.8
    assert result.classification.others.value < 0.15
    assert result.delta.others and result.delta.others.low > result.delta.held_out.median.value
    # Other columns of his in place of samples are taken for his.
    assert result.classification.samples.value > 0.8
