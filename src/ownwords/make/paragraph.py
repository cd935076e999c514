"""The first thing that a model writes: on from the title of a post that it has never read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ownwords.archive.report import Report
from ownwords.core.fingerprint import digest

SEED = 1  # the first there is: nothing was tried and thrown away
MOST_TOKENS = 300
_ENOUGH = 350  # characters, after which the end of a paragraph is an end
_PLENTY = 700  # and after which the end of a sentence is
_LEAST_WORDS = 100  # of a post whose title says something
_TITLE_WORDS = range(2, 10)
_STOPS, _CLOSING = ".!?…", "\"'”’)"


@dataclass(frozen=True)
class FirstParagraph:
    """What was written on from a title; that is empty where no held-out post has a good one."""

    title: str
    text: str
    seed: int = SEED


def title_for(report: Report) -> str:
    """The title of a post held out for testing, always the same; empty where there is none."""
    fit = {
        " ".join(post.title.split())
        for post in report.posts
        if post.split == "test"
        and post.decision != "leave out"
        and post.kind == "post"
        and post.own_words >= _LEAST_WORDS
    }
    good = [title for title in fit if len(title.split()) in _TITLE_WORDS and title.isprintable()]
    return min(good, key=digest, default="")


def prompt_of(title: str) -> str:
    """How a text with that title begins, as `training.corpus` has it."""
    return f"{title}\n\n" if title else ""


def ended_well(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces up to where a paragraph ends, or, if that is long, a sentence.

    No space is left at the end. A text that ends by itself before that is given whole.
    """
    count, held, last = 0, "", ""
    for piece in pieces:
        out = ""
        for letter in piece:
            if letter.isspace():
                held += letter
                continue
            if held and _may_end(count, held, last):
                if out:
                    yield out
                return
            # Of what stood before the first word nothing is wanted.
            out += (held if count else "") + letter
            count += 1 + (len(held) if count else 0)
            # A quotation mark after a stop ends the sentence as the stop does.
            last = last if letter in _CLOSING and last in _STOPS else letter
            held = ""
        if out:
            yield out


def _may_end(count: int, space: str, last: str) -> bool:
    if count >= _ENOUGH and "\n" in space:
        return True
    return count >= _PLENTY and bool(last) and last in _STOPS
