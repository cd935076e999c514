"""Posts in a real browser: all of them, search, a text to read, decisions, the report."""

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from browser.looking import shown, tab_until, until
from browser.site import BLOG, Site
from ownwords.archive.look import look

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.browser

POSTS = 55  # of examples/blog, a page and the hostile one among them


def fetch_json(page: "Page", path: str) -> Any:  # noqa: ANN401 - JSON
    answer = page.request.get(path)
    return json.loads(answer.text())


def titles(page: "Page") -> list[str]:
    return [cell.inner_text() for cell in page.locator(".every tbody .named").all()]


def test_the_page_shows_the_figures_of_the_report(page: "Page") -> None:
    shown(page, "/#/posts/report")
    for heading in ("Where the words are", "Whose words these are", "Duplicate text"):
        assert page.get_by_role("heading", name=heading).count() == 1
    posts = fetch_json(page, "/api/corpus/posts")["total"]
    assert page.locator(".totals b").first.inner_text() == f"{posts - 1}"
    assert page.locator("svg.columns rect.own").count() > 1
    assert page.locator("svg.stack").count() >= 2
    # Not as the page's own lists, legends and verdicts look.
    style = "(node, name) => getComputedStyle(node)[name]"
    assert page.locator("table.legend").first.evaluate(style, "display") == "table"
    label = page.locator("#decisions li span.verdict").first
    assert label.evaluate("(node) => node.getBoundingClientRect().width") < 120
    assert label.evaluate(style, "borderLeftStyle") == "none"
    page.locator("#lengths table a").first.click()
    page.wait_for_selector("article.reading")


def test_markup_in_a_post_stays_text(page: "Page") -> None:
    shown(page, "/#/posts?title=img")
    assert titles(page) == ["<img src=x onerror=alert(1)> & <script>alert(2)</script>"]
    page.locator(".every tbody a").first.click()
    page.wait_for_selector("article.reading")
    assert page.locator("main :is(script, iframe, img)").count() == 0
    assert "<script>alert(2)</script>" in page.locator("h1").inner_text()
    assert page.get_by_role("link", name="<b>bold</b>").count() == 1


def test_posts_are_searched_sorted_and_paged(page: "Page") -> None:
    shown(page, "/#/posts")
    assert summary_of(page).startswith(f"{POSTS - 1} posts and 1 page, ")
    first = titles(page)
    assert len(first) == 50
    page.get_by_role("button", name="Next").click()
    page.wait_for_url("**first=50")
    until(page, "document.querySelectorAll('.every tbody tr').length === 5")
    assert not set(first) & set(titles(page))
    page.get_by_role("button", name="Previous").click()
    until(page, "document.querySelectorAll('.every tbody tr').length === 50")
    page.get_by_label("Sort by").select_option("title")
    page.wait_for_url("**sort=title**")
    until(page, "document.querySelector('.every .named').textContent.startsWith('3')")
    ordered = titles(page)
    assert ordered == sorted(ordered, key=str.casefold)


def test_the_address_holds_the_chosen_filters(page: "Page") -> None:
    shown(page, "/#/posts?year=2022&sort=words")
    years = {row.inner_text() for row in page.locator(".every td:nth-child(2)").all()}
    assert years
    assert all(year.startswith("2022") for year in years)
    assert page.get_by_label("Year").input_value() == "2022"
    page.locator(".every tbody a").first.click()
    page.wait_for_selector("article.reading")
    page.go_back()
    page.wait_for_selector(".every")
    assert page.get_by_label("Year").input_value() == "2022"


def test_a_text_shows_who_wrote_each_part(page: "Page") -> None:
    rows = fetch_json(page, "/api/corpus/posts?most=200")["rows"]
    for row in rows[:12]:
        post = fetch_json(page, f"/api/corpus/post?id={row['id']}")
        foreign = [segment for segment in post["segments"] if segment["whose"] != "own"]
        if foreign:
            break
    shown(page, f"/#/posts/post/{row['id'].replace('/', '%2F')}")
    assert page.locator("h1").inner_text() == row["title"]
    assert page.locator("article .foreign").count() == len(foreign)
    text = " ".join(page.locator("article").inner_text().split())
    for segment in post["segments"]:
        assert " ".join(segment["text"].split())[:60] in text


def summary_of(page: "Page") -> str:
    text: str = page.locator(".sorted > .quiet").inner_text()
    return text


def test_a_citation_opens_at_its_words(page: "Page") -> None:
    row = fetch_json(page, "/api/corpus/posts?sort=words")["rows"][0]
    post = fetch_json(page, f"/api/corpus/post?id={row['id']}")
    last = [segment["text"] for segment in post["segments"] if segment["kind"] == "prose"][-1]
    words = re.split(r"(?<=[.!?])\s", last)[-1]
    shown(page, f"/#/posts/post/{row['id'].replace('/', '%2F')}?quote={words.replace('%', '%25')}")
    marks = page.locator("article mark")
    until(page, "document.querySelector('article mark')")
    assert "".join(mark.inner_text() for mark in marks.all()).split() == words.split()
    page.wait_for_timeout(100)
    assert page.evaluate(
        "(() => { const box = document.querySelector('article mark').getBoundingClientRect();"
        " return box.top > 0 && box.bottom < innerHeight; })()"
    )


def test_a_citation_that_no_longer_exists_is_reported(page: "Page") -> None:
    row = fetch_json(page, "/api/corpus/posts")["rows"][0]
    shown(page, f"/#/posts/post/{row['id'].replace('/', '%2F')}?quote=these words are nowhere")
    assert page.get_by_text("This passage is no longer in the post").count() == 1


def test_a_late_answer_never_replaces_a_newer_one(page: "Page") -> None:
    held: list[Route] = []

    def hold(route: "Route") -> None:
        if "copper" in route.request.url:
            held.append(route)
        else:
            route.continue_()

    shown(page, "/#/posts")
    page.route("**/api/corpus/posts?*", hold)
    page.get_by_label("Title").fill("copper")
    until(page, "location.hash.includes('copper')")
    page.get_by_label("Title").fill("img")
    until(page, "document.querySelectorAll('.every tbody tr').length === 1")
    title = page.locator(".every tbody th").inner_text()
    held[0].continue_()
    page.wait_for_timeout(300)
    assert page.locator(".every tbody th").inner_text() == title


def test_a_post_can_be_found_read_and_decided_on_by_keyboard(
    own_page: "Page", own_site: Site
) -> None:
    page = own_page
    shown(page, "/")
    tab_until(page, "document.activeElement.textContent.trim() === 'Posts'")
    page.keyboard.press("Enter")
    page.wait_for_selector(".every")
    tab_until(page, "document.activeElement.labels?.[0]?.textContent === 'Title'")
    page.keyboard.type("img")
    until(page, "document.querySelectorAll('.every tbody tr').length === 1")
    tab_until(page, "document.activeElement.closest('.every') !== null")
    page.keyboard.press("Enter")
    page.wait_for_selector("article.reading")
    tab_until(page, "document.activeElement.type === 'radio'")
    page.keyboard.press("ArrowLeft")  # from keep, round to leave out
    page.wait_for_selector(".decider >> text=Your choice")
    assert page.evaluate("document.activeElement.value") == "leave out"
    assert _decisions(own_site)[_hostile(page)] == "leave out"
    until(page, "document.getElementById('announcer').textContent.includes('Left out')")


def test_decisions_are_saved_previewed_and_undone(own_page: "Page", own_site: Site) -> None:
    page = own_page
    shown(page, "/#/posts/decisions")
    before = own_site.place.choices.read_text("utf-8")
    row = page.locator(".deciding > li").first
    chosen = row.locator("input:checked").input_value()
    changed = "keep" if chosen != "keep" else "leave out"
    row.locator(f"input[value='{changed}']").check(force=True)
    page.wait_for_selector(".pending.card")
    text = page.locator(".pending").inner_text()
    assert "At the next training: 1 change." in text
    assert page.locator(".pending").get_by_role("link", name="Make a new model").count() == 1
    then = fetch_json(page, "/api/corpus/decisions")["words_then"]
    assert f"{then:,}" in text
    row.get_by_role("button", name="Back to the default").click()
    page.wait_for_selector(".pending.card", state="detached")
    assert own_site.place.choices.read_text("utf-8") == before
    row.locator(f"input[value='{changed}']").check(force=True)
    page.wait_for_selector(".pending.card")
    look([BLOG, own_site.place.root.parent / "extra"], workspace=own_site.place.root)
    shown(page, "/#/posts/decisions")
    assert page.locator(".pending.card").count() == 0
    assert fetch_json(page, "/api/corpus/decisions")["words_now"] == then


def test_before_the_first_look_the_page_says_what_to_do(
    empty_page: "Page", expected: list[str]
) -> None:
    expected.append("404")
    for room in ("", "/decisions", "/report"):
        shown(empty_page, f"/#/posts{room}")
        assert "No posts read yet" in empty_page.locator("main").inner_text()
        empty_page.get_by_role("link", name="Choose your blog").click()
        empty_page.wait_for_selector(".page.home")


def test_a_long_page_has_a_table_of_contents(page: "Page") -> None:
    shown(page, "/#/posts/report")
    page.set_viewport_size({"width": 360, "height": 900})
    page.reload()
    page.get_by_text("On this page").click()  # folded where there is little room
    page.set_viewport_size({"width": 1280, "height": 900})
    page.locator(".contents").get_by_role("button", name="Year by year").click()
    heading = page.get_by_role("heading", name="Year by year")
    box = heading.bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 900
    assert page.evaluate("document.activeElement.textContent") == "Year by year"


def _hostile(page: "Page") -> str:
    rows = fetch_json(page, "/api/corpus/posts?title=onerror")["rows"]
    return str(rows[0]["id"])


def _decisions(site: Site) -> dict[str, str]:
    entries = tomllib.loads(site.place.choices.read_text("utf-8"))["post"]
    return {entry["id"]: entry["decision"] for entry in entries}
