"""Two passages that say nearly the same, and where they differ."""

import re
from difflib import SequenceMatcher
from typing import Final

from ownwords.archive.report import formatting as say

# Finding the differing words takes time, so there are fewer of these than of other findings.
PAIRS: Final = 20
PASSAGES: Final = 3  # of a pair
_LENGTH = 600  # characters of a passage
# Chinese and Japanese set no spaces, so there a word is a character.
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]\s*|[^\s\u3040-\u30ff\u3400-\u9fff]+\s*")

Pieces = list[tuple[str, bool]]


def shown(passage: str) -> str:
    """As much of a passage as is shown."""
    return say.plain(passage, _LENGTH)


def marked(one: str, other: str) -> tuple[Pieces, Pieces]:
    """Both passages in pieces, each with whether the other one lacks it in that place."""
    cut = max(len(one), len(other)) > _LENGTH
    a, b = _WORDS.findall(shown(one)), _WORDS.findall(shown(other))
    left: Pieces = []
    right: Pieces = []
    for kind, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        # Where passages were cut short, their ends differ for no other reason.
        same = kind == "equal" or (cut and (a1, b1) == (len(a), len(b)))
        for side, words in ((left, "".join(a[a0:a1])), (right, "".join(b[b0:b1]))):
            if words:
                side.append((words, not same))
    return left, right
