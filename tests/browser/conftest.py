"""A real browser and a real server: Debian's headless Chromium and `ownwords serve`.

Every test here fails for an error in the console, a request to anywhere but the server, and
whatever the content security policy refuses.
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
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs Chromium: Debian's package is called chromium")
    with api.sync_playwright() as playwright:
        # The sandbox needs rights that containers seldom give; only our own pages are opened.
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The sample blog with a hostile post, a tiny model and a scorecard; no test changes it."""
    place = workspace(tmp_path_factory.mktemp("site"))
    openai_server.save(place.root / "model", ByteTokenizer(), learned=openai_server.LEARNED)
    write_scorecard(sample_card.good(), place.root)
    with served(place) as site:
        yield site


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """The same for one test alone, which may change it; it has no model."""
    with served(workspace(tmp_path)) as site:
        yield site


@pytest.fixture
def empty_site(tmp_path: Path) -> Iterator[Site]:
    """A workspace in which nothing has been made yet."""
    workspace_made = Workspace(tmp_path / "new.ownwords")
    with workspace_made.opened():
        pass
    with served(workspace_made) as site:
        yield site


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
