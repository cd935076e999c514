"""A new user's way by clicking only: from an empty folder to a report, an answer and a text.

    .venv/bin/python -m bench.walk PICTURES examples/blog/posts OTHER ...

In Chromium, each blog is dropped as a zip file on the page of a server in an empty folder, with an
empty data folder. Prints the seconds of each part, and saves a screenshot of each in PICTURES. The
questions are those that the page proposes and a post's title; the shortest training is chosen.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machine import measuring
from playwright.sync_api import Page, sync_playwright

from ownwords.core.workspace import DATA_FOLDER_VARIABLE

PARTS = ("report", "Ask", "a first taste and its result", "Write")
_LONGEST_MS = 3_600_000


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Yield the link of a server without any data."""
    command = [sys.executable, "-u", "-m", "ownwords", "serve", str(folder / "new.ownwords")]
    with subprocess.Popen(
        [*command, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {DATA_FOLDER_VARIABLE: str(folder / "data")},
    ) as server:
        assert server.stdout is not None
        try:
            yield next(word for line in server.stdout for word in line.split() if "key=" in word)
        finally:
            server.terminate()


def walk(page: Page, link: str, blog: Path, pictures: Path) -> dict[str, float]:
    """Return the seconds of each part."""
    seconds: dict[str, float] = {}
    began = time.perf_counter()

    def reached(part: str, selector: str) -> None:
        nonlocal began
        page.wait_for_selector(selector, timeout=_LONGEST_MS)
        seconds[part] = time.perf_counter() - began
        page.screenshot(path=pictures / f"{blog.stem}-{len(seconds)}.png", full_page=True)
        began = time.perf_counter()

    page.goto(link)
    page.wait_for_selector("input[type=file]", state="attached")
    page.screenshot(path=pictures / f"{blog.stem}-0.png", full_page=True)
    began = time.perf_counter()
    page.locator("input[type=file]").set_input_files(blog)
    reached("report", ".cards")
    page.locator("#parts a[href='#/posts']").click()
    page.wait_for_selector(".every tbody tr")
    title = page.locator(".every tbody tr a").first.inner_text()
    page.locator("#parts a[href='#/ask']").click()
    page.get_by_label("Your question").fill(f"What did I say about {title}?")
    began = time.perf_counter()
    page.keyboard.press("Enter")
    reached("Ask", ".passages-found li a")
    page.locator("#parts a[href='#/home']").click()
    page.wait_for_selector(".cards input")
    page.locator(".cards input").first.check()
    offered = page.locator(".cards label").first.inner_text()
    page.get_by_role("button", name="Start", exact=True).click()
    began = time.perf_counter()
    reached(PARTS[2], ".verdict")
    print(f"{blog.stem}: offered as {' '.join(offered.split())}", flush=True)
    page.locator("#parts a[href='#/write']").click()
    page.get_by_role("button", name="Write", exact=True).click()
    began = time.perf_counter()
    page.get_by_role("button", name="Stop", exact=True).wait_for()
    page.get_by_role("button", name="Stop", exact=True).wait_for(
        state="hidden", timeout=_LONGEST_MS
    )
    reached("Write", "main")
    return seconds


@measuring()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("pictures", type=Path)
    parser.add_argument("blogs", type=Path, nargs="+")
    options = parser.parse_args()
    options.pictures.mkdir(parents=True, exist_ok=True)
    print("| blog | posts | " + " | ".join(PARTS) + " |\n|---|" + "---:|" * (len(PARTS) + 1))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for blog in options.blogs:
            posts = sorted(blog.rglob("*.md")) or sorted(blog.rglob("*.txt"))
            with tempfile.TemporaryDirectory() as name, serving(Path(name)) as link:
                packed = Path(name) / f"{blog.name}.zip"
                with zipfile.ZipFile(packed, "w") as file:
                    for post in posts:
                        file.write(post, post.relative_to(blog))
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                seconds = walk(page, link, packed, options.pictures)
                page.close()
            cells = " | ".join(f"{seconds[part]:.1f}" for part in seconds)
            print(f"| {blog.name} | {len(posts)} | {cells} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
