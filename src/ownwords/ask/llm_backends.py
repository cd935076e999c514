"""Whoever puts an answer into words: a model of this machine's, or an endpoint.

None is ever taken by itself but what already runs on this machine and is large enough to read: the
small models that ownwords trains write in a voice, and answer nothing.
"""

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import httpx

from ownwords.ask import endpoints
from ownwords.ask.endpoints import Endpoint, FinishReason, Message, ServedModel, TokenUsage
from ownwords.ask.errors import EndpointRefusedError
from ownwords.ask.http_client import USUAL, RequestLimits
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import source_name

if TYPE_CHECKING:
    from ownwords.inference.generation import GenerationRequest
    from ownwords.inference.model import Model
    from ownwords.inference.text_generation import TextGenerator

# Below this a model takes over the form of an answer and not what it says.
LEAST_PARAMETERS: Final = 200_000_000
_GGUF = ".gguf"
_MOST_TRIED = 3  # models of an endpoint, where the first are not for conversation
_NOT_FOR_CHAT = frozenset({400, 404, 405, 422, 501})
_NAMED = 6  # models told of in an error

_PIECE = re.compile(r"[A-Za-z]+|\d+|[^\W\d_]+|\n+|[^\w\s]|_")
_LETTERS_A_TOKEN, _DIGITS_A_TOKEN, _BYTES_A_TOKEN = 6, 2, 2
# Where a text without turns goes on after the answer.
_NEXT_IN_TEXT = ("\nQuestion:", "\nPassage", "\n===")


class LLMBackend(Protocol):
    """Writes what follows messages. `context` is in tokens, 0 where nobody knows it.

    `is_here` says that nothing leaves this machine. `used`, `ended` and `thought` (in words that
    are no answer) are of the last answer, known when it is at an end. Whoever finds the context to
    be smaller sets it. `write` sends nothing before its first piece is asked for, and raises
    OwnwordsError, of it ContextError where the messages are too long.
    """

    context: int

    @property
    def name(self) -> str: ...
    @property
    def is_here(self) -> bool: ...
    @property
    def used(self) -> TokenUsage | None: ...
    @property
    def ended(self) -> FinishReason | None: ...
    @property
    def thought(self) -> bool: ...
    def prepare(self) -> None: ...
    def count(self, text: str) -> int: ...
    def write(
        self, messages: Sequence[Message], *, most: int, seed: int, temperature: float
    ) -> Generator[str]: ...


def by_default(look: Callable[[], list[Endpoint]] = endpoints.found) -> LLMBackend | None:
    """The model of an endpoint that runs on this machine; None where there is none fit for it."""
    for endpoint in look():
        fit = [one for one in endpoint.models if not 0 < one.parameters < LEAST_PARAMETERS]
        if fit:
            return EndpointBackend(replace(endpoint, models=tuple(fit)))
    return None


def opened(
    model: str,
    *,
    folder_of: Callable[[str], Path | None] = lambda _: None,
    look: Callable[[], list[Endpoint]] = endpoints.found,
) -> LLMBackend:
    """The writer that is meant: an address, a folder or GGUF file, a name.

    An address may name a model: http://127.0.0.1:8080/v1#NAME. A name is asked of `folder_of`, and
    then of the endpoints on this machine. OwnwordsError where it is none of these.
    """
    if model.startswith(("http://", "https://")):
        endpoint = endpoints.named(model)
        name = httpx.URL(model).fragment
        return EndpointBackend(
            replace(endpoint, models=(ServedModel(name),) if name else ()), named=True
        )
    path = Path(model).expanduser()
    if path.exists():
        return LocalBackend(path)
    if (folder := folder_of(model)) is not None:
        return LocalBackend(folder)
    there = look()
    for endpoint in there:
        for one in endpoint.models:
            # Ollama's names end in a tag, and people leave out that of the latest.
            if model in (one.name, one.name.removesuffix(":latest")):
                return EndpointBackend(replace(endpoint, models=(one,)), named=True)
    known = [f"{one.name} ({each.name})" for each in there for one in each.models]
    more = "" if len(known) <= _NAMED else f" and {len(known) - _NAMED} more"
    raise OwnwordsError(
        f"there is no model called {model!r:.200}: no such folder, no base of that name, and"
        + (
            f" running here are {', '.join(known[:_NAMED])}{more}"
            if known
            else " no Ollama, llama.cpp, LM Studio or vLLM is running here"
        ),
        hint="give a folder, a GGUF file, or an address: --model http://127.0.0.1:11434/v1#NAME",
    )


class EndpointBackend:
    """A model at an endpoint. Unless it was named, one that will not converse gives way."""

    def __init__(
        self, endpoint: Endpoint, *, named: bool = False, limits: RequestLimits = USUAL
    ) -> None:
        self._endpoint, self._named, self._limits = endpoint, named, limits
        self._models = list(endpoint.models[: 1 if named else _MOST_TRIED])
        self.context = self._models[0].context if self._models else 0
        self.used: TokenUsage | None = None
        self.ended: FinishReason | None = None
        self.thought = False

    @property
    def name(self) -> str:
        where = self._endpoint.name if self._endpoint.is_here else self._endpoint.host
        return f"{self._models[0].name} at {where}" if self._models else where

    @property
    def is_here(self) -> bool:
        return self._endpoint.is_here

    def prepare(self) -> None:
        """Ask an endpoint that was named without a model which it has; EndpointError if none."""
        if not self._models:
            self._endpoint = endpoints.with_models(self._endpoint, self._limits)
            self._models = list(self._endpoint.models[:_MOST_TRIED])
            self.context = self._models[0].context

    def count(self, text: str) -> int:
        """About how many tokens: rather more than it will be."""
        return estimated(text)

    def write(
        self, messages: Sequence[Message], *, most: int, seed: int, temperature: float
    ) -> Generator[str]:
        self.used, self.ended, self.thought = None, None, False
        self.prepare()
        while True:
            reply = endpoints.chat(
                self._endpoint,
                self._models[0].name,
                messages,
                most=most,
                seed=seed,
                temperature=temperature,
                limits=self._limits,
            )
            begun = False
            try:
                for piece in reply:
                    begun = True
                    yield piece
            except EndpointRefusedError as error:
                if begun or len(self._models) < 2 or error.status not in _NOT_FOR_CHAT:
                    raise
                del self._models[0]
                continue
            self.used, self.ended, self.thought = reply.used, reply.ended, reply.thought
            return


class LocalBackend:
    """A model directory, a workspace that holds one, or a GGUF file, read by our own engines.

    It is opened when it is first needed: a question that is refused needs none. Whoever has it
    open already gives it as `model`, and as `written` what the text of a request is had from.
    """

    is_here = True
    thought = False

    def __init__(
        self,
        path: Path,
        *,
        model: "Model | None" = None,
        written: "Callable[[GenerationRequest, Sequence[str]], TextGenerator] | None" = None,
    ) -> None:
        """OwnwordsError for what cannot be one."""
        from ownwords.core.resolve import resolve_model  # noqa: PLC0415 - NumPy's moment

        self._path = path if path.suffix.lower() == _GGUF else resolve_model(path, path)
        self.used: TokenUsage | None = None
        self.ended: FinishReason | None = None
        self._context = 0
        self._opened, self._written = model, written

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
        """Open it, which may take a moment."""
        _ = self._model

    @cached_property
    def _model(self) -> "Model":
        if self._opened is not None:
            return self._opened
        if self._path.suffix.lower() == _GGUF:
            return _from_gguf(self._path)
        from ownwords.inference.model import Model  # noqa: PLC0415

        return Model.load(self._path)

    def count(self, text: str) -> int:
        return len(self._model.tokenizer.encode(text))

    def write(
        self, messages: Sequence[Message], *, most: int, seed: int, temperature: float
    ) -> Generator[str]:
        from ownwords.inference.text_generation import stream_request  # noqa: PLC0415

        self.used, self.ended = None, None
        model = self._model
        asked = self._request(messages, most=most, seed=seed, temperature=temperature)
        stops = () if model.tokenizer.template else _NEXT_IN_TEXT
        if self._written is None:
            outcome = yield from stream_request(model.engine, model.tokenizer, asked, stops)
        else:
            outcome = yield from self._written(asked, stops)
        self.used = TokenUsage(len(asked.ids), outcome.tokens)
        self.ended = "length" if outcome.finish_reason == "length" else "stop"

    def _request(
        self, messages: Sequence[Message], *, most: int, seed: int, temperature: float
    ) -> "GenerationRequest":
        """The copy guard is not asked: here the model has read what it is to quote."""
        from ownwords.inference.sampling import SamplingParams  # noqa: PLC0415

        prompt: str | Sequence[int]
        if self._model.tokenizer.template is None:
            prompt = "\n\n".join(message["content"] for message in messages) + "\n\nAnswer:"
        else:
            prompt = _turns(self._model, messages)
        sampling = SamplingParams(temperature=temperature, min_p=0.05)
        return self._model.request(
            prompt, max_tokens=most, seed=seed, sampling=sampling, quote=True
        )


def _turns(model: "Model", messages: Sequence[Message]) -> list[int]:
    """The conversation as the model's own template has it, the answer to follow."""
    from ownwords.tokenizers import chat  # noqa: PLC0415 - Jinja
    from ownwords.tokenizers.text import TokenizerError  # noqa: PLC0415

    try:
        return chat.encode(model.tokenizer, messages, add_generation_prompt=True)
    except TokenizerError:
        # Some templates know no system; the rules then stand before the question.
        whole = "\n\n".join(message["content"] for message in messages)
        return chat.encode(
            model.tokenizer, [{"role": "user", "content": whole}], add_generation_prompt=True
        )


def _from_gguf(path: Path) -> "Model":
    try:
        from ownwords.inference.torch_engine import TorchEngine  # noqa: PLC0415 - a second
        from ownwords.models import gguf  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise OwnwordsError(
            "reading a GGUF file takes PyTorch, which is not installed",
            hint='pip install "ownwords[train]"',
        ) from error
    from ownwords.inference.model import Model  # noqa: PLC0415
    from ownwords.inference.text_generation import eos_token_ids  # noqa: PLC0415
    from ownwords.tokenizers import tokenizer  # noqa: PLC0415

    bundle = gguf.load(path)
    its_own = tokenizer.from_files(bundle.tokenizer_files)
    bundle.check_tokenizer(its_own)
    engine = TorchEngine(bundle.model, frozen=True)
    return Model(engine, its_own, stop_ids=eos_token_ids(bundle.generation))


def estimated(text: str) -> int:
    """About how many tokens a text has for a tokenizer that we do not have: rather too many.

    Words of up to six letters are mostly one token, figures one for two digits, and other scripts
    one for two bytes or less.
    """
    total = 0
    for piece in _PIECE.findall(text):
        if piece.isascii():
            each = _DIGITS_A_TOKEN if piece.isdigit() else _LETTERS_A_TOKEN
            total += -(-len(piece) // each) if piece[0].isalnum() else 1
        else:
            total += -(-len(piece.encode()) // _BYTES_A_TOKEN)
    return total


def at_least(messages: Sequence[Message]) -> int:
    """Tokens that messages have for any tokenizer: none makes fewer than one of a word."""
    return sum(len(message["content"].split()) for message in messages)
