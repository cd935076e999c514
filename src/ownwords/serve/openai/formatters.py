"""Formats completions, chats and their chunks as JSON in OpenAI's format."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ownwords.inference.generation import FinishReason
from ownwords.serve.stream_decoder import SampledToken, TextChunk, TokenLogprob

JsonObject = dict[str, object]


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


@dataclass(frozen=True)
class CompletionFormatter:
    """Formats the responses of /v1/completions; `prefixes` are put before each text."""

    model: str
    fingerprint: str
    has_logprobs: bool
    prefixes: Sequence[str]
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def response(
        self, texts: Sequence[tuple[TextChunk, FinishReason]], usage: CompletionUsage
    ) -> JsonObject:
        """The whole response."""
        choices = [
            self._choice(i, self.prefixes[i], chunk, finish_reason)
            for i, (chunk, finish_reason) in enumerate(texts)
        ]
        return self._object(choices) | {"usage": usage.to_dict()}

    def first_chunk(self, index: int) -> JsonObject | None:
        """The chunk that is streamed before a text, if any."""
        if not self.prefixes[index]:
            return None
        return self._object([self._choice(index, self.prefixes[index], TextChunk(""), None)])

    def chunk(self, index: int, chunk: TextChunk, finish_reason: FinishReason | None) -> JsonObject:
        """A streamed chunk of one text."""
        return self._object([self._choice(index, "", chunk, finish_reason)])

    def usage_chunk(self, usage: CompletionUsage) -> JsonObject:
        """The last chunk of a stream with usage."""
        return self._object([]) | {"usage": usage.to_dict()}

    def _object(self, choices: Sequence[JsonObject]) -> JsonObject:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

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


@dataclass(frozen=True)
class ChatFormatter:
    """Formats the responses of /v1/chat/completions."""

    model: str
    fingerprint: str
    has_logprobs: bool
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def response(
        self, texts: Sequence[tuple[TextChunk, FinishReason]], usage: CompletionUsage
    ) -> JsonObject:
        """The whole response."""
        choices: list[JsonObject] = [
            {
                "index": i,
                "message": {"role": "assistant", "content": chunk.text, "refusal": None},
                "logprobs": self._logprobs(chunk),
                "finish_reason": finish_reason,
            }
            for i, (chunk, finish_reason) in enumerate(texts)
        ]
        return self._object("chat.completion", choices) | {"usage": usage.to_dict()}

    def first_chunk(self, index: int) -> JsonObject | None:
        """The chunk with the role, which is streamed before a text."""
        return self._chunk(index, {"role": "assistant", "content": "", "refusal": None}, None, None)

    def chunk(self, index: int, chunk: TextChunk, finish_reason: FinishReason | None) -> JsonObject:
        """A streamed chunk of one text."""
        delta: JsonObject = {"content": chunk.text} if chunk.text else {}
        logprobs = self._logprobs(chunk) if chunk.tokens else None
        return self._chunk(index, delta, logprobs, finish_reason)

    def usage_chunk(self, usage: CompletionUsage) -> JsonObject:
        """The last chunk of a stream with usage."""
        return self._object("chat.completion.chunk", []) | {"usage": usage.to_dict()}

    def _chunk(
        self,
        index: int,
        delta: JsonObject,
        logprobs: JsonObject | None,
        finish_reason: FinishReason | None,
    ) -> JsonObject:
        choice: JsonObject = {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return self._object("chat.completion.chunk", [choice])

    def _object(self, kind: str, choices: Sequence[JsonObject]) -> JsonObject:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

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
