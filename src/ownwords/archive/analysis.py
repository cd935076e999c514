"""Compute an archive's report: duplicates, style, decisions, split."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ownwords.archive.advice import advise
from ownwords.archive.document import Document, SkippedItem
from ownwords.archive.features import SHARED_KINDS
from ownwords.archive.ingest import IngestResult
from ownwords.archive.log_detection import log_reason
from ownwords.archive.near_duplicates import duplicate_groups, find_near_duplicates
from ownwords.archive.report import (
    LogBlock,
    PostSummary,
    Report,
    ReportTotals,
    SplitCounts,
)
from ownwords.archive.selection import (
    Choices,
    Decision,
    Side,
    select_posts,
    split_posts,
)
from ownwords.archive.settings import LookSettings
from ownwords.archive.store import Archive
from ownwords.archive.style_outliers import find_style_outliers
from ownwords.core.progress import Progress
from ownwords.core.text import count_words
from ownwords.view.format import count, title_of

_FIRST_LINE = 120  # characters of a log's first line shown
_OPTIONS: dict[Decision, str] = {
    "keep": "train on all of it",
    "cap": "train on only part of it, so that it does not outweigh the other posts",
    "leave out": "do not train on it; you can still search and cite it",
}
_MAX_QUESTIONS = 12  # a mirrored site is full of copies
_NAMED_IDS = 3  # ids of missing texts named in the note


@dataclass(frozen=True, slots=True)
class PostQuestion:
    """A question to the author about a post or source; `default` if nobody can be asked."""

    id: str
    title: str
    text: str
    options: Mapping[Any, str]  # answer -> its meaning
    default: str


AskAuthor = Callable[[PostQuestion], str]


def ask_author(report: Report, choices: Choices, ask: AskAuthor) -> dict[str, Decision]:
    """Ask about the posts that stand out and have no decision yet, the longest first."""
    # Without own words every decision has the same effect, so do not ask.
    posts = [
        post
        for post in report.posts
        if post.reason and post.own_words and post.flags != ["dump"] and post.id not in choices
    ]
    answers: dict[str, Decision] = {}
    for post in posts[:_MAX_QUESTIONS]:
        default = next(option for option in _OPTIONS if option == post.decision)
        answer = ask(PostQuestion(post.id, title_of(post.title), post.reason, _OPTIONS, default))
        answers[post.id] = next(option for option in _OPTIONS if option == answer)
    return answers


class ArchiveAnalysis:
    """Compares the documents of an archive once, and fills reports for any set of choices.

    Holds the documents' headers and features in memory, not their texts.
    """

    def __init__(
        self,
        archive: Archive,
        ingested: IngestResult,
        settings: LookSettings,
        progress: Progress,
    ) -> None:
        self._archive, self._ingested = archive, ingested
        self._settings, provenance = settings, settings.provenance
        self._headers = {header.id: header for header in archive.headers()}
        self._features = dict(archive.features())
        progress.begin("analyse")
        with progress.stage("Finding duplicates"):
            self._pairs = find_near_duplicates(
                self._features,
                lambda id_: archive.text(id_, SHARED_KINDS),
                provenance.near_duplicate,
            )
        with progress.stage("Comparing styles"):
            self._outliers = find_style_outliers(self._features, provenance.unlike_distance)

    def fill(self, report: Report, choices: Choices) -> None:
        """Fill in the report, and store the selection of training posts."""
        posts = select_posts(
            map(self._summary, self._headers.values()),
            self._pairs,
            self._outliers,
            self._settings.provenance,
            choices,
        )
        config = self._settings.split
        kept = self._archive.kept_sides(repr(config))
        for former, id_ in self._ingested.renamed.items():
            if former in kept:
                kept.setdefault(id_, kept[former])
        split = split_posts(posts.values(), duplicate_groups(self._pairs), config, kept)
        self._archive.keep_sides(repr(config), split.for_next)
        for post in posts.values():
            post.split = split.sides.get(post.id, "")
        report.posts = sorted(
            posts.values(), key=lambda post: (-post.own_words, -post.words, post.id)
        )
        report.split = SplitCounts(*(dict.fromkeys(get_args(Side), 0) for _ in range(2)))
        for post in filter(lambda post: post.split, posts.values()):
            report.split.posts[post.split] += 1
            report.split.words[post.split] += post.training_words
        report.duplicates = self._pairs
        report.style_outliers = self._outliers
        notes = [self._missing_posts(choices), split.note]
        report.notes = [*self._ingested.notes, *filter(None, notes)]
        self._count(report)
        self._list_logs(report)
        dropped = sorted(self._archive.dropped().items(), key=lambda item: -item[1])
        parts = [SkippedItem("part", reason, number) for reason, number in dropped]
        report.excluded = [*self._ingested.skipped, *parts]
        report.advice = advise(report.totals)
        self._archive.set_selection(
            (p.id, p.decision, p.training_words, p.split) for p in report.posts
        )

    def _missing_posts(self, choices: Choices) -> str:
        """Return a note on choices for posts not in the archive (deleted or misspelt), or ""."""
        missing = [id_ for id_ in choices if id_ not in self._headers]
        if not missing:
            return ""
        names = ", ".join(missing[:_NAMED_IDS]) + (", …" if len(missing) > _NAMED_IDS else "")
        texts = f"{count(len(missing), 'text')} that {'is' if len(missing) == 1 else 'are'}"
        return f"You have decided about {texts} not in the archive: {names}."

    def _summary(self, header: Document) -> PostSummary:
        features = self._features[header.id]
        return PostSummary(
            id=header.id,
            title=header.title,
            url=header.url,
            day=header.day,
            kind=header.kind,
            words=features.all_words,
            own_words=features.own_words,
            log_words=features.words.get("log", 0),
            language=features.language,
            source=self._ingested.origins.get(header.id, 0),
        )

    def _count(self, report: Report) -> None:
        """Fill in the totals."""
        kinds: Counter[str] = Counter()
        for features in self._features.values():
            kinds.update(features.words)
        posts = [post for post in report.posts if post.kind == "post"]
        training_words = sum(post.training_words for post in report.posts)
        days = sorted(post.day for post in posts if post.day)
        report.words_by_kind = dict(kinds.most_common())
        report.totals = ReportTotals(
            posts=len(posts),
            pages=len(report.posts) - len(posts),
            words=kinds.total(),
            own_words=sum(post.own_words for post in report.posts),
            training_words=training_words,
            training_bytes=sum(
                round(self._features[p.id].bytes * p.training_words / p.own_words)
                for p in report.posts
                if p.training_words
            ),
            first_day=days[0] if days else "",
            last_day=days[-1] if days else "",
        )

    def _list_logs(self, report: Report) -> None:
        dumps = [
            LogBlock(
                id=id_,
                words=count_words(text),
                lines=len(lines := text.splitlines()),
                reason=log_reason(text) or "it looks like machine output",
                first_line=lines[0][:_FIRST_LINE],
            )
            for id_, text in self._archive.segments_of_kind("log")
        ]
        report.dumps = sorted(dumps, key=lambda dump: (-dump.words, dump.id))
