"""The scorecard of a model: measured, written into the workspace, found again."""

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
VERSION = __version__  # another version may judge otherwise
REFERENCE = Path(ownwords.base.__file__).parent / "reference"

_CHARACTERS_PER_TOKEN = 4.3
_BATCH_SPEEDUP = 3.0  # of several texts written at once
_OVERHEAD = 1.4  # of the time for writing: reading and the rest (docs/log.md)
_LEAST_S = 5.0


@dataclass(frozen=True)
class ScorecardKey:
    """Digests of the two files of a scorecard."""

    data: str
    page: str


def write_scorecard(
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
    """Measure the model, write the scorecard into the workspace, and return it."""
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


def forecast_s(config: ScoreConfig, paragraph: FirstParagraph, seconds: float) -> float:
    """About how long scoring takes, given the seconds that writing the paragraph took."""
    texts = 2 * (config.seeds + config.prompts) + 2 * config.base_samples
    tokens_s = seconds * _CHARACTERS_PER_TOKEN / max(len(paragraph.text), 1)
    return _OVERHEAD * texts * config.max_tokens * tokens_s / _BATCH_SPEEDUP + _LEAST_S


def scorecard_key(workspace: Path) -> ScorecardKey:
    """The key of the scorecard in the workspace."""
    return ScorecardKey(_digest(workspace / files.DATA), _digest(workspace / files.PAGE))


def read_scorecard(workspace: Path, key: ScorecardKey) -> Scorecard | None:
    """The scorecard in the workspace, if it has that key."""
    return files.read(workspace) if scorecard_key(workspace) == key else None


def _digest(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return ""
