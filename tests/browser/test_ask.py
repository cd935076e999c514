"""Ask in a real browser: passages, citations that open their posts, answers that are only text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import playing
from browser.looking import shown, until
from browser.site import open_page, workspace
from fake_endpoint import fake_endpoint as endpoint
from ownwords.archive.store import Archive
from ownwords.core.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

QUESTION = "What is the rain gauge made of?"
ANSWERED = "document.querySelector('.turn:last-child .answer')?.ariaBusy === 'false'"


def ask_question(page: "Page", question: str = QUESTION) -> None:
    page.get_by_label("Your question").fill(question)
    page.keyboard.press("Enter")
    until(page, ANSWERED)


def test_without_a_model_the_passages_are_shown_and_open_their_post(page: "Page") -> None:
    shown(page, "/#/ask")
    page.get_by_label("Who answers").select_option("none")
    ask_question(page)
    page.wait_for_url("**#/ask/*")  # it has been saved
    first = page.locator(".passages-found > li").first
    assert "copper" in page.locator(".passages-found").first.inner_text().lower()
    link = first.locator("a").first
    title = link.inner_text()
    link.click()
    page.wait_for_selector("article.reading")
    assert title in page.locator("h1").inner_text()
    page.wait_for_selector("article mark")
    page.go_back()
    until(page, "document.querySelectorAll('.turn').length === 1")
    assert QUESTION in page.locator(".turn h2").inner_text()
    assert "copper" in page.locator(".passages-found").first.inner_text().lower()


# Holds the answer to the saving of a conversation until a link has been clicked.
_HOLD_UNTIL_CLICKED = """() => {
  const unheld = window.fetch;
  const clicked = new Promise((release) => addEventListener("click", release));
  window.fetch = async (path, options) => {
    const answer = await unheld(path, options);
    if (!path.startsWith("/api/texts") || options.method !== "POST") return answer;
    document.documentElement.dataset.held = "yes";
    await clicked;
    return answer;
  };
}"""


def test_a_citation_opens_its_post_though_the_conversation_is_saved_just_then(page: "Page") -> None:
    shown(page, "/#/ask")
    page.get_by_label("Who answers").select_option("none")
    page.get_by_label("Your question").fill(QUESTION)
    page.evaluate(_HOLD_UNTIL_CLICKED)
    page.keyboard.press("Enter")
    until(page, "document.documentElement.dataset.held")
    page.locator(".passages-found a").first.click()
    page.wait_for_selector("article.reading")
    assert "#/posts/post/" in page.url


def test_before_anything_is_read_it_says_what_to_do(empty_page: "Page") -> None:
    shown(empty_page, "/#/ask")
    assert empty_page.get_by_label("Your question").count() == 0
    empty_page.get_by_role("link", name="Choose your blog").click()
    empty_page.wait_for_selector(".steps")


def test_looking_again_offers_the_search_by_meaning(page: "Page") -> None:
    shown(page, "/#/ask")
    offer = page.request.get("/api/ask").json()
    page.route(
        "**/api/ask?*", lambda route: route.fulfill(json=offer | {"missing": "pip install it"})
    )
    page.get_by_role("button", name="Look for models again").click()
    page.get_by_text("pip install it").wait_for()


def test_examples_fit_the_blog_and_what_cannot_be_is_called_so(page: "Page") -> None:
    shown(page, "/#/ask")
    years = page.request.get("/api/corpus/facets").json()["years"]
    assert (
        max(year for year, *_ in years if year.isdigit()) in page.locator(".examples").inner_text()
    )
    ask_question(page, "Summarise my blog")
    text = page.locator(".turn .answer").inner_text()
    assert "cannot summarise" in text


def test_a_conversation_goes_on_after_a_reload(page: "Page") -> None:
    shown(page, "/#/ask")
    ask_question(page, "copper")
    page.get_by_role("button", name="Ask a follow-up").click()
    ask_question(page, "the rain gauge")
    until(page, "document.querySelectorAll('.turn').length === 2")
    page.wait_for_url("**#/ask/*")
    saved = f"/api/texts/{page.url.rpartition('/')[2]}"
    while len(page.request.get(saved).json()["messages"]) < 4:
        page.wait_for_timeout(50)
    page.reload()
    until(page, "document.querySelectorAll('.turn').length === 2")
    last = page.locator(".turn").last
    assert last.locator(".passages-found mark").count() > 0
    assert "Follows on from “copper”" in last.inner_text()
    last.get_by_role("button", name="Ask a follow-up").click()
    with page.expect_request("**/api/ask?*") as sent:
        page.get_by_label("Your question").fill("the brass one")
        page.keyboard.press("Enter")
    asked = json.loads(sent.value.post_data or "{}")["question"]
    assert asked == "copper the rain gauge the brass one"  # with all that it follows on from
    until(page, "document.querySelectorAll('.turn').length === 3")
    until(page, ANSWERED)
    while len(page.request.get(saved).json()["messages"]) < 6:
        page.wait_for_timeout(50)


def beginning_of_a_post(place: Workspace) -> tuple[str, str]:
    """The title and the first words of a post."""
    title = "Five inches of copper"
    with Archive(place.archive) as archive:
        post = next(each for each in archive.documents() if each.title == title)
    return title, " ".join(post.text().split()[:9])


def test_a_saved_conversation_shows_what_was_shown_though_the_posts_have_changed(
    browser: "Browser", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = workspace(tmp_path)
    _, words = beginning_of_a_post(place)
    reply = f'It is copper [1: "{words}"].'
    with (
        endpoint(monkeypatch, replies=[reply]) as played,
        playing.served(place, played.port) as site,
    ):
        for page in open_page(browser, site):
            shown(page, "/#/ask")
            ask_question(page)
            page.get_by_role("button", name="Ask a follow-up").click()
            ask_question(page, "the brass one")
            ask_question(page, "Which zeppelins did Napoleon fly?")
            page.get_by_label("Who answers").select_option(label="writer (llama.cpp)")
            ask_question(page, "five inches of copper")
            look = """[...document.querySelectorAll('.turn')].map((turn) => [turn.innerText,
              [...turn.querySelectorAll('mark, .citations a')].map((part) => part.textContent)])"""
            before = page.evaluate(look)
            assert len(before) == 4
            assert all(marks for _, marks in before[:2])
            saved = f"/api/texts/{page.url.rpartition('/')[2]}"
            while len(page.request.get(saved).json()["messages"]) < 8:
                page.wait_for_timeout(50)
            with Archive(place.archive) as archive, archive.transaction():
                archive.remove([each.id for each in archive.documents()])
            page.reload()
            until(page, "document.querySelectorAll('.turn').length === 4")
            assert page.evaluate(look) == before
            page.locator(".turn").nth(1).get_by_role("button", name="Ask a follow-up").click()
            following = page.locator(".following").inner_text()
            assert "the brass one" in following


def test_conversations_are_found_downloaded_and_deleted(page: "Page") -> None:
    shown(page, "/#/ask")
    ask_question(page, "Where did the umbrella go?")
    page.wait_for_url("**#/ask/*")
    page.get_by_role("button", name="New conversation").click()
    until(page, "!document.querySelector('.turn')")
    # Below the question: what is read does not move when the list appears.
    saved, box = page.get_by_text("Saved conversations"), page.locator(".question")
    saved.wait_for()
    assert box.bounding_box()["y"] < saved.bounding_box()["y"]  # type: ignore[index]
    saved.click()
    page.get_by_label("Search: Saved conversations").fill("umbrella")
    until(page, "document.querySelectorAll('.saved > li').length === 1")
    with page.expect_download() as download:
        page.locator(".saved").get_by_role("link", name="Download").click()
    text = download.value.path().read_text("utf-8")
    assert text.startswith("# Where did the umbrella go?")
    assert "> " in text  # the passages that were cited
    page.locator(".saved").get_by_role("button", name="Delete").click()
    page.locator("dialog").get_by_role("button", name="Delete").click()
    until(page, "document.querySelectorAll('.saved > li').length === 0")


def test_a_question_can_be_asked_by_keyboard_and_by_address(page: "Page") -> None:
    shown(page, "/#/ask?q=limescale")
    until(page, ANSWERED)
    assert page.locator(".turn h2").last.inner_text() == "limescale"
    page.get_by_label("Your question").focus()
    page.keyboard.type("When did I first write about books?")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.turn').length === 2")
    until(page, ANSWERED)


def test_fences_that_nothing_closes_are_read_in_linear_time(page: "Page") -> None:
    shown(page, "/#/ask")
    script = """async () => {
      const { prose, fill } = await import("/components.js");
      return [10_000, 40_000].map((times) => {
        const began = performance.now(), node = document.createElement("div");
        fill(node, prose("```js\\n".repeat(times)));
        return [performance.now() - began, node.querySelectorAll("pre").length];
      });
    }"""
    (short_ms, blocks), (long_ms, more) = page.evaluate(script)
    assert long_ms < 12 * max(short_ms, 5) and blocks == more == 0


def test_the_second_answer_is_not_under_the_box(page: "Page") -> None:
    shown(page, "/#/ask")
    ask_question(page, "copper")
    ask_question(page, "limescale")
    answer = page.locator(".turn").last.locator(".answer > *").first.bounding_box()
    box = page.locator(".question").bounding_box()
    assert answer is not None
    assert box is not None
    assert answer["y"] < box["y"]


def test_an_answer_is_plain_text_and_its_citations_are_links(
    browser: "Browser", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = workspace(tmp_path)
    post, words = beginning_of_a_post(place)
    reply = (
        f'You wrote this <img src="https://elsewhere.example/x.png" onerror="alert(1)"> '
        f"![pixel](https://elsewhere.example/y.png) [a way](https://elsewhere.example/) "
        f'[1: "{words}"]. '
    )
    plain = f'It is what you wrote [1: "{words}"]. {reply}'
    with (
        endpoint(monkeypatch, replies=[plain]) as played,
        playing.served(place, played.port) as site,
    ):
        for page in open_page(browser, site):
            shown(page, "/#/ask")
            choose = page.get_by_label("Who answers")
            assert choose.input_value() == "none"  # nothing is sent before somebody chooses
            choose.select_option(label="writer (llama.cpp)")
            text = page.locator(".who").first.inner_text()
            assert "writer (llama.cpp, on this machine) gets your question" in text
            ask_question(page, "five inches of copper")
            answer = page.locator(".turn .answer")
            assert answer.locator("img, iframe, script").count() == 0
            outward = "[...document.querySelectorAll('.turn a')].map((a) => a.getAttribute('href'))"
            assert all(href.startswith("#") for href in page.evaluate(outward))
            assert "Written by writer at llama.cpp" in answer.inner_text()
            citation = page.locator(".citations li").first
            assert words.split()[0] in citation.inner_text()
            page.locator(".answer-text sup a").first.click()
            assert page.evaluate("document.activeElement.closest('.citations') !== null")
            page.keyboard.press("Enter")
            page.wait_for_selector("article mark")
            assert post in page.locator("h1").inner_text()
