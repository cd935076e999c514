"""Features of a document: words in any script, fair sketches, an exact round trip."""

import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.document import OWN_KINDS, Document, Segment, SegmentKind
from ownwords.archive.features import (
    SKETCH_FEW,
    SKETCH_MANY,
    decode_features,
    encode_features,
    extract_features,
    identify_language,
    sketch_size,
)
from ownwords.archive.look import look
from ownwords.core.text import count_words, hash_words

KINDS: tuple[SegmentKind, ...] = ("prose", "heading", "list", "caption", "quote", "code", "log")


def document(*segments: tuple[SegmentKind, str]) -> Document:
    return Document("a", "A", tuple(Segment(kind, text) for kind, text in segments))


def numbered(n: int, start: int = 0) -> str:
    return " ".join(f"w{start + i}" for i in range(n))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" \n… — !", 0),
        ("One, two; three.", 3),
        ("It's the author’s own 'quoted' words'", 6),
        ("hidden--that is", 3),
        ("हिन्दी में", 2),
        ("cafe\u0301 noir", 2),
        ("我喜欢书", 4),
        ("ひらがなと漢字", 7),
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


def test_a_long_text_is_read_piecewise_without_a_seam() -> None:
    text = numbered(80_000)
    words = hash_words(text)
    assert len(words.hashes) == 80_000
    assert len(set(words.hashes.tolist())) == 80_000
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
    assert (features.own_words, features.all_words) == (7, 16)
    assert features.bytes == len("On hats\n\nMy own four words\n\nMore")


def test_the_digest_sees_through_case_punctuation_and_spacing() -> None:
    first = extract_features(document(("prose", "Hello, World! It’s me.")))
    second = extract_features(document(("prose", "hello world it's"), ("prose", "ME")))
    assert first.exact == second.exact
    assert first.exact != extract_features(document(("prose", "hello world it's us"))).exact


def test_a_short_text_is_sketched_whole_and_a_long_one_boundedly() -> None:
    short = extract_features(document(("prose", numbered(60))))
    assert (short.level, len(short.sketch)) == (0, 56)
    for n in (300, 1_000, 80_000):
        features = extract_features(document(("prose", numbered(n))))
        assert SKETCH_FEW <= len(features.sketch) <= SKETCH_MANY
        assert sketch_size(features.sketch, features.level) == len(features.sketch)


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
    assert second.level == first.level
    for name in ("sketch", "style"):
        own_value, theirs = getattr(first, name), getattr(second, name)
        assert own_value.dtype == theirs.dtype
        assert np.array_equal(own_value, theirs)
    assert first.own_words == sum(n for kind, n in first.words.items() if kind in OWN_KINDS)


# ---- Languages are identified, and a post in another one is named


TEXTS = {
    "English": "It was the best of times, and it was not the worst; he said that he would "
    "be there with his brother, but they have never come to the house, which is empty.",
    "German": "Es war nicht das beste Jahr, und ich habe mich auch nicht gewundert, dass der "
    "Winter so lang war. Die Tage sind kurz, und das Licht ist noch schwach auf dem Feld.",
    "Polish": "To nie jest tak, że się nie da, ale po co się spieszyć, jak już jest po zimie. Na "
    "polu nie ma nic, a w domu jest ciepło i to mi się od dawna podoba tylko tutaj.",
    "Russian": "Это не так, как он думал, и я не знал, что это она. Но он так и не пришёл, и "
    "за окном всё было как раньше, а по улице от дома к дому шёл снег, и так это и было.",
    "Japanese": "これは私が去年の秋に書いた日記です。雨が降っていて、誰も来ませんでした。",
    "": "Kwrx plomb zett urgo fenn " * 12,
}


@pytest.mark.parametrize(("language", "text"), TEXTS.items())
def test_a_language_is_recognised(language: str, text: str) -> None:
    assert identify_language(text) == language
    assert identify_language(text[:20]) == ""


def test_a_post_in_another_language_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for n in range(6):
        text = f"# Note {n}\n\nNumber {n}. {TEXTS['English']}\n"
        (folder / f"{n}.md").write_text(text, encoding="utf-8")
    (folder / "winter.md").write_text(f"# Winter\n\n{TEXTS['German']}\n", encoding="utf-8")
    report = look([folder], workspace=tmp_path / "w")
    (winter,) = [post for post in report.posts if post.title == "Winter"]
    assert (winter.flags, winter.decision) == (["language"], "keep")
    assert winter.reason == "it is in German, unlike most of your posts"
    assert not any("language" in post.flags for post in report.posts if post is not winter)
    page = (tmp_path / "w" / "report.html").read_text(encoding="utf-8")
    assert "is in another language" in page.lower()
