"""OpenAI-compatible endpoints, discovered on this machine or named by the user.

Only features that all such servers share are used: models, chat completions and embeddings.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ownwords.ask import http_client
from ownwords.ask.errors import EndpointError, EndpointRefusedError
from ownwords.ask.http_client import DEFAULT_LIMITS, RequestLimits
from ownwords.core.errors import ConfigError, OwnwordsError

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
        return http_client.is_local_address(self.url)

    @property
    def host(self) -> str:
        """The host name of the endpoint."""
        return http_client.host(self.url)


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
    if parsed.scheme == "http" and not http_client.is_local_address(plain):
        key = ""
    if any(ord(letter) < 33 or ord(letter) > 126 for letter in key):
        raise ConfigError("the key in the environment contains invalid characters")
    return Endpoint(plain, PORTS.get(parsed.port or 0, parsed.host), key=key)


def with_models(endpoint: Endpoint, limits: RequestLimits = DEFAULT_LIMITS) -> Endpoint:
    """The endpoint with its models; EndpointError if it does not answer with a list of them."""
    reply = http_client.get(f"{endpoint.url}/models", key=endpoint.key, limits=limits)
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list):
        raise EndpointError(
            f"{http_client.endpoint_label(endpoint.url)} did not answer with a list of models",
            hint="is it an OpenAI-compatible endpoint? Its address usually ends in /v1",
        )
    models = tuple(model for entry in data[:_MOST_MODELS] if (model := _served_model(entry)))
    if not models:
        raise EndpointError(
            f"{http_client.endpoint_label(endpoint.url)} has no model",
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
        reply = http_client.get(
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
    return ChatStream(_events(endpoint, body, limits), http_client.endpoint_label(endpoint.url))


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
            for event in http_client.events(
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
    server = http_client.endpoint_label(endpoint.url)
    rows: list[list[float]] = []
    for begin in range(0, len(texts), _EMBEDDING_BATCH):
        batch = list(texts[begin : begin + _EMBEDDING_BATCH])
        reply = http_client.post(
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
