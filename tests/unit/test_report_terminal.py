import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from ownwords.archive.report import Report
from ownwords.archive.report_view import report_view
from ownwords.view.terminal import print_view
from unit import sample_report

REPORTS = [pytest.param(report, id=name) for name, report in sample_report.every()]


def print_page(report: Report, width: int, *, encoding: str = "utf-8", colour: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    console = Console(
        file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    print_view(report_view(report), console, f"{report.workspace}/report.html")
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [24, 50, 80, 120, 200])
@pytest.mark.parametrize("report", REPORTS)
def test_no_line_is_wider_than_the_console(report: Report, width: int) -> None:
    lines = print_page(report, width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize("report", REPORTS)
def test_bars_stay_on_the_line_of_their_numbers(report: Report, width: int) -> None:
    bars = [
        line for line in print_page(report, width).splitlines() if re.search("[█▏▎▍▌▋▊▉]", line)
    ]
    for line in bars:
        assert re.search(r"[█▏▎▍▌▋▊▉] +[\d,…]+ +[<>]?\d+%", line), line
    assert len(bars) >= min(8, len(report.posts))


def test_the_truths_are_there() -> None:
    report = sample_report.sample()
    totals = report.totals
    page_text = re.sub(r"\s+", " ", print_page(report, 100))
    for text in (
        "One post is 54% of your prose",
        "44 posts, and 2 pages",
        "2012–2024 years, 4 November 2012 to 19 October 2024",
        f"{totals.own_words:,} words of your own, of {totals.words:,} in all",
        f"{totals.training_words:,} words to train on, 187 kB",
        "281 links, 63 internal, 218 external",
        "Left out The Count of the Salt Marshes",
        "The file choices.toml has a decision",
        "ownwords look /home/ida/Documents/Publii/sites/shavings",
        "36 others together",
        "Year by year",
        "Favourite phrases",
        "Validation, 4 posts",
        "1,014 words in 212 lines",
        "34% of the shorter text",
        "“upon” 31 times as often",
        "/tag/silence/",
        "412 comments other people's words",
        "Drafts, left out 3",
        "Network calls made none",
        "/home/ida/shavings.ownwords/report.html",
    ):
        assert text in page_text, text


def test_titles_are_escaped_for_the_terminal() -> None:
    text = print_page(sample_report.hostile(), 80)
    assert "[red]x[/red]" in text
    assert "[link=https://evil.example]here[/link]" in text
    assert ":smile:" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    coloured = print_page(sample_report.hostile(), 80, colour=True)
    sequences = set(re.findall(r"\x1b[^m]*m?", coloured))
    assert sequences
    assert all(re.fullmatch(r"\x1b\[[\d;]*m", sequence) for sequence in sequences)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("report", REPORTS)
def test_any_terminal_encoding_is_supported(report: Report, encoding: str) -> None:
    text = print_page(report, 80, encoding=encoding)
    assert "Network calls made" in text
    if report.posts:
        assert "###" in text


def test_without_colour_there_are_no_escapes() -> None:
    assert "\x1b" not in print_page(sample_report.sample(), 80)
