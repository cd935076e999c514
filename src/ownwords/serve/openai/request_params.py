"""The requests of OpenAI's API: fields that affect the answer are used or refused.

Names and bounds are OpenAI's. Samplers that its API lacks have the names that other servers use.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from ownwords.core.validation import Meta
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve.errors import ApiError, invalid
from ownwords.serve.json_api import wrong_type

# As in `ownwords write`; OpenAI's default of 16 ends within the first sentence.
DEFAULT_TOKENS: Final = 400
_MAX_STOPS, _MAX_STOP_LENGTH = 16, 1000  # OpenAI allows up to 4
_MIN_SHARE = 1e-9  # replaces a top_p of 0, which is valid and keeps only the likeliest token

_Tokens = Annotated[int, Meta(ge=0, le=1 << 20)]
_Texts = Annotated[int, Meta(ge=1, le=128)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
_Bias = Annotated[float, Meta(ge=-100, le=100)]


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
    typical_p: Annotated[float, Meta(ge=_MIN_SHARE, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=1e-3, le=1e3)] | None = None
    guard: bool = True

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
            "typical_p": self.typical_p,
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
        if self.suffix:
            raise unsupported("suffix", "these models continue a text, and cannot fill a gap")
        if self.best_of not in (None, self.n):
            raise unsupported("best_of", "ask for n texts, and choose among them")
        if self.echo and self.logprobs is not None:
            raise unsupported("echo", "with logprobs it would need those of the prompt")
        _ = self.prompts

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
