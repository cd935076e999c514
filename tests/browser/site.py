"""A server over a workspace of the sample blog, and a page of a browser that is watched."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.archive.look import look
from ownwords.core.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request

BLOG = Path(__file__).resolve().parents[2] / "examples" / "blog"
WIDTHS = (360, 768, 1280)
# Titles and texts that would run as programs, were they ever taken for markup.
HOSTILE = """---
title: "<img src=x onerror=alert(1)> & <script>alert(2)</script>"
date: 2016-02-03
tags: ["<b>bold</b>"]
---

A text with <script>alert(3)</script> in it, and <b onclick="alert(4)">more</b> of the same.

    <iframe src="https://elsewhere.example/"></iframe>
"""
_STARTS_S = 60
_WAITS_MS = 60_000


@dataclass(frozen=True)
class Site:
    """A server over a workspace; `link` is what it prints, with its key."""

    link: str
    place: Workspace

    @property
    def address(self) -> str:
        return self.link.partition("/?")[0]


def open_page(
    browser: "Browser",
    site: Site,
    expected: Sequence[str] = (),
    *,
    width: int = 1280,
    dark: bool = False,
    locale: str = "en-GB",
) -> "Iterator[Page]":
    """A page that fails the test for what no page may do, but for errors that are `expected`."""
    context = browser.new_context(
        base_url=site.address,
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        locale=locale,
    )
    context.set_default_timeout(_WAITS_MS)
    context.request.get(site.link)  # leaves the cookie
    page = context.new_page()
    wrong = _watched(page, site.address)
    yield page
    context.close()
    assert [message for message in wrong if not any(part in message for part in expected)] == []


def _watched(page: "Page", address: str) -> list[str]:
    wrong: list[str] = []

    def note_message(message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def note_request(request: "Request") -> None:
        if not request.url.startswith((address, "data:", "blob:", "about:")):
            wrong.append(f"asked {request.url}")

    def opened_dialog(dialog: "Dialog") -> None:
        wrong.append(f"a dialog of the browser: {dialog.message}")
        dialog.dismiss()

    def failed(error: Exception) -> None:
        wrong.append(str(error))

    page.on("console", note_message)
    page.on("pageerror", failed)
    page.on("dialog", opened_dialog)
    page.on("request", note_request)
    return wrong


def workspace(folder: Path) -> Workspace:
    extra = folder / "extra"
    extra.mkdir()
    (extra / "hostile.md").write_text(HOSTILE, "utf-8")
    workspace_made = Workspace(folder / "steps.ownwords")
    look([BLOG, extra], workspace=workspace_made.root)
    return workspace_made


def served(workspace_served: Workspace) -> Iterator[Site]:
    command = [
        sys.executable,
        "-u",
        "-m",
        "ownwords",
        "serve",
        str(workspace_served.root),
        "--port",
        "0",
    ]
    with subprocess.Popen(
        [*command, "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            yield Site(link_of(server), workspace_served)
        finally:
            server.terminate()
            server.communicate(timeout=_STARTS_S)


def link_of(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    output = ""
    for line in server.stdout:
        output += line
        if match := re.search(r"http://127\.0\.0\.1:\d+/\S*", line):
            return match[0]
    raise AssertionError(f"the server did not start: {output}")
