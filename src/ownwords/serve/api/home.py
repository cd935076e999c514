"""The guided home: the blog, what is new in it, and the other blogs that can be opened."""

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.archive import report_view as summary
from ownwords.archive.report import Report
from ownwords.archive.untrusted_files import PROGRAM_FOLDERS
from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import Meta, encode
from ownwords.core.workspace import SUFFIX, Workspace, path_text
from ownwords.make.result import read_learned
from ownwords.serve.api.models import ModelReader, ModelRow
from ownwords.serve.api.posts import count_texts, word_counts
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, invalid
from ownwords.serve.json_api import ApiCall, NoBody, json_response, json_route, read_body
from ownwords.serve.source_list import PostFilter
from ownwords.serve.workspace_list import WorkspaceList
from ownwords.view import format as fmt

Open = Callable[[Workspace], Awaitable[None]]
_PATH = Meta(max_length=4000)
Step = Literal["blog", "look", "make", "result", "use"]


@dataclass(frozen=True)
class BlogOverview:
    """What `look` has read, and what has changed since."""

    is_read: bool
    name: str
    lines: tuple[str, ...]
    decisions: int  # posts that stand out, about which the author may decide
    texts: str  # posts and pages, counted in words
    words: int
    new_sentence: str  # about posts that were read, and not yet learned
    is_stale: bool  # a source was changed after it was read
    problem: str
    flags: PostFilter


@dataclass(frozen=True)
class FilterRequest:
    """Which posts are taken in from now on; what is missing stays as it is."""

    drafts: bool | None = None
    hidden: bool | None = None
    private: bool | None = None
    pages: bool | None = None


@dataclass(frozen=True)
class OpenRequest:
    """A workspace of the list, or the name of a new one."""

    path: Annotated[str, _PATH] = ""
    name: Annotated[str, Meta(max_length=100)] = ""


@dataclass(frozen=True)
class ForgetRequest:
    """A workspace of the list."""

    path: Annotated[str, _PATH]


def routes(state: AppState, open_workspace: Open) -> list[BaseRoute]:
    """Create the routes of /api/home and /api/blog, and those under /api/workspaces."""
    blog, others = BlogReader(state), _Workspaces(state, open_workspace)
    return [
        json_route(state, "GET", "/api/home", lambda _: _home(state, blog)),
        json_route(state, "GET", "/api/blog", blog.show),
        json_route(state, "PATCH", "/api/blog", blog.change, body=FilterRequest),
        json_route(state, "GET", "/api/workspaces", others.list),
        json_route(state, "DELETE", "/api/workspaces", others.forget, body=ForgetRequest),
        Route("/api/workspaces/open", others.open, methods=["POST"]),
    ]


def _home(state: AppState, blog: "BlogReader") -> dict[str, Any]:
    """The state of the workspace in one answer; `step` is the first thing that is left to do."""
    overview, sources = blog.overview(), state.sources.sources()
    model = ModelReader(state).current()
    jobs = state.jobs.jobs()
    last = {job.kind: job.id for job in reversed(jobs)}
    return {
        "name": overview.name,
        "path": path_text(state.workspace.root.absolute()),
        "step": _step(overview, model, has_sources=bool(sources)),
        "sources": sources,
        "blog": overview,
        "model": model,
        # those that run, and the last one of each kind
        "jobs": [job for job in jobs if job.ended is None or job.id == last[job.kind]],
    }


def _step(blog: BlogOverview, model: ModelRow | None, *, has_sources: bool) -> Step:
    if model:
        return "use" if model.sentence else "result"
    if blog.is_read:
        return "make"
    return "look" if has_sources else "blog"


class BlogReader:
    """Reads the overview of the blog out of the archive and the sources."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._cache = state.report

    def show(self, _: ApiCall[NoBody]) -> BlogOverview:
        """Show what is in the blog, and whether there is something new."""
        return self.overview()

    def change(self, call: ApiCall[FilterRequest]) -> BlogOverview:
        """Change which posts the next look takes in."""
        changes = {name: value for name, value in encode(call.body).items() if value is not None}
        self._state.sources.set_filter(changes)
        return self.overview()

    def overview(self) -> BlogOverview:
        """The overview; one without posts if nothing has been read yet."""
        state, problem = self._state, ""
        try:
            report: Report | None = self._cache().report
        except ApiError:
            report = None
        except OwnwordsError as error:  # a damaged archive
            report, problem = None, str(error)
        read_at = _changed(state.workspace.report_page) if report else 0.0
        new = self._new_posts(report) if report else 0
        return BlogOverview(
            is_read=report is not None,
            name=summary.name(report) if report else state.own_name,
            lines=tuple(plain_lines(report)) if report else (),
            decisions=len(summary.notable_posts(report)) if report else 0,
            texts=count_texts(report.posts) if report else "",
            words=sum(post.own_words for post in report.posts) if report else 0,
            new_sentence=f"{fmt.count(new, 'new post')}, not yet learned" if new else "",
            is_stale=read_at > 0 and self._is_stale(read_at),
            problem=problem,
            flags=state.sources.filter,
        )

    def _new_posts(self, report: Report) -> int:
        if not self._state.own_model:
            return 0
        learned = read_learned(self._state.workspace.runs / "make")
        if learned is None:  # the model was not made by `make`
            return 0
        return sum(post.id not in learned and post.decision != "leave out" for post in report.posts)

    def _is_stale(self, read_at: float) -> bool:
        paths = (Path(source.path) for source in self._state.sources.sources())
        return any(_changed(each) > read_at for path in paths for each in _files_of(path))


def plain_lines(report: Report) -> list[str]:
    """Three lines: how much there is, what becomes of it, and what stands out."""
    counts = word_counts(report.posts)
    own = sum(post.own_words for post in report.posts)
    years = summary.years_spanned(report)
    rest = [
        f"{fmt.count(number)} {what}"
        for number, what in (
            (counts.held_out_words, "are held back to judge it by"),
            (counts.left_out_words, "are left out"),
        )
        if number
    ]
    learned = f"A model learns from {fmt.count(counts.learned_words, 'word')}"
    notable = len(summary.notable_posts(report))
    return [
        f"{count_texts(report.posts)}, {fmt.count(own, 'word')} of your own"
        f"{years and f', {years}'}.",
        "; ".join([learned, *rest]) + ".",
        f"{fmt.count(notable, 'post')} stand{'s' if notable == 1 else ''} out: decide whether to"
        f" train on {'it' if notable == 1 else 'them'}."
        if notable
        else "Nothing stands out.",
    ]


def _files_of(path: Path) -> Iterator[Path]:
    """What changes with the posts at the path: their files and folders, or the database."""
    databases = [folder / "db.sqlite" for folder in (path, path / "input")]
    if found := next((file for file in databases if file.exists()), None):
        path = found  # Publii writes the whole site beside its database
    yield path
    for parent, names, files in os.walk(path):
        names[:] = [
            name
            for name in names
            if name not in PROGRAM_FOLDERS
            and not name.startswith(".")
            and not name.endswith(SUFFIX)
        ]
        yield from (Path(parent, name) for name in (*names, *files) if not name.startswith("."))


def _changed(path: Path) -> float:
    """When the path was changed last; 0 if it cannot be seen."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


class _Workspaces:
    def __init__(self, state: AppState, open_workspace: Open) -> None:
        self._state, self._open = state, open_workspace
        self._list = WorkspaceList(state.workspace)

    def list(self, _: ApiCall[NoBody]) -> dict[str, Any]:
        """List the workspaces: the open one, those opened before, and those beside it."""
        return _known(self._state.workspace)

    def forget(self, call: ApiCall[ForgetRequest]) -> None:
        """Remove a workspace from the list; its files stay."""
        self._list.forget(call.body.path)

    async def open(self, request: Request) -> Response:
        """Open another workspace, or a new one; requests without `blog` are then about it."""
        asked = await read_body(self._state, request, OpenRequest)
        workspace = await self._state.run(lambda: self._find(asked))
        await self._open(workspace)
        return json_response(_known(workspace))

    def _find(self, asked: OpenRequest) -> Workspace:
        if bool(asked.path) == bool(asked.name):
            raise invalid("give either the path of a workspace or the name of a new one")
        try:
            found = self._list.find(asked.path) if asked.path else self._list.new(asked.name)
            self._list.remember(self._state.workspace)
            self._list.remember(found)
        except ApiError:
            raise
        except OwnwordsError as error:
            raise invalid(error.message, hint=error.hint) from error
        return found


def _known(workspace: Workspace) -> dict[str, Any]:
    return {"workspaces": WorkspaceList(workspace).entries()}
