"""A passage of a post as a search result, and whose words it contains."""

from dataclasses import dataclass
from typing import Literal

Whose = Literal["own", "quoted", "other"]

QUOTED_LINE = "> "  # prefix of each line of somebody else's words, as in Markdown


@dataclass(frozen=True, slots=True)
class RetrievedPassage:
    """A chunk of a post with its title, date, address and score.

    `date` is an ISO day, or None if the post has no date. `url` is a web address, a path on the
    site, or empty. `heading` names the section ("Rain › Gauges"). In `text`, lines that begin with
    "> " are quoted. `whose` is "other" for a post that was left out as somebody else's, "quoted"
    where most of the passage is a quotation or a machine's output. `score` orders the passages of
    one search and cannot be compared across searches. `found_by` holds "title", "phrase",
    "text", "vectors", "date".
    """

    id: int
    document: str
    title: str
    date: str | None
    url: str
    heading: str
    text: str
    whose: Whose
    score: float
    found_by: tuple[str, ...]

    def whose_is(self, quote: str) -> Whose:
        """Whose words a verbatim quote is: the author's own, or from a quoted part.

        A quote that is in both, or in neither, counts as the passage does.
        """
        if self.whose != "own":
            return self.whose
        normalized = _plain(quote)
        own, quoted = ([], []) if normalized else ([""], [""])
        for line in self.text.split("\n"):
            (quoted if line.startswith(QUOTED_LINE.rstrip()) else own).append(line)
        in_quoted = normalized in _plain("\n".join(quoted))
        return "quoted" if in_quoted and normalized not in _plain("\n".join(own)) else "own"


def as_quoted(text: str) -> str:
    """The text with every line marked as a quotation."""
    return "\n".join((QUOTED_LINE + line).rstrip() for line in text.split("\n"))


def _plain(text: str) -> str:
    lines = (line.removeprefix(QUOTED_LINE.rstrip()) for line in text.split("\n"))
    return " ".join(" ".join(lines).split()).casefold()
