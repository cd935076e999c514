"""How fast the page loads and responds to a click, with 10,000 posts.

    .venv/bin/python -m bench.page FOLDER

writes the blog of `endpoints.py` into FOLDER, unless it is there, serves its workspace, and opens
the page in Chromium, ROUNDS times in turn with an almost empty page (/healthz), whose time is the
browser's own. Prints medians in milliseconds: until the first paint, until the content is shown,
and from a click to the frame that shows its effect. Goals: first paint under 300, click under 100.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from bench.endpoints import write_blog
from bench.machine import measuring
from playwright.sync_api import BrowserContext, Page, sync_playwright

from ownwords.archive.look import look
from ownwords.core.workspace import Workspace

ROUNDS = 7
PAINT_MS, CLICK_MS = 300, 100
_PAINTED = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null"""
# From the click to the first frame in which the text of the element has changed.
_CLICKED = """([button, shown]) => new Promise((resolve) => {
  const node = document.querySelector(shown), before = node.textContent, began = performance.now();
  const look = () => requestAnimationFrame(() => {
    if (document.querySelector(shown)?.textContent === before) look();
    else requestAnimationFrame(() => resolve(performance.now() - began));
  });
  document.querySelector(button).click();
  look();
})"""
CLICKS = (
    ("posts: the other order", "/#/posts", ".sorted button", ".every tbody"),
    ("posts: the next page", "/#/posts", ".pager button:last-child", ".every tbody"),
    ("home to posts", "/#/home", "#parts a[href='#/posts']", "main h1"),
    ("posts to ask", "/#/posts", "#parts a[href='#/ask']", "main h1"),
    ("home to models", "/#/home", "#parts a[href='#/models']", "main h1"),
)


def opened(context: BrowserContext, address: str, content: str) -> tuple[Page, float, float]:
    """Open a page; return it and the milliseconds until its first paint and its content."""
    page = context.new_page()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(content)
    shown = page.evaluate("() => performance.now()")
    while (painted := page.evaluate(_PAINTED)) is None:
        page.wait_for_timeout(10)
    return page, painted, max(shown, painted)


def measure(context: BrowserContext) -> dict[str, list[float]]:
    """Return the milliseconds of each figure, round by round."""
    rows: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name, address, content in (
            ("nothing", "/healthz", "pre"),
            ("home", "/#/home", ".step[data-state=done] .summary"),
            ("posts", "/#/posts", ".every tbody tr"),
        ):
            page, painted, shown = opened(context, address, content)
            rows[f"{name}: first paint"].append(painted)
            rows[f"{name}: content"].append(shown)
            page.close()
        for name, address, button, shown_at in CLICKS:
            page, _, _ = opened(context, address, shown_at)
            page.wait_for_selector(button)
            page.wait_for_timeout(300)  # for what loads after the first paint
            rows[name].append(page.evaluate(_CLICKED, [button, shown_at]))
            page.close()
    return rows


@measuring()
def main(folder: Path) -> int:
    """Print the figures; return 1 if a goal is missed."""
    blog, root = folder / "blog", folder / "ten.ownwords"
    if not blog.exists():
        write_blog(blog)
    look([blog], workspace=root)  # does nothing if it is already done
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        print("needs Chromium", file=sys.stderr)
        return 2
    command = [sys.executable, "-u", "-m", "ownwords", "serve", str(Workspace(root).root)]
    with subprocess.Popen(
        [*command, "--no-key", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        address = next(line for line in server.stdout if line.startswith("Page: "))[6:].strip()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox"]
                )
                context = browser.new_context(base_url=address)
                opened(context, "/#/home", "main h1")[0].close()  # warms up the server
                rows = measure(context)
                browser.close()
        finally:
            server.terminate()
    own = statistics.median(rows["nothing: first paint"])
    is_met = True
    for name, values in rows.items():
        middle = statistics.median(values)
        goal = PAINT_MS if name.endswith(("paint", "content")) else CLICK_MS
        is_met &= middle <= goal
        print(
            f"{name:28} {middle:7.0f} ms  {middle / own:5.1f} times a page of nothing"
            f"  (fastest {min(values):.0f}, goal {goal})"
        )
    return 0 if is_met else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    sys.exit(main(parser.parse_args().folder))
