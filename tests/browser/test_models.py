"""Models in a real browser: the table, the scorecard, names, and which one is current."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import openai_server
from browser import playing
from browser.looking import headers, misfits, shown, too_faint, until, violations
from browser.site import Site, open_page, served, workspace
from ownwords.evaluation.scorecard import DATA
from ownwords.evaluation.scorecard_view import write_scorecard
from ownwords.models.model_library import ModelLibrary
from ownwords.tokenizers.bpe import ByteTokenizer
from unit import sample_card

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


def card_address(page: "Page") -> str:
    """Where the current model's scorecard is."""
    models = page.request.get("/api/models").json()["models"]
    return f"/#/models/{quote(models[0]['name'])}"


@pytest.fixture
def model_site(tmp_path: Path) -> Iterator[Site]:
    """A site with a tiny model, for one test alone."""
    place = workspace(tmp_path)
    openai_server.save(place.root / "model", ByteTokenizer(), learned=openai_server.LEARNED)
    with served(place) as site:
        yield site


@pytest.fixture
def job_site(tmp_path: Path) -> Iterator[Site]:
    """A tiny model with a scorecard, in a workspace whose jobs are played: they wait for a stop."""
    place = workspace(tmp_path)
    openai_server.save(place.root / "model", ByteTokenizer(), learned=openai_server.LEARNED)
    write_scorecard(sample_card.good(), place.root)
    (place.root / "manner").write_text("waits")
    with playing.served(place) as site:
        yield site


@pytest.fixture
def job_page(browser: "Browser", job_site: Site, expected: list[str]) -> "Iterator[Page]":
    for page in open_page(browser, job_site, expected):
        yield page
        for job in page.request.get("/api/home").json()["jobs"]:
            if job["ended"] is None:
                stop(page, job["id"])


def start(page: "Page", kind: str) -> str:
    """Start a job; its id."""
    job = page.request.post("/api/jobs", data={"kind": kind}, headers=headers(page)).json()
    until(page, "!document.getElementById('busy').hidden")
    return str(job["id"])


def stop(page: "Page", job: str) -> None:
    page.request.post(f"/api/jobs/{job}/stop", data={}, headers=headers(page))
    until(page, "document.getElementById('busy').hidden")


def unfolded(page: "Page") -> None:
    """All sections of the scorecard."""
    page.evaluate(
        "document.querySelectorAll('.unfolding').forEach((part) => { part.open = true; })"
    )


@pytest.fixture
def model_page(browser: "Browser", model_site: Site, expected: list[str]) -> "Iterator[Page]":
    yield from open_page(browser, model_site, expected)


def test_the_verdict_comes_first_and_every_figure_is_shown(page: "Page") -> None:
    card = sample_card.good()
    shown(page, card_address(page))
    assert page.locator("h1").inner_text() == card.verdict.sentence
    assert page.evaluate("document.documentElement.scrollHeight") <= 2 * 900  # the rest unfolds
    unfolded(page)
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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_scorecard_can_be_read_at_every_width(
    browser: "Browser", site: Site, dark: bool
) -> None:
    for page in open_page(browser, site, dark=dark):
        shown(page, card_address(page))
        unfolded(page)
        assert misfits(page) == {}
        assert too_faint(page) == []
        assert violations(page) == []


def test_samples_are_side_by_side_and_further_ones_are_folded(page: "Page") -> None:
    shown(page, card_address(page))
    unfolded(page)
    first = page.locator(".samples > li").first
    base, tuned = first.locator("blockquote").all()
    left, right = base.bounding_box(), tuned.bounding_box()
    assert left and right and left["y"] == right["y"] and left["x"] < right["x"]
    page.set_viewport_size({"width": 360, "height": 800})
    left, right = base.bounding_box(), tuned.bounding_box()
    assert left and right and left["y"] < right["y"]


@pytest.mark.parametrize("text", [None, "{}"], ids=["none", "another version's"])
def test_without_a_card_a_button_scores_it(
    model_page: "Page", model_site: Site, text: str | None
) -> None:
    if text is not None:
        (model_site.place.root / DATA).write_text(text)
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


def test_while_a_model_is_made_the_page_says_why_none_can_be_renamed(job_page: "Page") -> None:
    page = job_page
    shown(page, card_address(page))
    rename = page.get_by_role("button", name="Rename")
    assert rename.is_enabled()
    job = start(page, "make")
    until(page, "document.querySelector('.actions button').disabled")
    assert "when “Making a model” has ended" in page.locator(".actions").inner_text()
    stop(page, job)
    until(page, "!document.querySelector('.actions button').disabled")
    assert page.locator(".actions").inner_text().splitlines()[-1] == "Rename"
    stop(page, start(page, "look"))
    page.request.post(f"/api/jobs/{job}/resume", data={}, headers=headers(page))  # older than that
    until(page, "document.querySelector('.actions button').disabled")


def test_the_page_of_a_model_follows_when_another_becomes_the_current_one(
    model_page: "Page", model_site: Site
) -> None:
    page, root = model_page, model_site.place.root
    library = ModelLibrary(root)
    library.keep("First")
    shutil.rmtree(root / "model")
    openai_server.save(root / "model", ByteTokenizer())
    library.keep("Second")
    shown(page, "/#/models/Second")
    page.locator(".actions").get_by_text("current", exact=True).wait_for()
    library.use("First")
    page.get_by_role("button", name="Make it the current one").wait_for()


def test_a_stopped_scoring_is_offered_until_there_is_a_scorecard_or_it_is_dismissed(
    job_page: "Page", job_site: Site
) -> None:
    page, card = job_page, job_site.place.root / DATA
    shown(page, "/")
    stop(page, start(page, "score"))
    until(page, "document.querySelector('.verdict')")
    assert page.locator(".paused").count() == 0
    card.unlink()
    page.get_by_text("Nothing is lost.").wait_for()
    page.goto(card_address(page))
    page.locator(".page.models").get_by_text("Nothing is lost.").wait_for()
    page.get_by_role("button", name="Dismiss").click()
    until(page, "!document.querySelector('.paused')")
    assert page.request.get("/api/home").json()["jobs"] == []


def test_new_posts_are_offered_to_be_learned(job_page: "Page") -> None:
    page = job_page
    home = page.request.get("/api/home").json()
    home["blog"]["new_sentence"] = "3 new posts, not yet learned"
    page.route("**/api/home?*", lambda route: route.fulfill(json=home))
    shown(page, "/")
    page.get_by_text("3 new posts, not yet learned.").wait_for()
    with page.expect_request("**/api/jobs?*") as sent:
        page.get_by_role("button", name="Train on them").click()
    assert sent.value.post_data_json == {"kind": "make", "base": "none"}
