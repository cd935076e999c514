"""Runs the stages of `ownwords make`, from a blog to a scored model; finished stages are cached.

After a kill at any moment the same request resumes: a training from its checkpoint, any other stage
from its beginning. PyTorch is imported only when a stage needs it.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.archive.advice import check_enough
from ownwords.archive.corpus import Corpus, read_corpus
from ownwords.archive.look import look
from ownwords.archive.report import Report
from ownwords.base import catalogue, estimates, trimming
from ownwords.base.estimates import BaseChoice
from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError, resumable
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, duration
from ownwords.core.version import __version__
from ownwords.core.workspace import locked
from ownwords.drafts import notes
from ownwords.evaluation.scorecard import DATA, PAGE, Scorecard, read_scorecard
from ownwords.evaluation.scorecard_view import write_scorecard
from ownwords.evaluation.scoring import ScoreConfig, score_model
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.make.learned import write_learned
from ownwords.make.stages import (
    CHANGED,
    FINISHED,
    MAX_TOKENS,
    SEED,
    FirstParagraph,
    MakeCallbacks,
    MakeRequest,
    MakeResult,
    StageCache,
    TrainingSummary,
    cut_at_paragraph,
    find_base,
    prompt_of,
    title_for,
)
from ownwords.models import atomic_dir, directory
from ownwords.models.directory import model_fingerprint
from ownwords.models.model_library import ModelLibrary
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training.run import CHECKPOINTS
from ownwords.training.settings import settings_key

if TYPE_CHECKING:
    from ownwords.archive.analysis import AskAuthor, PostQuestion
    from ownwords.training.plan import Plan
    from ownwords.training.recipes import PlannedTraining, TrainRequest
    from ownwords.training.trained_model import TrainedModel

PARTS = ("read", "plan", "train", "write", "score")
_CHANGES = {
    "texts": "other texts",
    "minutes": "a different time limit",
    "base": "another base",
    "settings": "different settings",
}
_NEW_LANGUAGE = (
    "Your texts do not read as English, the only language the built-in model knows. It must learn"
    " yours from them alone; a model that knows it is a better start, such as gemma3-270m, which"
    " knows 140 languages: `ownwords base add gemma3-270m`, then make again."
)
_SHORTENING = {"train.steps", "train.max_steps"}  # allow fewer minutes than a base needs
_SCORING = "The model predicts held-out posts and writes many texts."
_WRITE_S = 2.0  # for the first paragraph: 0.6 with the built-in base, 2.7 with SmolLM2
_MIN_CHARACTERS = 40  # of the first paragraph, to measure the speed of writing
_TOKEN_CHARACTERS = 4
_SAMPLE_SHARE = 0.11  # of the time of scoring, for as many tokens as one sample has
_MIN_SAMPLE_TOKENS = 60


def make(
    request: MakeRequest,
    *,
    progress: Progress | None = None,
    ask: "AskAuthor | None" = None,
    callbacks: MakeCallbacks | None = None,
    began: float | None = None,
) -> MakeResult:
    """Read, train, write a paragraph and score; finished stages are only reported again.

    `ask` is called about unusual posts; without it the defaults apply. `began` is the
    time.perf_counter() at which the user began to wait. Raises OwnwordsError if a stage is
    impossible; finished stages are kept. The message of a KeyboardInterrupt says what is saved.
    """
    run = MakeRun(request, progress, callbacks, began)
    run.announce_parts()
    progress = run.progress
    progress.begin("read")
    report = run.read_texts(ask)
    with run.lock():
        progress.begin("plan")
        texts = read_corpus(run.workspace.archive)
        run.choose_base(texts)
        trained = run.train(texts, report)
        progress.begin("write")
        paragraph = run.write_paragraph(trained, report)
        progress.begin("score")
        card = run.score(texts, report, trained)
        ModelLibrary(run.workspace.root).keep(request.name)
    return MakeResult(
        workspace=run.workspace.root,
        model=run.model,
        report=report,
        trained=trained,
        paragraph=paragraph,
        scorecard=card,
        seconds=run.seconds("train", "write", "score"),
        is_new=run.is_new,
    )


def plan(
    request: MakeRequest,
    *,
    progress: Progress | None = None,
    ask: "AskAuthor | None" = None,
    callbacks: MakeCallbacks | None = None,
    began: float | None = None,
) -> "Plan":
    """Return the training's plan without training; an unfinished training's plan is loaded."""
    run = MakeRun(request, progress, callbacks, began)
    run.read_texts(ask)
    with run.lock():
        texts = read_corpus(run.workspace.archive)
        run.choose_base(texts)
        return run.plan(texts).plan


class MakeRun:
    """The stages of one run; `make` calls them in order."""

    def __init__(
        self,
        request: MakeRequest,
        progress: Progress | None,
        callbacks: MakeCallbacks | None,
        began: float | None,
    ) -> None:
        request.check()
        self.request = request
        self.progress, self.callbacks = progress or Progress(), callbacks or MakeCallbacks()
        self.workspace = request.resolved_workspace
        self.model = self.workspace.root / "model"
        self.cache = StageCache(self.workspace.root / FINISHED)
        # The built-in one if the request leaves it open, until `choose_base`.
        self.base = find_base(request.base)
        if self.base:  # refuse a damaged one before any text is read
            with directory.open_directory(self.base) as folder:
                files = directory.read(folder)
                if not files.is_unchanged:  # opening a large tokenizer takes half a second
                    files.check_tokenizer(Tokenizer(files.tokenizer_files))
        self.is_new = False
        self._began = began
        self._asking_s = 0.0  # excluded: the time the author takes to answer

    # --- the stages -------------------------------------------------------------------------------

    def read_texts(self, ask: "AskAuthor | None") -> Report:
        """Read the texts into the archive; CorpusError if there is too little to train on.

        An unchanged blog is not read again.
        """
        request = self.request
        with resumable("nothing was changed; the same command starts again"):
            began = time.perf_counter()
            report = look(
                request.paths,
                workspace=self.workspace.root,
                settings=request.reading,
                progress=self.progress,
                ask=self._timed(ask) if ask else None,
            )
        with resumable("the texts are read and stored; the same command continues from there"):
            self.callbacks.on_read(report, time.perf_counter() - began - self._asking_s)
            check_enough(report.totals)
        return report

    def lock(self) -> AbstractContextManager[object]:
        """Hold the workspace's lock; InUseError if another process has it."""
        return locked(
            (self.workspace.root / FINISHED).with_name(".lock"),
            f"another ownwords is making a model in {self.workspace.root}",
            "wait for it to end, or give another folder to --workspace",
        )

    def choose_base(self, texts: Corpus) -> None:
        """Choose the base and the minutes that the request leaves open; trim a large vocabulary.

        The same command always chooses the same. ConfigError if a base that the request names needs
        more minutes.
        """
        request = self.request
        inputs = {
            "texts": texts.key,
            "minutes": "" if request.minutes is None else f"{request.minutes:g}",
            "base": request.base,
            "settings": settings_key(request.fixed),
            "bases": " ".join(f"{entry.name} {entry.bytes}" for entry in catalogue.entries()),
        }
        choice = self.cache.get("base", inputs, BaseChoice)
        if choice is None:
            choice = self._choice(texts)
            self.cache.put("base", inputs, choice, 0.0)
        if request.minutes is None:
            self.request = replace(request, minutes=choice.minutes)
            self.announce_parts()
        if choice.folder:
            self.base = Path(choice.folder)
            self.callbacks.on_notice("Base", " ".join(choice.sentences))
        if self.base and self.request.trims:
            out = self.workspace.runs / trimming.TRIMMED / self.base.name
            own = (text.text for text in texts.train)
            self.base = trimming.trim(self.base, own, out, progress=self.progress)
            hardware.return_freed_memory()

    def train(self, texts: Corpus, report: Report) -> TrainingSummary:
        """Train the author's model, unless it is cached."""
        posts = len(report.posts)
        depends_on = {
            "texts": texts.key,
            "minutes": f"{self.request.resolved_minutes:g}",
            "base": self._base_key,
            "settings": settings_key(self.request.fixed),
        }
        cached = self.cache.get("train", depends_on, TrainingSummary)
        if cached and model_fingerprint(self.model) == cached.key:
            self.callbacks.on_trained(cached, None)
            return cached
        before, inputs = self.cache.latest("train", TrainingSummary), self.cache.inputs("train")
        changes = [n for n in depends_on if inputs and inputs.get(n) != depends_on[n]]
        if changes:
            self.callbacks.on_notice(CHANGED, self._describe(changes, before, posts))
        with resumable(
            f"everything so far is saved in {self.workspace.root}; the same command resumes"
        ):
            began = time.perf_counter()
            trained = TrainingSummary.of(self._plan_and_train(texts), posts)
            seconds = time.perf_counter() - began
        self.cache.put("train", depends_on, trained, seconds)
        write_learned(self.workspace.root, report)
        self._delete_checkpoints(before, trained)
        self.is_new = True
        self.callbacks.on_trained(trained, seconds)
        return trained

    def _plan_and_train(self, texts: Corpus) -> "TrainedModel":
        """Train the author's model."""
        if is_new_language(self.base, texts):
            self.callbacks.on_notice("Language", _NEW_LANGUAGE)
        planned = self.plan(texts)
        self.callbacks.on_planned(planned.plan, catalogue.display_name(self.base))
        seconds = planned.plan.expected.seconds - planned.spent_s
        if seconds > 60 * self.request.resolved_minutes:
            self.progress.note(f"The training takes {duration(seconds)} here, longer than asked.")
        if not self.cache.seconds("score"):
            per_s, has_base = planned.plan.expected.tokens_per_s, self.base is not None
            config, held_out = self.request.score_config, texts.test.bytes
            self.progress.expect("score", config.expected_s(held_out, per_s, has_base=has_base))
        self.progress.expect("train", seconds)
        self.progress.begin("train")
        made = planned.train()
        del planned
        hardware.return_freed_memory()
        return made

    def plan(self, texts: Corpus) -> "PlannedTraining":
        """Plan the training of the author's model, or load the plan of an unfinished one."""
        from ownwords.training.recipes import TrainRequest  # noqa: PLC0415 - it brings PyTorch

        request = TrainRequest(
            workspace=self.workspace.root,
            seconds=self.request.resolved_minutes * 60,
            fixed=self.request.fixed,
            progress=self.progress,
            device=self.request.device,
            own_share=texts.own_share,
            corpus=texts.key,
            base_title=catalogue.display_name(self.base),
            began=None if self._began is None else self._began + self._asking_s,
        )
        return plan_training(self.base, texts, request)

    def write_paragraph(self, trained: TrainingSummary, report: Report) -> FirstParagraph:
        """Generate the first paragraph, streaming it to the callbacks."""
        title = title_for(report)
        depends_on = {"model": trained.key, "title": title, "choice": repr(DEFAULT_SAMPLING)}
        paragraph = self.cache.get("write", depends_on, FirstParagraph)
        if paragraph:
            self.callbacks.on_writing(title, iter([paragraph.text]))
        else:
            parts: list[str] = []
            with self._model_is_finished():
                model = Model.load(self.model, device=self.request.device)
                began = time.perf_counter()
                written = model.write(prompt_of(title), max_tokens=MAX_TOKENS, seed=SEED)

                def recorded() -> Iterator[str]:
                    for piece in cut_at_paragraph(written):
                        parts.append(piece)
                        yield piece

                self.callbacks.on_writing(title, recorded())
                paragraph = FirstParagraph(title, "".join(parts))
                self.cache.put("write", depends_on, paragraph, time.perf_counter() - began)
            self.is_new = True
        return paragraph

    def score(self, texts: Corpus, report: Report, trained: TrainingSummary) -> Scorecard | None:
        """Score the model on the test posts, which neither training nor selection has read."""
        if not len(texts.test):
            return None
        config, root = self._score_config, self.workspace.root
        depends_on = {
            "model": trained.key,
            "base": self._base_key,
            "texts": texts.key,
            "how": f"{__version__} {config!r} {DEFAULT_SAMPLING!r}",
        }
        # With the files, to notice changes to them.
        is_cached = self.cache.inputs("score") == depends_on | {"files": self._scorecard_files()}
        if is_cached and (card := read_scorecard(root)):
            self.callbacks.on_scored(card, None)
            return card
        self.callbacks.on_notice("Scoring", _SCORING)
        with self._model_is_finished():
            began = time.perf_counter()
            card = score_model(
                self.model,
                texts,
                self.base,
                base_name=catalogue.display_name(self.base),
                base_adapter=catalogue.notes_adapter(self.base) if self.base else None,
                workspace=root,
                report=report,
                config=config,
                progress=self.progress,
                device=self.request.device,
            )
            write_scorecard(card, root)
            seconds = time.perf_counter() - began
            depends_on["files"] = self._scorecard_files()
            self.cache.put("score", depends_on, card.verdict, seconds)
        self.is_new = True
        self.callbacks.on_scored(card, seconds)
        return card

    # --- how long the parts take ------------------------------------------------------------------

    def seconds(self, *stages: str) -> dict[str, float]:
        return {stage: self.cache.seconds(stage) for stage in stages}

    def announce_parts(self) -> None:
        """Announce the parts of the request; each is expected to take as long as the last time.

        A part of 0 seconds is left out, unless it turns out to have work.
        """
        seconds = {
            "train": self.request.resolved_minutes * 60,
            "write": self.cache.seconds("write") or _WRITE_S,
            "score": self.cache.seconds("score") or self.request.score_config.seconds,
        }
        for part in PARTS:
            self.progress.expect(part, seconds.get(part))

    # --- shared by the stages ---------------------------------------------------------------------

    @property
    def _score_config(self) -> ScoreConfig:
        """How much to measure; the samples are shorter if the first paragraph came slowly."""
        config, written = self.request.score_config, self.cache.latest("write", FirstParagraph)
        if written is None or len(written.text) < _MIN_CHARACTERS:
            return config
        token_s = _TOKEN_CHARACTERS * max(0.01, self.cache.seconds("write")) / len(written.text)
        most = max(_MIN_SAMPLE_TOKENS, _SAMPLE_SHARE * config.seconds / token_s)
        return replace(config, max_tokens=round(min(config.max_tokens, most)))

    @property
    def _base_key(self) -> str:
        return model_fingerprint(self.base, provenance=True) if self.base else ""

    def _choice(self, texts: Corpus) -> BaseChoice:
        """Return the base and the minutes, as far as the request leaves them open."""
        request, options = self.request, estimates.base_options()
        task = estimates.task_here(
            texts.train.bytes,
            len(texts.train),
            seconds=request.resolved_minutes * 60,
            is_english=trimming.are_english([text.text for text in texts.train]),
            device=request.device,
        )
        if request.minutes is None:
            minutes = estimates.usual_minutes(request.base, task, options)
            task = replace(task, seconds=60 * minutes)
        if request.base and not _SHORTENING & request.fixed.keys():
            # The plan knows the exact memory.
            unlimited = replace(task, memory_bytes=estimates.UNLIMITED)
            estimates.check_fits(request.base, unlimited, options)
        chosen = None if request.base else estimates.choose_base(task, options)
        return chosen or BaseChoice(task.seconds / 60)

    def _scorecard_files(self) -> str:
        paths = [self.workspace.root / name for name in (DATA, PAGE)]
        return digest(*(path.read_bytes() if path.exists() else b"" for path in paths))

    def _delete_checkpoints(self, *trainings: TrainingSummary | None) -> None:
        """Delete the checkpoints of finished runs, but not their logs."""
        for training in trainings:
            if training and training.run:
                checkpoints = self.workspace.runs / training.run / CHECKPOINTS
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

    def _describe(self, changes: list[str], before: TrainingSummary | None, posts: int) -> str:
        texts = dict(_CHANGES)
        if before and before.posts != posts:
            texts["texts"] = f"{posts:,} posts instead of {before.posts:,}"
        start = "the base" if self.base else "scratch"
        changed = ", ".join(texts[name] for name in changes)
        return f"Since the last model here: {changed}. Training starts again from {start}."


def plan_training(
    base: Path | None,
    texts: Corpus,
    request: "TrainRequest",
    *,
    by_lora: bool | None = None,
) -> "PlannedTraining":
    """Plan a training from a base, which also learns to write from notes, or from scratch."""
    from ownwords.training import recipes  # noqa: PLC0415

    if base is None:
        return recipes.plan_pretraining(texts.train, texts.validation, request)
    pairs, adapter = notes.lessons(base, texts.train)
    return recipes.plan_finetuning(
        base,
        texts.train,
        texts.validation,
        request,
        pairs=pairs,
        adapter=adapter,
        by_lora=by_lora,
    )


def is_new_language(base: Path | None, texts: Corpus) -> bool:
    """Whether the base is the built-in English model and the training texts are not English."""
    if base is None or catalogue.display_name(base) != catalogue.SHIPPED_TITLE:
        return False
    return not trimming.are_english([text.text for text in texts.train])
