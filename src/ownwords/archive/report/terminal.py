"""Print the report in a terminal: the page's content in a few screens."""

from rich.console import Console

from ownwords.archive.report import PostSummary, Report, summary
from ownwords.archive.report import formatting as fmt
from ownwords.archive.report.formatting import count, plain, quoted, title_of
from ownwords.archive.report.terminal_writer import ACCENT, LOUD, QUIET, TerminalWriter

_FEW = 5
_MANY = 8


def print_report(report: Report, console: Console) -> None:
    """Print the report; lines fit the console, and text is never interpreted as markup."""
    _ReportPrinter(console).report(report)


class _ReportPrinter(TerminalWriter):
    """Prints the report's sections, the most important first."""

    def report(self, report: Report) -> None:
        self._title(report)
        self._totals(report)
        self._advice(report)
        self._decisions(report)
        self._longest(report)
        self._whose(report)
        self._years(report)
        self._duplicates(report)
        self._style(report)
        self._links(report)
        self._phrases(report)
        self._excluded(report)
        self._split(report)
        self._privacy(report)
        self._notes(report)
        self._where(report)

    def _title(self, report: Report) -> None:
        first, second = summary.lede(report)
        self.space()
        self.line(summary.name(report), LOUD)
        for source in report.sources[:_FEW]:
            kind = f", {plain(source.detected_as, 160)}" if source.detected_as else ""
            self.line(f"{plain(source.path)}{kind}", QUIET)
        self.rest(len(report.sources), _FEW, "source")
        self.rule()
        self.line(first, LOUD)
        self.line(second)
        self.space()

    def _totals(self, report: Report) -> None:
        grid = self.grid()
        grid.add_column(justify="right", no_wrap=True, overflow="crop")
        grid.add_column(overflow="fold")
        for figure, label, note in summary.headline_figures(report):
            about = ", ".join(part for part in (label, note) if part)
            grid.add_row(self.text(figure, LOUD), self.text(about))
        self.put(grid)

    def _advice(self, report: Report) -> None:
        advice = report.advice
        if not (advice.headline or advice.sentences or advice.rows):
            return
        self.heading("What you can train with this much text")
        if advice.headline:
            self.line(advice.headline, LOUD)
        for sentence in advice.sentences:
            self.line(sentence)
        for question, answer in advice.rows:
            self.line(question, ACCENT)
            self.line(answer, indent=2)

    def _decisions(self, report: Report) -> None:
        posts = summary.notable_posts(report)
        if not posts:
            return
        self.heading("Decisions, and how to change them")
        grid = self.grid()
        grid.add_column(no_wrap=True, max_width=9, overflow="crop")
        grid.add_column(ratio=1, overflow="fold")
        for post in posts[:_FEW]:
            about = self.text(title_of(post.title, 90), LOUD)
            about.append("  ").append_text(self.text(count(post.words, "word"), QUIET))
            for line in (fmt.sentence(summary.flags(post)), fmt.sentence(post.reason)):
                if line:
                    about.append("\n").append_text(self.text(line))
            is_kept = post.decision == "keep"
            grid.add_row(self.text(summary.decision(post), QUIET if is_kept else ACCENT), about)
        self.put(grid)
        self.rest(len(posts), _FEW, "text")
        self.line(f"To change a decision, edit {summary.CHOICES_FILE}, then run", QUIET)
        self.line(plain(report.command), indent=2)

    def _longest(self, report: Report) -> None:
        posts, others = report.posts[: summary.LONGEST], report.posts[summary.LONGEST :]
        if not posts:
            return
        self.heading("Where the words are")
        most = max(post.share for post in posts)
        rows = [(title_of(p.title), p.own_words, p.share, self._mark(p)) for p in posts]
        if others:
            words, share = sum(p.own_words for p in others), sum(p.share for p in others)
            most = max(most, share)
            rows.append((f"{count(len(others), 'other')} together", words, share, ""))
        self.bars(rows, most)
        if evenness := summary.evenness(report):
            self.line(evenness)

    @staticmethod
    def _mark(post: PostSummary) -> str:
        return "" if post.decision == "keep" else plain(summary.decision(post).lower(), 10)

    def _whose(self, report: Report) -> None:
        kinds = summary.word_kinds(report)
        if len(kinds) < 2:
            return
        self.heading("Whose words these are")
        total = sum(kind.value for kind in kinds)
        rows = [(kind.label, kind.value, fmt.ratio(kind.value, total), "") for kind in kinds]
        self.bars(rows, max(share for _, _, share, _ in rows))
        for dump in report.dumps[:_FEW]:
            self.line(
                f"{title_of(dump.title, 60)}: {count(dump.lines, 'line')} of machine "
                f"output ({plain(dump.reason, 100)})"
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
            (f"{y.year}, {count(y.posts, 'post')}", y.words, fmt.ratio(y.words, total), "")
            for y in years
        ]
        self.bars(rows, max(share for _, _, share, _ in rows))

    def _duplicates(self, report: Report) -> None:
        if not report.duplicates:
            return
        self.heading("Duplicate text")
        for pair in report.duplicates[:_FEW]:
            titles = f"{quoted(pair.title, 60)} and {quoted(pair.other_title, 60)}"
            self.line(f"{titles}: {summary.duplicate_extent(pair)}")
            for passage in pair.passages[:1]:
                self.two_columns(*passage)
        self.rest(len(report.duplicates), _FEW, "pair")

    def _style(self, report: Report) -> None:
        if not report.style_outliers:
            return
        self.heading("Posts in a different style")
        for post in report.style_outliers[:_FEW]:
            self.line(title_of(post.title, 90), LOUD)
            if signs := summary.style_signs(post):
                self.line(signs)
        self.rest(len(report.style_outliers), _FEW, "post")

    def _links(self, report: Report) -> None:
        orphans = summary.orphans(report)
        if not (report.dead_links or orphans):
            return
        self.heading("Internal links")
        for link in report.dead_links[:_FEW]:
            self.line(f"{summary.link_target(link)} leads nowhere, in {quoted(link.title, 60)}")
        self.rest(len(report.dead_links), _FEW, "dead link")
        if orphans:
            self.line(orphans)

    def _phrases(self, report: Report) -> None:
        overall = [phrase for phrase in report.phrases if not phrase.year]
        if not overall:
            return
        self.heading("Favourite phrases")
        self.line(
            "; ".join(
                f"{quoted(phrase.text, 60)} {phrase.count} times" for phrase in overall[:_MANY]
            )
        )

    def _excluded(self, report: Report) -> None:
        groups = summary.exclusion_reasons(report.excluded)
        if not groups:
            return
        self.heading("What is not in the archive")
        self.pairs((count(n, what), reason) for what, reason, n, _ in groups[:_MANY])
        self.rest(len(groups), _MANY, "reason")

    def _split(self, report: Report) -> None:
        posts = report.split.posts
        if not sum(posts.values()):
            return
        self.heading("Training, validation and test")
        self.pairs((side.capitalize(), count(number, "post")) for side, number in posts.items())

    def _privacy(self, report: Report) -> None:
        self.heading("Privacy")
        self.pairs(summary.privacy_lines(report))

    def _notes(self, report: Report) -> None:
        if not report.notes:
            return
        self.heading("Notes")
        for note in report.notes[:_FEW]:
            self.line(plain(note, 300))
        self.rest(len(report.notes), _FEW, "note")

    def _where(self, report: Report) -> None:
        self.rule()
        if report.workspace:
            self.line("The full report, to read and print:", QUIET)
            self.line(f"{plain(report.workspace).rstrip('/')}/report.html", ACCENT)
            self.space()
