"""Measures, writes and reads the scorecard of a workspace's model."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ownwords.archive.corpus import Corpus
from ownwords.archive.report import Report
from ownwords.base.trimming import REFERENCE
from ownwords.core.progress import Progress
from ownwords.core.version import __version__
from ownwords.evaluation import scorecard_files as files
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.scoring import ComparisonModels, ScoreConfig, score_model

PAGE = files.PAGE
VERSION = __version__  # part of the cache key: another version may score differently


@dataclass(frozen=True)
class ScorecardKey:
    """The digests of the scorecard's two files, to detect changes."""

    data: str
    page: str


def write_scorecard(
    workspace: Path,
    model: Path,
    rivals: ComparisonModels,
    texts: Corpus,
    report: Report,
    *,
    spent: Mapping[str, float],
    config: ScoreConfig,
    progress: Progress,
    device: str = "auto",
) -> Scorecard:
    """Measure the model, write the scorecard into the workspace, and return it."""
    card = score_model(
        model,
        texts,
        rivals,
        REFERENCE if REFERENCE.is_dir() else None,
        workspace=workspace,
        report=report,
        spent=spent,
        config=config,
        progress=progress,
        device=device,
    )
    files.write(card, workspace)
    return card


def scorecard_key(workspace: Path) -> ScorecardKey:
    """Compute the key of the scorecard in the workspace."""
    return ScorecardKey(_digest(workspace / files.DATA), _digest(workspace / files.PAGE))


def read_scorecard(workspace: Path, key: ScorecardKey) -> Scorecard | None:
    """Read the scorecard in the workspace; None if its key is another one."""
    return files.read(workspace) if scorecard_key(workspace) == key else None


def _digest(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return ""
