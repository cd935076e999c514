"""Opening a page in the browser, where there is a desktop."""

import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path


def has_desktop(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> bool:
    """Whether a graphical browser can be expected; never in CI."""
    if environment.get("CI", "").lower() not in ("", "0", "false"):
        return False
    if system in ("win32", "darwin"):
        # Over SSH the user sits elsewhere.
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def opened(page: Path) -> bool:
    """Open a page in the browser; False where that is not possible."""
    if not has_desktop():
        return False
    try:
        return webbrowser.open(page.absolute().as_uri())
    except (OSError, webbrowser.Error):
        return False
