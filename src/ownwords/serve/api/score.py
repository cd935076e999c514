"""The Score page: the scorecard as JSON, with the texts and figures of scorecard.html."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute

from ownwords.archive.report import formatting as fmt
from ownwords.core.workspace import path_text
from ownwords.evaluation import wording
from ownwords.evaluation.card import files, panels
from ownwords.evaluation.card.gauges import Panel
from ownwords.evaluation.scorecard import CopiedPassage, Dominant, Scorecard, Topic, WritingSample
from ownwords.serve.api_route import ApiRoute
from ownwords.serve.app_state import AppState


def routes(state: AppState) -> list[BaseRoute]:
    """The route of the scorecard."""
    folder = state.workspace.root

    async def score(_: Request) -> JSONResponse:
        """Show the scorecard of the current model."""
        return JSONResponse(await state.run(lambda: _read(folder, bool(state.own_model))))

    return [ApiRoute("GET", "/api/score", score)]


def _read(folder: Path, has_model: bool) -> dict[str, Any]:
    card = files.read(folder)
    if card is None:
        # Written by another version of ownwords, or damaged: scoring again fixes both.
        is_there = (folder / files.DATA).exists()
        return {"card": None, "has_model": has_model, "unreadable": is_there}
    # The card holds the path at which it was measured, which a copied workspace has not.
    here = {**scorecard_json(card), "model": path_text((folder / "model").absolute())}
    return {"card": _plain(here), "has_model": has_model, "unreadable": False}


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with all strings on one line, without control characters that reorder text."""
    if isinstance(value, str):
        return fmt.plain(value)
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    return value


def scorecard_json(card: Scorecard) -> dict[str, Any]:
    """Convert a scorecard to JSON, with its texts."""
    verdict, about = card.verdict, card.about
    return {
        "name": wording.name(card),
        "sentence": verdict.sentence,
        "because": list(verdict.because),
        "is_bad": wording.is_bad(verdict),
        "headline": [
            {"figure": figure, "label": label, "note": note}
            for figure, label, note in wording.headline(card)
        ],
        "about": f"{wording.learned_from(about)} {wording.judged_on(about)}",
        "samples": {
            "how": wording.how_sampled(card),
            "rows": [_sample(sample) for sample in wording.in_turn(card.samples)],
        },
        "prediction": _part(card, "foresight", panels.foresight(card))
        | {
            "meaning": wording.what_bits_mean(card.ours) if card.ours else "",
            "how": wording.WHAT_BARS_MEAN if card.ours else "",
        },
        "voice": _part(card, "voice", panels.voice(card)) | {"how": wording.how_voice(card)},
        "fluency": _part(card, "fluency", panels.fluency(card))
        | {
            "how": wording.how_fluency(card),
            "examples": [{"what": what, "text": text} for what, text in panels.examples(card)],
        },
        "copying": _part(card, "copying", panels.copying(card))
        | {"runs": [_run(passage, how) for passage, how in panels.copied_passages(card)]},
        "dominant": _dominant(card.dominant) if card.dominant else None,
        "training": {
            "rows": wording.made_of(card),
            "plan": list(card.plan),
            "notes": list(card.notes),
        },
        "measured": (
            f"Measured by ownwords {fmt.plain(about.version, 30)} on {fmt.day(about.made_on)}."
        ),
    }


def _part(card: Scorecard, topic: Topic, charts: list[Panel]) -> dict[str, Any]:
    finding = next((x.sentence for x in card.verdicts if x.about == topic), "")
    return {
        "finding": finding,
        "panels": [asdict(panel) | {"top": panel.top} for panel in charts],
    }


def _sample(sample: WritingSample) -> dict[str, Any]:
    return {
        "beginning": wording.beginning(sample),
        "where": wording.where_from(sample),
        "tuned": wording.in_two(wording.paragraphs(sample.tuned)),
        "base": None if sample.base is None else wording.in_two(wording.paragraphs(sample.base)),
    }


def _run(run: CopiedPassage, how: str) -> dict[str, str]:
    if not run.text:
        return {"source": f"{how}: nothing.", "text": ""}
    words = fmt.count(run.words, "word")
    return {
        "source": f"{how}: {words} in",
        "title": fmt.title_of(run.title) if run.title else "one of your posts",
        "url": run.url,
        "day": fmt.day(run.day) if run.day else "",
        "text": f"… {fmt.plain(run.text, 900)} …",
    }


def _dominant(dominant: Dominant) -> dict[str, Any]:
    return {
        "title": fmt.title_of(dominant.title),
        "url": dominant.url,
        "day": fmt.day(dominant.day) if dominant.day else "",
        "rows": [
            {
                "how": row.how.capitalize(),
                "words": fmt.count(row.words),
                "share": fmt.percent(row.share),
                "bits": wording.bits(row.bits) if row.bits is not None else "",
            }
            for row in dominant.rows
        ],
        "effect": wording.effect_of_decision(dominant),
    }
