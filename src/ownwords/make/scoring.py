"""The scorecard of a model that was made: measured, written beside it, found again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ownwords.base
from ownwords.archive.report import Report
from ownwords.archive.store import Archive
from ownwords.core.progress import Progress
from ownwords.core.version import __version__
from ownwords.evaluation.card import files
from ownwords.evaluation.posts import EvaluationPosts
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.scoring import ComparisonModels, ScoreConfig, score_model
from ownwords.make.paragraph import FirstParagraph
from ownwords.training.corpus import Corpus

PAGE = files.PAGE
VERSION = __version__  # another one may judge otherwise; what it measures it keeps by itself
REFERENCE = Path(ownwords.base.__file__).parent / "reference"

_LETTERS = 4.3  # of a token, about
_TOGETHER = 3.0  # so much quicker texts are written several at once
_BESIDES = 1.4  # of the time that goes for writing: with reading and the rest (docs/log.md)
_LEAST_S = 5.0


@dataclass(frozen=True)
class ScorecardKey:
    """Which scorecard was written: a key of each of its files."""

    data: str
    page: str


def scored(
    workspace: Path,
    model: Path,
    rivals: ComparisonModels,
    archive: Archive,
    texts: Corpus,
    report: Report,
    *,
    spent: Mapping[str, float],
    config: ScoreConfig,
    progress: Progress,
) -> Scorecard:
    """The scorecard, written into the workspace."""
    card = score_model(
        model,
        EvaluationPosts.of(texts, archive.documents()),
        rivals,
        REFERENCE if REFERENCE.is_dir() else None,
        workspace=workspace,
        report=report,
        spent=spent,
        config=config,
        progress=progress,
    )
    files.write(card, workspace)
    return card


def about_s(config: ScoreConfig, paragraph: FirstParagraph, took_s: float) -> float:
    """How long scoring will take, of a model that wrote a paragraph in so many seconds."""
    texts = 2 * (config.seeds + config.prompts) + 2 * config.beside_base
    writing_s = texts * config.tokens * _LETTERS / _TOGETHER * took_s / max(len(paragraph.text), 1)
    return _BESIDES * writing_s + _LEAST_S


def written(workspace: Path) -> ScorecardKey:
    """Which scorecard lies in the workspace."""
    return ScorecardKey(_key(workspace / files.DATA), _key(workspace / files.PAGE))


def standing(workspace: Path, wanted: ScorecardKey) -> Scorecard | None:
    """The scorecard in the workspace, if it is the one that is wanted."""
    return files.read(workspace) if written(workspace) == wanted else None


def _key(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return ""
