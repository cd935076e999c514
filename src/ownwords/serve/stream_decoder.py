"""Decodes generated tokens to text: whole characters, up to a stop string, with logprobs."""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ownwords.inference.detokenizer import IncrementalDetokenizer
from ownwords.inference.generation import FinishReason, GeneratedToken
from ownwords.serve.model_worker import GenerationStream
from ownwords.tokenizers.tokenizer import Tokenizer

_LOWEST_LOGPROB = -9999.0  # OpenAI's value for -inf, which JSON lacks


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's bytes and its log probability."""

    data: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A sampled token, the most likely tokens at its position, and its offset in the text."""

    sampled: TokenLogprob
    top: tuple[TokenLogprob, ...]
    offset: int  # in characters from the start of the generated text


@dataclass(frozen=True, slots=True)
class TextChunk:
    """The next part of a text; `tokens` is empty unless logprobs were requested."""

    text: str
    tokens: tuple[SampledToken, ...] = ()
    ids: tuple[int, ...] = ()  # all tokens read so far; the text of the last ones may be held back

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


class StreamDecoder:
    """Decodes one text token by token, aligning the tokens' logprobs with the text.

    A token is returned with its first character; tokens of a stop string are not returned.
    """

    def __init__(
        self, tokenizer: Tokenizer, ids: Sequence[int], stops: Sequence[str], *, top: int = 0
    ) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer, ids, stops)
        self._top = top
        self._shown = 0  # characters
        self._pending: deque[SampledToken] = deque()
        self._gaps = frozenset(tokenizer.gaps)

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found, which ends the text."""
        return self._detokenizer.stop is not None

    def feed(self, token: GeneratedToken) -> TextChunk:
        """Decode the next token; return the text that no later token can change."""
        if token.logprob is not None:
            top = tuple(
                self._logprob(i, logprob)
                for i, logprob in token.alternatives[: self._top]
                if i not in self._gaps
            )
            sampled = self._logprob(token.id, token.logprob)
            self._pending.append(SampledToken(sampled, top, self._detokenizer.characters))
        return self._chunk(self._detokenizer.feed(token.id))

    def finish(self) -> TextChunk:
        """Return the text that was held back, at the end of a text without a stop string."""
        chunk = self._chunk(self._detokenizer.finish())
        if self.is_stopped:
            return chunk
        tokens = (*chunk.tokens, *self._pending)
        self._pending.clear()
        return TextChunk(chunk.text, tokens)

    def _logprob(self, token: int, logprob: float) -> TokenLogprob:
        return TokenLogprob(self._detokenizer.bytes_of(token), max(_LOWEST_LOGPROB, logprob))

    def _chunk(self, text: str) -> TextChunk:
        self._shown += len(text)
        tokens = []
        while self._pending and self._pending[0].offset < self._shown:
            tokens.append(self._pending.popleft())
        return TextChunk(text, tuple(tokens))


class DecodedStream:
    """Decodes a GenerationStream in chunks. Raises ConfigError for invalid stop strings.

    When it ends, exit `ModelWorker.generate`: after a stop string, generation would continue.
    """

    def __init__(
        self,
        stream: GenerationStream,
        tokenizer: Tokenizer,
        stops: Sequence[str] = (),
        *,
        top: int = 0,
    ) -> None:
        self.finish_reason: FinishReason | None = None
        self.token_count = 0  # tokens up to and including the stop string
        self._stream = stream
        self._decoder = StreamDecoder(tokenizer, stream.request.ids, stops, top=top)

    async def __aiter__(self) -> AsyncIterator[TextChunk]:
        decoder = self._decoder
        async for batch in self._stream:
            chunks, ids = [], []
            for token in batch:
                ids.append(token.id)
                chunks.append(decoder.feed(token))
                if decoder.is_stopped:
                    break
            self.token_count += len(ids)
            yield join_chunks(chunks, ids)
            if decoder.is_stopped:
                self.finish_reason = "stop"
                return
        chunk = decoder.finish()
        self.finish_reason = "stop" if decoder.is_stopped else self._stream.finish_reason
        yield chunk


def join_chunks(chunks: Sequence[TextChunk], ids: Sequence[int] = ()) -> TextChunk:
    """Join consecutive chunks of one text."""
    return TextChunk(
        "".join(chunk.text for chunk in chunks),
        tuple(token for chunk in chunks for token in chunk.tokens),
        tuple(ids),
    )
