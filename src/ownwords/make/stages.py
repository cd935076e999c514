"""The stages of `ownwords make`: their dependencies, their cached results, and running them.

PyTorch is imported only when a stage needs it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.archive.look import look
from ownwords.archive.report import Report
from ownwords.archive.store import Archive
from ownwords.base import catalogue, trimming
from ownwords.base.trimming import TRIMMED
from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError, resumable
from ownwords.core.hardware import return_freed_memory
from ownwords.core.progress import Progress
from ownwords.core.workspace import locked
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.scoring import ComparisonModels
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.make import base_choice, scoring
from ownwords.make.make_request import MakeRequest
from ownwords.make.paragraph import (
    MOST_TOKENS,
    SEED,
    FirstParagraph,
    cut_at_paragraph,
    prompt_of,
    title_for,
)
from ownwords.make.result import MakeCallbacks, TrainingSummary, TunedModel, find_tuned_model
from ownwords.make.scoring import ScorecardKey
from ownwords.make.stage_cache import StageCache, write_learned
from ownwords.models import atomic_dir
from ownwords.models.fingerprint import model_fingerprint
from ownwords.training.corpus import Corpus
from ownwords.training.run import CHECKPOINTS
from ownwords.training.settings import settings_key

if TYPE_CHECKING:
    from ownwords.archive.analysis import AskAuthor, PostQuestion
    from ownwords.training.plan import Plan
    from ownwords.training.recipes import PlannedTraining

_CHANGES = {
    "texts": "other texts",
    "minutes": "other minutes",
    "base": "another base",
    "settings": "other settings",
}
PARTS = ("read", "plan", "train", "write", "compare", "score")
_WRITE_S = 4.0
# Seconds of scoring for each token that it samples, in seconds of training on a token: a guess,
# until the model has written.
_BY_TRAINING = 10.0
# The same in seconds of writing a character, as measured with the built-in base and with Gemma 3
# 270M, on a busy machine and a quiet one. After the first scoring, what that took is expected.
_BY_WRITING = 4.8
_LEAST_CHARACTERS = 40  # from which the speed of writing can be told


class MakeStages:
    """The stages of one run; `pipeline.make` calls them in order."""

    def __init__(self, request: MakeRequest, progress: Progress, callbacks: MakeCallbacks) -> None:
        self.request, self.progress, self.callbacks = request, progress, callbacks
        self.workspace = request.resolved_workspace
        self.model = self.workspace.root / "model"
        self.scratch_model = self.workspace.runs / "from-nothing" / "model"
        self.folder = self.workspace.runs / "make"
        self.cache = StageCache(self.folder / "finished.json")
        self.is_new = False
        self._asking_s = 0.0  # excluded: the time the author takes to answer

    @property
    def base_key(self) -> str:
        base = self.request.base
        return model_fingerprint(base, provenance=True) if base else ""

    # --- the stages -------------------------------------------------------------------------------

    def read_texts(self, ask: "AskAuthor | None") -> Report:
        """Read the texts into the archive; an unchanged blog is not read again."""
        request = self.request
        with resumable("nothing was changed; the same command starts again"):
            began = time.perf_counter()
            report = look(
                request.paths,
                workspace=self.workspace.root,
                archive=request.archive,
                provenance=request.provenance,
                split=request.split,
                progress=self.progress,
                ask=self._timed(ask) if ask else None,
            )
        with resumable("the texts are read and stored; the same command continues from there"):
            self.callbacks.on_read(report, time.perf_counter() - began - self._asking_s)
        return report

    def lock(self) -> AbstractContextManager[object]:
        """Hold the workspace's lock; InUseError if another process has it."""
        return locked(
            self.folder / ".lock",
            f"another ownwords is making a model in {self.workspace.root}",
            "wait for it to end, or give another folder to --workspace",
        )

    def choose_base(self, texts: Corpus) -> None:
        """Choose the base, if the request leaves that open; the same command chooses the same."""
        if not self.request.chooses_base:
            return
        choice = base_choice.choose(self.request, texts, self.cache)
        if choice is None:
            return
        self.request = replace(self.request, base=Path(choice.folder))
        self.callbacks.on_base_chosen(choice.sentences)

    def trim_base(self, texts: Corpus) -> None:
        """Continue with a copy of the base without the tokens that this author does not need."""
        base = self.request.base
        if base is None or not self.request.trims:
            return
        out = self.workspace.runs / TRIMMED / base.name
        own = (text.text for text in texts.train)
        trimmed = trimming.trim(base, own, out, progress=self.progress)
        return_freed_memory()
        self.request = replace(self.request, base=trimmed.folder)

    def train(self, texts: Corpus, report: Report) -> TrainingSummary:
        """Train the author's model, unless it is cached or `ownwords tune` has installed one."""
        posts = len(report.posts)
        depends_on = {
            "texts": texts.key,
            "minutes": f"{self.request.minutes:g}",
            "base": self.base_key,
            "settings": settings_key(self.request.fixed),
        }
        cached = self.cache.get("train", depends_on, TrainingSummary)
        if cached and model_fingerprint(self.model) == cached.key:
            self.callbacks.on_trained(cached, None)
            return cached
        before = self.cache.latest("train", TrainingSummary)
        changes = self.cache.changed("train", depends_on)
        if not changes and (before or not self.request.is_timed):
            tuned = find_tuned_model(self.model, depends_on, posts)
            if tuned:
                return self._adopt(tuned, depends_on, before, report)
        if changes:
            self.callbacks.on_changed(self._describe(changes, before, posts))
        if base_choice.is_new_language(self.request.base, texts.train):
            self.callbacks.on_new_language()
        with resumable(
            f"everything so far is saved in {self.workspace.root}; the same command resumes"
        ):
            began = time.perf_counter()
            planned = self.plan(texts)
            base = self.request.base
            depends_on["base"] = self.base_key  # another one may have taken its place
            self.callbacks.on_planned(planned.plan, catalogue.called(base) if base else "")
            expect_from_plan(self.progress, self.request, planned.plan, self.cache)
            self.progress.begin("train")
            made = planned.train()
            trained = TrainingSummary.of(made, model_fingerprint(self.model), posts)
            seconds = time.perf_counter() - began
            self.cache.put("train", depends_on, trained, seconds)
            write_learned(self.folder, report)
        del planned, made
        return_freed_memory()
        self._forget_replaced(before, trained)
        self.is_new = True
        self.callbacks.on_trained(trained, seconds)
        return trained

    def plan(self, texts: Corpus) -> "PlannedTraining":
        """Plan the training of the author's model.

        A base that was chosen here, and for which time or memory turn out too short, gives way to
        the built-in one, if that has read the language and can be trained.
        """
        try:
            planned = self._plan_from_base(texts)
        except ConfigError:  # too little memory
            if not base_choice.can_use_built_in(self.request, texts):
                raise
            planned = None
        if planned and (
            planned.plan.recipe.train.steps or not base_choice.can_use_built_in(self.request, texts)
        ):
            return planned
        chosen = self.request
        # All of the minutes are given again: on a busy machine too few may be left.
        began = None if chosen.began is None else time.perf_counter() - self._asking_s
        self.request = replace(chosen, base=catalogue.shipped(), began=began)
        try:
            instead = self._plan_from_base(texts)
        except ConfigError:
            if planned is None:
                raise
            self.request = chosen
            return planned  # untrained, it writes nevertheless
        choice = base_choice.choose_built_in(chosen, texts, self.cache)
        self.callbacks.on_base_chosen(choice.sentences)
        return instead

    def write_paragraph(self, trained: TrainingSummary, report: Report) -> FirstParagraph:
        """Generate the first paragraph, streaming it to the callbacks."""
        title = title_for(report)
        depends_on = {"model": trained.key, "title": title, "choice": repr(DEFAULT_SAMPLING)}
        cached = self.cache.get("write", depends_on, FirstParagraph)
        if cached:
            self.callbacks.on_writing(title, iter([cached.text]))
            expect_from_writing(self.progress, self.request, cached.text, self.cache)
            return cached
        parts: list[str] = []
        with self._model_is_finished():
            model = Model.load(self.model, device=self.request.device)
            began = time.perf_counter()
            pieces = cut_at_paragraph(
                model.write(prompt_of(title), max_tokens=MOST_TOKENS, seed=SEED)
            )

            def recorded() -> Iterator[str]:
                for piece in pieces:
                    parts.append(piece)
                    yield piece

            self.callbacks.on_writing(title, recorded())
            paragraph = FirstParagraph(title, "".join(parts))
            self.cache.put("write", depends_on, paragraph, time.perf_counter() - began)
        expect_from_writing(self.progress, self.request, paragraph.text, self.cache)
        self.is_new = True
        return paragraph

    def train_from_scratch(self, texts: Corpus, report: Report) -> TrainingSummary | None:
        """Train a model from scratch on the same texts, to measure what the base contributes."""
        seconds, out = self.request.comparison_s, self.scratch_model
        if not seconds:
            return None
        # The user's train.* settings apply to both models; learning rates do not transfer.
        fixed = {k: v for k, v in self.request.fixed.items() if k.startswith("train.")}
        depends_on = {
            "texts": texts.key,
            "seconds": f"{seconds:g}",
            "settings": settings_key(fixed),
        }
        cached = self.cache.get("compare", depends_on, TrainingSummary)
        if cached and model_fingerprint(out) == cached.key:
            self.callbacks.on_comparison_end(cached, "", None)
            return cached
        before = self.cache.latest("compare", TrainingSummary)
        self.callbacks.on_comparison_start(seconds)
        with self._model_is_finished():
            began = time.perf_counter()
            try:
                made = self._planned(texts, None, seconds, out, fixed).train()
            except (ConfigError, CorpusError) as error:  # too little time or text
                self.callbacks.on_comparison_end(None, error.message, None)
                return None
            trained = TrainingSummary.of(made, model_fingerprint(out), len(report.posts))
            took_s = time.perf_counter() - began
            self.cache.put("compare", depends_on, trained, took_s)
            del made
            return_freed_memory()
            self._forget_replaced(before, trained)
            self.callbacks.on_comparison_end(trained, "", took_s)
        self.is_new = True
        return trained

    def score(
        self,
        archive: Archive,
        texts: Corpus,
        report: Report,
        trained: TrainingSummary,
        scratch: TrainingSummary | None,
    ) -> Scorecard | None:
        """Score the model on the test posts, which neither training nor selection has read."""
        if not len(texts.test):
            return None
        config, base = self.request.score_config, self.request.base
        depends_on = {
            "model": trained.key,
            "base": self.base_key,
            "compared": scratch.key if scratch else "",
            "texts": texts.key,
            "how": f"{scoring.VERSION} {config!r} {DEFAULT_SAMPLING!r}",
        }
        cached = self.cache.get("score", depends_on, ScorecardKey)
        card = scoring.read_scorecard(self.workspace.root, cached) if cached else None
        if card:
            self.callbacks.on_scored(card, None)
            return card
        self.callbacks.on_scoring_start()
        with self._model_is_finished():
            began = time.perf_counter()
            card = scoring.write_scorecard(
                self.workspace.root,
                self.model,
                ComparisonModels(
                    base=base,
                    base_name=catalogue.called(base) if base else "",
                    scratch=self.scratch_model if scratch else None,
                ),
                archive,
                texts,
                report,
                spent=self.seconds("train", "write", "compare"),
                config=config,
                progress=self.progress,
                device=self.request.device,
            )
            seconds = time.perf_counter() - began
            key = scoring.scorecard_key(self.workspace.root)
            self.cache.put("score", depends_on, key, seconds)
        self.is_new = True
        self.callbacks.on_scored(card, seconds)
        return card

    def seconds(self, *stages: str) -> dict[str, float]:
        """The seconds that each of the stages took."""
        return {stage: self.cache.seconds(stage) for stage in stages}

    # --- shared by the stages ---------------------------------------------------------------------

    def _plan_from_base(self, texts: Corpus) -> "PlannedTraining":
        request = self.request
        began = None if request.began is None else request.began + self._asking_s
        return self._planned(texts, request.base, request.training_s, None, request.fixed, began)

    def _planned(
        self,
        texts: Corpus,
        base: Path | None,
        seconds: float,
        out: Path | None,
        fixed: Mapping[str, object],
        began: float | None = None,
    ) -> "PlannedTraining":
        """Plan a training from the base or from scratch, or load the plan of an unfinished one."""
        from ownwords.training import recipes  # noqa: PLC0415 - it brings PyTorch

        request = recipes.TrainRequest(
            workspace=self.workspace.root,
            seconds=seconds,
            fixed=fixed,
            progress=self.progress,
            device=self.request.device,
            own_share=texts.own_share,
            corpus=texts.key,
            out=out,
            began=began if out is None else time.perf_counter(),
            is_comparison=out is not None,
        )
        if base is None:
            return recipes.plan_pretraining(texts.train, texts.validation, request)
        return recipes.plan_finetuning(base, texts.train, texts.validation, request)

    def _adopt(
        self,
        tuned: TunedModel,
        depends_on: Mapping[str, str],
        before: TrainingSummary | None,
        report: Report,
    ) -> TrainingSummary:
        """Use the tuned model as the result; the search has compared it with the model before."""
        self.callbacks.on_changed(tuned.sentence)
        self.cache.put("train", depends_on, tuned.trained, tuned.seconds)
        write_learned(self.folder, report)
        self._forget_replaced(before, tuned.trained)
        self.callbacks.on_trained(tuned.trained, None)
        return tuned.trained

    def _forget_replaced(self, before: TrainingSummary | None, after: TrainingSummary) -> None:
        """Delete the checkpoints of a run whose model was replaced, but not its logs."""
        if before is None or not before.run or before.run == after.run:
            return
        checkpoints = self.workspace.runs / before.run / CHECKPOINTS
        if checkpoints.is_dir():
            with suppress(OwnwordsError, OSError):  # such as when a file is open on Windows
                atomic_dir.delete_dir(checkpoints)

    def _timed(self, ask: "AskAuthor") -> "AskAuthor":
        def timed_ask(question: "PostQuestion") -> str:
            began = time.perf_counter()
            try:
                return ask(question)
            finally:
                self._asking_s += time.perf_counter() - began

        return timed_ask

    def _model_is_finished(self) -> AbstractContextManager[None]:
        return resumable(
            f"your model is finished, in {self.model}; the same command resumes with the rest"
        )

    def _describe(self, changes: Sequence[str], before: TrainingSummary | None, posts: int) -> str:
        texts = _CHANGES | (
            {"texts": f"{posts:,} posts instead of {before.posts:,}"}
            if before and before.posts != posts
            else {}
        )
        start = "the base" if self.request.base else "scratch"
        changed = ", ".join(texts[name] for name in changes if name in texts)
        return f"Since the last model here: {changed}. Training starts again from {start}."


# --- how long the parts of the job will take ------------------------------------------------------


def announce_parts(progress: Progress, request: MakeRequest, cache: StageCache) -> None:
    """Announce the parts that the request has; what the last run took is expected again.

    A part of 0 seconds is left out, unless more is found to do.
    """
    seconds = {
        "train": request.training_s,
        "write": cache.seconds("write") or _WRITE_S,
        "compare": request.comparison_s,
        "score": cache.seconds("score") or None,
    }
    for part in PARTS:
        progress.expect(part, seconds.get(part))


def expect_from_plan(
    progress: Progress, request: MakeRequest, plan: "Plan", cache: StageCache
) -> None:
    """Expect the training to take what its plan says, and the scoring what its speed suggests."""
    progress.expect("train", plan.expected.seconds)
    if not cache.seconds("score"):
        token_s = _BY_TRAINING / max(plan.expected.tokens_per_s, 1.0)
        progress.expect("score", token_s * _sampled_tokens(request))


def expect_from_writing(
    progress: Progress, request: MakeRequest, text: str, cache: StageCache
) -> None:
    """Expect the scoring to take what the model's speed at writing its first text suggests."""
    if not cache.seconds("score") and len(text) >= _LEAST_CHARACTERS:
        token_s = _BY_WRITING * cache.seconds("write") / len(text)
        progress.expect("score", token_s * _sampled_tokens(request))


def _sampled_tokens(request: MakeRequest) -> int:
    return request.score_config.sampled_tokens(has_base=request.base is not None)
