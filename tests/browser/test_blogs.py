"""Two blogs in two tabs of one browser, each with its own texts and jobs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import openai_server
from browser import playing
from browser.looking import shown
from browser.site import Site, open_page
from fake_jobs import until
from ownwords.archive.look import look
from ownwords.core.workspace import DATA_FOLDER_VARIABLE, Workspace
from ownwords.tokenizers.bpe import ByteTokenizer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The blog `diary` and `garden` beside it; both have a model, and their jobs are played."""
    monkeypatch.setenv(DATA_FOLDER_VARIABLE, str(tmp_path / "home"))  # it remembers blogs
    for name in ("garden", "diary"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rain.md").write_text("# Rain\n\nIt rained all day.\n")
        workspace = Workspace(tmp_path / f"{name}.ownwords")
        look([tmp_path / name], workspace=workspace.root)
        openai_server.save(workspace.root / "model", ByteTokenizer())
        (workspace.root / "manner").write_text("waits")
    with playing.served(workspace) as site:
        yield site
    playing.kill_jobs(tmp_path)


def garden_of(diary: "Page") -> "Page":
    """A second tab, in which the other blog has been opened."""
    garden = diary.context.new_page()
    shown(garden, "/")
    garden.locator("#blogs").click()
    garden.get_by_role("button", name="Open garden").click()
    garden.wait_for_url("**garden.ownwords#/home")
    garden.locator("#workspace", has_text="garden").wait_for()
    return garden


def saved(site: Site, name: str) -> list[str]:
    folder = site.place.root.with_name(f"{name}.ownwords") / "texts"
    return [json.loads(path.read_bytes())["text"] for path in folder.glob("*.json")]


def test_two_tabs_write_in_two_blogs(browser: "Browser", site: Site) -> None:
    for diary in open_page(browser, site):
        shown(diary, "/#/write")
        garden = garden_of(diary)
        garden.locator("#parts").get_by_text("Write").click()
        for page, text in ((garden, "In the garden"), (diary, "Dear diary")):
            page.get_by_label("Your text").fill(text)
            page.wait_for_url("**#/write/*")
        assert saved(site, "garden") == ["In the garden"]
        assert saved(site, "diary") == ["Dear diary"]
        garden.reload()
        garden.wait_for_selector(".page.write h1")
        assert garden.get_by_label("Your text").input_value() == "In the garden"
        garden.locator("#parts").get_by_text("Posts").click()
        garden.wait_for_selector(".page.posts h1")
        garden.go_back()
        garden.wait_for_selector(".page.write h1")
        for page, name in ((garden, "garden"), (diary, "diary")):
            assert page.locator("#workspace").inner_text() == name
            assert page.title().endswith(f"{name} · ownwords")
            assert f"{name}.ownwords#/write/" in page.url


def test_blogs_are_renamed_and_deleted(browser: "Browser", site: Site) -> None:
    def row(page: "Page", name: str) -> "Locator":
        return page.locator("dialog li").filter(has_text=str(site.place.root.with_name(name)))

    def agree(page: "Page", name: str) -> str:
        dialog = page.get_by_role("dialog").last
        wording = dialog.inner_text()
        dialog.get_by_role("button", name=name, exact=True).click()
        return wording

    for page in open_page(browser, site):
        shown(page, "/")
        page.locator("#blogs").click()
        row(page, "diary.ownwords").get_by_role("button", name="Rename").click()
        page.get_by_label("Name of the blog").fill("Dear diary")
        agree(page, "Rename")
        page.locator("#workspace", has_text="Dear diary").wait_for()
        row(page, "diary.ownwords").get_by_text("Dear diary").wait_for()
        row(page, "diary.ownwords").get_by_role("button", name="Delete").click()
        page.locator("dialog").last.get_by_role("button", name="Copy").click()
        page.locator("dialog").last.get_by_role("button", name="Copied").wait_for()
        wording = agree(page, "Delete")
        assert "Dear diary" in wording
        assert str(site.place.root) in wording
        page.wait_for_url("**#/home?blogs=1")  # the list of those that are left
        page.get_by_role("heading", name="Your blogs").wait_for()
        assert row(page, "diary.ownwords").count() == 0
        assert not site.place.root.exists()


def test_a_training_waits_for_one_of_another_blog(browser: "Browser", site: Site) -> None:
    root = site.place.root
    shutil.rmtree(root / "model")
    for diary in open_page(browser, site):
        garden = diary.context.new_page()
        query = f"blog={root.with_name('garden.ownwords')}"
        started = {"kind": "make"}
        diary.request.post(f"/api/jobs?{query}", data=started)
        shown(diary, "/")
        diary.get_by_role("button", name="Start training").click()
        diary.get_by_text("Waiting: garden is being trained").first.wait_for()
        shown(garden, f"/?{query}#/home")
        garden.get_by_role("button", name="Stop", exact=True).click()
        garden.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
        until((root / "begun").exists)
