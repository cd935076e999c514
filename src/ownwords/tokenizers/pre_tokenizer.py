"""Where text is cut before bytes are merged: one pattern, and cuts that change nothing.

`PATTERN` is GPT-4's way of splitting as Llama 3 has it, written without case folding, which
engines do differently ('ſ folds to 's): llama.cpp knows it as `llama-bpe`. Its look-ahead leaves
the last blank before a word to that word. Engines pay for it: tiktoken is a third slower with it
and breaks at a million blanks in a row. So we cut the text ourselves where the look-ahead would
have stopped, and give each side to `LINEAR_PATTERN`, which has none and never goes back.
"""

import re
from collections.abc import Iterator

PATTERN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LINEAR_PATTERN = PATTERN.replace(r"\s+(?!\S)|", "")

# White_Space of Unicode, which is what \s is to the engines (Python's own has U+001C to U+001F too)
_RARE_ASCII = "\t\v\f"
_RARE = (
    _RARE_ASCII + "\x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
    + "\u2028\u2029\u202f\u205f\u3000"
)  # fmt: skip
_TWO_SPACES = re.compile(r"  (?=[^ \r\n])")  # several times faster than the general rule
_TWO_BLANKS = re.compile(f"[ {_RARE}][ {_RARE}](?=[^ {_RARE}\r\n])")
# A word never begins before a line's end, nor holds a blank after its first character.
_BORDER = re.compile(f"(?<=[A-Za-z])(?= [A-Za-z])|(?<=\n)(?=[^ {_RARE}\r\n])")


def split_segments(text: str) -> Iterator[str]:
    """The parts of a text that `LINEAR_PATTERN` splits one by one as `PATTERN` splits the whole.

    Of two blanks or more before something else, the look-ahead takes all but the last.
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
    """A long text in pieces of at least so many characters, cut where a word must begin anyway."""
    begin = 0
    while len(text) - begin > 2 * characters:
        found = _BORDER.search(text, begin + characters)
        if found is None:
            break
        yield text[begin : found.start()]
        begin = found.start()
    yield text[begin:]
