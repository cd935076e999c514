"""Reports to test the page and the terminal with: a realistic one, and the hard cases."""

from ownwords.archive.document import SkippedItem
from ownwords.archive.report import (
    Advice,
    Duplicate,
    LogBlock,
    PostSummary,
    Report,
    ReportTotals,
    SourceSummary,
    SplitCounts,
    UnlikePost,
)

NOVEL = "The Count of the Salt Marshes, complete (a translation I found)"


def sample() -> Report:
    """46 posts of a workshop blog; one of them, somebody else's novel, holds 54% of the words."""
    report = plain_report([NOVEL, "Restoring a lathe", *(f"Note {i}" for i in range(2, 46))])
    novel, lathe, migration, late, *_ = posts = report.posts
    own = 45 * 500
    novel.words = novel.own_words = round(own * 54 / 46)
    total = novel.own_words + own
    for post in posts:
        post.share = post.own_words / total
    migration.words, migration.log_words = 1_514, 1_014
    migration.flags, migration.reason = ["dump"], "1,014 of its 1,514 words are machine output"
    novel.flags, novel.decision, novel.reason = ["dominant", "unlike"], "leave out", "54%"
    lathe.flags, lathe.decision, lathe.training_words = ["duplicate"], "cap", 300
    late.flags, late.decision, late.reason = ["duplicate"], "leave out", "the same text as “Note 4”"
    posts[30].kind = posts[40].kind = "page"
    for post in (novel, late):
        post.training_words, post.split = 0, ""
    report.name = "Shavings"
    report.command = "ownwords look /home/ida/shavings"
    training_words = sum(post.training_words for post in posts)
    report.totals = ReportTotals(
        posts=44,
        pages=2,
        words=total + 5_000,
        own_words=total,
        training_words=training_words,
        training_bytes=187_432,
        first_day="2012-11-04",
        last_day="2024-10-19",
    )
    report.words_by_kind = {"prose": total - 300, "list": 300, "quote": 3_986, "log": 1_014}
    report.duplicates = [Duplicate("p1", "p4", False, 0.34), Duplicate("p3", "p4", True, 1.0)]
    line = "2016-02-11T03:12:44.190Z mill kernel: [ 1042.881] ata2.00: status: { DRDY ERR }"
    report.dumps = [LogBlock("p2", 1_014, 212, "most lines begin with a time", line)]
    report.style_outliers = [UnlikePost("p0", 11.4)]
    report.excluded = [
        SkippedItem("post", "draft", 1, "The stove, revisited", "post/81"),
        SkippedItem("comment", "other people's words", 412),
        SkippedItem("block", "gallery: pictures without words", 38),
    ]
    report.advice = Advice(
        "Enough to teach a small model your turns of phrase.",
        ["Starting from a model that already knows English is the better use of this text."],
    )
    report.split = SplitCounts(
        {"train": 37, "validation": 4, "test": 3},
        {"train": training_words - 3_500, "validation": 2_000, "test": 1_500},
    )
    report.notes = ["Pictures were not read; their captions were."]
    return report


def plain_report(
    titles: list[str], *, dated: bool = True, words: int = 500, flagged: bool = False
) -> Report:
    """A report of posts with these titles, all equally long, and nothing else."""
    total = words * len(titles)
    posts = [
        PostSummary(
            id=f"p{i}",
            title=title,
            url=f"https://site.example/{i}",
            day=f"{2001 + i % 24}-05-{1 + i % 28:02}" if dated else "",
            kind="post",
            words=words,
            own_words=words,
            share=1 / len(titles),
            flags=["unlike", "dump"] if flagged else [],
            reason=title if flagged else "",
            training_words=words,
            split="train",
        )
        for i, title in enumerate(titles)
    ]
    days = sorted(post.day for post in posts)
    return Report(
        name="A site",
        fingerprint="0123456789abcdef",
        version="0.1.0",
        created_on="2025-03-12",
        workspace="/home/me/a-site.ownwords",
        command="ownwords look site",
        sources=[SourceSummary("site", "a folder of Markdown files", documents=len(titles))],
        totals=ReportTotals(
            posts=len(titles),
            words=total,
            own_words=total,
            training_words=total,
            training_bytes=total * 6,
            first_day=days[0],
            last_day=days[-1],
        ),
        words_by_kind={"prose": total},
        posts=posts,
    )


def nothing() -> Report:
    """No text was found."""
    return Report(name="", fingerprint="", version="0.1.0", created_on="2025-03-12")


def one_post() -> Report:
    """A blog that has just begun."""
    return plain_report(["Hello"])


def without_dates() -> Report:
    """A folder of undated texts."""
    return plain_report([f"Note {i}" for i in range(12)], dated=False)


def huge() -> Report:
    """10,000 posts with findings of every kind in thousands."""
    titles = [f"Diary, entry number {i}, in which it rains & clears up" for i in range(10_000)]
    report = plain_report(titles, flagged=True)
    for i, post in enumerate(report.posts[:3_000]):
        report.duplicates.append(Duplicate(post.id, "p0", False, 0.5))
        report.dumps.append(LogBlock(post.id, 80, 9, "digits", "0001 0002 0003"))
        report.style_outliers.append(UnlikePost(post.id, 5.0))
        report.excluded.append(SkippedItem("post", f"reason {i % 400}", 1, f"Draft {i}"))
        report.notes.append(f"Note {i}.")
    return report


def long_titles() -> Report:
    """Titles with and without a place to break."""
    return plain_report(["word " * 400, "W" * 3_000, "a-very-long-slug-" * 60, ""], flagged=True)


def other_scripts() -> Report:
    """Right-to-left, wide and combining characters."""
    return plain_report(
        [
            "مرحبا بالعالم، هذه مدونتي",
            "שלום עולם (חלק 2)",
            "東京の冬について書いた長い日記のはじまり",
            "한국어 제목입니다",
            "e\u0301te\u0301 👩‍👩‍👧 नमस्ते",
        ],
        flagged=True,
    )


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=\'alert(1)\'> & "quotes"',
    "</title></style><script src=https://evil.example/x.js></script>",
    "[red]x[/red] [link=https://evil.example]here[/link] :smile: [/]",
    "bell\x07 escape\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07 nul\x00 c1\x9b31m",
    "over\u202eride \u2066isolate lone\ud800 line\u2028break\nnew\rline\ttab",
    "{{ 7*7 }} ${x} %s {0} url(https://evil.example/a.png)",
]


def hostile() -> Report:
    """Every external text tries to be markup or a control sequence."""
    report = plain_report(HOSTILE, flagged=True)
    bad = " ".join(HOSTILE)
    report.name = report.workspace = report.version = report.fingerprint = bad
    report.command = bad
    report.sources = [SourceSummary(bad, bad, bad, 7)]
    report.words_by_kind = {"prose": 400, bad: 300}
    report.duplicates = [Duplicate("p0", "p1", False, 0.5)]
    report.dumps = [LogBlock("p0", 1, 1, bad, bad)]
    report.style_outliers = [UnlikePost("p0", 4.0)]
    report.excluded = [SkippedItem(bad, bad, 2, bad, bad)]
    report.advice = Advice(bad, [bad])
    report.split = SplitCounts({bad: 1}, {bad: 5})
    report.notes = [bad]
    for post, url in zip(
        report.posts,
        ["javascript:alert(1)", "data:text/html,<b>", 'https://a.example/"onclick="x', "", "//x"],
        strict=False,
    ):
        post.url, post.day, post.kind, post.decision = url, bad, bad, bad
        post.flags, post.reason, post.split = [bad], bad, bad
    return report


def every() -> list[tuple[str, Report]]:
    """All of them, by name."""
    plain = (nothing, one_post, without_dates, long_titles, other_scripts)
    return [(build.__name__, build()) for build in (sample, *plain, hostile, huge)]
