"""The stages of a making: what each depends on, whether it was done already, and doing it.

Each is kept under the names of all that it depends on. Nothing heavy is imported before there is
something to compute.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.archive.look import look
from ownwords.archive.report import Report
from ownwords.archive.store import Archive
from ownwords.base import catalogue
from ownwords.core.errors import InUseError, OwnwordsError
from ownwords.core.progress import Progress
from ownwords.core.workspace import translate_os_errors, try_lock
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.scoring import ComparisonModels
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.make import dominant_post_ablation, language, scoring, tuned_model
from ownwords.make.callbacks import MakeCallbacks
from ownwords.make.comparison_model import ComparisonModel
from ownwords.make.make_request import MakeRequest
from ownwords.make.paragraph import (
    MOST_TOKENS,
    SEED,
    FirstParagraph,
    ended_well,
    prompt_of,
    title_for,
)
from ownwords.make.result import MakeResult, TrainingSummary
from ownwords.make.scoring import ScorecardKey
from ownwords.make.stage_cache import StageCache
from ownwords.make.tuned_model import TunedModel
from ownwords.models import atomic_dir
from ownwords.models.fingerprint import model_fingerprint
from ownwords.training.corpus import Corpus

if TYPE_CHECKING:
    from ownwords.archive.analysis import AskAuthor, PostQuestion
    from ownwords.training.recipes import PlannedTraining, TrainedModel

_STAGES = ("train", "write", "compare", "weigh")
_NAMES = {
    "texts": "other texts",
    "minutes": "other minutes",
    "base": "another base",
    "settings": "other settings",
}


class MakeStages:
    """One making under way; its stages are called in their order."""

    def __init__(self, order: MakeRequest, progress: Progress, callbacks: MakeCallbacks) -> None:
        self.order, self.progress, self.callbacks = order, progress, callbacks
        self.place = order.place
        self.model = self.place.root / "model"
        self.from_nothing = self.place.runs / "from-nothing" / "model"
        self.in_full = self.place.runs / "in-full" / "model"
        self.folder = self.place.runs / "make"
        self.base_key = model_fingerprint(order.base, provenance=True) if order.base else ""
        self.finished = StageCache(self.folder / "finished.json")
        self.is_new = False
        self._asking_s = 0.0  # the author may think as long as the author likes

    @property
    def tuning_s(self) -> float:
        return self.order.minutes * 60 - self.order.comparing_s

    # --- the stages -------------------------------------------------------------------------------

    def read(self, ask: "AskAuthor | None") -> Report:
        """The archive and the report on it; of a blog that has not changed the ones there are."""
        order = self.order
        with self._interrupted("nothing was changed, and the same command begins again"):
            began = time.perf_counter()
            report = look(
                order.paths,
                workspace=self.place.root,
                archive=order.archive,
                provenance=order.provenance,
                split=order.split,
                progress=self.progress,
                ask=self._timed(ask) if ask else None,
            )
            self.callbacks.on_read(report, time.perf_counter() - began - self._asking_s)
        return report

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process makes anything in the workspace meanwhile."""
        path = self.folder / ".lock"
        with ExitStack() as stack:
            with translate_os_errors(path):
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(path.open("a+", encoding="utf-8"))
            if not try_lock(lock.fileno()):
                raise InUseError(
                    f"another ownwords is making a model in {self.place.root}",
                    hint="wait for it to end, or give another folder to --workspace",
                )
            yield

    def train(self, texts: Corpus, report: Report) -> TrainingSummary:
        """The author's model."""
        posts = len(report.posts)
        depends_on = {
            "texts": texts.key,
            "minutes": f"{self.order.minutes:g}",
            "base": self.base_key,
            "settings": _said(self.order.fixed),
        }
        found = self.finished.found("train", depends_on, TrainingSummary)
        if found and model_fingerprint(self.model) == found.key:
            self.callbacks.on_trained(found, None)
            return found
        before = self.finished.last("train", TrainingSummary)
        changes = self.finished.changed("train", depends_on)
        there = None
        if not changes and (before or not self.order.is_timed):
            there = tuned_model.found(self.model, depends_on, posts)
        if there:
            return self._searched(there, depends_on, before)
        if changes:
            self.callbacks.on_changed(self._what_changed(changes, before, posts))
        if language.is_new_to(self.order.base, texts.train):
            self.callbacks.on_new_language()
        so_far = f"what there is so far is kept in {self.place.root}"
        with self._interrupted(f"{so_far}, and the same command goes on from there"):
            began = time.perf_counter()
            base = self.order.base
            planned = self.plan_training(texts, base, self.tuning_s)
            self.callbacks.on_planned(planned.plan, catalogue.called(base) if base else "")
            made = planned.train()
            trained = TrainingSummary.of(made, model_fingerprint(self.model), posts)
            seconds = time.perf_counter() - began
            self.finished.keep("train", depends_on, trained, seconds)
        if before and before.run != trained.run:
            self._forget(before.run)
        self.is_new = True
        self.callbacks.on_trained(trained, seconds)
        return trained

    def _searched(
        self, there: TunedModel, depends_on: Mapping[str, str], before: TrainingSummary | None
    ) -> TrainingSummary:
        """What a search has left, which had compared it with the model before."""
        self.callbacks.on_changed(there.sentence)
        self.finished.keep("train", depends_on, there.trained, there.seconds)
        if before and before.run != there.trained.run:
            self._forget(before.run)
        self.callbacks.on_trained(there.trained, None)
        return there.trained

    def write(self, trained: TrainingSummary, report: Report) -> FirstParagraph:
        """The first paragraph in the author's voice, as it comes."""
        title = title_for(report)
        depends_on = {"model": trained.key, "title": title, "choice": repr(DEFAULT_SAMPLING)}
        found = self.finished.found("write", depends_on, FirstParagraph)
        if found:
            self.callbacks.on_writing(title, iter([found.text]))
            return found
        text = ""
        with self._interrupted(self._goes_on()):
            model = Model.load(self.model)
            began = time.perf_counter()
            pieces = ended_well(model.write(prompt_of(title), max_tokens=MOST_TOKENS, seed=SEED))

            def heard() -> Iterator[str]:
                nonlocal text
                for piece in pieces:
                    text += piece
                    yield piece

            self.callbacks.on_writing(title, heard())
            paragraph = FirstParagraph(title, text)
            self.finished.keep("write", depends_on, paragraph, time.perf_counter() - began)
        self.is_new = True
        return paragraph

    def compare(self, texts: Corpus, report: Report) -> TrainingSummary | None:
        """A model from nothing, of the same texts: what the base is good for."""
        order = self.order
        if not order.is_compared:
            return None
        seconds, out = order.comparing_s, self.from_nothing
        # How to train is for both; with which rates is another matter for a base than for none.
        fixed = {key: value for key, value in order.fixed.items() if key.startswith("train.")}
        beside = ComparisonModel(
            "compare",
            {"texts": texts.key, "seconds": f"{seconds:g}", "settings": _said(fixed)},
            out,
            lambda: self.callbacks.on_comparison_start(seconds),
            self.callbacks.on_comparison_end,
        )
        return self._beside(
            beside, lambda: self.plan_training(texts, None, seconds, out, fixed).train(), report
        )

    def weigh(
        self, texts: Corpus, report: Report, trained: TrainingSummary
    ) -> TrainingSummary | None:
        """A model that learned all of the post that outweighs the others: was it well left out?"""
        order, took_s = self.order, self.finished.seconds("train")
        post = dominant_post_ablation.outweighing(report)
        if post is None or not (order.has_time_to_compare and len(texts.test)):
            return None
        if took_s > dominant_post_ablation.MOST_S:
            return None
        base, seconds, out = order.base, self.tuning_s, self.in_full
        fixed = dominant_post_ablation.same_settings(trained, has_base=base is not None)
        whole = replace(texts, train=dominant_post_ablation.in_full(texts.train, post))
        beside = ComparisonModel(
            "weigh",
            {
                "texts": texts.key,
                "post": post.id,
                "base": self.base_key,
                "seconds": f"{seconds:g}",
                "settings": _said(fixed),
            },
            out,
            lambda: self.callbacks.on_ablation_start(post, took_s),
            self.callbacks.on_ablation_end,
        )
        return self._beside(
            beside, lambda: self.plan_training(whole, base, seconds, out, fixed).train(), report
        )

    def score(
        self,
        archive: Archive,
        texts: Corpus,
        report: Report,
        trained: TrainingSummary,
        paragraph: FirstParagraph,
        compared: TrainingSummary | None,
        weighed: TrainingSummary | None,
    ) -> Scorecard | None:
        """How good it is, on whole posts that neither training nor choosing has seen."""
        if not len(texts.test):
            return None
        depends_on = {
            "model": trained.key,
            "base": self.base_key,
            "compared": compared.key if compared else "",
            "weighed": weighed.key if weighed else "",
            "texts": texts.key,
            "how": f"{scoring.VERSION} {self.order.measured!r} {DEFAULT_SAMPLING!r}",
        }
        done = self.finished.found("score", depends_on, ScorecardKey)
        card = scoring.standing(self.place.root, done) if done else None
        if card:
            self.callbacks.on_scored(card, None)
            return card
        self.callbacks.on_scoring_start(
            scoring.about_s(self.order.measured, paragraph, self._spent()["write"])
        )
        with self._interrupted(self._goes_on()):
            began = time.perf_counter()
            base = self.order.base
            card = scoring.scored(
                self.place.root,
                self.model,
                ComparisonModels(
                    base=base,
                    base_name=catalogue.called(base) if base else "",
                    scratch=self.from_nothing if compared else None,
                    undivided=self.in_full if weighed else None,
                ),
                archive,
                texts,
                report,
                spent=self._spent(),
                config=self.order.measured,
                progress=self.progress,
            )
            seconds = time.perf_counter() - began
            self.finished.keep("score", depends_on, scoring.written(self.place.root), seconds)
        self.is_new = True
        self.callbacks.on_scored(card, seconds)
        return card

    def result(
        self,
        report: Report,
        trained: TrainingSummary,
        paragraph: FirstParagraph,
        compared: TrainingSummary | None,
        card: Scorecard | None,
    ) -> MakeResult:
        """All of it."""
        return MakeResult(
            workspace=self.place.root,
            model=self.model,
            report=report,
            trained=trained,
            paragraph=paragraph,
            compared=compared,
            scorecard=card,
            seconds={**self._spent(), "score": self.finished.seconds("score")},
            is_new=self.is_new,
        )

    # --- what they share --------------------------------------------------------------------------

    def plan_training(
        self,
        texts: Corpus,
        base: Path | None,
        seconds: float,
        out: Path | None = None,
        fixed: Mapping[str, object] | None = None,
    ) -> "PlannedTraining":
        """The training of a model of the texts, from a base or from scratch, with its plan."""
        from ownwords.training import recipes  # noqa: PLC0415 - it brings PyTorch

        request = recipes.TrainRequest(
            workspace=self.place.root,
            seconds=seconds,
            fixed=self.order.fixed if fixed is None else fixed,
            progress=self.progress,
            device=self.order.device,
            own_share=texts.own_share,
            corpus=texts.key,
            out=out,
            began=self._began() if out is None else time.perf_counter(),
            ends_in_time=out == self.in_full,  # whose steps are those of another training
        )
        if base is None:
            return recipes.plan_pretraining(texts.train, texts.validation, request)
        return recipes.plan_finetuning(base, texts.train, texts.validation, request)

    def _beside(
        self, beside: ComparisonModel, make: "Callable[[], TrainedModel]", report: Report
    ) -> TrainingSummary | None:
        found = beside.standing(self.finished)
        if found:
            return found
        with self._interrupted(self._goes_on()):
            made = beside.made(self.finished, make, len(report.posts), self._forget)
        self.is_new = self.is_new or made is not None
        return made

    def _timed(self, ask: "AskAuthor") -> "AskAuthor":
        def asking(question: "PostQuestion") -> str:
            began = time.perf_counter()
            try:
                return ask(question)
            finally:
                self._asking_s += time.perf_counter() - began

        return asking

    def _began(self) -> float | None:
        return None if self.order.began is None else self.order.began + self._asking_s

    @staticmethod
    @contextmanager
    def _interrupted(sentence: str) -> Iterator[None]:
        """Whoever interrupts hears what is kept, unless what was interrupted says it itself."""
        try:
            yield
        except KeyboardInterrupt as error:
            if str(error):
                raise
            raise KeyboardInterrupt(sentence) from None

    def _goes_on(self) -> str:
        return (
            f"your model is finished, in {self.model}; the same command goes on with what is left"
        )

    def _what_changed(
        self, changes: Sequence[str], before: TrainingSummary | None, posts: int
    ) -> str:
        said = [_NAMES[name] for name in changes if name in _NAMES]
        if "texts" in changes and before and before.posts != posts:
            said[said.index(_NAMES["texts"])] = f"{posts:,} posts where there were {before.posts:,}"
        start = "from the base" if self.order.base else "from nothing"
        return f"Since the last model here: {', '.join(said)}. It is trained anew, {start}."

    def _forget(self, run: str) -> None:
        """The checkpoints of a run whose model was replaced; what it tells about itself stays."""
        checkpoints = self.place.runs / run / "checkpoints"
        if run and checkpoints.is_dir():
            with suppress(OwnwordsError, OSError):  # as where Windows has one of them open
                atomic_dir.delete_dir(checkpoints)

    def _spent(self) -> dict[str, float]:
        return {name: self.finished.seconds(name) for name in _STAGES}


def _said(settings: Mapping[str, object]) -> str:
    return repr(sorted(settings.items()))
