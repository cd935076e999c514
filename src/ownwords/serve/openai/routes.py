"""OpenAI's API: texts, conversations, embeddings and the list of models, in OpenAI's JSON."""

import base64
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal

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
from ownwords.inference.text_generation import encode_prompt
from ownwords.models.directory import CONFIG
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, invalid
from ownwords.serve.json_api import json_response, read_body
from ownwords.serve.model_worker import (
    DecodedStream,
    LoadedModel,
    SampledToken,
    TextChunk,
    TokenLogprob,
    join_chunks,
)
from ownwords.serve.openai.request_params import (
    ChatRequest,
    CompletionRequest,
    GenerationParams,
    unsupported,
)
from ownwords.serve.sse import EventSender, EventStreamResponse, run_until_disconnect
from ownwords.tokenizers import chat
from ownwords.tokenizers.tokenizer import Tokenizer

JsonObject = dict[str, Any]
MAX_TEXTS = 2048  # to embed in one request, as in OpenAI's API


def routes(state: AppState) -> list[BaseRoute]:
    """The routes under /v1."""
    return [
        Route("/v1/models", partial(list_models, state), methods=["GET"]),
        Route("/v1/models/{name:path}", partial(get_model, state), methods=["GET"]),
        Route("/v1/completions", partial(create_completion, state), methods=["POST"]),
        Route("/v1/chat/completions", partial(create_chat_completion, state), methods=["POST"]),
        Route("/v1/embeddings", partial(create_embeddings, state), methods=["POST"]),
    ]


# --- answers -------------------------------------------------------------------------------------

Part = Literal["whole", "first", "next"]  # of a text: all of it, or what is streamed


class Formatter:
    """Formats the texts of one response as OpenAI's JSON; `echoes` are put before them."""

    prefix: str  # of the response's id
    kind: str
    chunk_kind: str

    def __init__(
        self, model: str, fingerprint: str, *, has_logprobs: bool, echoes: Sequence[str] = ()
    ) -> None:
        self.has_logprobs, self.echoes = has_logprobs, echoes
        self._head: JsonObject = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }

    def choice(
        self, index: int, chunk: TextChunk, finish_reason: FinishReason | None, part: Part
    ) -> JsonObject:
        """A text, or a part of it."""
        raise NotImplementedError

    def begins_with_chunk(self, index: int) -> bool:
        """Whether a chunk is streamed before the text itself."""
        raise NotImplementedError

    def response(
        self, texts: Sequence[tuple[TextChunk, FinishReason]], usage: JsonObject
    ) -> JsonObject:
        """The whole response."""
        choices = [
            self.choice(i, chunk, reason, "whole") for i, (chunk, reason) in enumerate(texts)
        ]
        return {**self._head, "object": self.kind, "choices": choices, "usage": usage}

    def chunk(self, *choices: JsonObject) -> JsonObject:
        """A streamed chunk; the one with the usage holds no choices."""
        return {**self._head, "object": self.chunk_kind, "choices": choices}


class CompletionFormatter(Formatter):
    """Formats the responses of /v1/completions."""

    prefix = "cmpl"
    kind = chunk_kind = "text_completion"

    def begins_with_chunk(self, index: int) -> bool:
        return bool(self.echoes[index])

    def choice(
        self, index: int, chunk: TextChunk, finish_reason: FinishReason | None, part: Part
    ) -> JsonObject:
        return {
            "index": index,
            "text": chunk.text if part == "next" else self.echoes[index] + chunk.text,
            "logprobs": _logprob_lists(chunk.tokens) if self.has_logprobs else None,
            "finish_reason": finish_reason,
        }


class ChatFormatter(Formatter):
    """Formats the responses of /v1/chat/completions; the role comes with the first chunk."""

    prefix = "chatcmpl"
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def begins_with_chunk(self, index: int) -> bool:
        return True

    def choice(
        self, index: int, chunk: TextChunk, finish_reason: FinishReason | None, part: Part
    ) -> JsonObject:
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
        return {
            "index": index,
            "message" if part == "whole" else "delta": message,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }


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
            top = self.params.logprob_count or 0
            try:
                async with self.loaded.worker.generate(request) as stream:
                    tokenizer = self.loaded.model.tokenizer
                    text = DecodedStream(stream, tokenizer, self.params.stops, top=top)
                    async for chunk in text:
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
                    for i in filter(formatter.begins_with_chunk, range(len(self.requests))):
                        first = formatter.choice(i, TextChunk(""), None, "first")
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
    loaded = await _get_model(state, params.model)

    def prepare() -> _Task:
        tokenizer = loaded.model.tokenizer
        prompts = [
            encode_prompt(tokenizer, each) if isinstance(each, str) else each
            for each in params.prompts
        ]
        echoes = [
            (each if isinstance(each, str) else tokenizer.decode(each)) if params.echo else ""
            for each in params.prompts
            for _ in range(params.n)
        ]
        has_logprobs = params.logprobs is not None
        formatter = CompletionFormatter(
            loaded.name, _fingerprint(loaded), has_logprobs=has_logprobs, echoes=echoes
        )
        return _task(state, loaded, params, prompts, formatter, name="prompt")

    return await _respond(request, await state.run(prepare))


async def create_chat_completion(state: AppState, request: Request) -> Response:
    """Continue a conversation."""
    params = await read_body(state, request, ChatRequest)
    loaded = await _get_model(state, params.model)

    def prepare() -> _Task:
        prompt = encode_conversation(loaded.model.tokenizer, params.conversation)
        formatter = ChatFormatter(loaded.name, _fingerprint(loaded), has_logprobs=params.logprobs)
        return _task(state, loaded, params, [prompt], formatter, name="messages")

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


async def _get_model(state: AppState, name: str) -> LoadedModel:
    try:
        return await state.get_model(name)
    except ApiError as error:
        raise _no_such_model(error) if error.status == HTTPStatus.NOT_FOUND else error from None


def _no_such_model(error: ApiError) -> ApiError:
    code = "model_not_found"
    return ApiError(error.status, error.message, error.hint, param="model", code=code)


def _task(
    state: AppState,
    loaded: LoadedModel,
    params: GenerationParams,
    prompts: Sequence[Sequence[int]],
    formatter: Formatter,
    *,
    name: str,
) -> _Task:
    """The texts of a request. Raises ApiError if they are too many or the model cannot read it."""
    texts = len(prompts) * params.n
    if texts > state.settings.queue:
        raise invalid(
            f"the request asks for {texts} texts, but at most {state.settings.queue} are allowed",
            hint="ask for fewer, several times",
            param="n",
            code="integer_above_max_value",
        )
    context = loaded.worker.length
    for prompt in prompts:
        if len(prompt) > context:
            raise invalid(
                f"{name} has {len(prompt):,} tokens, but the model's context is {context:,}",
                hint="shorten it; its end matters most",
                param=name,
                code="context_length_exceeded",
            )
    requests = [x for prompt in prompts for x in _requests(loaded.model, prompt, params)]
    return _Task(loaded, params, requests, sum(map(len, prompts)), formatter)


def _requests(
    model: Model, prompt: Sequence[int], params: GenerationParams
) -> list[GenerationRequest]:
    """The engine's requests for one prompt, one per text."""
    sampling, top = params.sampling, params.logprob_count
    if sampling.bias and max(sampling.bias) >= model.tokenizer.vocabulary_size:
        raise invalid(
            f"logit_bias names the token {max(sampling.bias)}, but the model has only"
            f" {model.tokenizer.vocabulary_size:,}",
            hint="use the token ids of this model's tokenizer",
            param="logit_bias",
            code="invalid_value",
        )
    return [
        model.request(
            prompt,
            max_tokens=params.max_new_tokens,
            seed=seed,
            sampling=sampling,
            quote=not params.guard,
            # At least 1: with 0, the engine does not return the sampled token's logprob.
            logprobs=0 if top is None else max(1, top),
        )
        for seed in range(params.seed, params.seed + params.n)
    ]


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
        raise _unknown(name, "models: " + ", ".join(models))
    return json_response(models[name])


def _unknown(name: str, hint: str) -> ApiError:
    message = f"there is no model {name[:80]!r}"
    return _no_such_model(ApiError(HTTPStatus.NOT_FOUND, message, hint))


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
        raise _unknown(asked.model, f"{name} computes vectors here")
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
