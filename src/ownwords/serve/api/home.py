"""The guided home: the blog, what is new in it, and the other blogs that can be opened."""

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.archive import report_view as summary
from ownwords.archive.advice import too_little
from ownwords.archive.blog_name import MAX_CHARACTERS, blog_name
from ownwords.archive.report import Report, SourceSummary
from ownwords.archive.untrusted_files import PROGRAM_FOLDERS
from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import Meta, encode
from ownwords.core.workspace import SUFFIX, Workspace, path_text
from ownwords.make.result import count_new
from ownwords.serve.api.models import current_model
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, conflict, invalid
from ownwords.serve.jobs import JobManager
from ownwords.serve.json_api import ApiCall, json_route, read_body
from ownwords.serve.source_list import PostFilter, Source
from ownwords.serve.workspace_list import WorkspaceList
from ownwords.view import format as fmt

Open = Callable[[Workspace], Awaitable[None]]
_PATH = Meta(max_length=4000)


@dataclass(frozen=True)
class BlogOverview:
    """What `look` has read, and what has changed since."""

    name: str
    flags: PostFilter
    is_read: bool = False
    lines: tuple[str, ...] = ()
    decisions: int = 0  # posts that stand out, about which the author may decide
    texts: str = ""  # posts and pages, counted in words
    words: int = 0
    is_too_little: bool = False  # to train on
    new_sentence: str = ""  # about posts that were read, and not yet learned
    is_stale: bool = False  # a source was changed after it was read
    problem: str = ""


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
class RenameRequest:
    """A workspace of the list, and a new name for its blog."""

    path: Annotated[str, _PATH]
    name: Annotated[str, Meta(max_length=MAX_CHARACTERS)]


@dataclass(frozen=True)
class ForgetRequest:
    """A workspace of the list, and whether all that was made in it is to be deleted."""

    path: Annotated[str, _PATH]
    deletes: bool = False


def routes(state: AppState, open_workspace: Open) -> list[BaseRoute]:
    """The routes of /api/home and /api/blog, and those under /api/workspaces."""
    opens = partial(_open_workspace, state, open_workspace)
    return [
        json_route(state, "GET", "/api/home", show_home),
        json_route(state, "GET", "/api/blog", lambda state, _: overview(state)),
        json_route(state, "PATCH", "/api/blog", change_filter),
        json_route(state, "GET", "/api/workspaces", list_workspaces),
        json_route(state, "PATCH", "/api/workspaces", rename_workspace),
        json_route(state, "DELETE", "/api/workspaces", forget_workspace),
        Route("/api/workspaces/open", opens, methods=["POST"]),
    ]


def show_home(state: AppState, _: ApiCall) -> dict[str, Any]:
    """The state of the workspace in one answer."""
    blog = overview(state)
    jobs = state.jobs.jobs()
    last = {job.kind: job.id for job in reversed(jobs)}
    return {
        "name": blog.name,
        "path": path_text(state.workspace.root.absolute()),
        "sources": _dated_sources(state),
        "blog": blog,
        "model": current_model(state),
        # those that run, and the last one of each kind
        "jobs": [job for job in jobs if job.ended is None or job.id == last[job.kind]],
    }


def _dated_sources(state: AppState) -> list[Source]:
    """The sources, with when they were read and how new their posts are."""
    read: dict[Path, SourceSummary] = {}
    with suppress(OwnwordsError):  # nothing is read yet
        read = _sources_read(state.report().report)
    at = _changed(state.workspace.report_page)
    sources = state.sources.sources()
    for number, source in enumerate(sources):
        if found := read.get(Path(source.path).resolve()):
            sources[number] = replace(source, read_at=at, newest_day=found.newest_day)
    return sources


def _sources_read(report: Report) -> dict[Path, SourceSummary]:
    return {source.location: source for source in report.sources}


# --- the blog ------------------------------------------------------------------------------------


def change_filter(state: AppState, call: ApiCall) -> None:
    """Change which posts the next look takes in."""
    changes = encode(call.body(FilterRequest)).items()
    state.sources.set_filter({name: value for name, value in changes if value is not None})


def overview(state: AppState) -> BlogOverview:
    """What is in the blog, and whether there is something new."""
    flags, name = state.sources.filter, blog_name(state.workspace.root)
    try:
        report = state.report().report
    except ApiError:  # nothing has been read yet
        return BlogOverview(name, flags)
    except OwnwordsError as error:  # a damaged archive
        return BlogOverview(name, flags, problem=str(error))
    if not state.sources.sources():  # the user has removed them all
        return BlogOverview(name, flags)
    new = count_new(state.workspace.root, report)
    return BlogOverview(
        name=name,
        flags=flags,
        is_read=True,
        lines=tuple(plain_lines(report)),
        decisions=len(summary.notable_posts(report)),
        texts=summary.count_texts(report.totals.posts, report.totals.pages),
        words=sum(post.own_words for post in report.posts),
        is_too_little=too_little(report.totals),
        new_sentence=f"{fmt.count(new, 'new post')}, not yet learned" if new else "",
        is_stale=_is_stale(state, report),
    )


def _is_stale(state: AppState, report: Report) -> bool:
    read_at = _changed(state.workspace.report_page)
    paths = [Path(source.path) for source in state.sources.sources() if not source.version]
    if {path.resolve() for path in paths} != _sources_read(report).keys():
        return True
    return read_at > 0 and any(_changed(each) > read_at for at in paths for each in _files_of(at))


def plain_lines(report: Report) -> list[str]:
    """How much there is, what becomes of it, and what stands out: a line each."""
    notable = len(summary.notable_posts(report))
    totals, years = report.totals, summary.years_spanned(report)
    texts = summary.count_texts(totals.posts, totals.pages)
    unusual = [summary.repeats(report)]
    if notable:
        unusual.append(f"What stands out: {fmt.count(notable, 'post')}. Decide what to train on.")
    return [
        f"{texts}, {fmt.count(totals.own_words, 'word')} of your own{years and f', {years}'}.",
        summary.becomes_of_words(report),
        *(filter(None, unusual) if any(unusual) else ["Nothing stands out."]),
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


# --- the other blogs -----------------------------------------------------------------------------


def list_workspaces(state: AppState, _: ApiCall) -> dict[str, Any]:
    """List the workspaces: the open one, those opened before, and those beside it."""
    return {"workspaces": WorkspaceList(state.workspace).entries()}


def rename_workspace(state: AppState, call: ApiCall) -> None:
    """Give a blog another name; its folder keeps its own."""
    asked = call.body(RenameRequest)
    WorkspaceList(state.workspace).rename(asked.path, asked.name)


def forget_workspace(state: AppState, call: ApiCall) -> None:
    """Remove a workspace from the list, with its files if that is asked."""
    asked = call.body(ForgetRequest)
    if asked.deletes and (holder := JobManager(Workspace(Path(asked.path))).find_worker()):
        raise conflict(holder, hint="wait until it ends")
    WorkspaceList(state.workspace).forget(asked.path, deletes=asked.deletes)


async def _open_workspace(state: AppState, open_workspace: Open, request: Request) -> Response:
    """Open another workspace, or a new one; requests without `blog` are then about it."""
    asked = await read_body(state, request, OpenRequest)

    def find() -> Workspace:
        if bool(asked.path) == bool(asked.name):
            raise invalid("give either the path of a workspace or the name of a new one")
        known = WorkspaceList(state.workspace)
        found = known.find(asked.path) if asked.path else known.new(asked.name)
        known.remember(state.workspace)
        known.remember(found)
        return found

    workspace = await state.run(find)
    await open_workspace(workspace)
    return Response(status_code=HTTPStatus.NO_CONTENT)
