"""A job as the page sees it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ownwords.serve.jobs.requests import JobKind

JobStatus = Literal["running", "stopping", "done", "stopped", "failed", "killed"]


@dataclass(frozen=True)
class JobStage:
    """A stage of a job; `seconds` is None before it begins, `expected_s` while unknown."""

    name: str
    label: str
    status: Literal["waiting", "running", "done", "skipped"]
    seconds: float | None = None
    expected_s: float | None = None


@dataclass(frozen=True)
class JobError:
    """Why a job failed, and what to do about it."""

    message: str
    hint: str


@dataclass(frozen=True)
class JobActions:
    """What can be done with a job now."""

    stop: bool
    resume: bool
    remove: bool


@dataclass(frozen=True)
class Job:
    """A job and how far it is; `share` and `remaining_s` are over all of its stages."""

    id: str
    kind: JobKind
    title: str
    status: JobStatus
    stage: str
    stages: tuple[JobStage, ...]
    share: float | None
    remaining_s: float | None
    line: str  # the last sentence that it reported
    began: float
    ended: float | None
    seconds: float  # over all attempts
    request: Mapping[str, Any]
    error: JobError | None
    result: Mapping[str, Any] | None
    can: JobActions
