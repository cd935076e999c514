"""What is asked for, read from the fields of a request: all that counts is taken or refused."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve.openai.errors import invalid, missing, unsupported
from ownwords.serve.openai.json_body import RequestBody, ids_of, number, wrong_kind

# As much as `ownwords write` writes. Theirs would be 16, which breaks off in the first sentence.
TOKENS: Final = 400
MOST_TOKENS: Final = 1 << 20  # of one text; the time a request may take ends it long before
MOST_TEXTS: Final = 128  # that one request can ask for: what they allow of `n`
MOST_LIKELIEST: Final = 20
_MOST_STOPS, _LONGEST_STOP = 16, 1000  # they allow 4
_SEEDS = 1 << 31
# Their limits. A top_p of 0 is one of them, and leaves the likeliest token alone.
_HOTTEST, _MOST_PENALTY, _MOST_BIAS = 2.0, 2.0, 100.0
_SMALLEST_SHARE = 1e-9


@dataclass(frozen=True)
class GenerationParams:
    """What is to be written on from each prompt, and how.

    `likeliest` is how many of the likeliest tokens are told with each, None where no chances are.
    """

    model: str
    tokens: int
    texts: int  # from each prompt
    sampling: SamplingParams
    seed: int
    stops: tuple[str, ...]
    likeliest: int | None
    streamed: bool
    tells_usage: bool  # at the end of a stream
    guarded: bool

    def seeds(self) -> range:
        """Of the texts of one prompt, whatever other prompts stand beside it."""
        return range(self.seed, self.seed + self.texts)


@dataclass(frozen=True)
class CompletionRequest:
    """A request for texts that go on from prompts, each a text or ids."""

    params: GenerationParams
    prompts: tuple[str | Sequence[int], ...]
    echo: bool


@dataclass(frozen=True)
class ChatRequest:
    """A request for what comes next in a conversation: messages with a role and their text."""

    params: GenerationParams
    messages: tuple[Mapping[str, str], ...]


def completion(given: Mapping[str, object]) -> CompletionRequest:
    """The order in the body of a request for completions."""
    fields = RequestBody(given)
    order = _order(fields, tokens=("max_tokens",))
    likeliest = fields.whole("logprobs", 0, MOST_LIKELIEST)
    echo = fields.yes("echo")
    if fields.text("suffix"):
        raise unsupported("suffix", "these models write on, and cannot fill a gap in a text")
    best_of = fields.whole("best_of", 1, MOST_TEXTS)
    if best_of is not None and best_of != order.texts:
        raise unsupported("best_of", "ask for n texts, and choose among them")
    if echo and likeliest is not None:
        raise unsupported(
            "echo", "with logprobs it would tell the chances of the prompt; ask for one of them"
        )
    prompts = _prompts(fields)
    return CompletionRequest(replace(order, likeliest=likeliest), prompts, echo)


def chat(given: Mapping[str, object]) -> ChatRequest:
    """The order in the body of a request for the next message of a chat."""
    fields = RequestBody(given)
    order = _order(fields, tokens=("max_completion_tokens", "max_tokens"))
    _refuse_what_no_writer_can(fields)
    likeliest = fields.whole("top_logprobs", 0, MOST_LIKELIEST)
    if fields.yes("logprobs"):
        likeliest = likeliest or 0
    elif likeliest is not None:
        raise invalid(
            "top_logprobs is only told with logprobs", hint='set "logprobs": true', param="logprobs"
        )
    return ChatRequest(replace(order, likeliest=likeliest), _messages(fields))


def _order(fields: RequestBody, *, tokens: Sequence[str]) -> GenerationParams:
    model = fields.needed("model")
    stream = fields.yes("stream")
    options = fields.section("stream_options")
    if fields.get("stream_options") is not None and not stream:
        raise invalid(
            "stream_options is only of use where stream is true",
            param="stream_options",
            code="invalid_value",
        )
    given = [each for name in tokens if (each := fields.whole(name, 0, MOST_TOKENS)) is not None]
    seed = fields.whole("seed", -(1 << 63), (1 << 63) - 1)
    return GenerationParams(
        model=model,
        tokens=given[0] if given else TOKENS,
        texts=fields.whole("n", 1, MOST_TEXTS) or 1,
        sampling=_sampling(fields),
        seed=secrets.randbelow(_SEEDS) if seed is None else seed,
        stops=_stops(fields),
        likeliest=None,
        streamed=stream,
        tells_usage=options.yes("include_usage"),
        guarded=fields.yes("guard", True),
    )


def _sampling(fields: RequestBody) -> SamplingParams:
    """How to choose; what is not said is as `ownwords write` has it."""
    top_p = fields.number("top_p", 0, 1)
    given = {
        "temperature": fields.number("temperature", 0, _HOTTEST),
        "top_p": None if top_p is None else max(top_p, _SMALLEST_SHARE),
        "presence_penalty": fields.number("presence_penalty", -_MOST_PENALTY, _MOST_PENALTY),
        "frequency_penalty": fields.number("frequency_penalty", -_MOST_PENALTY, _MOST_PENALTY),
        # Not in their API, and known by these names in others.
        "top_k": _top_k(fields),
        "min_p": fields.number("min_p", 0, 1),
        "typical_p": fields.number("typical_p", _SMALLEST_SHARE, 1),
        "repetition_penalty": fields.number("repetition_penalty", 1e-3, 1e3),
        "bias": _bias(fields),
    }
    # `replace` is told of fields by name, each of them of its own kind.
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(DEFAULT_SAMPLING, **chosen)  # type: ignore[arg-type]


def _top_k(fields: RequestBody) -> int | None:
    """So many of the likeliest; 0 and -1, as others write it, are all."""
    value = fields.whole("top_k", -1, 1 << 31)
    return None if value is None else max(0, value)


def _bias(fields: RequestBody) -> Mapping[int, float] | None:
    given = fields.get("logit_bias")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise wrong_kind("logit_bias", "an object of numbers by token id", given)
    found: dict[int, float] = {}
    for name, value in given.items():
        if not (name.isascii() and name.isdecimal() and len(name) < 10):
            raise invalid(
                f"logit_bias names {name[:40]!r}, and should name token ids",
                param="logit_bias",
                code="invalid_value",
            )
        found[int(name)] = number("logit_bias", value, -_MOST_BIAS, _MOST_BIAS)
    return found


def _stops(fields: RequestBody) -> tuple[str, ...]:
    given = fields.get("stop")
    stops = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(stops, list) or len(stops) > _MOST_STOPS:
        raise wrong_kind("stop", f"a string or a list of up to {_MOST_STOPS}", given)
    for stop in stops:
        if not isinstance(stop, str):
            raise wrong_kind("stop", "a string or a list of strings", stop)
        if not 0 < len(stop) <= _LONGEST_STOP:
            raise invalid(
                f"a stop string has 1 to {_LONGEST_STOP} characters, and one here has {len(stop)}",
                param="stop",
                code="invalid_value",
            )
    return tuple(stops)


def _prompts(fields: RequestBody) -> tuple[str | Sequence[int], ...]:
    """One prompt or several. None at all is how a new text begins."""
    given = fields.get("prompt")
    if given is None:
        return ("",)
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list):
        raise wrong_kind("prompt", "a string, or a list of strings or of token ids", given)
    match given:
        case []:
            raise invalid("prompt is an empty list", param="prompt", code="empty_array")
        case [str(), *_]:
            return tuple(_all_texts(given, "prompt"))
        case [list(), *_]:
            return tuple(ids_of(one, "prompt") for one in given)
    return (ids_of(given, "prompt"),)


def _all_texts(given: Sequence[object], name: str) -> list[str]:
    for one in given:
        if not isinstance(one, str):
            raise wrong_kind(name, "a list of strings", one)
    return [one for one in given if isinstance(one, str)]


# --- chat --------------------------------------------------------------------------------------

_ROLES = ("system", "developer", "user", "assistant")


def _messages(fields: RequestBody) -> tuple[Mapping[str, str], ...]:
    given = fields.get("messages")
    if given is None:
        raise missing("messages")
    if not isinstance(given, list):
        raise wrong_kind("messages", "a list of messages", given)
    if not given:
        raise invalid(
            "messages is an empty list, and there is nothing to answer",
            param="messages",
            code="empty_array",
        )
    return tuple(_message(one, f"messages[{n}]") for n, one in enumerate(given))


def _message(given: object, where: str) -> Mapping[str, str]:
    if not isinstance(given, dict):
        raise wrong_kind(where, "an object with a role and content", given)
    fields = RequestBody(given)
    role = given.get("role")
    if role in ("tool", "function") or given.get("tool_calls") or given.get("function_call"):
        raise unsupported(where, "these models call no tools, and cannot read what one answered")
    if not isinstance(role, str):
        raise wrong_kind(f"{where}.role", "a string", role)
    if role not in _ROLES:
        raise invalid(
            f"{where}.role should be one of {', '.join(_ROLES)}, and is {role[:40]!r}",
            param=f"{where}.role",
            code="invalid_value",
        )
    # What they call developer now is what templates know as system.
    role = "system" if role == "developer" else role
    return {"role": role, "content": _content(fields.get("content"), f"{where}.content")}


def _content(given: object, where: str) -> str:
    """The text of a message, given as it is or in parts."""
    if isinstance(given, str):
        return given
    if given is None:
        raise missing(where)
    if not isinstance(given, list):
        raise wrong_kind(where, "a string or a list of parts", given)
    texts = []
    for n, part in enumerate(given):
        if not isinstance(part, dict):
            raise wrong_kind(f"{where}[{n}]", "an object with a type", part)
        kind = part.get("type")
        if kind not in ("text", "refusal"):
            raise unsupported(f"{where}[{n}]", "these models read nothing but text")
        text = part.get(kind)
        if not isinstance(text, str):
            raise wrong_kind(f"{where}[{n}].{kind}", "a string", text)
        texts.append(text)
    return "".join(texts)


def _refuse_what_no_writer_can(fields: RequestBody) -> None:
    if fields.get("tools") or fields.get("functions"):
        name = "tools" if fields.get("tools") else "functions"
        raise unsupported(name, "these models call no tools")
    for name in ("tool_choice", "function_call"):
        if fields.get(name) not in (None, "none", "auto"):
            raise unsupported(name, "these models call no tools")
    form = fields.section("response_format").get("type")
    if form not in (None, "text"):
        raise unsupported("response_format", "what these models write is text, in no other form")
    if fields.get("modalities") not in (None, ["text"]) or fields.get("audio"):
        raise unsupported("modalities", "these models write text, and nothing else")
    if fields.get("web_search_options") is not None:
        raise unsupported("web_search_options", "nothing is looked up anywhere")
