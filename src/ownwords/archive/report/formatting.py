"""The report put into words and numbers for people; the page and the terminal say the same."""

import re
from collections.abc import Iterable
from datetime import date

from ownwords.archive.report import DeadLink, Exclusion, Phrase, PostSummary, Report, UnlikePost

CHOICES_FILE = "choices.toml"

_GROUPS = (
    ("Your own words", ("prose", "heading", "list", "caption")),
    ("Quoted", ("quote",)),
    ("Code", ("code",)),
    ("Logs and dumps", ("log",)),
    ("Tables", ("table",)),
)
_FLAGS = {
    "dominant": "outweighs the others",
    "unlike": "reads unlike your other posts",
    "dump": "holds a machine's output",
    "duplicate": "shares text with another",
}
_STATUSES = {
    "draft": "Drafts",
    "trashed": "Posts in the bin",
    "hidden": "Hidden posts",
    "scheduled": "Scheduled posts",
    "private": "Private posts",
}
_DECISIONS = {"keep": "Kept", "cap": "Capped", "leave out": "Left out"}

_SPACES = re.compile(r"[\s\x1c-\x1f\x85\u2028\u2029]+")
# Bidirectional overrides would let a title reorder the words around it.
_OVERRIDES = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def plain(text: str, limit: int = 0) -> str:
    """`text` on one line without control characters, cut to `limit` characters if one is given."""
    line = _OVERRIDES.sub("", _SPACES.sub(" ", text)).strip()
    line = _UNPRINTABLE.sub("\ufffd", line)
    return line if not limit or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def title_of(text: str, limit: int = 160) -> str:
    """A title fit to be shown, also where a post has none."""
    return plain(text, limit) or "(untitled)"


def name(report: Report) -> str:
    """What the report is about, in a few words."""
    return plain(report.name, 120) or "Your writing"


def quoted(text: str, limit: int = 160) -> str:
    """A title in quotation marks."""
    return f"“{title_of(text, limit)}”"


def sentence(text: str, limit: int = 300) -> str:
    """A remark as a sentence: a capital first, a stop last."""
    line = plain(text, limit)
    return line[:1].upper() + line[1:] + ("" if not line or line[-1] in ".!?…" else ".")


def count(number: int, word: str = "") -> str:
    """12,345, and with a noun "1 post", "12,345 posts"."""
    if not word:
        return f"{number:,}"
    return f"{number:,} {noun(number, word)}"


def noun(number: int, word: str) -> str:
    """The form of a noun that goes with a number: "post", "posts"."""
    return word if number == 1 else _plural(word)


def _plural(noun: str) -> str:
    if noun.endswith("s"):
        return noun
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + "s"


def compact(number: int) -> str:
    """A number in the room above a column: 950, 1.2k, 38k, 4.1m."""
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if number >= size:
            figure = f"{number / size:.1f}" if number < 10 * size else f"{number // size}"
            return figure.removesuffix(".0") + letter
    return str(number)


def percent(share: float) -> str:
    """54%; never "0%" for something, nor "100%" for less than everything."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def ratio(part: int, whole: int) -> float:
    """The share of `part` in `whole`, 0 where there is no whole."""
    return part / whole if whole else 0.0


def size(number: int) -> str:
    """Bytes for people: 812 bytes, 171 kB, 4.1 MB."""
    if number < 1000:
        return count(number, "byte")
    if number < 1_000_000:
        return f"{number / 1000:,.0f} kB"
    if number < 1_000_000_000:
        return f"{number / 1_000_000:,.1f} MB"
    return f"{number / 1_000_000_000:,.1f} GB"


def day(iso: str) -> str:
    """ "2014-03-09" as "9 March 2014"; anything else as it stands."""
    try:
        parsed = date.fromisoformat(iso)
    except ValueError:
        return plain(iso, 40)
    return f"{parsed.day} {parsed:%B} {parsed.year}"


def years_spanned(report: Report) -> str:
    """ "2009–2024", "2024", or nothing where no post has a date."""
    first, last = (d[:4].lstrip("0") for d in (report.totals.first_day, report.totals.last_day))
    return plain(first if first == last or not last else f"{first}–{last}")


def evidence(post: UnlikePost) -> str:
    """The signs that a post reads unlike the others, in one line, with quotation marks to read."""
    signs = "; ".join(plain(sign, 120) for sign in post.evidence)
    return re.sub(r'"([^"]*)"', r"“\1”", signs)


def lede(report: Report) -> tuple[str, str]:
    """The most important truth in one sentence, and what follows from it in another."""
    totals = report.totals
    if not totals.words:
        return "There are no words here yet.", "Nothing was found that could be trained with."
    if not totals.own_words:
        return (
            f"None of the {count(totals.words, 'word')} here {'is' if totals.words == 1 else 'are'}"
            " your own.",
            "All of it is quoted, code, tables or written by a machine, so there is nothing to "
            "train with.",
        )
    ready = f"Of these, {count(totals.training_words, 'word')} can be used for training."
    if totals.training_words == totals.own_words:
        one = totals.own_words == 1
        ready = f"{'It' if one else 'All of them'} can be used for training."
    if len(report.posts) == 1:
        said = count(totals.words, "word")
        if totals.own_words < totals.words:
            said = f"{count(totals.own_words)} of its {said} your own"
        return f"One {_kind(report.posts[0])}, {said}.", ready
    top = max(report.posts, key=lambda post: post.share, default=None)
    if top and len(report.posts) > 3 and top.share > 1 / 3:
        return (
            f"One {_kind(top)} is {_fraction(top.share)}: {quoted(top.title, 90)} "
            f"holds {percent(top.share)}.",
            _what_became(top, totals.training_words),
        )
    own = ratio(totals.own_words, totals.words)
    if own < 0.6:
        return (
            f"{percent(own)} of the words here are your own.",
            "The rest is quoted, code, tables or written by a machine. "
            f"{count(totals.training_words, 'word')} can be used for training.",
        )
    written = " and ".join(
        count(number, one)
        for number, one in ((totals.posts, "post"), (totals.pages, "page"))
        if number
    )
    return f"{count(totals.own_words, 'word')} of your own in {written}{_when(report)}.", ready


def _when(report: Report) -> str:
    first, last = day(report.totals.first_day), day(report.totals.last_day)
    if not first:
        return ""
    dated = ", the dated ones written" if undated(report) else ", written"
    return f"{dated} on {first}" if first == last else f"{dated} between {first} and {last}"


def _kind(post: PostSummary) -> str:
    return "page" if post.kind == "page" else "post"


def _fraction(share: float) -> str:
    if share > 0.9:
        return "nearly all the prose"
    if share > 0.5:
        return "more than half of all the prose"
    return "almost half of all the prose" if share > 0.45 else "more than a third of all the prose"


def _what_became(post: PostSummary, training_words: int) -> str:
    left = count(training_words, "word")
    if post.decision == "leave out":
        return f"It is left out for now, which leaves {left} to train with. You can change that."
    if post.decision == "cap":
        return (
            f"It is capped: {count(post.training_words)} of its {count(post.own_words, 'word')} go "
            f"into training, {left} in all. You can change that."
        )
    return f"It is kept in full, so a model would mostly learn from it. {left} go into training."


def evenness(report: Report) -> str:
    """What the effective number of posts means, in one sentence; empty where it means nothing."""
    total = len(report.posts)
    if total < 2 or report.effective_posts <= 0:
        return ""
    number = report.effective_posts
    if number > 0.95 * total:
        return f"Your {count(total)} texts are all about equally long."
    figure = f"{number:.1f}" if number < 10 else f"{number:,.0f}"
    return (
        f"Lengths differ, so these {count(total)} texts weigh as much as if you had "
        f"{figure.removesuffix('.0')} equally long ones."
    )


def kinds(report: Report) -> list[tuple[str, int]]:
    """Words by whose they are, where there are any; kinds without a name here come last."""
    left = {kind: words for kind, words in report.words_by_kind.items() if words > 0}
    rows = [(name, sum(left.pop(k, 0) for k in members)) for name, members in _GROUPS]
    rows += [(plain(kind, 30).capitalize(), words) for kind, words in left.items()]
    return [(name, words) for name, words in rows if words]


def flags(post: PostSummary) -> str:
    """Why a post was looked at twice: "outweighs the others, reads unlike your other posts"."""
    return ", ".join(_FLAGS.get(flag, plain(flag, 40)) for flag in post.flags)


def decision(post: PostSummary) -> str:
    """What was decided about a post: Kept, Capped, Left out."""
    return _DECISIONS.get(post.decision, plain(post.decision, 40).capitalize())


def decided(report: Report) -> list[PostSummary]:
    """The posts an author may want to decide about: flagged, or not simply kept."""
    return [post for post in report.posts if post.flags or post.decision != "keep"]


def status(name: str) -> str:
    """What a status is called for people: "Drafts"."""
    return _STATUSES.get(name, plain(name, 30).capitalize())


def address(link: DeadLink) -> str:
    """Where a dead link leads, as its author knows it."""
    # Links by a post's number carry a mark of the reader's; see RawDocument.
    return plain(link.href.removeprefix("ref:"), 200)


def orphans(report: Report) -> str:
    """How many texts no other links to, in one sentence; empty where there are none."""
    alone, total = len(report.orphans), len(report.posts)
    if not alone or total < 2:
        return ""
    if alone == total:
        return f"None of the {count(total)} texts is linked from another."
    return f"No other text links to {count(alone)} of the {count(total)}."


def by_reason(items: Iterable[Exclusion]) -> list[tuple[str, str, int, list[str]]]:
    """What was left out, grouped: (what, reason, how many, the titles known), the largest first."""
    counts: dict[tuple[str, str], int] = {}
    titles: dict[tuple[str, str], list[str]] = {}
    for item in items:
        key = (plain(item.what, 40), plain(item.reason, 300))
        counts[key] = counts.get(key, 0) + item.count
        named = item.title or item.ref
        titles.setdefault(key, []).extend([title_of(named)] if named else [])
    ordered = sorted(counts, key=lambda key: (-counts[key], key))
    return [(what, reason, counts[what, reason], titles[what, reason]) for what, reason in ordered]


def by_year(phrases: Iterable[Phrase]) -> dict[int, list[Phrase]]:
    """Phrases by year, latest year first; year 0, over all years, stands apart under 0."""
    years: dict[int, list[Phrase]] = {}
    for phrase in phrases:
        years.setdefault(phrase.year, []).append(phrase)
    return {year: years[year] for year in sorted(years, reverse=True)}


def undated(report: Report) -> str:
    """A sentence about what carries no date, empty where everything does."""
    for year in report.years:
        if year.year == 0 and year.posts:
            verb = "carries" if year.posts == 1 else "carry"
            return f"{count(year.posts, 'text')} ({count(year.words, 'word')}) {verb} no date."
    return ""
