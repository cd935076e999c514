"""The endpoints POST /v1/completions and POST /v1/chat/completions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Protocol

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.version import __version__
from ownwords.inference import generation
from ownwords.inference.generation import FinishReason
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, error_response, invalid, no_such_model
from ownwords.serve.json_body import read_body
from ownwords.serve.loaded_model import LoadedModel
from ownwords.serve.openai import prompts
from ownwords.serve.openai.formatters import (
    ChatFormatter,
    CompletionFormatter,
    CompletionUsage,
    JsonObject,
)
from ownwords.serve.openai.prompts import TokenizedPrompt
from ownwords.serve.openai.request_params import ChatRequest, CompletionRequest, GenerationParams
from ownwords.serve.sse import EventSender, EventStreamResponse, run_until_disconnect, to_json
from ownwords.serve.stream_decoder import DecodedStream, TextChunk, join_chunks


class Formatter(Protocol):
    """Formats responses as the JSON of one of the two APIs."""

    def response(
        self, texts: Sequence[tuple[TextChunk, FinishReason]], usage: CompletionUsage
    ) -> JsonObject: ...
    def first_chunk(self, index: int) -> JsonObject | None: ...
    def chunk(
        self, index: int, chunk: TextChunk, finish_reason: FinishReason | None
    ) -> JsonObject: ...
    def usage_chunk(self, usage: CompletionUsage) -> JsonObject: ...


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
        tokenized = [prompts.tokenize_prompt(tokenizer, prompt) for prompt in params.prompts]
        echoes = [prompt.text if params.echo else "" for prompt in tokenized]
        formatter = CompletionFormatter(
            loaded.name,
            _fingerprint(loaded),
            params.logprobs is not None,
            prefixes=[echo for echo in echoes for _ in range(params.n)],
        )
        return _task(state, loaded, params, tokenized, formatter, name="prompt")

    return _respond(await state.run(prepare))


async def create_chat_completion(state: AppState, request: Request) -> Response:
    """Continue a conversation."""
    params = await read_body(state, request, ChatRequest)
    loaded = await _get_model(state, params.model)

    def prepare() -> GenerationTask:
        prompt = prompts.tokenize_conversation(loaded.model.tokenizer, params.conversation)
        formatter = ChatFormatter(loaded.name, _fingerprint(loaded), params.logprobs)
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
        prompts.check_length(prompt, loaded.worker.length, name)
    return GenerationTask(
        loaded,
        params,
        [x for prompt in tokenized for x in prompts.engine_requests(loaded.model, prompt, params)],
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
