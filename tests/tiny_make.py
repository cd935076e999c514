"""A blog, a base and a request so small that a model is made in a second or two."""

import lzma
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import families  # noqa: F401 - one thread is enough for so little
from ownwords.archive.corpus import TrainingText
from ownwords.evaluation import scoring
from ownwords.evaluation.scoring import ScoreConfig
from ownwords.make.stages import MakeRequest
from ownwords.training import recipes, throughput, token_dataset
from ownwords.training.recipes import TrainRequest, plan_pretraining

if TYPE_CHECKING:
    import pytest

SMALL = {
    "train.batch_size": 4,
    "train.steps": 16,
    "train.sequence_length": 32,
    "train.evaluations": 2,
    "train.precision": "float32",
}
SMALL_SCORING = ScoreConfig(
    max_posts=3,
    max_bytes=3000,
    passages=4,
    seeds=2,
    prompts=1,
    max_tokens=8,
    more_seeds=0,
)
_WHO = ("gardener", "miller", "teacher", "sailor", "baker")
_WHAT = ("the gutter", "the hat", "old letters", "a borrowed boat", "the ninth hour")


def skip_measurements(patch: "pytest.MonkeyPatch", folder: Path) -> None:
    """Skip the measurement of speeds and of the voice, and samples during training."""
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    patch.setattr(
        throughput, "measure_speeds", lambda device, *_, **__: throughput.assumed_speeds(device)
    )
    # These have tests of their own.
    patch.setattr(recipes, "_SAMPLE_BYTES", 8)
    patch.setattr(scoring, "Lexicon", SimpleNamespace(load=lambda: None))
    foreign = SimpleNamespace(vocabulary=SimpleNamespace(words=("ja", "nein")))
    patch.setattr(scoring, "ReferenceAuthors", SimpleNamespace(of=lambda _: foreign))


def write_blog(folder: Path, posts: int = 24) -> Path:
    """Posts that resemble each other, none a copy of another."""
    folder.mkdir(parents=True)
    for number in range(posts):
        write_post(folder, number)
    return folder


def write_post(folder: Path, number: int) -> None:
    """Write one post."""
    person, subject = _WHO[number % 5], _WHAT[number // 5 % 5]
    sentences = [
        f"In the year {1900 + 7 * number + k} the {person} thought {number * k} times of"
        f" {subject}, and"
        f" of the {_WHO[(number + k) % 5]} who owed him {k * k + number} eggs."
        for k in range(1, 9)
    ]
    head = (
        f"---\ntitle: The {person} and {subject} {number}\ndate:"
        f" 2020-01-{number % 28 + 1:02d}\n---\n"
    )
    (folder / f"{number:02d}.md").write_text(head + "\n" + "\n\n".join(sentences) + "\n", "utf-8")


def train_base(folder: Path) -> Path:
    """A model directory trained on other texts, with its replay text."""
    texts = [
        TrainingText(f"t{i}", f"The cat number {i} sat on the mat and sang. " * 8)
        for i in range(12)
    ]
    fixed = {**SMALL, "model.parameters": 40_000, "model.vocab_size": 0}
    request = TrainRequest(folder, 600, fixed, device="cpu")
    folder_of_model = plan_pretraining(texts, texts[:2], request).train().folder
    replayed = token_dataset.DIVIDER.join(text.text for text in texts)
    (folder_of_model / token_dataset.REPLAY).write_bytes(lzma.compress(replayed.encode("utf-8")))
    return folder_of_model


def make_request(folder: Path, **more: object) -> MakeRequest:
    """A request for the blog and the base in the folder."""
    settings: dict[str, object] = {
        "workspace": folder / "w",
        "minutes": 10.0,
        "base": str(folder / "base" / "model"),
        "fixed": SMALL,
        "scoring": SMALL_SCORING,
        "device": "cpu",
    }
    return MakeRequest([folder / "blog"], **(settings | more))  # type: ignore[arg-type]
