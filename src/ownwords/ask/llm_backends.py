"""The models that write answers: local model directories, GGUF files, or endpoints.

By default only a model that already runs on this machine and is large enough is used: a small model
cannot answer questions, neither those that ownwords trains nor a base like Gemma 3 270M.
"""

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

from ownwords.ask import endpoints
from ownwords.ask.endpoints import Endpoint, FinishReason, Message, ServedModel, TokenUsage
from ownwords.ask.errors import EndpointRefusedError
from ownwords.ask.http_client import DEFAULT_LIMITS, RequestLimits
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import source_name

if TYPE_CHECKING:
    from ownwords.inference.generation import GenerationRequest
    from ownwords.inference.model import Model
    from ownwords.inference.text_generation import TextGenerator

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
    discover: Callable[[], list[Endpoint]] = endpoints.discover,
) -> "EndpointBackend | None":
    """A model of an endpoint on this machine; None if none is large enough.

    Only the list of models has been requested; the user decides whether the endpoint may get
    passages (`consent`).
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
    discover: Callable[[], list[Endpoint]] = endpoints.discover,
    device: str = "auto",
) -> LLMBackend:
    """The backend for an address, a folder, a GGUF file or a name.

    An address may name a model: http://127.0.0.1:8080/v1#NAME. A name is looked up with `folder_of`
    and then among the endpoints on this machine. `device` runs a folder or a file. OwnwordsError if
    it is none of these.
    """
    if model.startswith(("http://", "https://")):
        endpoint = endpoints.endpoint_at(model)
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
            self._endpoint = endpoints.with_models(self._endpoint, self._limits)
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
            reply = endpoints.chat(
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
        from ownwords.core.workspace import resolve_model  # noqa: PLC0415

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
