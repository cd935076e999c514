"""Measures a model and builds its scorecard.

Each figure is cached under a key of all its inputs, so a second scoring is instant, and after a
change of the model or the posts only the affected figures are measured again.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from ownwords.archive.corpus import Corpus, TrainingText
from ownwords.archive.report import Report
from ownwords.core.errors import ConfigError, CorpusError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, Stage
from ownwords.core.validation import decode, encode
from ownwords.core.version import __version__
from ownwords.core.workspace import translate_os_errors, write_atomically
from ownwords.evaluation.fluency import Fluency, fluency
from ownwords.evaluation.intervals import MIN_SOURCES, Score
from ownwords.evaluation.scorecard import (
    BASE,
    OURS,
    BitsRow,
    CopiedPassage,
    Memorised,
    ModelFacts,
    Scorecard,
    WritingSample,
)
from ownwords.evaluation.scored_model import SamplePrompt, ScoredModel
from ownwords.evaluation.style import ReferenceAuthors
from ownwords.evaluation.verbatim import Extraction, longest_copied
from ownwords.evaluation.verdict import with_conclusions
from ownwords.evaluation.voice import Voice, voice
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.language.words import Lexicon
from ownwords.view.format import count, size

FOLDER = "scores"  # of the cached figures, in the workspace

_WORD = re.compile(r"\S+")
# Progress is counted in bytes that a model reads; other work is converted to such bytes.
_TOKEN_BYTES = 10  # per token of a sample: 8 with SmolLM2, 16 with the built-in base
_HELD_OUT_BYTES = 2.2  # per byte of a held-out post, much of which is read again as context
_FASTER = 0.8  # fraction of the time that reading and writing would take at the training speed
_PORTION = 8  # samples written at once; none are added after the seconds are used up
_READING_SHARE = 0.12  # maximum share of the seconds for the held-out posts, per model
_PASSAGES_SHARE = 0.2  # maximum share of the seconds for the memorisation test
_MIN_PASSAGES = 16
_PASSAGE_BYTES = 2 * 440  # of one passage of each of two kinds, with its continuation
_READ_PER_TRAINED = 2 * 3.8  # bytes read in the time in which training reads a token
_MIN_POST_BYTES = 1_500  # read of each held-out post, however slow the machine is
_MIN_BODY = 40  # words a held-out post needs for its beginning to serve as a prompt

T = TypeVar("T")


# --- what is scored -------------------------------------------------------------------------------


def sample_posts(
    posts: Sequence[TrainingText], max_bytes: int, max_posts: int
) -> list[TrainingText]:
    """Return a reproducible random sample of whole posts of up to `max_bytes` in total.

    If fewer than five fit, the beginnings of five are used, because a verdict needs five. The posts
    keep their order.
    """
    chosen: dict[str, TrainingText] = {}
    left = max_bytes
    by_key = sorted(posts, key=lambda post: post.key)
    for post in by_key:
        if post.bytes <= left and len(chosen) < max_posts:
            chosen[post.id] = post
            left -= post.bytes
    if len(chosen) < min(MIN_SOURCES, len(posts)):
        each = max(_MIN_POST_BYTES, max_bytes // MIN_SOURCES)
        chosen = {post.id: _beginning(post, each) for post in by_key[:MIN_SOURCES]}
    return [chosen[post.id] for post in posts if post.id in chosen]


def _beginning(post: TrainingText, max_bytes: int) -> TrainingText:
    """Return a post's words within about `max_bytes`."""
    if post.bytes <= max_bytes:
        return post
    within = post.text[: max_bytes * len(post.text) // post.bytes]
    return replace(post, text=within.rsplit(maxsplit=1)[0])


def _held_out_work(held_out: int) -> int:
    return round(_HELD_OUT_BYTES * held_out)


@dataclass(frozen=True)
class ScoreConfig:
    """Sample sizes; larger ones give narrower intervals and take longer."""

    # Limits on the held-out posts to score; if there are more, a random sample is scored.
    max_posts: int = 40
    max_bytes: int = 150_000
    passages: int = 128  # of each kind, tested for memorisation
    # Samples: new texts with the first `seeds` seeds, and texts that continue a post's beginning.
    seeds: int = 12
    prompts: int = 8
    prompt_words: int = 8
    max_tokens: int = 400  # about 300 words, enough to measure style
    base_samples: int = 4  # of each kind, also written by the base
    # More new texts for voice and fluency; they are not shown. The number is fixed, because drawing
    # samples until an interval is conclusive would make it too narrow.
    more_seeds: int = 36
    seconds: float = math.inf  # for everything; on a slow machine less is measured

    def work(self, held_out: int, read_per_s: float, *, has_base: bool) -> int:
        """Return the bytes to read and to write for `held_out` bytes of held-out posts."""
        models, base_samples = (2, 2 * self.base_samples) if has_base else (1, 0)
        # Our models have a copy guard, and write their samples with and without it.
        texts = 2 * (self.seeds + self.prompts) + self.more_seeds + base_samples
        passages = self.passages_at(read_per_s)
        read = models * _held_out_work(held_out) + passages * _PASSAGE_BYTES
        return read + texts * self.max_tokens * _TOKEN_BYTES

    def passages_at(self, read_per_s: float) -> int:
        """Return how many passages of each kind are tested: fewer if reading is slow."""
        fit = _PASSAGES_SHARE * self.seconds * read_per_s / _PASSAGE_BYTES
        return round(min(self.passages, max(_MIN_PASSAGES, fit)))

    def held_out_at(self, read_per_s: float) -> int:
        """Return the maximum bytes of held-out posts to read."""
        return round(min(self.max_bytes, _READING_SHARE * self.seconds * read_per_s))

    def expected_s(self, held_out: int, trained_per_s: float, *, has_base: bool) -> float:
        """Estimate the seconds of a scoring; the model trains at `trained_per_s` tokens/s."""
        read_per_s = _READ_PER_TRAINED * trained_per_s
        held_out = min(held_out, self.held_out_at(read_per_s))
        work = self.work(held_out, read_per_s, has_base=has_base)
        return min(self.seconds, _FASTER * work / read_per_s)


# --- scoring --------------------------------------------------------------------------------------


def score_model(
    model: Path,
    corpus: Corpus,
    base_folder: Path | None,
    *,
    base_name: str = "",
    base_adapter: Path | None = None,
    workspace: Path,
    report: Report | None = None,
    config: ScoreConfig | None = None,
    progress: Progress | None = None,
    device: str = "auto",
) -> Scorecard:
    """Measure a model directory. Raises OwnwordsError if that is impossible.

    A given base is compared under the name `base_name`. If training began with `base_adapter`, it
    is merged, so that its gain is not attributed to the posts. `report` is the corpus report.
    Figures are cached in the workspace.
    """
    if not len(corpus.train):
        raise CorpusError(
            "there are no posts here that the model learned from",
            hint="read the blog into this workspace: ownwords look PATH --workspace FOLDER",
        )
    ours = ScoredModel(model, "your model", device)
    if not ours.provenance.get("base_adapter"):
        base_adapter = None
    base = ScoredModel(base_folder, "its base", device, base_adapter) if base_folder else None
    run = _Scoring(corpus, ours, base, workspace / FOLDER, config or ScoreConfig())
    with run.stage(progress or Progress()):
        base_bits: Score | None = None
        base_texts: tuple[str, ...] = ()
        # The weights of one model are freed before those of the next are loaded.
        if base:
            base_texts = run.samples(base, "base", run.base_prompts)
            base_bits = run.bits_per_byte(base)
            base.release()
        our_bits = run.bits_per_byte(ours)
        samples = run.samples(ours, "ours", run.prompts)
        extraction = run.extraction()
        # Text that the guard blocks is still memorised, so memorisation is measured without it.
        unguarded = samples
        if ours.has_guard:
            prompts = run.prompts[: len(samples)]
            unguarded = run.samples(ours, "ours-unguarded", prompts, guarded=False)
        more = run.samples(ours, "ours-more", run.more_prompts, least=0)
        ours.release()
        rows = [] if our_bits is None else [_bits_row(OURS, "", our_bits)]
        if base and our_bits and base_bits:
            how = f"{base_name}, before fine-tuning"
            rows.append(_bits_row(BASE, how, base_bits, our_bits))
        memorised = Memorised(
            words=extraction.words,
            training=extraction.training,
            held_out=extraction.held_out,
            unguarded=run.copied(unguarded, "unguarded"),
            guarded=run.copied(samples, "guarded") if ours.has_guard else None,
            real=run.copied([post.text for post in run.judged], "held-out"),
        )
        voice = run.voice([*samples, *more], base_texts)
        fluency = run.fluency([*samples, *more])
    run.cache.prune()
    by_base = dict(zip(run.base_prompts, base_texts, strict=False))
    card = Scorecard(
        about=_model_facts(ours, run, base_name, report),
        bits=tuple(rows),
        voice=voice,
        fluency=fluency,
        memorised=memorised,
        samples=tuple(
            WritingSample(each.prompt, each.seed, text, by_base.get(each), each.title)
            for each, text in zip(run.prompts, samples, strict=False)
        ),
        plan=tuple(ours.provenance.get("compared") or ()),
        notes=tuple(_notes(run, ours.provenance.get("corpus") or "", len(samples) + len(more))),
    )
    return with_conclusions(card)


class _Scoring:
    """Measures the figures of one scorecard, or takes them from the cache."""

    _stage: Stage

    def __init__(
        self,
        corpus: Corpus,
        ours: ScoredModel,
        base: ScoredModel | None,
        folder: Path,
        config: ScoreConfig,
    ) -> None:
        self.corpus, self._ours, self._base, self._config = corpus, ours, base, config
        self.cache = MetricCache(folder)
        self._read_per_s = _READ_PER_TRAINED * ours.tokens_read_per_s
        limits = (config.held_out_at(self._read_per_s), config.max_posts)
        self.learned = list(corpus.train)
        self.judged = sample_posts(list(corpus.test), *limits)
        # Validation posts were only used to choose a model, so samples do not depend on them.
        unseen = sample_posts([*corpus.validation, *corpus.test], *limits)
        self._training, self._held_out, self._unseen = (
            [post.text for post in kind] for kind in (self.learned, self.judged, unseen)
        )
        self._training_key, self._key, self._unseen_key = (
            digest(*(post.key for post in kind)) for kind in (self.learned, self.judged, unseen)
        )
        seeds = [SamplePrompt("", 1 + n) for n in range(config.seeds + config.more_seeds)]
        new, self.more_prompts = seeds[: config.seeds], seeds[config.seeds :]
        continued = self._beginnings()[: config.prompts]
        self.prompts = [*new, *continued]
        self._portion_s = 0.0  # seconds that the last portion of samples took
        self._judged_bytes = sum(post.bytes for post in self.judged)
        self._work = config.work(self._judged_bytes, self._read_per_s, has_base=bool(base))
        most = config.base_samples
        self.base_prompts = [*new[:most], *continued[:most]]

    @contextmanager
    def stage(self, progress: Progress) -> Iterator[None]:
        """Report the progress of the whole scoring, to estimate the time left."""
        self._progress = progress
        with progress.stage("Scoring", self._work) as self._stage:
            self._stage.limit_s = self._config.seconds - self._spent_s
            yield

    def bits_per_byte(self, model: ScoredModel) -> Score | None:
        """Return the bits per byte of the held-out posts; None without posts."""
        if not self.judged:
            return None
        ids = [post.id for post in self.judged]
        return self._measured(
            "bits",
            f"Reading your held-out posts: {model.name}",
            Score,
            [model.weights_key, self._key],
            lambda: model.score(self._held_out, ids),
            work=_held_out_work(self._judged_bytes),
        )

    def samples(
        self,
        model: ScoredModel,
        name: str,
        prompts: Sequence[SamplePrompt],
        *,
        guarded: bool = True,
        least: int = 1,
    ) -> tuple[str, ...]:
        """Return texts by a model, with or without its copy guard; fewer if the time is up.

        It writes at least `least` portions.
        """
        most, doing = self._config.max_tokens, f"Writing samples: {model.name}"
        texts: list[str] = []
        for start in range(0, len(prompts), _PORTION):
            if start >= least * _PORTION and not self._fits(self._portion_s):
                self._stage.advance((len(prompts) - start) * most * _TOKEN_BYTES)
                break
            portion, before = prompts[start : start + _PORTION], self._spent_s
            texts += self._measured(
                f"written-{name}",
                doing if guarded else f"{doing}, without the copy guard",
                _Texts,
                [
                    model.key if guarded else model.weights_key,
                    repr((portion, most, DEFAULT_SAMPLING)),
                ],
                partial(self._write, model, portion, guarded),
                work=len(portion) * most * _TOKEN_BYTES,
            ).texts
            self._portion_s = self._spent_s - before
        return tuple(texts)

    def _write(
        self, model: ScoredModel, prompts: Sequence[SamplePrompt], guarded: bool
    ) -> "_Texts":
        return _Texts(model.write(prompts, self._config.max_tokens, guarded=guarded))

    @property
    def _spent_s(self) -> float:
        return sum(self.cache.seconds.values())

    def _fits(self, seconds: float) -> bool:
        """Return whether there is time for a measurement."""
        return self._spent_s + seconds <= self._config.seconds

    def extraction(self) -> Extraction:
        """Return the share of training passages that the model has memorised."""
        passages = self._config.passages_at(self._read_per_s)
        return self._measured(
            "extraction",
            "Testing what it knows by heart",
            Extraction,
            [self._ours.weights_key, self._training_key, self._key, str(passages)],
            lambda: self._ours.extraction(self._training, self._held_out, passages),
            work=passages * _PASSAGE_BYTES,
        )

    def copied(self, texts: Sequence[str], name: str) -> CopiedPassage:
        """Return the longest passage of the texts that occurs in a training post."""

        def measure() -> CopiedPassage:
            passage, words, number = longest_copied(texts, self._training)
            if not passage:
                return CopiedPassage("", 0)
            post = self.learned[number]
            return CopiedPassage(passage, words, post.title, post.day, post.url)

        posts = (f"{post.key} {post.day} {post.url}" for post in self.learned)
        return self._measured(
            f"copied-{name}",
            "Looking for the samples in your posts",
            CopiedPassage,
            [digest(*texts), digest(*posts)],
            measure,
        )

    def voice(self, samples: Sequence[str], by_base: Sequence[str]) -> Voice:
        """Compare the samples' style with the author's, the base's and other authors'."""
        return self._measured(
            "voice",
            "Comparing the samples' voice with yours",
            Voice,
            [digest(*samples), digest(*by_base), self._training_key, self._unseen_key],
            lambda: voice(
                self._training,
                self._unseen,
                samples,
                by_base,
                ReferenceAuthors.of(self._training),
            ),
        )

    def fluency(self, samples: Sequence[str]) -> Fluency:
        """Compare the faults in the samples' language with those of held-out posts."""
        return self._measured(
            "fluency",
            "Checking the samples' language",
            Fluency,
            [digest(*samples), self._training_key, self._unseen_key],
            lambda: fluency(samples, self._unseen, self._training, Lexicon.load()),
        )

    def _beginnings(self) -> list[SamplePrompt]:
        """Return prompts with the beginnings of held-out posts, in reproducible random order."""
        prompts = []
        for post in sorted(self.judged, key=lambda post: post.key):
            head, body = post.head_and_body
            words = list(_WORD.finditer(body))
            if len(words) >= _MIN_BODY:
                beginning = body[: words[self._config.prompt_words - 1].end()]
                prompts.append(SamplePrompt(head + beginning, 1, post.title))
        return prompts

    def _measured(
        self,
        name: str,
        doing: str,
        kind: type[T],
        depends_on: Sequence[str],
        measure: Callable[[], T],
        work: int = 0,
    ) -> T:
        """Return a figure, measured or cached, and count its work as done."""

        def with_progress() -> T:
            with self._progress.stage(doing):
                return measure()

        figure = self.cache.get_or_measure(name, kind, depends_on, with_progress)
        self._stage.advance(work)
        return figure


@dataclass(frozen=True)
class _Texts:
    texts: tuple[str, ...]


def _bits_row(name: str, how: str, score: Score, ours: Score | None = None) -> BitsRow:
    interval = score.interval()
    gain = ours.advantage(score) if ours else None
    return BitsRow(
        name=name,
        how=how,
        bits=score.bits_per_byte,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        gain=score.bits_per_byte - ours.bits_per_byte if ours else None,
        gain_low=gain.low if gain else None,
        gain_high=gain.high if gain else None,
        is_ours=ours is None,
    )


def _model_facts(ours: ScoredModel, run: _Scoring, base: str, report: Report | None) -> ModelFacts:
    corpus, folder = run.corpus, ours.folder.resolve().parent.name.removesuffix(".ownwords")
    # Use the report's word counts, so that all pages show the same figure.
    counted = {post.id: post.training_words for post in report.posts} if report else {}
    return ModelFacts(
        name=report.name if report else folder,
        model=str(ours.folder),
        base=base,
        parameters=ours.parameters,
        training_posts=len(corpus.train),
        training_words=sum(counted.get(post.id, post.words) for post in run.learned),
        training_bytes=corpus.train.bytes,
        validation_posts=len(corpus.validation),
        test_posts=len(corpus.test),
        judged_posts=len(run.judged),
        judged_bytes=sum(post.bytes for post in run.judged),
        version=__version__,
        made_on=datetime.now(UTC).date().isoformat(),
        epochs=ours.epochs,
    )


def _notes(run: _Scoring, trained_on: str, samples: int) -> list[str]:
    """Return notes on the limits of the figures."""
    notes = []
    if trained_on and run.corpus.key not in ("", trained_on):
        notes.append(
            "Your blog was read again after this model was trained, so it may have learned from"
            " posts that are held out now. Train it again to be sure."
        )
    posts, judged = len(run.corpus.test), run.judged
    judged_bytes = sum(post.bytes for post in judged)
    if not posts:
        notes.append("No post was held out to measure how well it predicts new ones.")
    elif judged_bytes < run.corpus.test.bytes:
        notes.append(
            f"{count(len(judged))} of {count(posts, 'held-out post')} were scored, chosen at"
            f" random and, on a slow machine, shortened: {size(judged_bytes)} in all."
        )
    wanted = len(run.prompts) + len(run.more_prompts)
    if samples < wanted:
        notes.append(
            f"{count(samples)} of {count(wanted, 'sample')} were written, to keep scoring in"
            " proportion to the minutes of training. `ownwords score` writes all and scores more"
            " posts."
        )
    return notes


# --- the cache ------------------------------------------------------------------------------------

# Increment when the way a figure is measured changes.
_VERSION = "9"
_MAX_FILES = 200  # about ten scorings


class MetricCache:
    """A folder with one file per figure, under a key of everything that it depends on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}  # time each figure took when it was measured

    def get_or_measure(
        self, name: str, kind: type[T], depends_on: Iterable[str], measure: Callable[[], T]
    ) -> T:
        """Return the cached figure, or measure and cache it.

        `kind` is its dataclass. Figures in damaged files, or of another version of ownwords, which
        may measure differently, are measured again.
        """
        key = digest(__version__, _VERSION, name, *depends_on)
        path = self.folder / f"{name}-{key[:16]}.json"
        try:
            entry = json.loads(path.read_bytes())
            figure = decode(kind, entry["figures"], complete=True)
            self.seconds[path.stem] = float(entry["seconds"])
            with suppress(OSError):  # a read-only folder
                os.utime(path)
        except (OSError, ValueError, LookupError, TypeError, RecursionError, ConfigError):
            began = time.perf_counter()
            figure = measure()
            seconds = self.seconds[path.stem] = round(time.perf_counter() - began, 3)
            entry = {"seconds": seconds, "figures": encode(figure)}
            with translate_os_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(entry, ensure_ascii=False) + "\n")
        return figure

    def prune(self) -> None:
        """Delete all but the files used last."""
        with suppress(OSError):  # a read-only folder, or a file that is already deleted
            files = ((path.stat().st_mtime, path) for path in self.folder.glob("*.json"))
            for _, path in sorted(files, reverse=True)[_MAX_FILES:]:
                path.unlink(missing_ok=True)
