"""Score in a real browser: what the scorecard says, and what to do where there is none."""

from typing import TYPE_CHECKING

import pytest

from browser.looking import shown
from browser.site import Site
from ownwords.evaluation.card import files
from unit import sample_card

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def test_the_verdict_comes_first_and_every_figure_is_there(page: "Page") -> None:
    card = sample_card.good()
    shown(page, "/#/score")
    assert page.locator("h1").inner_text() == card.verdict.sentence
    text = page.locator("main").inner_text()
    for sentence in card.verdict.because:
        assert sentence in text
    for row in card.bits:
        assert f"{row.bits:.2f}" in text
    assert page.locator(".gauges tbody tr").count() >= len(card.bits)


def test_bars_are_as_long_as_their_figures(page: "Page") -> None:
    shown(page, "/#/score")
    lengths = page.evaluate(
        """() => [...document.querySelectorAll(".gauges")].map((table) =>
          [...table.querySelectorAll("tbody tr")].map((row) => [
            parseFloat(row.querySelector("td").textContent),
            row.querySelector(".gauge i").getBoundingClientRect().width
              / row.querySelector(".gauge").getBoundingClientRect().width]))"""
    )
    assert lengths
    for table in lengths:
        ratios = [width / figure for figure, width in table if figure > 1 and width > 0.02]
        if len(ratios) > 1:
            assert max(ratios) == pytest.approx(min(ratios), rel=0.1)


def test_samples_stand_side_by_side_and_the_rest_is_folded(page: "Page") -> None:
    shown(page, "/#/score")
    first = page.locator(".samples > li").first
    base, tuned = first.locator("blockquote").all()
    left, right = base.bounding_box(), tuned.bounding_box()
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
    page.set_viewport_size({"width": 360, "height": 800})
    left, right = base.bounding_box(), tuned.bounding_box()
    assert left is not None
    assert right is not None
    assert left["y"] < right["y"]


def test_a_bad_verdict_is_seen_as_one(own_page: "Page", own_site: Site) -> None:
    files.write(sample_card.babbling(), own_site.place.root)
    shown(own_page, "/#/score")
    assert own_page.locator("h1.bad").count() == 1


def test_what_would_take_the_page_over_stays_text(own_page: "Page", own_site: Site) -> None:
    files.write(sample_card.hostile(), own_site.place.root)
    shown(own_page, "/#/score")
    assert own_page.locator("main :is(script, img, iframe)").count() == 0
    assert own_page.locator("main a[href^='javascript:']").count() == 0
    assert "<script>" in own_page.locator("main").inner_text()


@pytest.mark.parametrize(("text", "said"), [(None, "ownwords make"), ("{}", "ownwords score")])
def test_without_a_card_it_says_what_to_do(
    own_page: "Page", own_site: Site, text: str | None, said: str
) -> None:
    if text is not None:
        (own_site.place.root / files.DATA).write_text(text)
    shown(own_page, "/#/score")
    assert said in own_page.locator("main").inner_text()
