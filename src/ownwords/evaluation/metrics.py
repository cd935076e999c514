"""Measures and caches every figure of a scorecard under a key of its inputs.

PyTorch is imported only when something has to be measured.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from ownwords.archive.corpus import Corpus, TrainingText
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, Stage
from ownwords.evaluation import lexicon, reference_authors
from ownwords.evaluation.candidate import Candidate
from ownwords.evaluation.fluency import Fluency, fluency
from ownwords.evaluation.lexicon import Lexicon
from ownwords.evaluation.measurements import (
    CopyMeasurements,
    Extraction,
    PromptSet,
    SampledTexts,
    SamplePrompt,
)
from ownwords.evaluation.metric_cache import MetricCache
from ownwords.evaluation.reference_authors import ReferenceAuthors
from ownwords.evaluation.scores import Score
from ownwords.evaluation.voice import Voice, voice
from ownwords.inference.text_generation import DEFAULT_SAMPLING

_WORD = re.compile(r"\S+")
_OTHER_SHARE = 0.4  # of the time for writing samples (docs/log.md)
_LEAST_BODY = 40  # words of a held-out post whose beginning is a prompt
_NAMES = {
    "ours": "your model",
    "base": "its base",
    "scratch": "the model trained from scratch",
}

T = TypeVar("T")


@dataclass(frozen=True)
class ScoreConfig:
    """Sample sizes; larger ones give narrower intervals and take longer."""

    # Limits of the held-out posts to score, which are chosen at random if there are more.
    max_posts: int = 40
    max_bytes: int = 150_000
    passages: int = 128  # of each kind, tested for memorisation
    # Samples: new texts with the first seeds, and texts that continue the beginning of a post.
    seeds: int = 12
    prompts: int = 8
    prompt_words: int = 8
    max_tokens: int = 400  # about 300 words, enough to measure style
    base_samples: int = 4  # of each kind, also written by the base
    # Further new texts for voice and fluency, which are not shown. A fixed number: an interval is
    # too narrow if samples are drawn until it decides.
    more_seeds: int = 20

    def with_samples(self, times: int) -> "ScoreConfig":
        """The configuration with so many times the samples."""
        return replace(
            self,
            seeds=times * self.seeds,
            prompts=times * self.prompts,
            more_seeds=times * self.more_seeds,
        )

    def sampled_tokens(self, *, has_base: bool) -> int:
        """Tokens of all samples at most, which takes most of the time of a scoring.

        A model of ours has a copy guard, so that it writes its samples with and without it.
        """
        texts = 2 * (self.seeds + self.prompts) + self.more_seeds
        return (texts + (2 * self.base_samples if has_base else 0)) * self.max_tokens


class MetricSuite:
    """Measures the figures of one scorecard, or takes them from the cache."""

    def __init__(
        self,
        corpus: Corpus,
        reference: Path | None,
        cache: MetricCache,
        config: ScoreConfig,
        progress: Progress,
    ) -> None:
        self._cache, self._config, self._progress = cache, config, progress
        self._reference = reference
        self._figure_units = 0
        self._training = [post.text for post in corpus.train]
        self._training_ids = [post.id for post in corpus.train]
        self.judged_posts = sample_posts(list(corpus.test), config.max_bytes, config.max_posts)
        self._held_out = [post.text for post in self.judged_posts]
        # Posts that only choosing the model has seen: its own text does not depend on them.
        held_out = [*corpus.validation, *corpus.test]
        unseen = sample_posts(held_out, config.max_bytes, config.max_posts)
        self._unseen = [post.text for post in unseen]
        self._held_out_ids = [post.id for post in self.judged_posts]
        self._key, self._training_key = posts_key(self.judged_posts), posts_key(corpus.train)
        self._unseen_key = posts_key(unseen)
        self._stage = Stage(Progress(), "", None, "")

    @contextmanager
    def stage(self, ours: Candidate, rivals: Sequence[Candidate | None]) -> Iterator[None]:
        """Report the progress of the whole scoring, for an estimate of the time left.

        Writing samples takes most of the time and is counted in tokens; every other figure gets an
        equal share of the rest. Cached figures and texts that end early reduce the total.
        """
        tokens = self._tokens(self.prompts) * (2 if ours.has_guard else 1)
        tokens += self._tokens(self.more_prompts)
        if any(rival and rival.role == "base" for rival in rivals):
            tokens += self._tokens(self.base_prompts)
        figures = 1 + sum(rival is not None for rival in rivals)  # bits per byte of each
        figures += 5 if ours.has_guard else 4
        self._figure_units = max(1, round(_OTHER_SHARE * tokens / figures))
        with self._progress.stage("Scoring", tokens + figures * self._figure_units) as self._stage:
            yield

    @cached_property
    def prompts(self) -> PromptSet:
        """New texts, and texts that continue the beginnings of held-out posts."""
        config = self._config
        new = [SamplePrompt("", seed) for seed in range(1, config.seeds + 1)]
        return PromptSet((*new, *self._beginnings()[: config.prompts]), config.max_tokens)

    @cached_property
    def more_prompts(self) -> PromptSet:
        """Further new texts, for voice and fluency."""
        config = self._config
        seeds = range(config.seeds + 1, config.seeds + config.more_seeds + 1)
        return PromptSet(tuple(SamplePrompt("", seed) for seed in seeds), config.max_tokens)

    @cached_property
    def base_prompts(self) -> PromptSet:
        """The subset of `prompts` that the base model continues as well."""
        most, prompts = self._config.base_samples, self.prompts.prompts
        new = [sample for sample in prompts if not sample.prompt][:most]
        continued = [sample for sample in prompts if sample.prompt][:most]
        return replace(self.prompts, prompts=(*new, *continued))

    def bits_per_byte(self, candidate: Candidate | None) -> Score | None:
        """Bits per byte of the held-out posts; None without a model or posts."""
        if candidate is None or not self.judged_posts:
            return None
        return self._measured(
            f"bits-{candidate.role}",
            f"Reading your held-out posts: {_NAMES[candidate.role]}",
            Score,
            [candidate.weights_key, self._key],
            lambda: candidate.model.score(self._held_out, self._held_out_ids),
        )

    def samples(
        self, candidate: Candidate, prompts: PromptSet, *, guarded: bool = True
    ) -> SampledTexts:
        """Texts by a model, with or without its copy guard."""
        name = f"written-{candidate.role}" + ("" if guarded else "-unguarded")
        name += "-more" if prompts is self.more_prompts else ""
        doing = f"Writing samples: {_NAMES[candidate.role]}"
        key = candidate.key if guarded else candidate.weights_key
        return self._measured(
            name,
            doing if guarded else f"{doing}, without the copy guard",
            SampledTexts,
            [key, repr(prompts), repr(DEFAULT_SAMPLING)],
            lambda: candidate.model.samples(
                prompts, guarded=guarded, on_tokens=self._stage.advance
            ),
            units=self._tokens(prompts),
        )

    def extraction(self, candidate: Candidate) -> Extraction:
        """Share of training passages the model knows by heart."""
        count = self._config.passages
        return self._measured(
            "by-heart",
            "Testing what it knows by heart",
            Extraction,
            [candidate.weights_key, self._training_key, self._key, str(count)],
            lambda: candidate.model.extraction(self._training, self._held_out, count),
        )

    def copies(self, samples: SampledTexts, how: str) -> CopyMeasurements:
        """Passages and n-grams that the samples copy from training posts."""

        def measure() -> CopyMeasurements:
            from ownwords.evaluation.model_metrics import copies  # noqa: PLC0415 - torch takes seconds

            return copies(samples.texts, self._held_out, self._training, self._training_ids)

        return self._measured(
            f"copies-{how}",
            "Looking for the samples in your posts",
            CopyMeasurements,
            (digest(*samples.texts), self._training_key, self._key),
            measure,
        )

    def voice(self, samples: SampledTexts) -> Voice:
        """How the samples' style compares with the author's and with other people's."""
        return self._measured(
            "voice",
            "Comparing the samples' voice with yours",
            Voice,
            self._texts_key(samples),
            lambda: voice(self._training, self._unseen, samples.texts, self._authors()),
        )

    def fluency(self, samples: SampledTexts) -> Fluency:
        """Faults in the language of the samples, compared with the held-out posts."""
        return self._measured(
            "fluency",
            "Checking the samples' language",
            Fluency,
            self._texts_key(samples),
            lambda: fluency(samples.texts, self._unseen, self._training, self._lexicon()),
        )

    def _authors(self) -> ReferenceAuthors | None:
        folder = self._reference_folder(reference_authors.FILE)
        return ReferenceAuthors.load(folder) if folder else None

    def _lexicon(self) -> Lexicon | None:
        folder = self._reference_folder(lexicon.FILE)
        return Lexicon.load(folder) if folder else None

    def _reference_folder(self, name: str) -> Path | None:
        """Return the reference folder if it has this file."""
        folder = self._reference
        return folder if folder and (folder / name).exists() else None

    def _texts_key(self, samples: SampledTexts) -> tuple[str, ...]:
        files = (reference_authors.FILE, lexicon.FILE)
        references = (_file_key(self._reference_folder(name), name) for name in files)
        return digest(*samples.texts), self._training_key, self._unseen_key, *references

    def _beginnings(self) -> list[SamplePrompt]:
        """Return prompts with the beginnings of held-out posts, in reproducible random order."""
        prompts = []
        for post in sorted(self.judged_posts, key=lambda post: post.key):
            head, body = post.head_and_body
            words = list(_WORD.finditer(body))
            if len(words) >= _LEAST_BODY:
                prompt = head + body[: words[self._config.prompt_words - 1].end()]
                prompts.append(SamplePrompt(prompt, 1, post.id))
        return prompts

    def _measured(
        self,
        name: str,
        doing: str,
        kind: type[T],
        depends_on: Sequence[str],
        measure: Callable[[], T],
        units: int | None = None,
    ) -> T:
        """Get a figure, showing progress while it is measured.

        `units` of progress are reported by `measure` itself.
        """
        before = self._stage.done

        def with_progress() -> T:
            with self._progress.stage(doing):
                figures = measure()
            if units is None:
                self._stage.advance(self._figure_units)
            return figures

        figures = self._cache.get_or_measure(name, kind, depends_on, with_progress)
        if self._stage.total is not None:
            expected = self._figure_units if units is None else units
            self._stage.total -= expected - (self._stage.done - before)
        return figures

    @staticmethod
    def _tokens(prompts: PromptSet) -> int:
        return len(prompts.prompts) * prompts.max_tokens


def _file_key(folder: Path | None, name: str) -> str:
    return digest((folder / name).read_bytes()) if folder else ""


def sample_posts(
    posts: Sequence[TrainingText], max_bytes: int, max_posts: int | None = None
) -> list[TrainingText]:
    """Choose a reproducible random sample of whole posts of up to `max_bytes` in total.

    The posts keep their order. If no post fits, the shortest one is chosen.
    """
    chosen: list[TrainingText] = []
    left = max_bytes
    for post in sorted(posts, key=lambda post: post.key):
        if post.bytes <= left and (max_posts is None or len(chosen) < max_posts):
            chosen.append(post)
            left -= post.bytes
    if not chosen and posts:
        chosen = [min(posts, key=lambda post: (post.bytes, post.key))]
    ids = {post.id for post in chosen}
    return [post for post in posts if post.id in ids]


def posts_key(posts: Iterable[TrainingText]) -> str:
    """Return a fingerprint of all the posts in their order."""
    return digest(*(post.key for post in posts))
