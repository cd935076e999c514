"""Stop strings against a plain search of every prefix of the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.core.errors import ConfigError
from ownwords.inference.detokenizer import StopMatcher


def by_hand(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Read letter by letter until the text ends in a stop string, the longest of several."""
    for end in range(len(text) + 1):
        stops_hit = [stop for stop in stops if text[:end].endswith(stop)]
        if stops_hit:
            longest = max(stops_hit, key=len)
            return text[: end - len(longest)], longest
    return text, None


letters = st.text("abc", max_size=12)
some_stops = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


@given(st.lists(st.text("abc", max_size=4), max_size=10), some_stops)
def test_chunking_does_not_change_where_a_text_stops(pieces: list[str], stops: list[str]) -> None:
    stopping = StopMatcher(stops)
    output = "".join(map(stopping.feed, pieces)) + stopping.finish()
    assert (output, stopping.matched) == by_hand("".join(pieces), stops)


@given(letters, some_stops)
def test_only_a_possible_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    stopping = StopMatcher(stops)
    output = ""
    for n, letter in enumerate(text, 1):
        output += stopping.feed(letter)
        if stopping.matched is not None:
            break
        pending = text[len(output) : n]
        assert text.startswith(output)
        assert not pending or any(stop.startswith(pending) and stop != pending for stop in stops)


@pytest.mark.parametrize(
    ("pieces", "stop", "outputs"),
    [
        (["one <e", "nd", ">"], "<end/>", ["one ", "", "<end>", ""]),
        (["aaab"], "aab", ["a", ""]),
        (["né", "e"], "ée", ["n", "", ""]),
        (["Dear ", "Sir,\n", "\n", "Yours"], "\n\nY", ["Dear ", "Sir,", "", "", ""]),
        ([], "x", [""]),
    ],
)
def test_output_is_released_as_soon_as_possible(
    pieces: list[str], stop: str, outputs: list[str]
) -> None:
    stopping = StopMatcher([stop])
    assert [*map(stopping.feed, pieces), stopping.finish()] == outputs


@pytest.mark.parametrize("stops", [[""], ["a", ""], "text"])
def test_empty_stop_strings_are_refused(stops: list[str]) -> None:
    with pytest.raises(ConfigError, match="stop strings should be"):
        StopMatcher(stops)
