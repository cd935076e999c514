"""The guided home: the sources of a blog, its state, and the other blogs that can be opened."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.archive import report_view as summary
from ownwords.archive.advice import too_little
from ownwords.archive.blog_name import MAX_CHARACTERS, blog_name
from ownwords.archive.follow import has_changed_since
from ownwords.archive.report import Report, SourceSummary, SourceVersion
from ownwords.archive.settings import ArchiveConfig
from ownwords.archive.sources import detect_source, readable_kinds
from ownwords.archive.untrusted_files import require_room
from ownwords.core.errors import OwnwordsError, SourceError
from ownwords.core.validation import Meta, decode, encode
from ownwords.core.workspace import Workspace, path_text, translate_os_errors
from ownwords.make.learned import count_new
from ownwords.serve.api.models import current_model
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, conflict, forbidden, invalid
from ownwords.serve.jobs import PYTHON, JobManager, clean_environment
from ownwords.serve.json_api import ApiCall, json_response, json_route, read_body
from ownwords.serve.source_list import FoundSite, PostFilter, Source, find_publii_sites
from ownwords.serve.workspace_list import WorkspaceList
from ownwords.view import format as fmt

Open = Callable[[Workspace], Awaitable[None]]
UPLOADS: Final = "/api/uploads"
_BLOCK_BYTES = 4 << 20
_INSPECTION_MINUTES = 5


def routes(state: AppState, open_workspace: Open) -> list[BaseRoute]:
    """Return the routes of /api/home, /api/blog, uploads, sources and workspaces."""
    opens = partial(_open_workspace, state, open_workspace)
    return [
        json_route(state, "GET", "/api/home", show_home),
        json_route(state, "GET", "/api/blog", lambda state, _: overview(state)),
        json_route(state, "PATCH", "/api/blog", change_filter),
        json_route(state, "GET", "/api/sources", list_sources),
        Route("/api/sources", partial(_add, state), methods=["POST"]),
        json_route(state, "POST", "/api/sources/{id}/decide", decide),
        json_route(state, "DELETE", "/api/sources/{id}", remove),
        Route(UPLOADS, partial(_upload, state), methods=["POST"]),
        json_route(state, "GET", "/api/workspaces", list_workspaces),
        json_route(state, "PATCH", "/api/workspaces", rename_workspace),
        json_route(state, "DELETE", "/api/workspaces", delete_workspace),
        Route("/api/workspaces/open", opens, methods=["POST"]),
    ]


def show_home(state: AppState, _: ApiCall) -> dict[str, Any]:
    """Return the state of the workspace in one answer."""
    blog = overview(state)
    jobs = state.jobs.jobs()
    last = {job.kind: job.id for job in reversed(jobs)}
    return {
        "name": blog.name,
        "path": path_text(state.workspace.root.absolute()),
        "sources": _dated_sources(state),
        "blog": blog,
        "model": current_model(state),
        # running jobs, and the last one of each kind
        "jobs": [job for job in jobs if job.ended is None or job.id == last[job.kind]],
    }


def _dated_sources(state: AppState) -> list[Source]:
    """Return the sources, with when they were read and how new their posts are."""
    read: dict[Path, SourceSummary] = {}
    with contextlib.suppress(OwnwordsError):  # nothing is read yet
        read = state.report().report.sources_by_path(state.workspace.root)
    at = _changed(state.workspace.report_page)
    sources = state.sources.sources()
    for number, source in enumerate(sources):
        if found := read.get(Path(source.path).resolve()):
            sources[number] = replace(source, read_at=at, newest_day=found.newest_day)
    return sources


# --- the blog -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlogOverview:
    """The results of the last `look`, and what has changed since."""

    name: str
    flags: PostFilter
    is_read: bool = False
    lines: tuple[str, ...] = ()
    decisions: int = 0  # posts that stand out, for the author to decide about
    texts: str = ""  # posts and pages, counted in words
    words: int = 0
    is_too_little: bool = False  # to train on
    new_sentence: str = ""  # about posts that were read but not yet learned
    is_stale: bool = False  # a source has changed since it was read, and is not followed
    problem: str = ""


def change_filter(state: AppState, call: ApiCall) -> None:
    """Change which posts the next look reads; missing fields stay unchanged."""
    state.sources.set_filter(call.fields)


def overview(state: AppState) -> BlogOverview:
    """Summarise the blog, and whether there is something new."""
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
    paths = [Path(source.path) for source in state.sources.sources() if not source.version]
    if {path.resolve() for path in paths} != report.sources_by_path(state.workspace.root).keys():
        return True
    if state.follower.is_following:
        return False
    read_at = _changed(state.workspace.report_page)
    return read_at > 0 and has_changed_since(paths, read_at)


def plain_lines(report: Report) -> list[str]:
    """Return a line each on the size of the blog, the use of its words, and what stands out."""
    notable = len(summary.notable_posts(report))
    totals, years = report.totals, summary.years_spanned(report)
    texts = summary.count_texts(totals.posts, totals.pages)
    unusual = f"What stands out: {fmt.count(notable, 'post')}. Decide what to train on."
    return [
        f"{texts}, {fmt.count(totals.own_words, 'word')} of your own{years and f', {years}'}.",
        summary.becomes_of_words(report),
        unusual if notable else "Nothing stands out.",
    ]


def _changed(path: Path) -> float:
    """Return the time of the last change of a path; 0 if it is not accessible."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


# --- its sources ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PathRequest:
    """A path that the user has typed or chosen."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]


@dataclass(frozen=True)
class DecideRequest:
    """Whether a new version replaces its source."""

    replaces: bool


def list_sources(state: AppState, _: ApiCall) -> dict[str, Any]:
    """List the sources, Publii sites in the usual folders, and the kinds that can be read."""
    known = state.sources.sources()
    paths = {Path(source.path) for source in known}
    found: list[FoundSite] = []
    if state.settings.is_private:
        with contextlib.suppress(RuntimeError):  # a user without a home folder
            found = [site for site in find_publii_sites() if Path(site.path) not in paths]
    return {"sources": known, "found": found, "kinds": readable_kinds()}


async def _add(state: AppState, request: Request) -> Response:
    asked = await read_body(state, request, PathRequest)
    source = await state.run_long(lambda: add(state, asked.path))  # which reads all of its posts
    return json_response(source, HTTPStatus.CREATED)


def add(state: AppState, text: str) -> Source:
    """Add a path that the user has typed, if the server is private."""
    if not state.settings.is_private:
        raise forbidden(
            "paths can be chosen only if no other machine can reach the server",
            hint="drop the file here, or start the server with the path",
        )
    path = Path(text)
    with contextlib.suppress(RuntimeError):  # "~nobody": no such user
        path = path.expanduser()
    if not path.is_absolute() or "\0" in text:
        raise invalid(
            f"{text!r:.200} is not an absolute path",
            hint="give the full path, from the root or beginning with ~",
            param="path",
        )
    label = detect_source(path).label
    return state.sources.add(path, "path", label, version=state.sources.find_version(path))


def decide(state: AppState, call: ApiCall) -> None:
    """Read a new version of a source in its place or beside it."""
    state.sources.decide(call.path["id"], replaces=call.body(DecideRequest).replaces)


def remove(state: AppState, call: ApiCall) -> None:
    """Remove a source; uploaded or fetched files are deleted, the user's own never."""
    state.sources.remove(call.path["id"])


async def _upload(state: AppState, request: Request) -> Response:
    """Store a file with posts as it arrives, and inspect it."""
    name = Path(request.query_params.get("name", "")).name[:200]
    length = int(request.headers.get("content-length", "0"))  # checked by the middleware
    path = await state.run(lambda: _new_file(state, name, length))
    try:
        await _store(state, request, path)
        found = await state.run_long(
            lambda: _inspect(path, state.workspace.archive, state.sources.config)
        )
        stored, label = Path(found["path"]), str(found["label"])
        versions = decode(tuple[SourceVersion, ...], found["versions"])
        version = await state.run(lambda: state.sources.find_version(stored, versions))
        source = await state.run(lambda: state.sources.add(stored, "upload", label, name, version))
    except BaseException:
        shutil.rmtree(path.parents[1], ignore_errors=True)
        raise
    return json_response(source, HTTPStatus.CREATED)


async def _store(state: AppState, request: Request, path: Path) -> None:
    """Write the file in blocks, outside the event loop."""
    waiting = bytearray()
    with translate_os_errors(path), path.open("xb") as file:
        try:
            async for part in request.stream():
                waiting += part
                if len(waiting) >= _BLOCK_BYTES:
                    await state.run(partial(_write, file, path.parent, bytes(waiting)))
                    waiting.clear()
        except ClientDisconnect as error:
            raise SourceError("the upload was interrupted") from error
        await state.run(partial(_write, file, path.parent, bytes(waiting)))
        if not file.tell():
            raise SourceError("the file is empty")


def _write(file: IO[bytes], folder: Path, data: bytes) -> None:
    require_room(folder, len(data))  # a request need not state its length
    file.write(data)


def _inspect(path: Path, archive: Path, config: ArchiveConfig) -> dict[str, Any]:
    """Inspect a file in a process of its own, so that a hostile file harms nothing else.

    Temporary files are stored beside it, to be deleted with it.
    """
    beside = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(path.parents[1]))
    try:
        answer = subprocess.run(
            [*PYTHON, "ownwords.serve.intake", str(path), str(archive), json.dumps(encode(config))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=clean_environment(os.environ) | beside,
            timeout=60 * _INSPECTION_MINUTES,
            check=False,
        ).stdout
        found: dict[str, Any] = json.loads(answer)
    except subprocess.TimeoutExpired:
        raise SourceError(
            f"{path.name} takes over {_INSPECTION_MINUTES} minutes to read",
            hint="give a smaller export, or unpack it and give its texts",
        ) from None
    except ValueError:
        raise SourceError(
            f"reading {path.name} ended early; perhaps the memory is full",
            hint="give a smaller export, or unpack it and give its texts",
        ) from None
    if error := found.get("error"):
        raise SourceError(error["message"], hint=error["hint"])
    return found


def _new_file(state: AppState, name: str, length: int) -> Path:
    """Return the path of a new upload. Raises SourceError if the disk cannot hold it."""
    folder = state.sources.new_folder(state.own_name)
    if not state.workspace.root.is_dir():
        state.workspace.create()
    require_room(state.workspace.root, length)
    with translate_os_errors(folder):
        folder.mkdir(parents=True)
    return folder / state.sources.new_folder(name or "upload").name


# --- other blogs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkspaceRequest:
    """A listed workspace, the name of a new one, or both: a new name for its blog."""

    path: Annotated[str, Meta(max_length=4000)] = ""
    name: Annotated[str, Meta(max_length=MAX_CHARACTERS)] = ""


@dataclass(frozen=True, kw_only=True)
class DeleteRequest(WorkspaceRequest):
    """A listed workspace."""

    deletes: Literal[True]  # earlier pages left it out to hide a blog and keep its files


def list_workspaces(state: AppState, _: ApiCall) -> dict[str, Any]:
    """List the workspaces: the open one, those opened before, and those beside it."""
    return {"workspaces": WorkspaceList(state.workspace).entries()}


def rename_workspace(state: AppState, call: ApiCall) -> None:
    """Rename a blog; its folder keeps its name."""
    asked = call.body(WorkspaceRequest)
    WorkspaceList(state.workspace).rename(asked.path, asked.name)


def delete_workspace(state: AppState, call: ApiCall) -> None:
    """Delete a workspace with its files."""
    path = call.body(DeleteRequest).path
    if holder := JobManager(Workspace(Path(path))).find_worker():
        raise conflict(holder, hint="wait until it ends")
    WorkspaceList(state.workspace).delete(path)


async def _open_workspace(state: AppState, open_workspace: Open, request: Request) -> Response:
    """Open another workspace or a new one, which becomes the default for requests."""
    asked = await read_body(state, request, WorkspaceRequest)

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
