"""OpenAI's API: texts, conversations, embeddings and the list of models, in OpenAI's JSON.

Fields of a request that affect the answer are used or refused. Names and bounds are OpenAI's;
samplers that its API lacks have the names that other servers use.
"""

import base64
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

from ownwords.ask.encoder import Embedder
from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.validation import Meta
from ownwords.core.version import __version__
from ownwords.inference.generation import FinishReason, GenerationRequest
from ownwords.inference.model import Model
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import DEFAULT_SAMPLING, encode_prompt, suffix_stops
from ownwords.models.directory import CONFIG
from ownwords.serve.app_state import AppState, no_such_model
from ownwords.serve.errors import ApiError, invalid
from ownwords.serve.json_api import json_response, read_body, wrong_type
from ownwords.serve.model_worker import (
    LoadedModel,
    SampledToken,
    StreamDecoder,
    TextChunk,
    TokenLogprob,
    join_chunks,
)
from ownwords.serve.sse import EventSender, EventStreamResponse, run_until_disconnect
from ownwords.tokenizers import chat
from ownwords.tokenizers.tokenizer import Tokenizer

JsonObject = dict[str, Any]
MAX_TEXTS = 2048  # to embed in one request, as in OpenAI's API
# As in `ownwords write`; OpenAI's default of 16 ends within the first sentence.
DEFAULT_TOKENS: Final = 400
_MAX_STOPS, _MAX_STOP_LENGTH = 16, 1000  # OpenAI allows up to 4
_MIN_SHARE = 1e-9  # replaces a top_p of 0, which is valid and keeps only the likeliest token

_Tokens = Annotated[int, Meta(ge=0, le=1 << 20)]
_Texts = Annotated[int, Meta(ge=1, le=128)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
_Bias = Annotated[float, Meta(ge=-100, le=100)]


def routes(state: AppState) -> list[BaseRoute]:
    """The routes under /v1."""
    return [
        Route("/v1/models", partial(list_models, state), methods=["GET"]),
        Route("/v1/models/{name:path}", partial(get_model, state), methods=["GET"]),
        Route("/v1/completions", partial(create_completion, state), methods=["POST"]),
        Route("/v1/chat/completions", partial(create_chat_completion, state), methods=["POST"]),
        Route("/v1/embeddings", partial(create_embeddings, state), methods=["POST"]),
    ]


# --- requests -------------------------------------------------------------------------------------


def unsupported(name: str, reason: str) -> ApiError:
    """The error for an unsupported field that would change the answer."""
    return invalid(f"{name} is not supported: {reason}", param=name, code="unsupported_parameter")


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
    logit_bias: dict[str, _Bias] | None = None
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
        for name in self.logit_bias or ():
            if not (name.isascii() and name.isdecimal() and len(name) < 10):
                raise _invalid("logit_bias", f"logit_bias must name token ids, not {name[:40]!r}")

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
    def logprob_count(self) -> int | None:
        """The number of likeliest tokens to return with each token; None for no logprobs."""
        raise NotImplementedError

    @property
    def sampling(self) -> SamplingParams:
        """The sampling parameters; the defaults are those of `ownwords write`."""
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": None if self.top_p is None else max(self.top_p, _MIN_SHARE),
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "top_k": None if self.top_k is None else max(0, self.top_k),
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "bias": self.logit_bias and {int(i): x for i, x in self.logit_bias.items()},
        }
        return replace(DEFAULT_SAMPLING, **{k: x for k, x in given.items() if x is not None})


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(GenerationParams):
    """The body of a POST to /v1/completions."""

    prompt: Any = ""
    logprobs: _TopLogprobs | None = None
    echo: bool = False
    suffix: str = ""
    best_of: _Texts | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.best_of not in (None, self.n):
            raise unsupported("best_of", "ask for n texts, and choose among them")
        if self.echo and self.logprobs is not None:
            raise unsupported("echo", "with logprobs it would need those of the prompt")
        _ = self.prompts

    @property
    def stops(self) -> tuple[str, ...]:
        # These models do not read what follows a gap, but must not repeat it.
        return (*super().stops, *suffix_stops(self.suffix))

    @property
    def logprob_count(self) -> int | None:
        return self.logprobs

    @property
    def prompts(self) -> tuple[str | Sequence[int], ...]:
        """The prompts, each as a text or as token ids."""
        given = self.prompt
        if isinstance(given, str) or _is_ids(given):
            return (given,)
        texts = given if isinstance(given, list) else []
        if texts and (all(isinstance(each, str) for each in texts) or all(map(_is_ids, texts))):
            return tuple(texts)
        raise wrong_type("prompt", "text, a list of token ids, or a list of either", given)


def _is_ids(given: object) -> bool:
    """Whether this is a list of numbers that may be token ids."""
    if not isinstance(given, list) or not given:
        return False
    return all(type(i) is int and 0 <= i < 1 << 63 for i in given)


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
    logprobs: bool = False
    top_logprobs: _TopLogprobs | None = None
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
        tools, plain = "these models call no tools", "these models write plain text only"
        for name, is_asked, reason in (
            ("tools", self.tools, tools),
            ("functions", self.functions, tools),
            ("tool_choice", self.tool_choice not in (None, "none", "auto"), tools),
            ("function_call", self.function_call not in (None, "none", "auto"), tools),
            ("response_format", self.response_format.type != "text", plain),
            ("modalities", self.modalities not in (None, ["text"]) or self.audio, plain),
            ("web_search_options", self.web_search_options is not None, "nothing is looked up"),
        ):
            if is_asked:
                raise unsupported(name, reason)
        if self.top_logprobs is not None and not self.logprobs:
            raise _invalid("logprobs", "top_logprobs needs logprobs", 'set "logprobs": true')
        _ = self.conversation

    @property
    def max_new_tokens(self) -> int:
        newer = self.max_completion_tokens
        return super().max_new_tokens if newer is None else newer

    @property
    def logprob_count(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

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
    """Formats the texts of one response, of a chat or of completions, as OpenAI's JSON.

    `echoes` are put before completions; a chat's role comes with the first chunk.
    """

    def __init__(
        self,
        model: str,
        fingerprint: str,
        *,
        is_chat: bool,
        has_logprobs: bool,
        echoes: Sequence[str] = (),
    ) -> None:
        self.is_chat, self.has_logprobs, self.echoes = is_chat, has_logprobs, echoes
        self._kind = "chat.completion" if is_chat else "text_completion"
        self._head: JsonObject = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }

    def choice(
        self, index: int, chunk: TextChunk, finish_reason: FinishReason | None, part: Part
    ) -> JsonObject:
        """A text, or a part of it."""
        if self.is_chat:
            body = self._message(chunk, part)
        else:
            text = chunk.text if part == "next" else self.echoes[index] + chunk.text
            logprobs = _logprob_lists(chunk.tokens) if self.has_logprobs else None
            body = {"text": text, "logprobs": logprobs}
        return {"index": index, **body, "finish_reason": finish_reason}

    def _message(self, chunk: TextChunk, part: Part) -> JsonObject:
        message: JsonObject = {"content": chunk.text} if chunk.text else {}
        if part != "next":
            message = {"role": "assistant", "content": chunk.text, "refusal": None}
        logprobs: JsonObject | None = None
        if self.has_logprobs and (chunk.tokens or part == "whole"):
            content = [
                _logprob_object(token.sampled)
                | {"top_logprobs": [_logprob_object(x) for x in token.top]}
                for token in chunk.tokens
            ]
            logprobs = {"content": content, "refusal": None}
        return {"message" if part == "whole" else "delta": message, "logprobs": logprobs}

    def response(
        self, texts: Sequence[tuple[TextChunk, FinishReason]], usage: JsonObject
    ) -> JsonObject:
        """The whole response."""
        choices = [
            self.choice(i, chunk, reason, "whole") for i, (chunk, reason) in enumerate(texts)
        ]
        return {**self._head, "object": self._kind, "choices": choices, "usage": usage}

    def chunk(self, *choices: JsonObject) -> JsonObject:
        """A streamed chunk; the one with the usage holds no choices."""
        kind = f"{self._kind}.chunk" if self.is_chat else self._kind
        return {**self._head, "object": kind, "choices": choices}


def _logprob_object(token: TokenLogprob) -> JsonObject:
    # An incomplete character has no text; OpenAI escapes its bytes.
    text = token.data.decode("utf-8", "backslashreplace")
    return {"token": text, "logprob": token.logprob, "bytes": list(token.data)}


def _logprob_lists(tokens: Sequence[SampledToken]) -> JsonObject:
    """Logprobs in the older API's format."""
    return {
        "tokens": [_token_text(token.sampled) for token in tokens],
        "token_logprobs": [token.sampled.logprob for token in tokens],
        "top_logprobs": [
            {_token_text(x): x.logprob for x in (*token.top, token.sampled)} for token in tokens
        ],
        "text_offset": [token.offset for token in tokens],
    }


def _token_text(token: TokenLogprob) -> str:
    try:
        return token.data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.data)


# --- texts ---------------------------------------------------------------------------------------

# Takes a chunk of the text with this index; the last one comes with the finish reason.
ChunkHandler = Callable[[int, TextChunk, FinishReason | None], Awaitable[None]]


@dataclass(frozen=True)
class _Task:
    """All texts of one request."""

    loaded: LoadedModel
    params: GenerationParams
    requests: Sequence[GenerationRequest]
    prompt_tokens: int
    formatter: Formatter

    async def run(self, handle: ChunkHandler) -> JsonObject:
        """Generate all texts concurrently; returns OpenAI's `usage`."""
        tokens = 0
        errors: list[OwnwordsError] = []

        async def generate(index: int, request: GenerationRequest) -> None:
            nonlocal tokens
            tokenizer, params = self.loaded.model.tokenizer, self.params
            top = params.logprob_count or 0
            try:
                text = StreamDecoder.of(
                    request, tokenizer, params.stops, sentence=params.sentence, top=top
                )
                async with self.loaded.worker.generate(request) as stream:
                    async for chunk in text.decode(stream):
                        if chunk:
                            await handle(index, chunk, None)
                await handle(index, TextChunk(""), text.finish_reason or "length")
                tokens += text.token_count
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
        chunks: list[list[TextChunk]] = [[] for _ in self.requests]
        reasons: list[FinishReason] = ["length" for _ in self.requests]

        async def collect(index: int, chunk: TextChunk, reason: FinishReason | None) -> None:
            chunks[index].append(chunk)
            reasons[index] = reason or reasons[index]

        usage = await self.run(collect)
        texts = list(zip(map(join_chunks, chunks), reasons, strict=True))
        return self.formatter.response(texts, usage)

    async def stream(self, events: EventSender) -> None:
        """Send the texts as they are generated."""
        formatter, is_begun = self.formatter, anyio.Lock()
        no_usage: JsonObject = {"usage": None} if self.params.include_usage else {}

        async def send(index: int, chunk: TextChunk, reason: FinishReason | None) -> None:
            async with is_begun:  # send the first chunks of all texts before any other
                if not events.has_started:
                    for i in range(len(self.requests)):  # such as a role, or an echo
                        first = formatter.choice(i, TextChunk(""), None, "first")
                        if first != formatter.choice(i, TextChunk(""), None, "next"):
                            await events.send(formatter.chunk(first) | no_usage)
            choice = formatter.choice(index, chunk, reason, "next")
            await events.send(formatter.chunk(choice) | no_usage)

        usage = await self.run(send)
        if self.params.include_usage:
            await events.send(formatter.chunk() | {"usage": usage})
        await events.send_bytes(b"data: [DONE]\n\n")


async def create_completion(state: AppState, request: Request) -> Response:
    """Continue one or several prompts."""
    params = await read_body(state, request, CompletionRequest)
    loaded = await state.get_model(params.model)

    def prepare() -> _Task:
        decode = loaded.model.tokenizer.decode
        echoes = [
            (each if isinstance(each, str) else decode(each)) if params.echo else ""
            for each in params.prompts
            for _ in range(params.n)
        ]
        return _task(state, loaded, params, params.prompts, echoes)

    return await _respond(request, await state.run(prepare))


async def create_chat_completion(state: AppState, request: Request) -> Response:
    """Continue a conversation."""
    params = await read_body(state, request, ChatRequest)
    loaded = await state.get_model(params.model)

    def prepare() -> _Task:
        prompt = encode_conversation(loaded.model.tokenizer, params.conversation)
        return _task(state, loaded, params, [prompt])

    return await _respond(request, await state.run(prepare))


def encode_conversation(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]
) -> Sequence[int]:
    """A conversation as ids, by the model's chat template, or as plain text without one.

    As plain text, the messages follow each other, with a blank line before each except the
    assistant's, which continue the message before.
    """
    if tokenizer.template is not None:
        return chat.encode(tokenizer, messages, add_generation_prompt=True)
    text = ""
    for message in messages:
        if text and message["role"] != "assistant":
            text += "\n\n"
        text += message["content"]
    return encode_prompt(tokenizer, text)


def _task(
    state: AppState,
    loaded: LoadedModel,
    params: GenerationParams,
    prompts: Sequence[str | Sequence[int]],
    echoes: Sequence[str] = (),
) -> _Task:
    """The texts of a request. Raises ApiError if they are too many or the model cannot read it."""
    is_chat, has_logprobs = isinstance(params, ChatRequest), params.logprob_count is not None
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
    firsts = [_request(loaded.model, prompt, params) for prompt in prompts]
    for first in firsts:
        if len(first.ids) > context and not params.truncate_prompt_tokens:
            raise invalid(
                f"{name} has {len(first.ids):,} tokens, but the model's context is {context:,}",
                hint="shorten it; its end matters most",
                param=name,
                code="context_length_exceeded",
            )
    formatter = Formatter(
        *(loaded.name, _fingerprint(loaded)),
        is_chat=is_chat,
        has_logprobs=has_logprobs,
        echoes=echoes,
    )
    seeds = range(params.seed, params.seed + params.n)
    requests = [replace(first, seed=seed) for first in firsts for seed in seeds]
    return _Task(loaded, params, requests, sum(len(first.ids) for first in firsts), formatter)


def _request(
    model: Model, prompt: str | Sequence[int], params: GenerationParams
) -> GenerationRequest:
    """The engine's request for one prompt."""
    sampling, top = params.sampling, params.logprob_count
    if sampling.bias and max(sampling.bias) >= model.tokenizer.vocabulary_size:
        raise invalid(
            f"logit_bias names the token {max(sampling.bias)}, but the model has only"
            f" {model.tokenizer.vocabulary_size:,}",
            hint="use the token ids of this model's tokenizer",
            param="logit_bias",
            code="invalid_value",
        )
    return model.request(
        prompt,
        max_tokens=params.max_new_tokens,
        sampling=sampling,
        quote=not params.guard,
        # At least 1: with 0, the engine does not return the sampled token's logprob.
        logprobs=0 if top is None else max(1, top),
        completes_word=params.sentence,
    )


async def _respond(request: Request, task: _Task) -> Response:
    if task.params.stream:
        return EventStreamResponse(task.stream)
    return json_response(await run_until_disconnect(request.receive, task.response()))


def _fingerprint(loaded: LoadedModel) -> str:
    """A hash of the model, engine and version: with the same one, a seed gives the same text."""
    return "fp_" + digest(repr(loaded.stamp), loaded.model.engine.name, __version__)[:12]


# --- models and embeddings -----------------------------------------------------------------------


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
    if embedder := await state.embedder():
        times.setdefault(short_name(embedder), 0)
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


@dataclass(frozen=True, kw_only=True)
class EmbeddingRequest:
    """The body of a POST to /v1/embeddings."""

    model: Annotated[str, Meta(min_length=1)]
    # Texts only: ids would be another tokenizer's, since programs count with OpenAI's.
    input: Annotated[str, Meta(min_length=1)] | list[Annotated[str, Meta(min_length=1)]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.texts) <= MAX_TEXTS:
            raise invalid(
                f"input must have 1 to {MAX_TEXTS:,} texts, not {len(self.texts):,}",
                param="input",
                code="invalid_value",
            )

    @property
    def texts(self) -> list[str]:
        """The inputs."""
        return [self.input] if isinstance(self.input, str) else self.input


def short_name(embedder: Embedder) -> str:
    """The embedder's name without the hash of its weights."""
    return embedder.name.partition(" ")[0]


async def create_embeddings(state: AppState, request: Request) -> Response:
    """Compute the vectors of the inputs."""
    asked = await read_body(state, request, EmbeddingRequest)
    embedder = await state.embedder()
    if embedder is None:
        raise invalid(
            "this server has no embedding model",
            hint="start it with --embed and one that `ownwords ask --help` names",
            param="model",
            code="no_embedder",
        )
    name = short_name(embedder)
    if asked.model not in (name, embedder.name):
        if asked.model in await state.run(state.models):
            raise unsupported("model", f"{asked.model} generates text; {name} computes vectors")
        raise no_such_model(asked.model, [name])
    if asked.dimensions not in (None, embedder.dimensions):
        raise unsupported("dimensions", f"the vectors of {name} have {embedder.dimensions}")
    return await state.run_long(lambda: json_response(_embed(asked, embedder)))


def _embed(asked: EmbeddingRequest, embedder: Embedder) -> JsonObject:
    rows = embedder.embed(asked.texts).astype("<f4", copy=False)
    is_base64 = asked.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(row.tobytes()).decode() if is_base64 else row.tolist(),
        }
        for i, row in enumerate(rows)
    ]
    count: Callable[[Sequence[str]], int] = getattr(embedder, "count", lambda _: 0)
    tokens = count(asked.texts)  # an embedder at an endpoint cannot count
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": short_name(embedder), "usage": usage}
