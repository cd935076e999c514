"""The pre-tokenizer: splits text with a regular expression before BPE merges its bytes.

`PATTERN` is GPT-4's split in Llama 3's version, written without case folding, because regex
engines differ there ('ſ folds to 's); llama.cpp calls it `llama-bpe`. Its look-ahead leaves the
last blank before a word to that word. The look-ahead is expensive: tiktoken is a third slower with
it and fails at a million blanks in a row. So we cut the text ourselves where the look-ahead would
stop, and split each part by `LINEAR_PATTERN`, which has no look-ahead and never backtracks.
"""

import re
from collections.abc import Iterator

PATTERN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LINEAR_PATTERN = PATTERN.replace(r"\s+(?!\S)|", "")

# Unicode's White_Space, which \s matches in the engines (Python's \s also matches U+001C-U+001F)
_RARE_ASCII = "\t\v\f"
_RARE = (
    _RARE_ASCII + "\x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
    + "\u2028\u2029\u202f\u205f\u3000"
)  # fmt: skip
_TWO_SPACES = re.compile(r"  (?=[^ \r\n])")  # several times faster than the general rule
_TWO_BLANKS = re.compile(f"[ {_RARE}][ {_RARE}](?=[^ {_RARE}\r\n])")
# Positions where a new piece always begins: no piece continues across them.
_BORDER = re.compile(f"(?<=[A-Za-z])(?= [A-Za-z])|(?<=\n)(?=[^ {_RARE}\r\n])")


def split_segments(text: str) -> Iterator[str]:
    """Yield segments such that `LINEAR_PATTERN` on each equals `PATTERN` on the whole text.

    Of two or more blanks before another character, the look-ahead matches all but the last.
    """
    rare = _RARE_ASCII if text.isascii() else _RARE
    blanks = _TWO_BLANKS if any(blank in text for blank in rare) else _TWO_SPACES
    begin = 0
    for found in blanks.finditer(text):
        end = found.start() + 1
        yield text[begin:end]
        begin = end
    yield text[begin:]


def split_chunks(text: str, characters: int) -> Iterator[str]:
    """Yield pieces of at least `characters` characters, cut only where a new word begins anyway."""
    begin = 0
    while len(text) - begin > 2 * characters:
        found = _BORDER.search(text, begin + characters)
        if found is None:
            break
        yield text[begin : found.start()]
        begin = found.start()
    yield text[begin:]
