"""The making of a model as a person follows it: a line a stage, what it writes, the verdict."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ownwords.archive.report import PostSummary, Report, summary
from ownwords.archive.report import formatting as say
from ownwords.archive.report.terminal_writer import LOUD, QUIET, TerminalWriter
from ownwords.base.catalogue import BOXED
from ownwords.cli.output import relative_path
from ownwords.cli.word_wrap import StreamingWordWrap
from ownwords.core.progress import duration
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.wording import headline, judged_on
from ownwords.make.callbacks import MakeCallbacks
from ownwords.make.result import MakeResult, TrainingSummary
from ownwords.training.forecast import number, times

if TYPE_CHECKING:
    from ownwords.training.plan import Plan

_LABEL, _TIME = 12, 7
_FEW = 3
_INDENT = 4
_BIT = (
    "A bit a byte is how much each letter surprises it: the fewer, the better it foresees what"
    " you write."
)
_IN_A_NEW_LANGUAGE = (
    "Your texts do not read as English, and that is all that the base in the box has read: it has"
    " their language yet to learn, from them alone. A model that knows it is the better start:"
    " ownwords base add ORG/NAME, then make --base NAME."
)


class MakeView(TerminalWriter, MakeCallbacks):
    """Told of each stage when it is done; `stages` says whether it tells more than the result."""

    def __init__(self, console: Console, *, stages: bool = True) -> None:
        super().__init__(console)
        self._stages = stages
        self._explained = self._has_changed = False

    # --- callbacks ---------------------------------------------------------------------------

    def on_read(self, report: Report, seconds: float) -> None:
        if not self._stages:
            return
        totals, years = report.totals, summary.years_spanned(report)
        self.space()
        self.line(summary.name(report), LOUD)
        for source in report.sources[:_FEW]:
            self.line(
                f"{source.path}, {source.detected_as}" if source.detected_as else source.path, QUIET
            )
        self.rest(len(report.sources), _FEW, "source")
        self.rule()
        pages = f" and {say.count(totals.pages, 'page')}" if totals.pages else ""
        self.stage(
            "Read",
            f"{say.count(totals.own_words, 'word')} of your own in"
            f" {say.count(totals.posts, 'post')}{pages}{years and f', {years}'}.",
            seconds,
        )
        for post in summary.notable_posts(report)[:_FEW]:
            why = summary.flags(post) if post.decision == "keep" else post.reason
            self.stage(summary.decision(post), f"{say.quoted(post.title, 60)}. {say.sentence(why)}")
        held = report.split.posts
        if sum(held.values()):
            self.stage(
                "Held out",
                f"It learns from {say.count(held['train'])} texts; "
                f"{held['validation']} {'chooses' if held['validation'] == 1 else 'choose'} the"
                f" best moment, and {held['test']} {'judges' if held['test'] == 1 else 'judge'} it"
                " in the end. It never reads those.",
            )

    def on_changed(self, sentence: str) -> None:
        self._has_changed = True
        if self._stages:
            self.stage("Changed", sentence)

    def on_new_language(self) -> None:
        if self._stages:
            self.stage("Language", _IN_A_NEW_LANGUAGE)

    def on_planned(self, plan: "Plan", base: str) -> None:
        if not self._stages:
            return
        expected, recipe = plan.expected, plan.recipe
        size = number(recipe.model.parameters)
        what = f"a model of {size} parameters, from nothing"
        if base:
            # What language another base knows is for its maker to say.
            knows = "that knows English" if base == BOXED else f"made from {base}"
            what = f"a model of {size} parameters {knows}, bent to your manner"
        self.stage(
            "Plan",
            f"{what[:1].upper()}{what[1:]}: {duration(expected.seconds)}, in which it reads your"
            f" texts {times(expected.epochs)}. About {expected.bits_low:.2f} to"
            f" {expected.bits_high:.2f} bits a byte are to be expected.",
        )
        self._explain()

    def on_trained(self, trained: TrainingSummary, seconds: float | None) -> None:
        if not self._stages:
            return
        is_as_it_was = seconds is None and not self._has_changed
        again = " Nothing has changed since then." if is_as_it_was else ""
        self.stage("Trained", _what_came_of(trained) + again, seconds)
        if seconds is not None:
            self._explain()

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        self.space()
        if title:
            self.line(
                f"You have a post called {say.quoted(title, 90)}. It never read that one; from the"
                " title alone it writes:"
            )
        else:
            self.line("This is what it writes:")
        self.space()
        if title:
            self.line(title, LOUD, indent=_INDENT)
            self.space()
        margin = self._margin + _INDENT
        # Straight to where the console writes, word by word: it would hold a line back.
        StreamingWordWrap(
            self._console.file,
            width=self._margin + self.width,
            margin=margin,
            shown=lambda word: self.text(word).plain,
        ).write(pieces)
        self.space()

    def on_comparison_start(self, seconds: float) -> None:
        if self._stages:
            self.stage(
                "To compare",
                f"A model that starts from nothing, on the same texts: {duration(seconds)}.",
            )

    def on_comparison_end(
        self, trained: TrainingSummary | None, why_not: str, seconds: float | None
    ) -> None:
        self._beside("From nothing", trained, f"from nothing: {why_not}", seconds)

    def on_ablation_start(self, post: PostSummary, seconds: float) -> None:
        if self._stages:
            what = "left it out" if post.decision == "leave out" else "took a part of it"
            self.stage(
                "To compare",
                f"The same once more, with all of {say.quoted(post.title, 60)}, to see whether it"
                f" was right that yours {what}: about {duration(seconds)}.",
            )

    def on_ablation_end(
        self, trained: TrainingSummary | None, why_not: str, seconds: float | None
    ) -> None:
        self._beside("In full", trained, f"with all of that post: {why_not}", seconds)

    def _beside(
        self, label: str, trained: TrainingSummary | None, missing: str, seconds: float | None
    ) -> None:
        if not self._stages:
            return
        if trained is None:
            self.stage("To compare", f"There is no model {missing}.")
        else:
            self.stage(label, _what_came_of(trained), seconds)

    def on_scoring_start(self, seconds: float) -> None:
        if self._stages:
            self.stage(
                "To judge it",
                f"It foresees posts that it never read, and writes many texts: about"
                f" {duration(seconds)}.",
            )

    def on_scored(self, card: Scorecard, seconds: float | None) -> None:
        if self._stages and seconds is not None:
            self.stage("Judged", f"On {say.count(card.about.judged_posts, 'post')}.", seconds)

    # --- the end ----------------------------------------------------------------------------------

    def result(self, result: MakeResult) -> None:
        """The verdict, and where everything is."""
        card = result.scorecard
        self.rule()
        if card:
            self.verdict(card)
        else:
            self.line(
                "No text was held out to judge by, so nobody knows how good it is: there are too"
                " few of them."
            )
        self.heading("Where things are")
        rows = [("Your model", result.model), ("What is in your texts", result.report_page)]
        if card:
            rows.insert(1, ("Its scorecard", result.scorecard_page))
        for name, path in rows:
            self.whole(relative_path(path), f"{name:22}")
        self.space()
        where = shlex.quote(relative_path(result.workspace))
        self.whole(f'ownwords write "The trouble with" --model {where}')
        self.whole(f"ownwords chat --model {where}")
        self.whole(f"ownwords export {shlex.quote(relative_path(result.model))} --to gguf")

    def verdict(self, card: Scorecard) -> None:
        """The judgement in words, and what it follows from."""
        self.line(card.verdict.sentence, LOUD)
        for reason in card.verdict.because:
            self.line(reason, indent=2)
        figures = headline(card)
        if figures:
            self.space()
            grid = self.grid()
            grid.add_column(justify="right", no_wrap=True, overflow="crop")
            grid.add_column(overflow="fold")
            for figure, label, beside in figures:
                grid.add_row(self.text(figure, LOUD), self.text(f"{label}, {beside}".strip(", ")))
            self.put(grid)
        self.line(judged_on(card.about), QUIET)

    def whole(self, line: str, label: str = "") -> None:
        """On one line, however long: it is to be copied."""
        shown = Text(" " * self._margin).append(label, style=QUIET).append_text(self.text(line))
        self._console.print(shown, soft_wrap=True)

    # --- lines ------------------------------------------------------------------------------------

    def stage(self, label: str, what: str, seconds: float | None = None) -> None:
        """A line of what is being told; longer ones go on below, beside the label."""
        took = duration(seconds) if seconds is not None else ""
        if self.width < 60:
            name = f"{label}: " if label else ""
            self.line(f"{name}{what}" + (f" ({took})" if took else ""))
            return
        grid = self.grid()
        grid.add_column(no_wrap=True, width=_LABEL, overflow="crop")
        grid.add_column(width=self.width - _LABEL - _TIME - 4, overflow="fold")
        grid.add_column(no_wrap=True, width=_TIME, justify="right", overflow="crop")
        grid.add_row(self.text(label, LOUD), self.text(what), self.text(took, QUIET))
        self.put(grid)
        self._console.file.flush()

    def _explain(self) -> None:
        if not self._explained:
            self._explained = True
            self.stage("", _BIT)


def _what_came_of(trained: TrainingSummary) -> str:
    if trained.bits_per_byte is None:
        said = "No text was held out to see how good it is."
    else:
        before = "" if trained.before is None else f"; before, the base had {trained.before:.2f}"
        said = f"{trained.bits_per_byte:.2f} bits a byte on posts it has not seen{before}."
    if trained.stopped == "early":
        return f"{said} It ended early: more no longer helped."
    if trained.stopped == "memorised":
        return f"{said} It ended early: it began to learn your texts by heart."
    return said
