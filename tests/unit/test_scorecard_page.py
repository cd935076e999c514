"""The page has every figure, loads nothing, and escapes the text of models."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from lxml import etree
from selectolax.lexbor import LexborHTMLParser as HTMLParser

from ownwords.evaluation import scorecard_view as say
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.verdict import COPIES, GIBBERISH
from ownwords.evaluation.wording import compared_with, rate
from ownwords.view import html
from ownwords.view.blocks import Beside, Gauges, View
from unit import sample_card

CARDS = [pytest.param(card, id=name) for name, card in sample_card.every()]
VOID = re.compile(r"<(meta|br)( [^>]*)?>")


def render(card: Scorecard) -> str:
    return html.document(say.scorecard_view(card))


def gauges(view: View) -> list[Gauges]:
    found: list[Gauges] = []
    for section in view.sections:
        for block in section.blocks:
            for each in block.blocks if isinstance(block, Beside) else [block]:
                found += [each] if isinstance(each, Gauges) else []
    return found


def read(card: Scorecard) -> HTMLParser:
    return HTMLParser(render(card))


def words(tree: HTMLParser, selector: str = "body") -> str:
    nodes = tree.css_first(selector)
    assert nodes is not None, selector
    return re.sub(r"\s+", " ", nodes.text(separator=" "))


@pytest.mark.parametrize("card", CARDS)
def test_every_tag_closes_in_its_turn(card: Scorecard) -> None:
    page = render(card).removeprefix("<!DOCTYPE html>\n")
    as_xml = VOID.sub(r"<\1\2/>", re.sub(r"<style>.*?</style>", "", page, flags=re.S))
    assert etree.fromstring(as_xml.encode("utf-8")).tag == "html"


@pytest.mark.parametrize("card", CARDS)
def test_the_page_loads_and_runs_nothing(card: Scorecard) -> None:
    tree = read(card)
    policy = tree.css_first('meta[http-equiv="Content-Security-Policy"]')
    assert policy is not None
    assert (policy.attributes["content"] or "").startswith("default-src 'none'; style-src")
    assert not tree.css("script, link, img, iframe, object, embed, form, base, audio, video, use")
    style = tree.css_first("style")
    assert style is not None
    assert not re.search(r"@import|url\(|https?:", style.text())
    for element in tree.css("*"):
        for name, value in element.attributes.items():
            assert not name.startswith("on"), (name, value)
            assert name not in {"src", "srcset", "action", "xlink:href"}
            assert "url(" not in (value or "")
            if name == "href":
                assert element.tag == "a"
                assert re.match(r"#|https?://", value or ""), value


@pytest.mark.parametrize("card", CARDS)
def test_headings_descend_by_one_and_sections_have_names(card: Scorecard) -> None:
    tree = read(card)
    order = [int(level) for level in re.findall(r"<h([1-6])[ >]", render(card))]
    assert order[0] == 1
    assert order.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(order))
    ids = [element.attributes["id"] for element in tree.css("[id]")]
    assert len(ids) == len(set(ids))
    for element in tree.css("[aria-labelledby]"):
        assert set((element.attributes["aria-labelledby"] or "").split()) <= set(ids)
    for link in tree.css('a[href^="#"]'):
        assert (link.attributes["href"] or "")[1:] in ids
    for table in tree.css("table"):
        assert table.css_matches("caption") and table.css('th[scope="col"]')
        for row in table.css("tbody tr"):
            assert row.css_matches('th[scope="row"]')


def test_the_verdict_comes_first_and_a_bad_one_is_visible() -> None:
    tree = read(sample_card.good())
    assert words(tree, "h1") == "It writes in your manner."
    assert "bad" not in (tree.css_first("h1").attributes.get("class") or "")  # type: ignore[union-attr]
    for sentence in sample_card.good().verdict.because:
        assert sentence in words(tree, "header")
    for card in (sample_card.copying(), sample_card.babbling()):
        assert card.verdict.kind in (COPIES, GIBBERISH)
        head = read(card).css_first("h1")
        assert head is not None
        assert head.attributes["class"] == "bad"


def test_every_figure_is_shown_with_a_sentence_for_its_kind() -> None:
    card = sample_card.good()
    tree = read(card)
    all_panels = gauges(say.scorecard_view(card))
    assert len(all_panels) == 8
    body = words(tree)
    for panel in all_panels:
        assert panel.title in body
        assert not panel.meaning or panel.meaning.endswith(".")
        assert panel.meaning in body
    cells = [re.sub(r"\s+", " ", cell.text()) for cell in tree.css(".gauges td")]
    assert cells == [gauge.text for panel in all_panels for gauge in panel.rows]


def test_bars_and_ranges_are_as_long_as_their_figures() -> None:
    card = sample_card.good()
    row = read(card).css("#prediction tbody tr")[1]
    _, bar = row.css(".gauge rect")
    whisker = row.css_first(".gauge line")
    assert whisker is not None
    top = max(row.high or 0 for row in card.bits)
    ends = [float(str(whisker.attributes[end]).rstrip("%")) for end in ("x1", "x2")]
    assert float(str(bar.attributes["width"]).rstrip("%")) == pytest.approx(159 / top, abs=0.01)
    assert ends == pytest.approx([154 / top, 164 / top], abs=0.01)


def test_too_few_posts_have_figures_without_a_range() -> None:
    text = words(read(sample_card.one_post()), "#prediction")
    assert text.count("too few posts for a range") == len(sample_card.bits())
    assert "too few posts" not in words(read(sample_card.good()))


def test_an_unclear_difference_has_both_signs() -> None:
    row = sample_card.row("Its base", 1.6, 0.008)
    assert compared_with(row) == "0.5% better (0.8% worse to 1.7% better)"
    assert compared_with(replace(row, gain=-0.08, gain_low=-0.16, gain_high=-0.04)) == (
        "5.0% worse (2.5% to 10%)"
    )


def test_posts_that_chose_the_model_are_named_as_such() -> None:
    about = sample_card.about()
    assert "also compared with posts held out to choose a model" in say.judged_on(about)
    assert "also" not in say.judged_on(replace(about, validation_posts=0))


def test_samples_are_side_by_side_and_complete() -> None:
    card = sample_card.good()
    tree = read(card)
    first = tree.css("#samples li")[0]
    assert [cite.text() for cite in first.css("cite")] == ["Its base", "Your model"]
    # The first is one that goes on from a held-out post.
    assert words(tree, "#samples h3") == "A man who wears …"
    text = re.sub(r"The rest|…|\s+", "", words(tree, "#samples"))
    for sample in card.samples:
        assert re.sub(r"\s+", "", sample.tuned) in text
        assert re.sub(r"\s+", "", sample.base or "") in text


def test_the_longest_passage_is_shown_with_its_source_and_a_link() -> None:
    tree = read(sample_card.copying())
    copied = words(tree, "#copying")
    assert "the very same words the very same words" in copied
    assert "On Idling" in copied
    assert "4 May 2009" in copied
    links = [link.attributes["href"] for link in tree.css("#copying a")]
    assert "https://idle.example/idling/" in links


def test_evil_words_are_only_words() -> None:
    page = render(sample_card.hostile())
    assert "<script" not in page
    assert "javascript:" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("card", CARDS)
def test_same_card_same_bytes(card: Scorecard) -> None:
    assert render(card) == render(card)


def test_small_figures_never_look_like_zero() -> None:
    assert [rate(value) for value in (0.0, 0.0001, 0.004, 0.0994, 0.5, 0.99, 0.9999, 1.0)] == [
        "0%",
        "<0.1%",
        "0.4%",
        "9.9%",
        "50%",
        "99.0%",
        ">99.9%",
        "100%",
    ]
    row = sample_card.row("x", 1.0, -1.5, gain_low=-1.6, gain_high=-1.4)
    assert "2.5 times worse" in say._note(row)


def test_long_samples_are_cut_at_a_word_and_complete() -> None:
    lines = ["one two three " * 30, "four five " * 50]
    first, remainder = say._in_two([line.strip() for line in lines])
    joined = " ".join([*first, *remainder]).replace(" … … ", " ")
    assert joined == " ".join(line.strip() for line in lines)
    assert sum(map(len, first)) < 640
    assert say._in_two(["x" * 1000]) == ([], ["x" * 1000])
    assert say._in_two([]) == ([], [])
