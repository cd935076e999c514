"""The models that write answers: OpenAI-compatible servers, model directories and GGUF files.

Of a server only what all of them share is used: models, chat completions and embeddings. By default
only a model that already runs on this machine and is large enough is used: a small one cannot
answer questions, neither one that ownwords trains nor Gemma 3 270M.
"""

import ipaddress
import json
import os
import re
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
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
    """An endpoint does not answer, breaks off, sends something invalid, or refuses a request.

    `status` is that of a refusal, `field` the field that it rejects, if it names one.
    """

    def __init__(self, message: str, hint: str = "", status: int = 0, field: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.field = field


class ContextLengthError(OwnwordsError):
    """A prompt exceeds a context of `context` tokens; 0 if unknown."""

    def __init__(self, message: str, context: int = 0, hint: str = "") -> None:
        super().__init__(message, hint)
        self.context = context


# ---- endpoints

# The default ports of these servers.
PORTS: Final[Mapping[int, str]] = {
    11434: "Ollama",
    8080: "llama.cpp",
    1234: "LM Studio",
    8000: "vLLM",
}
_PROBE_S = 0.3  # a local server answers sooner
_CONNECT_S = 5.0
_SILENCE_S = 180.0  # a slow processor may read a prompt for minutes before it writes
_TOTAL_S = 900.0
_KEYS = ("OWNWORDS_API_KEY", "OPENAI_API_KEY")
_OPENAI = "api.openai.com"
_NOT_AN_ENDPOINT = "is it an OpenAI-compatible endpoint? Its address usually ends in /v1"
# What reading JSON of another shape than expected raises.
_OTHER_SHAPE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class ServedModel:
    """A model of an endpoint; a number is 0 if unknown."""

    name: str
    context: int = 0
    parameters: int = 0

    @property
    def is_fit(self) -> bool:
        """Whether it can answer questions, as far as its size and its name tell."""
        return not 0 < self.parameters < _MIN_PARAMETERS and "embed" not in self.name.casefold()


@dataclass(frozen=True)
class Endpoint:
    """A server; `name` is its display name, `url` usually ends in /v1."""

    url: str
    name: str
    models: tuple[ServedModel, ...] = ()
    key: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        """The host name of the endpoint."""
        return urlsplit(self.url).hostname or ""

    @property
    def is_local(self) -> bool:
        """Whether the endpoint is on this machine."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def label(self) -> str:
        """The endpoint in messages."""
        parts = urlsplit(self.url)
        return f"the endpoint at {parts.scheme}://{parts.netloc}"


def discover(
    ports: Mapping[int, str] = PORTS, wait_s: float = _PROBE_S, host: str = "127.0.0.1"
) -> list[Endpoint]:
    """The endpoints that answer on this machine, in the order of `ports`.

    Each is asked for its list of models; nothing else is sent. A server that does not respond
    within `wait_s` seconds, or not with a list, is left out.
    """
    endpoints = []
    for port, name in ports.items():
        # Where nothing listens, as on most ports, no HTTP client is loaded.
        with suppress(OwnwordsError, OSError):
            socket.create_connection((host, port), wait_s).close()
            endpoints.append(with_models(Endpoint(f"http://{host}:{port}/v1", name), wait_s))
    return endpoints


def endpoint_at(url: str, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """The endpoint at an address from the user; no request is made yet.

    The key comes from OWNWORDS_API_KEY, or from OPENAI_API_KEY for api.openai.com. It is never sent
    to another machine without encryption.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r:.200} is not an address: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            f"{url!r:.200} is not the address of an endpoint",
            hint="such an address is http://127.0.0.1:8080/v1",
        )
    if "@" in parts.netloc or parts.query:
        raise ConfigError(
            "the address of an endpoint must not hold a user name, a password or a query",
            hint=f"set its key in the environment: {_KEYS[0]}=...",
        )
    path = parts.path.rstrip("/") or "/v1"
    endpoint = Endpoint(f"{parts.scheme}://{parts.netloc}{path}", PORTS.get(port or 0, host))
    key = environment.get(_KEYS[0], "")
    if not key and host == _OPENAI:
        key = environment.get(_KEYS[1], "")
    if parts.scheme == "http" and not endpoint.is_local:
        key = ""
    if any(ord(letter) < 33 or ord(letter) > 126 for letter in key):
        raise ConfigError("the key in the environment contains invalid characters")
    return replace(endpoint, key=key)


def with_models(endpoint: Endpoint, silence_s: float | None = None) -> Endpoint:
    """The endpoint with its models; EndpointError if it does not answer with a list of them."""
    reply = _answer(endpoint, "/models", silence_s=silence_s)
    try:
        models = [
            ServedModel(
                printable(entry["id"]),
                int(entry.get("max_model_len") or 0),
                int((entry.get("meta") or {}).get("n_params") or 0),
            )
            for entry in reply["data"]
        ]
    except _OTHER_SHAPE as error:
        raise EndpointError(
            f"{endpoint.label} did not answer with a list of models", hint=_NOT_AN_ENDPOINT
        ) from error
    if not models:
        raise EndpointError(f"{endpoint.label} has no model", hint="load one there, then ask again")
    return replace(endpoint, models=tuple(models))


def embeddings(endpoint: Endpoint, model: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """A row for each text; EndpointError if the endpoint does not send valid vectors."""
    rows: list[list[float]] = []
    try:
        for begin in range(0, len(texts), _EMBEDDING_BATCH):
            batch = list(texts[begin : begin + _EMBEDDING_BATCH])
            data = _answer(endpoint, "/embeddings", {"model": model, "input": batch})["data"]
            by_index = {entry["index"]: entry["embedding"] for entry in data}
            rows += [by_index[at] for at in range(len(batch))]
        vectors = np.array(rows, np.float32)
        if vectors.ndim != 2 or not np.isfinite(vectors).all():
            raise ValueError("numbers that are not finite")
    except _OTHER_SHAPE as error:
        raise EndpointError(f"{endpoint.label} did not send a vector for each text") from error
    return vectors


# ---- requests

_MAX_BYTES = 64 << 20  # 1,000 vectors of 4,096 numbers as JSON
_DONE = b"[DONE]"  # ends an event stream
_EXCERPT = 160  # characters quoted from a server's message
_EMBEDDING_BATCH = 64  # texts of one request for vectors
_TOO_LONG = frozenset({"exceed_context_size_error", "context_length_exceeded"})
_ABOUT_CONTEXT = re.compile(
    r"exceeds? .{0,40}context|context (?:length|size|window)", re.IGNORECASE
)


@contextmanager
def _chunks_from(
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, object] | None,
    silence_s: float | None = None,
) -> Iterator[tuple["httpx.Response", Iterator[bytes]]]:
    """A response and its bytes as they arrive; every failure is an EndpointError."""
    import httpx  # noqa: PLC0415 - most questions ask no server

    headers = {"User-Agent": f"ownwords/{__version__}"}
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    total_s = 3 * silence_s if silence_s else _TOTAL_S
    silence_s = silence_s or _SILENCE_S
    has_started = False
    try:
        # No proxy for connections within this machine.
        with (
            httpx.Client(
                trust_env=not endpoint.is_local,
                # Loading certificates takes longer than a local answer.
                verify=not endpoint.url.startswith("http://"),
                timeout=httpx.Timeout(silence_s, connect=min(silence_s, _CONNECT_S)),
                headers=headers,
            ) as client,
            client.stream("POST" if body else "GET", endpoint.url + path, json=body) as response,
        ):
            has_started = True
            chunks = _bounded(endpoint, response, total_s)
            if response.status_code != 200:
                raise _refusal(endpoint, response.status_code, b"".join(chunks))
            yield response, chunks
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise EndpointError(
            f"{endpoint.label} does not answer",
            hint="start it, or use --no-model to see the passages only",
        ) from error
    except httpx.TimeoutException as error:
        raise EndpointError(
            f"{endpoint.label} did not respond within {duration(silence_s)}",
            hint="it may still be loading its model: try again in a moment",
        ) from error
    except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL) as error:
        what = "broke off in the middle of its answer" if has_started else "did not answer properly"
        raise EndpointError(
            f"{endpoint.label} {what}: {_one_line(str(error)) or type(error).__name__}"
        ) from error


def _bounded(endpoint: Endpoint, response: "httpx.Response", total_s: float) -> Iterator[bytes]:
    until = time.monotonic() + total_s
    size = 0
    for chunk in response.iter_bytes():
        size += len(chunk)
        if size > _MAX_BYTES:
            raise EndpointError(f"{endpoint.label} sent too much data")
        if time.monotonic() > until:
            raise EndpointError(
                f"{endpoint.label} did not finish within {duration(total_s)}",
                hint="use a smaller model",
            )
        yield chunk


def _answer(
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, object] | None = None,
    silence_s: float | None = None,
) -> Any:  # noqa: ANN401 - JSON
    """The JSON that an endpoint answers with."""
    with _chunks_from(endpoint, path, body, silence_s) as (_, chunks):
        return _parsed(b"".join(chunks), endpoint)


def _events(endpoint: Endpoint, path: str, body: Mapping[str, object]) -> Iterator[Any]:
    """The objects of an event stream as they arrive, or the one of an answer that is not streamed.

    A stream ends at `[DONE]` or with the connection; only the objects can tell whether the answer
    is complete.
    """
    with _chunks_from(endpoint, path, body) as (response, chunks):
        if "json" in response.headers.get("content-type", ""):
            yield _parsed(b"".join(chunks), endpoint)
            return
        rest = b""
        for chunk in chain(chunks, [b"\n"]):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                payload = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
                if payload == _DONE:
                    return
                if payload:
                    yield _parsed(payload, endpoint)


def _parsed(data: bytes, endpoint: Endpoint) -> Any:  # noqa: ANN401 - JSON
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        excerpt = _one_line(data[: 4 * _EXCERPT].decode("utf-8", "replace"))
        raise EndpointError(
            f"{endpoint.label} did not answer with JSON: {excerpt!r}", hint=_NOT_AN_ENDPOINT
        ) from error
    if isinstance(value, dict) and value.get("error"):
        raise _refusal(endpoint, 200, data)
    return value


def _refusal(endpoint: Endpoint, status: int, answer: bytes) -> EndpointError | ContextLengthError:
    """The error for a refusal, with the server's reason."""
    reason: Any = answer.decode("utf-8", "replace")
    with suppress(*_OTHER_SHAPE, RecursionError):
        reason = json.loads(reason)["error"]
    error: dict[str, Any] = reason if isinstance(reason, dict) else {"message": reason}
    message = _one_line(str(error.get("message") or "without a reason"))
    kinds = {str(error.get("type")), str(error.get("code"))}
    if kinds & _TOO_LONG or (status in (400, 413) and _ABOUT_CONTEXT.search(message)):
        return ContextLengthError(
            f"{endpoint.label} cannot take a prompt this long: {message}",
            context=context if isinstance(context := error.get("n_ctx"), int) else 0,
            hint="give its model a longer context",
        )
    hint = ""
    if status in (401, 403):
        hint = "set OWNWORDS_API_KEY=... in the environment, and name the endpoint with --model"
    elif status == 404:
        hint = "name one of its models: --model URL#NAME"
    elif status == 429 or status >= 500:
        hint = "it is busy or broken: try again in a moment"
    message = f"{endpoint.label} refuses the request ({status}): {message}"
    return EndpointError(message, hint, status, str(error.get("param") or ""))


def _one_line(text: str) -> str:
    """A server's message on one line, shortened."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"


# ---- models that write

# Smaller models imitate the form of an answer, not its content: of 31 answers of Gemma 3 270M, with
# examples before the question, none cited a passage, nor did any that copied a sentence copy the
# one that answers (docs/log.md).
_MIN_PARAMETERS = 400_000_000
_MAX_NAMED = 6  # models listed in an error
# Fields to drop or rename if a server rejects them, with the new name, or "" to drop.
_OPTIONAL_FIELDS: Final[Mapping[str, str]] = {
    "max_tokens": "max_completion_tokens",
    "temperature": "",
    "seed": "",
}
_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\W\d_]+|\n+|[^\w\s]|_")
# Stop strings for models without a chat template.
_NEXT_IN_TEXT = ("\nQuestion:", "\nPassage", "\n===")

FinishReason = Literal["stop", "length"]
Message = Mapping[str, str]


class LLMBackend(Protocol):
    """A model that continues a conversation. `context` is in tokens, 0 if unknown.

    `is_local` means that nothing leaves this machine. `ended` says why the last answer ended.
    A caller that finds the context to be smaller sets `context`. `write` sends nothing before its
    first piece is requested. It raises OwnwordsError, or ContextLengthError if the messages are too
    long.
    """

    context: int

    @property
    def name(self) -> str: ...
    @property
    def is_local(self) -> bool: ...
    @property
    def ended(self) -> FinishReason | None: ...
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
        if fit := tuple(model for model in endpoint.models if model.is_fit):
            return EndpointBackend(replace(endpoint, models=fit))
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
        name = unquote(urlsplit(model).fragment)
        models = (ServedModel(name),) if name else ()
        return EndpointBackend(replace(endpoint_at(model), models=models))
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
                return EndpointBackend(replace(endpoint, models=(served,)))
    known = [f"{served.name} ({each.name})" for each in running for served in each.models]
    more = " and more" if len(known) > _MAX_NAMED else ""
    running_here = (
        f"no such model is running here (there are {', '.join(known[:_MAX_NAMED])}{more})"
        if known
        else "no Ollama, llama.cpp, LM Studio or vLLM is running here"
    )
    raise OwnwordsError(
        f"there is no model called {model!r:.200}: no such folder, no base of that name, and"
        f" {running_here}",
        hint="give a folder, a GGUF file, or an address: --model http://127.0.0.1:11434/v1#NAME",
    )


class EndpointBackend:
    """The first model of an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._model = endpoint.models[0] if endpoint.models else None
        self.context = self._model.context if self._model else 0
        self.ended: FinishReason | None = None

    @property
    def name(self) -> str:
        where = self._endpoint.name if self.is_local else self._endpoint.host
        return f"{self._model.name} at {where}" if self._model else where

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
        return f"{self.url}#{self._model.name}" if self._model else self.url

    def prepare(self) -> None:
        """Request the list of models if none is known yet; EndpointError if there are none."""
        if self._model is None:
            self._endpoint = with_models(self._endpoint)
            models = self._endpoint.models
            self._model = next((each for each in models if each.is_fit), models[0])
            self.context = self._model.context

    def count(self, text: str) -> int:
        """A conservative (high) estimate of the number of tokens.

        It counts a token for six letters of English, or two bytes of anything else.
        """
        return sum(
            -(-len(piece.encode()) // (6 if piece.isascii() and piece.isalpha() else 2))
            for piece in _PIECE.findall(text)
        )

    def write(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> Generator[str]:
        self.ended = None
        self.prepare()
        body: dict[str, object] = {
            "model": self._model.name if self._model else "",
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "stream": True,
        }
        has_begun = False
        while not has_begun:
            try:
                for event in _events(self._endpoint, "/chat/completions", body):
                    has_begun = True
                    yield self._text(event)  # even if empty, to show that the model is working
                break
            except EndpointError as error:
                if has_begun or not self._adapt(body, error):
                    raise
        if self.ended is None:
            raise EndpointError(
                f"{self._endpoint.label} broke off in the middle of its answer", hint="try again"
            )

    def _text(self, event: Any) -> str:  # noqa: ANN401 - JSON
        """The text of an event; notes why the answer ended."""
        try:
            if not event["choices"]:  # an event with only the token counts
                return ""
            choice = event["choices"][0]
            if reason := choice.get("finish_reason"):
                self.ended = "length" if reason == "length" else "stop"
            delta = choice.get("delta") or choice.get("message") or {}
            text: str = delta.get("content") or ""
            # Some servers send half of a surrogate pair, which UTF-8 cannot encode.
            return text.encode("utf-8", "replace").decode("utf-8")
        except _OTHER_SHAPE as error:
            raise EndpointError(
                f"{self._endpoint.label} answered with unexpected JSON: {event!r:.80}"
            ) from error

    def _adapt(self, body: dict[str, object], error: EndpointError) -> bool:
        """Drop or rename a field that was refused; False if none was."""
        if error.status in (400, 422):
            for name, other in _OPTIONAL_FIELDS.items():
                if name in body and (name == error.field or name in error.message):
                    value = body.pop(name)
                    if other:
                        body[other] = value
                    return True
        return False


class LocalBackend:
    """A local model (directory, workspace or GGUF file), run by ownwords' own engines.

    The model is loaded when first needed. A caller that has loaded it already passes it as `model`,
    and may pass as `generate` the function that generates the text of a request.
    """

    is_local = True

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
        self.ended: FinishReason | None = None
        self.context = 0
        self._loaded, self._generate, self._device = model, generate, device

    @property
    def name(self) -> str:
        own = self._path.name == "model"
        return source_name(self._path.parent if own else self._path).removesuffix(".ownwords")

    def prepare(self) -> None:
        """Load the model."""
        self.context = self.context or self._model.engine.context

    @cached_property
    def _model(self) -> "Model":
        from ownwords.inference.model import Model  # noqa: PLC0415

        return self._loaded or Model.load(self._path, device=self._device)

    def count(self, text: str) -> int:
        return len(self._model.tokenizer.encode(text))

    def write(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> Generator[str]:
        from ownwords.inference.text_generation import stream_request  # noqa: PLC0415

        self.ended = None
        model = self._model
        request = self._request(messages, max_tokens=max_tokens, seed=seed, temperature=temperature)
        stops = () if model.tokenizer.template else _NEXT_IN_TEXT
        if self._generate is None:
            outcome = yield from stream_request(model.engine, model.tokenizer, request, stops)
        else:
            outcome = yield from self._generate(request, stops)
        self.ended = "length" if outcome.finish_reason == "length" else "stop"

    def _request(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int, temperature: float
    ) -> "GenerationRequest":
        """The generation request, without the copy guard, since the answer quotes the prompt."""
        from ownwords.inference.sampling import SamplingParams  # noqa: PLC0415
        from ownwords.tokenizers import chat  # noqa: PLC0415 - Jinja
        from ownwords.tokenizers.text import TokenizerError  # noqa: PLC0415

        tokenizer = self._model.tokenizer
        text = "\n\n".join(message["content"] for message in messages)
        prompt: str | Sequence[int] = f"{text}\n\nAnswer:"
        if tokenizer.template is not None:
            try:
                prompt = chat.encode(tokenizer, messages, add_generation_prompt=True)
            except TokenizerError:  # some templates have no system role
                together = [{"role": "user", "content": text}]
                prompt = chat.encode(tokenizer, together, add_generation_prompt=True)
        sampling = SamplingParams(temperature=temperature, min_p=0.05)
        return self._model.request(
            prompt, max_tokens=max_tokens, seed=seed, sampling=sampling, quote=True
        )


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
        allowed, refused = self.allowed, self.refused
        decided = EndpointConsent(
            (*allowed, url) if may_send else allowed, refused if may_send else (*refused, url)
        )
        path = consent_file()
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        origins = dict.fromkeys(("allowed", "refused"), "asked by ownwords ask")
        write_atomically(path, Resolved(decided, origins).to_toml())
        return decided


def consent_file() -> Path:
    """Where the decisions are stored."""
    return data_folder() / "ask.toml"
