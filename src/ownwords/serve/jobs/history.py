"""What a job has logged so far: its stages, how far it is, and its notes."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ownwords.core.progress import Event
from ownwords.serve.jobs.job import JobStage
from ownwords.serve.jobs.tail import EventTail
from ownwords.training.run_history import SAMPLE

MAX_NOTES = 500


class JobHistory:
    """Reads a job's `events.jsonl` as it grows; not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._tail = EventTail(path)
        self._clear()

    def _clear(self) -> None:
        self.notes: list[tuple[float, str]] = []
        self.stage = ""
        self.share: float | None = None
        self.time = 0.0
        self._remaining_s: float | None = None
        self._expected: dict[str, float | None] = {}
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def update(self) -> None:
        """Take in what was logged since the last call."""
        is_replaced, events = self._tail.read()
        if is_replaced:
            self._clear()
        for event in events:
            self._add(event)

    def remaining_s(self, now: float) -> float | None:
        """Seconds until the job is done; None while unknown."""
        if self._remaining_s is None:
            return None
        return max(1.0, self._remaining_s - max(0.0, now - self.time))

    def stages(
        self, labels: Mapping[str, str], now: float, *, is_running: bool
    ) -> Iterator[JobStage]:
        """The stages of `labels` as far as they are; without those that it has not."""
        for name, label in labels.items():
            expected = self._expected.get(name)
            began, ended = self._began.get(name), self._ended.get(name)
            if began is None:
                if expected == 0 and name in self._expected:
                    continue
                yield JobStage(name, label, "skipped" if ended else "waiting", None, expected)
                continue
            is_current = ended is None and is_running
            if not is_current and expected == 0:
                continue
            seconds = round((ended or (now if is_current else self.time)) - began, 1)
            yield JobStage(name, label, "running" if is_current else "done", seconds, expected)

    def _add(self, event: Event) -> None:
        self.time = event.time
        if event.kind == "note" and event.message and not event.message.startswith(SAMPLE):
            self.notes.append((event.time, event.message))
            del self.notes[:-MAX_NOTES]
        elif event.kind == "expect":
            self._expected[event.stage] = event.values.get("seconds")
        elif event.kind == "begin" and event.stage in self._expected:
            for name in self._expected:
                if name == event.stage:
                    break
                self._ended.setdefault(name, event.time)
            self.stage = event.stage
            self._began.setdefault(event.stage, event.time)
            self._ended.pop(event.stage, None)
        elif event.kind == "overall":
            self.share = max(self.share or 0.0, event.values.get("share", 0.0))
            self._remaining_s = event.values.get("remaining_s")
