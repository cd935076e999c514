"""Copies are found without comparing all pairs."""

import random
from collections.abc import Callable

import pytest

from ownwords.archive.document import Document, Segment
from ownwords.archive.features import Features, extract_features
from ownwords.archive.near_duplicates import duplicate_groups, find_near_duplicates
from ownwords.archive.report import Duplicate

SHARE = 0.5


def prose(seed: int, words: int) -> str:
    rng = random.Random(seed)
    return " ".join(f"w{rng.randrange(10**6)}" for _ in range(words))


def archive(texts: dict[str, str]) -> tuple[dict[str, Features], Callable[[str], str]]:
    features = {
        id_: extract_features(Document(id_, id_, (Segment("prose", text),)))
        for id_, text in texts.items()
    }
    return features, texts.__getitem__


def test_exact_copies_are_paired_with_the_first() -> None:
    text = "The same words. All of them, twice."
    texts = {"b": text, "a": text.upper(), "c": text, "d": "other"}
    pairs = find_near_duplicates(*archive(texts), SHARE)
    assert [(p.id, p.other_id, p.exact, p.share) for p in pairs] == [
        ("a", "b", True, 1.0),
        ("a", "c", True, 1.0),
    ]


def test_empty_documents_are_not_duplicates() -> None:
    assert find_near_duplicates(*archive({"a": "", "b": "…", "c": ""}), SHARE) == []


@pytest.mark.parametrize("n", [40, 300, 20_000])
def test_a_changed_copy_is_found_at_any_length(n: int) -> None:
    words = prose(1, n).split()
    for i in range(10, n, 25):
        words[i] = "changed"
    texts = {"a": prose(1, n), "b": " ".join(words), "c": prose(2, n)}
    (pair,) = find_near_duplicates(*archive(texts), SHARE)
    assert (pair.id, pair.other_id, pair.exact) == ("a", "b", False)
    assert 0.7 < pair.share < 0.9


def test_a_short_post_inside_a_very_long_one_is_found() -> None:
    note = prose(1, 400)
    dump = f"{prose(2, 30_000)} {note} {prose(3, 30_000)}"
    (pair,) = find_near_duplicates(*archive({"note": note, "dump": dump}), SHARE)
    assert pair.share == 1.0


def test_a_footer_in_many_posts_makes_no_candidates() -> None:
    footer = prose(99, 300)
    texts = {f"{i:03}": f"{prose(i, 200)} {footer}" for i in range(60)}
    read: list[str] = []
    features, text_of = archive(texts)

    def reading(id_: str) -> str:
        read.append(id_)
        return text_of(id_)

    assert find_near_duplicates(features, reading, SHARE) == []
    assert read == []


def test_a_copy_is_found_despite_a_shared_footer() -> None:
    footer = prose(99, 100)
    texts = {f"{i:03}": f"{prose(i, 200)} {footer}" for i in range(60)}
    texts["copy"] = texts["007"].replace("7", "8", 20)
    pairs = find_near_duplicates(*archive(texts), SHARE)
    assert [(p.id, p.other_id) for p in pairs] == [("007", "copy")]


def test_a_group_of_many_near_copies_hangs_together_without_all_pairs() -> None:
    texts = {}
    for i in range(40):
        words = prose(1, 300).split()
        words[3 * i] = "changed"
        texts[f"{i:03}"] = " ".join(words)
    texts |= {f"x{i:04}": prose(1000 + i, 50) for i in range(800)}
    pairs = find_near_duplicates(*archive(texts), SHARE)
    assert duplicate_groups(pairs) == [frozenset(id_ for id_ in texts if id_[0] != "x")]
    assert len(pairs) < 40 * 16


def test_groups_are_the_connected_parts() -> None:
    links = [("b", "a"), ("c", "d"), ("a", "e"), ("f", "g"), ("d", "f"), ("h", "h")]
    pairs = [Duplicate(a, b, False, 1.0) for a, b in links]
    groups = duplicate_groups(pairs)
    assert groups == [frozenset("abe"), frozenset("cdfg"), frozenset("h")]
    assert groups == duplicate_groups(reversed(pairs))
