"""The archive report as data: everything that the page, the terminal and `--json` show."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ownwords.archive.document import SkippedItem
from ownwords.core.errors import WorkspaceError
from ownwords.view.format import count


@dataclass(slots=True)
class SourceSummary:
    """A path that was read, and the kind of source it was recognised as."""

    path: str  # as it was given, to be shown
    detected_as: str  # "a Publii site (input/db.sqlite)"
    site_name: str = ""
    documents: int = 0
    newest_day: str = ""  # ISO day of its newest post; empty if none has one
    prefix: str = ""  # of the ids of its posts, unless the site has an identity of its own
    absolute: str = ""  # path, which finds it from any folder; "" in reports of older versions
    kind: str = ""  # the name of the source that read it; "" in reports of older versions

    def located(self, workspace: Path) -> Path:
        """Return the absolute path; if the folder around the workspace was moved, its new one."""
        path = Path(self.absolute or self.path)
        beside = workspace.absolute().parent / self.path
        return beside if not path.exists() and beside.exists() else path.absolute()


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """A path that holds most posts of the source `of`, and how many are new, changed or gone.

    Both paths are absolute.
    """

    path: str
    of: str
    new: int
    changed: int
    same: int
    gone: int

    @property
    def is_one(self) -> bool:
        """Whether most posts of one source are found in the other."""
        found = self.same + self.changed
        return found > 0 and 2 * found > found + min(self.new, self.gone)

    @property
    def has_most(self) -> bool:
        """Whether most posts of the old one are in the new one."""
        return self.gone <= self.same + self.changed

    @property
    def is_different(self) -> bool:
        """Whether any post differs; if not, the source was only moved."""
        return bool(self.new or self.changed or self.gone)

    @property
    def sentence(self) -> str:
        """The differences, for the author."""
        parts = ((self.new, "new"), (self.changed, "changed"), (self.same, "as before"))
        missing = [f"{count(self.gone)} no longer there"] if self.gone else []
        return ", ".join([f"{count(n)} {what}" for n, what in parts if n] + missing)


@dataclass(slots=True)
class ReportTotals:
    """Totals of the archive; dates are ISO days, empty if no post has one."""

    posts: int = 0
    pages: int = 0
    words: int = 0
    own_words: int = 0
    training_words: int = 0  # including those held out
    training_bytes: int = 0
    first_day: str = ""
    last_day: str = ""


@dataclass(slots=True)
class PostSummary:
    """A document of the archive and the decision about it."""

    id: str
    title: str
    url: str
    day: str
    kind: str  # post | page
    words: int
    own_words: int
    log_words: int = 0
    language: str = ""  # of the own words; empty if unknown
    share: float = 0.0  # of all own words in the archive
    flags: list[str] = field(default_factory=list)  # dominant, unlike, dump, duplicate
    decision: str = "keep"  # keep | cap | leave out
    reason: str = ""
    training_words: int = 0
    split: str = ""  # train | validation | test; empty if left out
    source: int = 0  # index in the report's sources


@dataclass(slots=True)
class Duplicate:
    """Two documents that share text, `id` before `other_id` in order.

    `share` is the fraction of the shorter text's shingles found in the longer.
    """

    id: str
    other_id: str
    exact: bool
    share: float


@dataclass(slots=True)
class LogBlock:
    """A block of machine output: its size, how it was recognised, its first line."""

    id: str
    words: int
    lines: int
    reason: str
    first_line: str


@dataclass(slots=True)
class UnlikePost:
    """A post whose style differs from the others, and its robust z."""

    id: str
    distance: float


@dataclass(slots=True)
class Advice:
    """What can be trained with this much text."""

    headline: str = ""
    sentences: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SplitCounts:
    """Posts and training words for training, validation and test."""

    posts: dict[str, int] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """Everything `ownwords look` found."""

    name: str
    fingerprint: str  # digest of the archive's texts
    version: str
    created_on: str  # ISO day
    workspace: str = ""
    command: str = ""  # the command that repeats this run
    sources: list[SourceSummary] = field(default_factory=list)
    versions: list[SourceVersion] = field(default_factory=list)  # read in place of others
    renamed: dict[str, str] = field(default_factory=dict)  # ids that posts had before -> present
    totals: ReportTotals = field(default_factory=ReportTotals)
    words_by_kind: dict[str, int] = field(default_factory=dict)
    posts: list[PostSummary] = field(default_factory=list)  # longest first
    duplicates: list[Duplicate] = field(default_factory=list)
    dumps: list[LogBlock] = field(default_factory=list)
    style_outliers: list[UnlikePost] = field(default_factory=list)
    excluded: list[SkippedItem] = field(default_factory=list)
    advice: Advice = field(default_factory=Advice)
    split: SplitCounts = field(default_factory=SplitCounts)
    notes: list[str] = field(default_factory=list)

    def sources_by_path(self, workspace: Path) -> dict[Path, SourceSummary]:
        """Return the sources by their resolved paths."""
        return {source.located(workspace).resolve(): source for source in self.sources}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode("utf-8")

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Parse the text that `to_json` returned; raises WorkspaceError if it is damaged."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise WorkspaceError(
                f"the report in the archive is damaged ({error})",
                hint="delete archive.sqlite and run the same `ownwords look` again: it is rebuilt"
                " from your own files, which are untouched",
            ) from error
