"""A model that `ownwords tune` has put where a making puts its own: the better one, which stays."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import decode
from ownwords.make.result import PlanValue, TrainingSummary
from ownwords.models.atomic_dir import readable_dir
from ownwords.models.directory import PROVENANCE
from ownwords.models.fingerprint import model_fingerprint
from ownwords.models.untrusted_files import read_json
from ownwords.training.forecast import Forecast
from ownwords.tune.verdict import percent

# What a search must have been made of, and how it notes that beside the model: the names under
# which a making depends on it.
_OF = ("base", "settings")


@dataclass(frozen=True)
class TunedModel:
    """The model of a search, as if it had been trained here."""

    trained: TrainingSummary
    seconds: float  # that its training took
    sentence: str  # what is said of it


def found(folder: Path, wanted: Mapping[str, str], posts: int) -> TunedModel | None:
    """The model in the folder, if a search has put it there that was made of what is wanted.

    `wanted` are the texts, the base and the settings, as a making depends on them.
    """
    try:
        said = read_json(readable_dir(folder) / PROVENANCE)
        search = said["tune"]
        if said["corpus"] != wanted["texts"]:
            return None
        if not isinstance(search, dict) or any(search[name] != wanted[name] for name in _OF):
            return None
        trained = _trained(said, search, model_fingerprint(folder), posts)
        seconds = float(cast("dict[str, Any]", said["outcome"])["seconds"])
        return TunedModel(trained, seconds, _sentence(search))
    except (OwnwordsError, OSError, LookupError, TypeError, ValueError):
        return None  # there is none, or it is of another version


def _trained(
    said: Mapping[str, Any], search: Mapping[str, Any], key: str, posts: int
) -> TrainingSummary:
    outcome, share = said["outcome"], said["share_of_tuned_weights"]
    expected = decode(Forecast, said["expected"], unknown="ignore")
    return TrainingSummary(
        key=key,
        run=search["run"],
        parameters=said["recipe"]["model"]["parameters"],
        steps=outcome["steps"],
        tokens=outcome["tokens"],
        epochs=round(outcome["tokens"] / max(expected.tokens, 1) * expected.epochs, 2),
        stopped=outcome["stopped"],
        bits_per_byte=outcome["validation_bits_per_byte"],
        before=outcome["validation_bits_per_byte_before"],
        share=1.0 if share is None else share,
        plan=tuple(
            PlanValue(one["key"], one["value"], one["reason"], one["source"])
            for one in said["plan"]
        ),
        expected=expected.sentences(),
        judged=tuple(said["compared"]),
        posts=posts,
    )


def _sentence(search: Mapping[str, Any]) -> str:
    what = f"of {search['trials']} choices of settings the plan's own was kept"
    if search["verdict"] == "better":
        what = (
            f"trial {search['trial']} has {percent(search['gain'])} fewer bits a byte than the plan"
        )
    elif search["verdict"] == "instead":
        what = f"trial {search['trial']} is the best of {search['trials']}"
    return (
        f"The model that is here was found by `ownwords tune`: {what}. It stays; other --minutes"
        " train a new one."
    )
