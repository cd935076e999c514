"""The first text that a model writes: the title of a test post that it continues, and its end."""

from collections.abc import Iterable, Iterator

from ownwords.archive.report import Report
from ownwords.core.fingerprint import digest

SEED = 1  # the first seed: no other text was generated and discarded
MAX_TOKENS = 300
_PARAGRAPH_END_FROM = 350  # characters; from here on the text ends with its paragraph
_SENTENCE_END_FROM = 700  # characters; from here on it ends with its sentence
_MIN_WORDS = 100  # of a post whose title is used
_TITLE_WORDS = range(2, 21)
_SHORT_TITLE = 9  # words; longer titles only if no test post has a short one
_STOPS, _CLOSING = ".!?…", "\"'”’)"


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
            out += (space if count else "") + letter
            count += 1 + (len(space) if count else 0)
            # A closing quotation mark after a full stop still ends the sentence.
            last = last if letter in _CLOSING and last in _STOPS else letter
            space = ""
        if out:
            yield out


def _may_end(count: int, space: str, last: str) -> bool:
    if count >= _PARAGRAPH_END_FROM and "\n" in space:
        return True
    return count >= _SENTENCE_END_FROM and bool(last) and last in _STOPS
