"""Our own tokenizers: byte-level BPE learned from texts, or plain bytes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ownwords.tokenizers import tokenizer_json
from ownwords.tokenizers.text import END, SPECIAL, START, TokenizerError, encode_utf8
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.tokenizers.tokenizer_json import LETTER_OF, PATTERN, SpecialTokensConfig

# A corpus with long runs of one character would waste its vocabulary on them.
_LONGEST = 128  # bytes of a token
# The trainer's time is quadratic in the length of a word, such as a line of dashes.
_PIECE = 2048  # characters

Merge = tuple[str, str]  # of two tokens in GPT-2's alphabet


class BPETokenizer(Tokenizer):
    """Byte-level BPE; ids are the 256 bytes, then the merged tokens, then the special tokens.

    Lossless for any text. The name of a special token inside a text is encoded as plain text
    unless `special=True`.
    """

    pattern: str | None = PATTERN

    def __init__(
        self,
        merges: Sequence[Merge] = (),
        *,
        special: Sequence[str] = SPECIAL,
        start: str | None = START,
        end: str | None = END,
        template: str | None = None,
    ) -> None:
        vocabulary: dict[str, int] = {letter: byte for byte, letter in sorted(LETTER_OF.items())}
        for left, right in merges:
            vocabulary.setdefault(left + right, len(vocabulary))
        document = _document(vocabulary, merges, special, self.pattern)
        roles = SpecialTokensConfig(start, end, template, adds_start=start is not None)
        super().__init__(
            {
                tokenizer_json.TOKENIZER: tokenizer_json.write(document),
                tokenizer_json.CONFIG: tokenizer_json.write(roles.config()),
            }
        )


class ByteTokenizer(BPETokenizer):
    """Every byte of the UTF-8 text is a token, so it needs no training."""

    pattern = None


def train(texts: Iterable[str], vocabulary: int) -> BPETokenizer:
    """Learn a vocabulary of `vocabulary` tokens, or fewer if the texts have no more merges.

    The texts are streamed once; their order and the number of threads (RAYON_NUM_THREADS, else
    all) do not change the result.
    """
    least = len(LETTER_OF) + len(SPECIAL)
    if vocabulary < least:
        raise TokenizerError(
            f"a vocabulary of {vocabulary} has no room for the {len(LETTER_OF)} bytes and"
            f" {len(SPECIAL)} special tokens",
            hint=f"ask for {least} or more",
        )
    from tokenizers import Tokenizer as Backend  # noqa: PLC0415 - slow
    from tokenizers.trainers import BpeTrainer  # noqa: PLC0415

    backend = Backend.from_str(tokenizer_json.write(_document({}, (), (), PATTERN)).decode())
    trainer = BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL),
        initial_alphabet=sorted(LETTER_OF.values()),
        max_token_length=_LONGEST,
        show_progress=False,
    )
    backend.train_from_iterator(_pieces(texts), trainer)
    learned: Any = tokenizer_json.read(tokenizer_json.TOKENIZER, backend.to_str().encode())
    return BPETokenizer([(left, right) for left, right in learned["model"]["merges"]])


def _pieces(texts: Iterable[str]) -> Iterator[str]:
    """Cut the texts into pieces of limited length, before a space where there is one."""
    for text in texts:
        encode_utf8(text)
        begin = 0
        while len(text) - begin > _PIECE:
            space = text.rfind(" ", begin + 1, begin + _PIECE)
            end = space if space > 0 else begin + _PIECE
            yield text[begin:end]
            begin = end
        yield text[begin:]


def _document(
    vocabulary: dict[str, int], merges: Sequence[Merge], special: Sequence[str], pattern: str | None
) -> tokenizer_json.Json:
    """Return the tokenizer.json of a byte-level BPE, without a split step if `pattern` is None."""
    split: tokenizer_json.Json = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    as_letters: tokenizer_json.Json = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    both: tokenizer_json.Json = {"type": "Sequence", "pretokenizers": [split, as_letters]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            tokenizer_json.added_token(i, name) for i, name in enumerate(special, len(vocabulary))
        ],
        "normalizer": None,
        "pre_tokenizer": as_letters if pattern is None else both,
        "post_processor": None,
        "decoder": {**as_letters, "add_prefix_space": True, "use_regex": True},
        "model": tokenizer_json.bpe_model(vocabulary, [list(pair) for pair in merges]),
    }
