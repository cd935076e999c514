"""A foreign author is an outlier, the author is not; short posts are not judged.

`test_columnist` shows the same of a real blog.
"""

import random
from collections.abc import Mapping

import pytest

from ownwords.archive.document import Document, Segment
from ownwords.archive.features import MIN_STYLE_WORDS, Features, extract_features
from ownwords.archive.settings import ProvenanceConfig
from ownwords.archive.style_outliers import MIN_POSTS, find_style_outliers

DISTANCE = ProvenanceConfig().unlike_distance
WORDS = "the of and a to in he that was it his is with as I had for at by on not be"
FREQUENT = WORDS.split()


def author(seed: int, accent: str = "") -> dict[str, float]:
    rng = random.Random(seed)
    rates = {word: 1 / (rank + 2) for rank, word in enumerate(FREQUENT)}
    rates |= {f"subject{rng.randrange(500)}": 0.02 for _ in range(60)}
    rates |= dict.fromkeys(accent.split(), 0.4)
    return rates


def post(rates: Mapping[str, float], words: int, seed: int) -> Features:
    rng = random.Random(seed)
    text = " ".join(rng.choices(list(rates), list(rates.values()), k=words))
    return extract_features(Document("x", "X", (Segment("prose", text),)))


def archive(n: int = 30, words: int = 900) -> dict[str, Features]:
    return {f"{i:02}": post(author(1), words, i) for i in range(n)}


def test_a_single_author_has_no_outliers() -> None:
    assert len(find_style_outliers(archive(), DISTANCE)) <= 1


def test_a_long_foreign_post_does_not_become_the_norm() -> None:
    posts = archive() | {"x": post(author(1, "thou upon"), 40_000, 99)}
    outliers = find_style_outliers(posts, DISTANCE)
    assert outliers[0].id == "x"
    assert len(outliers) <= 2


def test_lengths_are_allowed_for() -> None:
    posts = {f"{i:02}": post(author(1), [400, 900, 8_000][i % 3], i) for i in range(30)}
    assert len(find_style_outliers(posts, DISTANCE)) <= 1


def test_short_posts_are_not_judged() -> None:
    posts = archive() | {"short": post(author(1, "thou upon"), MIN_STYLE_WORDS - 1, 99)}
    assert "short" not in [outlier.id for outlier in find_style_outliers(posts, DISTANCE)]


@pytest.mark.parametrize("n", [0, MIN_POSTS - 2])
def test_a_small_archive_is_not_judged(n: int) -> None:
    posts = archive(n) | {"x": post(author(1, "thou upon"), 900, 99)} if n else {}
    assert find_style_outliers(posts, DISTANCE) == []


def test_any_language_will_do() -> None:
    frequent = ["w", "i", "się", "na", "nie", "z", "do", "to", "że", "jak", "po", "ale", "od", "za"]
    rates = {word: 1 / (rank + 2) for rank, word in enumerate(frequent)}
    posts = {f"{i:02}": post(rates, 900, i) for i in range(20)}
    posts["x"] = post(rates | {"iż": 0.3, "albowiem": 0.2, "że": 0.0}, 900, 99)
    assert find_style_outliers(posts, DISTANCE)[0].id == "x"
