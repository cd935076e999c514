"""A server for a workspace of the sample blog, and a browser's page whose faults fail the test."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """A server of a workspace; `link` is the address that it prints, with its key."""

    link: str
    place: Workspace
    pid: int

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
    unexpected = [each for each in wrong if not any(part in each for part in expected)]
    assert not unexpected, "\n".join(unexpected)


def _watched(page: "Page", address: str) -> list[str]:
    """The list that every fault of the page is added to."""
    wrong: list[str] = []

    def on_message(message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def on_request(request: "Request") -> None:
        if not request.url.startswith((address, "data:", "blob:", "about:")):
            wrong.append(f"asked {request.url}")

    def on_dialog(dialog: "Dialog") -> None:
        wrong.append(f"a dialog of the browser: {dialog.message}")
        dialog.dismiss()

    page.on("console", on_message)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", on_dialog)
    page.on("request", on_request)
    return wrong


def workspace(folder: Path) -> Workspace:
    """A workspace of the sample blog and a hostile post."""
    extra = folder / "extra"
    extra.mkdir()
    (extra / "hostile.md").write_text(HOSTILE, "utf-8")
    workspace_made = Workspace(folder / "steps.ownwords")
    look([BLOG, extra], workspace=workspace_made.root)
    return workspace_made


@contextmanager
def served(
    place: Workspace,
    *program: str,
    options: Sequence[str] = ("--port", "0"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Site]:
    """Serve a workspace by `ownwords serve`, or by another program with these arguments."""
    command = [*(program or ("-m", "ownwords")), "serve", str(place.root), "--threads", "1"]
    with subprocess.Popen(
        [sys.executable, "-u", *command, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        try:
            yield Site(link_of(server), place, server.pid)
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
