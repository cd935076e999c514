"""The running jobs of other blogs, which every page shows: they slow down its own."""

from dataclasses import dataclass
from pathlib import Path

from ownwords.core.workspace import SUFFIX, Workspace, path_text
from ownwords.serve.jobs.manager import JobManager
from ownwords.serve.workspace_list import WorkspaceList


@dataclass(frozen=True)
class OtherJob:
    """A running job of the blog whose workspace is at a path; `share` is how far it is."""

    path: str
    name: str
    title: str
    share: float | None


class OtherJobs:
    """Reads the jobs of all listed workspaces but the current one."""

    def __init__(self, current: Workspace) -> None:
        self._list = WorkspaceList(current)
        self._managers: dict[Path, JobManager] = {}

    def running(self) -> list[OtherJob]:
        """The jobs that run."""
        jobs = []
        for path in self._list.paths()[1:]:
            manager = self._managers.setdefault(path, JobManager(Workspace(path)))
            name = path.name.removesuffix(SUFFIX)
            jobs += [
                OtherJob(path_text(path), name, job.title, job.share) for job in manager.running()
            ]
        return jobs
