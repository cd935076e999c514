"""The frame around all parts: ways, keys, colours, widths, and what is said when all fails."""

from typing import TYPE_CHECKING

import pytest

from browser.looking import (
    misfits,
    nameless,
    shown,
    sticking_out,
    too_faint,
    too_small,
    unedited,
    violations,
)
from browser.site import Site, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

PARTS = ("home", "write", "ask", "voice", "posts", "models", "settings")
ADDRESSES = (
    *(f"/#/{part}" for part in PARTS),
    "/#/posts/report",
    "/#/posts/decisions",
)


def test_each_part_has_an_address_and_a_menu_entry(page: "Page") -> None:
    shown(page, "/")
    for part in PARTS:
        page.locator("#parts").get_by_text(part.capitalize()).click()
        page.wait_for_url(f"**#/{part}")
        page.wait_for_selector(f".page.{part} :is(h1, h2)")
        current = page.locator("#parts [aria-current=page]")
        assert current.count() == 1
        assert current.inner_text().lower() == part
        assert page.title().endswith("ownwords")
    page.go_back()
    page.wait_for_selector(".page.models")
    page.locator("#parts").get_by_text("Posts").click()
    page.wait_for_selector(".page.posts")


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_can_be_read_at_every_width(
    browser: "Browser", site: Site, address: str, dark: bool
) -> None:
    for page in open_page(browser, site, dark=dark):
        shown(page, address)
        assert misfits(page) == {}
        assert unedited(page) == []
        assert too_faint(page) == []


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_page_labels_its_parts_for_screen_readers(page: "Page", address: str) -> None:
    shown(page, address)
    assert nameless(page) == []
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en"
    doubled = page.evaluate(
        "() => { const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);"
        " return ids.filter((one, i) => ids.indexOf(one) !== i); }"
    )
    assert doubled == []
    assert page.evaluate("document.getAnimations().length") == 0  # less motion was asked for
    assert violations(page) == []


def test_the_first_tab_skips_the_menu(page: "Page") -> None:
    shown(page, "/#/posts")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    assert page.url.endswith("#/posts")


def test_colours_follow_the_system(browser: "Browser", site: Site) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    for page in open_page(browser, site, dark=True):
        shown(page, "/#/posts")
        dark = page.evaluate(ground)
        page.emulate_media(color_scheme="light")
        assert page.evaluate(ground) != dark


def test_a_hint_never_names_a_command_that_has_a_button(page: "Page", expected: list[str]) -> None:
    expected.append("Failed to load resource")
    error = '{"error": {"message": "the archive is damaged", "hint": "run `ownwords look` again"}}'
    page.route("**/api/corpus/facets?*", lambda route: route.fulfill(status=500, body=error))
    page.goto("/#/posts")
    alert = page.get_by_role("alert")
    assert "ownwords look" not in alert.inner_text()
    alert.get_by_role("link", name="Go to Home").click()
    page.wait_for_selector(".page.home")


def test_an_unknown_address_shows_an_error(page: "Page") -> None:
    page.goto("/#/nowhere")
    assert "no page nowhere" in page.get_by_role("alert").inner_text()
    page.goto("/#/posts/%zz%")  # a lone percent sign is no mistake of ours
    page.wait_for_selector("h1")


def test_the_key_typed_into_the_form_opens_the_page(
    page: "Page", site: Site, expected: list[str]
) -> None:
    expected.append("Failed to load resource")  # the status of a wrong key
    page.context.clear_cookies()
    page.goto("/ask")
    page.get_by_label("Key").fill("not-the-key-at-all")
    page.keyboard.press("Enter")
    page.get_by_text("That is not the key.").wait_for()
    page.get_by_label("Key").fill(site.link.partition("?key=")[2])
    page.get_by_role("button", name="Open").click()
    page.wait_for_selector(".page.ask h1")


def test_a_server_that_is_down_is_reported_and_can_be_retried(
    page: "Page", expected: list[str]
) -> None:
    expected.append("Failed to load resource")
    page.route("**/api/corpus/facets?*", lambda route: route.abort())
    page.goto("/#/posts")
    alert = page.get_by_role("alert")
    assert "the server does not answer" in alert.inner_text().lower()
    page.unroute("**/api/corpus/facets?*")
    alert.get_by_role("button", name="Try again").click()
    page.wait_for_selector("h1")


def test_a_part_that_cannot_be_loaded_reports_that_the_server_is_down(
    page: "Page", expected: list[str]
) -> None:
    expected.append("Failed to load resource")
    page.route("**/models.js", lambda route: route.abort())
    shown(page, "/#/posts")
    page.goto("/#/models")
    text = page.get_by_role("alert").inner_text()
    assert "The server does not answer." in text
    assert page.get_by_role("alert").locator("code").inner_text() == "ownwords"


# --- messages ------------------------------------------------------------------------------------

REFUSAL = '{"error": {"message": "the blog is locked", "hint": "run `ownwords look` again"}}'
COVERED = """[...document.querySelectorAll("main :is(button, a, select, textarea, input), nav a")]
  .filter((node) => {
    const {left, top, width, height} = node.getBoundingClientRect();
    const there = document.elementFromPoint(left + width / 2, top + height / 2);
    return there?.closest("#toasts");
  }).map((node) => node.textContent)"""


def bring_about_an_error(page: "Page") -> None:
    page.route("**/api/workspaces*", lambda route: route.fulfill(status=409, body=REFUSAL))
    page.locator("#blogs").click()
    page.locator("#toasts").get_by_text("The blog is locked.").wait_for()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_message_can_be_read_and_leaves_the_page_usable(
    browser: "Browser", site: Site, expected: list[str], dark: bool
) -> None:
    expected.append("Failed to load resource")
    for page in open_page(browser, site, expected, dark=dark):
        for width, height in ((360, 640), (1280, 900)):
            page.set_viewport_size({"width": width, "height": height})
            for address in ("/#/ask", "/#/models"):
                shown(page, address)
                bring_about_an_error(page)
                page.locator("#toasts").get_by_role("link").hover()
                assert too_faint(page) == [], width
                page.get_by_role("button", name="Close this message").hover()
                assert too_small(page) == [], width
                assert sticking_out(page) == [], width
                if width == 360:  # wider windows have room beside their controls
                    assert page.evaluate(COVERED) == [], address


def test_a_message_goes_when_closed_replaced_or_left_behind(
    page: "Page", expected: list[str]
) -> None:
    expected.append("Failed to load resource")
    shown(page, "/#/models")
    bring_about_an_error(page)
    page.get_by_role("button", name="Close this message").click()
    assert page.locator(".toast").count() == 0
    bring_about_an_error(page)
    with page.expect_response("**/api/workspaces*"):
        page.locator("#blogs").click()
    page.wait_for_timeout(200)
    assert page.locator(".toast").count() == 1
    page.locator("#parts").get_by_text("Posts").click()
    page.wait_for_selector(".page.posts h1")
    assert page.locator(".toast").count() == 0
