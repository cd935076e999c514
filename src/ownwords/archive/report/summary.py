"""Sentences, rows and figures of a report, shared by the page, the terminal and the server."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from ownwords.archive.report import (
    DeadLink,
    Duplicate,
    Exclusion,
    Phrase,
    PostSummary,
    Report,
    UnlikePost,
)
from ownwords.archive.report import formatting as fmt
from ownwords.archive.report.formatting import count, percent, plain, quoted, title_of

CHOICES_FILE: Final = "choices.toml"
LONGEST: Final = 10  # posts with their own bar
# Comparing passages word by word is slow, so fewer duplicates are shown than other findings.
PAIRS: Final = 20
PASSAGES: Final = 3  # of a pair
SIDES: Final = {"train": "Training", "validation": "Validation", "test": "Test"}

_PASSAGE_CHARACTERS = 600
_LONGEST_GAP = 60  # longest gap without posts that a chart still shows
# Each character of Chinese and Japanese counts as a word, as there are no spaces.
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]\s*|[^\s\u3040-\u30ff\u3400-\u9fff]+\s*")
_GROUPS = (
    ("Your own words", "own", ("prose", "heading", "list", "caption")),
    ("Quoted", "k1", ("quote",)),
    ("Code", "k2", ("code",)),
    ("Logs and dumps", "k3", ("log",)),
    ("Tables", "k4", ("table",)),
)
_FLAGS = {
    "dominant": "outweighs the other posts",
    "unlike": "reads unlike your other posts",
    "language": "is in another language",
    "dump": "contains machine output",
    "duplicate": "shares text with another post",
}
_STATUSES = {
    "draft": "Drafts",
    "trashed": "Posts in the trash",
    "hidden": "Hidden posts",
    "scheduled": "Scheduled posts",
    "private": "Private posts",
}
_DECISIONS = {"keep": "Kept", "cap": "Capped", "leave out": "Left out"}


class Figure(NamedTuple):
    """A headline figure, what it counts, and a remark."""

    figure: str
    label: str
    note: str


class Share(NamedTuple):
    """A part of a bar; `tone` is a class of the stylesheet, `strength` its opacity."""

    label: str
    value: int
    tone: str
    strength: float = 1.0


class YearBar(NamedTuple):
    """Posts and words of a year, and how many of the words were left out."""

    year: int
    posts: int
    words: int
    left_out: int


def name(report: Report) -> str:
    """The name of the site or folder."""
    return plain(report.name, 120) or "Your writing"


def lede(report: Report) -> tuple[str, str]:
    """The most important finding and its consequence, in two sentences."""
    totals = report.totals
    if not totals.words:
        return "The archive holds no words yet.", "There is nothing to train on."
    if not totals.own_words:
        return (
            f"None of the {count(totals.words, 'word')} {'is' if totals.words == 1 else 'are'}"
            " your own.",
            "They are quotations, code, tables or machine output: there is nothing to train on.",
        )
    usable = f"You can train on {count(totals.training_words, 'word')}."
    if totals.training_words == totals.own_words:
        usable = "You can train on all of them." if totals.own_words > 1 else usable
    if len(report.posts) == 1:
        words = count(totals.words, "word")
        if totals.own_words < totals.words:
            words = f"{words}, {count(totals.own_words)} of them your own"
        return f"One {report.posts[0].kind}, {words}.", usable
    top = max(report.posts, key=lambda post: post.share, default=None)
    if top and len(report.posts) > 3 and top.share > 1 / 3:
        return (
            f"One {top.kind} is {percent(top.share)} of your prose: {quoted(top.title, 90)}.",
            _dominant_decision(top, totals.training_words),
        )
    own = fmt.ratio(totals.own_words, totals.words)
    if own < 0.6:
        return (
            f"{percent(own)} of the words are your own.",
            f"The rest is quotations, code, tables or machine output. {usable}",
        )
    texts = " and ".join(
        count(number, noun)
        for number, noun in ((totals.posts, "post"), (totals.pages, "page"))
        if number
    )
    return f"{count(totals.own_words, 'word')} of your own in {texts}{_when(report)}.", usable


def _when(report: Report) -> str:
    first, last = fmt.day(report.totals.first_day), fmt.day(report.totals.last_day)
    if not first:
        return ""
    dated = ", the dated ones written" if undated(report) else ", written"
    return f"{dated} on {first}" if first == last else f"{dated} between {first} and {last}"


def _dominant_decision(post: PostSummary, training_words: int) -> str:
    total = count(training_words, "word")
    if post.decision == "leave out":
        return f"It is left out for now, so {total} remain to train on. You can change that."
    if post.decision == "cap":
        return (
            f"It is capped: training uses {count(post.training_words)} of its "
            f"{count(post.own_words, 'word')}, and {total} in all. You can change that."
        )
    return f"It is kept in full, so a model learns mostly from it. Training uses {total}."


def headline_figures(report: Report) -> list[Figure]:
    """The headline figures of the report."""
    totals, years = report.totals, years_spanned(report)
    links = totals.internal_links + totals.external_links
    days = [fmt.day(totals.first_day), fmt.day(totals.last_day)] if totals.first_day else []
    return [
        Figure(
            count(totals.posts),
            fmt.noun(totals.posts, "post"),
            f"and {count(totals.pages, 'page')}" if totals.pages else "",
        ),
        Figure(
            count(totals.own_words),
            f"{fmt.noun(totals.own_words, 'word')} of your own",
            f"of {count(totals.words)} in all",
        ),
        Figure(
            years or "–",
            "years" if "–" in years or not years else "year",
            " to ".join(dict.fromkeys(days)) or "no dates found",
        ),
        Figure(
            count(links),
            fmt.noun(links, "link"),
            f"{count(totals.internal_links)} internal, {count(totals.external_links)} external",
        ),
        Figure(
            count(totals.training_words),
            f"{fmt.noun(totals.training_words, 'word')} to train on",
            fmt.size(totals.training_bytes),
        ),
    ]


def average(report: Report) -> str:
    """The mean and median length of a text, in one sentence; empty without texts."""
    totals = report.totals
    if not totals.words:
        return ""
    tags = count(totals.tags, "tag") if totals.tags else "No tags"
    return (
        f"Your texts have {totals.average_words:,.0f} words of your own on average "
        f"(median {totals.median_words:,.0f}). {tags} in use."
    )


def years_spanned(report: Report) -> str:
    """ "2009–2024", "2024", or nothing if no post has a date."""
    first, last = (d[:4].lstrip("0") for d in (report.totals.first_day, report.totals.last_day))
    return plain(first if first == last or not last else f"{first}–{last}")


def evenness(report: Report) -> str:
    """A sentence that explains the effective number of posts."""
    total, number = len(report.posts), report.effective_posts
    if total < 2 or number <= 0:
        return ""
    if number > 0.95 * total:
        return f"Your {count(total)} texts are about equally long."
    figure = f"{number:.1f}" if number < 10 else f"{number:,.0f}"
    return (
        f"Lengths differ: your {count(total)} texts are as varied as "
        f"{figure.removesuffix('.0')} texts of equal length."
    )


def word_kinds(report: Report) -> list[Share]:
    """Words by kind (own, quoted, code, ...); unknown kinds come last."""
    left = {kind: words for kind, words in report.words_by_kind.items() if words > 0}
    rows = [
        Share(label, sum(left.pop(kind, 0) for kind in kinds), tone)
        for label, tone, kinds in _GROUPS
    ]
    rows += [Share(plain(kind, 30).capitalize(), words, "k4") for kind, words in left.items()]
    return [row for row in rows if row.value]


def shares(report: Report, *, training: bool = False) -> list[Share]:
    """The own words (or the training words) of the longest posts, and of all others together."""
    longest, others = report.posts[:LONGEST], report.posts[LONGEST:]

    def words(post: PostSummary) -> int:
        return post.training_words if training else post.own_words

    rows = [
        Share(
            title_of(post.title),
            words(post),
            "out" if post.decision == "leave out" else "own",
            round(1 - 0.06 * rank, 2),
        )
        for rank, post in enumerate(longest)
        if words(post)
    ]
    if rest := sum(map(words, others)):
        rows.append(Share(count(len(others), "other"), rest, "rest"))
    return rows


def is_selected(report: Report) -> bool:
    """Whether training uses less than all posts in full."""
    return any(post.decision != "keep" for post in report.posts) and any(
        post.training_words for post in report.posts
    )


def flags(post: PostSummary) -> str:
    """Why a post stands out: "outweighs the other posts, reads unlike your other posts"."""
    return ", ".join(_FLAGS.get(flag, plain(flag, 40)) for flag in post.flags)


def decision(post: PostSummary) -> str:
    """The decision on a post: Kept, Capped, Left out."""
    return _DECISIONS.get(post.decision, plain(post.decision, 40).capitalize())


def notable_posts(report: Report) -> list[PostSummary]:
    """The posts an author may want to decide about: flagged, capped or left out."""
    return [post for post in report.posts if post.flags or post.decision != "keep"]


def style_signs(post: UnlikePost) -> str:
    """The words by which a post's style differs, in one line."""
    signs = "; ".join(plain(sign, 120) for sign in post.evidence)
    signs = re.sub(r'"([^"]*)"', r"“\1”", signs)
    language = f"it is in {plain(post.language, 40)}" if post.language else ""
    return "; ".join(part for part in (language, signs) if part)


def duplicate_extent(pair: Duplicate) -> str:
    """How much two texts share, in one sentence."""
    if pair.exact:
        return "The same text, word for word."
    return f"{percent(pair.share)} of the shorter text also appears in the longer one."


def shorten_passage(passage: str) -> str:
    """Shorten a passage to the length shown."""
    return plain(passage, _PASSAGE_CHARACTERS)


Diff = list[tuple[str, bool]]


def diff_passages(left: str, right: str) -> tuple[Diff, Diff]:
    """Split both passages into pieces, each with whether it is missing from the other."""
    cut = max(len(left), len(right)) > _PASSAGE_CHARACTERS
    a, b = _WORDS.findall(shorten_passage(left)), _WORDS.findall(shorten_passage(right))
    diffs: tuple[Diff, Diff] = ([], [])
    for kind, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        # Ignore differences at the ends, which come from shortening.
        same = kind == "equal" or (cut and (a1, b1) == (len(a), len(b)))
        for diff, words in zip(diffs, ("".join(a[a0:a1]), "".join(b[b0:b1])), strict=True):
            if words:
                diff.append((words, not same))
    return diffs


def internal_links(report: Report) -> str:
    """Whether the links between the posts work, in one sentence."""
    if dead := len(report.dead_links):
        return f"{count(dead, 'internal link')} {'leads' if dead == 1 else 'lead'} nowhere."
    if report.totals.internal_links:
        return "All internal links work."
    return "Your posts do not link to each other."


def link_target(link: DeadLink) -> str:
    """The target of a dead link as its author wrote it."""
    # Sources prefix links to posts by number with "ref:"; see RawDocument.
    return plain(link.href.removeprefix("ref:"), 200)


def orphans(report: Report) -> str:
    """The number of texts no other text links to, in one sentence; empty if there are none."""
    alone, total = len(report.orphans), len(report.posts)
    if not alone or total < 2:
        return ""
    if alone == total:
        return f"None of the {count(total)} texts is linked from another."
    return f"No other text links to {count(alone)} of the {count(total)}."


def exclusion_reasons(items: Iterable[Exclusion]) -> list[tuple[str, str, int, list[str]]]:
    """What was left out of the archive: (what, reason, how many, known titles), largest first."""
    counts: dict[tuple[str, str], int] = {}
    titles: dict[tuple[str, str], list[str]] = {}
    for item in items:
        key = (plain(item.what, 40), plain(item.reason, 300))
        counts[key] = counts.get(key, 0) + item.count
        label = item.title or item.ref
        titles.setdefault(key, []).extend([title_of(label)] if label else [])
    ordered = sorted(counts, key=lambda key: (-counts[key], key))
    return [(what, reason, counts[what, reason], titles[what, reason]) for what, reason in ordered]


def phrases_by_year(phrases: Iterable[Phrase]) -> dict[int, list[Phrase]]:
    """Phrases by year, the latest first; year 0 holds those over all years."""
    years: dict[int, list[Phrase]] = {}
    for phrase in phrases:
        years.setdefault(phrase.year, []).append(phrase)
    return {year: years[year] for year in sorted(years, reverse=True)}


def undated(report: Report) -> str:
    """How many texts have no date, in one sentence; empty if all have one."""
    for year in report.years:
        if year.year == 0 and year.posts:
            verb = "has" if year.posts == 1 else "have"
            return f"{count(year.posts, 'text')} ({count(year.words, 'word')}) {verb} no date."
    return ""


def year_bars(report: Report) -> list[YearBar]:
    """Posts and words per year, including years without posts unless the gap is very long."""
    dated = {year.year: year for year in report.years if year.year}
    if not dated:
        return []
    left_out: dict[int, int] = {}
    for post in report.posts:
        # Years count only posts, not pages.
        if post.kind == "post" and post.decision == "leave out" and post.day[:4].isdecimal():
            left_out[int(post.day[:4])] = left_out.get(int(post.day[:4]), 0) + post.own_words
    first, last = min(dated), max(dated)
    span = range(first, last + 1) if last - first < _LONGEST_GAP else sorted(dated)
    return [
        YearBar(year, dated[year].posts, dated[year].words, left_out.get(year, 0))
        if year in dated
        else YearBar(year, 0, 0, 0)
        for year in span
    ]


def longest_year(bars: list[YearBar]) -> str:
    """The year with the most words, in one sentence; empty if there is only one year."""
    if sum(bar.posts > 0 for bar in bars) < 2:
        return ""
    most = max(bars, key=lambda bar: bar.words)
    words = f"{count(most.words, 'word')} in {count(most.posts, 'post')}"
    if most.left_out:
        words += f", {count(most.left_out)} of them in posts left out of training"
    return f"You wrote most in {most.year}: {words}."


def privacy_lines(report: Report) -> list[tuple[str, str]]:
    """What was read, what was not, and how many addresses the texts contain."""
    privacy = report.privacy
    lines = [("Sources read", len(report.sources))]
    lines += [
        (f"{_STATUSES.get(status, plain(status, 30).capitalize())}, left out", number)
        for status, number in privacy.statuses_excluded.items()
    ]
    lines += [
        ("E-mail addresses found", privacy.emails),
        ("Phone numbers found", privacy.phones),
        ("Network calls made", privacy.network_calls),
    ]
    return [(label, count(number) if number else "none") for label, number in lines]
