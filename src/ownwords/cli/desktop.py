"""Whether there is a desktop to open a page on, and opening it there."""

import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path


def has_desktop(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> bool:
    """Whether a browser with windows can be expected; never where a build is checked."""
    if environment.get("CI", "").lower() not in ("", "0", "false"):
        return False
    if system in ("win32", "darwin"):
        # Who comes by SSH sits somewhere else.
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def opened(page: Path) -> bool:
    """Open a page in the browser, where there is a desktop; whether it was."""
    if not has_desktop():
        return False
    try:
        return webbrowser.open(page.absolute().as_uri())
    except (OSError, webbrowser.Error):
        return False
