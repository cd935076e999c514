"""Home in a real browser: five steps by clicking, keys and a server that dies on the way."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import fake_jobs
from browser import playing
from browser.looking import headers, shown, tab_until, until
from browser.site import Site, open_page, workspace
from exports import wordpress
from ownwords.core.progress import JobProgress
from ownwords.core.workspace import Workspace, write_atomically

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FilePayload, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A workspace of the sample blog, whose jobs are played."""
    workspace_made = workspace(tmp_path_factory.mktemp("home"))
    with playing.served(workspace_made) as site:
        yield site


@pytest.fixture
def home_workspace(site: Site) -> Iterator[Workspace]:
    """The workspace, in which nothing was made yet; no job outlives the test."""
    (site.place.root / "manner").write_text("waits")
    yield site.place
    playing.kill_jobs(site.place.root.parent)
    shutil.rmtree(site.place.runs, ignore_errors=True)


@pytest.fixture
def page(
    browser: "Browser", site: Site, home_workspace: Workspace, expected: list[str]
) -> "Iterator[Page]":
    assert home_workspace
    yield from open_page(browser, site, expected)


def until_heading(page: "Page", heading: str) -> None:
    until(page, f"document.querySelector('h1')?.innerText === {json.dumps(heading)}")


def tab_to(page: "Page", name: str) -> None:
    label = "document.activeElement.ariaLabel ?? document.activeElement.innerText"
    tab_until(page, f"({label} ?? '').trim() === {json.dumps(name)}")


def test_a_finished_step_is_one_line_and_can_be_reopened(page: "Page") -> None:
    shown(page, "/")
    until_heading(page, "Ready to make your model")
    steps = page.locator(".step").all()
    states = [step.get_attribute("data-state") for step in steps]
    assert states == ["done", "done", "now", "later", "later"]
    first = page.locator(".step").first
    assert first.locator(".step-body").is_hidden()
    assert first.locator(".summary").inner_text()
    first.get_by_role("button", name="Your blog").click()
    assert page.get_by_role("button", name="Choose a file").is_visible()
    assert page.get_by_role("button", name="Result", exact=True).is_disabled()


def test_the_recommended_base_is_installed_with_one_button(page: "Page") -> None:
    shown(page, "/")
    offered = page.locator(".step .rows li").filter(has_text="English, recommended").first
    text = offered.inner_text()
    for fact in ("SmolLM2 135M", "92.9 MB to download", "apache-2.0", "min", "bits per byte"):
        assert fact in text
    jobs = re.compile(r"/api/jobs\b")
    done = {"id": "base-1", "kind": "base", "title": "Installing", "status": "done", "stages": []}
    page.route(jobs, lambda route: route.fulfill(status=201, json=done | {"began": 0, "ended": 1}))
    with page.expect_request(jobs) as sent:
        offered.get_by_role("button", name="Install SmolLM2 135M").click()
    asked = sent.value.post_data_json
    assert asked and (asked["kind"], asked["source"]) == ("base", "smollm2-135m")


def test_a_model_can_be_made_stopped_and_resumed_by_keyboard(
    page: "Page", home_workspace: Workspace
) -> None:
    shown(page, "/")
    page.wait_for_selector(".cards")
    tab_to(page, "Start training")
    page.keyboard.press("Enter")
    until_heading(page, "Making your model")
    until(page, "document.querySelector('.progress .now')")
    fake_jobs.until((home_workspace.root / "begun").exists)
    arguments = json.loads((home_workspace.root / "given.json").read_text())["arguments"]
    assert float(arguments[arguments.index("--minutes") + 1]) > 0
    assert arguments[arguments.index("--base") + 1] == "shipped"  # what the card stands for
    tab_to(page, "Stop")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")  # let it go on
    assert page.locator("h1").inner_text() == "Making your model"
    page.locator("h1").focus()
    tab_to(page, "Stop")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    tab_to(page, "Stop")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('h1').innerText.startsWith('Paused')")
    assert "Nothing is lost." in page.locator(".paused").inner_text()
    assert page.get_by_role("button", name="Start over with other choices").is_visible()
    tab_to(page, "Resume")
    page.keyboard.press("Enter")
    until_heading(page, "Making your model")
    page.reload()
    until_heading(page, "Making your model")
    assert page.get_by_role("button", name="Stop").count() == 1


def test_a_second_page_shows_the_same_job_and_can_stop_it(
    browser: "Browser", page: "Page", site: Site
) -> None:
    shown(page, "/")
    page.get_by_role("button", name="Start training").click()
    until_heading(page, "Making your model")
    for second_page in open_page(browser, site):
        shown(second_page, "/#/posts")
        until(second_page, "!document.getElementById('busy').hidden")
        second_page.locator("#busy").click()
        until_heading(second_page, "Making your model")
        second_page.get_by_role("button", name="Stop").click()
        second_page.locator("dialog").get_by_role("button", name="Stop").click()
        until(second_page, "document.querySelector('h1').innerText.startsWith('Paused')")
    until(page, "document.querySelector('h1').innerText.startsWith('Paused')")


def test_the_time_left_is_told_to_the_end_of_the_last_part(
    page: "Page", home_workspace: Workspace
) -> None:
    shown(page, "/")
    page.get_by_role("button", name="Start training").click()
    until_heading(page, "Making your model")
    [job] = (home_workspace.runs / "jobs").glob("make-*")

    def report(share: float, remaining_s: float) -> None:
        progress = JobProgress(time.time(), "score", {}, share, remaining_s)
        write_atomically(job / "state.json", msgspec.json.encode(progress))

    report(0.71, 130.0)
    until(page, "document.querySelector('.progress .now')?.innerText.startsWith('Scoring')")
    assert page.locator(".progress .now").inner_text() == "Scoring · 71% · about 2 min left"
    report(0.8, 60.0)
    until(page, "document.querySelector('.progress .now').innerText.includes('80%')")


def test_a_refusal_is_shown_until_the_job_that_it_names_has_ended(
    page: "Page", home_workspace: Workspace, expected: list[str]
) -> None:
    expected.append("Failed to load resource")
    shown(page, "/")
    page.get_by_role("button", name="Start training").click()
    until_heading(page, "Making your model")
    page.get_by_role("button", name="What is in it").click()
    page.get_by_text("What is read", exact=True).click()
    page.get_by_role("button", name="Read it again").click()
    page.locator(".toast").get_by_text("Making a model is still running.").wait_for()
    [job] = (home_workspace.runs / "jobs").glob("make-*/job.json")
    os.killpg(json.loads(job.read_text())["pid"], signal.SIGKILL)
    until_heading(page, "The model could not be made")
    assert page.locator(".toast").count() == 0


def test_an_error_is_one_sentence(page: "Page", home_workspace: Workspace) -> None:
    (home_workspace.root / "manner").write_text("fails")
    shown(page, "/")
    page.get_by_role("button", name="Start training").click()
    until_heading(page, "The model could not be made")
    problem = page.locator(".progress .problem").inner_text()
    assert "The blog holds no text." in problem
    assert "Write some." in problem
    assert page.get_by_role("button", name="Try again").count() == 1


def test_a_file_that_is_not_a_blog_is_refused_in_a_sentence(
    empty_page: "Page", expected: list[str], tmp_path: Path
) -> None:
    expected.append("Failed to load resource")
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    shown(empty_page, "/")
    until_heading(empty_page, "A language model of your own writing")
    empty_page.locator("input[type=file]").set_input_files(picture)
    problem = empty_page.locator(".step .problem")
    problem.wait_for()
    assert "cat.png" in problem.inner_text()
    empty_page.get_by_text("A folder, or a blog’s address").click()
    empty_page.get_by_label("Folder or file on this machine").fill("/no/such/folder")
    empty_page.get_by_role("button", name="Add", exact=True).click()
    until(empty_page, "document.querySelector('.step .problem').innerText.includes('no/such')")


def test_a_reading_that_failed_can_be_dismissed_and_begun_again(
    empty_page: "Page", empty_site: Site, tmp_path: Path
) -> None:
    (tmp_path / "blog").mkdir()
    (tmp_path / "blog" / "rain.md").write_text("It rained, as before.", "utf-8")
    shown(empty_page, "/")
    answer = empty_page.request.post(
        "/api/sources", data={"path": str(tmp_path / "blog")}, headers=headers(empty_page)
    )
    assert answer.ok, answer.text()
    (tmp_path / "blog" / "rain.md").unlink()
    empty_page.get_by_role("button", name="Read my blog").click()
    empty_page.locator(".progress .problem").wait_for()
    empty_page.get_by_role("button", name="Dismiss").click()
    empty_page.get_by_role("button", name="Read my blog").wait_for()
    assert empty_page.locator(".progress .problem").count() == 0


def rain_export(days: range, name: str) -> "FilePayload":
    """An export of WordPress with a post per day."""
    items = (
        wordpress.item(n, f"Day {n}", f"<p>It rained on day {n}, as before.</p>") for n in days
    )
    content = wordpress.HEAD + "".join(items) + wordpress.TAIL
    return {"name": name, "mimeType": "text/xml", "buffer": content.encode()}


def test_a_dropped_file_is_read_at_once(empty_page: "Page") -> None:
    shown(empty_page, "/")
    dropped = empty_page.evaluate_handle(
        "([name, text]) => { const data = new DataTransfer();"
        " data.items.add(new File([text], name)); return data; }",
        ["rain.WordPress.xml", rain_export(range(1, 9), "")["buffer"].decode()],
    )
    empty_page.dispatch_event(".drop", "drop", {"dataTransfer": dropped})
    empty_page.wait_for_selector(".lines")
    assert "8 posts" in empty_page.locator(".lines").inner_text()
    until_heading(empty_page, "Too little text for a model")


def test_files_that_wait_for_a_reading_can_be_stopped(page: "Page") -> None:
    shown(page, "/")
    page.evaluate("import('/jobs.js').then(({ start }) => start({ kind: 'look' }))")
    first = page.locator(".step").first
    first.get_by_role("button", name="Your blog").click()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for names in (("a.xml", "b.xml"), ("c.xml",)):
        first.locator("input[type=file]").set_input_files(
            [rain_export(range(1, 3), name) for name in names]
        )
        first.get_by_text(f"Reading {names[0]}").wait_for()
    first.get_by_role("button", name="Stop").click()
    first.get_by_text("Reading").wait_for(state="hidden")
    page.evaluate("import('/jobs.js').then(({ newest, stop }) => stop(newest('look')))")
    until(page, "import('/jobs.js').then(({ isRunning, newest }) => !isRunning(newest('look')))")
    page.wait_for_timeout(700)
    assert not [url for url in requests if "/api/uploads" in url]
    assert first.get_by_text("Reading").count() == 0


def test_next_week_s_export_replaces_the_last_one(empty_page: "Page") -> None:
    shown(empty_page, "/")
    box = empty_page.locator("input[type=file]")
    box.set_input_files(rain_export(range(1, 9), "rain.xml"))
    empty_page.locator(".lines").get_by_text("8 posts").wait_for()
    box.set_input_files(rain_export(range(1, 10), "rain.xml"))
    offer = empty_page.locator(".rows .notice")
    offer.get_by_text("A new version of rain.xml? 1 new, 8 as before.").wait_for()
    assert "8 posts" in empty_page.locator(".lines").inner_text()
    offer.get_by_role("button", name="Replace").click()
    empty_page.locator(".lines").get_by_text("9 posts").wait_for()
    assert empty_page.locator(".step .rows").first.locator("li").count() == 1


def test_exports_that_are_dropped_together_are_compared_with_each_other(empty_page: "Page") -> None:
    shown(empty_page, "/")
    files = [rain_export(range(1, 9), "rain.xml"), rain_export(range(1, 10), "rain-2.xml")]
    empty_page.locator("input[type=file]").set_input_files(files)
    offer = empty_page.locator(".rows .notice")
    offer.get_by_text("A new version of rain.xml? 1 new, 8 as before.").wait_for()
    assert "8 posts" in empty_page.locator(".lines").inner_text()


def test_an_address_is_named_before_anything_is_fetched(empty_page: "Page") -> None:
    shown(empty_page, "/")
    empty_page.get_by_text("A folder, or a blog’s address").click()
    box = empty_page.get_by_label("Feed or site address")
    assert empty_page.get_by_role("button", name="Fetch").is_disabled()
    box.fill("https://blog.example/feed.xml")
    assert empty_page.get_by_role("button", name="Fetch from blog.example").is_enabled()
    box.fill("javascript:alert(1)")
    assert empty_page.get_by_role("button", name="Fetch").is_disabled()
