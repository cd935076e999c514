"""OpenAI's API: texts, conversations and the list of models, in OpenAI's JSON.

Fields of a request that affect the answer are used or refused. Names and bounds are OpenAI's;
samplers that its API lacks have the names that other servers use.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.validation import Meta
from ownwords.core.version import __version__
from ownwords.inference.generation import FinishReason, GenerationRequest
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import (
    DEFAULT_SAMPLING,
    IncrementalDetokenizer,
    suffix_stops,
)
from ownwords.models.directory import CONFIG
from ownwords.serve.app_state import AppState, no_such_model
from ownwords.serve.errors import ApiError, invalid
from ownwords.serve.json_api import json_response, read_body, wrong_type
from ownwords.serve.model_worker import LoadedModel
from ownwords.serve.sse import EventSender, EventStreamResponse, run_until_disconnect

JsonObject = dict[str, Any]
# As in `ownwords write`; OpenAI's default of 16 ends within the first sentence.
DEFAULT_TOKENS: Final = 400
_MAX_STOPS, _MAX_STOP_LENGTH = 16, 1000  # OpenAI allows up to 4

_Tokens = Annotated[int, Meta(ge=0, le=1 << 20)]
_Texts = Annotated[int, Meta(ge=1, le=128)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]


def routes(state: AppState) -> list[BaseRoute]:
    """The routes under /v1."""
    return [
        Route("/v1/models", partial(list_models, state), methods=["GET"]),
        Route("/v1/models/{name:path}", partial(get_model, state), methods=["GET"]),
        Route("/v1/completions", partial(create_completion, state), methods=["POST"]),
        Route("/v1/chat/completions", partial(create_chat_completion, state), methods=["POST"]),
    ]


# --- requests -------------------------------------------------------------------------------------


def unsupported(name: str, reason: str) -> ApiError:
    """The error for an unsupported field that would change the answer."""
    return invalid(f"{name} is not supported: {reason}", param=name, code="unsupported_parameter")


def _refuse(reason: str, **asked: object) -> None:
    """Raise the error for the first of these fields that is asked for."""
    for name, is_asked in asked.items():
        if is_asked:
            raise unsupported(name, reason)


@dataclass(frozen=True)
class StreamOptions:
    """Options of a streamed response."""

    include_usage: bool = False


@dataclass(frozen=True, kw_only=True)
class GenerationParams:
    """The fields that completions and chats have in common."""

    model: Annotated[str, Meta(min_length=1)]
    n: _Texts = 1
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = field(
        default_factory=lambda: secrets.randbelow(1 << 31)
    )
    stop: str | list[str] | None = None
    sentence: bool = False  # end with the sentence; a word that the prompt breaks off is completed
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: _Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    logit_bias: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 31)] | None = None  # 0 and -1: all tokens
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=1e-3, le=1e3)] | None = None
    guard: bool = True
    truncate_prompt_tokens: Literal[-1] | None = None  # vLLM's: read what fits, from the end

    def __post_init__(self) -> None:
        if self.stream_options is not None and not self.stream:
            raise _invalid("stream_options", "stream_options needs stream to be true")
        if len(self.stops) > _MAX_STOPS:
            raise wrong_type("stop", f"text or a list of up to {_MAX_STOPS}", self.stop)
        for stop in self.stops:
            if not 0 < len(stop) <= _MAX_STOP_LENGTH:
                raise _invalid(
                    "stop",
                    f"a stop string must have 1 to {_MAX_STOP_LENGTH} characters, not {len(stop)}",
                )
        _refuse(
            "this server takes and returns text, not tokens",
            logit_bias=self.logit_bias,
            logprobs=self.logprobs is not None and self.logprobs is not False,
            top_logprobs=self.top_logprobs is not None,
        )

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def max_new_tokens(self) -> int:
        """The maximum number of tokens of each text."""
        return DEFAULT_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def sampling(self) -> SamplingParams:
        """The sampling parameters; the defaults are those of `ownwords write`."""
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "top_k": None if self.top_k is None else max(0, self.top_k),
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
        }
        return replace(DEFAULT_SAMPLING, **{k: x for k, x in given.items() if x is not None})


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(GenerationParams):
    """The body of a POST to /v1/completions."""

    prompt: str | list[str] = ""
    echo: bool = False
    suffix: str = ""
    best_of: _Texts | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse(
            "ask for n texts, and choose among them", best_of=self.best_of not in (None, self.n)
        )
        _refuse("put the prompt before the text that comes back", echo=self.echo)
        if not self.prompts:
            raise wrong_type("prompt", "text, or a list of texts", self.prompt)

    @property
    def stops(self) -> tuple[str, ...]:
        # These models do not read what follows a gap, but must not repeat it.
        return (*super().stops, *suffix_stops(self.suffix))

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompts."""
        return (self.prompt,) if isinstance(self.prompt, str) else tuple(self.prompt)


@dataclass(frozen=True)
class _ContentPart:
    type: str = ""
    text: str | None = None
    refusal: str | None = None


@dataclass(frozen=True)
class _Message:
    role: str
    content: str | list[_ContentPart] | None = None
    tool_calls: Any = None
    function_call: Any = None


@dataclass(frozen=True)
class _ResponseFormat:
    type: str = "text"


@dataclass(frozen=True, kw_only=True)
class ChatRequest(GenerationParams):
    """The body of a POST to /v1/chat/completions."""

    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_completion_tokens: _Tokens | None = None
    tools: Any = None
    functions: Any = None
    tool_choice: Any = None
    function_call: Any = None
    response_format: _ResponseFormat = field(default_factory=_ResponseFormat)
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse(
            "these models call no tools",
            tools=self.tools,
            functions=self.functions,
            tool_choice=self.tool_choice not in (None, "none", "auto"),
            function_call=self.function_call not in (None, "none", "auto"),
        )
        _refuse(
            "these models write plain text only",
            response_format=self.response_format.type != "text",
            modalities=self.modalities not in (None, ["text"]) or self.audio,
        )
        _refuse("nothing is looked up", web_search_options=self.web_search_options is not None)
        _ = self.conversation

    @property
    def max_new_tokens(self) -> int:
        newer = self.max_completion_tokens
        return super().max_new_tokens if newer is None else newer

    @property
    def conversation(self) -> tuple[Mapping[str, str], ...]:
        """The messages, each with its role and text."""
        return tuple(_message(x, f"messages[{i}]") for i, x in enumerate(self.messages))


def _message(message: _Message, path: str) -> Mapping[str, str]:
    role = message.role
    if role in ("tool", "function") or message.tool_calls or message.function_call:
        raise unsupported(path, "these models call no tools")
    # OpenAI's newer name of the role that templates call system.
    role = "system" if role == "developer" else role
    if role not in ("system", "user", "assistant"):
        allowed = "system, developer, user or assistant"
        raise _invalid(f"{path}.role", f"{path}.role must be {allowed}, not {role[:40]!r}")
    if message.content is None:
        raise _invalid(f"{path}.content", f"{path}.content is missing")
    if isinstance(message.content, str):
        return {"role": role, "content": message.content}
    parts = [_part(part, f"{path}.content[{i}]") for i, part in enumerate(message.content)]
    return {"role": role, "content": "".join(parts)}


def _part(part: _ContentPart, path: str) -> str:
    if part.type not in ("text", "refusal"):
        raise unsupported(path, "these models read text only")
    text: str | None = getattr(part, part.type)
    if text is None:
        raise wrong_type(f"{path}.{part.type}", "text", None)
    return text


def _invalid(name: str, message: str, hint: str = "") -> ApiError:
    return invalid(message, hint=hint, param=name, code="invalid_value")


# --- answers -------------------------------------------------------------------------------------

Part = Literal["whole", "first", "next"]  # of a text: all of it, or what is streamed


class Formatter:
    """Formats the texts of one response; a chat's role comes with its first part."""

    def __init__(self, model: str, fingerprint: str, *, is_chat: bool) -> None:
        self.is_chat = is_chat
        self._kind = "chat.completion" if is_chat else "text_completion"
        self._head: JsonObject = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }

    def choice(
        self, index: int, text: str, finish_reason: FinishReason | None, part: Part
    ) -> JsonObject:
        """A text, or a part of it."""
        body: JsonObject = {"text": text}
        if self.is_chat:
            message: JsonObject = {"content": text} if text else {}
            if part != "next":
                message = {"role": "assistant", "content": text, "refusal": None}
            body = {"message" if part == "whole" else "delta": message}
        return {"index": index, **body, "logprobs": None, "finish_reason": finish_reason}

    def response(self, texts: Sequence[tuple[str, FinishReason]], usage: JsonObject) -> JsonObject:
        """The whole response."""
        choices = [self.choice(i, text, reason, "whole") for i, (text, reason) in enumerate(texts)]
        return {**self._head, "object": self._kind, "choices": choices, "usage": usage}

    def chunk(self, *choices: JsonObject) -> JsonObject:
        """A streamed chunk; the one with the usage holds no choices."""
        kind = f"{self._kind}.chunk" if self.is_chat else self._kind
        return {**self._head, "object": kind, "choices": choices}


# --- texts ---------------------------------------------------------------------------------------

# Takes a part of the text with this index; the last one comes with the finish reason.
PartHandler = Callable[[int, str, FinishReason | None], Awaitable[None]]


@dataclass(frozen=True)
class _Task:
    """All texts of one request."""

    loaded: LoadedModel
    params: GenerationParams
    requests: Sequence[GenerationRequest]
    prompt_tokens: int
    formatter: Formatter

    async def run(self, handle: PartHandler) -> JsonObject:
        """Generate all texts concurrently; returns OpenAI's `usage`."""
        tokens = 0
        errors: list[OwnwordsError] = []

        async def generate(index: int, request: GenerationRequest) -> None:
            nonlocal tokens
            try:
                text = IncrementalDetokenizer(
                    self.loaded.model.tokenizer,
                    request.ids,
                    self.params.stops,
                    sentence=self.params.sentence,
                    skipped=len(request.opening.data) if request.opening else 0,
                )
                async with self.loaded.worker.generate(request) as stream:
                    async for token in stream:
                        tokens += 1
                        if part := text.feed(token):
                            await handle(index, part, None)
                        if text.stop is not None:
                            break
                    if part := text.finish():
                        await handle(index, part, None)
                is_stopped = text.stop is not None
                await handle(index, "", "stop" if is_stopped else stream.finish_reason)
            except OwnwordsError as error:
                errors.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for index, request in enumerate(self.requests):
                group.start_soon(generate, index, request)
        if errors:
            raise errors[0]
        return {
            "prompt_tokens": self.prompt_tokens,  # a prompt counts once for all of its texts
            "completion_tokens": tokens,
            "total_tokens": self.prompt_tokens + tokens,
        }

    async def response(self) -> JsonObject:
        """The response with all texts."""
        texts = ["" for _ in self.requests]
        reasons: list[FinishReason] = ["length" for _ in self.requests]

        async def collect(index: int, part: str, reason: FinishReason | None) -> None:
            texts[index] += part
            reasons[index] = reason or reasons[index]

        usage = await self.run(collect)
        return self.formatter.response(list(zip(texts, reasons, strict=True)), usage)

    async def stream(self, events: EventSender) -> None:
        """Send the texts as they are generated."""
        formatter, is_begun = self.formatter, anyio.Lock()
        no_usage: JsonObject = {"usage": None} if self.params.include_usage else {}

        async def send(index: int, part: str, reason: FinishReason | None) -> None:
            async with is_begun:  # send the roles of all texts before any other chunk
                if formatter.is_chat and not events.has_started:
                    for i in range(len(self.requests)):
                        first = formatter.choice(i, "", None, "first")
                        await events.send(formatter.chunk(first) | no_usage)
            choice = formatter.choice(index, part, reason, "next")
            await events.send(formatter.chunk(choice) | no_usage)

        usage = await self.run(send)
        if self.params.include_usage:
            await events.send(formatter.chunk() | {"usage": usage})
        await events.send_bytes(b"data: [DONE]\n\n")


async def create_completion(state: AppState, request: Request) -> Response:
    """Continue one or several prompts."""
    params = await read_body(state, request, CompletionRequest)
    loaded = await state.get_model(params.model)
    task = await state.run(lambda: _task(state, loaded, params, params.prompts))
    return await _respond(request, task)


async def create_chat_completion(state: AppState, request: Request) -> Response:
    """Continue a conversation."""
    params = await read_body(state, request, ChatRequest)
    loaded = await state.get_model(params.model)
    task = await state.run(lambda: _task(state, loaded, params, [as_text(params.conversation)]))
    return await _respond(request, task)


def as_text(messages: Sequence[Mapping[str, str]]) -> str:
    """A conversation as the text to continue, with a blank line before each but the model's."""
    text = ""
    for message in messages:
        if text and message["role"] != "assistant":
            text += "\n\n"
        text += message["content"]
    return text


def _task(
    state: AppState,
    loaded: LoadedModel,
    params: GenerationParams,
    prompts: Sequence[str],
) -> _Task:
    """The texts of a request. Raises ApiError if they are too many or the model cannot read it."""
    is_chat = isinstance(params, ChatRequest)
    name = "messages" if is_chat else "prompt"
    texts = len(prompts) * params.n
    if texts > state.settings.queue:
        raise invalid(
            f"the request asks for {texts} texts, but at most {state.settings.queue} are allowed",
            hint="ask for fewer, several times",
            param="n",
            code="invalid_value",
        )
    context = loaded.worker.length
    firsts = [
        loaded.model.request(
            prompt,
            max_tokens=params.max_new_tokens,
            sampling=params.sampling,
            quote=not params.guard,
            completes_word=params.sentence,
        )
        for prompt in prompts
    ]
    for first in firsts:
        if len(first.ids) > context and not params.truncate_prompt_tokens:
            raise invalid(
                f"{name} has {len(first.ids):,} tokens, but the model's context is {context:,}",
                hint="shorten it; its end matters most",
                param=name,
                code="context_length_exceeded",
            )
    formatter = Formatter(loaded.name, _fingerprint(loaded), is_chat=is_chat)
    seeds = range(params.seed, params.seed + params.n)
    requests = [replace(first, seed=seed) for first in firsts for seed in seeds]
    return _Task(loaded, params, requests, sum(len(first.ids) for first in firsts), formatter)


async def _respond(request: Request, task: _Task) -> Response:
    if task.params.stream:
        return EventStreamResponse(task.stream)
    return json_response(await run_until_disconnect(request.receive, task.response()))


def _fingerprint(loaded: LoadedModel) -> str:
    """A hash of the model, engine and version: with the same one, a seed gives the same text."""
    return "fp_" + digest(repr(loaded.stamp), loaded.model.engine.name, __version__)[:12]


# --- models --------------------------------------------------------------------------------------


async def list_models(state: AppState, _: Request) -> Response:
    """All models."""
    models = await _models(state)
    return json_response({"object": "list", "data": list(models.values())})


async def get_model(state: AppState, request: Request) -> Response:
    """The model with this name."""
    models = await _models(state)
    name = str(request.path_params["name"])
    if name not in models:
        raise no_such_model(name, models)
    return json_response(models[name])


async def _models(state: AppState) -> dict[str, JsonObject]:
    times = await state.run(lambda: {name: _made_at(at) for name, at in state.models().items()})
    return {
        name: {"id": name, "object": "model", "created": time_, "owned_by": "ownwords"}
        for name, time_ in times.items()
    }


def _made_at(folder: Path) -> int:
    """The Unix time at which a model was written; 0 if it has just been deleted."""
    try:
        return int((folder / CONFIG).stat().st_mtime)
    except OSError:
        return 0
