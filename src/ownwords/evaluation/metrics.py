"""Each figure that a model is judged by: what it depends on, and where it is kept.

Torch is not imported before there is something to measure.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.evaluation import baselines as counting
from ownwords.evaluation import lexicon, reference_authors
from ownwords.evaluation.fluency import Fluency, fluency
from ownwords.evaluation.lexicon import Lexicon
from ownwords.evaluation.measurements import (
    Baselines,
    CopyMeasurements,
    ExtractionResult,
    PromptSet,
    SampledTexts,
    SamplePrompt,
)
from ownwords.evaluation.metric_cache import MetricCache
from ownwords.evaluation.posts import EvaluationPosts, keys, some
from ownwords.evaluation.reference_authors import ReferenceAuthors
from ownwords.evaluation.scores import Score
from ownwords.evaluation.voice import Voice, voice
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.models.atomic_dir import readable_dir
from ownwords.models.directory import COPY_GUARD, PROVENANCE
from ownwords.models.fingerprint import model_fingerprint
from ownwords.models.safetensors_header import read_header
from ownwords.models.untrusted_files import read_json

if TYPE_CHECKING:
    from ownwords.evaluation.model_metrics import ModelMetrics

_TUNED = re.compile(r"tuned from (.+?)(?: through a LoRA)?$")  # as `training.recipes` says it
_WORD = re.compile(r"\S+")
_BLOCK = 1 << 20  # bytes read at once
_LEAST_BODY = 40  # words of a held-out post that is written on from its first ones
_NAMES = {
    "ours": "your model",
    "base": "its base",
    "scratch": "the one from scratch",
    "undivided": "the one with the dominant post",
}

T = TypeVar("T")


@dataclass(frozen=True)
class ScoreConfig:
    """How much is measured; more narrows the intervals and takes longer."""

    # Held-out posts that are scored, drawn by lot where there are more.
    most_posts: int = 40
    most_bytes: int = 150_000
    # Of the training posts, what the compressors and counted models learn from.
    baseline_bytes: int = 600_000
    passages: int = 128  # of each kind, that are tried for being known by heart
    # Samples: so many from nothing, with the first seeds, and so many that begin as posts do.
    seeds: int = 12
    prompts: int = 8
    prompt_words: int = 8
    tokens: int = 400  # some 300 words: a passage that style can be measured on
    beside_base: int = 4  # of each kind, written by the base too
    # Of the steps a model takes on what it was scored on: the best of those tried on one author's
    # validation posts, 0.003 to 0.3 with 1 million parameters, 0.003 to 0.1 with 10.
    adapt_rate: float = 0.1


class Candidate:
    """A model directory and its part in the comparison."""

    def __init__(self, folder: Path, who: str) -> None:
        self.folder, self.who = folder, who

    @cached_property
    def key(self) -> str:
        """Changes with everything in the directory that decides what the model writes."""
        return model_fingerprint(self.folder)

    @cached_property
    def weights(self) -> str:
        """The same without its copy guard."""
        return model_fingerprint(self.folder, copy_guard=False)

    @cached_property
    def subject(self) -> "ModelMetrics":
        """The model itself, to be measured."""
        from ownwords.evaluation.model_metrics import ModelMetrics  # noqa: PLC0415 - torch takes seconds

        return ModelMetrics(self.folder)

    @cached_property
    def parameters(self) -> int:
        """As many numbers as its files hold."""
        stored = [
            tensor
            for path in sorted(self._there.glob("*.safetensors"))
            if path.name != COPY_GUARD
            for tensor in read_header(path).values()
        ]
        return sum(math.prod(tensor.shape) for tensor in stored)

    @cached_property
    def trained_s(self) -> float | None:
        """What its training took, where that was written down."""
        outcome = self._provenance.get("outcome")
        seconds = outcome.get("seconds") if isinstance(outcome, dict) else None
        return float(seconds) if isinstance(seconds, int | float) else None

    @cached_property
    def plan_and_outcome(self) -> tuple[str, ...]:
        """What was foretold of its training and what came of it, a sentence a figure."""
        said = self._provenance.get("compared")
        return tuple(map(str, said)) if isinstance(said, list) else ()

    @property
    def corpus(self) -> str:
        """A key of the archive that it was trained on, where that was written down."""
        said = self._provenance.get("corpus")
        return said if isinstance(said, str) else ""

    @property
    def base(self) -> str | None:
        """The name of what it was tuned from, where that was written down."""
        said = self._provenance.get("base")
        found = _TUNED.match(said) if isinstance(said, str) else None
        return found[1] if found else None

    @cached_property
    def _there(self) -> Path:
        return readable_dir(self.folder)

    @cached_property
    def _provenance(self) -> dict[str, object]:
        path = self._there / PROVENANCE
        return read_json(path) if path.exists() else {}


class MetricSuite:
    """The figures of one scoring."""

    def __init__(
        self,
        posts: EvaluationPosts,
        reference: Path | None,
        kept: MetricCache,
        config: ScoreConfig,
        progress: Progress,
    ) -> None:
        self._kept, self._config, self._progress = kept, config, progress
        self._reference = reference
        self.all = posts
        self.posts = some(posts.test, config.most_bytes, config.most_posts)
        self.counted_on = some(posts.train, config.baseline_bytes)
        self._texts = [post.text for post in self.posts]
        self._names = [post.id for post in self.posts]
        self._key, self._training_key = keys(self.posts), keys(posts.train)

    @cached_property
    def asked(self) -> PromptSet:
        """What is to be written: new texts, and texts that begin as held-out posts do."""
        config = self._config
        new = [SamplePrompt("", seed) for seed in range(1, config.seeds + 1)]
        return PromptSet((*new, *self._begun()[: config.prompts]), config.tokens)

    @cached_property
    def few(self) -> PromptSet:
        """Those of them that the base writes too."""
        most, asked = self._config.beside_base, self.asked.beginnings
        new = [one for one in asked if not one.prompt][:most]
        begun = [one for one in asked if one.prompt][:most]
        return replace(self.asked, beginnings=(*new, *begun))

    def bits_per_byte(self, one: Candidate | None) -> Score | None:
        """Bits a byte of the held-out posts; None where there is nothing to judge or by."""
        if one is None or not self.posts:
            return None
        return self._measured(
            f"bits-{one.who}",
            f"Reading your held-out posts: {_NAMES[one.who]}",
            Score,
            [one.weights, self._key],
            lambda: one.subject.score(self._texts, self._names),
        )

    def adapting(self, one: Candidate) -> Score | None:
        """The same of a model that goes on learning within each post."""
        if not self.posts:
            return None
        rate = self._config.adapt_rate
        return self._measured(
            "bits-adapting",
            "Reading them once more, and learning on the way",
            Score,
            [one.weights, self._key, str(rate)],
            lambda: one.subject.adapting(self._texts, self._names, rate),
        )

    def baselines(self) -> Baselines | None:
        """The same of compressors and counted models."""
        if not self.posts:
            return None
        # The longest post may alone be longer than what is to be read.
        learned = [post.text[: self._config.baseline_bytes] for post in self.counted_on]

        def measure() -> Baselines:
            found = counting.baselines(
                learned, self._texts, names=self._names, progress=self._progress
            )
            return Baselines(tuple(found))

        key = digest(*learned)
        return self._kept.part("baselines", Baselines, [key, self._key], measure)

    def written(self, one: Candidate, asked: PromptSet, *, guarded: bool = True) -> SampledTexts:
        """What a model writes, as users have it or without its copy guard."""
        name = f"written-{one.who}" + ("" if guarded else "-unguarded")
        doing = f"Writing samples: {_NAMES[one.who]}" + ("" if guarded else ", copy guard off")
        return self._measured(
            name,
            doing,
            SampledTexts,
            [one.key if guarded else one.weights, asked.key, repr(DEFAULT_SAMPLING)],
            lambda: one.subject.written(asked, guarded=guarded),
        )

    def extracted(self, one: Candidate) -> ExtractionResult:
        """How much of the training posts it has by heart."""
        learned = [post.text for post in self.all.train]
        count = self._config.passages
        return self._measured(
            "by-heart",
            "Trying what it has by heart",
            ExtractionResult,
            [one.weights, self._training_key, self._key, str(count)],
            lambda: one.subject.extracted(learned, self._texts, count),
        )

    def copies(self, written: SampledTexts, how: str) -> CopyMeasurements:
        """What of the samples stands in posts learned from."""

        def measure() -> CopyMeasurements:
            from ownwords.evaluation.model_metrics import copies  # noqa: PLC0415 - torch takes seconds

            ids = [post.id for post in self.all.train]
            learned = [post.text for post in self.all.train]
            return copies(written.texts, self._texts, learned, ids)

        return self._measured(
            f"copies-{how}",
            "Looking for the samples in your posts",
            CopyMeasurements,
            self._compared(written),
            measure,
        )

    def voice(self, written: SampledTexts) -> Voice:
        """How the samples' style compares with the author's own and with other people's."""
        learned = [post.text for post in self.all.train]
        folder = self._holding(reference_authors.FILE)
        return self._measured(
            "voice",
            "Comparing the samples' voice with yours",
            Voice,
            [*self._compared(written), _key_of(folder, reference_authors.FILE)],
            lambda: voice(
                learned,
                self._texts,
                written.texts,
                ReferenceAuthors.load(folder) if folder else None,
            ),
        )

    def fluency(self, written: SampledTexts) -> Fluency:
        """What of the samples is no language, beside the held-out posts."""
        learned = [post.text for post in self.all.train]
        folder = self._holding(lexicon.FILE)
        return self._measured(
            "fluency",
            "Looking for what is no language",
            Fluency,
            [*self._compared(written), _key_of(folder, lexicon.FILE)],
            lambda: fluency(
                written.texts, self._texts, learned, Lexicon.load(folder) if folder else None
            ),
        )

    def _holding(self, name: str) -> Path | None:
        """The folder of figures about real books, if it has this one."""
        folder = self._reference
        return folder if folder and (folder / name).exists() else None

    def _compared(self, written: SampledTexts) -> tuple[str, str, str]:
        return digest(*written.texts), self._training_key, self._key

    def _begun(self) -> list[SamplePrompt]:
        """Beginnings of held-out posts, drawn by lot."""
        found = []
        for post in sorted(self.posts, key=lambda one: one.key):
            head, body = post.beginning
            words = list(_WORD.finditer(body))
            if len(words) >= _LEAST_BODY:
                prompt = head + body[: words[self._config.prompt_words - 1].end()]
                found.append(SamplePrompt(prompt, 1, post.id))
        return found

    def _measured(
        self,
        name: str,
        doing: str,
        kind: type[T],
        depends_on: Sequence[str],
        measure: Callable[[], T],
    ) -> T:
        """A part, and a line for whoever waits for it."""

        def shown() -> T:
            with self._progress.stage(doing):
                return measure()

        return self._kept.part(name, kind, depends_on, shown)


def _key_of(folder: Path | None, name: str) -> str:
    """Of a file's content, where there is one."""
    return digest((folder / name).read_bytes()) if folder else ""
