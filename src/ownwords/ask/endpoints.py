"""OpenAI-compatible endpoints: found on this machine, or named by the user; chat and embeddings.

Of the many things such servers take, only what all of them have in common is used.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx
import numpy as np
import numpy.typing as npt

from ownwords.ask import http_client
from ownwords.ask.errors import EndpointError, EndpointRefusedError
from ownwords.ask.http_client import USUAL, RequestLimits
from ownwords.core.errors import ConfigError, OwnwordsError

# Where each of them listens unless told otherwise.
PORTS: Final[Mapping[int, str]] = {
    11434: "Ollama",
    8080: "llama.cpp",
    1234: "LM Studio",
    8000: "vLLM",
}
LOOK_S = 0.3  # whatever listens on this machine answers sooner
KEYS = ("OWNWORDS_API_KEY", "OPENAI_API_KEY")

_OWNERS = {"llamacpp": "llama.cpp", "vllm": "vLLM", "library": "Ollama"}
_OPENAI = "api.openai.com"
_SILENCES = 3  # at most: before the connection, the answer, and what comes of it
_LOOKER = "looking for endpoints"
_AT_ONCE = 64  # texts of one request for vectors
_MOST_MODELS = 1000
_LONGEST_NAME = 200
_LONGEST_TEXT = 200_000  # characters: no answer to a question is a book

FinishReason = Literal["stop", "length"]
Message = Mapping[str, str]


@dataclass(frozen=True)
class TokenUsage:
    """Tokens, as the model that read and wrote them counts."""

    prompt: int
    written: int


@dataclass(frozen=True)
class ServedModel:
    """A model that an endpoint has; 0 where it does not say."""

    name: str
    context: int = 0
    parameters: int = 0


@dataclass(frozen=True)
class Endpoint:
    """Where a server is asked. `name` is for people, `url` ends in /v1 as a rule."""

    url: str
    name: str
    models: tuple[ServedModel, ...] = ()
    key: str = field(default="", repr=False)

    @property
    def is_here(self) -> bool:
        """Whether what is sent there stays on this machine."""
        return http_client.is_here(self.url)

    @property
    def host(self) -> str:
        """The machine, as people name it."""
        return httpx.URL(self.url).host


def found(
    ports: Mapping[int, str] = PORTS, wait_s: float = LOOK_S, host: str = "127.0.0.1"
) -> list[Endpoint]:
    """The endpoints that answer on this machine now, in the order of `ports`.

    Each is asked for the list of its models, and nothing is sent but that. What is silent for
    `wait_s` seconds, or answers with something else, is not there.
    """
    there: dict[int, Endpoint] = {}
    whole_s = wait_s * _SILENCES
    looking = RequestLimits(connect_s=wait_s, silence_s=wait_s, whole_s=whole_s)

    def look(port: int, name: str) -> None:
        try:
            there[port] = _listed(Endpoint(f"http://{host}:{port}/v1", name), looking)
        except OwnwordsError:
            return

    # Not a pool: it would wait in the end for a server that never ends its answer.
    threads = [
        threading.Thread(target=look, args=each, name=_LOOKER, daemon=True)
        for each in ports.items()
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + whole_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [there[port] for port in list(ports) if port in list(there)]


def named(url: str, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """The endpoint at an address that the user gave; its models are not asked for yet.

    A key comes from the environment: OWNWORDS_API_KEY, or OPENAI_API_KEY for OpenAI's own. It goes
    to no other machine unless the way there is encrypted.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url!r:.200} is no address: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(
            f"{url!r:.200} is no address of an endpoint",
            hint="one is http://127.0.0.1:8080/v1",
        )
    if parsed.userinfo or parsed.query:
        raise ConfigError(
            "an endpoint's address has no name, password or question mark in it",
            hint=f"put its key into the environment: {KEYS[0]}=...",
        )
    path = parsed.path.rstrip("/") or "/v1"
    plain = str(parsed.copy_with(path=path, fragment=None))
    key = environment.get(KEYS[0], "")
    if not key and parsed.host == _OPENAI:
        key = environment.get(KEYS[1], "")
    if parsed.scheme == "http" and not http_client.is_here(plain):
        key = ""
    if any(ord(letter) < 33 or ord(letter) > 126 for letter in key):
        raise ConfigError("the key in the environment holds characters that no key has")
    return Endpoint(plain, PORTS.get(parsed.port or 0, parsed.host), key=key)


def with_models(endpoint: Endpoint, limits: RequestLimits = USUAL) -> Endpoint:
    """The same with the models it has; EndpointError if it does not answer with a list of them."""
    return _listed(endpoint, limits)


def _listed(endpoint: Endpoint, limits: RequestLimits) -> Endpoint:
    said = http_client.get(f"{endpoint.url}/models", key=endpoint.key, limits=limits)
    data = said.get("data") if isinstance(said, dict) else None
    if not isinstance(data, list):
        raise EndpointError(
            f"{http_client.who(endpoint.url)} answers, but not with a list of models",
            hint="is it an OpenAI-compatible endpoint? Its address usually ends in /v1",
        )
    models = tuple(one for each in data[:_MOST_MODELS] if (one := _served(each)))
    if not models:
        raise EndpointError(
            f"{http_client.who(endpoint.url)} has no model", hint="load one there, then ask again"
        )
    owners = {str(each.get("owned_by")) for each in data if isinstance(each, dict)}
    name = next((_OWNERS[one] for one in sorted(owners) if one in _OWNERS), endpoint.name)
    if name == "llama.cpp" and len(models) == 1 and not models[0].context:
        models = (_with_slot(endpoint, models[0], limits),)
    return Endpoint(endpoint.url, name, models, endpoint.key)


def _served(entry: object) -> ServedModel | None:
    if not isinstance(entry, dict):
        return None
    name = entry.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        return None
    meta = entry.get("meta")
    parameters = _count(meta.get("n_params")) if isinstance(meta, dict) else 0
    return ServedModel(name, _count(entry.get("max_model_len")), parameters)


def _with_slot(endpoint: Endpoint, model: ServedModel, limits: RequestLimits) -> ServedModel:
    """llama.cpp tells the room of one conversation beside its list, if it tells it at all."""
    try:
        said = http_client.get(
            endpoint.url.removesuffix("/v1") + "/props", key=endpoint.key, limits=limits
        )
    except EndpointError:
        return model
    settings = said.get("default_generation_settings") if isinstance(said, dict) else None
    context = _count(settings.get("n_ctx")) if isinstance(settings, dict) else 0
    return ServedModel(model.name, context, model.parameters)


class ChatStream:
    """What an endpoint writes, piece by piece; `used` and `ended` are known after the last one."""

    def __init__(self, pieces: Iterator[dict[str, Any]], where: str) -> None:
        self.used: TokenUsage | None = None
        self.ended: FinishReason | None = None
        self.thought = False  # in words of its own that are no answer
        self._pieces, self._where = pieces, where

    def __iter__(self) -> Iterator[str]:
        length = 0
        for event in self._pieces:
            self._note(event)
            text = self._text(event)
            length += len(text)
            if length > _LONGEST_TEXT:
                raise EndpointError(f"{self._where} does not stop writing")
            yield text  # also where it is empty: there is somebody, who is still thinking
        if self.ended is None:
            raise EndpointError(
                f"{self._where} broke off in the middle of its answer", hint="try again"
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
            return ""  # the count, which comes last and alone
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            raise EndpointError(f"{self._where} answered with JSON of another shape: {event!r:.80}")
        if reason := choice.get("finish_reason"):
            self.ended = "length" if reason == "length" else "stop"
        said = choice.get("delta", choice.get("message"))
        if not isinstance(said, dict):
            said = {}
        if said.get("reasoning_content") or said.get("reasoning"):
            self.thought = True
        text = said.get("content")
        return text if isinstance(text, str) else ""


def chat(
    endpoint: Endpoint,
    model: str,
    messages: Sequence[Message],
    *,
    most: int,
    seed: int,
    temperature: float,
    limits: RequestLimits = USUAL,
) -> ChatStream:
    """What the model answers, streamed; at most so many tokens of it.

    Nothing is sent before the first piece is asked for. EndpointError says what went wrong, also
    in the middle; ContextError that the prompt was too long.
    """
    body: dict[str, object] = {
        "model": model,
        "messages": [dict(message) for message in messages],
        "max_tokens": most,
        "temperature": temperature,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return ChatStream(_tried(endpoint, body, limits), http_client.who(endpoint.url))


# What can be done without, and what others call it.
_DISPENSABLE: Final[Mapping[str, str]] = {
    "max_tokens": "max_completion_tokens",
    "temperature": "",
    "seed": "",
    "stream_options": "",
}


def _tried(
    endpoint: Endpoint, body: dict[str, object], limits: RequestLimits
) -> Iterator[dict[str, Any]]:
    """The events of an answer; a field that is refused is left out, or called otherwise."""
    begun = False
    while True:
        try:
            for event in http_client.events(
                f"{endpoint.url}/chat/completions", body, key=endpoint.key, limits=limits
            ):
                begun = True
                yield event
        except EndpointRefusedError as error:
            refused = _refused_field(error, body)
            if begun or not refused:
                raise
            value = body.pop(refused)
            if other := _DISPENSABLE[refused]:
                body[other] = value
        else:
            return


def _refused_field(error: EndpointRefusedError, body: Mapping[str, object]) -> str:
    if error.status not in (400, 422):
        return ""
    for name in _DISPENSABLE:
        if name in body and (name == error.field or name in error.message):
            return name
    return ""


def embeddings(
    endpoint: Endpoint, model: str, texts: Sequence[str], limits: RequestLimits = USUAL
) -> npt.NDArray[np.float32]:
    """A row for each text, as the endpoint gives them; EndpointError where they are no vectors."""
    where = http_client.who(endpoint.url)
    rows: list[list[float]] = []
    for begin in range(0, len(texts), _AT_ONCE):
        some = list(texts[begin : begin + _AT_ONCE])
        said = http_client.post(
            f"{endpoint.url}/embeddings",
            {"model": model, "input": some},
            key=endpoint.key,
            limits=limits,
        )
        data = said.get("data") if isinstance(said, dict) else None
        if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
            raise EndpointError(f"{where} answered with no vectors")
        placed = {_index(each, at): each.get("embedding") for at, each in enumerate(data)}
        if sorted(placed) != list(range(len(some))):
            raise EndpointError(f"{where} gave {len(data)} vectors for {len(some)} texts")
        for at in range(len(some)):
            row = placed[at]
            if not isinstance(row, list) or not row or (rows and len(row) != len(rows[0])):
                raise EndpointError(f"{where} gave vectors of different lengths, or none")
            rows.append(row)
    try:
        vectors = np.array(rows, np.float32).reshape(len(rows), -1)
    except (TypeError, ValueError) as error:
        raise EndpointError(f"{where} gave vectors of what are no numbers") from error
    if not np.isfinite(vectors).all():
        raise EndpointError(f"{where} gave vectors of what are no numbers")
    return vectors


def _index(entry: Mapping[str, Any], at: int) -> int:
    index = entry.get("index", at)
    return index if isinstance(index, int) else at


def _count(value: object) -> int:
    """A number of things as JSON gives it; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
