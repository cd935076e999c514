"""OpenAI's API: texts, conversations and the list of models, in OpenAI's JSON.

Fields of a request that affect the answer are used or refused. Names are OpenAI's, and those of
other servers for samplers that its API lacks.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import anyio
import msgspec
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
from ownwords.serve.json_api import decode_fields, json_response, parse_json
from ownwords.serve.model_worker import LoadedModel
from ownwords.serve.sse import EventSender, EventStreamResponse, run_until_disconnect

JsonObject = dict[str, Any]
# As in `ownwords write`; OpenAI's default of 16 ends within the first sentence.
DEFAULT_TOKENS: Final = 400

_Tokens = Annotated[int, Meta(ge=0, le=1 << 20)]
_Stop = Annotated[str, Meta(min_length=1, max_length=1000)]
_MAX_STOPS = 16  # OpenAI allows up to 4
P = TypeVar("P", bound="GenerationParams")


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes under /v1."""
    return [
        Route("/v1/models", partial(show_models, state), methods=["GET"]),
        Route("/v1/models/{name:path}", partial(show_models, state), methods=["GET"]),
        Route("/v1/completions", partial(create, state, CompletionRequest), methods=["POST"]),
        Route("/v1/chat/completions", partial(create, state, ChatRequest), methods=["POST"]),
    ]


# --- requests -------------------------------------------------------------------------------------


_NO_TOKENS = "this server takes and returns text, not tokens"
_NO_TOOLS = "these models call no tools"
_PLAIN_TEXT = "these models write plain text only"
# Fields that would change the answer: the values that would not, and why others are refused.
_REFUSED: Mapping[str, tuple[Collection[str], str]] = {
    "logit_bias": (["{}"], _NO_TOKENS),
    "logprobs": (["false"], _NO_TOKENS),
    "top_logprobs": ([], _NO_TOKENS),
    "echo": (["false"], "put the prompt before the text that comes back"),
    "best_of": (["1"], "ask for n texts, and choose among them"),
    "tools": (["[]"], _NO_TOOLS),
    "functions": (["[]", "{}"], _NO_TOOLS),
    "tool_choice": (['"none"', '"auto"'], _NO_TOOLS),
    "function_call": (['"none"', '"auto"'], _NO_TOOLS),
    "response_format": (["{}", '"text"'], _PLAIN_TEXT),
    "modalities": (['["text"]'], _PLAIN_TEXT),
    "audio": (["false", "{}"], _PLAIN_TEXT),
    "web_search_options": ([], "these models search nothing"),
}


def parse_params(kind: type[P], body: JsonObject) -> P:
    """Parse the body of a request. Raises ApiError for a field that cannot be honoured."""
    for name, (harmless, reason) in _REFUSED.items():
        value = body.get(name)
        if isinstance(value, dict):
            value = value.get("type", value)
        if value is not None and msgspec.json.encode(value).decode() not in harmless:
            message = f"{name} is not supported: {reason}"
            raise invalid(message, param=name, code="unsupported_parameter")
    return decode_fields(kind, body)


@dataclass(frozen=True)
class StreamOptions:
    """Options of a streamed response."""

    include_usage: bool = False  # whether it ends with the token counts


@dataclass(frozen=True, kw_only=True)
class GenerationParams:
    """The fields that completions and chats have in common."""

    model: Annotated[str, Meta(min_length=1)]
    n: Annotated[int, Meta(ge=1, le=128)] = 1
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = field(
        default_factory=lambda: secrets.randbelow(1 << 31)
    )
    stop: _Stop | list[_Stop] | None = None
    sentence: bool = False  # end with the sentence; a word that the prompt breaks off is completed
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    max_tokens: _Tokens = DEFAULT_TOKENS
    temperature: float | None = None  # of the samplers, the bounds are those of SamplingParams
    top_k: Annotated[int, Meta(ge=-1)] | None = None  # 0 and -1: all tokens
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    guard: bool = True
    truncate_prompt_tokens: Literal[-1] | None = None  # vLLM's: read what fits, from the end

    def __post_init__(self) -> None:
        if len(self.stops) > _MAX_STOPS:
            raise _invalid("stop", f"stop must be text or a list of up to {_MAX_STOPS}")
        _ = self.sampling

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def max_new_tokens(self) -> int:
        """The maximum number of tokens of each text."""
        return self.max_tokens

    @property
    def sampling(self) -> SamplingParams:
        """The sampling parameters, by default those of `ownwords write`."""
        names = [each.name for each in fields(SamplingParams)]
        given = {name: x for name in names if (x := getattr(self, name, None)) is not None}
        if given.get("top_k") == -1:
            given["top_k"] = 0
        return replace(DEFAULT_SAMPLING, **given)


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(GenerationParams):
    """The body of a POST to /v1/completions."""

    prompt: str | list[str] = ""
    suffix: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.prompts:
            raise _invalid("prompt", "prompt must be text or a list of texts, not an empty list")

    @property
    def stops(self) -> tuple[str, ...]:
        # These models do not read what follows a gap, but must not repeat it.
        return (*super().stops, *suffix_stops(self.suffix))

    @property
    def prompts(self) -> Sequence[str]:
        """The texts to continue."""
        return (self.prompt,) if isinstance(self.prompt, str) else self.prompt


@dataclass(frozen=True)
class _ContentPart:
    type: Literal["text"]
    text: str


@dataclass(frozen=True)
class _Message:
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_ContentPart]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


@dataclass(frozen=True, kw_only=True)
class ChatRequest(GenerationParams):
    """The body of a POST to /v1/chat/completions."""

    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_completion_tokens: _Tokens | None = None

    @property
    def max_new_tokens(self) -> int:
        newer = self.max_completion_tokens
        return self.max_tokens if newer is None else newer

    @property
    def prompts(self) -> Sequence[str]:
        """The conversation as one text, with a blank line before all but the model's messages."""
        text = ""
        for message in self.messages:
            text += ("\n\n" if text and message.role != "assistant" else "") + message.text
        return (text,)


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
        """Return a text, or a part of it."""
        body: JsonObject = {"text": text}
        if self.is_chat:
            message: JsonObject = {"content": text} if text else {}
            if part != "next":
                message = {"role": "assistant", "content": text, "refusal": None}
            body = {"message" if part == "whole" else "delta": message}
        return {"index": index, **body, "logprobs": None, "finish_reason": finish_reason}

    def response(self, texts: Sequence[tuple[str, FinishReason]], usage: JsonObject) -> JsonObject:
        """Return the whole response."""
        choices = [self.choice(i, text, reason, "whole") for i, (text, reason) in enumerate(texts)]
        return {**self._head, "object": self._kind, "choices": choices, "usage": usage}

    def chunk(self, *choices: JsonObject) -> JsonObject:
        """Return a streamed chunk; the one with the usage has no choices."""
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
        """Generate all texts concurrently; return OpenAI's `usage`."""
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
        """Return the response with all texts."""
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
        no_usage: JsonObject = {"usage": None} if self.params.stream_options.include_usage else {}

        async def send(index: int, part: str, reason: FinishReason | None) -> None:
            async with is_begun:  # send the roles of all texts before any other chunk
                if formatter.is_chat and not events.has_started:
                    for i in range(len(self.requests)):
                        first = formatter.choice(i, "", None, "first")
                        await events.send(formatter.chunk(first) | no_usage)
            choice = formatter.choice(index, part, reason, "next")
            await events.send(formatter.chunk(choice) | no_usage)

        usage = await self.run(send)
        if self.params.stream_options.include_usage:
            await events.send(formatter.chunk() | {"usage": usage})
        await events.send_bytes(b"data: [DONE]\n\n")


async def create(
    state: AppState, kind: type[CompletionRequest | ChatRequest], request: Request
) -> Response:
    """Continue one or several prompts, or a conversation."""
    data = await request.body()
    params = await state.run(lambda: parse_params(kind, parse_json(data)))
    loaded = await state.get_model(params.model)
    task = await state.run(lambda: _task(state, loaded, params))
    if params.stream:
        return EventStreamResponse(task.stream)
    return json_response(await run_until_disconnect(request.receive, task.response()))


def _task(state: AppState, loaded: LoadedModel, params: CompletionRequest | ChatRequest) -> _Task:
    """Prepare the texts of a request. Raises ApiError for too many texts or a long prompt."""
    name = "messages" if isinstance(params, ChatRequest) else "prompt"
    texts = len(params.prompts) * params.n
    if texts > state.settings.queue:
        raise invalid(
            f"the request asks for {texts} texts, but at most {state.settings.queue} are allowed",
            hint="ask for fewer at a time",
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
        for prompt in params.prompts
    ]
    for first in firsts:
        if len(first.ids) > context and not params.truncate_prompt_tokens:
            raise invalid(
                f"{name} has {len(first.ids):,} tokens, but the model's context is {context:,}",
                hint="shorten it, but keep its end, which matters most",
                param=name,
                code="context_length_exceeded",
            )
    formatter = Formatter(loaded.name, _fingerprint(loaded), is_chat=name == "messages")
    seeds = range(params.seed, params.seed + params.n)
    requests = [replace(first, seed=seed) for first in firsts for seed in seeds]
    return _Task(loaded, params, requests, sum(len(first.ids) for first in firsts), formatter)


def _fingerprint(loaded: LoadedModel) -> str:
    """Hash the model, engine and version: with the same hash, a seed gives the same text."""
    return "fp_" + digest(repr(loaded.stamp), loaded.model.engine.name, __version__)[:12]


# --- models --------------------------------------------------------------------------------------


async def show_models(state: AppState, request: Request) -> Response:
    """List all models, or show the named one."""
    times = await state.run(lambda: {name: _made_at(at) for name, at in state.models().items()})
    models = {
        name: {"id": name, "object": "model", "created": made_at, "owned_by": "ownwords"}
        for name, made_at in times.items()
    }
    name = request.path_params.get("name")
    if name is None:
        return json_response({"object": "list", "data": list(models.values())})
    if name not in models:
        raise no_such_model(name, models)
    return json_response(models[name])


def _made_at(folder: Path) -> int:
    """Return the Unix time at which a model was written; 0 if it has just been deleted."""
    try:
        return int((folder / CONFIG).stat().st_mtime)
    except OSError:
        return 0
