"""POST /v1/completions and POST /v1/chat/completions: from the prompt to OpenAI's JSON."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import ClassVar, Protocol

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.version import __version__
from ownwords.inference import generation
from ownwords.inference.generation import FinishReason, GenerationRequest
from ownwords.inference.model import Model
from ownwords.inference.text_generation import encode_prompt
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, error_response, invalid, no_such_model
from ownwords.serve.json_api import read_body
from ownwords.serve.model_worker import (
    DecodedStream,
    LoadedModel,
    SampledToken,
    TextChunk,
    TokenLogprob,
    join_chunks,
)
from ownwords.serve.openai.request_params import ChatRequest, CompletionRequest, GenerationParams
from ownwords.serve.sse import EventSender, EventStreamResponse, run_until_disconnect, to_json
from ownwords.tokenizers import chat
from ownwords.tokenizers.tokenizer import Tokenizer

JsonObject = dict[str, object]


# --- prompts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenizedPrompt:
    """A prompt as token ids and as text."""

    ids: Sequence[int]
    text: str


def tokenize_prompt(tokenizer: Tokenizer, prompt: str | Sequence[int]) -> TokenizedPrompt:
    """Tokenize a prompt given as text or as token ids, which must be in the vocabulary."""
    if isinstance(prompt, str):
        return TokenizedPrompt(encode_prompt(tokenizer, prompt), prompt)
    return TokenizedPrompt(prompt, tokenizer.decode(prompt))


def tokenize_conversation(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]
) -> TokenizedPrompt:
    """Tokenize a conversation with the model's chat template, or as plain text without one.

    As plain text, the messages follow each other, with a blank line before each except the
    assistant's, which continue the message before.
    """
    if tokenizer.template is not None:
        return TokenizedPrompt(chat.encode(tokenizer, messages, add_generation_prompt=True), "")
    text = ""
    for message in messages:
        if text and message["role"] != "assistant":
            text += "\n\n"
        text += message["content"]
    return tokenize_prompt(tokenizer, text)


def engine_requests(
    model: Model, prompt: TokenizedPrompt, params: GenerationParams
) -> list[GenerationRequest]:
    """Create the engine's requests for one prompt, one per text."""
    bias = params.sampling.bias
    if bias and max(bias) >= model.tokenizer.vocabulary_size:
        raise invalid(
            f"logit_bias names the token {max(bias)}, but the model has only"
            f" {model.tokenizer.vocabulary_size:,}",
            hint="use the token ids of this model's tokenizer",
            param="logit_bias",
            code="invalid_value",
        )
    top = params.logprob_count
    return [
        model.request(
            prompt.ids,
            max_tokens=params.max_new_tokens,
            seed=seed,
            sampling=params.sampling,
            quote=not params.guard,
            # At least 1: with 0, the engine does not return the sampled token's logprob.
            logprobs=0 if top is None else max(1, top),
        )
        for seed in params.seeds
    ]


def check_length(prompt: TokenizedPrompt, context: int, name: str) -> None:
    """Raise ApiError if the prompt is longer than the context."""
    if len(prompt.ids) > context:
        raise invalid(
            f"{name} has {len(prompt.ids):,} tokens, but the model's context is {context:,}",
            hint="shorten it; its end matters most",
            param=name,
            code="context_length_exceeded",
        )


# --- answers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompletionUsage:
    """Token counts of a request; a prompt counts once for all of its texts."""

    prompt: int
    completion: int

    def to_dict(self) -> JsonObject:
        """Convert to OpenAI's `usage` object."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }


@dataclass(frozen=True, kw_only=True)
class Formatter:
    """Formats responses as the JSON of one of the two APIs."""

    model: str
    fingerprint: str
    has_logprobs: bool
    id: str
    created: int = field(default_factory=lambda: int(time.time()))
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def response(
        self, texts: Sequence[tuple[TextChunk, FinishReason]], usage: CompletionUsage
    ) -> JsonObject:
        """The whole response."""
        choices = [self.choice(i, chunk, reason) for i, (chunk, reason) in enumerate(texts)]
        return self._object(self.kind, choices) | {"usage": usage.to_dict()}

    def choice(self, index: int, chunk: TextChunk, finish_reason: FinishReason) -> JsonObject:
        """A whole text within the response."""
        raise NotImplementedError

    def first_chunk(self, index: int) -> JsonObject | None:
        """The chunk that is streamed before a text, if any."""
        raise NotImplementedError

    def chunk(self, index: int, chunk: TextChunk, finish_reason: FinishReason | None) -> JsonObject:
        """A streamed chunk of one text."""
        raise NotImplementedError

    def usage_chunk(self, usage: CompletionUsage) -> JsonObject:
        """The last chunk of a stream with usage."""
        return self._object(self.chunk_kind, []) | {"usage": usage.to_dict()}

    def _object(self, kind: str, choices: Sequence[JsonObject]) -> JsonObject:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


@dataclass(frozen=True, kw_only=True)
class CompletionFormatter(Formatter):
    """Formats the responses of /v1/completions; `prefixes` are put before each text."""

    prefixes: Sequence[str]
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    kind = chunk_kind = "text_completion"

    def choice(self, index: int, chunk: TextChunk, finish_reason: FinishReason) -> JsonObject:
        return self._choice(index, self.prefixes[index], chunk, finish_reason)

    def first_chunk(self, index: int) -> JsonObject | None:
        if not self.prefixes[index]:
            return None
        choice = self._choice(index, self.prefixes[index], TextChunk(""), None)
        return self._object(self.chunk_kind, [choice])

    def chunk(self, index: int, chunk: TextChunk, finish_reason: FinishReason | None) -> JsonObject:
        return self._object(self.chunk_kind, [self._choice(index, "", chunk, finish_reason)])

    def _choice(
        self, index: int, prefix: str, chunk: TextChunk, finish_reason: FinishReason | None
    ) -> JsonObject:
        logprobs = None
        if self.has_logprobs:
            logprobs = _logprob_lists(chunk.tokens, len(self.prefixes[index]))
        return {
            "index": index,
            "text": prefix + chunk.text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }


@dataclass(frozen=True, kw_only=True)
class ChatFormatter(Formatter):
    """Formats the responses of /v1/chat/completions."""

    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def choice(self, index: int, chunk: TextChunk, finish_reason: FinishReason) -> JsonObject:
        message: JsonObject = {"role": "assistant", "content": chunk.text, "refusal": None}
        return self._choice(index, "message", message, self._logprobs(chunk), finish_reason)

    def first_chunk(self, index: int) -> JsonObject | None:
        """The chunk with the role."""
        delta: JsonObject = {"role": "assistant", "content": "", "refusal": None}
        return self._object(self.chunk_kind, [self._choice(index, "delta", delta, None, None)])

    def chunk(self, index: int, chunk: TextChunk, finish_reason: FinishReason | None) -> JsonObject:
        delta: JsonObject = {"content": chunk.text} if chunk.text else {}
        logprobs = self._logprobs(chunk) if chunk.tokens else None
        choice = self._choice(index, "delta", delta, logprobs, finish_reason)
        return self._object(self.chunk_kind, [choice])

    def _choice(
        self,
        index: int,
        field_name: str,
        message: JsonObject,
        logprobs: JsonObject | None,
        finish_reason: FinishReason | None,
    ) -> JsonObject:
        text = {"index": index, field_name: message, "logprobs": logprobs}
        return {**text, "finish_reason": finish_reason}

    def _logprobs(self, chunk: TextChunk) -> JsonObject | None:
        if not self.has_logprobs:
            return None
        content = [
            _logprob_object(token.sampled)
            | {"top_logprobs": [_logprob_object(x) for x in token.top]}
            for token in chunk.tokens
        ]
        return {"content": content, "refusal": None}


def _logprob_object(token: TokenLogprob) -> JsonObject:
    # An incomplete character has no text; OpenAI escapes its bytes.
    text = token.data.decode("utf-8", "backslashreplace")
    return {"token": text, "logprob": token.logprob, "bytes": list(token.data)}


def _logprob_lists(tokens: Sequence[SampledToken], start: int) -> JsonObject:
    """Logprobs in the older API's format; offsets count characters of the response's text."""
    return {
        "tokens": [_token_text(token.sampled) for token in tokens],
        "token_logprobs": [token.sampled.logprob for token in tokens],
        "top_logprobs": [
            {_token_text(x): x.logprob for x in (*token.top, token.sampled)} for token in tokens
        ],
        "text_offset": [start + token.offset for token in tokens],
    }


def _token_text(token: TokenLogprob) -> str:
    try:
        return token.data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.data)


# --- generation ----------------------------------------------------------------------------------


class ChunkHandler(Protocol):
    """Handles a chunk of the text with this index; the last one comes with the finish reason."""

    async def __call__(
        self, index: int, chunk: TextChunk, finish_reason: FinishReason | None
    ) -> None: ...


@dataclass(frozen=True)
class GenerationTask:
    """Generates all texts of one request."""

    loaded: LoadedModel
    params: GenerationParams
    requests: Sequence[generation.GenerationRequest]
    prompt_tokens: int
    formatter: Formatter

    async def run(self, handle: ChunkHandler) -> CompletionUsage:
        """Generate all texts concurrently. Raises TooManyRequestsError if the queue is too full."""
        tokens = 0
        errors: list[OwnwordsError] = []

        async def generate(index: int, request: generation.GenerationRequest) -> None:
            nonlocal tokens
            try:
                async with self.loaded.worker.generate(request) as stream:
                    text = DecodedStream(
                        stream,
                        self.loaded.model.tokenizer,
                        self.params.stops,
                        top=self.params.logprob_count or 0,
                    )
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
        return CompletionUsage(self.prompt_tokens, tokens)


async def create_completion(state: AppState, request: Request) -> Response:
    """Continue one or several prompts."""
    params = await read_body(state, request, CompletionRequest)
    loaded = await _get_model(state, params.model)

    def prepare() -> GenerationTask:
        tokenizer = loaded.model.tokenizer
        tokenized = [tokenize_prompt(tokenizer, prompt) for prompt in params.prompts]
        echoes = [prompt.text if params.echo else "" for prompt in tokenized]
        formatter = CompletionFormatter(
            model=loaded.name,
            fingerprint=_fingerprint(loaded),
            has_logprobs=params.logprobs is not None,
            prefixes=[echo for echo in echoes for _ in range(params.n)],
        )
        return _task(state, loaded, params, tokenized, formatter, name="prompt")

    return _respond(await state.run(prepare))


async def create_chat_completion(state: AppState, request: Request) -> Response:
    """Continue a conversation."""
    params = await read_body(state, request, ChatRequest)
    loaded = await _get_model(state, params.model)

    def prepare() -> GenerationTask:
        prompt = tokenize_conversation(loaded.model.tokenizer, params.conversation)
        formatter = ChatFormatter(
            model=loaded.name, fingerprint=_fingerprint(loaded), has_logprobs=params.logprobs
        )
        return _task(state, loaded, params, [prompt], formatter, name="messages")

    return _respond(await state.run(prepare))


async def _get_model(state: AppState, name: str) -> LoadedModel:
    try:
        return await state.get_model(name)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise no_such_model(error.message, error.hint) from None


def _task(
    state: AppState,
    loaded: LoadedModel,
    params: GenerationParams,
    tokenized: Sequence[TokenizedPrompt],
    formatter: Formatter,
    *,
    name: str,
) -> GenerationTask:
    texts = len(tokenized) * params.n
    if texts > state.settings.queue:
        raise invalid(
            f"the request asks for {texts} texts, but at most {state.settings.queue} are allowed",
            hint="ask for fewer, several times",
            param="n",
            code="integer_above_max_value",
        )
    for prompt in tokenized:
        check_length(prompt, loaded.worker.length, name)
    return GenerationTask(
        loaded,
        params,
        [x for prompt in tokenized for x in engine_requests(loaded.model, prompt, params)],
        prompt_tokens=sum(len(prompt.ids) for prompt in tokenized),
        formatter=formatter,
    )


def _respond(task: GenerationTask) -> Response:
    if task.params.stream:
        return EventStreamResponse(partial(_stream, task))
    return _JsonResponse(task)


class _JsonResponse(Response):
    """A response with all texts; generation is cancelled if the client disconnects."""

    def __init__(self, task: GenerationTask) -> None:
        super().__init__()
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def work() -> None:
            try:
                body = to_json(await _generate_all(self._task))
            except OwnwordsError as error:
                response: Response = error_response(str(scope["path"]), error)
            else:
                response = Response(body, media_type="application/json")
            await response(scope, receive, send)

        await run_until_disconnect(receive, work)


async def _generate_all(task: GenerationTask) -> JsonObject:
    chunks: list[list[TextChunk]] = [[] for _ in task.requests]
    finish_reasons: list[FinishReason] = ["length" for _ in task.requests]

    async def collect(index: int, chunk: TextChunk, finish_reason: FinishReason | None) -> None:
        chunks[index].append(chunk)
        if finish_reason is not None:
            finish_reasons[index] = finish_reason

    usage = await task.run(collect)
    texts = list(zip(map(join_chunks, chunks), finish_reasons, strict=True))
    return task.formatter.response(texts, usage)


async def _stream(task: GenerationTask, events: EventSender) -> None:
    formatter, is_begun = task.formatter, anyio.Lock()
    no_usage: JsonObject = {"usage": None} if task.params.include_usage else {}

    async def send(index: int, chunk: TextChunk, finish_reason: FinishReason | None) -> None:
        async with is_begun:  # send the first chunks of all texts before any other
            if not events.has_started:
                for i in range(len(task.requests)):
                    if (first := formatter.first_chunk(i)) is not None:
                        await events.send({**first, **no_usage})
        await events.send({**formatter.chunk(index, chunk, finish_reason), **no_usage})

    usage = await task.run(send)
    if task.params.include_usage:
        await events.send(formatter.usage_chunk(usage))
    await events.send_bytes(b"data: [DONE]\n\n")


def _fingerprint(loaded: LoadedModel) -> str:
    """A hash of the model, engine and version: with the same one, a seed gives the same text."""
    engine = loaded.model.engine.name
    return "fp_" + digest(repr(loaded.stamp), engine, __version__)[:12]
