"""The first paragraph a model writes, from the title of a held-out post."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ownwords.archive.report import Report
from ownwords.core.fingerprint import digest

SEED = 1  # the first seed there is: no text was discarded
MOST_TOKENS = 300
_PARAGRAPH_END_FROM = 350  # characters, after which the end of a paragraph ends the text
_SENTENCE_END_FROM = 700  # characters, after which the end of a sentence does
_LEAST_WORDS = 100  # of a post with a usable title
_TITLE_WORDS = range(2, 10)
_STOPS, _CLOSING = ".!?…", "\"'”’)"


@dataclass(frozen=True)
class FirstParagraph:
    """A text and the title it continues; "" where no held-out post has a usable title."""

    title: str
    text: str
    seed: int = SEED


def title_for(report: Report) -> str:
    """The title of a test post, the same each time; "" where none is usable."""
    usable = {
        " ".join(post.title.split())
        for post in report.posts
        if post.split == "test"
        and post.decision != "leave out"
        and post.kind == "post"
        and post.own_words >= _LEAST_WORDS
    }
    titles = [
        title for title in usable if len(title.split()) in _TITLE_WORDS and title.isprintable()
    ]
    return min(titles, key=digest, default="")


def prompt_of(title: str) -> str:
    """The beginning of a text with that title, as `training.corpus` writes it."""
    return f"{title}\n\n" if title else ""


def cut_at_paragraph(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces up to the end of a paragraph, or of a sentence where that is far off.

    No trailing space is kept. A text that ends before that is given in full.
    """
    count, space, last = 0, "", ""
    for piece in pieces:
        out = ""
        for letter in piece:
            if letter.isspace():
                space += letter
                continue
            if space and _may_end(count, space, last):
                if out:
                    yield out
                return
            out += (space if count else "") + letter  # leading space is dropped
            count += 1 + (len(space) if count else 0)
            # A closing quotation mark after a full stop ends the sentence as the stop does.
            last = last if letter in _CLOSING and last in _STOPS else letter
            space = ""
        if out:
            yield out


def _may_end(count: int, space: str, last: str) -> bool:
    if count >= _PARAGRAPH_END_FROM and "\n" in space:
        return True
    return count >= _SENTENCE_END_FROM and bool(last) and last in _STOPS
