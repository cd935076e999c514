"""The base class of our own tokenizers: the 256 bytes, merges of them, special tokens.

Two merge rules must agree. tiktoken merges the neighbours whose joined bytes have the lowest id;
tokenizer.json lists pairs, and other tools merge the neighbours whose pair is listed first. Both
give the same ids if merging each token's own bytes by the earlier tokens ends in two parts, and
those two are its listed pair: wherever two neighbours could be merged into that token, the bytes
within it were merged by earlier tokens alone, which yields that pair and no other. `_pairs`
computes the pairs this way, and only a file that lists exactly these is loaded as ours.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from ownwords.tokenizers import tokenizer_json
from ownwords.tokenizers.text import END, SPECIAL, START, TokenizerError, TokenTable, encode_utf8

Ids = npt.NDArray[np.uint32]

BYTES = tuple(bytes([byte]) for byte in range(256))

# Finding a token's pair takes steps quadratic in its length; real vocabularies need a thousandth.
_MOST_STEPS = 100_000_000


class ByteLevelTokenizer(TokenTable):
    """Base of our tokenizers; ids are the 256 bytes, then the merges, then special tokens."""

    pattern: ClassVar[str | None] = None

    def __init__(
        self,
        tokens: Sequence[bytes] = (),
        *,
        special: Sequence[str] = SPECIAL,
        start: str | None = START,
        end: str | None = END,
        template: str | None = None,
    ) -> None:
        self.ranks = {token: i for i, token in enumerate((*BYTES, *tokens))}
        if len(self.ranks) != len(BYTES) + len(tokens):
            raise TokenizerError("two tokens of the vocabulary are the same")
        self.merges = _pairs(self.ranks)
        ids = {name: len(self.ranks) + n for n, name in enumerate(special)}
        if len(ids) != len(special) or any(
            not name or encode_utf8(name) in self.ranks for name in ids
        ):
            raise TokenizerError(
                f"the special tokens {', '.join(special)} are not distinct from each other and"
                " from the ordinary ones",
                hint="name them like <|document|>, which no text is likely to hold",
            )
        for name in (start, end):
            if name is not None and name not in ids:
                raise TokenizerError(f"{name!r} is to begin or end documents but is not special")
        super().__init__(
            [*self.ranks, *map(encode_utf8, ids)],
            ids,
            None if start is None else ids[start],
            None if end is None else ids[end],
            template,
        )

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text; with `special`, names of special tokens become their ids."""
        encode_utf8(text)
        if not special:
            return self._encode(text)
        ids: list[int] = []
        begin = 0
        for found in self._names.finditer(text):
            ids += self._encode(text[begin : found.start()])
            ids.append(self.special[found[0]])
            begin = found.end()
        return ids + self._encode(text[begin:])

    def _encode(self, text: str) -> list[int]:
        raise NotImplementedError

    @cached_property
    def _names(self) -> re.Pattern[str]:
        longest_first = sorted(self.special, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def document(self) -> tokenizer_json.Json:
        """The tokenizer.json of this tokenizer."""
        return tokenizer_json.document(self.ranks, self.merges, self.special, self.pattern)

    @classmethod
    def from_document(
        cls, document: tokenizer_json.Json, roles: tokenizer_json.SpecialTokensConfig
    ) -> Self | None:
        """The tokenizer whose `document()` equals this tokenizer.json, or None."""
        match document:
            case {
                "model": {"vocab": dict(vocabulary), "byte_fallback": False},
                "added_tokens": list(added),
            }:
                pass
            case _:
                return None
        if list(vocabulary.values()) != list(range(len(vocabulary))):
            return None
        tokens = [tokenizer_json.unicode_to_bytes(token) for token in vocabulary]
        special = [entry.get("content") for entry in added if isinstance(entry, dict)]
        try:
            found = cls(
                [token for token in tokens[len(BYTES) :] if token is not None],
                special=[name for name in special if isinstance(name, str)],
                start=roles.start,
                end=roles.end,
                template=roles.template,
            )
        except TokenizerError:
            return None
        return found if found.document() == document else None

    def files(self) -> dict[str, bytes]:
        """The tokenizer files of a model directory, which give the same ids in transformers."""
        names = list(self.special)
        roles = tokenizer_json.SpecialTokensConfig(
            None if self.start is None else names[self.start - len(self.ranks)],
            None if self.end is None else names[self.end - len(self.ranks)],
            self.template,
            self.adds_start,
        )
        return {
            tokenizer_json.TOKENIZER: tokenizer_json.write(self.document()),
            tokenizer_json.CONFIG: tokenizer_json.write(roles.config()),
        }

    def fingerprint(self) -> str:
        """A hash of the text-to-ids mapping, stable across saving, loading and importing."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return tokenizer_json.fingerprint(self.document())


def _pairs(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The pair that each merged token is made of; an error if its bytes do not merge into two."""
    if sum(len(token) ** 2 for token in ranks) > _MOST_STEPS:
        raise TokenizerError("the tokens of the vocabulary are too long to be words")
    pairs = []
    for token, rank in ranks.items():
        if rank < len(BYTES):
            continue
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            joined = [ranks.get(a + b, rank) for a, b in pairwise(parts)]
            best = min(joined)
            if best >= rank:
                break
            at = joined.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) != 2:
            raise TokenizerError(
                f"token {rank} of the vocabulary, {token!r}, is no merge of others"
            )
        pairs.append((parts[0], parts[1]))
    return pairs
