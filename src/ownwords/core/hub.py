"""The network: what downloads from a Hugging Face hub share, and a count of all calls.

HF_ENDPOINT selects another hub, HF_TOKEN or `hf auth login` provides a token for models that need
one, and `huggingface_hub` resumes interrupted downloads.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ownwords.core.errors import OwnwordsError
from ownwords.core.packages import install_command
from ownwords.core.progress import printable

CACHE = ".cache"  # where huggingface_hub keeps what it needs to resume
RESUMES = "the same command goes on with the files that are missing"
_ENDPOINT = "https://huggingface.co"
_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_TRANSPORT = frozenset({"httpx", "httpx2", "httpcore", "requests", "urllib3"})


class HubError(OwnwordsError):
    """The hub cannot be reached, refuses a request, or sends something unexpected."""


def is_model_name(text: str) -> bool:
    """Whether a text is the name of a model on a hub: ORG/NAME."""
    return _MODEL_NAME.fullmatch(text) is not None


def endpoint_in_force() -> str:
    """The address of the hub: HF_ENDPOINT, or huggingface.co."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT


def token_for(endpoint: str) -> bool | None:
    """The token argument for huggingface_hub: None (the user's), or False over plain HTTP."""
    return None if endpoint.startswith("https://") else False


@contextmanager
def translate_errors(endpoint: str, name: str, extra: str) -> Iterator[None]:
    """Turn exceptions of huggingface_hub into HubError, and keep it from printing its own.

    `extra` of ownwords installs huggingface_hub.
    """
    try:
        from huggingface_hub.utils import logging  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise OwnwordsError(
            "downloading a model needs the package huggingface_hub",
            hint=install_command(extra),
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
    """The HubError for an exception; None if it does not come from the hub or the network."""
    from huggingface_hub import errors  # noqa: PLC0415

    page = f"{endpoint}/{name}"
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return HubError(
            f"{endpoint} sends {name} only to accounts that were given access",
            hint=f"ask for it at {page}, then put the token of your account into HF_TOKEN",
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubError("HF_HUB_OFFLINE forbids downloads", hint="unset it, or add a folder")
    if isinstance(error, errors.LocalEntryNotFoundError):
        # huggingface_hub raises this if it reaches no hub and finds no earlier download.
        cause = error.__cause__ and _explained(error.__cause__, endpoint, name)
        return cause or HubError(f"{endpoint} cannot be reached", hint=RESUMES)
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return HubError(
            f"{endpoint} has no model {name}, or it is private",
            hint=f"the name is ORG/NAME; with access to {page}, put your token into HF_TOKEN",
        )
    if isinstance(error, errors.EntryNotFoundError) or status == 404:
        return HubError(f"{endpoint} lists a file of {name} that it does not have", hint=RESUMES)
    if isinstance(error, errors.HfHubHTTPError):
        return HubError(f"{endpoint} answers {status or 'with an error'}", hint=RESUMES)
    line = printable(" ".join(str(error).split()))[:160]
    if isinstance(error, ValueError | KeyError | AttributeError | TypeError):
        return HubError(f"{endpoint} does not answer like a hub: {line}")
    if type(error).__module__.partition(".")[0] in _TRANSPORT:
        return HubError(f"{endpoint} cannot be reached: {line}", hint=RESUMES)
    is_incomplete = isinstance(error, OSError) and error.errno is None
    return HubError(f"the download broke off: {line}", hint=RESUMES) if is_incomplete else None


# --- network calls, counted so that a report of none is a measurement -----------------------------


@dataclass(slots=True, eq=False)  # compared by identity, as several may be counting
class NetworkCalls:
    """The number of connections attempted and host names looked up."""

    count: int = 0


_counting: list[NetworkCalls] = []
_state = {"hooked": False}


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _counting or event not in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        return
    # The address of a local socket is a path, that of a network socket a tuple.
    if event == "socket.getaddrinfo" or isinstance(arguments[1], tuple):
        for calls in _counting:
            calls.count += 1


@contextmanager
def counting_network_calls() -> Iterator[NetworkCalls]:
    """Count every network call of this process within the block, whichever library makes it."""
    if not _state["hooked"]:
        sys.addaudithook(_hook)  # once, as audit hooks cannot be removed
        _state["hooked"] = True
    calls = NetworkCalls()
    _counting.append(calls)
    try:
        yield calls
    finally:
        _counting.remove(calls)
