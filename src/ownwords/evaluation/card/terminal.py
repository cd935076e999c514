"""The scorecard in a terminal: the same figures as the page, on a few screens."""

from rich.console import Console
from rich.style import Style

from ownwords.archive.report.formatting import count, plain
from ownwords.archive.report.terminal_writer import ACCENT, LOUD, QUIET, TerminalWriter
from ownwords.evaluation import wording as say
from ownwords.evaluation.card import panels
from ownwords.evaluation.card.gauges import Gauge, Panel
from ownwords.evaluation.scorecard import Scorecard

_SAMPLES = 2
_SAMPLE_LETTERS = 420


def print_card(card: Scorecard, console: Console, page: str = "") -> None:
    """Print the scorecard within the console's width; model text is never parsed as markup.

    `page` is the path of the full scorecard.
    """
    _Printer(console).card(card, page)


class _Printer(TerminalWriter):
    """The sections, in the order of the page."""

    def card(self, card: Scorecard, page: str) -> None:
        self._title(card)
        self._samples(card)
        for heading, group in (
            (
                "How well it predicts you, in bits per byte (lower is better)",
                panels.foresight(card),
            ),
            ("Whether it sounds like you", panels.voice(card)),
            ("How fluent it is", panels.fluency(card)),
            ("Whether it copies you", panels.copying(card)),
        ):
            if group:
                self.heading(heading)
                self._panels(group)
        self._copied(card)
        self._dominant(card)
        self._making(card)
        if page:
            self.rule()
            self.line("The full scorecard, to read and to print:", QUIET)
            self.line(page, ACCENT)
            self.space()

    def _title(self, card: Scorecard) -> None:
        self.space()
        self.line(say.name(card), LOUD)
        self.line(say.learned_from(card.about), QUIET)
        self.rule()
        self.line(card.verdict.sentence, LOUD)
        for sentence in card.verdict.because:
            self.line(sentence, indent=2)
        self.space()
        grid = self.grid()
        grid.add_column(justify="right", no_wrap=True, overflow="crop")
        grid.add_column(overflow="fold")
        for figure, label, comparison in say.headline(card):
            about = f"{label}, {comparison}" if comparison else label
            grid.add_row(self.text(figure, LOUD), self.text(about))
        self.put(grid)
        self.line(say.judged_on(card.about), QUIET)

    def _samples(self, card: Scorecard) -> None:
        shown = say.in_turn(card.samples)[:_SAMPLES]
        if not shown:
            return
        self.heading("What it writes")
        for sample in shown:
            self.line(say.beginning(sample), ACCENT)
            ours = plain(" ".join(say.paragraphs(sample.tuned)), _SAMPLE_LETTERS)
            if sample.base is None:
                self.line(ours, indent=2)
                continue
            self.two_columns(ours, plain(" ".join(say.paragraphs(sample.base)), _SAMPLE_LETTERS))
        if shown[0].base is not None:
            order = "Left: your model; right:" if self.width >= 60 else "First your model, then"
            self.line(f"{order} its base, with the same seed. Unedited.", QUIET)

    def _panels(self, panels: list[Panel]) -> None:
        for panel in panels:
            self.line(panel.title, QUIET)
            self._gauges(panel)

    def _gauges(self, panel: Panel) -> None:
        """Print label, bar, figure and range, aligned."""
        bar = max(6, min(20, self.width // 4))
        figures = max(len(row.text) for row in panel.gauges)
        spans = [f"({row.span})" if row.span else "" for row in panel.gauges]
        widest = max(map(len, spans)) if self.width >= 60 else 0
        label_width = self.width - bar - figures - widest - 2 * 4
        grid = self.grid()
        grid.add_column(no_wrap=True, width=max(8, min(34, label_width)), overflow=self._overflow)
        grid.add_column(no_wrap=True, width=bar, overflow="crop")
        grid.add_column(no_wrap=True, justify="right", width=figures, overflow="crop")
        if widest:
            grid.add_column(no_wrap=True, width=widest, overflow="crop")
        for row, span in zip(panel.gauges, spans, strict=True):
            grid.add_row(
                self.text(row.label, LOUD if row.is_ours else None),
                self.text(self._bar(row.value / panel.top, bar), _look(row)),
                self.text(row.text, LOUD),
                *([self.text(span, QUIET)] if widest else []),
            )
        self.put(grid)

    def _copied(self, card: Scorecard) -> None:
        memorised = card.memorised
        if memorised is None:
            return
        run = memorised.guarded or memorised.unguarded
        if not run.text:
            return
        self.line(f"Longest copied passage: {count(run.words, 'word')}, {say.source(run)}:")
        self.line(plain(run.text, 400), QUIET, indent=2)
        if memorised.guarded:
            off = memorised.unguarded
            self.line(f"Without the copy guard: {count(off.words, 'word')}, {say.source(off)}.")

    def _dominant(self, card: Scorecard) -> None:
        post = card.dominant
        if post is None:
            return
        self.heading("The post that outweighs the others")
        self.line(plain(post.title, 90), LOUD)
        self.pairs(
            (
                row.how.capitalize(),
                f"{count(row.words, 'word')}, {say.rate(row.share)} of all"
                + (f", {say.bits(row.bits)} bits per byte" if row.bits is not None else ""),
            )
            for row in post.rows
        )
        self.line(say.effect_of_decision(post), QUIET)

    def _making(self, card: Scorecard) -> None:
        self.heading("How it was made")
        self.pairs(say.made_of(card))
        for sentence in (*card.plan, *card.notes):
            self.line(sentence, QUIET)


def _look(row: Gauge) -> Style:
    return ACCENT if row.is_ours else QUIET
