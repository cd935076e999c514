"""Caches the report of the last `ownwords look` in memory until the next one."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

from ownwords.archive.report import Report
from ownwords.archive.store import Archive
from ownwords.serve.errors import ApiError


@dataclass(frozen=True)
class CachedReport:
    """The report of one `look`, with the tags of every post."""

    state: str  # the archive's state: changes with every look that finds changes
    report: Report
    tags: dict[str, tuple[str, ...]]

    @cached_property
    def positions(self) -> dict[str, int]:
        """Each post's position in `report.posts`, by id."""
        return {post.id: i for i, post in enumerate(self.report.posts)}


class ReportCache:
    """The server's one `CachedReport`, rebuilt when the archive changes; thread-safe."""

    def __init__(self, archive: Callable[[], Archive]) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self._cached: CachedReport | None = None
        self._derived: dict[str, tuple[str, Any]] = {}

    def __call__(self) -> CachedReport:
        """Return the archive's current report; must be called inside `state.run`."""
        archive = self._archive()
        with self._lock:
            state = archive.get_meta("state")
            if self._cached is None or self._cached.state != state:
                self._cached = _read(archive, state)
            return self._cached

    def derived(self, name: str, derive: Callable[[CachedReport], Any]) -> Any:  # noqa: ANN401 - JSON
        """Return `derive(report)`, computed once per look."""
        cached = self()
        state, value = self._derived.get(name, ("", None))
        if not state or state != cached.state:
            value = derive(cached)
            self._derived[name] = (cached.state, value)
        return value


def _read(archive: Archive, state: str) -> CachedReport:
    try:
        report = Report.from_json(archive.get_meta("report"))
    except (ValueError, TypeError, KeyError):  # missing, or written by another version of ownwords
        raise ApiError(
            HTTPStatus.NOT_FOUND,
            "the archive has no report that this version of ownwords can read",
            hint="read your blog again: ownwords look PATH",
        ) from None
    return CachedReport(state, report, archive.tags())
