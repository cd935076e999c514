"""The truth about the corpus: every finding, put together into the report."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from statistics import fmean, median

from ownwords.archive import near_duplicates, style_outliers
from ownwords.archive.advice import advise
from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.features import SHARED_KINDS, Features, count_words, decode_features
from ownwords.archive.ingest import IngestResult
from ownwords.archive.log_detection import log_reason
from ownwords.archive.phrases import PhraseSource, favourite_phrases, sample_posts
from ownwords.archive.report import (
    DeadLink,
    Duplicate,
    Exclusion,
    LogBlock,
    PrivacySummary,
    Report,
    ReportTotals,
    UnlikePost,
    YearCount,
)
from ownwords.archive.report import PostSummary as PostLine
from ownwords.archive.report.formatting import CHOICES_FILE, count, title_of
from ownwords.archive.selection import (
    AuthorChoice,
    Decision,
    PostDecision,
    PostFacts,
    ProvenanceConfig,
    effective_posts,
    select_posts,
)
from ownwords.archive.split import PostSplit, SplitConfig, SplitInput, split_posts
from ownwords.archive.store import Archive
from ownwords.core.progress import Progress

_FIRST_LINE = 120  # characters of a dump that are shown
_OPTIONS: dict[Decision, str] = {
    "keep": "learn from all of it",
    "cap": "learn from so much of it that it does not outweigh the others",
    "leave out": "learn nothing from it; it can still be searched and cited",
}
_QUESTIONS = 12  # asking about every copy in a mirrored site would be a chore
_GONE = 3  # ids shown of decisions about texts that are not there
_FOUND_IN = 50  # titles listed under addresses and numbers


@dataclass(frozen=True, slots=True)
class PostQuestion:
    """What the author is asked about one post; `default` is applied where nobody can be asked."""

    id: str
    title: str
    text: str
    options: Mapping[Decision, str]  # what each means
    default: Decision


AskAuthor = Callable[[PostQuestion], str]


@dataclass(slots=True)
class CorpusFeatures:
    """What the findings are drawn from: small, whatever the size of the texts."""

    archive: Archive
    heads: dict[str, Document]
    features: dict[str, Features]

    @classmethod
    def of(cls, archive: Archive) -> "CorpusFeatures":
        """The corpus stored in an archive."""
        heads = {head.id: head for head in archive.heads()}
        return cls(archive, heads, {id_: decode_features(data) for id_, data in archive.features()})

    def title(self, document_id: str) -> str:
        return self.heads[document_id].title


def analyse(
    archive: Archive,
    intake: IngestResult,
    report: Report,
    *,
    provenance: ProvenanceConfig,
    split: SplitConfig,
    choices: list[AuthorChoice],
    ask: AskAuthor | None,
    progress: Progress,
) -> list[AuthorChoice]:
    """Fill the report in and store the selection; gives the author's choices, with new answers."""
    corpus = CorpusFeatures.of(archive)
    with progress.stage("Looking for copies"):
        pairs = near_duplicates.find_near_duplicates(
            corpus.features, lambda id_: archive.text(id_, SHARED_KINDS), provenance.near_duplicate
        )
    with progress.stage("Comparing styles"):
        judgement = style_outliers.find_style_outliers(corpus.features, provenance.unlike_distance)

    posts = [
        PostFacts(id_, h.title, corpus.features[id_], _day(h)) for id_, h in corpus.heads.items()
    ]
    verdicts = select_posts(posts, pairs, judgement.outliers, provenance, choices)
    if ask:
        answers = list(_answers(verdicts, corpus, ask))
        choices = [*choices, *answers]
        verdicts = select_posts(posts, pairs, judgement.outliers, provenance, choices)

    parts = [
        SplitInput(
            id_, corpus.features[id_].exact, v.training_words, _day(corpus.heads[id_]), _fixed(v)
        )
        for id_, v in verdicts.items()
    ]
    groups = near_duplicates.duplicate_groups(pairs)
    divisions = [
        split_posts(parts, groups, split, "random"),
        split_posts(parts, groups, split, "by date"),
    ]

    report.splits = [division.figures(parts) for division in divisions]
    report.duplicates = [
        Duplicate(
            p.id,
            p.other_id,
            corpus.title(p.id),
            corpus.title(p.other_id),
            p.exact,
            p.share,
            list(p.passages),
        )
        for p in pairs
    ]
    report.unlike = [
        UnlikePost(
            o.id,
            corpus.title(o.id),
            corpus.features[o.id].own_words,
            o.distance,
            list(o.evidence),
        )
        for o in judgement.outliers
    ]
    notes = [_of_no_post(choices, corpus), judgement.note, *(d.note for d in divisions)]
    report.notes = [*intake.notes, *dict.fromkeys(note for note in notes if note)]
    _count(report, corpus, verdicts, divisions)
    _find_dumps(report, corpus)
    _follow_links(report, corpus, intake)
    _listen_for_phrases(report, corpus, verdicts, progress)
    _list_left_out(report, archive, intake)
    _find_private(report, corpus, intake)
    report.advice = advise(
        report.totals.own_words,
        report.totals.training_words,
        report.totals.training_bytes,
        sum(1 for post in report.posts if post.training_words),
        effective_posts(post.training_words for post in report.posts),
    )
    archive.set_rejected(intake.skipped)
    archive.set_selection(
        (p.id, p.decision, p.reason, p.training_words, p.split, p.split_by_date)
        for p in report.posts
    )
    return choices


def _day(head: Document) -> date | None:
    return head.date.date() if head.date else None


def _year(head: Document) -> int:
    return head.date.year if head.date else 0


def _fixed(verdict: PostDecision) -> bool:
    return verdict.decision == "cap" or "dominant" in verdict.flags


def _of_no_post(choices: Iterable[AuthorChoice], corpus: CorpusFeatures) -> str:
    """A sentence about decisions on posts that are not there: gone, or misspelt."""
    gone = [choice.id for choice in choices if choice.id not in corpus.heads]
    if not gone:
        return ""
    names = ", ".join(gone[:_GONE]) + (", …" if len(gone) > _GONE else "")
    return (
        f"{CHOICES_FILE} decides about {count(len(gone), 'text')} that "
        f"{'is' if len(gone) == 1 else 'are'} not in the archive: {names}."
    )


def _answers(
    verdicts: Mapping[str, PostDecision], corpus: CorpusFeatures, ask: AskAuthor
) -> Iterator[AuthorChoice]:
    """Ask about what stood out and was not decided before, the longest posts first."""
    open_ = [
        v
        for v in verdicts.values()
        if v.by == "default"
        and v.reason
        and v.flags != ("dump",)
        # Where no word is the author's own, every answer comes to the same.
        and corpus.features[v.id].own_words
    ]
    open_.sort(key=lambda v: (-corpus.features[v.id].own_words, v.id))
    for verdict in open_[:_QUESTIONS]:
        title = title_of(corpus.title(verdict.id))
        question = PostQuestion(verdict.id, title, verdict.reason, _OPTIONS, verdict.decision)
        answer = ask(question)
        yield AuthorChoice(verdict.id, next(o for o in _OPTIONS if o == answer), by="you")


def _count(
    report: Report,
    corpus: CorpusFeatures,
    verdicts: Mapping[str, PostDecision],
    divisions: Iterable[PostSplit],
) -> None:
    """The totals, the years, and a line for every document, longest first."""
    randomly, by_date = (division.sides for division in divisions)
    features = corpus.features
    kinds: Counter[str] = Counter()
    for one in features.values():
        kinds.update(one.words)
    own = sum(one.own_words for one in features.values())
    for id_, head in corpus.heads.items():
        verdict, one = verdicts[id_], features[id_]
        day = _day(head)
        report.posts.append(
            PostLine(
                id=id_,
                title=head.title,
                url=head.url,
                day=day.isoformat() if day else "",
                kind=head.kind,
                words=one.all_words,
                own_words=one.own_words,
                share=one.own_words / own if own else 0.0,
                flags=list(verdict.flags),
                decision=verdict.decision,
                reason=verdict.reason,
                training_words=verdict.training_words,
                split=randomly.get(id_, ""),
                split_by_date=by_date.get(id_, ""),
            )
        )
    report.posts.sort(key=lambda post: (-post.own_words, -post.words, post.id))
    posts = [post for post in report.posts if post.kind == "post"]
    days = sorted(post.day for post in posts if post.day)
    lengths = [post.own_words for post in posts]
    report.words_by_kind = dict(kinds.most_common())
    report.effective_posts = effective_posts(post.own_words for post in report.posts)
    report.totals = ReportTotals(
        posts=len(posts),
        pages=len(report.posts) - len(posts),
        words=sum(kinds.values()),
        own_words=own,
        training_words=sum(post.training_words for post in report.posts),
        training_bytes=sum(
            round(features[p.id].bytes * p.training_words / p.own_words)
            for p in report.posts
            if p.training_words
        ),
        average_words=fmean(lengths) if lengths else 0.0,
        median_words=float(median(lengths)) if lengths else 0.0,
        tags=len({tag for head in corpus.heads.values() for tag in head.tags}),
        first_day=days[0] if days else "",
        last_day=days[-1] if days else "",
    )
    years: dict[int, YearCount] = {}
    for post in posts:
        number = int(post.day[:4]) if post.day else 0
        year = years.setdefault(number, YearCount(number, 0, 0))
        year.posts += 1
        year.words += post.own_words
    report.years = [years[number] for number in sorted(years)]


def _listen_for_phrases(
    report: Report, corpus: CorpusFeatures, verdicts: Mapping[str, PostDecision], progress: Progress
) -> None:
    """Of the posts that are learned from: another author's phrases are not this one's."""
    chosen = sample_posts(
        PhraseSource(id_, _year(corpus.heads[id_]), corpus.features[id_].own_words)
        for id_, verdict in verdicts.items()
        if verdict.decision != "leave out"
    )
    with progress.stage("Listening for favourite phrases", len(chosen), "posts") as stage:

        def text_of(id_: str) -> str:
            if stage.done < len(chosen):  # some are looked up a second time
                stage.advance()
            return corpus.archive.text(id_, OWN_KINDS)

        report.phrases = favourite_phrases(chosen, text_of)


def _find_dumps(report: Report, corpus: CorpusFeatures) -> None:
    for id_, text in corpus.archive.segments_of_kind("log"):
        lines = text.splitlines()
        report.dumps.append(
            LogBlock(
                id=id_,
                title=corpus.title(id_),
                words=count_words(text),
                lines=len(lines),
                reason=log_reason(text) or "a machine wrote it",
                first_line=lines[0][:_FIRST_LINE],
            )
        )
    report.dumps.sort(key=lambda dump: (-dump.words, dump.id))


def _follow_links(report: Report, corpus: CorpusFeatures, intake: IngestResult) -> None:
    names = intake.addresses()
    states: list[tuple[str, str, int]] = []
    reached: set[str] = set()
    for row, id_, link in corpus.archive.links():
        state, target = names.resolve(link.href, intake.bases[id_])
        if state == "dead" and id_ in intake.of_a_part:
            state = "site"  # it may well be in the part that was not given
        states.append((state, target, row))
        if state == "internal":
            report.totals.internal_links += 1
            if target != id_:
                reached.add(target)
        elif state == "external":
            report.totals.external_links += 1
        elif state == "dead":
            report.dead_links.append(DeadLink(id_, corpus.title(id_), link.href, link.text))
    corpus.archive.set_links(states)
    report.orphans = [p.id for p in report.posts if p.kind == "post" and p.id not in reached]


def _list_left_out(report: Report, archive: Archive, intake: IngestResult) -> None:
    report.left_out = [
        Exclusion(s.what, s.reason, s.count, s.title, s.ref) for s in intake.skipped
    ] + [
        Exclusion("part", reason, count)
        for reason, count in sorted(archive.dropped().items(), key=lambda item: -item[1])
    ]


def _find_private(report: Report, corpus: CorpusFeatures, intake: IngestResult) -> None:
    found = {id_: one.private for id_, one in corpus.features.items() if one.private.examples}
    report.privacy = PrivacySummary(
        emails=sum(one.emails for one in found.values()),
        phones=sum(one.phones for one in found.values()),
        found_in=[
            (corpus.title(id_), ", ".join(one.examples))
            for id_, one in list(found.items())[:_FOUND_IN]
        ],
        statuses_excluded=dict(sorted(intake.statuses_excluded.items())),
    )
