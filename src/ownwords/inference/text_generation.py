"""Encodes prompts, and decodes generated tokens up to the end of a text."""

import codecs
import re
from collections.abc import Mapping, Sequence
from typing import Final

from ownwords.core.errors import ConfigError
from ownwords.inference.sampling import SamplingParams
from ownwords.tokenizers.text import encode_utf8
from ownwords.tokenizers.tokenizer import Ids, Tokenizer

# The default everywhere, including the scorecard's samples: the model's own distribution without
# the unlikely tail. Lower temperatures or stricter filters make small models loop (docs/log.md).
DEFAULT_SAMPLING: Final = SamplingParams(temperature=1.0, min_p=0.02, break_loops=True)

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
    appear by name. The first complete stop string ends the text; if several end at the same place,
    the one that began first counts. With `sentence`, the end of a sentence (which is part of the
    text) or of a line also ends it. The first `skipped` bytes are left out.
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
                f"stop strings must be texts that are not empty, not {[*stops]!r:.80}",
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
        """Add a token; return the text that is now final, without anything after a stop string."""
        first = self._is_first
        data = self.tokenizer.decode_bytes([token]) if first else self.tokenizer.table[token] or b""
        text = self._decoder.decode(data[self._skipped :])
        self._skipped = max(0, self._skipped - len(data))
        self._is_first = False
        return self._before_stop(text) if self._stops or self._sentence else text

    def finish(self) -> str:
        """Return the text held back; an incomplete character at the end becomes U+FFFD."""
        text = self._before_stop(self._decoder.decode(b"", final=True))
        pending, self._pending = self._pending, ""
        return text + pending

    def _before_stop(self, piece: str) -> str:
        """Return the final part of the pending text and another piece; hold back possible stops."""
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


# --- prompts --------------------------------------------------------------------------------------


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Encode a prompt, after the start token if the tokenizer adds it.

    An empty prompt becomes the start token, the end token of another text, or a line break.
    """
    ids = tokenizer.encode(prompt)
    if tokenizer.start is not None and (tokenizer.adds_start or not ids):
        return [tokenizer.start, *ids]
    if ids:
        return ids
    return tokenizer.encode("\n") if tokenizer.end is None else [tokenizer.end]


class WordOpening:
    """The last word of a prompt, or the space at its end, which the text must begin with.

    A token includes the space before its word. After "The rain " or "The rain gau", the only tokens
    that can follow are ones that the model has hardly ever seen there. Generating the last word
    again avoids that ("token healing").
    """

    def __init__(self, tokenizer: Tokenizer, word: str) -> None:
        self.data = encode_utf8(word)
        self._tokenizer = tokenizer

    def allowed(self, generated: Sequence[int]) -> Ids | None:
        """Return the ids whose bytes match the part of the word that is not generated yet."""
        table = self._tokenizer.table
        left = self.data[sum(len(table[i] or b"") for i in generated) :]
        return self._tokenizer.ids_that_begin(left) if left else None


def suffix_stops(suffix: str) -> tuple[str, ...]:
    """Return stop strings for a text before a suffix: the first three words of the suffix."""
    found = _FIRST_WORDS.match(suffix)
    return (found[0],) if found else ()


def split_last_word(tokenizer: Tokenizer, prompt: str) -> tuple[str, WordOpening | None]:
    """Split off the last word of a prompt, which may be incomplete, or the space at its end."""
    found = _LAST_WORD.search(prompt)
    return (prompt[: found.start()], WordOpening(tokenizer, found[0])) if found else (prompt, None)


def stop_token_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that end a text: the end token and the start token of another text."""
    return frozenset(i for i in (tokenizer.end, tokenizer.start) if i is not None)


def generation_config(sampling: SamplingParams = DEFAULT_SAMPLING) -> dict[str, object]:
    """Return sampling settings for generation_config.json, so that other tools sample alike.

    All settings are written, because other tools have other defaults (top_k is 50 in transformers
    and 40 in llama.cpp).
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
    """Return the ids that end a text or a turn according to a model's generation_config.json."""
    value = generation.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    return [i for i in ids if isinstance(i, int) and not isinstance(i, bool) and i >= 0]
