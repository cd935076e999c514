"""POST /v1/completions and /v1/chat/completions: from a request to texts that are written."""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from ownwords.core.fingerprint import digest
from ownwords.core.version import __version__
from ownwords.serve.house import House
from ownwords.serve.openai import orders, prompts
from ownwords.serve.openai.body import parsed
from ownwords.serve.openai.following import Following
from ownwords.serve.openai.orders import Order
from ownwords.serve.openai.prompts import Prompt
from ownwords.serve.openai.refusals import invalid, no_such_model
from ownwords.serve.openai.shapes import Chats, Completions
from ownwords.serve.openai.writing import Answer, Shapes, Task
from ownwords.serve.opened import Opened
from ownwords.serve.refusing import Refused


async def completions(house: House, request: Request) -> Response:
    """Texts that go on from prompts."""
    data = await request.body()
    order = await house.run(lambda: orders.completion(parsed(data)))
    opened = await _opened(house, order.order.model)

    def read() -> Task:
        tokenizer = opened.model.tokenizer
        found = [prompts.of_prompt(tokenizer, given) for given in order.prompts]
        shown = [prompt.text if order.echo else "" for prompt in found]
        before = [text for text in shown for _ in range(order.order.texts)]
        has_chances = order.order.likeliest is not None
        shapes = Completions(opened.name, _fingerprint(opened), has_chances, before)
        return _task(house, opened, order.order, found, shapes, name="prompt")

    return Answer(await house.run(read))


async def chats(house: House, request: Request) -> Response:
    """What comes next in a conversation."""
    data = await request.body()
    order = await house.run(lambda: orders.chat(parsed(data)))
    opened = await _opened(house, order.order.model)

    def read() -> Task:
        prompt = prompts.of_conversation(opened.model.tokenizer, order.messages)
        has_chances = order.order.likeliest is not None
        shapes = Chats(opened.name, _fingerprint(opened), has_chances)
        return _task(house, opened, order.order, [prompt], shapes, name="messages")

    return Answer(await house.run(read))


async def _opened(house: House, name: str) -> Opened:
    try:
        return await house.opened(name)
    except Refused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise no_such_model(error.message, error.hint) from None


def _task(
    house: House,
    opened: Opened,
    order: Order,
    found: Sequence[Prompt],
    shapes: Shapes,
    *,
    name: str,
) -> Task:
    texts = len(found) * order.texts
    if texts > house.settings.queue:
        raise invalid(
            f"{texts} texts are asked for at once, and {house.settings.queue} are the most here",
            hint="ask for fewer, several times",
            param="n",
            code="integer_above_max_value",
        )
    tokenizer = opened.model.tokenizer
    for prompt in found:
        prompts.check_length(prompt, opened.pen.length, name)
    asked = [one for prompt in found for one in prompts.requests_of(opened.model, prompt, order)]
    return Task(
        pen=opened.pen,
        asked=asked,
        following=[
            Following(tokenizer, one.ids, order.stops, likeliest=order.likeliest or 0)
            for one in asked
        ],
        prompt_tokens=sum(len(prompt.ids) for prompt in found),
        shapes=shapes,
        streamed=order.streamed,
        tells_usage=order.tells_usage,
    )


def _fingerprint(opened: Opened) -> str:
    """Changes where the same seed may write something else: another model, engine or version."""
    return "fp_" + digest(repr(opened.stamp), opened.model.engine.name, __version__)[:12]
