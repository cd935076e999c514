"""A real browser at a real server: Debian's headless Chromium, and `ownwords serve` as it is.

What a page may never do fails every test here: an error in the console, a request to anywhere but
the server, something the content security policy had to refuse.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import openai_server
from browser.site import Site, open_page, served, workspace
from ownwords.core.workspace import Workspace
from ownwords.evaluation.scorecard_view import write_scorecard
from ownwords.tokenizers.bpe import ByteTokenizer
from unit import sample_card

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium, for the whole run."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    path_found = next(
        (
            path
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (path := shutil.which(name))
        ),
        None,
    )
    if path_found is None:
        pytest.skip("needs Chromium: Debian's package is called chromium")
    with api.sync_playwright() as playwright:
        # The sandbox needs rights that containers seldom give; only our own pages are opened.
        chromium = playwright.chromium.launch(executable_path=path_found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The sample blog with a hostile post, a tiny model and a scorecard; no test changes it."""
    workspace_made = workspace(tmp_path_factory.mktemp("site"))
    openai_server.save(
        workspace_made.root / "model", ByteTokenizer(), learned=openai_server.LEARNED
    )
    write_scorecard(sample_card.good(), workspace_made.root)
    yield from served(workspace_made)


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """The same for one test alone, which may change it; it has no model."""
    yield from served(workspace(tmp_path))


@pytest.fixture
def empty_site(tmp_path: Path) -> Iterator[Site]:
    """A workspace in which nothing has been made yet."""
    workspace_made = Workspace(tmp_path / "new.ownwords")
    with workspace_made.opened():
        pass
    yield from served(workspace_made)


@pytest.fixture
def expected() -> list[str]:
    """Parts of the errors that a test brings about itself, to be filled by it."""
    return []


@pytest.fixture
def page(browser: "Browser", site: Site, expected: list[str]) -> "Iterator[Page]":
    """The page over `site` at 1280 wide, nothing opened yet: `page.goto("/#/posts")`."""
    yield from open_page(browser, site, expected)


@pytest.fixture
def own_page(browser: "Browser", own_site: Site, expected: list[str]) -> "Iterator[Page]":
    """The page over `own_site`."""
    yield from open_page(browser, own_site, expected)


@pytest.fixture
def empty_page(browser: "Browser", empty_site: Site, expected: list[str]) -> "Iterator[Page]":
    """The page over `empty_site`."""
    yield from open_page(browser, empty_site, expected)
