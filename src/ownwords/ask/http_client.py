"""One request to an endpoint and what comes back: bounded in time and size, every fault told."""

import ipaddress
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from ownwords.ask.errors import ContextLengthError, EndpointError, EndpointRefusedError
from ownwords.core.progress import duration, printable
from ownwords.core.version import __version__

_MOST_BYTES = 64 << 20  # a thousand vectors of 4,096 numbers, written out
_LONGEST_LINE = 1 << 20  # characters of one event
_EXCERPT = 160  # characters of what a server says that are told
_TOO_LONG = frozenset({"exceed_context_size_error", "context_length_exceeded"})
# vLLM: "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens".
_ROOM = re.compile(r"(?:maximum|max(?:imum)? model) context length (?:is|of) (\d+)", re.IGNORECASE)
_SENT = re.compile(r"(?:requested|resulted in) (\d+) tokens|(\d+) (?:in the )?input tokens")
_ABOUT_ROOM = re.compile(r"exceeds? .{0,40}context|context (?:length|size|window)", re.IGNORECASE)


@dataclass(frozen=True)
class RequestLimits:
    """How long an endpoint may take; a slow processor reads a prompt for minutes before a word."""

    connect_s: float = 5.0
    silence_s: float = 180.0
    whole_s: float = 900.0


USUAL: Final = RequestLimits()


def is_here(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = httpx.URL(url).host
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def get(url: str, *, key: str = "", limits: RequestLimits = USUAL) -> Any:  # noqa: ANN401 - JSON
    """The JSON at an address; EndpointError if there is none."""
    return _parsed(_whole("GET", url, None, key, limits), url)


def post(
    url: str, body: Mapping[str, object], *, key: str = "", limits: RequestLimits = USUAL
) -> Any:  # noqa: ANN401 - JSON
    """The JSON that answers a request; EndpointError, RefusedError or ContextError otherwise."""
    return _parsed(_whole("POST", url, body, key, limits), url)


def events(
    url: str, body: Mapping[str, object], *, key: str = "", limits: RequestLimits = USUAL
) -> Iterator[dict[str, Any]]:
    """The JSON objects of an event stream, as they come; of a plain answer, the one it is.

    Ends at `[DONE]` or where the server ends; whether all had come then, the objects must say.
    """
    until = time.monotonic() + limits.whole_s
    with _answered("POST", url, body, key, limits) as response:
        if "json" in response.headers.get("content-type", ""):
            yield _object(_parsed(_read(response, until, limits), url), url)
            return
        for line in _lines(response, until, limits):
            if not line.startswith("data:"):
                continue  # comments that keep the line open, names of events
            said = line.removeprefix("data:").strip()
            if said == "[DONE]":
                return
            if said:
                event = _object(_parsed(said.encode(), url), url)
                if event.get("error"):
                    raise _refusal(url, 200, said)
                yield event


def _whole(
    method: str, url: str, body: Mapping[str, object] | None, key: str, limits: RequestLimits
) -> bytes:
    until = time.monotonic() + limits.whole_s
    with _answered(method, url, body, key, limits) as response:
        return _read(response, until, limits)


@contextmanager
def _answered(
    method: str, url: str, body: Mapping[str, object] | None, key: str, limits: RequestLimits
) -> Iterator[httpx.Response]:
    """An answer that is none of refusal, its body still to come."""
    headers = {"User-Agent": f"ownwords/{__version__}"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    where = who(url)
    begun = False
    try:
        # A proxy of the environment has no business between this machine and itself.
        with (
            httpx.Client(
                trust_env=not is_here(url),
                # Certificates take longer to read than an answer from here does.
                verify=not url.startswith("http://"),
                timeout=httpx.Timeout(limits.silence_s, connect=limits.connect_s),
                headers=headers,
            ) as client,
            client.stream(method, url, json=body) as response,
        ):
            begun = True
            if response.status_code != 200:
                until = time.monotonic() + limits.silence_s
                said = _read(response, until, limits).decode("utf-8", "replace")
                raise _refusal(url, response.status_code, said)
            yield response
    except httpx.ConnectError as error:
        raise EndpointError(
            f"nothing answers at {_place(url)}",
            hint="is it running? `--no-model` shows the passages",
        ) from error
    except httpx.TimeoutException as error:
        waited = limits.connect_s if isinstance(error, httpx.ConnectTimeout) else limits.silence_s
        raise EndpointError(
            f"{where} said nothing for {duration(waited)}",
            hint="it may still be loading its model: try again in a moment",
        ) from error
    except httpx.InvalidURL as error:
        raise EndpointError(f"{url!r:.200} is no address: {error}") from error
    except httpx.TransportError as error:
        what = "broke off in the middle of its answer" if begun else "did not answer properly"
        raise EndpointError(
            f"{where} {what}: {_told(str(error)) or type(error).__name__}"
        ) from error
    except httpx.DecodingError as error:
        raise EndpointError(f"{where} sent what cannot be unpacked") from error


def who(url: str) -> str:
    """Whoever answers at an address, as it is told: without path or anything secret in it."""
    return f"the endpoint at {_place(url)}"


def _place(url: str) -> str:
    parsed = httpx.URL(url)
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii', 'replace').rpartition('@')[2]}"


def _read(response: httpx.Response, until: float, limits: RequestLimits) -> bytes:
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > _MOST_BYTES:
            raise EndpointError(f"{who(str(response.url))} sent more than any answer has")
        _check_time(response, until, limits)
    return bytes(data)


def _lines(response: httpx.Response, until: float, limits: RequestLimits) -> Iterator[str]:
    """Whole lines, as they come; httpx's own would keep a line without an end for ever."""
    held = b""
    for chunk in response.iter_bytes():
        *whole, held = (held + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").strip("\r")
        if len(held) > _LONGEST_LINE:
            raise EndpointError(f"{who(str(response.url))} sent more than any answer has")
        _check_time(response, until, limits)
    if held:
        yield held.decode("utf-8", "replace").strip("\r")


def _check_time(response: httpx.Response, until: float, limits: RequestLimits) -> None:
    if time.monotonic() > until:
        raise EndpointError(
            f"{who(str(response.url))} did not come to an end within {duration(limits.whole_s)}",
            hint="a smaller model would",
        )


def _parsed(data: bytes, url: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        said = _told(data[: 4 * _EXCERPT].decode("utf-8", "replace"))
        raise EndpointError(
            f"{who(url)} answered with what is no JSON: {said!r}",
            hint="is it an OpenAI-compatible endpoint? Its address usually ends in /v1",
        ) from error


def _object(value: Any, url: str) -> dict[str, Any]:  # noqa: ANN401 - JSON
    if not isinstance(value, dict):
        raise EndpointError(f"{who(url)} answered with JSON of another shape: {value!r:.80}")
    return value


def _refusal(url: str, status: int, said: str) -> EndpointError | ContextLengthError:
    """What a server gives as its reason, as the error that it is."""
    where = who(url)
    try:
        body, is_json = json.loads(said), True
    except (ValueError, RecursionError):
        body, is_json = {}, False
    error = body.get("error", body) if isinstance(body, dict) else {}
    if not isinstance(error, dict):
        error = {"message": str(error)}
    message = _told(str(error.get("message") or ("" if is_json else said)))
    kinds = {str(error.get("type")), str(error.get("code"))}
    if kinds & _TOO_LONG or (status in (400, 413) and _ABOUT_ROOM.search(message)):
        room, sent = _ROOM.search(message), _SENT.search(message)
        return ContextLengthError(
            f"{where} has no room for a prompt this long: {message}",
            room=_number(error.get("n_ctx")) or (int(room[1]) if room else 0),
            sent=_number(error.get("n_prompt_tokens"))
            or (int(next(filter(None, sent.groups()))) if sent else 0),
            hint="give its model a longer context",
        )
    hint = ""
    if status in (401, 403):
        message = message or "it wants a key"
        hint = "put its key into the environment: OWNWORDS_API_KEY=..., and name it with --model"
    elif status == 404:
        hint = "name a model that it has: --model URL#NAME"
    elif status == 429 or status >= 500:
        hint = "it is busy or out of order: try again in a moment"
    field = error.get("param")
    return EndpointRefusedError(
        f"{where} will not answer ({status}): {message or 'it does not say why'}",
        status=status,
        field=field if isinstance(field, str) else "",
        hint=hint,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _told(text: str) -> str:
    """What a server says, on one line and not for long."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"
