"""What the author decides about a text: written into `choices.toml`, and what will come of it."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from ownwords.archive.choices import read_choices, write_choices
from ownwords.archive.features import decode_features
from ownwords.archive.near_duplicates import DuplicatePair
from ownwords.archive.report import PostSummary as Line
from ownwords.archive.report import formatting as say
from ownwords.archive.report import summary
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
from ownwords.core.workspace import Workspace, write_atomically
from ownwords.serve.api.report_cache import CachedReport
from ownwords.serve.errors import ApiError

_Given = tuple[
    ProvenanceConfig, tuple[AuthorChoice, ...]
]  # what verdicts depend on beside the posts

_SECTION = "provenance"
_AS_PROPOSED = "proposed"  # instead of a decision: what ownwords would do by itself


@dataclass(frozen=True)
class _Settings:
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)


@dataclass(frozen=True)
class Weighed:
    """What verdicts rest on, of one look: small, whatever the size of the texts."""

    posts: list[PostFacts]
    pairs: list[DuplicatePair]
    outliers: list[StyleOutlier]
    # The last verdicts, with what they were given by: every text that is shown asks for them.
    given: dict[_Given, dict[str, PostDecision]] = field(default_factory=dict)


def weighed(archive: Archive, known: CachedReport) -> Weighed:
    """Read it from the archive: a millisecond for some ten texts, so it is worth keeping."""
    report = known.report
    posts = []
    for id_, data in archive.features():
        if id_ in known.places:
            post = report.posts[known.places[id_]]
            day = date.fromisoformat(post.day) if post.day else None
            posts.append(PostFacts(id_, post.title, _light(data), day))
    pairs = [DuplicatePair(one.id, one.other_id, one.exact, one.share) for one in report.duplicates]
    far = [StyleOutlier(one.id, one.distance, tuple(one.evidence)) for one in report.style_outliers]
    return Weighed(posts, pairs, far)


def foreseen(
    place: Workspace, weighed: Weighed, choices: Sequence[AuthorChoice]
) -> Mapping[str, PostDecision]:
    """What becomes of every text at the next look, with these choices."""
    given = _config(place), tuple(choices)
    found = weighed.given.get(given)
    if found is None:
        found = select_posts(weighed.posts, weighed.pairs, weighed.outliers, *given)
        weighed.given.clear()
        weighed.given[given] = found
    return found


def overview(place: Workspace, known: CachedReport, weighed: Weighed) -> dict[str, Any]:
    """The texts to decide about, as they are now and as they will be after the next look."""
    choices = read_choices(place.choices)
    by_author = {choice.id for choice in choices}
    then = foreseen(place, weighed, choices)
    rows = [
        _row(known, post.id, then, by_author)
        for post in known.report.posts
        if post.id in then
        and (
            post.flags
            or post.decision != "keep"
            or post.id in by_author
            or _is_pending(post, then[post.id])
        )
    ]
    return {
        "rows": rows,
        "pending": sum(row["pending"] for row in rows),
        "words_now": known.report.totals.training_words,
        "words_then": sum(one.training_words for one in then.values()),
        "command": say.plain(known.report.command),
    }


def of_post(place: Workspace, known: CachedReport, weighed: Weighed, id_: str) -> dict[str, Any]:
    """The same of one text."""
    choices = read_choices(place.choices)
    then = foreseen(place, weighed, choices)
    if id_ not in then:
        raise gone(id_)
    return _row(known, id_, then, {choice.id for choice in choices})


def change(
    place: Workspace,
    archive: Archive,
    known: CachedReport,
    weighed: Weighed,
    id_: str,
    decision: str,
) -> dict[str, Any]:
    """Write a decision down, the author's other ones kept; what comes of it."""
    if id_ not in known.places:
        raise gone(id_)
    if decision != _AS_PROPOSED and decision not in get_args(Decision):
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            f"{say.plain(decision, 40)!r} is no decision",
            hint=f"one of {', '.join((*get_args(Decision), _AS_PROPOSED))}",
        )
    # A look writes the file anew when it ends; until then, what is written here would be lost.
    with archive.transaction():
        if archive.get_meta("written") != archive.get_meta("state"):
            raise ApiError(
                HTTPStatus.CONFLICT,
                "the archive is being read anew just now",
                hint="decide again in a moment; if it stays so, run `ownwords look` again",
            )
        choices = [one for one in read_choices(place.choices) if one.id != id_]
        if decision != _AS_PROPOSED:
            choices.append(AuthorChoice(id_, cast(Decision, decision)))
        then = foreseen(place, weighed, choices)
        if id_ not in then:
            raise gone(id_)
        posts = [
            replace(
                post,
                decision=then[post.id].decision,
                reason=then[post.id].reason,
                training_words=then[post.id].training_words,
            )
            for post in known.report.posts
            if post.id in then
        ]
        write_atomically(place.choices, write_choices(posts, choices))
    return overview(place, known, weighed) | {
        "changed": _row(known, id_, then, {choice.id for choice in choices})
    }


def gone(id_: str) -> ApiError:
    """What is said of a text that is not in the archive."""
    return ApiError(
        HTTPStatus.NOT_FOUND,
        f"there is no text {say.plain(id_, 80)!r} in the archive",
        hint="it may have been deleted or renamed since: look for it by its title",
    )


def _row(
    known: CachedReport, id_: str, then: Mapping[str, PostDecision], by_author: set[str]
) -> dict[str, Any]:
    post, verdict = known.report.posts[known.places[id_]], then[id_]
    later = replace(post, decision=verdict.decision, reason=verdict.reason)
    return {
        "id": post.id,
        "title": say.title_of(post.title),
        "day": post.day,
        "words": post.words,
        "own_words": post.own_words,
        "share": post.share,
        "flagged": summary.flags(post),
        "now": _said(post.decision, summary.decision(post), post.reason, post.training_words),
        "then": _said(
            verdict.decision, summary.decision(later), verdict.reason, verdict.training_words
        ),
        "by": "you" if id_ in by_author else "default",
        "pending": _is_pending(post, verdict),
    }


def _is_pending(post: Line, verdict: PostDecision) -> bool:
    return (post.decision, post.training_words) != (verdict.decision, verdict.training_words)


def _said(decision: str, word: str, reason: str, words: int) -> dict[str, Any]:
    return {
        "decision": decision,
        "word": word,
        "reason": say.sentence(reason) if reason else "",
        "training_words": words,
    }


def _light(data: bytes) -> Any:  # noqa: ANN401 - Features, but for what only comparing needs
    features = decode_features(data)
    nothing = np.empty(0)
    return replace(
        features,
        sketch=nothing.astype(np.uint64),
        vocabulary=nothing.astype(np.uint32),
        counts=nothing.astype(np.uint16),
        style=nothing.astype(np.float32),
    )


def _config(place: Workspace) -> ProvenanceConfig:
    """The settings the next look will have, as far as files say it."""
    known = {one.name for one in fields(ProvenanceConfig)}
    given: dict[str, object] = {}
    for path in dict.fromkeys((Path(place.settings.name).absolute(), place.settings.absolute())):
        if not path.exists():
            continue
        try:
            table = tomllib.loads(path.read_bytes().decode("utf-8-sig")).get(_SECTION, {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue  # the verbs tell of it; here it is only foreseen what they will do
        if isinstance(table, dict):
            given |= {f"{_SECTION}.{name}": v for name, v in table.items() if name in known}
    return resolve(_Settings, flags=given).settings.provenance
