"""In a terminal: within its width, in its encoding, and with model text escaped."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.scorecard_view import scorecard_view
from ownwords.view.terminal import print_view
from unit import sample_card

CARDS = [pytest.param(card, id=name) for name, card in sample_card.every()]
PAGE = "/home/ida/idle-hour.ownwords/scorecard.html"


def print_page(
    card: Scorecard, width: int, *, encoding: str = "utf-8", colour: bool = False
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    console = Console(
        file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    print_view(scorecard_view(card), console, PAGE)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [24, 50, 80, 120, 200])
@pytest.mark.parametrize("card", CARDS)
def test_no_line_is_wider_than_the_console(card: Scorecard, width: int) -> None:
    lines = print_page(card, width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_bars_stay_on_the_line_of_their_figures(width: int) -> None:
    lines = print_page(sample_card.good(), width).splitlines()
    bars = [line for line in lines if re.search("[█▏▎▍▌▋▊▉]", line)]
    assert len(bars) >= 18
    for line in bars:
        assert re.search(r"[█▏▎▍▌▋▊▉] +[<>]?[\d.]+%?", line), line


def test_the_truths_are_there() -> None:
    page_text = re.sub(r"\s+", " ", print_page(sample_card.good(), 80))
    for text in (
        "It writes in your manner.",
        "1.48 bits per byte on unseen posts, 1.59 for its base",
        "Measured on 6 held-out posts (33 kB)",
        "A man who wears …",
        "Bits per byte Your model",
        "(1.43 to 1.53)",
        "Burrows’ Delta",
        "Made-up words",
        "Known by heart",
        "On Idling, 4 May 2009",
        "Scoring 41 s",
        "60 of 120 held-out posts, chosen at random",
        PAGE,
    ):
        assert text in page_text, text


def test_model_text_is_escaped_for_the_terminal() -> None:
    text = print_page(sample_card.hostile(), 120)
    assert "[red]x[/red]" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    coloured = print_page(sample_card.hostile(), 80, colour=True)
    sequences = set(re.findall(r"\x1b[^m]*m?", coloured))
    assert sequences
    assert all(re.fullmatch(r"\x1b\[[\d;]*m", sequence) for sequence in sequences)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("card", CARDS)
def test_any_terminal_encoding_is_supported(card: Scorecard, encoding: str) -> None:
    assert "How it was made" in print_page(card, 80, encoding=encoding)


def test_without_colour_there_are_no_escapes() -> None:
    assert "\x1b" not in print_page(sample_card.good(), 80)
