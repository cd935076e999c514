"""From an empty folder to a model, its verdict, its export and an answer, only by clicking."""

import html
import importlib.util
import os
import re
import shutil
import signal
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import quick_ownwords
from browser.looking import shown
from browser.site import BLOG, Site, open_page, served
from exports import wordpress
from llama import open_llama
from ownwords.core.workspace import DATA_FOLDER_VARIABLE, Workspace
from ownwords.models.gguf.container import open_gguf
from ownwords.serve.jobs import KINDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

POSTS = sorted((BLOG / "posts").glob("*.md"))
KEY = "a-key-of-the-journey"
_LONG_MS = 300_000  # a making, on a slow machine with other work
_EXPORTED = "a[download$='.gguf']"


def database(folder: Path) -> Path:
    """The Publii database of the sample blog, alone in its folder."""
    return Path(shutil.copy(BLOG / "input" / "db.sqlite", folder))


def markdown_zip(folder: Path) -> Path:
    path = folder / "posts.zip"
    with zipfile.ZipFile(path, "w") as file:
        for post in POSTS:
            file.write(post, f"posts/{post.name}")
    return path


def wordpress_file(folder: Path) -> Path:
    """The sample blog as WordPress would export it."""
    items = []
    for number, post in enumerate(POSTS, 100):
        head, _, body = post.read_text("utf-8").removeprefix("---\n").partition("\n---\n")
        title = re.search(r"^title: (.*)$", head, re.MULTILINE)
        assert title is not None
        paragraphs = "".join(f"<p>{html.escape(part)}</p>\n" for part in body.split("\n\n") if part)
        items.append(wordpress.item(number, title[1], paragraphs, day=post.name[:10]))
    path = folder / "steps.WordPress.xml"
    path.write_text(wordpress.HEAD + "".join(items) + wordpress.TAIL, "utf-8")
    return path


@pytest.fixture
def port() -> int:
    """A port that is free, so that a server can come back to it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a machine on which nothing is installed and little is trained."""
    folder = tmp_path_factory.mktemp("user")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OWNWORDS_")}
    return {
        **kept,
        DATA_FOLDER_VARIABLE: str(folder / "data"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


@contextmanager
def serving(place: Workspace, port: int, environment: dict[str, str]) -> Iterator[Site]:
    program, options = quick_ownwords.__file__, ("--key", KEY, "--port", str(port))
    with served(place, program, options=options, environment=environment) as site:
        yield replace(site, link=f"http://127.0.0.1:{port}/?key={KEY}")  # it prints no given key


# All headings of the page in turn.
_HEADINGS = """() => {
  globalThis.headings = [];
  const look = () => headings.push(document.querySelector("h1")?.textContent);
  const all = {childList: true, subtree: true};
  new MutationObserver(look).observe(document.querySelector("main"), all);
}"""


def begin(page: "Page", file: Path) -> None:
    """Give the page a file, and begin to make a model of it, as quickly as it offers."""
    shown(page, "/")
    page.evaluate(_HEADINGS)
    page.locator("input[type=file]").set_input_files(file)
    page.wait_for_selector(".cards", timeout=_LONG_MS)
    page.locator(".cards input").first.check()
    page.get_by_role("button", name="Start training").click()


def use(page: "Page") -> None:
    """The verdict, an export and an answer with its passage."""
    page.wait_for_selector(".verdict", timeout=_LONG_MS)
    headings = page.evaluate("headings")
    assert headings.index("Making your model") < headings.index("Here is your model")
    assert "Making another model" not in headings
    assert page.locator(".verdict").inner_text().endswith(".")
    assert page.locator(".samples blockquote").count() == 3
    page.get_by_text("Take it with you").click()
    page.get_by_role("button", name="Export").click()
    page.wait_for_selector(_EXPORTED, timeout=_LONG_MS)
    with page.expect_download() as download:
        page.locator(_EXPORTED).click()
    check_gguf(download.value.path())
    page.locator(".way", has_text="Ask").click()
    page.get_by_label("Your question").fill("When did I first write about limescale?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".passages-found li a", timeout=_LONG_MS)
    page.locator(".passages-found li a").first.click()
    page.wait_for_selector("article.reading")


def check_gguf(path: Path) -> None:
    """llama.cpp opens it, where it is installed; our own reader does."""
    with open_gguf(path) as exported:
        assert exported.metadata["general.architecture"]
    if importlib.util.find_spec("llama_cpp"):
        model = open_llama(path, n_ctx=64)
        assert model("The trouble with", max_tokens=4)["choices"][0]["text"]


@pytest.mark.parametrize("write", [database, wordpress_file, markdown_zip])
def test_a_blog_becomes_a_model_by_clicking(
    browser: "Browser",
    tmp_path: Path,
    port: int,
    environment: dict[str, str],
    write: Callable[[Path], Path],
) -> None:
    place = Workspace(tmp_path / "new.ownwords")
    with serving(place, port, environment) as site:
        for page in open_page(browser, site):
            begin(page, write(tmp_path))
            use(page)


def test_the_server_dies_in_each_stage_and_the_page_goes_on(
    browser: "Browser", tmp_path: Path, port: int, environment: dict[str, str]
) -> None:
    place = Workspace(tmp_path / "new.ownwords")
    expected = ["Failed to load resource", "net::ERR"]
    stages = set(KINDS["make"].parts.values())
    killed = []
    with serving(place, port, environment) as site:
        pages = open_page(browser, site, expected)
        page = next(pages)
        begin(page, database(tmp_path))
        killed.append(kill_in(site, page, stages))
    while killed[-1] and stages - set(killed):
        page.wait_for_selector("#lost .problem")
        with serving(place, port, environment) as site:
            page.wait_for_selector("#lost", state="hidden")
            killed.append(kill_in(site, page, stages - set(killed)))
    assert len(killed) > 2  # those that are faster than the eye are over before
    with serving(place, port, environment):
        page.wait_for_selector(".verdict", timeout=_LONG_MS)
        page.wait_for_selector("#lost", state="hidden")
        assert "/login" not in page.url
    with pytest.raises(StopIteration):
        next(pages)


def kill_in(site: Site, page: "Page", stages: set[str]) -> str:
    """Kill the server in the first of the stages that the job comes to; "" if it is over before."""
    deadline = time.monotonic() + _LONG_MS / 1000
    while time.monotonic() < deadline:
        jobs = page.request.get("/api/home").json()["jobs"]
        making = next((job for job in jobs if job["kind"] == "make"), None)
        if making and making["status"] != "running":
            assert making["status"] == "done", making
            return ""
        if making and making["stage"] in stages:
            os.kill(site.pid, signal.SIGKILL)
            return str(making["stage"])
        page.wait_for_timeout(50)
    raise AssertionError("the job stands still")
