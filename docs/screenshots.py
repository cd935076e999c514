"""Take the pictures of the page that the docs show: `make screenshots`, over a workspace.

Needs Chromium (Debian's package is called chromium) and the package playwright. The pictures are
of the page as it is, with all that stands in the workspace; nothing in them is arranged.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, Page, sync_playwright

FOLDER = Path(__file__).parent / "screenshots"
WIDE, TALL = 1280, 900
PHONE = {"width": 360, "height": 760}
TABLET = {"width": 768, "height": 1100}
QUESTION = "What did I do about the limescale?"
NOTES = """# The rain gauge
made the gauge in 2014 from a copper tube, five inches
32 mm of rain in May, the most since 2009
the kettle not in the garden"""
LOOK_MS, STILL_LOOKS, MOST_LOOKS = 250, 8, 240
WRITING_MS = 600_000


def main() -> None:
    """Serve the workspace named on the command line, and look at each part of its page."""
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/screenshots.py WORKSPACE")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("there is no Chromium here; Debian's package is called chromium")
    FOLDER.mkdir(exist_ok=True)
    with serving(Path(sys.argv[1])) as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path in places(browser, link).items():
            with looking(browser, link, dark=False) as page:
                shot(page, path, f"{name}.png")
        with looking(browser, link, dark=True) as page:
            for name in ("home", "models"):
                shot(page, f"/#/{name}", f"{name}-dark.png")
        with looking(browser, link, size=PHONE) as page:
            shot(page, "/#/home", "home-phone.png")
            shot(page, f"/#/ask?q={quote(QUESTION)}", "ask-phone.png")
        with looking(browser, link, size=TABLET) as page:
            shot(page, "/#/home", "home-tablet.png")
        browser.close()


def places(browser: Browser, link: str) -> dict[str, str]:
    """What is looked at, by the name of its picture."""
    with looking(browser, link) as page:
        posts = page.request.get("/api/corpus/posts?sort=words&most=3").json()["rows"]
        model = page.request.get("/api/models").json()["models"][0]["name"]
    found_in = posts[min(2, len(posts) - 1)]["id"]
    return {
        "home": "/#/home",
        "posts": "/#/posts",
        "post": f"/#/posts/post/{quote(found_in, safe='')}",
        "decisions": "/#/posts/decisions",
        "report": "/#/posts/report",
        "write": "/#/write",
        "ask": f"/#/ask?q={quote(QUESTION)}",
        "models": "/#/models",
        "scorecard": f"/#/models/{quote(model)}",
        "settings": "/#/settings",
    }


@contextmanager
def looking(
    browser: Browser, link: str, *, dark: bool = False, size: dict[str, int] | None = None
) -> Iterator[Page]:
    """A page of that size and those colours."""
    context = browser.new_context(
        base_url=link.partition("/?")[0],
        viewport={
            "width": (size or {}).get("width", WIDE),
            "height": (size or {}).get("height", TALL),
        },
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    context.request.get(link)  # leaves the cookie
    yield context.new_page()
    context.close()


def shot(page: Page, path: str, name: str) -> None:
    """What is seen of a place without scrolling, once all of it is there."""
    page.goto("about:blank")
    page.goto(path)
    page.wait_for_selector("main :is(h1, h2)")
    if path.startswith("/#/write"):
        page.get_by_label("Notes or a draft").fill(NOTES)
        page.get_by_label("Notes or a draft").press("Control+Enter")
        page.wait_for_selector(".below > :not(.loading)", timeout=WRITING_MS)
    page.wait_for_selector("main .loading", state="detached", timeout=WRITING_MS)
    settle(page)
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=FOLDER / name)
    print(FOLDER / name)


def settle(page: Page) -> None:
    """Wait until nothing has been added for a while: the network of a live page is never idle."""
    previous, still = -1, 0
    for _ in range(MOST_LOOKS):
        now = int(page.evaluate("document.querySelector('main').innerText.length"))
        still = still + 1 if now == previous else 0
        if still == STILL_LOOKS:
            return
        previous = now
        page.wait_for_timeout(LOOK_MS)


@contextmanager
def serving(workspace: Path) -> Iterator[str]:
    """The link to a server over the workspace."""
    command = [sys.executable, "-u", "-m", "ownwords", "serve", str(workspace), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if match := re.search(r"http://127\.0\.0\.1:\d+/\S*", line):
                break
        else:
            sys.exit("the server did not start")
        try:
            yield match[0]
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
