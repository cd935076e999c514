"""The first text that a model writes: the title of a test post that it continues, and its end."""

import re
from collections.abc import Iterable, Iterator

from ownwords.archive.report import Report
from ownwords.core.fingerprint import digest

SEED = 1  # the first seed: no other text was generated and discarded
MAX_TOKENS = 300
# It ends with its paragraph after 350 characters, with its sentence after 700.
_ENDS = (
    re.compile(r"(?s).{349,}?\S(?=\s*\n)"),
    re.compile(r"(?s).{699,}?[.!?…][\"'”’)]*(?=\s)"),
)
_MIN_WORDS = 100  # of a post whose title is used
_TITLE_WORDS = range(2, 21)
_SHORT_TITLE = 9  # words; longer titles only if no test post has a short one


def title_for(report: Report) -> str:
    """Choose the title of a test post, always the same one; "" if none is usable."""
    usable = {
        " ".join(post.title.split())
        for post in report.posts
        if post.split == "test"
        and post.decision != "leave out"
        and post.kind == "post"
        and post.own_words >= _MIN_WORDS
    }
    titles = [
        title for title in usable if len(title.split()) in _TITLE_WORDS and title.isprintable()
    ]
    return min(
        titles, key=lambda title: (len(title.split()) > _SHORT_TITLE, digest(title)), default=""
    )


def prompt_of(title: str) -> str:
    """The prompt for a text with this title, in the format of `archive.corpus`."""
    return f"{title}\n\n" if title else ""


def cut_at_paragraph(pieces: Iterable[str]) -> Iterator[str]:
    """Yield pieces up to the end of a paragraph, or of a sentence in a long paragraph.

    Leading and trailing whitespace is dropped. A shorter text is yielded in full.
    """
    text, shown = "", 0
    for piece in pieces:
        text = (text + piece).lstrip()
        ends = [match.end() for match in (end.match(text) for end in _ENDS) if match]
        whole = text[: min(ends, default=len(text))].rstrip()
        if len(whole) > shown:
            yield whole[shown:]
            shown = len(whole)
        if ends:
            return
