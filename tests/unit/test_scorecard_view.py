"""The scorecard's view has every figure, and both renderers show any model's text as text."""

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from selectolax.lexbor import LexborHTMLParser as HTMLParser

from ownwords.evaluation import scorecard_view as say
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.verdict import compared_with, rate
from ownwords.view import html
from ownwords.view.blocks import Beside, Gauges, View
from ownwords.view.terminal import print_view
from sound_page import check_sound
from unit import sample_card

CARDS = [pytest.param(card, id=name) for name, card in sample_card.every()]
PAGE = "/home/ida/idle-hour.ownwords/scorecard.html"


def render(card: Scorecard) -> str:
    return html.document(say.scorecard_view(card))


def print_card(card: Scorecard, width: int) -> str:
    file = io.StringIO()
    print_view(say.scorecard_view(card), Console(file=file, width=width, color_system=None), PAGE)
    return file.getvalue()


def gauges(view: View) -> list[Gauges]:
    found: list[Gauges] = []
    for section in view.sections:
        for block in section.blocks:
            for each in block.blocks if isinstance(block, Beside) else [block]:
                found += [each] if isinstance(each, Gauges) else []
    return found


def words(tree: HTMLParser, selector: str = "body") -> str:
    nodes = tree.css_first(selector)
    assert nodes is not None, selector
    return re.sub(r"\s+", " ", nodes.text(separator=" "))


@pytest.mark.parametrize("card", CARDS)
def test_the_page_is_sound_and_loads_and_runs_nothing(card: Scorecard) -> None:
    check_sound(render(card), re.compile("https?://").match)


@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("card", CARDS)
def test_in_a_terminal_no_line_is_wider(card: Scorecard, width: int) -> None:
    assert max(cell_len(line) for line in print_card(card, width).splitlines()) <= width


def test_every_figure_is_shown_with_a_sentence_for_its_kind() -> None:
    card = sample_card.good()
    tree = HTMLParser(render(card))
    panels = gauges(say.scorecard_view(card))
    assert len(panels) == 7
    body = words(tree)
    for panel in panels:
        assert panel.title in body
        assert not panel.meaning or panel.meaning.endswith(".")
        assert panel.meaning in body
    cells = [re.sub(r"\s+", " ", cell.text()) for cell in tree.css(".gauges td")]
    assert cells == [gauge.text for panel in panels for gauge in panel.rows]
    assert words(tree, "h1") == card.verdict.sentence
    for sentence in card.verdict.because:
        assert sentence in words(tree, "header")


def test_too_few_posts_have_figures_without_a_range() -> None:
    def spans(card: Scorecard) -> list[str]:
        return [row.span for panel in gauges(say.scorecard_view(card)) for row in panel.rows]

    assert spans(sample_card.one_post()).count("too few posts for a range") == 2
    assert all(spans(sample_card.good()))


def test_differences_have_their_signs_and_small_shares_are_not_zero() -> None:
    row = sample_card.row("Its base", 1.6, 0.008)
    assert compared_with(row) == "0.5% better (0.8% worse to 1.7% better)"
    worse = replace(row, gain=-0.08, gain_low=-0.16, gain_high=-0.04)
    assert compared_with(worse) == "5.0% worse (2.5% to 10%)"
    much = sample_card.row("x", 1.0, -1.5, gain_low=-1.6, gain_high=-1.4)
    assert compared_with(much) == "2.5 times worse"
    shares = [0.0, 0.0001, 0.004, 0.0994, 0.5, 0.99, 0.9999, 1.0]
    shown = ["0%", "<0.1%", "0.4%", "9.9%", "50%", "99.0%", ">99.9%", "100%"]
    assert list(map(rate, shares)) == shown


def test_samples_are_side_by_side_and_complete() -> None:
    card = sample_card.good()
    tree = HTMLParser(render(card))
    first = tree.css("#samples li")[0]
    assert [cite.text() for cite in first.css("cite")] == ["Its base", "Your model"]
    # The first is one that goes on from a held-out post.
    assert words(tree, "#samples h3") == "A man who wears …"
    text = re.sub(r"The rest|…|\s+", "", words(tree, "#samples"))
    for sample in card.samples:
        assert re.sub(r"\s+", "", sample.tuned) in text
        assert re.sub(r"\s+", "", sample.base or "") in text


def test_long_samples_are_cut_at_a_word_and_complete() -> None:
    lines = ["one two three " * 30, "four five " * 50]
    first, remainder = say._in_two([line.strip() for line in lines])
    joined = " ".join([*first, *remainder]).replace(" … … ", " ")
    assert joined == " ".join(line.strip() for line in lines)
    assert sum(map(len, first)) < 640
    assert say._in_two(["x" * 1000]) == ([], ["x" * 1000])


def test_the_longest_passage_is_shown_with_its_source_and_a_link() -> None:
    tree = HTMLParser(render(sample_card.copying()))
    copied = words(tree, "#copying")
    assert "the very same words the very same words" in copied
    assert "On Idling" in copied and "4 May 2009" in copied
    links = [link.attributes["href"] for link in tree.css("#copying a")]
    assert "https://idle.example/idling/" in links


def test_the_page_to_share_does_not_tell_where_the_model_lies() -> None:
    card = sample_card.good()
    card = replace(card, about=replace(card.about, model=f"/home/ida/{card.about.model}"))
    assert "/home/ida" not in render(card)
    assert "idle-hour.ownwords/model" in render(card)


def test_evil_words_are_only_words() -> None:
    page, text = render(sample_card.hostile()), print_card(sample_card.hostile(), 120)
    assert "&lt;script&gt;" in page and "[red]x[/red]" in text
    assert not re.search("<script|javascript:|\u202e|\x1b", page)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
