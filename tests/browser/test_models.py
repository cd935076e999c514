"""Models in a real browser: the table, the scorecard, names, and which one is current."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import openai_server
from browser.axe import violations
from browser.looking import broken_words, shown, sticking_out, too_faint
from browser.site import WIDTHS, Site, open_page, served, workspace
from ownwords.core.workspace import Workspace
from ownwords.evaluation import scorecard_files as files
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from unit import sample_card

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


def card_address(page: "Page") -> str:
    """Where the current model's scorecard is."""
    models = page.request.get("/api/models", headers={"X-Ownwords": "1"}).json()["models"]
    return f"/#/models/{quote(models[0]['name'])}"


@pytest.fixture
def model_site(tmp_path: Path) -> Iterator[Site]:
    """A site with a tiny model, for one test alone."""
    workspace_made = workspace(tmp_path)
    openai_server.save(
        workspace_made.root / "model", ByteTokenizer(), learned=openai_server.LEARNED
    )
    yield from served(workspace_made)


@pytest.fixture
def model_page(browser: "Browser", model_site: Site, expected: list[str]) -> "Iterator[Page]":
    yield from open_page(browser, model_site, expected)


def test_the_verdict_comes_first_and_every_figure_is_shown(page: "Page") -> None:
    card = sample_card.good()
    shown(page, card_address(page))
    assert page.locator("h1").inner_text() == card.verdict.sentence
    text = page.locator("main").inner_text()
    for sentence in card.verdict.because:
        assert sentence in text
    for row in card.bits:
        assert f"{row.bits:.2f}" in text
    assert page.locator(".gauges tbody tr").count() >= len(card.bits)


def test_the_table_shows_the_figures_of_the_scorecard(page: "Page") -> None:
    card = sample_card.good()
    shown(page, "/#/models")
    row = page.locator(".models-table tbody tr").first.inner_text()
    assert card.ours is not None
    assert f"{card.ours.bits:.3f}" in row
    assert f"{card.about.training_posts:,} posts" in row


def test_nothing_sticks_to_the_text_above(page: "Page") -> None:
    shown(page, card_address(page))
    gaps = page.evaluate(
        """() => [...document.querySelectorAll(".body h3, .body .chart, .totals + .quiet")]
          .filter((node) => node.checkVisibility()).flatMap((node) => {
            const top = node.getBoundingClientRect().top;
            const above = [...document.querySelectorAll("p, table, dl")].filter((each) =>
              !each.contains(node) && each.checkVisibility()
                && each.getBoundingClientRect().left < node.getBoundingClientRect().right
                && each.getBoundingClientRect().right > node.getBoundingClientRect().left)
              .map((each) => top - each.getBoundingClientRect().bottom).filter((gap) => gap > -1);
            return Math.min(...above) < 8 ? [node.textContent.slice(0, 40)] : [];
          })"""
    )
    assert gaps == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_scorecard_can_be_read_at_every_width(
    browser: "Browser", site: Site, dark: bool
) -> None:
    for page in open_page(browser, site, dark=dark):
        shown(page, card_address(page))
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert sticking_out(page) == [], width
            assert broken_words(page) == [], width
        assert too_faint(page) == []
        assert violations(page) == []


def test_a_copied_workspace_names_no_path_of_the_original(
    browser: "Browser", tmp_path: Path, site: Site
) -> None:
    copy = Workspace(Path(shutil.copytree(site.place.root, tmp_path / "copied.ownwords")))
    for served_copy in served(copy):
        for page in open_page(browser, served_copy):
            for address in ("/#/home", "/#/posts/report", "/#/models", card_address(page)):
                shown(page, address)
                assert str(site.place.root) not in page.locator("main").inner_text(), address
            assert str(copy.root / "model") in page.locator("main").inner_text()


def test_bars_are_as_long_as_their_figures(page: "Page") -> None:
    shown(page, card_address(page))
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


def test_samples_are_side_by_side_and_further_ones_are_folded(page: "Page") -> None:
    shown(page, card_address(page))
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


def test_a_bad_verdict_looks_bad(model_page: "Page", model_site: Site) -> None:
    files.write(sample_card.babbling(), model_site.place.root)
    shown(model_page, card_address(model_page))
    assert model_page.locator("h1.bad").count() == 1


def test_markup_written_by_a_model_stays_text(model_page: "Page", model_site: Site) -> None:
    files.write(sample_card.hostile(), model_site.place.root)
    shown(model_page, card_address(model_page))
    assert model_page.locator("main :is(script, img, iframe)").count() == 0
    assert model_page.locator("main a[href^='javascript:']").count() == 0
    assert "<script>" in model_page.locator("main").inner_text()


@pytest.mark.parametrize("text", [None, "{}"], ids=["none", "another version's"])
def test_without_a_card_a_button_scores_it(
    model_page: "Page", model_site: Site, text: str | None
) -> None:
    if text is not None:
        (model_site.place.root / files.DATA).write_text(text)
    shown(model_page, card_address(model_page))
    assert model_page.get_by_role("button", name="Score it").count() == 1


def test_without_a_model_the_page_says_what_to_do(own_page: "Page") -> None:
    shown(own_page, "/#/models")
    own_page.get_by_role("link", name="Make one").click()
    own_page.wait_for_selector(".page.home")


def test_a_model_is_renamed(model_page: "Page") -> None:
    page = model_page
    shown(page, card_address(page))
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("textbox", name="Name").fill("The first")
    page.locator("dialog").get_by_role("button", name="Rename").click()
    page.wait_for_url("**first**")
    shown(page, "/#/models")
    assert page.locator(".models-table tbody th a").first.inner_text() == "The first"
