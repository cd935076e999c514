"""`ownwords look`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.options import DEFAULTS, CommonOptions, setting, with_help
from ownwords.view.format import count, plain

if TYPE_CHECKING:
    from ownwords.archive.file_list import FileEntry


@with_help
def look(
    *paths: Annotated[Path, Parameter(name="PATH", required=True)],
    drafts: Annotated[
        bool | None, setting("archive.drafts", "Include drafts and scheduled posts.")
    ] = None,
    hidden: Annotated[
        bool | None,
        setting("archive.hidden", "Include posts that are online but not listed."),
    ] = None,
    private: Annotated[
        bool | None,
        setting("archive.private", "Include private and password-protected posts."),
    ] = None,
    pages: Annotated[
        bool | None, setting("archive.pages", 'Include pages, such as "About".')
    ] = None,
    export: Path | None = None,
    files: bool = False,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, build the archive, show the report.

    Args:
        paths: A blog: a Publii site, another system's export, a feed, or a folder of texts; several
            make one archive.
        export: Also write the texts to this file, one JSON object per line. [default: none]
        files: List every file instead: whether it was read, and if not, why and what to do.
    """
    from ownwords.archive.file_list import list_files
    from ownwords.archive.look import look as build_archive
    from ownwords.archive.report_view import report_view
    from ownwords.make.learned import count_new
    from ownwords.view.terminal import print_view

    place = common.workspace_for(paths)
    settings = common.resolve(
        {
            "archive.drafts": drafts,
            "archive.hidden": hidden,
            "archive.private": private,
            "archive.pages": pages,
            "archive.replaces_versions": common.yes or None,
        },
        workspace=place.root,
    ).settings
    with common.watched() as (progress, ask):
        progress.expect("read")
        progress.expect("analyse")
        progress.begin("read")
        report = build_archive(
            paths,
            workspace=place.root,
            settings=settings,
            progress=progress,
            ask=ask,
            export=export,
        )
        if files:
            rows = list_files(report, place.root)
            common.show({"files": [asdict(row) for row in rows]}, lambda _: _print(rows))
            return
        page = f"{report.workspace.rstrip('/')}/report.html" if report.workspace else ""
        common.show(report.to_dict(), lambda out: print_view(report_view(report), out, page))
        if not common.json and not common.quiet and (new := count_new(place.root, report)):
            print(f"{count(new, 'new post')}, not yet learned: `ownwords make` trains on them")


def _print(files: "Sequence[FileEntry]") -> None:
    """Print a line per file, so that other programs can search them."""
    for file in files:
        why = "; ".join([*file.reasons, *filter(None, [file.advice])])
        words = count(file.words, "word") if file.texts else ""
        parts = [f"{file.status:<12}  {plain(file.name, 300)}", words, plain(why, 400)]
        print("  ".join(filter(None, parts)))
