"""From tokens to what is told of them: whole characters, up to a stop string, with chances."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ownwords.inference.detokenizer import IncrementalDetokenizer
from ownwords.inference.generation import GeneratedToken
from ownwords.tokenizers.tokenizer import Tokenizer

_LEAST = -9999.0  # what their API says for a chance of next to nothing; JSON has no infinity


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The bytes of a token, and the logarithm of its probability."""

    data: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token that was drawn, the likeliest ones at its place, and where its text begins."""

    own: TokenLogprob
    likeliest: tuple[TokenLogprob, ...]
    begin: int  # in characters, of the text that was written


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """Some more of a text; `tokens` only where chances were asked for."""

    text: str
    tokens: tuple[SampledToken, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


def joined(pieces: Sequence[DecodedChunk]) -> DecodedChunk:
    """Several pieces of one text, one after the other, as one."""
    if len(pieces) == 1:
        return pieces[0]
    return DecodedChunk(
        "".join(piece.text for piece in pieces),
        tuple(token for piece in pieces for token in piece.tokens),
    )


class StreamDecoder:
    """Follows one text, token by token; `ids` are what it goes on from.

    Tokens are told together with the first of their characters; those of a stop string not at all.
    """

    def __init__(
        self, tokenizer: Tokenizer, ids: Sequence[int], stops: Sequence[str], *, likeliest: int
    ) -> None:
        self.count = 0
        self._decoding = IncrementalDetokenizer(tokenizer, ids, stops)
        self._likeliest = likeliest
        self._shown = 0  # characters
        self._held: deque[SampledToken] = deque()
        self._gaps = frozenset(tokenizer.gaps)

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; nothing comes after it."""
        return self._decoding.stop is not None

    def feed(self, drawn: GeneratedToken) -> DecodedChunk:
        """What can be told now that this token has come."""
        self.count += 1
        if drawn.logprob is not None:
            others = tuple(
                TokenLogprob(self._decoding.bytes_of(i), max(_LEAST, chance))
                for i, chance in drawn.alternatives[: self._likeliest]
                if i not in self._gaps
            )
            own = TokenLogprob(self._decoding.bytes_of(drawn.id), max(_LEAST, drawn.logprob))
            self._held.append(SampledToken(own, others, self._decoding.characters))
        return self._piece(self._decoding.feed(drawn.id))

    def finish(self) -> DecodedChunk:
        """What was held back, where the text ends otherwise than by a stop string."""
        piece = self._piece(self._decoding.finish())
        if self.stopped:  # half a character was all that it still took
            return piece
        tokens = (*piece.tokens, *self._held)
        self._held.clear()
        return DecodedChunk(piece.text, tokens)

    def _piece(self, text: str) -> DecodedChunk:
        self._shown += len(text)
        tokens = []
        while self._held and self._held[0].begin < self._shown:
            tokens.append(self._held.popleft())
        return DecodedChunk(text, tuple(tokens))
