"""POST /v1/completions and /v1/chat/completions: from a request to texts that are written."""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from ownwords.core.fingerprint import digest
from ownwords.core.version import __version__
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.serve.loaded_model import LoadedModel
from ownwords.serve.openai import prompts, request_params
from ownwords.serve.openai.errors import invalid, no_such_model
from ownwords.serve.openai.formatters import ChatFormatter, CompletionFormatter
from ownwords.serve.openai.generation import Formatter, GenerationResponse, GenerationTask
from ownwords.serve.openai.json_body import parsed
from ownwords.serve.openai.prompts import TokenizedPrompt
from ownwords.serve.openai.request_params import GenerationParams
from ownwords.serve.openai.stream_decoder import StreamDecoder


async def completions(state: AppState, request: Request) -> Response:
    """Texts that go on from prompts."""
    data = await request.body()
    order = await state.run(lambda: request_params.completion(parsed(data)))
    opened = await _opened(state, order.params.model)

    def read() -> GenerationTask:
        tokenizer = opened.model.tokenizer
        found = [prompts.of_prompt(tokenizer, given) for given in order.prompts]
        shown = [prompt.text if order.echo else "" for prompt in found]
        before = [text for text in shown for _ in range(order.params.texts)]
        has_chances = order.params.likeliest is not None
        shapes = CompletionFormatter(opened.name, _fingerprint(opened), has_chances, before)
        return _task(state, opened, order.params, found, shapes, name="prompt")

    return GenerationResponse(await state.run(read))


async def chats(state: AppState, request: Request) -> Response:
    """What comes next in a conversation."""
    data = await request.body()
    order = await state.run(lambda: request_params.chat(parsed(data)))
    opened = await _opened(state, order.params.model)

    def read() -> GenerationTask:
        prompt = prompts.of_conversation(opened.model.tokenizer, order.messages)
        has_chances = order.params.likeliest is not None
        shapes = ChatFormatter(opened.name, _fingerprint(opened), has_chances)
        return _task(state, opened, order.params, [prompt], shapes, name="messages")

    return GenerationResponse(await state.run(read))


async def _opened(state: AppState, name: str) -> LoadedModel:
    try:
        return await state.opened(name)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise no_such_model(error.message, error.hint) from None


def _task(
    state: AppState,
    opened: LoadedModel,
    order: GenerationParams,
    found: Sequence[TokenizedPrompt],
    shapes: Formatter,
    *,
    name: str,
) -> GenerationTask:
    texts = len(found) * order.texts
    if texts > state.settings.queue:
        raise invalid(
            f"{texts} texts are asked for at once, and {state.settings.queue} are the most here",
            hint="ask for fewer, several times",
            param="n",
            code="integer_above_max_value",
        )
    tokenizer = opened.model.tokenizer
    for prompt in found:
        prompts.check_length(prompt, opened.worker.length, name)
    asked = [one for prompt in found for one in prompts.requests_of(opened.model, prompt, order)]
    return GenerationTask(
        worker=opened.worker,
        asked=asked,
        following=[
            StreamDecoder(tokenizer, one.ids, order.stops, likeliest=order.likeliest or 0)
            for one in asked
        ],
        prompt_tokens=sum(len(prompt.ids) for prompt in found),
        shapes=shapes,
        streamed=order.streamed,
        tells_usage=order.tells_usage,
    )


def _fingerprint(opened: LoadedModel) -> str:
    """Changes where the same seed may write something else: another model, engine or version."""
    return "fp_" + digest(repr(opened.stamp), opened.model.engine.name, __version__)[:12]
