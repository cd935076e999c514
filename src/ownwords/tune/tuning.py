"""`ownwords tune`: a search over trainings of one corpus, its record, and what becomes of it."""

import shutil
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, duration
from ownwords.core.workspace import write_atomically
from ownwords.models.directory import CONFIG, PROVENANCE
from ownwords.models.fingerprint import model_fingerprint
from ownwords.models.untrusted_files import read_json
from ownwords.training import recipes
from ownwords.training.corpus import Corpus
from ownwords.training.plan import Plan
from ownwords.training.recipes import PlannedTraining, TrainRequest
from ownwords.training.shards import TrainingText
from ownwords.tune import trials_csv, trials_page
from ownwords.tune.search import SearchBudget, SearchResult, search
from ownwords.tune.search_space import SearchSpace, lines, shown, space
from ownwords.tune.study import Study, storage
from ownwords.tune.trainer import TrialTrainer
from ownwords.tune.trial import TrialRecord, done
from ownwords.tune.verdict import TuneVerdict, winning_runs

RECORD, TABLE, PAGE = "trials.db", "trials.csv", "trials.html"
_FOLDER = "tune"
_PART = 30  # trials as long as the plan's that a budget has room for, unless their length is given
_REPETITIONS = 10  # room beside the trials that are asked for: the repetitions, and some more


@dataclass(frozen=True)
class TuneRequest:
    """What is asked for. `each_s` and `trials` are None where they follow from the minutes."""

    minutes: float
    each_s: float | None = None
    trials: int | None = None
    storage: str | None = None  # a journal file or the address of a database; None: the workspace's
    keep: bool = False  # leave the workspace's model as it is

    @property
    def trial_s(self) -> float:
        """Seconds of one trial."""
        if self.each_s is not None:
            return self.each_s
        parts = _PART if self.trials is None else self.trials + _REPETITIONS
        return self.minutes * 60 / parts


@dataclass(frozen=True)
class TuneResult:
    """What came of it."""

    found: SearchResult
    space: SearchSpace
    settings: Mapping[str, object]  # of the winner, beside the plan
    toml: str  # the same as lines of ownwords.toml
    model: Path | None  # where the winner's model is
    note: str  # what became of the model, where that needs to be said
    table: Path
    page: Path

    @property
    def verdict(self) -> TuneVerdict:
        return self.found.verdict


def tune(
    texts: Corpus,
    work: TrainRequest,
    order: TuneRequest,
    *,
    base: Path | None = None,
    replay: Iterable[TrainingText] | None = None,
) -> TuneResult:
    """Search for better settings than the plan's, within the minutes; the winner's model is kept.

    `work` is as for a single training, but for its seconds. Only the training and the validation
    posts are read. OwnwordsError says what stands in the way.
    """
    if not len(texts.validation):
        raise CorpusError(
            "no post is held out, so nobody could say which settings are better",
            hint="add posts: from a handful on, some are held out",
        )

    def make(one: TrainRequest) -> PlannedTraining:
        if base is None:
            return recipes.plan_pretraining(texts.train, texts.validation, one)
        return recipes.plan_finetuning(base, texts.train, texts.validation, one, replay=replay)

    return _TuneRun(texts, make, work, order, base).run()


class _TuneRun:
    def __init__(
        self,
        texts: Corpus,
        make: Callable[[TrainRequest], PlannedTraining],
        work: TrainRequest,
        order: TuneRequest,
        base: Path | None,
    ) -> None:
        self.texts, self.order, self.base = texts, order, base
        self.root, self.target = work.workspace, work.folder
        self.progress: Progress = work.progress
        self.began = time.perf_counter() if work.began is None else work.began
        self.work = replace(work, seconds=order.trial_s)
        self.trainer = TrialTrainer(make, texts.validation, self.work, self.root / _FOLDER)
        self.told: set[int] = set()
        self.space: SearchSpace
        self.place = "here"
        if order.storage is not None:  # several machines write into that
            self.place = f"{socket.gethostname()}:{self.root.resolve()}"

    def run(self) -> TuneResult:
        order = self.order
        plan = self._plan()
        self.space = space(plan, self.work.fixed, order.trial_s, has_base=self.base is not None)
        if not self.space.axes:
            raise ConfigError(
                "you have set all that could be searched over", hint="leave some of it to the plan"
            )
        name = self._name()
        book = Study(storage(order.storage or self.root / RECORD), name, self.space.axes)
        self.trainer.folder = self.root / _FOLDER / name
        held_out = book.agreed("held_out_bytes", plan.expected.held_out_bytes)
        self.trainer.search_in(self.space, held_out)
        self._compare_machines(book, plan.expected.tokens)
        terms = SearchBudget(
            budget_s=order.minutes * 60,
            each_s=order.trial_s,
            place=self.place,
            folder=self.trainer.folder / "locks",
            is_shared=order.storage is not None,
            most=order.trials,
        )
        self.told = {one.number for one in book.tried() if one.state in ("done", "failed")}
        found = search(
            self.trainer, book, terms, told=self._told, clock=time.perf_counter, began=self.began
        )
        return self._ended(found, name)

    def _plan(self) -> Plan:
        try:
            return self.trainer.plan()
        except ConfigError as error:
            raise ConfigError(
                f"the plan's own trial cannot be made: {error.message}",
                hint=f"{error.hint}; a trial has {duration(self.order.trial_s)} (--each)",
            ) from error

    def _name(self) -> str:
        """Of this search: the same texts, base, length and settings find it again."""
        base = model_fingerprint(self.base, provenance=True) if self.base else ""
        settings = repr(sorted(self.work.fixed.items()))
        ranges = [repr((axis.name, axis.is_ratio)) for axis in self.space.axes]
        parts = (self.texts.key, base, settings, f"{self.order.trial_s}", *ranges)
        return f"{'finetune' if self.base else 'pretrain'}-{digest(*parts)[:12]}"

    def _compare_machines(self, book: Study, tokens: int) -> None:
        first = book.agreed("tokens", tokens)
        if not 0.75 < tokens / max(first, 1) < 1.33:
            self.progress.note(
                f"This machine trains on {tokens:,} tokens in the time of a trial, the one that"
                f" began the search on {first:,}: what one finds may not suit the other."
            )

    # --- on the way -------------------------------------------------------------------------------

    def _told(self, tried: Sequence[TrialRecord]) -> None:
        """Whenever a trial has ended: the files, and a line for whoever watches."""
        best = [one for one in done(tried) if one.kind in ("spread", "search")][:2]
        again = {one.of for one in tried if one.kind == "again"}
        worth = {one.number for one in tried if {one.number, one.of} & {1, *again}}
        worth |= {one.number for one in best} if not again else set()
        self.trainer.tidy(tried, worth, self.place)
        self._write(tried, None)
        for one in tried:
            if one.number not in self.told and one.state in ("done", "failed"):
                self.told.add(one.number)
                self._say(one, tried)

    def _say(self, one: TrialRecord, tried: Sequence[TrialRecord]) -> None:
        what = shown(self.space.axes, one.settings)
        if one.kind == "again":
            what = f"trial {one.of} again, seed {one.seed}"
        elif one.kind == "plan":
            what = "the plan's own choice"
        if one.score is None:
            self.progress.note(f"Trial {one.number} ({what}) failed: {one.why}")
            return
        choices = [other for other in done(tried) if other.kind != "again"]
        best = "; the best so far" if choices[0].number == one.number and len(choices) > 1 else ""
        self.progress.note(
            f"Trial {one.number} ({what}): {one.score:.4f} bits a byte after"
            f" {duration(one.seconds)}{best}"
        )
        if one.kind == "plan" and one.seconds:
            left_s = self.order.minutes * 60 - (time.perf_counter() - self.began)
            self.progress.note(
                f"There is time for about {left_s / one.seconds:.0f} more of that length; the best"
                " are then tried again with other seeds."
            )

    def _write(
        self, tried: Sequence[TrialRecord], verdict: TuneVerdict | None, toml: str = ""
    ) -> None:
        trials_csv.write(self.root / TABLE, self.space.axes, tried)
        name = self.root.name.removesuffix(".ownwords")
        html = trials_page.render(name, self.space.axes, tried, verdict, toml)
        write_atomically(self.root / PAGE, html)

    # --- in the end -------------------------------------------------------------------------------

    def _ended(self, found: SearchResult, name: str) -> TuneResult:
        verdict = found.verdict
        if verdict.kind == "nothing":
            why = next((one.why for one in found.tried if one.why), "there was no time")
            raise OwnwordsError(
                f"none of {len(found.tried)} trials could be trained: {why}",
                hint="try `ownwords pretrain` or `ownwords finetune` alone, which says more",
            )
        winner = next(one for one in found.tried if one.number == verdict.winner)
        told = winner.told.get("settings")
        settings = told if isinstance(told, dict) else {}
        toml = lines(settings)
        self._write(found.tried, verdict, toml)
        model, note = self._model(found, name)
        return TuneResult(
            found=found,
            space=self.space,
            settings=settings,
            toml=toml,
            model=model,
            note=note,
            table=self.root / TABLE,
            page=self.root / PAGE,
        )

    def _model(self, found: SearchResult, name: str) -> tuple[Path | None, str]:
        """Where the winner's model is now, and what became of it."""
        runs = winning_runs(found.tried, found.verdict)
        here = [
            one
            for one in runs
            if one.place == self.place and (self.trainer.folder / one.kept / CONFIG).exists()
        ]
        if not here:
            with suppress(OwnwordsError):
                said = read_json(self.target / PROVENANCE).get("tune")
                if isinstance(said, dict) and said.get("search") == name:
                    return self.target, ""
            places = sorted({one.place for one in runs if one.place != self.place})
            where = f"; it was trained at {places[0]}" if places else ""
            return None, f"The winner's model is not here{where}."
        best = here[0]
        self._only(found.tried, {best.number})
        if self.order.keep:
            return self.trainer.folder / best.kept, "The workspace's own model is as it was."
        assert best.score is not None
        standing = self.trainer.better_score_of(self.target, self.space.plan, best.score)
        if standing is not None:
            return (
                self.trainer.folder / best.kept,
                f"The model in {self.target} is better already ({standing:.3f} bits a byte on the"
                " same posts) and stays; with the settings below and as much time, a new one may"
                " be better yet.",
            )
        self.trainer.install(best, self._provenance(found, name, best), self.target)
        self._only(found.tried, set())
        if not any(one.state == "running" for one in found.tried):
            shutil.rmtree(self.trainer.folder, ignore_errors=True)
        return self.target, ""

    def _only(self, tried: Sequence[TrialRecord], worth: set[int]) -> None:
        self.trainer.tidy(tried, worth, self.place)

    def _provenance(self, found: SearchResult, name: str, best: TrialRecord) -> dict[str, object]:
        verdict = found.verdict
        return {
            "search": name,
            "base": model_fingerprint(self.base, provenance=True) if self.base else "",
            "settings": repr(sorted(self.work.fixed.items())),
            "run": best.told.get("run", ""),
            "trials": verdict.tried,
            "trial": verdict.winner,
            "verdict": verdict.kind,
            "gain": verdict.gain,
            "interval": [verdict.low, verdict.high],
            "seed_noise": verdict.noise,
        }
