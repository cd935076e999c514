"""Finds the model that `ownwords tune` installed in a workspace; `ownwords make` keeps it."""

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
from ownwords.training.plan import Forecast
from ownwords.tune.verdict import percent

_SAME = ("base", "settings")  # inputs that the search and the request must share


@dataclass(frozen=True)
class TunedModel:
    """The winner of a search, summarised like a model that `ownwords make` has trained."""

    trained: TrainingSummary
    seconds: float  # duration of its training
    sentence: str  # for the user: where the model comes from


def find_tuned_model(folder: Path, wanted: Mapping[str, str], posts: int) -> TunedModel | None:
    """The model in the folder if a search with the same texts, base and settings made it."""
    try:
        provenance = read_json(readable_dir(folder) / PROVENANCE)
        search = provenance["tune"]
        if provenance["corpus"] != wanted["texts"]:
            return None
        if not isinstance(search, dict) or any(search[name] != wanted[name] for name in _SAME):
            return None
        trained = _summary(provenance, search, model_fingerprint(folder), posts)
        seconds = float(cast("dict[str, Any]", provenance["outcome"])["seconds"])
        return TunedModel(trained, seconds, _sentence(search))
    except (OwnwordsError, OSError, LookupError, TypeError, ValueError):
        return None  # no tuned model, or written by another version


def _summary(
    provenance: Mapping[str, Any], search: Mapping[str, Any], key: str, posts: int
) -> TrainingSummary:
    outcome, share = provenance["outcome"], provenance["share_of_tuned_weights"]
    expected = decode(Forecast, provenance["expected"], unknown="ignore")
    return TrainingSummary(
        key=key,
        run=search["run"],
        parameters=provenance["recipe"]["model"]["parameters"],
        steps=outcome["steps"],
        tokens=outcome["tokens"],
        epochs=round(outcome["tokens"] / max(expected.tokens, 1) * expected.epochs, 2),
        stopped=outcome["stopped"],
        bits_per_byte=outcome["validation_bits_per_byte"],
        before=outcome["validation_bits_per_byte_before"],
        share=1.0 if share is None else share,
        plan=tuple(
            PlanValue(n["key"], n["value"], n["reason"], n["source"]) for n in provenance["plan"]
        ),
        expected=expected.sentences(),
        judged=tuple(provenance["compared"]),
        posts=posts,
    )


def _sentence(search: Mapping[str, Any]) -> str:
    trial, trials = search["trial"], search["trials"]
    if search["verdict"] == "better":
        what = f"trial {trial} has {percent(search['gain'])} fewer bits per byte than the plan"
    elif search["verdict"] == "instead":
        what = f"trial {trial} is the best of {trials}"
    else:
        what = f"the plan's own settings, out of {trials} choices"
    return (
        f"`ownwords tune` found the model that is here: {what}. It is kept; other --minutes train a"
        " new one."
    )
