"""Views in a terminal: within its width, and with their text escaped."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from ownwords.archive.report_view import report_view
from ownwords.evaluation.scorecard_view import scorecard_view
from ownwords.view.blocks import View
from ownwords.view.terminal import print_view
from unit import sample_card, sample_report

VIEWS = [
    *(pytest.param(report_view(each), id=f"report {name}") for name, each in sample_report.every()),
    *(pytest.param(scorecard_view(each), id=f"card {name}") for name, each in sample_card.every()),
]
HOSTILE = [report_view(sample_report.hostile()), scorecard_view(sample_card.hostile())]
PAGE = "/home/ida/shavings.ownwords/page.html"


def printed(view: View, width: int, *, colour: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    print_view(view, console, PAGE)
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("view", VIEWS)
def test_no_line_is_wider_than_the_console_and_bars_keep_their_figures(
    view: View, width: int
) -> None:
    text = printed(view, width)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    bars = [line for line in lines if re.search("[█▏▎▍▌▋▊▉]", line)]
    for line in bars:
        assert re.search(r"[█▏▎▍▌▋▊▉] +[<>]?[\d.,…]+", line), line


def test_a_report_is_told() -> None:
    report = sample_report.sample()
    totals = report.totals
    text = re.sub(r"\s+", " ", printed(report_view(report), 100))
    for words in (
        "One post is 54% of your prose",
        "44 posts, and 2 pages",
        "2012–2024 years, 4 November 2012 to 19 October 2024",
        f"{totals.own_words:,} words of your own, of {totals.words:,} in all",
        f"{report.split.words['train']:,} words that a model learns from, ",
        "Left out The Count of the Salt Marshes",
        "The file choices.toml has a decision",
        "ownwords look /home/ida/shavings",
        "36 others together",
        "Validation, 4 posts",
        "1,014 words in 212 lines",
        "34% of the shorter text",
        "412 comments other people's words",
        PAGE,
    ):
        assert words in text, words


def test_a_scorecard_is_told() -> None:
    text = re.sub(r"\s+", " ", printed(scorecard_view(sample_card.good()), 80))
    for words in (
        "A model this small picks up your words",
        "1.48 bits per byte on unseen posts, 1.59 for its base",
        "Measured on 6 held-out posts (33.1 kB)",
        "A man who wears …",
        "Bits per byte Your model",
        "(1.43 to 1.53)",
        "The untouched base",
        "Made-up words",
        "Known by heart",
        "On Idling, 4 May 2009",
        "60 of 120 held-out posts were scored, chosen at random",
        PAGE,
    ):
        assert words in text, words


@pytest.mark.parametrize("view", HOSTILE)
def test_text_of_others_is_escaped_for_the_terminal(view: View) -> None:
    text = printed(view, 120)
    assert "[red]x[/red]" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    sequences = set(re.findall(r"\x1b[^m]*m?", printed(view, 80, colour=True)))
    assert sequences
    assert all(re.fullmatch(r"\x1b\[[\d;]*m", sequence) for sequence in sequences)
