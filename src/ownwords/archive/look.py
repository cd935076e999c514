"""`ownwords look`: read a blog into an archive and report on it."""

import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path

from ownwords.archive.analysis import ArchiveAnalysis, AskAuthor, PostQuestion, ask_author
from ownwords.archive.blog_name import choose_name
from ownwords.archive.document import OWN_KINDS
from ownwords.archive.ingest import (
    Detect,
    IngestResult,
    find_versions,
    ingest,
    stored_report,
    workspace_for,
)
from ownwords.archive.report import Report, SourceVersion
from ownwords.archive.report_view import report_view
from ownwords.archive.selection import Choices, Decision, parse_choices, read_bytes, write_choices
from ownwords.archive.settings import ArchiveConfig, LookSettings
from ownwords.archive.sources import detect_source
from ownwords.archive.store import Archive, DamagedArchiveError
from ownwords.core.errors import CorpusError, SourceError, WorkspaceError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, Stage
from ownwords.core.version import __version__
from ownwords.core.workspace import (
    SUFFIX,
    Workspace,
    path_text,
    translate_os_errors,
    write_atomically,
    writing_atomically,
)
from ownwords.view import html

# Increment when the report on an unchanged archive changes.
_REPORT_VERSION = "9"


def look(
    paths: Sequence[Path],
    *,
    workspace: Path | None = None,
    settings: LookSettings | None = None,
    progress: Progress | None = None,
    ask: AskAuthor | None = None,
    export: Path | None = None,
) -> Report:
    """Read the paths into a workspace's archive, and report on them.

    The workspace is `./<name>.ownwords` by default. `ask` is called about posts that stand out;
    without it the stated defaults apply. `export` names a file for the texts, as JSON lines.
    Raises OwnwordsError and then leaves the workspace unchanged.
    """
    if not paths:
        raise SourceError("no path was given", hint="give the path of a blog, export or folder")
    detect = cache(detect_source)  # so that each path is unpacked once
    place = Workspace(workspace) if workspace else workspace_for(paths[0], detect=detect)
    paths = list({path.resolve(): path for path in paths}.values())  # without duplicates
    _refuse_to_read_itself(paths, place)
    if export and (export.is_dir() or not export.parent.is_dir()):
        raise WorkspaceError(
            f"{export} cannot be written: it is a folder, or there is no folder {export.parent}",
            hint="give --export the name of a file in an existing folder",
        )
    progress, settings = progress or Progress(), settings or LookSettings()
    with place.opened():

        def run(*notes: str) -> Report:
            with Archive(place.archive, rebuild=True) as store:
                store.verify()
                look_run = _LookRun(paths, place, store, progress, [*notes], settings, detect)
                look_run.compare_versions(ask)
                report = look_run.update()
                # Ask the author while nothing is locked; the archive is complete without an answer.
                if ask and store.get_meta("asked") != "yes":
                    if answers := ask_author(report, look_run.choices, ask):
                        report = look_run.update(answers)
                    with store.transaction():
                        store.set_meta("asked", "yes")
                if export:
                    title = f"Writing {export.name}"
                    with progress.stage(title, len(report.posts), "posts") as stage:
                        _export(store, export, stage)
                os.utime(place.report_page)  # shows when the blog was read, even if nothing is new
                return report

        try:
            return run()
        except DamagedArchiveError as error:
            return run(_set_aside(place.archive, error))


@dataclass
class _LookRun:
    """One run of `look` on an open archive: reads the paths once, and reports for any choices."""

    paths: Sequence[Path]
    place: Workspace
    store: Archive
    progress: Progress
    notes: list[str]
    settings: LookSettings
    detect: Detect
    versions: list[SourceVersion] = field(default_factory=list)
    prefixes: dict[Path, str] = field(default_factory=dict)  # of posts' ids, by resolved path
    choices: dict[str, Decision] = field(default_factory=dict)
    former_ids: Mapping[str, str] = field(default_factory=dict)  # as the last look stored them

    def compare_versions(self, ask: AskAuthor | None) -> None:
        """Find the paths that are new versions of others, and ask which to read.

        Without an answer, exactly the given paths are read.
        """
        archive, report = self.settings.archive, stored_report(self.store)
        read = report.sources_by_path(self.store.path.parent) if report else {}
        self.former_ids = report.renamed if report else {}
        locations = [path.resolve() for path in self.paths]
        self.prefixes = {path: read[path].prefix for path in locations if path in read}
        if len(self.prefixes) == len(self.paths) or not (read or self.paths[1:]):
            return  # nothing is new, or there is nothing to compare it with
        with self.progress.stage("Comparing with what was read before"):
            versions = find_versions(self.store, self.paths, archive, self.detect)
        replaced: dict[Path, Path] = {}
        for version in versions:
            old, new = Path(version.of), Path(version.path)
            while old.resolve() in replaced:
                old = replaced[old.resolve()]
            is_given = old.resolve() in map(Path.resolve, self.paths)
            answer = "both" if is_given else "replace"
            # If both paths were given, the new one replaces the old without asking only if it has
            # most of its posts.
            default = "replace" if version.has_most or not is_given else "both"
            if archive.replaces_versions:
                answer = default
            elif ask and (is_given or version.is_different):
                answer = ask(_question(version, default, can_keep=old.exists()))
            if answer == "cancel":
                raise KeyboardInterrupt("nothing was read or changed")
            if answer == "both":
                self.paths = [*self.paths, *([] if is_given else [old])]
                continue
            replaced[old.resolve()] = new
            self.paths = [path for path in self.paths if path.resolve() != old.resolve()]
            if old.resolve() in read:
                self.prefixes[new.resolve()] = read[old.resolve()].prefix
            if version.is_different:
                self.versions.append(version)
                names = _names(version)
                self.notes.append(f"{names[0]} is read instead of {names[1]}: {version.sentence}.")

    @cached_property
    def _ingested(self) -> IngestResult:
        ingested = ingest(
            self.store,
            self.paths,
            self.settings.archive,
            self.progress,
            self.prefixes,
            self.detect,
        )
        if not ingested.keys:
            raise _nothing_found(self.paths, ingested)
        ingested.notes += self.notes
        return ingested

    @cached_property
    def _analysis(self) -> ArchiveAnalysis:
        return ArchiveAnalysis(self.store, self._ingested, self.settings, self.progress)

    def update(self, answers: Choices | None = None) -> Report:
        """Make the report for choices.toml and the answers; the file takes precedence.

        If choices.toml is edited meanwhile, the report is made again from its new content. The
        server locks the archive before it writes choices.toml, so this transaction keeps it from
        writing. The state is stored last: if the run is killed before, the next run makes report
        and files again.
        """
        place, store = self.place, self.store
        while True:
            content = read_bytes(place.choices)
            choices = parse_choices(content, place.choices)
            with store.transaction():
                self.choices = {**(answers or {}), **_present(choices, self._ingested.renamed)}
                state, report, is_new = self._report(asked=bool(answers))
            page = html.document(report_view(report)) if is_new else ""
            with store.transaction():
                if read_bytes(place.choices) != content:
                    continue
                if is_new:
                    write_atomically(place.choices, write_choices(report.posts, self.choices))
                    write_atomically(place.report_page, page)
                    store.set_meta("state", state)
                return report

    def _report(self, asked: bool) -> tuple[str, Report, bool]:
        """Return the state, its report, and whether it is new, because something has changed."""
        place, store, ingested = self.place, self.store, self._ingested
        command = _command(self.paths, place, self.settings.archive)
        files = [self.prefixes.get(path.resolve()) or _file_name(path) for path in self.paths]
        name = choose_name(place.root, ingested.sources[0].site_name, files)
        fingerprint = digest(*(part for item in sorted(ingested.keys.items()) for part in item))
        # Everything the report depends on.
        state = digest(
            __version__,
            _REPORT_VERSION,
            command,
            path_text(place.root),
            name,
            fingerprint,
            repr((self.settings.provenance, self.settings.split)),
            repr(sorted(self.choices.items())),
            repr((ingested.sources, ingested.skipped, ingested.notes)),
        )
        is_known = store.get_meta("state") == state
        if is_known and place.choices.exists() and place.report_page.exists():
            with suppress(WorkspaceError):  # the stored report is damaged, so it is made again
                return state, Report.from_json(store.get_meta("report")), False
        report = Report(
            name=name,
            fingerprint=fingerprint,
            version=__version__,
            created_on=datetime.now(UTC).date().isoformat(),
            workspace=path_text(place.root),
            command=command,
            sources=ingested.sources,
            versions=self.versions,
            renamed=_chained(self.former_ids, ingested.renamed),
        )
        self._analysis.fill(report, self.choices)
        store.set_meta("state", "")
        store.set_meta("report", report.to_json())
        if not is_known:
            store.set_meta("asked", "yes" if asked else "no")
        return state, report, True


def _file_name(path: Path) -> str:
    """Return the blog's name by its path: that of the default workspace."""
    return Workspace.default_for(path).root.name.removesuffix(SUFFIX)


def _names(version: SourceVersion) -> tuple[str, str]:
    """Return the names of the new and the old source, or their paths if the names are the same."""
    new, old = Path(version.path).name, Path(version.of).name
    return (new, old) if new != old else (version.path, version.of)


def _question(version: SourceVersion, default: str, *, can_keep: bool) -> PostQuestion:
    options = {"replace": "read it instead of the old one; your decisions about posts are kept"}
    if can_keep:
        options["both"] = "read both"
    new, old = _names(version)
    return PostQuestion(
        id=version.path,
        title=f"{new} looks like a new version of {old}",
        text=f"{version.sentence}.",
        options={**options, "cancel": "change nothing"},
        default=default,
    )


def _present(choices: Choices, renamed: Mapping[str, str]) -> dict[str, Decision]:
    """Return the choices by the present ids of the posts."""
    present = {id_: decision for id_, decision in choices.items() if id_ not in renamed}
    for id_, decision in choices.items():
        present.setdefault(renamed.get(id_, id_), decision)
    return present


def _chained(before: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the present id of each post that was ever renamed, by each of its former ids."""
    chained = {former: renamed.get(id_, id_) for former, id_ in before.items()}
    return {former: id_ for former, id_ in (chained | dict(renamed)).items() if former != id_}


def _set_aside(archive: Path, error: DamagedArchiveError) -> str:
    """Rename a damaged archive; returns the note that says so."""
    damaged = archive.with_name("archive.damaged.sqlite")
    with translate_os_errors(archive):
        archive.replace(damaged)
        archive.with_name(f"{archive.name}-journal").unlink(missing_ok=True)
    return (
        f"The archive was damaged ({error.reason}) and has been rebuilt from your files. The"
        f" damaged file is {damaged.name}; you can delete it."
    )


def _refuse_to_read_itself(paths: Sequence[Path], place: Workspace) -> None:
    """Refuse a workspace inside a source path, unless its name marks it as a workspace."""
    root = place.root.resolve()
    for path in paths:
        folder = path.resolve()
        if folder.is_dir() and root.is_relative_to(folder):
            below = root.relative_to(folder).parts
            if not any(part.endswith(SUFFIX) for part in below):
                raise WorkspaceError(
                    f"the workspace {place.root} is inside {path} and would be read with it",
                    hint=f"give a folder outside, or one whose name ends in {SUFFIX}",
                )


def _command(paths: Sequence[Path], place: Workspace, archive: ArchiveConfig) -> str:
    """Return the command that repeats this run; settings without a flag are in settings files."""
    words = ["ownwords", "look", *(path_text(path) for path in paths)]
    for name in ("drafts", "hidden", "private"):
        if getattr(archive, name):
            words.append(f"--{name}")
    if not archive.pages:
        words.append("--no-pages")
    if place.root.absolute() != Workspace.default_for(paths[0]).root:
        words += ["--workspace", path_text(place.root)]
    return shlex.join(words)


def _nothing_found(paths: Sequence[Path], ingested: IngestResult) -> CorpusError:
    reasons: Counter[str] = Counter()
    for skipped in ingested.skipped:
        reasons[skipped.reason] += skipped.count
    left_out = "; ".join(f"{count:,} x {reason}" for reason, count in reasons.most_common(4))
    where = ", ".join(str(path) for path in paths)
    kind = f" (read as {ingested.sources[0].detected_as})" if len(paths) == 1 else ""
    return CorpusError(
        f"{where}{kind} contains no text to read" + (f": {left_out}" if left_out else ""),
        hint="give another path, or include what was left out: --drafts, --hidden, --private",
    )


def _export(store: Archive, path: Path, stage: Stage) -> None:
    """Write a JSON line per document: its metadata, decision, text and segments."""
    selection = store.selection()
    with writing_atomically(path) as file:
        for document in store.documents():
            line = asdict(document)
            del line["dropped"]
            line["date"] = document.date.isoformat() if document.date else None
            line["text"] = document.text(OWN_KINDS)
            line["decision"], line["training_words"], line["split"] = selection[document.id]
            file.write(json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n")
            stage.advance()
