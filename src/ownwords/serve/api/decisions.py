"""The author's decisions about posts: writes `choices.toml` and previews their effect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ownwords.archive import report_view as summary
from ownwords.archive.choices import read_choices, write_choices
from ownwords.archive.features import decode_features
from ownwords.archive.near_duplicates import DuplicatePair
from ownwords.archive.report import PostSummary
from ownwords.archive.selection import (
    AuthorChoice,
    Decision,
    PostDecision,
    PostFacts,
    select_posts,
)
from ownwords.archive.settings import ProvenanceConfig
from ownwords.archive.store import Archive
from ownwords.archive.style_outliers import StyleOutlier
from ownwords.core.config import resolve
from ownwords.core.safe_toml import parse_toml
from ownwords.core.workspace import Workspace, write_atomically
from ownwords.serve.errors import ApiError
from ownwords.serve.report_cache import CachedReport
from ownwords.view import format as fmt

_SelectionKey = tuple[ProvenanceConfig, tuple[AuthorChoice, ...]]
_SECTION = "provenance"


@dataclass(frozen=True)
class DecisionRequest:
    """The body of a POST to /api/corpus/decide; "proposed" leaves the decision to ownwords."""

    id: str
    decision: Decision | Literal["proposed"]


@dataclass(frozen=True)
class _Settings:
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)


@dataclass(frozen=True)
class SelectionInputs:
    """The inputs to the selection of posts, from one look; small even for large texts."""

    posts: list[PostFacts]
    pairs: list[DuplicatePair]
    outliers: list[StyleOutlier]
    # Cache of the last selection by its key, since showing any post needs it.
    last: dict[_SelectionKey, dict[str, PostDecision]] = field(default_factory=dict)


def read_selection_inputs(archive: Archive, cached: CachedReport) -> SelectionInputs:
    """Read the inputs from the archive, which takes about 0.1 ms per text."""
    report = cached.report
    posts = []
    for id_, data in archive.features():
        if id_ in cached.positions:
            post = report.posts[cached.positions[id_]]
            day = date.fromisoformat(post.day) if post.day else None
            posts.append(PostFacts(id_, post.title, _without_comparisons(data), day))
    pairs = [DuplicatePair(x.id, x.other_id, x.exact, x.share) for x in report.duplicates]
    outliers = [StyleOutlier(x.id, x.distance, tuple(x.evidence)) for x in report.style_outliers]
    return SelectionInputs(posts, pairs, outliers)


def preview(
    workspace: Workspace, inputs: SelectionInputs, choices: Sequence[AuthorChoice]
) -> Mapping[str, PostDecision]:
    """Compute the decision about each post that the next look will make with these choices."""
    key = _read_config(workspace), tuple(choices)
    decisions = inputs.last.get(key)
    if decisions is None:
        decisions = select_posts(inputs.posts, inputs.pairs, inputs.outliers, *key)
        inputs.last.clear()
        inputs.last[key] = decisions
    return decisions


def overview(workspace: Workspace, cached: CachedReport, inputs: SelectionInputs) -> dict[str, Any]:
    """The posts that need a decision, with their present state and that after the next look."""
    choices = read_choices(workspace.choices)
    chosen = {choice.id for choice in choices}
    after = preview(workspace, inputs, choices)

    def is_listed(post: PostSummary) -> bool:
        stands_out = post.flags or post.decision != "keep" or post.id in chosen
        return bool(stands_out) or _is_pending(post, after[post.id])

    posts = [post for post in cached.report.posts if post.id in after and is_listed(post)]
    rows = [_row(cached, post.id, after, chosen) for post in posts]
    return {
        "rows": rows,
        "pending": sum(row["pending"] for row in rows),
        "words_now": cached.report.totals.training_words,
        "words_then": sum(decision.training_words for decision in after.values()),
    }


def decision_about(
    workspace: Workspace, cached: CachedReport, inputs: SelectionInputs, id_: str
) -> dict[str, Any]:
    """The present state of one post, and its state after the next look."""
    choices = read_choices(workspace.choices)
    after = preview(workspace, inputs, choices)
    if id_ not in after:
        raise no_such_post(id_)
    return _row(cached, id_, after, {choice.id for choice in choices})


def decide(
    workspace: Workspace,
    archive: Archive,
    cached: CachedReport,
    inputs: SelectionInputs,
    request: DecisionRequest,
) -> dict[str, Any]:
    """Add a decision to `choices.toml`, keeping the others; return its effect."""
    id_ = request.id
    if id_ not in cached.positions:
        raise no_such_post(id_)
    # A running look rewrites the file, too, and keeps the archive locked meanwhile.
    with archive.transaction():
        choices = [choice for choice in read_choices(workspace.choices) if choice.id != id_]
        if request.decision != "proposed":
            choices.append(AuthorChoice(id_, request.decision))
        after = preview(workspace, inputs, choices)
        if id_ not in after:
            raise no_such_post(id_)
        posts = [
            replace(
                post,
                decision=after[post.id].decision,
                reason=after[post.id].reason,
                training_words=after[post.id].training_words,
            )
            for post in cached.report.posts
            if post.id in after
        ]
        write_atomically(workspace.choices, write_choices(posts, choices))
    changed = _row(cached, id_, after, {choice.id for choice in choices})
    return overview(workspace, cached, inputs) | {"changed": changed}


def no_such_post(id_: str) -> ApiError:
    """Create the error for a post that is not in the archive."""
    return ApiError(
        HTTPStatus.NOT_FOUND,
        f"there is no post {fmt.plain(id_, 80)!r} in the archive",
        hint="it may have been deleted or renamed: search for its title",
    )


def _row(
    cached: CachedReport, id_: str, after: Mapping[str, PostDecision], chosen: set[str]
) -> dict[str, Any]:
    post, decision = cached.report.posts[cached.positions[id_]], after[id_]
    later = replace(
        post,
        decision=decision.decision,
        reason=decision.reason,
        training_words=decision.training_words,
    )
    return {
        "id": post.id,
        "title": fmt.title_of(post.title),
        "day": post.day,
        "words": post.words,
        "own_words": post.own_words,
        "share": post.share,
        "flagged": summary.flags(post),
        "now": _decision(post),
        "then": _decision(later),
        "by": "you" if id_ in chosen else "default",
        "pending": _is_pending(post, decision),
    }


def _is_pending(post: PostSummary, decision: PostDecision) -> bool:
    after = decision.decision, decision.training_words
    return (post.decision, post.training_words) != after


def _decision(post: PostSummary) -> dict[str, Any]:
    return {
        "decision": post.decision,
        "word": summary.decision(post),
        "reason": fmt.sentence(post.reason) if post.reason else "",
        "training_words": post.training_words,
    }


def _without_comparisons(data: bytes) -> Any:  # noqa: ANN401 - Features
    """The features without the large ones that only the comparison of posts needs."""
    features = decode_features(data)
    empty = np.empty(0)
    return replace(
        features,
        sketch=empty.astype(np.uint64),
        vocabulary=empty.astype(np.uint32),
        counts=empty.astype(np.uint16),
        style=empty.astype(np.float32),
    )


def _read_config(workspace: Workspace) -> ProvenanceConfig:
    """Read the settings of the next look from the settings files."""
    names = {field.name for field in fields(ProvenanceConfig)}
    values: dict[str, object] = {}
    for path in dict.fromkeys(
        (Path(workspace.settings.name).absolute(), workspace.settings.absolute())
    ):
        if not path.exists():
            continue
        try:
            table = parse_toml(path.read_bytes().decode("utf-8-sig")).get(_SECTION, {})
        except ValueError:
            continue  # `look` reports the invalid file
        if isinstance(table, dict):
            values |= {f"{_SECTION}.{name}": x for name, x in table.items() if name in names}
    return resolve(_Settings, flags=values).settings.provenance
