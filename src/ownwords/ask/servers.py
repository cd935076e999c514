"""The models that write answers: OpenAI-compatible servers, model directories and GGUF files.

Of servers, discovered on this machine or named by the user, only what all of them share is used:
models, chat completions and embeddings. Requests are limited in time and size; every failure is one
sentence. By default only a model that already runs on this machine and is large enough is used: a
small model cannot answer questions, neither one that ownwords trains nor Gemma 3 270M.
"""

import ipaddress
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from ownwords.core.config import Resolved, resolve
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import duration, printable
from ownwords.core.version import __version__
from ownwords.core.workspace import (
    data_folder,
    resolve_model,
    source_name,
    translate_os_errors,
    write_atomically,
)

if TYPE_CHECKING:
    import httpx

    from ownwords.inference.generation import GenerationRequest
    from ownwords.inference.model import Model
    from ownwords.inference.text_generation import TextGenerator


class EndpointError(OwnwordsError):
    """An endpoint does not answer, breaks off, or sends something invalid."""


class EndpointRefusedError(EndpointError):
    """The endpoint refuses the request; `field` is the field it rejects, if it names one."""

    def __init__(self, message: str, status: int, field: str = "", hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.field = field


class ContextLengthError(OwnwordsError):
    """A prompt of `sent` tokens exceeds a context of `context` tokens; 0 if unknown."""

    def __init__(self, message: str, context: int = 0, sent: int = 0, hint: str = "") -> None:
        super().__init__(message, hint)
        self.context = context
        self.sent = sent


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


def host_of(url: str) -> str:
    """The host name of an address."""
    import httpx  # noqa: PLC0415 - most questions ask no server

    return httpx.URL(url).host


def is_local_address(url: str) -> bool:
    """Whether an address is on this machine."""
    name = host_of(url)
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def get_json(url: str, *, key: str = "", limits: RequestLimits = DEFAULT_LIMITS) -> Any:  # noqa: ANN401 - JSON
    """The JSON at an address; EndpointError if there is none."""
    return _parsed(_fetch("GET", url, None, key, limits), url)


def post_json(
    url: str, body: Mapping[str, object], *, key: str = "", limits: RequestLimits = DEFAULT_LIMITS
) -> Any:  # noqa: ANN401 - JSON
    """Post JSON, return the JSON answer; raise EndpointError or ContextLengthError on failure."""
    return _parsed(_fetch("POST", url, body, key, limits), url)


def stream_events(
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
            context=_count(error.get("n_ctx")) or (int(context[1]) if context else 0),
            sent=_count(error.get("n_prompt_tokens"))
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


def _one_line(text: str) -> str:
    """A server's message on one line, shortened."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"


# The default ports of these servers.
PORTS: Final[Mapping[int, str]] = {
    11434: "Ollama",
    8080: "llama.cpp",
    1234: "LM Studio",
    8000: "vLLM",
}
PROBE_S = 0.3  # a local server answers sooner
KEYS = ("OWNWORDS_API_KEY", "OPENAI_API_KEY")

_OWNERS = {"llamacpp": "llama.cpp", "vllm": "vLLM", "library": "Ollama"}
_OPENAI = "api.openai.com"
_SILENCES = 3  # waits of a probe: for the connection, the headers and the body
_PROBE_THREAD = "looking for endpoints"
_EMBEDDING_BATCH = 64  # texts of one request for vectors
_MOST_MODELS = 1000
_LONGEST_NAME = 200
_LONGEST_TEXT = 200_000  # characters

FinishReason = Literal["stop", "length"]
Message = Mapping[str, str]


@dataclass(frozen=True)
class TokenUsage:
    """Numbers of tokens, as counted by the model."""

    prompt: int
    written: int


@dataclass(frozen=True)
class ServedModel:
    """A model of an endpoint; a number is 0 if unknown."""

    name: str
    context: int = 0
    parameters: int = 0


@dataclass(frozen=True)
class Endpoint:
    """A server; `name` is its display name, `url` usually ends in /v1."""

    url: str
    name: str
    models: tuple[ServedModel, ...] = ()
    key: str = field(default="", repr=False)

    @property
    def is_local(self) -> bool:
        """Whether the endpoint is on this machine."""
        return is_local_address(self.url)

    @property
    def host(self) -> str:
        """The host name of the endpoint."""
        return host_of(self.url)


def discover(
    ports: Mapping[int, str] = PORTS, wait_s: float = PROBE_S, host: str = "127.0.0.1"
) -> list[Endpoint]:
    """The endpoints that answer on this machine, in the order of `ports`.

    Each is asked for its list of models; nothing else is sent. A server that does not respond
    within `wait_s` seconds, or not with a list, is left out.
    """
    endpoints: dict[int, Endpoint] = {}
    total_s = wait_s * _SILENCES
    limits = RequestLimits(connect_s=wait_s, silence_s=wait_s, total_s=total_s)

    def probe(port: int, name: str) -> None:
        # Where nothing listens, as on most ports, no HTTP client is loaded.
        with suppress(OwnwordsError, OSError):
            socket.create_connection((host, port), wait_s).close()
            endpoints[port] = with_models(Endpoint(f"http://{host}:{port}/v1", name), limits)

    # Not a pool, which would wait for a server that never finishes.
    threads = [
        threading.Thread(target=probe, args=port_name, name=_PROBE_THREAD, daemon=True)
        for port_name in ports.items()
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + total_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [endpoints[port] for port in list(ports) if port in list(endpoints)]


def endpoint_at(url: str, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """The endpoint at an address from the user; no request is made yet.

    The key comes from OWNWORDS_API_KEY, or from OPENAI_API_KEY for api.openai.com. It is never sent
    to another machine without encryption.
    """
    import httpx  # noqa: PLC0415 - most questions ask no server

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url!r:.200} is not an address: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(
            f"{url!r:.200} is not the address of an endpoint",
            hint="such an address is http://127.0.0.1:8080/v1",
        )
    if parsed.userinfo or parsed.query:
        raise ConfigError(
            "the address of an endpoint must not hold a user name, a password or a query",
            hint=f"set its key in the environment: {KEYS[0]}=...",
        )
    path = parsed.path.rstrip("/") or "/v1"
    plain = str(parsed.copy_with(path=path, fragment=None))
    key = environment.get(KEYS[0], "")
    if not key and parsed.host == _OPENAI:
        key = environment.get(KEYS[1], "")
    if parsed.scheme == "http" and not is_local_address(plain):
        key = ""
    if any(ord(letter) < 33 or ord(letter) > 126 for letter in key):
        raise ConfigError("the key in the environment contains invalid characters")
    return Endpoint(plain, PORTS.get(parsed.port or 0, parsed.host), key=key)


def with_models(endpoint: Endpoint, limits: RequestLimits = DEFAULT_LIMITS) -> Endpoint:
    """The endpoint with its models; EndpointError if it does not answer with a list of them."""
    reply = get_json(f"{endpoint.url}/models", key=endpoint.key, limits=limits)
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list):
        raise EndpointError(
            f"{endpoint_label(endpoint.url)} did not answer with a list of models",
            hint="is it an OpenAI-compatible endpoint? Its address usually ends in /v1",
        )
    models = tuple(model for entry in data[:_MOST_MODELS] if (model := _served_model(entry)))
    if not models:
        raise EndpointError(
            f"{endpoint_label(endpoint.url)} has no model",
            hint="load one there, then ask again",
        )
    owners = {str(entry.get("owned_by")) for entry in data if isinstance(entry, dict)}
    name = next((_OWNERS[x] for x in sorted(owners) if x in _OWNERS), endpoint.name)
    if name == "llama.cpp" and len(models) == 1 and not models[0].context:
        models = (_with_llamacpp_context(endpoint, models[0], limits),)
    return Endpoint(endpoint.url, name, models, endpoint.key)


def _served_model(entry: object) -> ServedModel | None:
    if not isinstance(entry, dict):
        return None
    name = entry.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        return None
    meta = entry.get("meta")
    parameters = _count(meta.get("n_params")) if isinstance(meta, dict) else 0
    return ServedModel(name, _count(entry.get("max_model_len")), parameters)


def _with_llamacpp_context(
    endpoint: Endpoint, model: ServedModel, limits: RequestLimits
) -> ServedModel:
    """The model with the context size from llama.cpp's /props, or unchanged if it has none."""
    try:
        reply = get_json(
            endpoint.url.removesuffix("/v1") + "/props", key=endpoint.key, limits=limits
        )
    except EndpointError:
        return model
    settings = reply.get("default_generation_settings") if isinstance(reply, dict) else None
    context = _count(settings.get("n_ctx")) if isinstance(settings, dict) else 0
    return ServedModel(model.name, context, model.parameters)


class ChatStream:
    """The pieces of text an endpoint writes; `used` and `ended` are set after the last one."""

    def __init__(self, events: Iterator[dict[str, Any]], server: str) -> None:
        self.used: TokenUsage | None = None
        self.ended: FinishReason | None = None
        self.thought = False  # whether it sent reasoning
        self._events, self._server = events, server

    def __iter__(self) -> Iterator[str]:
        length = 0
        for event in self._events:
            self._note(event)
            text = self._text(event)
            length += len(text)
            if length > _LONGEST_TEXT:
                raise EndpointError(f"{self._server} does not stop writing")
            yield text  # even if empty, to show that the model is working
        if self.ended is None:
            raise EndpointError(
                f"{self._server} broke off in the middle of its answer", hint="try again"
            )

    def _note(self, event: Mapping[str, Any]) -> None:
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.used = TokenUsage(
                _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
            )

    def _text(self, event: Mapping[str, Any]) -> str:
        choices = event.get("choices")
        if not choices and "usage" in event:
            return ""  # an event with only the token counts
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            raise EndpointError(f"{self._server} answered with unexpected JSON: {event!r:.80}")
        if reason := choice.get("finish_reason"):
            self.ended = "length" if reason == "length" else "stop"
        delta = choice.get("delta", choice.get("message"))
        if not isinstance(delta, dict):
            delta = {}
        if delta.get("reasoning_content") or delta.get("reasoning"):
            self.thought = True
        text = delta.get("content")
        return text if isinstance(text, str) else ""


def chat(
    endpoint: Endpoint,
    model: str,
    messages: Sequence[Message],
    *,
    max_tokens: int,
    seed: int,
    temperature: float,
    limits: RequestLimits = DEFAULT_LIMITS,
) -> ChatStream:
    """Stream the model's answer, of at most `max_tokens` tokens.

    The request is sent when the first piece is requested. Iterating raises EndpointError on any
    failure, even in the middle, and ContextLengthError if the prompt is too long.
    """
    body: dict[str, object] = {
        "model": model,
        "messages": [dict(message) for message in messages],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return ChatStream(_events(endpoint, body, limits), endpoint_label(endpoint.url))


# Fields to drop or rename if a server rejects them, with the new name, or "" to drop.
_OPTIONAL_FIELDS: Final[Mapping[str, str]] = {
    "max_tokens": "max_completion_tokens",
    "temperature": "",
    "seed": "",
    "stream_options": "",
}


def _events(
    endpoint: Endpoint, body: dict[str, object], limits: RequestLimits
) -> Iterator[dict[str, Any]]:
    """Yield the events of an answer; retry without a field, or with its other name, if rejected."""
    has_started = False
    while True:
        try:
            for event in stream_events(
                f"{endpoint.url}/chat/completions", body, key=endpoint.key, limits=limits
            ):
                has_started = True
                yield event
        except EndpointRefusedError as error:
            rejected = _rejected_field(error, body)
            if has_started or not rejected:
                raise
            value = body.pop(rejected)
            if other := _OPTIONAL_FIELDS[rejected]:
                body[other] = value
        else:
            return


def _rejected_field(error: EndpointRefusedError, body: Mapping[str, object]) -> str:
    if error.status not in (400, 422):
        return ""
    for name in _OPTIONAL_FIELDS:
        if name in body and (name == error.field or name in error.message):
            return name
    return ""


def embeddings(
    endpoint: Endpoint, model: str, texts: Sequence[str], limits: RequestLimits = DEFAULT_LIMITS
) -> npt.NDArray[np.float32]:
    """A row for each text; EndpointError if the endpoint does not send valid vectors."""
    server = endpoint_label(endpoint.url)
    rows: list[list[float]] = []
    for begin in range(0, len(texts), _EMBEDDING_BATCH):
        batch = list(texts[begin : begin + _EMBEDDING_BATCH])
        reply = post_json(
            f"{endpoint.url}/embeddings",
            {"model": model, "input": batch},
            key=endpoint.key,
            limits=limits,
        )
        data = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise EndpointError(f"{server} did not answer with vectors")
        by_index = {_index(entry, at): entry.get("embedding") for at, entry in enumerate(data)}
        if sorted(by_index) != list(range(len(batch))):
            raise EndpointError(f"{server} sent {len(data)} vectors for {len(batch)} texts")
        for at in range(len(batch)):
            row = by_index[at]
            if not isinstance(row, list) or not row or (rows and len(row) != len(rows[0])):
                raise EndpointError(f"{server} sent vectors of different lengths, or none")
            rows.append(row)
    try:
        vectors = np.array(rows, np.float32).reshape(len(rows), -1)
    except (TypeError, ValueError) as error:
        raise EndpointError(f"{server} sent vectors that are not numbers") from error
    if not np.isfinite(vectors).all():
        raise EndpointError(f"{server} sent vectors that are not numbers")
    return vectors


def _index(entry: Mapping[str, Any], at: int) -> int:
    index = entry.get("index", at)
    return index if isinstance(index, int) else at


def _count(value: object) -> int:
    """A positive number from JSON; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# Smaller models imitate the form of an answer, not its content: of 31 answers of Gemma 3 270M, with
# examples before the question, none cited a passage, nor did any that copied a sentence copy the
# one that answers (docs/log.md).
LEAST_PARAMETERS: Final = 400_000_000
_MOST_TRIED = 3  # models of an endpoint to try until one can chat
_NOT_FOR_CHAT = frozenset({400, 404, 405, 422, 501})
_MOST_NAMED = 6  # models listed in an error

_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\W\d_]+|\n+|[^\w\s]|_")
_LETTERS_A_TOKEN, _DIGITS_A_TOKEN, _BYTES_A_TOKEN = 6, 2, 2
# Stop strings for models without a chat template.
_NEXT_IN_TEXT = ("\nQuestion:", "\nPassage", "\n===")


class LLMBackend(Protocol):
    """A model that continues a conversation. `context` is in tokens, 0 if unknown.

    `is_local` means that nothing leaves this machine. `used`, `ended` and `thought` (whether it
    wrote reasoning) describe the last answer and are known when it has ended. A caller that finds
    the context to be smaller sets `context`. `write` sends nothing before its first piece is
    requested. It raises OwnwordsError, or ContextLengthError if the messages are too long.
    """

    context: int

    @property
    def name(self) -> str: ...
    @property
    def is_local(self) -> bool: ...
    @property
    def used(self) -> TokenUsage | None: ...
    @property
    def ended(self) -> FinishReason | None: ...
    @property
    def thought(self) -> bool: ...
    def prepare(self) -> None: ...
    def count(self, text: str) -> int: ...
    def write(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> Generator[str]: ...


def default_backend(
    discover: Callable[[], list[Endpoint]] = discover,
) -> "EndpointBackend | None":
    """A model of an endpoint on this machine; None if none is large enough.

    Only the list of models has been requested; the user decides whether the endpoint may get
    passages (`EndpointConsent`).
    """
    for endpoint in discover():
        fit = [model for model in endpoint.models if not 0 < model.parameters < LEAST_PARAMETERS]
        if fit:
            return EndpointBackend(replace(endpoint, models=tuple(fit)))
    return None


def open_backend(
    model: str,
    *,
    folder_of: Callable[[str], Path | None] = lambda _: None,
    discover: Callable[[], list[Endpoint]] = discover,
    device: str = "auto",
) -> LLMBackend:
    """The backend for an address, a folder, a GGUF file or a name.

    An address may name a model: http://127.0.0.1:8080/v1#NAME. A name is looked up with `folder_of`
    and then among the endpoints on this machine. `device` runs a folder or a file. OwnwordsError if
    it is none of these.
    """
    if model.startswith(("http://", "https://")):
        endpoint = endpoint_at(model)
        name = unquote(urlsplit(model).fragment)
        return EndpointBackend(
            replace(endpoint, models=(ServedModel(name),) if name else ()), named=True
        )
    path = Path(model).expanduser()
    if path.exists():
        return LocalBackend(path, device=device)
    if (folder := folder_of(model)) is not None:
        return LocalBackend(folder, device=device)
    running = discover()
    for endpoint in running:
        for served in endpoint.models:
            # Ollama's names end in a tag, and people omit ":latest".
            if model in (served.name, served.name.removesuffix(":latest")):
                return EndpointBackend(replace(endpoint, models=(served,)), named=True)
    known = [f"{served.name} ({each.name})" for each in running for served in each.models]
    more = "" if len(known) <= _MOST_NAMED else f" and {len(known) - _MOST_NAMED} more"
    raise OwnwordsError(
        f"there is no model called {model!r:.200}: no such folder, no base of that name, and"
        + (
            f" no such model is running here (there are {', '.join(known[:_MOST_NAMED])}{more})"
            if known
            else " no Ollama, llama.cpp, LM Studio or vLLM is running here"
        ),
        hint="give a folder, a GGUF file, or an address: --model http://127.0.0.1:11434/v1#NAME",
    )


class EndpointBackend:
    """A model at an endpoint; unless the user named it, the next is tried if it cannot chat."""

    def __init__(
        self, endpoint: Endpoint, *, named: bool = False, limits: RequestLimits = DEFAULT_LIMITS
    ) -> None:
        self._endpoint, self._named, self._limits = endpoint, named, limits
        self._models = list(endpoint.models[: 1 if named else _MOST_TRIED])
        self.context = self._models[0].context if self._models else 0
        self.used: TokenUsage | None = None
        self.ended: FinishReason | None = None
        self.thought = False

    @property
    def name(self) -> str:
        where = self._endpoint.name if self._endpoint.is_local else self._endpoint.host
        return f"{self._models[0].name} at {where}" if self._models else where

    @property
    def is_local(self) -> bool:
        return self._endpoint.is_local

    @property
    def url(self) -> str:
        """The address of the endpoint."""
        return self._endpoint.url

    @property
    def option(self) -> str:
        """The value of --model that selects this backend."""
        return f"{self.url}#{self._models[0].name}" if self._models else self.url

    def prepare(self) -> None:
        """Request the list of models if none is known yet; EndpointError if there are none."""
        if not self._models:
            self._endpoint = with_models(self._endpoint, self._limits)
            self._models = list(self._endpoint.models[:_MOST_TRIED])
            self.context = self._models[0].context

    def count(self, text: str) -> int:
        """A conservative (high) estimate of the number of tokens."""
        return estimate_tokens(text)

    def write(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> Generator[str]:
        self.used, self.ended, self.thought = None, None, False
        self.prepare()
        while True:
            reply = chat(
                self._endpoint,
                self._models[0].name,
                messages,
                max_tokens=max_tokens,
                seed=seed,
                temperature=temperature,
                limits=self._limits,
            )
            has_started = False
            try:
                for piece in reply:
                    has_started = True
                    yield piece
            except EndpointRefusedError as error:
                if has_started or len(self._models) < 2 or error.status not in _NOT_FOR_CHAT:
                    raise
                del self._models[0]
                continue
            self.used, self.ended, self.thought = reply.used, reply.ended, reply.thought
            return


class LocalBackend:
    """A local model (directory, workspace or GGUF file), run by ownwords' own engines.

    The model is loaded when first needed. A caller that has loaded it already passes it as `model`,
    and may pass as `generate` the function that generates the text of a request.
    """

    is_local = True
    thought = False

    def __init__(
        self,
        path: Path,
        *,
        model: "Model | None" = None,
        device: str = "auto",
        generate: "Callable[[GenerationRequest, Sequence[str]], TextGenerator] | None" = None,
    ) -> None:
        """Locate the model; OwnwordsError if there is none at the path."""
        self._path = resolve_model(path, path)
        self.used: TokenUsage | None = None
        self.ended: FinishReason | None = None
        self._context = 0
        self._loaded, self._generate, self._device = model, generate, device

    @property
    def name(self) -> str:
        own = self._path.name == "model"
        return source_name(self._path.parent if own else self._path).removesuffix(".ownwords")

    @property
    def context(self) -> int:
        return self._context or self._model.engine.context

    @context.setter
    def context(self, tokens: int) -> None:
        self._context = tokens

    def prepare(self) -> None:
        """Load the model."""
        _ = self._model

    @cached_property
    def _model(self) -> "Model":
        if self._loaded is not None:
            return self._loaded
        from ownwords.inference.model import Model  # noqa: PLC0415

        return Model.load(self._path, device=self._device)

    def count(self, text: str) -> int:
        return len(self._model.tokenizer.encode(text))

    def write(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> Generator[str]:
        from ownwords.inference.text_generation import stream_request  # noqa: PLC0415

        self.used, self.ended = None, None
        model = self._model
        request = self._request(messages, max_tokens=max_tokens, seed=seed, temperature=temperature)
        stops = () if model.tokenizer.template else _NEXT_IN_TEXT
        if self._generate is None:
            outcome = yield from stream_request(model.engine, model.tokenizer, request, stops)
        else:
            outcome = yield from self._generate(request, stops)
        self.used = TokenUsage(len(request.ids), outcome.tokens)
        self.ended = "length" if outcome.finish_reason == "length" else "stop"

    def _request(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> "GenerationRequest":
        """The generation request, without the copy guard, since the answer quotes the prompt."""
        from ownwords.inference.sampling import SamplingParams  # noqa: PLC0415

        prompt: str | Sequence[int]
        if self._model.tokenizer.template is None:
            prompt = "\n\n".join(message["content"] for message in messages) + "\n\nAnswer:"
        else:
            prompt = _turns(self._model, messages)
        sampling = SamplingParams(temperature=temperature, min_p=0.05)
        return self._model.request(
            prompt, max_tokens=max_tokens, seed=seed, sampling=sampling, quote=True
        )


def _turns(model: "Model", messages: Sequence[Message]) -> list[int]:
    """The token ids of the conversation in the model's chat template, with the answer's prompt."""
    from ownwords.tokenizers import chat  # noqa: PLC0415 - Jinja
    from ownwords.tokenizers.text import TokenizerError  # noqa: PLC0415

    try:
        return chat.encode(model.tokenizer, messages, add_generation_prompt=True)
    except TokenizerError:
        # Some templates have no system role: put the rules before the question.
        text = "\n\n".join(message["content"] for message in messages)
        return chat.encode(
            model.tokenizer, [{"role": "user", "content": text}], add_generation_prompt=True
        )


def estimate_tokens(text: str) -> int:
    """A conservative (high) estimate of the number of tokens for an unknown tokenizer.

    It counts one token for six letters, two digits, or two bytes of other scripts.
    """
    total = 0
    for piece in _PIECE.findall(text):
        if piece.isascii():
            each = _DIGITS_A_TOKEN if piece.isdigit() else _LETTERS_A_TOKEN
            total += -(-len(piece) // each) if piece[0].isalnum() else 1
        else:
            total += -(-len(piece.encode()) // _BYTES_A_TOKEN)
    return total


def minimum_tokens(messages: Sequence[Message]) -> int:
    """A lower bound of the number of tokens: one for each word."""
    return sum(len(message["content"].split()) for message in messages)


FILE = "ask.toml"


@dataclass(frozen=True)
class EndpointConsent:
    """The addresses of the endpoints that may get passages, and of those that may not.

    Any program, of any account, can listen on the port of Ollama or llama.cpp. So the user is asked
    once for each address; `ask.toml` in the user's data folder keeps the decisions.
    """

    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @classmethod
    def read(cls) -> "EndpointConsent":
        """The stored decisions; ConfigError if the file is damaged."""
        path = consent_file()
        return resolve(cls, toml=[path] if path.exists() else []).settings

    def with_decision(self, url: str, may_send: bool) -> "EndpointConsent":
        """Store a decision about an address; returns all decisions."""
        if may_send:
            decided = replace(self, allowed=(*self.allowed, url))
        else:
            decided = replace(self, refused=(*self.refused, url))
        path = consent_file()
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        origins = dict.fromkeys(("allowed", "refused"), "asked by ownwords ask")
        write_atomically(path, Resolved(decided, origins).to_toml())
        return decided


def consent_file() -> Path:
    """Where the decisions are stored."""
    return data_folder() / FILE
