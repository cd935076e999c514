"""What the last look found out, kept in memory until another look has been."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

from ownwords.archive.report import Report
from ownwords.archive.store import Archive
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError


@dataclass(frozen=True)
class CachedReport:
    """The report of one look, and the tags of every text in it."""

    state: str  # of the archive: another after every look that found something new
    report: Report
    tags: dict[str, tuple[str, ...]]

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each text stands in `report.posts`, by its id."""
        return {post.id: place for place, post in enumerate(self.report.posts)}


class ReportCache:
    """The server's one `CachedReport`, rebuilt when the archive changes; thread-safe."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._known: CachedReport | None = None
        self._drawn: dict[str, tuple[str, Any]] = {}

    def __call__(self) -> CachedReport:
        """The report of the archive as it is now; inside `state.run`."""
        archive = self._state.archive()
        with self._lock:
            state = archive.get_meta("state")
            if self._known is None or self._known.state != state:
                self._known = _read(archive, state)
            return self._known

    def drawn(self, name: str, draw: Callable[[CachedReport], Any]) -> Any:  # noqa: ANN401 - JSON
        """What `draw` makes of the report, made once for each look."""
        known = self()
        state, made = self._drawn.get(name, ("", None))
        if not state or state != known.state:
            made = draw(known)
            self._drawn[name] = (known.state, made)
        return made


def _read(archive: Archive, state: str) -> CachedReport:
    said = archive.get_meta("report")
    try:
        report = Report.from_dict(json.loads(said))
    except (ValueError, TypeError, KeyError):  # none yet, or of another version of ownwords
        raise ApiError(
            HTTPStatus.NOT_FOUND,
            "the archive holds no report that this ownwords can read",
            hint="run `ownwords look` with the path of your blog again",
        ) from None
    return CachedReport(state, report, archive.tags())
