"""The guided home: everything of its first picture in one answer."""

from dataclasses import dataclass
from typing import Literal

from starlette.routing import BaseRoute

from ownwords.core.version import __version__
from ownwords.core.workspace import path_text
from ownwords.serve.api.blog import BlogOverview, BlogReader
from ownwords.serve.api.models import ModelReader, ModelRow
from ownwords.serve.api_route import ApiCall, NoBody, json_route
from ownwords.serve.app_state import AppState
from ownwords.serve.jobs.job import Job
from ownwords.serve.sources.source_list import Source

Step = Literal["blog", "look", "make", "result", "use"]


@dataclass(frozen=True)
class HomeOverview:
    """The state of a workspace; `step` is the first thing that is left to do."""

    name: str
    path: str
    version: str
    step: Step
    sources: tuple[Source, ...]
    blog: BlogOverview
    model: ModelRow | None
    jobs: tuple[Job, ...]  # those that run, and the last one of each kind


def routes(state: AppState) -> list[BaseRoute]:
    """Create the route of /api/home."""
    blog, models = BlogReader(state), ModelReader(state)

    def home(_: ApiCall[NoBody]) -> HomeOverview:
        """Show the state of the workspace in one answer."""
        overview, sources = blog.overview(), tuple(state.sources.sources())
        model = next(iter(models.models()), None)
        jobs = state.jobs.jobs()
        last = {job.kind: job.id for job in reversed(jobs)}
        return HomeOverview(
            name=overview.name,
            path=path_text(state.workspace.root.absolute()),
            version=__version__,
            step=_step(overview, model, has_sources=bool(sources)),
            sources=sources,
            blog=overview,
            model=model if model and model.is_current else None,
            jobs=tuple(job for job in jobs if job.ended is None or job.id == last[job.kind]),
        )

    return [json_route(state, "GET", "/api/home", home, result=HomeOverview)]


def _step(blog: BlogOverview, model: ModelRow | None, *, has_sources: bool) -> Step:
    if model and model.is_current:
        return "use" if model.sentence else "result"
    if blog.is_read:
        return "make"
    return "look" if has_sources else "blog"
