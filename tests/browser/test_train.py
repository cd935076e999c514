"""Train in a real browser: a training is shown as it goes, begun, stopped, gone on with."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from browser import playing
from browser.looking import shown, until
from browser.site import Site, opened, workspace
from ownwords.core.progress import Event, JsonLines
from ownwords.core.workspace import Workspace, try_lock
from played_make import PLAN, metric

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A workspace of the sample blog, whose trainings are played."""
    place = workspace(tmp_path_factory.mktemp("train"))
    with playing.served(place) as address:
        yield Site(address, place)


@pytest.fixture
def place(site: Site) -> Iterator[Workspace]:
    """The workspace, in which nothing was trained yet; no training outlives the test."""
    (site.place.root / "manner").write_text("waits")
    yield site.place
    with suppress(OSError, ValueError):
        pid = json.loads((site.place.runs / "serve" / "started.json").read_text())["pid"]
        os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(site.place.runs)


@pytest.fixture
def page(browser: "Browser", site: Site, place: Workspace) -> "Iterator[Page]":
    assert place
    yield from opened(browser, site)


def a_run(place: Workspace, name: str) -> JsonLines:
    """The folder of a run, and its log."""
    run = place.runs / name
    run.mkdir(parents=True)
    (run / "plan.toml").write_text(PLAN)
    (run / "config.toml").write_text("[train]\nsteps = 40\n")
    log = JsonLines(run / "metrics.jsonl")
    log(Event(time.time(), "train", "start", total=40, unit="steps"))
    return log


def heading(page: "Page") -> str:
    return page.locator("h1").inner_text()


def until_heading(page: "Page", said: str) -> None:
    until(page, f"document.querySelector('h1')?.innerText === {json.dumps(said)}")


def tabbed_to(page: "Page", name: str) -> None:
    """Walk with the tab key until the control of that name has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        said = page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText")
        if said and said.strip() == name:
            return
    raise AssertionError(f"the tab key never came to {name}")


def test_a_training_begun_in_a_terminal_is_shown_as_it_goes(page: "Page", place: Workspace) -> None:
    log, run = a_run(place, "pretrain-cc"), place.runs / "pretrain-cc"
    with (run / ".lock").open("a+") as held:
        assert try_lock(held.fileno())
        for step in (2, 4, 6):
            log(metric(step, bits_per_byte=3 - step / 10, loss=2.0, tokens_per_s=1234.0, rate=0.01))
        shown(page, "/#/train")
        until_heading(page, "Training")
        assert page.get_by_text("Ctrl-C there").count() == 1
        assert page.get_by_role("button", name="Stop").count() == 0
        assert page.get_by_role("button", name="Start training").count() == 0
        until(page, "document.querySelector('.totals')?.innerText.includes('1,230')")
        log(metric(8, bits_per_byte=2.1, loss=1.4, tokens_per_s=2000.0, rate=0.01))
        log(metric(8, validation_bits_per_byte=2.05, averaged_bits_per_byte=2.01))
        (run / "samples.txt").write_text("\n--- step 8\nThe <b>rain</b> came.\n\nIt stayed.\n")
        until(page, "document.querySelector('.totals')?.innerText.includes('2.010')")
        until(page, "document.body.innerText.includes('The <b>rain</b> came.')")
        assert page.locator("main b b").count() == 0
        assert page.locator(".course circle.mark.best").count() == 1
        # The plan, each number with its reason.
        page.get_by_text("1 number with reasons").click()
        assert "that fills the time" in page.locator(".plan-table").inner_text()
        # A reload loses nothing.
        page.reload()
        until(page, "document.querySelector('.totals')?.innerText.includes('2.010')")
        assert "bits per byte on held-out posts" in page.locator(".log").inner_text()
    log.close()
    until_heading(page, "Paused")
    assert page.get_by_role("button", name="Start training").count() == 1


def test_the_curve_can_be_read_off_and_as_a_table(page: "Page", place: Workspace) -> None:
    log = a_run(place, "finetune-dd")
    for step in range(1, 41):
        log(metric(step, bits_per_byte=2 + 1 / step, loss=1.4 + 0.7 / step, tokens_per_s=100.0))
    log(metric(40, validation_bits_per_byte=2.02))
    log(Event(time.time(), "train", "done", 40, 40, "steps"))
    log.close()
    shown(page, "/#/train")
    until_heading(page, "Your model is ready")
    page.locator(".course .plot").hover(position={"x": 50, "y": 100})
    assert "at step 1" in page.locator(".course .legend").inner_text()
    page.mouse.move(0, 0)
    page.get_by_text("As a table").click()
    page.wait_for_selector(".course table tbody tr")
    rows = page.locator(".course table tbody tr")
    assert rows.count() == 40
    assert "2.020" in rows.last.inner_text()
    page.get_by_label("Loss", exact=True).check()
    assert "nats per token" in page.locator(".course .legend").inner_text()


def test_begun_stopped_and_gone_on_with_by_keys_alone(page: "Page", place: Workspace) -> None:
    shown(page, "/#/train")
    until_heading(page, "No model yet")
    page.keyboard.press("s")
    tabbed_to(page, "Start training")
    page.keyboard.press("Enter")
    until_heading(page, "Training")
    given = json.loads((place.root / "given.json").read_text())["arguments"]
    assert "--minutes" not in given  # nobody has touched them
    assert given[given.index("--base") + 1] == "shipped"
    page.keyboard.press("s")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")  # let it go on
    assert heading(page) == "Training"
    tabbed_to(page, "Stop")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    tabbed_to(page, "Stop")
    page.keyboard.press("Enter")
    until_heading(page, "Paused")
    assert page.locator(".lede").inner_text() == "Paused at 25%. Nothing is lost."
    tabbed_to(page, "Continue")
    page.keyboard.press("Enter")
    until_heading(page, "Training")
    page.reload()
    until_heading(page, "Training")
    assert page.get_by_role("button", name="Stop").count() == 1


def test_another_server_finds_it_under_way(
    browser: "Browser", page: "Page", place: Workspace
) -> None:
    shown(page, "/#/train")
    page.get_by_role("button", name="Start training").click()
    until_heading(page, "Training")
    with playing.served(place) as address:
        for other in opened(browser, Site(address, place)):
            shown(other, "/#/train")
            until_heading(other, "Training")
            other.get_by_role("button", name="Stop").click()
            other.locator("dialog").get_by_role("button", name="Stop").click()
            until_heading(other, "Paused")
    until_heading(page, "Paused")


def test_what_goes_wrong_is_one_sentence(page: "Page", place: Workspace) -> None:
    (place.root / "manner").write_text("fails")
    shown(page, "/#/train")
    page.get_by_role("button", name="Start training").click()
    until_heading(page, "Training failed")
    assert "The blog holds no text." in page.locator(".problem").inner_text()
    assert "Write some." in page.locator(".problem").inner_text()
    assert page.get_by_role("button", name="Try again").count() == 1


def test_without_a_blog_it_says_what_to_do(empty_page: "Page") -> None:
    shown(empty_page, "/#/train")
    until_heading(empty_page, "No model yet")
    assert "ownwords serve PATH" in empty_page.locator(".problem").inner_text()
