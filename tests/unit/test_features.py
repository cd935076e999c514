"""Features of a document: words in any script, fair sketches, an exact round trip."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.document import OWN_KINDS, Document, Segment, SegmentKind
from ownwords.archive.features import (
    MAX_STYLE_WORDS,
    MIN_STYLE_WORDS,
    SKETCH_FEW,
    SKETCH_MANY,
    VOCABULARY,
    decode_features,
    encode_features,
    extract_features,
    sketch_size,
)
from ownwords.core.text import count_words, hash_words, shingles

KINDS: tuple[SegmentKind, ...] = ("prose", "heading", "list", "caption", "quote", "code", "log")


def document(*segments: tuple[SegmentKind, str]) -> Document:
    return Document("a", "A", tuple(Segment(kind, text) for kind, text in segments))


def numbered(n: int, start: int = 0) -> str:
    return " ".join(f"w{start + i}" for i in range(n))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        (" \n… — !", 0),
        ("One, two; three.", 3),
        ("It's the author’s own 'quoted' words'", 6),
        ("well-known", 2),
        ("hidden--that is", 3),
        ("Zażółć gęślą jaźń", 3),
        ("Ελληνικά и русский", 3),
        ("مرحبا بالعالم", 2),
        ("हिन्दी में", 2),
        ("cafe\u0301 noir", 2),
        ("我喜欢书", 4),
        ("ひらがなと漢字", 7),
        ("한국어 문장", 2),
        ("Python 3をuse", 4),
        ("so 😀 it 🎼 is", 3),
        ("𝐛𝐨𝐥𝐝 𠀀𠀁", 3),
    ],
)
def test_words_are_counted_in_any_script(text: str, expected: int) -> None:
    assert count_words(text) == expected


def slow_words(text: str) -> list[str]:
    """The same definition, one character at a time, for scripts with spaces."""
    letter = "".join(
        "x" if unicodedata.category(c)[0] in "LNM" else c if c in "'’" else " " for c in text
    )
    return [text[m.start() : m.end()] for m in re.finditer(r"x+(?:['’]x+)*", letter)]


@given(st.text(alphabet=st.sampled_from("aZéłß9'’-– .,\n\u0301ЖאあX"), max_size=80))
def test_words_match_a_slow_reading(text: str) -> None:
    text = text.replace("あ", "a")
    words = hash_words(text)
    words_found = [text[a:b] for a, b in zip(words.starts, words.ends, strict=True)]
    assert words_found == slow_words(text)
    same: dict[str, int] = {}
    for word, key in zip(words_found, words.hashes.tolist(), strict=True):
        folded = word.replace("’", "'").lower()
        assert same.setdefault(folded, key) == key
    assert len(set(same.values())) == len(same)


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading(text: str) -> None:
    words = hash_words(text)
    assert (words.starts < words.ends).all()
    assert (words.ends[:-1] <= words.starts[1:]).all()


def test_a_long_text_is_read_piecewise_without_a_seam() -> None:
    text = numbered(150_000)
    words = hash_words(text)
    assert len(words.hashes) == 150_000
    assert len(set(words.hashes.tolist())) == 150_000
    assert text[words.starts[77_777] : words.ends[77_777]] == "w77777"


def test_words_are_counted_by_kind_and_only_own_words_make_the_style() -> None:
    features = extract_features(
        document(
            ("heading", "On hats"),
            ("prose", "My own four words"),
            ("quote", "somebody else said this"),
            ("code", "x = 1"),
            ("log", "a b c"),
            ("prose", "More"),
        )
    )
    assert features.words == {"heading": 2, "prose": 5, "quote": 4, "code": 2, "log": 3}
    assert (features.own_words, features.all_words, features.style_words) == (7, 16, 7)
    assert "somebody" not in features.named.split()
    assert features.bytes == len("On hats\n\nMy own four words\n\nMore")


def test_the_digest_sees_through_case_punctuation_and_spacing() -> None:
    first = extract_features(document(("prose", "Hello, World! It’s me.")))
    second = extract_features(document(("prose", "hello world it's"), ("prose", "ME")))
    assert first.exact == second.exact
    assert first.exact != extract_features(document(("prose", "hello world it's us"))).exact


def test_a_short_text_is_sketched_whole_and_a_long_one_boundedly() -> None:
    short = extract_features(document(("prose", numbered(60))))
    assert (short.level, len(short.sketch)) == (0, 56)
    for n in (300, 1_000, 20_000, 200_000):
        features = extract_features(document(("prose", numbered(n))))
        assert SKETCH_FEW <= len(features.sketch) <= SKETCH_MANY
        assert sketch_size(features.sketch, features.level) == len(features.sketch)


def test_containment_of_a_note_in_a_dump_can_be_estimated_from_sketches() -> None:
    note = extract_features(document(("prose", numbered(1_000))))
    dump = extract_features(document(("prose", numbered(60_000))))
    foreign = extract_features(document(("prose", numbered(60_000, 60_000))))
    level = max(note.level, dump.level)
    own_sketch = note.sketch[: sketch_size(note.sketch, level)]
    assert len(own_sketch) > 10
    assert np.isin(own_sketch, dump.sketch).all()
    assert not np.isin(own_sketch, foreign.sketch).any()


def test_shingles_depend_on_order() -> None:
    hashes = hash_words("a b c d e f").hashes
    assert len(shingles(hashes)) == 2
    assert shingles(hashes)[0] != shingles(hashes[::-1])[1]
    assert len(shingles(hashes[:4])) == 0


def test_the_vocabulary_keeps_the_most_frequent_words() -> None:
    text = "the " * 50 + "hat " * 20 + numbered(VOCABULARY + 200)
    features = extract_features(document(("prose", text)))
    assert len(features.vocabulary) == VOCABULARY
    assert features.named.split()[:2] == ["the", "hat"]
    assert sorted(features.counts.tolist())[-2:] == [20, 50]


def test_the_counts_of_a_very_long_text_are_scaled_down() -> None:
    features = extract_features(document(("prose", "the hat " * 50_000)))
    assert features.own_words == 100_000
    assert features.style_words == MAX_STYLE_WORDS
    assert features.counts.tolist() == [32768, 32768]


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.text(max_size=60)), max_size=6),
    st.integers(0, 400),
)
def test_the_round_trip_is_exact(parts: list[tuple[SegmentKind, str]], more: int) -> None:
    first = extract_features(document(*parts, ("prose", numbered(more))))
    data = encode_features(first)
    second = decode_features(data)
    assert encode_features(second) == data
    assert (second.words, second.bytes, second.exact) == (first.words, first.bytes, first.exact)
    assert (second.level, second.style_words) == (first.level, first.style_words)
    assert (second.named, second.private) == (first.named, first.private)
    for name in ("sketch", "vocabulary", "counts", "style"):
        own_value, theirs = getattr(first, name), getattr(second, name)
        assert own_value.dtype == theirs.dtype
        assert np.array_equal(own_value, theirs)
    assert first.own_words == sum(n for kind, n in first.words.items() if kind in OWN_KINDS)


def test_private_details_are_masked() -> None:
    features = extract_features(
        document(("quote", "Ask jane@example.org"), ("code", "root@host.example"))
    )
    assert features.private.emails == 1
    assert b"jane" not in encode_features(extract_features(document(("code", "jane@example.org"))))


def test_a_short_post_remembers_no_style() -> None:
    """It would not be judged, and an archive can hold very many short posts."""
    sizes = []
    for words in (MIN_STYLE_WORDS - 1, MIN_STYLE_WORDS):
        document = Document("a", "", (Segment("prose", "word " * words),))
        features = decode_features(encode_features(extract_features(document)))
        sizes.append(features.style.nbytes + features.vocabulary.nbytes + features.counts.nbytes)
    assert sizes[0] == 0 < sizes[1]
