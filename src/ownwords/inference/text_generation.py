"""Text generation: encodes prompts, builds requests and decodes generated tokens."""

import codecs
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ownwords.core.errors import ConfigError
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.engine import Engine
from ownwords.inference.generation import BatchScheduler, GenerationRequest, generate
from ownwords.inference.sampling import SamplingParams
from ownwords.tokenizers.text import encode_utf8
from ownwords.tokenizers.tokenizer import Ids, Tokenizer

# The default everywhere, also for the scorecard's samples. It samples from the model's own
# distribution without the unlikely tail; lower temperatures or narrower cuts make small models
# loop, and so do some texts in any case (docs/log.md).
DEFAULT_SAMPLING: Final = SamplingParams(temperature=1.0, min_p=0.02, break_loops=True)

_BATCH = 16  # texts that are generated together

_CLOSING = "[\"'”’»)\\]]*"
_SENTENCE_END = re.compile(rf"[.!?…]{_CLOSING}(?=\s)|[。！？][”’」』）]*|(?=\n)")
_MAYBE_SENTENCE_END = re.compile(rf"[.!?…]{_CLOSING}$")
_FIRST_WORDS = re.compile(r"\s{0,9}\S{1,80}([^\S\n]{1,9}\S{1,80}){0,2}")
_LAST_WORD = re.compile(r"(?<=\S) [\w'’-]{0,40}$")


# --- token ids to text ----------------------------------------------------------------------------


class IncrementalDetokenizer:
    """Decodes one text token by token, up to a stop string; `prompt_ids` are the ids before it.

    The output does not depend on token boundaries. Only text that may still become a character or
    a stop string is held back; invalid bytes become U+FFFD. Special tokens that do not end a text
    appear by their names. The first stop string to be complete ends the text; of several that end
    at the same place, the one that began first. With `sentence`, so does the end of a sentence,
    which belongs to the text, or of a line. The first `skipped` bytes are left out.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        stops: Sequence[str] = (),
        *,
        sentence: bool = False,
        skipped: int = 0,
    ) -> None:
        if isinstance(stops, str) or not all(stops):
            raise ConfigError(
                f"stop strings should be texts that are not empty, and are {[*stops]!r:.80}",
                hint="an empty one would end every text before it begins",
            )
        self.stop: str | None = None  # what ended the text
        self.tokenizer = tokenizer
        self._stops = tuple(stops)
        self._sentence = sentence
        self._skipped = skipped
        self._pending = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Some tokenizers (Llama 2's) drop the space before the first word of a text.
        self._is_first = not len(prompt_ids) or prompt_ids[-1] in tokenizer.special.values()

    def feed(self, token: int) -> str:
        """Add a token; return the text that is now final, nothing after a stop string."""
        first = self._is_first
        data = self.tokenizer.decode_bytes([token]) if first else self.tokenizer.table[token] or b""
        text = self._decoder.decode(data[self._skipped :])
        self._skipped = max(0, self._skipped - len(data))
        self._is_first = False
        return self._before_stop(text) if self._stops or self._sentence else text

    def finish(self) -> str:
        """Return the text held back; call it when the text ended without a stop string.

        An incomplete character at the end becomes U+FFFD.
        """
        text = self._before_stop(self._decoder.decode(b"", final=True))
        pending, self._pending = self._pending, ""
        return text + pending

    def _before_stop(self, piece: str) -> str:
        """Return what is final after another piece of text; hold back what may become a stop."""
        if self.stop is not None:
            return ""
        text = self._pending + piece
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if self._sentence and (found := _SENTENCE_END.search(text)):
            ends.append((found.end(), found.end(), found[0]))
        if ends:
            _, begin, self.stop = min(ends)
            self._pending = ""
            return text[:begin]
        tail = _MAYBE_SENTENCE_END.search(text) if self._sentence else None
        final = tail.start() if tail else len(text)
        for begin in range(final):
            if any(stop.startswith(text[begin:]) for stop in self._stops):
                final = begin
                break
        self._pending = text[final:]
        return text[:final]


# --- requests -------------------------------------------------------------------------------------


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Encode a prompt, with the start token if the tokenizer adds it.

    A text without a prompt follows the start token, the end of another text, or a line break.
    """
    ids = tokenizer.encode(prompt)
    if tokenizer.start is not None and (tokenizer.adds_start or not ids):
        return [tokenizer.start, *ids]
    if ids:
        return ids
    return tokenizer.encode("\n") if tokenizer.end is None else [tokenizer.end]


class WordOpening:
    """The last word of a prompt, or the space at its end, as what the text must begin with.

    Tokens begin at a word's space: after "The rain " or "The rain gau" a model that was given all
    of it could only go on in tokens that it has hardly ever seen there ("token healing").
    """

    def __init__(self, tokenizer: Tokenizer, word: str) -> None:
        self.data = encode_utf8(word)
        self._tokenizer = tokenizer

    def allowed(self, generated: Sequence[int]) -> Ids | None:
        """Return the ids whose bytes fit to the part of the word that is not generated yet."""
        table = self._tokenizer.table
        left = self.data[sum(len(table[i] or b"") for i in generated) :]
        return self._tokenizer.ids_that_begin(left) if left else None


def suffix_stops(suffix: str) -> tuple[str, ...]:
    """What ends a text before it repeats the text after a gap: the first three words of that."""
    found = _FIRST_WORDS.match(suffix)
    return (found[0],) if found else ()


def split_last_word(tokenizer: Tokenizer, prompt: str) -> tuple[str, WordOpening | None]:
    """Split off the word that a prompt may break off, or the space that it ends with."""
    found = _LAST_WORD.search(prompt)
    return (prompt[: found.start()], WordOpening(tokenizer, found[0])) if found else (prompt, None)


def stop_token_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that end a text: the end token and the start token of another text."""
    return frozenset(i for i in (tokenizer.end, tokenizer.start) if i is not None)


def generation_config(sampling: SamplingParams = DEFAULT_SAMPLING) -> dict[str, object]:
    """Return sampling settings for generation_config.json, so that other tools sample alike.

    Every setting is written, since the defaults of other tools differ (top_k 50 in transformers, 40
    in llama.cpp).
    """
    return {
        "do_sample": sampling.temperature > 0,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
    }


def eos_token_ids(generation: Mapping[str, object]) -> Sequence[int]:
    """Ids that end a text or a turn according to a model's generation_config.json."""
    value = generation.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    return [i for i in ids if isinstance(i, int) and not isinstance(i, bool) and i >= 0]


def build_request(
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    *,
    max_tokens: int,
    seed: int = 1,
    sampling: SamplingParams = DEFAULT_SAMPLING,
    guard: CopyGuard | None = None,
    extra_stop_ids: Iterable[int] = (),
    completes_word: bool = False,
) -> GenerationRequest:
    """Build the request that continues a prompt, given as text or as ids.

    Ids without a token are never sampled; `extra_stop_ids` are added to the tokenizer's own. With
    `completes_word`, the prompt's last word is not read, and the text begins with it.
    """
    opening = None
    if completes_word and isinstance(prompt, str):
        prompt, opening = split_last_word(tokenizer, prompt)
    if tokenizer.gaps:
        never = dict.fromkeys(tokenizer.gaps, float("-inf"))
        sampling = replace(sampling, bias={**sampling.bias, **never})
    return GenerationRequest(
        ids=encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt,
        max_tokens=max_tokens,
        sampling=sampling,
        vocabulary=tokenizer.vocabulary_size,
        seed=seed,
        stop_ids=stop_token_ids(tokenizer).union(extra_stop_ids),
        guard=guard,
        opening=opening,
    )


def stream_request(
    engine: Engine, tokenizer: Tokenizer, request: GenerationRequest, stops: Sequence[str] = ()
) -> Generator[str]:
    """Generate the text of a request piece by piece, in whole characters, up to a stop string.

    Invalid stop strings raise here, not when the first piece is requested.
    """
    detokenizer = IncrementalDetokenizer(tokenizer, request.ids, stops)
    return _stream(detokenizer, generate(engine, request))


def _stream(detokenizer: IncrementalDetokenizer, tokens: Iterable[int]) -> Generator[str]:
    for token in tokens:
        if text := detokenizer.feed(token):
            yield text
        if detokenizer.stop is not None:
            return
    if text := detokenizer.finish():
        yield text


def generate_texts(
    engine: Engine,
    tokenizer: Tokenizer,
    requests: Sequence[GenerationRequest],
    stops: Sequence[str] = (),
    *,
    sentence: bool = False,
    on_tokens: Callable[[int], object] = bool,
    scheduler: BatchScheduler | None = None,
) -> list[str]:
    """Generate the text of each request, as `stream_request` would, but in batches.

    `sentence` ends each with its first sentence. `on_tokens` is called with the number of tokens
    of each step. An idle `scheduler` of the caller's keeps what it has read for the next call.
    """
    if not requests:
        return []
    detokenizers = [
        IncrementalDetokenizer(tokenizer, request.ids, stops, sentence=sentence)
        for request in requests
    ]
    texts = [""] * len(requests)
    length = max(len(request.ids) + request.max_tokens for request in requests)
    own = None
    if scheduler is None:
        own = scheduler = BatchScheduler(engine, rows=min(len(requests), _BATCH), length=length)
    try:
        places = {scheduler.submit(request): place for place, request in enumerate(requests)}
        while places:
            outputs = scheduler.step()
            on_tokens(sum(token is not None for _, token in outputs))
            for state, token in outputs:
                if state.error:
                    raise state.error
                place = places[state]
                detokenizer = detokenizers[place]
                if token is not None:
                    texts[place] += detokenizer.feed(token)
                if state.finish_reason:
                    texts[place] += detokenizer.finish()
                if state.finish_reason or detokenizer.stop is not None:
                    scheduler.cancel(state)
                    del places[state]
    finally:
        if own:
            own.close()
    return texts
