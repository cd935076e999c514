"""What is answered: completions, chats and their chunks, as OpenAI's clients read them."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ownwords.inference.generation import FinishReason
from ownwords.serve.openai.stream_decoder import DecodedChunk, SampledToken, TokenLogprob

JsonObject = dict[str, object]


@dataclass(frozen=True)
class TokenUsage:
    """Tokens read and written; a prompt counts once, however many texts go on from it."""

    prompt: int
    written: int

    def shape(self) -> JsonObject:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.written,
            "total_tokens": self.prompt + self.written,
        }


@dataclass(frozen=True)
class CompletionFormatter:
    """What the answers of /v1/completions look like. `before` is shown before each of the texts."""

    model: str
    fingerprint: str
    has_chances: bool
    before: Sequence[str]
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(
        self, texts: Sequence[tuple[DecodedChunk, FinishReason]], usage: TokenUsage
    ) -> JsonObject:
        """The answer all at once."""
        choices = [
            self._choice(n, self.before[n], piece, finished)
            for n, (piece, finished) in enumerate(texts)
        ]
        return {**self._head(), "choices": choices, "usage": usage.shape()}

    def first(self, n: int) -> JsonObject | None:
        """What is sent before the first piece of a text, if anything."""
        if not self.before[n]:
            return None
        return self._chunk(self._choice(n, self.before[n], DecodedChunk(""), None))

    def chunk(self, n: int, piece: DecodedChunk, finished: FinishReason | None) -> JsonObject:
        """A piece of one text."""
        return self._chunk(self._choice(n, "", piece, finished))

    def last(self, usage: TokenUsage) -> JsonObject:
        """The end of a stream, where it is to tell what was used."""
        return {**self._head(), "choices": [], "usage": usage.shape()}

    def _chunk(self, choice: JsonObject) -> JsonObject:
        return {**self._head(), "choices": [choice]}

    def _head(self) -> JsonObject:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def _choice(
        self, n: int, before: str, piece: DecodedChunk, finished: FinishReason | None
    ) -> JsonObject:
        chances = _by_lists(piece.tokens, len(self.before[n])) if self.has_chances else None
        return {
            "index": n,
            "text": before + piece.text,
            "logprobs": chances,
            "finish_reason": finished,
        }


@dataclass(frozen=True)
class ChatFormatter:
    """What the answers of /v1/chat/completions look like."""

    model: str
    fingerprint: str
    has_chances: bool
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(
        self, texts: Sequence[tuple[DecodedChunk, FinishReason]], usage: TokenUsage
    ) -> JsonObject:
        """The answer all at once."""
        choices = [
            {
                "index": n,
                "message": {"role": "assistant", "content": piece.text, "refusal": None},
                "logprobs": self._chances(piece),
                "finish_reason": finished,
            }
            for n, (piece, finished) in enumerate(texts)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": usage.shape()}

    def first(self, n: int) -> JsonObject | None:
        """What is sent before the first piece of a text: who speaks."""
        delta: JsonObject = {"role": "assistant", "content": "", "refusal": None}
        return self._chunk(n, delta, None, None)

    def chunk(self, n: int, piece: DecodedChunk, finished: FinishReason | None) -> JsonObject:
        """A piece of one text."""
        delta: JsonObject = {"content": piece.text} if piece.text else {}
        return self._chunk(n, delta, self._chances(piece) if piece.tokens else None, finished)

    def last(self, usage: TokenUsage) -> JsonObject:
        """The end of a stream, where it is to tell what was used."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage.shape()}

    def _chunk(
        self, n: int, delta: JsonObject, chances: JsonObject | None, end: FinishReason | None
    ) -> JsonObject:
        choice = {"index": n, "delta": delta, "logprobs": chances, "finish_reason": end}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> JsonObject:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def _chances(self, piece: DecodedChunk) -> JsonObject | None:
        if not self.has_chances:
            return None
        told = [
            {**_by_name(token.own), "top_logprobs": [_by_name(each) for each in token.likeliest]}
            for token in piece.tokens
        ]
        return {"content": told, "refusal": None}


def _by_name(chance: TokenLogprob) -> JsonObject:
    # A part of a character has no name of its own; its bytes are written out, as they do it.
    name = chance.data.decode("utf-8", "backslashreplace")
    return {"token": name, "logprob": chance.logprob, "bytes": list(chance.data)}


def _by_lists(tokens: Sequence[SampledToken], begin: int) -> Mapping[str, object]:
    """The chances as the older interface tells them; offsets are characters of the text shown."""
    return {
        "tokens": [_name(token.own) for token in tokens],
        "token_logprobs": [token.own.logprob for token in tokens],
        "top_logprobs": [
            {_name(each): each.logprob for each in (*token.likeliest, token.own)}
            for token in tokens
        ],
        "text_offset": [begin + token.begin for token in tokens],
    }


def _name(chance: TokenLogprob) -> str:
    try:
        return chance.data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in chance.data)
