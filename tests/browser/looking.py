"""What any page can be checked for: contrast, names, what sticks out, accessibility."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser.site import WIDTHS

if TYPE_CHECKING:
    from playwright.sync_api import Page

MIN_CONTRAST = 4.5  # WCAG 2.2, AA, of text that is not large
MIN_CONTRAST_LARGE = 3.0  # from 24 px, or 18.7 px where it is bold
_TRIES, _PAUSE_MS = 600, 100
MIN_TARGET = 24  # px; WCAG 2.2, 2.5.8

# `make test-browser` installs it.
_AXE = Path(__file__).resolve().parents[2] / "build/axe/node_modules/axe-core/axe.min.js"
_RUN_AXE = """async () => {
  const {violations} = await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a",
    "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"]});
  return violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html}`));
}"""

# Texts that stand out too little from what is behind them.
_CONTRAST = """([least, large]) => {
  const channels = (colour) => {
    const found = colour.match(/[\\d.]+/g).map(Number);
    return colour.startsWith("color(") ? found.map((one, i) => i < 3 ? one * 255 : one) : found;
  };
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const [r, g, b, alpha = 1] = channels(getComputedStyle(each).backgroundColor);
      if (alpha > 0.98) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const wrong = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, said = walk.currentNode.data.trim();
    if (!said || node.closest("svg, noscript, option, .visually-hidden, .skip")) continue;
    if (node.closest(":disabled")) continue;
    if (!node.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
    const style = getComputedStyle(node), size = parseFloat(style.fontSize);
    if (!size) continue;
    const pair = [light(channels(style.color)), light(ground(node))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (isLarge ? large : least)) wrong.push(`${said.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return wrong;
}"""

# What makes the page scroll sideways.
_STICKS_OUT = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  return [...document.querySelectorAll("body *")]
    .filter((node) => node.checkVisibility() && node.getBoundingClientRect().right > wide + 1
      && !node.closest(".scrolled, pre"))
    .map((node) => `${node.tagName}.${node.className}: ${node.textContent.slice(0, 40)}`);
}"""

# Words of headings and controls that are broken over two lines; paths and code may be.
_BROKEN = """() => {
  const wrong = [], range = document.createRange();
  const named = "h1, h2, h3, button, nav a, dt, dd, legend, label";
  for (const node of document.querySelectorAll(named)) {
    if (node.closest("code, bdi, .visually-hidden") || !node.checkVisibility()) continue;
    const walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      if (walk.currentNode.parentElement.closest("code, bdi, option, .visually-hidden")) continue;
      for (const word of walk.currentNode.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
        range.setStart(walk.currentNode, word.index);
        range.setEnd(walk.currentNode, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1) wrong.push(word[0]);
      }
    }
  }
  return wrong;
}"""

# Markup that shows outside of code, and plurals of one.
_UNEDITED = """() => ([...document.querySelectorAll("main pre, main code")]
  .map((code) => code.innerText)
  .reduce((text, code) => text.replace(code, ""), document.querySelector("main").innerText)
  .match(
  /`|\\b1 (minutes|posts|words|pages|texts|passages|cores|steps)\\b|undefined|NaN|\\[object/g
) ?? [])"""

# Controls that a finger would miss.
_SMALL = """(least) => [...document.querySelectorAll("button, select, input, textarea, summary")]
  .filter((node) => node.checkVisibility() && !node.closest(".visually-hidden, p, .choice"))
  .filter((node) => !/checkbox|radio/.test(node.type) && node.className !== "plain")
  .filter((node) => Math.min(node.offsetHeight, node.offsetWidth) < least)
  .map((node) => `${node.tagName} ${node.offsetWidth}x${node.offsetHeight} ${node.innerText}`)"""


def shown(page: "Page", address: str) -> None:
    """Open an address and wait until its page is there."""
    page.goto("about:blank")  # or the same document would only change its hash
    page.goto(address)
    page.wait_for_selector("main h1, main h2")
    until(page, "!document.querySelector('main .loading')")


def until(page: "Page", expression: str) -> None:
    """Wait until it is true; Playwright's own waiting evaluates text, which the policy forbids."""
    for _ in range(_TRIES):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(_PAUSE_MS)
    raise AssertionError(f"it never happened: {expression}")


def tab_until(page: "Page", expression: str) -> None:
    """Press the tab key until it is true of the control that has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate(expression):
            return
    raise AssertionError(f"the tab key never led to: {expression}")


def _looking(script: str, *arguments: object) -> "Callable[[Page], list[str]]":
    def look(page: "Page") -> list[str]:
        problems: list[str] = page.evaluate(script, *arguments)
        return problems

    return look


too_faint = _looking(_CONTRAST, [MIN_CONTRAST, MIN_CONTRAST_LARGE])
broken_words = _looking(_BROKEN)
unedited = _looking(_UNEDITED)
sticking_out = _looking(_STICKS_OUT)
too_small = _looking(_SMALL, MIN_TARGET)


def misfits(page: "Page") -> dict[int, list[str]]:
    """For each width, what makes the page scroll sideways, words that are broken at the end of a
    line, and controls that a finger would miss."""
    found: dict[int, list[str]] = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if problems := sticking_out(page) + broken_words(page) + too_small(page):
            found[width] = problems
    return found


def violations(page: "Page") -> list[str]:
    """What breaks WCAG 2.2 AA on the page; skips without axe-core, the accessibility checker."""
    if not _AXE.exists():
        pytest.skip("needs axe-core: `make test-browser` installs it, if there is npm")
    page.evaluate(_AXE.read_text("utf-8"))
    return _looking(_RUN_AXE)(page)


def headers(page: "Page") -> dict[str, str]:
    """Those of the page's own requests, to change something behind its back."""
    return {"Origin": page.evaluate("location.origin")}


def nameless(page: "Page") -> list[str]:
    """Controls and links without a name for those who listen, as the browser itself computes it."""
    session = page.context.new_cdp_session(page)
    session.send("Accessibility.enable")
    tree = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    return [_role(node) for node in tree if _needs_name(node) and not _name(node)]


def _needs_name(node: dict[str, Any]) -> bool:
    return not node.get("ignored") and _role(node) in {
        "button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "slider",
        "dialog", "navigation", "region", "table", "img", "progressbar", "complementary", "heading",
    }  # fmt: skip


def _role(node: dict[str, Any]) -> str:
    return str(node.get("role", {}).get("value", ""))


def _name(node: dict[str, Any]) -> str:
    return str(node.get("name", {}).get("value", "")).strip()
