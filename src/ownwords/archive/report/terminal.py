"""The report in a terminal: the same truth as the page, in what fits a few screens."""

from rich.console import Console

from ownwords.archive.report import PostSummary, Report
from ownwords.archive.report import formatting as say
from ownwords.archive.report.terminal_writer import ACCENT, LOUD, QUIET, TerminalWriter

_LONGEST = 10
_FEW = 5
_MANY = 8


def print_report(report: Report, console: Console) -> None:
    """Print the report; no line is wider than the console, and no text of the report is markup."""
    _ReportPrinter(console).report(report)


class _ReportPrinter(TerminalWriter):
    """The sections, in the order an author would ask for them."""

    def report(self, report: Report) -> None:
        self._title(report)
        self._totals(report)
        self._advice(report)
        self._decisions(report)
        self._longest(report)
        self._whose(report)
        self._years(report)
        self._twice(report)
        self._unlike(report)
        self._links(report)
        self._phrases(report)
        self._left_out(report)
        self._splits(report)
        self._privacy(report)
        self._notes(report)
        self._where(report)

    def _title(self, report: Report) -> None:
        first, then = say.lede(report)
        self.space()
        self.line(say.name(report), LOUD)
        for source in report.sources[:_FEW]:
            seen = f", {say.plain(source.seen_as, 160)}" if source.seen_as else ""
            self.line(f"{say.plain(source.path)}{seen}", QUIET)
        self.rest(len(report.sources), _FEW, "source")
        self.rule()
        self.line(first, LOUD)
        self.line(then)
        self.space()

    def _totals(self, report: Report) -> None:
        totals = report.totals
        pages = f" and {say.count(totals.pages, 'page')}" if totals.pages else ""
        years = say.years_spanned(report)
        rows = [
            (
                say.count(totals.posts),
                say.noun(totals.posts, "post") + pages + (years and f", {years}"),
            ),
            (
                say.count(totals.words),
                f"{say.noun(totals.words, 'word')}, {say.count(totals.own_words)} of them your own",
            ),
            (
                say.count(totals.training_words),
                f"{say.noun(totals.training_words, 'word')} to train with "
                f"({say.size(totals.training_bytes)})",
            ),
            (
                say.count(totals.internal_links + totals.external_links),
                f"{say.noun(totals.internal_links + totals.external_links, 'link')}, "
                f"{say.count(totals.internal_links)} within the site, "
                f"{say.count(totals.external_links)} out of it",
            ),
        ]
        grid = self.grid()
        grid.add_column(justify="right", no_wrap=True, overflow="crop")
        grid.add_column(overflow="fold")
        for figure, what in rows:
            grid.add_row(self.text(figure, LOUD), self.text(what))
        self.put(grid)

    def _advice(self, report: Report) -> None:
        advice = report.advice
        if not (advice.headline or advice.sentences or advice.rows):
            return
        self.heading("What you can train with this much")
        if advice.headline:
            self.line(advice.headline, LOUD)
        for sentence in advice.sentences:
            self.line(sentence)
        for question, answer in advice.rows:
            self.line(question, ACCENT)
            self.line(answer, indent=2)

    def _decisions(self, report: Report) -> None:
        posts = say.decided(report)
        if not posts:
            return
        self.heading("What was decided, and what you can change")
        grid = self.grid()
        grid.add_column(no_wrap=True, max_width=9, overflow="crop")
        grid.add_column(ratio=1, overflow="fold")
        for post in posts[:_FEW]:
            about = self.text(say.title_of(post.title, 90), LOUD)
            about.append("  ").append_text(self.text(say.count(post.words, "word"), QUIET))
            for line in (say.sentence(say.flags(post)), say.sentence(post.reason)):
                if line:
                    about.append("\n").append_text(self.text(line))
            kept = post.decision == "keep"
            grid.add_row(self.text(say.decision(post), QUIET if kept else ACCENT), about)
        self.put(grid)
        self.rest(len(posts), _FEW, "text")
        self.line(f"To change this: edit {say.CHOICES_FILE}, then run", QUIET)
        self.line(say.plain(report.command), indent=2)

    def _longest(self, report: Report) -> None:
        posts, others = report.posts[:_LONGEST], report.posts[_LONGEST:]
        if not posts:
            return
        self.heading("Where the words are")
        most = max(post.share for post in posts)
        rows = [(say.title_of(p.title), p.own_words, p.share, self._mark(p)) for p in posts]
        if others:
            words, share = sum(p.own_words for p in others), sum(p.share for p in others)
            most = max(most, share)
            rows.append((f"{say.count(len(others))} others together", words, share, ""))
        self.bars(rows, most)
        if evenness := say.evenness(report):
            self.line(evenness)

    @staticmethod
    def _mark(post: PostSummary) -> str:
        return "" if post.decision == "keep" else say.plain(say.decision(post).lower(), 10)

    def _whose(self, report: Report) -> None:
        kinds = say.kinds(report)
        if len(kinds) < 2:
            return
        self.heading("Whose words these are")
        total = sum(words for _, words in kinds)
        shares = [(name, words, say.ratio(words, total), "") for name, words in kinds]
        self.bars(shares, max(share for _, _, share, _ in shares))
        for dump in report.dumps[:_FEW]:
            self.line(
                f"{say.title_of(dump.title, 60)}: {say.count(dump.lines, 'line')} that a machine "
                f"wrote ({say.plain(dump.reason, 100)})"
            )
            self.clipped(dump.first_line)
        self.rest(len(report.dumps), _FEW, "block")

    def _years(self, report: Report) -> None:
        years = [year for year in report.years if year.year]
        if len(years) < 2:
            return
        self.heading("Year by year")
        total = sum(year.words for year in years)
        rows = [
            (f"{y.year}, {say.count(y.posts, 'post')}", y.words, say.ratio(y.words, total), "")
            for y in years
        ]
        self.bars(rows, max(share for _, _, share, _ in rows))

    def _twice(self, report: Report) -> None:
        if not report.duplicates:
            return
        self.heading("Said twice")
        for pair in report.duplicates[:_FEW]:
            how = "the same text" if pair.exact else f"{say.percent(pair.share)} of the shorter one"
            self.line(f"{say.quoted(pair.title, 60)} and {say.quoted(pair.other_title, 60)}: {how}")
            for passage in pair.passages[:1]:
                self.side_by_side(*passage)
        self.rest(len(report.duplicates), _FEW, "pair")

    def _unlike(self, report: Report) -> None:
        if not report.unlike:
            return
        self.heading("Reads unlike your other posts")
        for post in report.unlike[:_FEW]:
            self.line(say.title_of(post.title, 90), LOUD)
            if post.evidence:
                self.line(say.evidence(post))
        self.rest(len(report.unlike), _FEW, "post")

    def _links(self, report: Report) -> None:
        orphans = say.orphans(report)
        if not (report.dead_links or orphans):
            return
        self.heading("Links within the site")
        for link in report.dead_links[:_FEW]:
            self.line(f"{say.address(link)} leads nowhere, in {say.quoted(link.title, 60)}")
        self.rest(len(report.dead_links), _FEW, "dead link")
        if orphans:
            self.line(orphans)

    def _phrases(self, report: Report) -> None:
        overall = [phrase for phrase in report.phrases if not phrase.year]
        if not overall:
            return
        self.heading("Turns of phrase")
        self.line(
            "; ".join(
                f"{say.quoted(phrase.text, 60)} {phrase.count} times" for phrase in overall[:_MANY]
            )
        )

    def _left_out(self, report: Report) -> None:
        groups = say.by_reason(report.left_out)
        if not groups:
            return
        self.heading("What was not taken in, and why")
        self.pairs((say.count(n, what), reason) for what, reason, n, _ in groups[:_MANY])
        self.rest(len(groups), _MANY, "reason")

    def _splits(self, report: Report) -> None:
        splits = [split for split in report.splits if sum(split.posts.values())]
        if not splits:
            return
        self.heading("Held back for the test")
        self.pairs(
            (
                "drawn by lot" if split.name == "random" else "the latest, by date",
                ", ".join(f"{side} {say.count(split.posts[side], 'post')}" for side in split.posts),
            )
            for split in splits
        )

    def _privacy(self, report: Report) -> None:
        privacy = report.privacy
        self.heading("Privacy receipt")
        rows = [("Sources read", say.count(len(report.sources)))]
        rows += [
            (f"{say.status(name)}, not taken in", say.count(number))
            for name, number in privacy.statuses_excluded.items()
        ]
        for label, number in (
            ("E-mail addresses found", privacy.emails),
            ("Phone numbers found", privacy.phones),
            ("Network calls made", privacy.network_calls),
        ):
            rows.append((label, say.count(number) if number else "none"))
        self.pairs(rows)

    def _notes(self, report: Report) -> None:
        if not report.notes:
            return
        self.heading("Notes")
        for note in report.notes[:_FEW]:
            self.line(say.plain(note, 300))
        self.rest(len(report.notes), _FEW, "note")

    def _where(self, report: Report) -> None:
        self.rule()
        if report.workspace:
            self.line("The whole report, to read and to print:", QUIET)
            self.line(f"{say.plain(report.workspace).rstrip('/')}/report.html", ACCENT)
            self.space()
