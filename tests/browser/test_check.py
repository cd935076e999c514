"""Check in a real browser: a draft, its marks and the reasons."""

from typing import TYPE_CHECKING

import pytest

from browser.axe import violations
from browser.looking import shown, sticking_out, too_faint, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

FOREIGN = "In order to leverage best practices, users should configure appropriate settings."


def test_a_draft_is_marked_and_the_reasons_are_listed(page: "Page") -> None:

    shown(page, "/#/check")
    page.get_by_label("Your draft").fill(f"It rained. I stayed in <b>bed</b>.\n\n{FOREIGN}")
    page.keyboard.press("Control+Enter")
    until(page, "!!document.querySelector('.statement')")
    assert page.locator(".checked b").count() == 0
    assert FOREIGN in page.locator(".checked mark").all_inner_texts()
    assert "“leverage”" in page.locator("ol.notes").inner_text()
    assert too_faint(page) == []
    page.set_viewport_size({"width": 360, "height": 800})
    assert sticking_out(page) == []
    assert violations(page) == []
