"""`ownwords look`: from any blog to an archive and the report on it."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from ownwords.archive.analysis import AskAuthor, analyse
from ownwords.archive.choices import read_choices, write_choices
from ownwords.archive.document import OWN_KINDS
from ownwords.archive.ingest import IngestResult, ingest
from ownwords.archive.policy import ArchiveConfig
from ownwords.archive.report import Report
from ownwords.archive.report.page import render_report
from ownwords.archive.selection import AuthorChoice, ProvenanceConfig
from ownwords.archive.split import SplitConfig
from ownwords.archive.store import Archive
from ownwords.core.errors import CorpusError, SourceError, WorkspaceError
from ownwords.core.fingerprint import digest
from ownwords.core.network import counting_network_calls
from ownwords.core.progress import JsonLines, Progress, Stage
from ownwords.core.version import __version__
from ownwords.core.workspace import (
    SUFFIX,
    Workspace,
    path_text,
    source_name,
    translate_os_errors,
    write_atomically,
    writing_atomically,
)


def look(
    paths: Sequence[Path],
    *,
    workspace: Path | None = None,
    archive: ArchiveConfig | None = None,
    provenance: ProvenanceConfig | None = None,
    split: SplitConfig | None = None,
    progress: Progress | None = None,
    ask: AskAuthor | None = None,
    export: Path | None = None,
) -> Report:
    """Read the paths into a workspace's archive, and report what is in them.

    The workspace is `./<name>.ownwords` unless given. `ask` is called about posts that stand out;
    without it the stated defaults apply. `export` names a file for the texts, a JSON object a line.
    Raises OwnwordsError, the workspace then being as it was.
    """
    if not paths:
        raise SourceError("nothing to look at", hint="give the path of a blog, export or folder")
    place = Workspace(workspace) if workspace else Workspace.default_for(paths[0])
    paths = list({path.resolve(): path for path in paths}.values())  # one named twice is one
    _refuse_to_read_itself(paths, place)
    if export:
        _refuse_no_file(export)
    progress = progress or Progress()
    archive, provenance = archive or ArchiveConfig(), provenance or ProvenanceConfig()
    split = split or SplitConfig()
    with (
        counting_network_calls() as calls,
        place.opened(),
        _logged(place, progress),
        Archive(place.archive) as store,
    ):
        choices = read_choices(place.choices)
        with store.transaction():
            intake = ingest(store, paths, archive, progress)
            if not intake.keys:
                raise _nothing_found(paths, intake)
            command = _command(paths, place, archive)
            state = _state(command, place, intake, provenance, split, choices)
            known = store.get_meta("report") if store.get_meta("state") == state else ""
            if known and not (ask and store.get_meta("asked") == "no"):
                report = Report.from_dict(json.loads(known))
            else:
                report = _new_report(paths, place, intake)
                report.command = command
                choices = analyse(
                    store,
                    intake,
                    report,
                    provenance=provenance,
                    split=split,
                    choices=choices,
                    ask=ask,
                    progress=progress,
                )
                report.privacy.network_calls = calls.count
                state = _state(command, place, intake, provenance, split, choices)
                store.set_meta("state", state)
                store.set_meta("report", json.dumps(report.to_dict(), ensure_ascii=False))
                store.set_meta("asked", "yes" if ask else "no")
        # Who was killed after the transaction and before the files left files of another state.
        stale = store.get_meta("written") != state
        if stale or not place.report_page.exists():
            write_atomically(place.report_page, render_report(report))
        if stale or not place.choices.exists():
            write_atomically(place.choices, write_choices(report.posts, choices))
        if stale:
            with store.transaction():
                store.set_meta("written", state)
        if export:
            with progress.stage(f"Writing {export.name}", len(intake.keys), "posts") as stage:
                _export(store, export, stage)
    return report


def _refuse_to_read_itself(paths: Sequence[Path], place: Workspace) -> None:
    """A workspace inside of what is read would be read with it, but for one that is named so."""
    root = place.root.resolve()
    for path in paths:
        folder = path.resolve()
        if folder.is_dir() and root.is_relative_to(folder):
            below = root.relative_to(folder).parts
            if not any(part.endswith(SUFFIX) for part in below):
                raise WorkspaceError(
                    f"the workspace {place.root} lies inside of {path}, and would be read with it",
                    hint=f"give one outside, or one whose name ends in {SUFFIX}",
                )


def _refuse_no_file(export: Path) -> None:
    """Said before anything is read, which may take long."""
    if export.is_dir():
        raise WorkspaceError(f"{export} is a folder", hint="give the name of a file to --export")
    if not export.parent.is_dir():
        raise WorkspaceError(
            f"{export} cannot be written: there is no folder {export.parent}",
            hint="make that folder, or give another file to --export",
        )


@contextmanager
def _logged(place: Workspace, progress: Progress) -> Iterator[None]:
    """Let the events of this look go to its log as well, in place of those of the last one."""
    folder = place.runs / "look"
    log = folder / "metrics.jsonl"
    with translate_os_errors(log):
        folder.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
    with closing(JsonLines(log)) as lines:
        progress.subscribers.append(lines)
        try:
            yield
        finally:
            progress.subscribers.remove(lines)


def _state(
    command: str,
    place: Workspace,
    intake: IngestResult,
    provenance: ProvenanceConfig,
    split: SplitConfig,
    choices: list[AuthorChoice],
) -> str:
    """A key of everything the report depends on: where it is the same, so is the report."""
    return digest(
        __version__,
        command,
        path_text(place.root),
        _fingerprint(intake),
        repr((provenance, split, sorted(choices, key=lambda choice: choice.id))),
        repr((intake.sources, intake.skipped, intake.notes, intake.statuses_excluded)),
    )


def _fingerprint(intake: IngestResult) -> str:
    return digest(*(part for item in sorted(intake.keys.items()) for part in item))


def _new_report(paths: Sequence[Path], place: Workspace, intake: IngestResult) -> Report:
    first = intake.sources[0]
    # Several sources have no name of their own but the folder's they are brought together in.
    name = source_name(paths[0]) if len(paths) == 1 else place.root.name.removesuffix(SUFFIX)
    return Report(
        name=first.site_name or path_text(Path(name)),
        fingerprint=_fingerprint(intake),
        version=__version__,
        made_on=datetime.now(UTC).date().isoformat(),
        workspace=path_text(place.root),
        sources=intake.sources,
    )


def _command(paths: Sequence[Path], place: Workspace, archive: ArchiveConfig) -> str:
    """What to type to read the same again, as far as flags say it; settings files say the rest."""
    words = ["ownwords", "look", *(path_text(path) for path in paths)]
    for name in ("drafts", "hidden", "private"):
        if getattr(archive, name):
            words.append(f"--{name}")
    if not archive.pages:
        words.append("--no-pages")
    if place.root.absolute() != Workspace.default_for(paths[0]).root:
        words += ["--workspace", path_text(place.root)]
    return shlex.join(words)


def _nothing_found(paths: Sequence[Path], intake: IngestResult) -> CorpusError:
    reasons = Counter[str]()
    for skipped in intake.skipped:
        reasons[skipped.reason] += skipped.count
    said = "; ".join(f"{count:,} x {reason}" for reason, count in reasons.most_common(4))
    where = ", ".join(str(path) for path in paths)
    seen = f", taken for {intake.sources[0].seen_as}," if len(paths) == 1 else ""
    return CorpusError(
        f"{where}{seen} holds no text to take in" + (f": {said}" if said else ""),
        hint="give another path, or take in what was left out: --drafts, --hidden, --private",
    )


def _export(store: Archive, path: Path, stage: Stage) -> None:
    """One JSON object a line and document: its text, its segments, what becomes of it."""
    selection = store.selection()
    with writing_atomically(path) as file:
        for document in store.documents():
            decision, training_words, split, split_by_date = selection[document.id]
            line = {
                "id": document.id,
                "title": document.title,
                "url": document.url,
                "date": document.date.isoformat() if document.date else None,
                "kind": document.kind,
                "status": document.status,
                "author": document.author,
                "tags": document.tags,
                "decision": decision,
                "training_words": training_words,
                "split": split,
                "split_by_date": split_by_date,
                "text": document.text(OWN_KINDS),
                "segments": [asdict(segment) for segment in document.segments],
            }
            file.write(json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n")
            stage.advance()
