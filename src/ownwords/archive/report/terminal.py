"""The report in a terminal: the same truth as the page, in what fits a few screens."""

from collections.abc import Iterable

from rich.console import Console, OverflowMethod
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ownwords.archive.report import Post, Report
from ownwords.archive.report import words as say

_MARGIN = 2
_WIDEST = 104  # lines longer than this are hard to read
_LONGEST = 8
_FEW = 5

_LOUD = Style(bold=True)
_QUIET = Style(dim=True)
# Plain blue cannot be read on the black of many terminals.
_ACCENT = Style(color="bright_blue")

_BLOCKS = " ▏▎▍▌▋▊▉█"
# For terminals that cannot show typographic characters.
_TYPED = str.maketrans(
    {"“": '"', "”": '"', "’": "'", "–": "-", "…": "...", "·": "-", "×": "x", "─": "-"}
)


def print_report(report: Report, console: Console) -> None:
    """Print the report; no line is wider than the console, and no text of the report is markup."""
    _Printer(console).report(report)


class _Printer:
    """A console with a margin, that shows what its encoding can show."""

    def __init__(self, console: Console) -> None:
        self._console = console
        margin = _MARGIN if console.width >= 40 else 0
        self._margin = margin
        self._width = max(20, min(console.width - 2 * margin, _WIDEST))
        self._blocks = self._can_show(_BLOCKS)
        self._overflow: OverflowMethod = "ellipsis" if self._blocks else "crop"

    def report(self, report: Report) -> None:
        self._title(report)
        self._totals(report)
        self._advice(report)
        self._decisions(report)
        self._longest(report)
        self._whose(report)
        self._twice(report)
        self._unlike(report)
        self._links(report)
        self._left_out(report)
        self._privacy(report)
        self._notes(report)
        self._where(report)

    def _title(self, report: Report) -> None:
        first, then = say.lede(report)
        self._space()
        self._line(say.name(report), _LOUD)
        for source in report.sources[:_FEW]:
            seen = f", {say.plain(source.seen_as, 160)}" if source.seen_as else ""
            self._line(f"{say.plain(source.path)}{seen}", _QUIET)
        self._rest(len(report.sources), _FEW, "source")
        self._rule()
        self._line(first, _LOUD)
        self._line(then)
        self._space()

    def _totals(self, report: Report) -> None:
        totals = report.totals
        pages = f" and {say.count(totals.pages, 'page')}" if totals.pages else ""
        years = say.years_spanned(report)
        rows = [
            (
                say.count(totals.posts),
                ("post" if totals.posts == 1 else "posts") + pages + (years and f", {years}"),
            ),
            (say.count(totals.words), f"words, {say.count(totals.own_words)} of them your own"),
            (
                say.count(totals.training_words),
                f"words to train with ({say.size(totals.training_bytes)})",
            ),
            (
                say.count(totals.internal_links + totals.external_links),
                f"links, {say.count(totals.internal_links)} within the site, "
                f"{say.count(totals.external_links)} out of it",
            ),
        ]
        grid = self._grid()
        grid.add_column(justify="right", no_wrap=True, overflow="crop")
        grid.add_column(overflow="fold")
        for figure, what in rows:
            grid.add_row(self._text(figure, _LOUD), self._text(what))
        self._put(grid)

    def _advice(self, report: Report) -> None:
        advice = report.advice
        if not (advice.headline or advice.sentences or advice.rows):
            return
        self._heading("What you can train with this much")
        if advice.headline:
            self._line(advice.headline, _LOUD)
        for sentence in advice.sentences:
            self._line(sentence)
        for question, answer in advice.rows:
            self._line(question, _ACCENT)
            self._line(answer, indent=2)

    def _decisions(self, report: Report) -> None:
        posts = say.decided(report)
        if not posts:
            return
        self._heading("What was decided, and what you can change")
        grid = self._grid()
        grid.add_column(no_wrap=True, max_width=9, overflow="crop")
        grid.add_column(ratio=1, overflow="fold")
        for post in posts[:_FEW]:
            about = self._text(say.title_of(post.title, 90), _LOUD)
            about.append("  ").append_text(self._text(say.count(post.words, "word"), _QUIET))
            for line in (say.sentence(say.flags(post)), say.sentence(post.reason)):
                if line:
                    about.append("\n").append_text(self._text(line))
            kept = post.decision == "keep"
            grid.add_row(self._text(say.decision(post), _QUIET if kept else _ACCENT), about)
        self._put(grid)
        self._rest(len(posts), _FEW, "text")
        self._line(f"To change this: edit {say.CHOICES_FILE}, then run", _QUIET)
        self._line(say.plain(report.command), indent=2)

    def _longest(self, report: Report) -> None:
        posts, others = report.posts[:_LONGEST], report.posts[_LONGEST:]
        if not posts:
            return
        self._heading("Where the words are")
        most = max(post.share for post in posts)
        rows = [(say.title_of(p.title), p.own_words, p.share, self._mark(p)) for p in posts]
        if others:
            words, share = sum(p.own_words for p in others), sum(p.share for p in others)
            most = max(most, share)
            rows.append((f"{say.count(len(others))} others together", words, share, ""))
        self._bars(rows, most)
        if evenness := say.evenness(report):
            self._line(evenness)

    @staticmethod
    def _mark(post: Post) -> str:
        return "" if post.decision == "keep" else say.plain(say.decision(post).lower(), 10)

    def _whose(self, report: Report) -> None:
        kinds = say.kinds(report)
        if len(kinds) < 2:
            return
        self._heading("Whose words these are")
        total = sum(words for _, words in kinds)
        shares = [(name, words, say.ratio(words, total), "") for name, words in kinds]
        self._bars(shares, max(share for _, _, share, _ in shares))
        for dump in report.dumps[:_FEW]:
            self._line(
                f"{say.title_of(dump.title, 60)}: {say.count(dump.lines, 'line')} that a machine "
                f"wrote ({say.plain(dump.reason, 100)})"
            )
            self._clipped(dump.first_line)
        self._rest(len(report.dumps), _FEW, "block")

    def _twice(self, report: Report) -> None:
        if not report.duplicates:
            return
        self._heading("Said twice")
        for pair in report.duplicates[:_FEW]:
            how = "the same text" if pair.exact else f"{say.percent(pair.share)} of the shorter one"
            self._line(
                f"{say.quoted(pair.title, 60)} and {say.quoted(pair.other_title, 60)}: {how}"
            )
        self._rest(len(report.duplicates), _FEW, "pair")

    def _unlike(self, report: Report) -> None:
        if not report.unlike:
            return
        self._heading("Reads unlike your other posts")
        for post in report.unlike[:_FEW]:
            self._line(say.title_of(post.title, 90), _LOUD)
            if post.evidence:
                self._line(say.evidence(post))
        self._rest(len(report.unlike), _FEW, "post")

    def _links(self, report: Report) -> None:
        if not (report.dead_links or report.orphans):
            return
        self._heading("Links within the site")
        for link in report.dead_links[:_FEW]:
            self._line(f"{say.address(link)} leads nowhere, in {say.quoted(link.title, 60)}")
        self._rest(len(report.dead_links), _FEW, "dead link")
        if orphans := say.orphans(report):
            self._line(orphans)

    def _left_out(self, report: Report) -> None:
        groups = say.by_reason(report.left_out)
        if not groups:
            return
        self._heading("What was not taken in, and why")
        self._pairs((say.count(n, what), reason) for what, reason, n, _ in groups[:8])
        self._rest(len(groups), 8, "reason")

    def _privacy(self, report: Report) -> None:
        privacy = report.privacy
        self._heading("Privacy receipt")
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
        self._pairs(rows)

    def _notes(self, report: Report) -> None:
        if not report.notes:
            return
        self._heading("Notes")
        for note in report.notes[:_FEW]:
            self._line(say.plain(note, 300))
        self._rest(len(report.notes), _FEW, "note")

    def _where(self, report: Report) -> None:
        self._rule()
        if report.workspace:
            self._line("The whole report, to read and to print:", _QUIET)
            self._line(f"{say.plain(report.workspace).rstrip('/')}/report.html", _ACCENT)
            self._space()

    # How things are laid out.

    def _bars(self, rows: list[tuple[str, int, float, str]], most: float) -> None:
        """Rows of (label, words, share, remark), each with a bar as long as its share of `most`."""
        longest = max(self._text(label).cell_len for label, _, _, _ in rows)
        bar = max(6, min(30, self._width // 4))
        grid = self._grid()
        remarks = any(remark for _, _, _, remark in rows) and self._width >= 60
        figures = max(len(say.count(words)) for _, words, _, _ in rows)
        taken = bar + figures + 4 + 2 * 3
        if remarks:
            taken += 2 + max(self._text(remark).cell_len for _, _, _, remark in rows)
        room = max(8, min(longest, self._width - taken))
        grid.add_column(no_wrap=True, width=room, overflow=self._overflow)
        grid.add_column(no_wrap=True, width=bar, overflow="crop")
        grid.add_column(no_wrap=True, justify="right", width=figures, overflow="crop")
        grid.add_column(no_wrap=True, justify="right", width=4, overflow="crop")
        if remarks:
            grid.add_column(no_wrap=True, overflow="crop")
        for label, words, share, remark in rows:
            left_out = remark == "left out"
            grid.add_row(
                self._text(label),
                self._text(
                    self._bar(share / most if most else 0.0, bar), _QUIET if left_out else _ACCENT
                ),
                self._text(say.count(words)),
                self._text(say.percent(share), _LOUD),
                *([self._text(remark, _QUIET)] if remarks else []),
            )
        self._put(grid)

    def _bar(self, part: float, width: int) -> str:
        eighths = round(max(0.0, min(1.0, part)) * width * 8)
        if not self._blocks:
            return "#" * max(1 if part > 0 else 0, eighths // 8)
        return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip() or ("▏" if part > 0 else "")

    def _pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        if self._width < 60:
            for left, right in rows:
                self._line(f"{say.plain(left, 200)}: {say.plain(right, 300)}")
            return
        grid = self._grid()
        grid.add_column(max_width=30, overflow="fold")
        grid.add_column(overflow="fold")
        for left, right in rows:
            grid.add_row(
                self._text(say.plain(left, 200), _QUIET), self._text(say.plain(right, 300))
            )
        self._put(grid)

    def _grid(self) -> Table:
        return Table.grid(padding=(0, 2, 0, 0), pad_edge=False)

    def _heading(self, text: str) -> None:
        self._space()
        self._line(text, _LOUD + _ACCENT)

    def _rest(self, total: int, shown: int, noun: str) -> None:
        if total > shown:
            self._line(f"and {say.count(total - shown, f'more {noun}')}", _QUIET)

    def _rule(self) -> None:
        self._space()
        self._line(("─" if self._blocks else "-") * self._width, _QUIET)

    def _space(self) -> None:
        self._console.print()

    def _line(self, text: str, style: Style | None = None, indent: int = 0) -> None:
        self._put(self._text(text, style), indent)

    def _clipped(self, text: str) -> None:
        line = self._text(text, _QUIET)
        line.truncate(self._width - 2, overflow=self._overflow)
        self._put(line, indent=2)

    def _put(self, what: Text | Table, indent: int = 0) -> None:
        """Print within the margins, without the spaces that would trail in a file."""
        options = self._console.options.update_width(self._width - indent)
        for line in self._console.render_lines(what, options, pad=False):
            text = Text(" " * (self._margin + indent))
            text.append_tokens((part.text, part.style) for part in line)
            text.rstrip()
            self._console.print(text, no_wrap=True, overflow="ignore", crop=False, highlight=False)

    def _text(self, text: str, style: Style | None = None) -> Text:
        # A Text is never read as markup, so "[red]" in a title stays letters and brackets.
        text = say.plain(text)
        if not self._can_show(text):
            encoding = self._console.encoding
            text = text.translate(_TYPED).encode(encoding, "replace").decode(encoding)
        return Text(text, style=style or "")

    def _can_show(self, text: str) -> bool:
        try:
            text.encode(self._console.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True
