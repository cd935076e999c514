"""The page in another language in a real browser: German, and one in which all is marked."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browser.looking import misfits, shown
from browser.site import Site, open_page
from ownwords.serve import static_files

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser

PARTS = ("home", "write", "ask", "voice", "posts", "models", "settings")

# Words in a row that are in no brackets, and stand where no name, quotation or code may stand.
_UNMARKED = r"""() => {
  const names = "bdi, q, blockquote, code, pre, script, noscript, .samples, .hits .quiet, "
    + ".words td, th, svg, [lang=en]";
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (node.parentElement.closest(names)) continue;
    let rest = node.data;
    for (let last = ""; last !== rest; ) [last, rest] = [rest, rest.replace(/⟦[^⟦⟧]*⟧/g, "")];
    rest = rest.replace(/⟦[^⟦⟧]*$|^[^⟦⟧]*⟧/g, ""); // an element stands within
    if (/\p{Ll}{2,} \p{Ll}{2,}/u.test(rest)) found.push(node.data);
  }
  return found;
}"""


@pytest.fixture
def german_page(browser: "Browser", site: Site, expected: list[str]) -> "Iterator[Page]":
    yield from open_page(browser, site, expected, locale="de-DE")


def test_the_page_is_in_the_language_of_the_browser_until_another_is_chosen(
    german_page: "Page",
) -> None:
    page = german_page
    page.goto("/#/settings")
    page.get_by_role("heading", name="Dieser Rechner").wait_for()
    assert page.locator("html").get_attribute("lang") == "de"
    page.get_by_label("Sprache dieser Seite").select_option("English")
    page.get_by_role("heading", name="This machine").wait_for()
    page.goto("/#/posts")
    page.get_by_role("heading", name="Posts").wait_for()
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_question_a_report_and_an_error_are_in_german(
    german_page: "Page", expected: list[str]
) -> None:
    page = german_page
    expected.append("404")
    page.goto("/#/ask")
    page.get_by_label("Deine Frage").fill("What did I say about the barometer?")
    page.get_by_role("button", name="Fragen", exact=True).click()
    page.get_by_text("Die Textstellen, die deiner Frage am nächsten kommen:").wait_for()
    assert page.locator("summary", has_text="Textstellen gefunden").count() == 1
    for question, answer in (
        ("How many posts mention rain in 2019?", "Beiträge? in 2019 erwähn(t|en) “rain”, "),
        ("When did I first write about rain?", "Dein erster Beitrag, der “rain” erwähnt, ist „"),
        ("How many posts are there from March 1999?", "Es gibt keinen Beitrag im März 1999; dafür"),
    ):
        page.get_by_label("Deine Frage").fill(question)
        page.get_by_role("button", name="Fragen", exact=True).click()
        page.locator(".answer-text", has_text=re.compile(answer)).wait_for()
    page.goto("/#/posts/report")
    page.get_by_role("heading", name="Was du mit so viel Text trainieren kannst").wait_for()
    report = page.locator("main").inner_text()
    assert "31.545 Wörter von dir: 54 Beiträge und 1 Seite" in report
    assert "45 andere zusammen" in report
    assert re.search(r"\d Teile?\s+\w", report)
    page.goto("/#/posts/post/none")
    page.get_by_text(
        "Vielleicht wurde er gelöscht oder umbenannt: suche nach seinem Titel."
    ).wait_for()


def test_the_scorecard_is_saved_in_german(german_page: "Page") -> None:
    page = german_page
    page.goto("/#/home")
    with page.expect_download() as download:
        page.get_by_text("Als Seite zum Teilen speichern").first.click()
    saved = download.value.path().read_text("utf-8").replace("&nbsp;", " ")
    assert saved.startswith('<!DOCTYPE html>\n<html lang="de">')
    assert "Deine ungesehenen Beiträge sagt es 6,9 % besser (5,7 % bis 8,2 %) voraus" in saved
    assert '<h1 tabindex="-1">Ein so kleines Modell' in saved
    for part in ("Doppeltes Wort: ", "120 zurückgehaltene Beiträge, davon 60"):
        assert part in saved, part


def test_german_words_fit_at_any_width(german_page: "Page") -> None:
    for part in (*PARTS, "posts/report"):
        shown(german_page, f"/#/{part}")
        assert misfits(german_page) == {}, part


def test_nothing_that_the_page_says_is_missing_from_its_catalogue(german_page: "Page") -> None:
    page = german_page
    german = json.loads(static_files.read()["de.json"].data)

    def marked(route: "Route") -> None:
        forms = {key: f"⟦{key}⟧" for key in german}
        route.fulfill(
            json={k: {"other": v} if isinstance(german[k], dict) else v for k, v in forms.items()}
        )

    page.route("**/de.json", marked)
    left = {}
    for part in (*PARTS, "posts/decisions", "posts/report"):
        shown(page, f"/#/{part}")
        left[part] = page.evaluate(_UNMARKED)
    found = [text for texts in left.values() for text in texts]
    assert not found, "\n".join(found)
