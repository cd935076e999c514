"""Write in a real browser: two texts at once, by keys alone, and where they may come from."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import openai_server
from browser.looking import shown, until
from browser.site import Site, opened, served, workspace
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

DONE = """document.querySelector('.written')
  && [...document.querySelectorAll('.written')].every((one) => one.ariaBusy === 'false')"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The sample blog with a tiny model of its own beside the base in the box."""
    folder: Path = tmp_path_factory.mktemp("two")
    place = workspace(folder)
    openai_server.save(place.root / "model", ByteTokenizer(), learned=openai_server.LEARNED)
    yield from served(place)


@pytest.fixture
def page(browser: "Browser", two: Site, expected: list[str]) -> "Iterator[Page]":
    yield from opened(browser, two, expected)


def texts(page: "Page") -> list[str]:
    return [one.text_content() or "" for one in page.locator(".written .text").all()]


def set_length(page: "Page", tokens: int) -> None:
    page.get_by_label("Length").fill(str(tokens))


def test_both_models_write_at_once_with_the_same_luck(page: "Page") -> None:
    shown(page, "/#/write")
    set_length(page, 50)
    page.get_by_label("Beginning").fill("The rain <b>gauge</b>")
    page.get_by_label("Seed").fill("11")
    page.get_by_role("button", name="Write", exact=True).click()
    until(page, DONE)
    first = texts(page)
    assert len(first) == 2
    assert all(one.startswith("The rain <b>gauge</b>") and len(one) > 30 for one in first)
    assert page.locator(".written b").count() == 0
    seeds = [one.inner_text() for one in page.locator(".written header .quiet").all()]
    assert seeds == ["seed 11", "seed 11"]
    assert re.search(r"5\d? tokens in", page.locator(".written .below").first.inner_text())
    page.get_by_role("button", name="Write", exact=True).click()
    until(page, DONE)
    assert texts(page) == first


def test_keys_alone_write_and_stop_and_leaving_ends_it(page: "Page") -> None:
    shown(page, "/#/write")
    page.get_by_label("Beginning").focus()
    set_length(page, 1000)
    page.get_by_label("Temperature").fill("1.5")
    page.get_by_label("Beginning").focus()
    page.keyboard.type("It rained")
    page.keyboard.press("Control+Enter")
    until(page, "document.querySelectorAll('.written').length === 2")
    page.keyboard.press("Escape")
    until(page, DONE)
    # What was written so far stays; so it does when the reader comes back from elsewhere.
    kept = texts(page)
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("1")
    page.wait_for_selector(".page.corpus h1")
    page.keyboard.press("3")
    until(page, "document.querySelectorAll('.written').length === 2")
    assert texts(page) == kept
    # Begun, and left: the server stops writing.
    page.get_by_role("button", name="Write", exact=True).click()
    page.keyboard.press("1")
    page.wait_for_selector(".page.corpus h1")
    for _ in range(50):
        said = page.request.get("/metrics").text()
        busy = re.findall(r"^ownwords_\w*(?:running|waiting)\w*\{[^}]*\} (\d+)", said, re.MULTILINE)
        if busy and not any(map(int, busy)):
            break
        page.wait_for_timeout(100)
    else:
        raise AssertionError(said)


def test_one_column_where_the_base_is_not_wanted(page: "Page") -> None:
    shown(page, "/#/write")
    set_length(page, 50)
    page.get_by_label("Compare with the base").uncheck()
    page.get_by_role("button", name="Write", exact=True).click()
    until(page, DONE)
    assert len(texts(page)) == 1
    page.get_by_label("Compare with the base").check()


def test_where_it_may_come_from_opens_the_post_at_the_words(page: "Page") -> None:
    shown(page, "/#/write")
    set_length(page, 50)
    page.get_by_label("Compare with the base").uncheck()
    page.get_by_role("button", name="Write", exact=True).click()
    until(page, DONE)
    # The noise of a tiny model comes from nowhere: the page is given words of a post in its place.
    words = "the kettle has its limescale"
    found = page.request.post(
        "/api/write/origins",
        data={"text": "five inches of copper and a tube"},
        headers={"X-Ownwords": "1", "Origin": page.url.split("/#")[0]},
    ).json()
    assert found["nearest"], words
    page.route("**/api/write/origins", lambda route: route.fulfill(json=found))
    page.get_by_role("button", name="Where did this come from?").click()
    page.wait_for_selector(".origins")
    link = page.locator(".origins cite a").first
    title = link.inner_text()
    link.click()
    page.wait_for_selector("article.reading")
    assert title in page.locator("h1").inner_text()
    page.wait_for_selector("article mark")
    page.go_back()
    until(page, "document.querySelectorAll('.written').length === 1")
    page.get_by_label("Compare with the base").check()


def test_without_an_own_model_the_base_writes_alone(
    browser: "Browser", site: Site, expected: list[str]
) -> None:
    for page in opened(browser, site, expected):
        shown(page, "/#/write")
        assert page.locator("h1").inner_text() == "Not in your voice yet"
        set_length(page, 50)
        page.get_by_label("Beginning").fill("The harbour")
        page.get_by_role("button", name="Write", exact=True).click()
        until(page, DONE)
        assert len(texts(page)) == 1
