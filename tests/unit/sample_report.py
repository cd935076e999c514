"""Reports to test the page and the terminal with: a realistic one, and the hard cases."""

from ownwords.archive.document import SkippedItem
from ownwords.archive.report import (
    Advice,
    DeadLink,
    Duplicate,
    LogBlock,
    Phrase,
    PostSummary,
    PrivacySummary,
    Report,
    ReportTotals,
    SourceSummary,
    SplitCounts,
    UnlikePost,
    YearCount,
)

NOVEL = "The Count of the Salt Marshes, complete (a translation I found)"

_TITLES = (
    """
Restoring a 1958 lathe, part one|How I keep my backups honest|Eleven winters with a wood stove
What the mill taught me about patience|A kitchen table from one ash tree|The great server migration
Sharpening without jigs|Notes from a week without a phone|Why my static site still has no comments
Letters I did not send|Restoring a 1958 lathe, part two|The rye bread I actually bake
A small program that sorts photographs|Moving house with nine hundred books|On finishing things
The bicycle that outlived three cars|My grandfather's ledger|A month of writing by hand
Reading Montaigne on the tram|How to hang a door|Five years of the garden, in numbers
The shed, measured|Cheap microphones, compared by a stubborn ear|An apology to my compost heap
Rain, and what it does to plans|Restoring a 1958 lathe, part three|Learning Danish badly
The map on the stairwell wall|What I got wrong about planes|Two recipes for quince
Borrowed tools|A walk to the reservoir and back|Glue|The library closes at six|Ink that does not run
On keeping a diary nobody reads|Three chairs|A radio for the workshop|Frost|The neighbour's saw
Small repairs|The last train home|Late tomatoes|Happy new year, somehow|Testing, testing
""".strip()
    .replace("\n", "|")
    .split("|")
)


def sample() -> Report:
    """46 posts of a workshop blog; one of them, somebody else's novel, holds 54% of the words."""
    posts = _posts()
    words = sum(post.words for post in posts)
    included = [post for post in posts if post.decision != "leave out"]
    by_year: dict[int, list[PostSummary]] = {}
    for post in posts:
        by_year.setdefault(int(post.day[:4] or 0), []).append(post)
    own = sum(post.own_words for post in posts)
    return Report(
        name="Shavings",
        fingerprint="9f3ac41d07be5582aa10c3f4e6d97b21",
        version="0.1.0",
        created_on="2025-03-12",
        workspace="/home/ida/shavings.ownwords",
        command="ownwords look /home/ida/Documents/Publii/sites/shavings",
        sources=[
            SourceSummary(
                path="/home/ida/Documents/Publii/sites/shavings",
                detected_as="a Publii site (input/db.sqlite)",
                site_name="Shavings",
                documents=46,
            )
        ],
        totals=ReportTotals(
            posts=44,
            pages=2,
            words=words,
            own_words=own,
            training_words=sum(post.training_words for post in included),
            training_bytes=187_432,
            average_words=own / 46,
            median_words=537,
            internal_links=63,
            external_links=218,
            tags=31,
            first_day="2012-11-04",
            last_day="2024-10-19",
        ),
        words_by_kind={
            "prose": own - 3_804,
            "heading": 1_204,
            "list": 2_310,
            "caption": 290,
            "quote": 1_872,
            "code": words - own - 3_376,
            "table": 312,
            "log": 1_192,
        },
        effective_posts=3.4,
        years=[
            YearCount(year, len(posts_of_year), sum(post.own_words for post in posts_of_year))
            for year, posts_of_year in sorted(by_year.items())
        ],
        posts=posts,
        duplicates=_duplicates(),
        dumps=[
            LogBlock(
                "p6",
                "The great server migration",
                1_014,
                212,
                "most lines begin with a time of day",
                "2016-02-11T03:12:44.190Z mill kernel: [ 1042.881] ata2.00: status: { DRDY ERR }",
            ),
            LogBlock(
                "p13",
                "A small program that sorts photographs",
                178,
                31,
                "few letters, many numbers",
                "IMG_20180701_181204.jpg  4032x3024  f/1.8  1/640  ISO 20  -> 2018/07/01/",
            ),
        ],
        style_outliers=[
            UnlikePost(
                "p0",
                11.4,
                ['"upon" 31 times as often', '"thou" where you never use it', '"I" half as often'],
                NOVEL,
                posts[0].words,
            ),
            UnlikePost(
                "p10",
                4.1,
                ['"you" 6 times as often', '"which" a fifth as often'],
                "Letters I did not send",
                1_302,
            ),
        ],
        dead_links=[
            DeadLink(
                "p1",
                "Restoring a 1958 lathe, part one",
                "/2013/04/the-headstock/",
                "the headstock, which I will get to",
            ),
            DeadLink("p8", "Notes from a week without a phone", "/tag/silence/", "silence"),
            DeadLink("p22", "The shed, measured", "ref:post/77", "an older plan"),
        ],
        orphans=[post.id for post in posts[9:]],
        phrases=_phrases(),
        excluded=[
            SkippedItem("post", "draft", 1, "The stove, revisited", "post/81"),
            SkippedItem("post", "draft", 1, "Untitled 3", "post/84"),
            SkippedItem("post", "draft", 1, "Why I stopped sharpening on Sundays", "post/90"),
            SkippedItem("post", "in the trash", 2),
            SkippedItem("comment", "other people's words", 412),
            SkippedItem("block", "gallery: pictures without words", 38),
            SkippedItem("block", "embedded video", 7),
            SkippedItem("characters", "invisible: soft hyphens and zero-width spaces", 1_260),
        ],
        privacy=PrivacySummary(
            emails=3,
            phones=1,
            found_in=[
                ("Borrowed tools", "j…@e….org"),
                ("The library closes at six", "o…@s….example"),
                ("The library closes at six", "+45 … 17"),
                ("Late tomatoes", "k…@h….net"),
            ],
            statuses_excluded={"draft": 3, "trashed": 2, "hidden": 1},
        ),
        advice=Advice(
            headline="Enough to teach a small model your turns of phrase, not enough to teach it "
            "facts.",
            sentences=[
                "With about thirty thousand words, a model trained from nothing learns spelling, "
                "rhythm and your favourite words, and little else.",
                "Starting from a model that already knows English is the better use of this much "
                "writing.",
            ],
            rows=[
                ("Will it sound like me?", "In short stretches, yes: start from the base model."),
                (
                    "Will it know what I know?",
                    "No. Ask the archive instead; it answers with links.",
                ),
                (
                    "Will it repeat my posts?",
                    "It may. The score shows how much was learned by heart.",
                ),
                ("What would help most?", "A hundred more posts, or older writing from elsewhere."),
            ],
        ),
        split=SplitCounts(
            {"train": 37, "validation": 4, "test": 3},
            {"train": 26_334, "validation": 2_734, "test": 2_201},
        ),
        notes=[
            "Two posts carry the same web address; the later one was given a number.",
            "Pictures were not read; their captions were.",
        ],
    )


def _posts() -> list[PostSummary]:
    """Lengths fall off as in real blogs; the dates are irregular, 2019 is empty."""
    lengths = [int(96 + 2_400 / (1 + 0.16 * i)) for i in range(45)]
    own = [1_014 if i == 6 else 80 for i in range(1, 46)]
    own = [length - own_words for length, own_words in zip(lengths, own, strict=True)]
    novel = int(sum(own) * 54 / 46)
    total = novel + sum(own)
    posts = [
        PostSummary(
            id="p0",
            title=NOVEL,
            url="https://shavings.example/salt-marshes/",
            day="2021-08-15",
            kind="post",
            words=novel,
            own_words=novel,
            share=novel / total,
            flags=["dominant", "unlike"],
            decision="leave out",
            reason="54% of all the prose, and it reads unlike your other posts",
        )
    ]
    for i, (title, words, own_count) in enumerate(zip(_TITLES, lengths, own, strict=True), start=1):
        year = 2012 + (i * 7) % 13
        posts.append(
            PostSummary(
                id=f"p{i}",
                title=title,
                url=f"https://shavings.example/{i}/",
                day=f"{2020 if year == 2019 else year}-{1 + i % 12:02}-{1 + i % 28:02}",
                kind="page" if i in {31, 40} else "post",
                words=words,
                own_words=own_count,
                share=own_count / total,
                training_words=own_count,
                split=("validation", "test", "train", "train", "train")[i % 5],
            )
        )
    log = "1,014 of its 1,429 words are logs, which are never trained on"
    for number, flag, decision, reason, used in (
        (1, "duplicate", "cap", "a third of it stands in part three as well", 1_600),
        (6, "dump", "keep", log, posts[6].own_words),
        (10, "unlike", "keep", "it reads unlike your other posts, and is short", 999),
        (43, "duplicate", "leave out", "the same text as “Testing, testing”, which is kept", 0),
    ):
        post = posts[number]
        post.flags, post.decision, post.reason = [flag], decision, reason
        post.training_words = used
        post.split = post.split if used else ""
    return sorted(posts, key=lambda post: -post.own_words)


def _duplicates() -> list[Duplicate]:
    return [
        Duplicate(
            "p1",
            "p26",
            title="Restoring a 1958 lathe, part one",
            other_title="Restoring a 1958 lathe, part three",
            exact=False,
            share=0.34,
            passages=[
                (
                    "The lathe came to me in the back of a bread van, under a tarpaulin, with no "
                    "manual and a family of mice in the gearbox. I paid too much for it, and I "
                    "knew it at the time.",
                    "The lathe came to me in the back of a bread van, under two blankets, with no "
                    "manual and a family of mice in the headstock. I paid too much for it, and I "
                    "would again.",
                ),
                (
                    "Clean first, measure second, and only then reach for a spanner.",
                    "Clean first, measure second, and only then reach for a spanner.",
                ),
            ],
        ),
        Duplicate("p43", "p45", True, 1.0, title="Late tomatoes", other_title="Testing, testing"),
    ]


def _phrases() -> list[Phrase]:
    overall = [
        ("as it turns out", 41, 23),
        ("for the time being", 29, 19),
        ("I should have known", 22, 17),
        ("more or less level", 17, 9),
        ("which is to say", 16, 12),
        ("the right tool for", 14, 11),
        ("but that is another story", 13, 13),
        ("with a cup of coffee", 9, 8),
    ]
    yearly = [
        (2013, "on the workbench", 9),
        (2013, "for the first time", 6),
        (2016, "at three in the morning", 11),
        (2016, "off-site copy", 8),
        (2021, "as it turns out", 14),
        (2024, "which is to say", 12),
        (2024, "no longer needed", 7),
    ]
    return [Phrase(text, times, posts) for text, times, posts in overall] + [
        Phrase(text, times, max(1, times // 2), year) for year, text, times in yearly
    ]


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
    years: dict[int, int] = {}
    for post in posts:
        year = int(post.day[:4] or 0)
        years[year] = years.get(year, 0) + 1
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
            average_words=float(words),
            median_words=float(words),
            first_day=days[0],
            last_day=days[-1],
        ),
        words_by_kind={"prose": total},
        effective_posts=float(len(titles)),
        years=[YearCount(year, number, number * words) for year, number in sorted(years.items())],
        posts=posts,
        orphans=[post.id for post in posts],
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
    passage = "It rained in the morning and cleared up towards noon, as it does. " * 30
    for i, post in enumerate(report.posts[:3_000]):
        report.duplicates.append(
            Duplicate(
                post.id,
                "p0",
                False,
                0.5,
                [(passage, passage.replace("noon", f"{i} o'clock"))] * 5,
                post.title,
                titles[0],
            )
        )
        report.dumps.append(LogBlock(post.id, post.title, 80, 9, "digits", "0001 0002 0003"))
        report.style_outliers.append(
            UnlikePost(post.id, 5.0, ['"rain" twice as often'], post.title, 500)
        )
        report.dead_links.append(DeadLink(post.id, post.title, f"/gone/{i}/", "gone"))
        report.phrases.append(Phrase(f"phrase {i}", 9, 4, 2001 + i % 24))
        report.phrases.append(Phrase(f"turn {i}", 9, 4))
        report.excluded.append(SkippedItem("post", f"reason {i % 400}", 1, f"Draft {i}"))
        report.privacy.found_in.append((post.title, "a…@b….org"))
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
    report.duplicates = [Duplicate("p0", "p1", False, 0.5, [(bad, bad + " x")], bad, bad)]
    report.dumps = [LogBlock("p0", bad, 1, 1, bad, bad)]
    report.style_outliers = [UnlikePost("p0", 4.0, [bad], bad, 1)]
    report.dead_links = [DeadLink("p0", bad, bad, bad)]
    report.phrases = [Phrase(bad, 3, 2), Phrase(bad, 3, 2, 2020)]
    report.excluded = [SkippedItem(bad, bad, 2, bad, bad)]
    report.privacy = PrivacySummary(1, 1, [(bad, bad)], {bad: 1}, 2)
    report.advice = Advice(bad, [bad], [(bad, bad)])
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
    builders = (
        sample,
        nothing,
        one_post,
        without_dates,
        long_titles,
        other_scripts,
        hostile,
        huge,
    )
    return [(build.__name__, build()) for build in builders]
