"""Requests to endpoints, limited in time and size; every failure is one sentence."""

import ipaddress
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ownwords.ask.errors import ContextLengthError, EndpointError, EndpointRefusedError
from ownwords.core.progress import duration, printable
from ownwords.core.version import __version__

if TYPE_CHECKING:
    import httpx

_MOST_BYTES = 64 << 20  # 1,000 vectors of 4,096 numbers as JSON
_LONGEST_LINE = 1 << 20  # characters of one event
_EXCERPT = 160  # characters quoted from a server's message
_TOO_LONG = frozenset({"exceed_context_size_error", "context_length_exceeded"})
# vLLM: "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens".
_CONTEXT = re.compile(
    r"(?:maximum|max(?:imum)? model) context length (?:is|of) (\d+)", re.IGNORECASE
)
_SENT = re.compile(r"(?:requested|resulted in) (\d+) tokens|(\d+) (?:in the )?input tokens")
_ABOUT_CONTEXT = re.compile(
    r"exceeds? .{0,40}context|context (?:length|size|window)", re.IGNORECASE
)


@dataclass(frozen=True)
class RequestLimits:
    """Time limits of a request; a slow processor may read a prompt for minutes before it writes."""

    connect_s: float = 5.0
    silence_s: float = 180.0
    total_s: float = 900.0


DEFAULT_LIMITS: Final = RequestLimits()


def host(url: str) -> str:
    """The host name of an address."""
    import httpx  # noqa: PLC0415 - most questions ask no server

    return httpx.URL(url).host


def is_local_address(url: str) -> bool:
    """Whether an address is on this machine."""
    name = host(url)
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def get(url: str, *, key: str = "", limits: RequestLimits = DEFAULT_LIMITS) -> Any:  # noqa: ANN401 - JSON
    """The JSON at an address; EndpointError if there is none."""
    return _parsed(_fetch("GET", url, None, key, limits), url)


def post(
    url: str, body: Mapping[str, object], *, key: str = "", limits: RequestLimits = DEFAULT_LIMITS
) -> Any:  # noqa: ANN401 - JSON
    """Post JSON, return the JSON answer; raise EndpointError or ContextLengthError on failure."""
    return _parsed(_fetch("POST", url, body, key, limits), url)


def events(
    url: str, body: Mapping[str, object], *, key: str = "", limits: RequestLimits = DEFAULT_LIMITS
) -> Iterator[dict[str, Any]]:
    """The JSON objects of an event stream as they arrive; a plain JSON answer is yielded as one.

    Ends at `[DONE]` or with the connection; only the objects can tell whether the answer is
    complete.
    """
    until = time.monotonic() + limits.total_s
    with _answered("POST", url, body, key, limits) as response:
        if "json" in response.headers.get("content-type", ""):
            yield _object(_parsed(_read(response, until, limits), url), url)
            return
        for line in _lines(response, until, limits):
            if not line.startswith("data:"):
                continue  # keep-alive comments, event names
            payload = line.removeprefix("data:").strip()
            if payload == "[DONE]":
                return
            if payload:
                event = _object(_parsed(payload.encode(), url), url)
                if event.get("error"):
                    raise _refusal(url, 200, payload)
                yield event


def _fetch(
    method: str, url: str, body: Mapping[str, object] | None, key: str, limits: RequestLimits
) -> bytes:
    until = time.monotonic() + limits.total_s
    with _answered(method, url, body, key, limits) as response:
        return _read(response, until, limits)


@contextmanager
def _answered(
    method: str, url: str, body: Mapping[str, object] | None, key: str, limits: RequestLimits
) -> Iterator["httpx.Response"]:
    """Open a response with status 200 whose body has not been read; raise an error otherwise."""
    import httpx  # noqa: PLC0415 - most questions ask no server

    headers = {"User-Agent": f"ownwords/{__version__}"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    server = endpoint_label(url)
    has_started = False
    try:
        # No proxy for connections within this machine.
        with (
            httpx.Client(
                trust_env=not is_local_address(url),
                # Loading certificates takes longer than a local answer.
                verify=not url.startswith("http://"),
                timeout=httpx.Timeout(limits.silence_s, connect=limits.connect_s),
                headers=headers,
            ) as client,
            client.stream(method, url, json=body) as response,
        ):
            has_started = True
            if response.status_code != 200:
                until = time.monotonic() + limits.silence_s
                message = _read(response, until, limits).decode("utf-8", "replace")
                raise _refusal(url, response.status_code, message)
            yield response
    except httpx.ConnectError as error:
        raise EndpointError(
            f"no server answers at {_origin(url)}",
            hint="start it, or use --no-model to see the passages only",
        ) from error
    except httpx.TimeoutException as error:
        waited = limits.connect_s if isinstance(error, httpx.ConnectTimeout) else limits.silence_s
        raise EndpointError(
            f"{server} did not respond within {duration(waited)}",
            hint="it may still be loading its model: try again in a moment",
        ) from error
    except httpx.InvalidURL as error:
        raise EndpointError(f"{url!r:.200} is not an address: {error}") from error
    except httpx.TransportError as error:
        what = "broke off in the middle of its answer" if has_started else "did not answer properly"
        raise EndpointError(
            f"{server} {what}: {_one_line(str(error)) or type(error).__name__}"
        ) from error
    except httpx.DecodingError as error:
        raise EndpointError(f"{server} sent data that cannot be decompressed") from error


def endpoint_label(url: str) -> str:
    """The endpoint at an address, for messages: without path, user name or password."""
    return f"the endpoint at {_origin(url)}"


def _origin(url: str) -> str:
    import httpx  # noqa: PLC0415 - most questions ask no server

    parsed = httpx.URL(url)
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii', 'replace').rpartition('@')[2]}"


def _read(response: "httpx.Response", until: float, limits: RequestLimits) -> bytes:
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > _MOST_BYTES:
            raise EndpointError(f"{endpoint_label(str(response.url))} sent too much data")
        _check_time(response, until, limits)
    return bytes(data)


def _lines(response: "httpx.Response", until: float, limits: RequestLimits) -> Iterator[str]:
    """Yield complete lines as they arrive; httpx would buffer an endless line without limit."""
    rest = b""
    for chunk in response.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").strip("\r")
        if len(rest) > _LONGEST_LINE:
            raise EndpointError(f"{endpoint_label(str(response.url))} sent too much data")
        _check_time(response, until, limits)
    if rest:
        yield rest.decode("utf-8", "replace").strip("\r")


def _check_time(response: "httpx.Response", until: float, limits: RequestLimits) -> None:
    if time.monotonic() > until:
        raise EndpointError(
            f"{endpoint_label(str(response.url))} did not finish within {duration(limits.total_s)}",
            hint="use a smaller model",
        )


def _parsed(data: bytes, url: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        excerpt = _one_line(data[: 4 * _EXCERPT].decode("utf-8", "replace"))
        raise EndpointError(
            f"{endpoint_label(url)} did not answer with JSON: {excerpt!r}",
            hint="is it an OpenAI-compatible endpoint? Its address usually ends in /v1",
        ) from error


def _object(value: Any, url: str) -> dict[str, Any]:  # noqa: ANN401 - JSON
    if not isinstance(value, dict):
        raise EndpointError(f"{endpoint_label(url)} answered with unexpected JSON: {value!r:.80}")
    return value


def _refusal(url: str, status: int, answer: str) -> EndpointError | ContextLengthError:
    """The error for a refusal, with the server's reason."""
    server = endpoint_label(url)
    try:
        body, is_json = json.loads(answer), True
    except (ValueError, RecursionError):
        body, is_json = {}, False
    error = body.get("error", body) if isinstance(body, dict) else {}
    if not isinstance(error, dict):
        error = {"message": str(error)}
    message = _one_line(str(error.get("message") or ("" if is_json else answer)))
    kinds = {str(error.get("type")), str(error.get("code"))}
    if kinds & _TOO_LONG or (status in (400, 413) and _ABOUT_CONTEXT.search(message)):
        context, sent = _CONTEXT.search(message), _SENT.search(message)
        return ContextLengthError(
            f"{server} cannot take a prompt this long: {message}",
            context=_number(error.get("n_ctx")) or (int(context[1]) if context else 0),
            sent=_number(error.get("n_prompt_tokens"))
            or (int(next(filter(None, sent.groups()))) if sent else 0),
            hint="give its model a longer context",
        )
    hint = ""
    if status in (401, 403):
        message = message or "it requires a key"
        hint = "set OWNWORDS_API_KEY=... in the environment, and name the endpoint with --model"
    elif status == 404:
        hint = "name one of its models: --model URL#NAME"
    elif status == 429 or status >= 500:
        hint = "it is busy or broken: try again in a moment"
    field = error.get("param")
    return EndpointRefusedError(
        f"{server} refuses the request ({status}): {message or 'without a reason'}",
        status=status,
        field=field if isinstance(field, str) else "",
        hint=hint,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _one_line(text: str) -> str:
    """A server's message on one line, shortened."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"
