"""The models that write answers and drafts: those of OpenAI-compatible servers.

Only the list of models and chat completions are used, which all these servers have. The default is
a server on this machine that the user has allowed. Small models, such as those that ownwords
trains, cannot answer questions (docs/log.md).
"""

import ipaddress
import json
import os
import re
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit

from ownwords.core.config import as_toml, resolve
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import printable
from ownwords.core.workspace import data_folder, translate_os_errors, write_atomically
from ownwords.view.format import plain

if TYPE_CHECKING:
    import httpx


class EndpointError(OwnwordsError):
    """An endpoint does not answer, disconnects, sends something invalid, or refuses a request."""

    def __init__(self, message: str, hint: str = "", status: int = 0) -> None:
        super().__init__(message, hint)
        self.status = status


class ContextLengthError(OwnwordsError):
    """A prompt is longer than the context of the model."""


# ---- endpoints

# The default ports of these servers.
PORTS: Final[Mapping[int, str]] = {
    11434: "Ollama",
    8080: "llama.cpp",
    1234: "LM Studio",
    8000: "vLLM",
}
_HERE = "127.0.0.1"
_PROBE_S = 0.3  # a local server answers sooner
_CONNECT_S = 5.0
_SILENCE_S = 180.0  # a slow processor may read a prompt for minutes before it writes
_KEYS = ("OWNWORDS_API_KEY", "OPENAI_API_KEY")
_NOT_AN_ENDPOINT = "is it an OpenAI-compatible endpoint? Its address usually ends in /v1"
# Exceptions raised by JSON of an unexpected shape.
_OTHER_SHAPE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_EXCERPT = 160  # characters quoted from a server's message
_ABOUT_CONTEXT = re.compile(
    r"exceeds? .{0,40}context|context.(?:length|size|window)", re.IGNORECASE
)
_TEMPERATURE = 0.2  # above 0, or small models loop; low, to keep to the passages
_MAX_NAMED = 6  # models listed in an error
_OPTIONAL_FIELDS = ("max_tokens", "temperature", "seed")  # left out if a server rejects them
# Tokens that end a turn for some models; a space after the first character disarms them.
_TURNS = re.compile(
    r"(<)(?=\||/?s>|/?bos>|/?eos>|start_of_turn>|end_of_turn>|</?SYS>>)|(\[)(?=/?INST\])|(\|)(?=>)",
    re.IGNORECASE,
)
# Reasoning that some models write before their answer; it may be cut off.
THINKING: Final = re.compile(
    r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)\s*", re.DOTALL | re.IGNORECASE
)
_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\W\d_]+|\n+|[^\w\s]|_")

FinishReason = Literal["stop", "length"]
Message = Mapping[str, str]


@dataclass
class Endpoint:
    """A model on an OpenAI-compatible server.

    If `model` is empty, the server's first generative model is used. `url` usually ends in /v1;
    `server` is its name for users. A request that fails raises EndpointError.
    """

    url: str
    server: str
    models: tuple[str, ...] = ()
    model: str = ""
    key: str = field(default="", repr=False)
    ended: FinishReason | None = None  # why the last answer ended
    _socket: socket.socket | None = field(default=None, init=False, repr=False, compare=False)
    _is_cancelled: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def is_local(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    @property
    def name(self) -> str:
        """The model and the server."""
        return f"{self.model} at {self.server}" if self.model else self.server

    @property
    def option(self) -> str:
        """The value of --model that selects this model."""
        return f"{self.url}#{self.model}"

    def cancel(self) -> None:
        """End the requests of another thread, even one that waits for an answer."""
        self._is_cancelled = True
        if self._socket:
            with suppress(OSError):  # it has just ended
                self._socket.shutdown(socket.SHUT_RDWR)

    def list_models(self, silence_s: float = _SILENCE_S) -> None:
        """Request the list of models, and choose the first that writes if none is named."""
        with self._response("/models", None, silence_s) as response:
            reply = self._parsed(response.read())
        try:
            self.models = tuple(printable(entry["id"]) for entry in reply["data"])
        except _OTHER_SHAPE as error:
            raise self._error("did not answer with a list of models", _NOT_AN_ENDPOINT) from error
        if not self.models:
            raise self._error("has no model", "load one there, and try again")
        writers = (name for name in self.models if "embed" not in name.casefold())
        self.model = self.model or next(writers, self.models[0])

    def count(self, text: str) -> int:
        """Return a high estimate of the number of tokens: one per 6 English letters or 2 bytes."""
        return sum(
            -(-len(piece.encode()) // (6 if piece.isascii() and piece.isalpha() else 2))
            for piece in _PIECE.findall(text)
        )

    def write(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        *,
        temperature: float = _TEMPERATURE,
        seed: int = 1,
    ) -> Generator[str]:
        """Yield the pieces of an answer as they arrive; the first `next` sends the request.

        Raises ContextLengthError if the messages are too long.
        """
        self.ended = None
        if not self.model:
            self.list_models()
        body: dict[str, object] = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "stream": True,
        }
        while True:
            try:
                for event in self._events("/chat/completions", body):
                    yield self._text(event)  # even if empty, to show that the model is working
                break
            except EndpointError as error:
                fields = (name for name in _OPTIONAL_FIELDS if name in error.message)
                refused = next((name for name in fields if name in body), "")
                if error.status not in (400, 422) or not refused:
                    raise
                del body[refused]
        if self.ended is None:
            raise self._error("did not finish its answer", "try again")

    def _text(self, event: Any) -> str:  # noqa: ANN401 - JSON
        """Return the text of an event; stores why the answer ended."""
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
            raise self._error(f"answered with unexpected JSON: {event!r:.80}") from error

    @contextmanager
    def _response(
        self, path: str, body: Mapping[str, object] | None, silence_s: float
    ) -> Iterator["httpx.Response"]:
        """Send a request, and yield the response before its body is read."""
        import httpx  # noqa: PLC0415 - most questions ask no server

        def follow(event: str, info: Mapping[str, Any]) -> None:
            if event == "connection.connect_tcp.complete":
                self._socket = info["return_value"].get_extra_info("socket")
            if self._is_cancelled:
                raise self._error("did not answer before the request was cancelled")

        headers = {b"Authorization": f"Bearer {self.key}".encode()} if self.key else {}
        try:
            with (
                httpx.Client(
                    trust_env=not self.is_local,  # no proxy within this machine
                    # Loading certificates takes longer than a local answer.
                    verify=not self.url.startswith("http://"),
                    timeout=httpx.Timeout(silence_s, connect=min(silence_s, _CONNECT_S)),
                    headers=headers,
                ) as client,
                client.stream(
                    "POST" if body else "GET",
                    self.url + path,
                    json=body,
                    extensions={"trace": follow},
                ) as response,
            ):
                if response.status_code != 200:
                    raise self._refusal(response.status_code, response.read())
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self._error("does not answer", "start it, and try again") from error
        except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL) as error:
            why = plain(str(error), _EXCERPT) or type(error).__name__
            hint = "it may still be loading its model: try again in a moment"
            raise self._error(f"did not finish its answer: {why}", hint) from error

    def _events(self, path: str, body: Mapping[str, object]) -> Iterator[Any]:
        """Yield the objects of an event stream as they arrive, or the only one of a plain answer.

        A stream ends at `[DONE]` or with the connection; only the objects show whether the answer
        is complete.
        """
        with self._response(path, body, _SILENCE_S) as response:
            if "json" in response.headers.get("content-type", ""):
                yield self._parsed(response.read())
                return
            rest = b""
            for chunk in chain(response.iter_bytes(), [b"\n"]):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    payload = line.strip().removeprefix(b"data:").strip()
                    if payload == b"[DONE]":
                        return
                    if payload and line.startswith(b"data:"):
                        yield self._parsed(payload)

    def _parsed(self, data: bytes) -> Any:  # noqa: ANN401 - JSON
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            excerpt = plain(data.decode("utf-8", "replace"), _EXCERPT)
            raise self._error(f"did not answer with JSON: {excerpt!r}", _NOT_AN_ENDPOINT) from error
        if isinstance(value, dict) and value.get("error"):
            raise self._refusal(200, data)
        return value

    def _refusal(self, status: int, answer: bytes) -> EndpointError | ContextLengthError:
        """Return the error for a refusal, with the server's reason."""
        reason: Any = answer.decode("utf-8", "replace")
        with suppress(*_OTHER_SHAPE):
            reason = json.loads(reason)["error"]
        with suppress(*_OTHER_SHAPE):
            reason = reason["message"]
        message = plain(str(reason or "without a reason"), _EXCERPT)
        if _ABOUT_CONTEXT.search(message):
            return ContextLengthError(
                f"{self.server} cannot take a prompt this long: {message}",
                hint="give its model a longer context",
            )
        is_key = status in (401, 403)
        hint = "set OWNWORDS_API_KEY=... in the environment, and give the endpoint's address"
        return self._error(
            f"refused the request ({status}): {message}", hint if is_key else "", status
        )

    def _error(self, what: str, hint: str = "", status: int = 0) -> EndpointError:
        return EndpointError(f"the endpoint at {self.url.removesuffix('/v1')} {what}", hint, status)


def neutralized(text: str) -> str:
    """Return the text with a space in all that could end a turn; comparisons ignore spaces."""
    return _TURNS.sub(lambda match: match[0] + " ", text)


def discover(ports: Mapping[int, str] = PORTS) -> list[Endpoint]:
    """Return the endpoints that answer on this machine, in the order of `ports`.

    Each is asked for its list of models; nothing else is sent. A server that does not respond at
    once with a list is left out.
    """
    endpoints = []
    for port, name in ports.items():
        # If nothing listens, as on most ports, no HTTP client is loaded.
        with suppress(OwnwordsError, OSError):
            socket.create_connection((_HERE, port), _PROBE_S).close()
            endpoint = Endpoint(f"http://{_HERE}:{port}/v1", name)
            endpoint.list_models(_PROBE_S)
            endpoints.append(endpoint)
    return endpoints


def endpoint_at(url: str, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """Return the endpoint at an address, which may name a model ("http://127.0.0.1:8080/v1#NAME").

    No request is made yet. The key is OWNWORDS_API_KEY or, for api.openai.com, OPENAI_API_KEY. It
    is never sent to another machine without encryption.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r:.200} is not an address: {error}") from error
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.query:
        raise ConfigError(
            f"{url!r:.200} is not the address of an endpoint",
            hint="give an address such as http://127.0.0.1:8080/v1, without a password or a query;"
            f" set a key in the environment: {_KEYS[0]}=...",
        )
    path = parts.path.rstrip("/") or "/v1"
    url = f"{parts.scheme}://{parts.netloc}{path}"
    endpoint = Endpoint(url, host, model=unquote(parts.fragment))
    if endpoint.is_local:
        endpoint.server = PORTS.get(port or 0, host)
    names = _KEYS if host == "api.openai.com" else _KEYS[:1]
    if parts.scheme == "https" or endpoint.is_local:
        endpoint.key = next((environment[name] for name in names if environment.get(name)), "")
    return endpoint


def default_backend(discover: Callable[[], list[Endpoint]] = discover) -> Endpoint | None:
    """Return a model of an endpoint on this machine, if there is one.

    Only the list of models is requested; the user decides whether the endpoint may get passages
    (`EndpointConsent`).
    """
    return next((each for each in discover() if "embed" not in each.model.casefold()), None)


def open_backend(model: str, *, discover: Callable[[], list[Endpoint]] = discover) -> Endpoint:
    """Return the model at an address or of that name on this machine, or raise OwnwordsError.

    The server's name may precede the model's or replace it: "ollama:gemma3:4b", "ollama".
    """
    if model.startswith(("http://", "https://")):
        return endpoint_at(model)
    found = discover()
    running = [replace(each, model=name) for each in found for name in each.models]
    for endpoint in [*running, *found]:
        server = endpoint.server.replace(" ", "").lower()
        # Ollama's names end in a tag, and people omit ":latest".
        names = {endpoint.model, endpoint.model.removesuffix(":latest")}
        names |= {f"{server}:{name}" for name in names}
        if model in names or (endpoint in found and model.lower() == server):
            return endpoint
    known = ", ".join(endpoint.name for endpoint in running[:_MAX_NAMED])
    raise OwnwordsError(
        f"no model named {model!r:.200} is running on this machine: "
        + (
            f"those found are {known}"
            if known
            else "no Ollama, llama.cpp, LM Studio or vLLM server with a model was found"
        ),
        hint="give its address, such as http://127.0.0.1:11434/v1#NAME; a model directory or a GGUF"
        " file runs with ownwords serve",
    )


@dataclass(frozen=True)
class EndpointConsent:
    """The addresses of the endpoints that may get passages, and of those that may not.

    Any program of any account can listen on the port of Ollama or llama.cpp. The user is asked once
    per address; the decisions are stored in `ask.toml` in the user's data folder.
    """

    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @classmethod
    def read(cls) -> "EndpointConsent":
        """Return the stored decisions; ConfigError if the file is damaged."""
        path = consent_file()
        return resolve(cls, toml=[path] if path.exists() else []).settings

    def with_decision(self, url: str, may_send: bool) -> "EndpointConsent":
        """Store a decision about an address; returns all decisions."""
        side = "allowed" if may_send else "refused"
        decided = replace(self, **{side: (*getattr(self, side), url)})
        path = consent_file()
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{name} = {as_toml(urls)}\n" for name, urls in vars(decided).items()]
        write_atomically(path, "".join(lines))
        return decided


def consent_file() -> Path:
    """Return where the decisions are stored."""
    return data_folder() / "ask.toml"
