"""Downloads a model from the Hugging Face Hub: its weights, config and tokenizer, never code.

`huggingface_hub` downloads the files and resumes interrupted downloads; this module checks them.
HF_ENDPOINT selects another hub; HF_TOKEN or `hf auth login` provides a token for gated models.
"""

import os
import re
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ownwords.base import catalogue
from ownwords.base.catalogue import Manifest
from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import sha256_of
from ownwords.core.packages import install_command
from ownwords.core.progress import Progress, Stage, printable
from ownwords.core.workspace import translate_os_errors
from ownwords.models import registry
from ownwords.models.directory import CARD, CONFIG, GENERATION, PROVENANCE, TOKENIZER
from ownwords.models.directory import TOKENIZER_FILES as TOKENIZERS
from ownwords.models.untrusted_files import preview, read_json
from ownwords.models.weight_mapping import INDEX, SINGLE

_ENDPOINT = "https://huggingface.co"
_RESUMES = "the same command downloads the missing files"
_TRANSPORT = frozenset({"httpx", "httpx2", "httpcore", "requests", "urllib3"})
_CACHE = ".cache"  # what huggingface_hub needs to resume
_OPTIONAL = frozenset({GENERATION, CARD, PROVENANCE, "LICENSE", "LICENSE.txt", *TOKENIZERS})
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.safetensors")
_PICKLE = re.compile(r"[^/]*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SMALL_BYTES = 64 << 20  # limit for files without weights; Gemma's tokenizer has 33 MB
_WORKERS = 4


class HubError(OwnwordsError):
    """The hub cannot be reached, refuses a request, or sends an unexpected response."""


@dataclass(frozen=True)
class RemoteFile:
    """A file in the hub's listing, with its size and checksum if the hub gives them."""

    name: str
    bytes: int | None
    sha256: str | None  # of files in Git LFS, such as weights

    def problem(self, path: Path) -> str:
        """Return how the file at `path` differs from the listing; empty if it matches."""
        size = path.stat().st_size
        if self.bytes not in (None, size):
            return f"it has {size:,} bytes instead of {self.bytes:,}"
        if self.sha256 and sha256_of(path) != self.sha256:
            return "its checksum does not match"
        if not _SHARD.fullmatch(self.name) and size > _SMALL_BYTES:
            return f"it is larger than {_SMALL_BYTES >> 20} MiB"
        return ""


def fetch(name: str, folder: Path, progress: Progress) -> None:
    """Download the model ORG/NAME to `folder`, which is created only after all files are checked.

    After an interruption the next call resumes from a folder beside it.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT
    with translate_os_errors(folder):
        commit, files = _listing(endpoint, name)
        _check_usable(name, files)
        draft = partial_download(folder)
        draft.mkdir(parents=True, exist_ok=True)

        def download(names: Iterable[str], stage: Stage | None = None) -> None:
            _download(endpoint, name, commit, [files[each] for each in sorted(names)], draft, stage)

        # The config first: an unknown family is refused before gigabytes are downloaded.
        names = {CONFIG} if SINGLE in files else {CONFIG, INDEX}
        download(names)
        registry.config_from_json(read_json(draft / CONFIG))
        weights = [SINGLE] if SINGLE in files else _shards(draft / INDEX, name, files)
        names |= {*weights, *(_OPTIONAL & files.keys())}
        for path in draft.iterdir():
            if path.name not in names and path.is_file():  # from another version of the model
                path.unlink()
        total = sum(files[each].bytes or 0 for each in names)
        present = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
        catalogue.check_disk_space(draft, total - present)
        with progress.stage(f"Downloading {name}", total=total >> 20, unit="MiB") as stage:
            download(names, stage)
        shutil.rmtree(draft / _CACHE, ignore_errors=True)
        Manifest(f"{name} ({endpoint})", commit).write(draft)
        progress.begin("open")
        with progress.stage(f"Opening {name}"):
            catalogue.check_usable(draft)
        draft.rename(folder)


def partial_download(folder: Path) -> Path:
    """Return the folder of an interrupted download, beside the base's own."""
    return folder.with_name(f".{folder.name}.fetching")


def _listing(endpoint: str, name: str) -> tuple[str, dict[str, RemoteFile]]:
    """Return the newest commit of a model, and the files in its top folder by name."""
    with _translate_errors(endpoint, name):
        from huggingface_hub import HfApi  # noqa: PLC0415 - half a second

        api = HfApi(endpoint=endpoint, token=token_for(endpoint))
        info = api.model_info(name, files_metadata=True)
        siblings, commit = info.siblings or [], info.sha
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise HubError(f"{endpoint} does not report the version of {name}")
    files = {}
    for sibling in siblings:
        if "/" not in sibling.rfilename and "\\" not in sibling.rfilename:
            lfs: Any = sibling.lfs
            size, sha256 = (lfs.size, lfs.sha256) if lfs else (sibling.size, None)
            files[sibling.rfilename] = RemoteFile(sibling.rfilename, size, sha256)
    return commit, files


def _download(
    endpoint: str,
    name: str,
    commit: str,
    files: list[RemoteFile],
    draft: Path,
    stage: Stage | None,
) -> None:
    """Download files into `draft`; HubError if one differs from the hub's listing."""
    with _translate_errors(endpoint, name):
        from huggingface_hub import snapshot_download  # noqa: PLC0415

        snapshot_download(
            name,
            revision=commit,
            local_dir=draft,
            allow_patterns=[file.name for file in files],
            endpoint=endpoint,
            token=token_for(endpoint),
            max_workers=_WORKERS,
            tqdm_class=_progress_bar(stage),
        )
    for file in files:
        path = draft / file.name
        if not path.is_file():
            raise HubError(f"{endpoint} did not send {file.name} of {name}", hint=_RESUMES)
        if problem := file.problem(path):
            shutil.rmtree(draft)  # none of its files can be trusted
            raise HubError(
                f"{file.name} of {name} is not the file that the hub lists: {problem}",
                hint="the download or the hub's copy is corrupt: try again later",
            )


def _progress_bar(stage: Stage | None) -> Any:  # noqa: ANN401 - a subclass of tqdm
    """Return a silent tqdm class that reports the bytes written to `stage`."""
    from tqdm.auto import tqdm  # noqa: PLC0415

    lock, written = threading.Lock(), 0

    class StageBar(tqdm):  # type: ignore[type-arg,misc,unused-ignore]
        def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401
            # There are two bars for bytes: count the bytes written, not the bytes received.
            is_transfer = "Downloading bytes" in str(options.get("desc"))
            self._counts = options.get("unit") == "B" and not is_transfer
            options.pop("name", None)
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            nonlocal written
            if self._counts and stage:
                with lock:
                    before = written >> 20
                    written += int(n or 0)
                    stage.advance((written >> 20) - before)

    return StageBar


def _check_usable(name: str, files: Collection[str]) -> None:
    """Raise OwnwordsError unless the hub has a config, a tokenizer, and safetensors weights."""
    another = "look for another copy of the model"
    if SINGLE not in files and INDEX not in files:
        if pickles := [file for file in files if _PICKLE.fullmatch(file)]:
            raise OwnwordsError(
                f"{name} has its weights only as {preview(pickles)}: opening such a file can run"
                " any program, so it was not downloaded",
                hint=f"{another} with safetensors files",
            )
        if ggufs := [file for file in files if file.endswith(".gguf")]:
            raise OwnwordsError(
                f"{name} has its weights only as {preview(ggufs)}, and a base is a model directory",
                hint="download one, then: ownwords base add FILE",
            )
        raise OwnwordsError(f"{name} has no {SINGLE}", hint=another)
    for needed in (CONFIG, TOKENIZER):
        if needed not in files:
            raise OwnwordsError(f"{name} has no {needed}", hint=another)


def _shards(index: Path, name: str, files: Collection[str]) -> list[str]:
    """Return the weight files named in an index; OwnwordsError unless the hub lists them all."""
    places = read_json(index).get("weight_map")
    shards = sorted({str(each) for each in places.values()}) if isinstance(places, dict) else []
    strange = [each for each in shards if not _SHARD.fullmatch(each) or each not in files]
    if strange or not shards:
        raise OwnwordsError(
            f"{name}: {INDEX} names {preview(strange) or 'no files'}, which the hub does not list"
        )
    return shards


def token_for(endpoint: str) -> bool | None:
    """Return the token argument for huggingface_hub: None (the user's); False over plain HTTP."""
    return None if endpoint.startswith("https://") else False


@contextmanager
def _translate_errors(endpoint: str, name: str) -> Iterator[None]:
    """Turn exceptions of huggingface_hub into HubError, and silence its log."""
    try:
        from huggingface_hub.utils import logging  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise OwnwordsError(
            "downloading a model needs the package huggingface_hub",
            hint=install_command("train"),
        ) from error
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    except OwnwordsError:
        raise
    except Exception as error:
        if (explained := _explained(error, endpoint, name)) is None:
            raise
        raise explained from error
    finally:
        logging.set_verbosity(verbosity)


def _explained(error: BaseException, endpoint: str, name: str) -> HubError | None:
    """Return the HubError for an exception; None if neither hub nor network raised it."""
    from huggingface_hub import errors  # noqa: PLC0415

    page = f"{endpoint}/{name}"
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return HubError(
            f"{endpoint} sends {name} only to accounts with access to it",
            hint=f"ask for access at {page}, then put the token of your account into HF_TOKEN",
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubError("HF_HUB_OFFLINE forbids downloads", hint="unset it, or add a folder")
    if isinstance(error, errors.LocalEntryNotFoundError):
        # huggingface_hub raises this if it reaches no hub and finds no earlier download.
        cause = error.__cause__ and _explained(error.__cause__, endpoint, name)
        return cause or HubError(f"{endpoint} cannot be reached", hint=_RESUMES)
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return HubError(
            f"{endpoint} has no model {name}, or it is private",
            hint=f"the name is ORG/NAME; with access to {page}, put your token into HF_TOKEN",
        )
    if isinstance(error, errors.EntryNotFoundError) or status == 404:
        return HubError(f"{endpoint} lists a file of {name} that is missing", hint=_RESUMES)
    if isinstance(error, errors.HfHubHTTPError):
        return HubError(f"{endpoint} answers {status or 'with an error'}", hint=_RESUMES)
    line = printable(" ".join(str(error).split()))[:160]
    if isinstance(error, ValueError | KeyError | AttributeError | TypeError):
        return HubError(f"{endpoint} does not answer like a hub: {line}")
    if type(error).__module__.partition(".")[0] in _TRANSPORT:
        return HubError(f"{endpoint} cannot be reached: {line}", hint=_RESUMES)
    is_incomplete = isinstance(error, OSError) and error.errno is None
    return (
        HubError(f"the download was interrupted: {line}", hint=_RESUMES) if is_incomplete else None
    )
