"""An open checkpoint from a hub: its weights, settings and tokenizer, and never a line of code.

The hub is huggingface.co, or one that speaks like it, named in HF_ENDPOINT. A model whose licence
must be accepted first is given only to who names himself: HF_TOKEN. Both are the variables that
other tools know, too.
"""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ownwords.base import checks, manifest
from ownwords.base.downloads import (
    Checksum,
    Counted,
    Downloads,
    FetchError,
    RefusedError,
    nobody,
    sha256_of,
)
from ownwords.base.manifest import Manifest
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress
from ownwords.core.workspace import telling_of_the_disk, write_atomically
from ownwords.models import registry
from ownwords.models.directory import CARD, CONFIG, GENERATION, PROVENANCE, TOKENIZER
from ownwords.models.directory import TOKENIZER_FILES as TOKENIZERS
from ownwords.models.untrusted_files import MAX_JSON_BYTES, parse_json, preview, read_json
from ownwords.models.weight_mapping import INDEX, SINGLE

ENDPOINT = "https://huggingface.co"

_REVISION = "main"
_BESIDE = frozenset({GENERATION, CARD, PROVENANCE, "LICENSE", "LICENSE.txt", *TOKENIZERS})
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.safetensors")
_PICKLE = re.compile(r"[^/]*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SHA256, _GIT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")
_SMALL_BYTES = 64 << 20  # any file but one of weights: Gemma's tokenizer has 33 MB
_LARGE_BYTES = 1 << 37  # where the hub does not say how large one is
_BEGUN = ".fetching"


@dataclass(frozen=True)
class Listed:
    """A file of a model, as the hub lists it."""

    name: str
    bytes: int | None
    checksum: Checksum | None


@dataclass(frozen=True)
class Checkpoint:
    """A model on a hub as it stands at one commit: its files by name, none in a folder."""

    name: str
    commit: str
    files: dict[str, Listed]


class Hub:
    """One hub, asked through `downloads`."""

    def __init__(self, downloads: Downloads, endpoint: str = "") -> None:
        self._downloads = downloads
        self._endpoint = (endpoint or endpoint_in_force()).rstrip("/")

    def find(self, name: str) -> Checkpoint:
        """The model of that name; OwnwordsError where there is none, or none that can be used."""
        try:
            page = self._downloads.page(
                f"{self._endpoint}/api/models/{name}/revision/{_REVISION}?blobs=true",
                MAX_JSON_BYTES,
            )
        except RefusedError as error:
            raise self._refused(name, error) from error
        said = parse_json(page, f"what {self._endpoint} says of {name}")
        commit, siblings = said.get("sha"), said.get("siblings")
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise FetchError(f"{self._endpoint} does not say which version of {name} it has")
        listed = [_listed(each) for each in siblings] if isinstance(siblings, list) else []
        files = {each.name: each for each in listed if each}
        _check_usable(name, files)
        return Checkpoint(name, commit, files)

    def fetch(self, found: Checkpoint, into: Path, progress: Progress) -> Manifest:
        """Fetch what is missing of a model to a folder; every file's SHA-256.

        The settings come first, so that a family nobody here can read costs no time.
        """
        sums = {CONFIG: self._one(found, CONFIG, into, nobody)}
        registry.config_from_json(read_json(into / CONFIG))
        weights = [SINGLE]
        if SINGLE not in found.files:
            sums[INDEX] = self._one(found, INDEX, into, nobody)
            weights = _shards(into / INDEX, found)
        names = sorted(_BESIDE & found.files.keys()) + weights
        sizes = [found.files[name].bytes for name in names]
        known = [size for size in sizes if size is not None]
        here = sum(each.stat().st_size for each in into.iterdir())
        checks.check_room(into, sum(known) - here)
        total = sum(known) >> 20 if len(known) == len(sizes) else None
        with progress.stage(f"Fetching {found.name}", total=total, unit="MiB") as stage:
            count = Counted(stage)
            sums |= {name: self._one(found, name, into, count) for name in names}
        return Manifest(f"{found.name} ({self._endpoint})", found.commit, sums)

    def _one(self, found: Checkpoint, name: str, into: Path, came: Callable[[int], None]) -> str:
        listed, path = found.files[name], into / name
        if path.exists() and (listed.checksum is None or listed.checksum.is_of(path)):
            came(path.stat().st_size)
            return sha256_of(path)
        try:
            return self._downloads.file(
                f"{self._endpoint}/{found.name}/resolve/{found.commit}/{name}",
                path,
                size=listed.bytes,
                checksum=listed.checksum,
                limit=_LARGE_BYTES if _SHARD.fullmatch(name) else _SMALL_BYTES,
                came=came,
            ).sha256
        except RefusedError as error:
            raise self._refused(found.name, error) from error

    def _refused(self, name: str, error: RefusedError) -> OwnwordsError:
        page = f"{self._endpoint}/{name}"
        if error.status in (401, 403):
            return FetchError(
                f"{self._endpoint} gives {name} to nobody unnamed: it is not there, or private, or"
                " its licence has to be accepted first",
                hint=f"see {page}; with an account there, put its token into HF_TOKEN",
            )
        if error.status == 404:
            return FetchError(
                f"{self._endpoint} has no model {name}, or not all of it",
                hint="the name is ORG/NAME, as at the top of the model's page",
            )
        return error


def fetch(
    name: str, folder: Path, progress: Progress, downloads: Downloads | None = None
) -> Manifest:
    """Fetch a model to a folder that is not there yet; it is there whole, checked, or not at all.

    What has come when this ends early lies beside it, and is not fetched again.
    """
    with downloads or Downloads(headers=_named()) as through:
        hub = Hub(through)
        found = hub.find(name)
        beside = folder.with_name(f".{folder.name}.{found.commit[:12]}{_BEGUN}")
        with telling_of_the_disk(folder):
            for old in begun(folder):
                if old != beside:  # of a version that is no longer the newest
                    shutil.rmtree(old)
            beside.mkdir(parents=True, exist_ok=True)
        known = hub.fetch(found, beside, progress)
    write_atomically(beside / manifest.FILE, known.to_bytes())
    with progress.stage(f"Opening {name}"):
        checks.check_usable(beside)
    with telling_of_the_disk(folder):
        beside.rename(folder)
    return known


def begun(folder: Path) -> list[Path]:
    """What lies beside a base's folder of times when fetching it ended early."""
    if not folder.parent.is_dir():
        return []
    start = f".{folder.name}."
    return [
        each
        for each in sorted(folder.parent.iterdir())
        if each.name.startswith(start)
        and each.name.endswith(_BEGUN)
        and "." not in each.name[len(start) : -len(_BEGUN)]
    ]


def endpoint_in_force() -> str:
    """The hub that is asked."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT


def _named() -> dict[str, str]:
    """Who asks, where the user said so; never told where everybody on the way can read it."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token or not endpoint_in_force().startswith("https://"):
        return {}
    return {"Authorization": f"Bearer {token}"}


def _listed(said: object) -> Listed | None:
    """A file of the list; None for one in a folder, and for what is no file of a list."""
    name = said.get("rfilename") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(name, str) or "/" in name or "\\" in name:
        return None
    size, lfs, git = said.get("size"), said.get("lfs"), said.get("blobId")
    checksum = None
    if isinstance(lfs, dict):
        sha256, size = lfs.get("sha256"), lfs.get("size", size)
        if isinstance(sha256, str) and _SHA256.fullmatch(sha256):
            checksum = Checksum("sha256", sha256)
    elif isinstance(git, str) and _GIT.fullmatch(git):
        checksum = Checksum("git", git)
    return Listed(name, size if type(size) is int and size >= 0 else None, checksum)


def _check_usable(name: str, files: dict[str, Listed]) -> None:
    """OwnwordsError unless there are settings, a tokenizer, and weights that can do no harm."""
    hint = "look for another copy of the model there"
    if CONFIG not in files:
        raise OwnwordsError(f"{name} holds no {CONFIG}, so nobody can tell what it is", hint=hint)
    if SINGLE not in files and INDEX not in files:
        pickles = [each for each in files if _PICKLE.fullmatch(each)]
        ggufs = [each for each in files if each.endswith(".gguf")]
        if pickles:
            raise OwnwordsError(
                f"{name} has its weights only as {preview(pickles)}: such files can run any program"
                " when they are opened, and so are not fetched",
                hint="look for a copy of the model with safetensors files",
            )
        if ggufs:
            raise OwnwordsError(
                f"{name} has its weights only as {preview(ggufs)}, and a base is a model directory",
                hint="download one, then: ownwords export FILE --to hf",
            )
        raise OwnwordsError(f"{name} holds no {SINGLE}", hint=hint)
    if TOKENIZER not in files:
        raise OwnwordsError(
            f"{name} holds no {TOKENIZER}, and a model without its tokenizer is noise", hint=hint
        )


def _shards(index: Path, found: Checkpoint) -> list[str]:
    """The files of weights that an index names, all of which the hub must have."""
    places = read_json(index).get("weight_map")
    names = sorted({str(each) for each in places.values()}) if isinstance(places, dict) else []
    strange = [each for each in names if not _SHARD.fullmatch(each) or each not in found.files]
    if strange or not names:
        raise OwnwordsError(
            f"{found.name}: {INDEX} names {preview(strange) or 'no files'}, and the hub lists none"
        )
    return names
