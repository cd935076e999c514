"""axe-core, the accessibility checker; `make test-browser` installs it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT = Path(__file__).resolve().parents[2] / "build/axe/node_modules/axe-core/axe.min.js"
_RUN = """async () => {
  const told = await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa",
    "wcag22aa", "best-practice"], resultTypes: ["violations"]});
  return told.violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html}`));
}"""


def violations(page: "Page") -> list[str]:
    """What breaks WCAG 2.2 AA on the page as it is shown; skips without axe-core."""
    if not SCRIPT.exists():
        pytest.skip("needs axe-core: `make test-browser` installs it, if there is npm")
    page.evaluate(SCRIPT.read_text("utf-8"))
    violations_found: list[str] = page.evaluate(_RUN)
    return violations_found
