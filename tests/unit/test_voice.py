"""Authorship: by style, not by subject, and never by text that was read before."""

import importlib
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ownwords.archive.corpus import load_corpus
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.core.errors import OwnwordsError
from ownwords.evaluation.fluency import openings
from ownwords.evaluation.style import (
    REFERENCE,
    BigramModel,
    CrossValidated,
    ReferenceAuthors,
    StyleVocabulary,
    cut,
    reference_file,
)
from ownwords.evaluation.voice import voice

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "base").exists():
    pytest.skip("base/ is not part of this copy", allow_module_level=True)

sys.path[:0] = [str(ROOT / "base")]
reference = importlib.import_module("reference")

_COMMON = "the of and to a in is it that he was for as with his be at by had not are but"
COMMON = _COMMON.split()
_BOATS = "sail mast harbour anchor tide rope deck captain wave wind"
BOATS = _BOATS.split()


class Writer:
    """An author with his own rates of the common words."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.weights = [self.rng.gammavariate(1.5, 1) for _ in COMMON]

    def posts(self, count: int, words: int = 120) -> list[str]:
        return [self._writes(words) for _ in range(count)]

    def _writes(self, words: int) -> str:
        written: list[str] = []
        while len(written) < words:
            written += [*self.rng.choices(COMMON, self.weights, k=3), self.rng.choice(BOATS)]
        return " ".join(written[:words])


@pytest.fixture(scope="module")
def authors() -> ReferenceAuthors:
    made: ReferenceAuthors = reference.modern_authors(
        {f"writer {n}": Writer(100 + n).posts(5, 300) for n in range(12)}, len(COMMON)
    )
    return made


def test_the_author_is_distinguished_from_others_and_from_the_base(
    authors: ReferenceAuthors,
) -> None:
    author = Writer(1)
    result = voice(
        author.posts(40), author.posts(15), author.posts(15), Writer(2).posts(15), authors
    )
    shares = result.classification
    assert shares and shares.base
    assert shares.held_out_auc.value > 0.95
    assert shares.held_out.value > 0.8 > 0.2 > shares.base.value
    assert abs(shares.samples.value - shares.held_out.value) < 0.25
    assert (result.sources, result.reason) == (12, "")


def test_kneser_ney_is_a_distribution_that_has_learned_what_follows() -> None:
    vocabulary = StyleVocabulary(COMMON)
    model = BigramModel.of([vocabulary.pairs("the of the of the and. " * 20)], vocabulary.size)
    every = np.arange(vocabulary.size**2, dtype=np.uint32)
    total = np.exp(model.log_probabilities(every)).reshape(vocabulary.size, -1).sum(axis=1)
    assert total == pytest.approx(1)
    of, to = model.log_probabilities(vocabulary.pairs("the of"))[1:], vocabulary.pairs("the to")
    assert of[0] > model.log_probabilities(to)[1] + 3


def test_topics_and_typography_are_masked() -> None:
    vocabulary = StyleVocabulary(COMMON)
    boats, cakes = ("The sails of “Anna” — in 1908.", 'The spoons of "Berta" -- in 2024.')
    assert (vocabulary.pairs(boats) == vocabulary.pairs(cakes)).all()
    (the, *_, end) = vocabulary.tokens(boats)
    assert (boats[the.start : the.end], boats[end.start : end.end]) == ("The", ".")


def test_noise_is_distinguished_only_by_chance() -> None:
    """Scored passages were not read, or noise would be distinguished well."""
    vocabulary = StyleVocabulary(COMMON)
    texts = [vocabulary.pairs(text) for text in Writer(1).posts(60, 240)]
    passages_of, sources = cut(texts[30:], 190)
    known = CrossValidated(texts[:30], passages_of, sources, vocabulary.size, 95)
    own, others = (
        np.array([row.mean() for fold in side for row in fold])
        for side in (known.own, known.others)
    )
    assert 0.3 < (own[:, None] > others).mean() < 0.7


def test_another_language_is_not_judged(authors: ReferenceAuthors) -> None:
    german = ["der die das und ich nicht mit auf ein eine haus baum wasser weg " * 20] * 20
    result = voice(german[:15], german[15:], german, (), authors)
    assert result.classification is None and "no other authors" in result.reason


@pytest.mark.parametrize("short", ["training", "held_out", "samples"])
def test_too_little_text_is_reported_without_figures(authors: ReferenceAuthors, short: str) -> None:
    author = Writer(1)
    texts = {"training": author.posts(20), "held_out": author.posts(5), "samples": author.posts(5)}
    texts[short] = ["the of and"]
    result = voice(texts["training"], texts["held_out"], texts["samples"], (), authors)
    assert result.classification is None
    assert short.partition("_")[0] in result.reason


def test_openings_begin_where_lines_and_sentences_do() -> None:
    text = "One two three four five.\n\nSix seven eight.\n\nNine ten eleven twelve. Done"
    assert openings(text, 4) == ["One two three four", "Six seven eight.\n\nNine"]
    lines = "A b c. D e f g h. I j k l m n. O p q r s t u v w x."
    assert openings(lines, 5) == ["A b c. D e", "I j k l m", "O p q r s"]


def test_others_round_trip_and_damage_is_one_sentence(
    authors: ReferenceAuthors, tmp_path: Path
) -> None:
    with pytest.raises(OwnwordsError, match="cannot be read"):
        ReferenceAuthors.load(tmp_path)
    data = reference.save_authors(authors, tmp_path).read_bytes()
    loaded = ReferenceAuthors.load(tmp_path)
    assert loaded.vocabulary.words == authors.vocabulary.words
    assert (loaded.sources, loaded.source_of) == (authors.sources, authors.source_of)
    assert np.array_equal(loaded.passages, authors.passages)
    for damaged in (data[: len(data) // 2], b"", b"PK" + data, json.dumps([]).encode()):
        (tmp_path / reference_file("voices", "en")).write_bytes(damaged)
        with pytest.raises(OwnwordsError, match="cannot be read"):
            ReferenceAuthors.load(tmp_path)


def test_the_others_in_the_package() -> None:
    shipped = ReferenceAuthors.load()
    assert len(shipped.sources) >= 60
    held_out = {"benbalter", "walshbr", "kennethreitz_essays", "publiccode_blog"}
    assert not held_out & set(shipped.sources)
    assert sum(file.stat().st_size for file in REFERENCE.iterdir()) <= 2_400_000


def texts_of(side: object) -> Sequence[str]:
    return [post.text for post in side]  # type: ignore[attr-defined]


@pytest.mark.shared
def test_the_columnists_held_out_columns_are_his(columnist: Path, tmp_path: Path) -> None:
    look([columnist], workspace=tmp_path / "w.ownwords")
    with Archive(tmp_path / "w.ownwords" / "archive.sqlite") as archive:
        corpus = load_corpus(archive)
    train = texts_of(corpus.train)
    held_out = [*texts_of(corpus.validation), *texts_of(corpus.test)]
    shares = voice(train[:18], held_out, train[18:], (), ReferenceAuthors.load()).classification
    assert shares
    assert shares.held_out_auc.value > 0.95
    assert shares.held_out.value > 0.8 > 0.15 > shares.others.value
    # Other columns of his in place of samples are taken for his.
    assert shares.samples.value > 0.8
