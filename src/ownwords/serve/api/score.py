"""The page's last part: the scorecard, in the words and figures of scorecard.html."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from ownwords.archive.report import formatting as say_of_posts
from ownwords.evaluation import wording as say
from ownwords.evaluation.card import files, panels
from ownwords.evaluation.card.gauges import Panel
from ownwords.evaluation.scorecard import CopiedPassage, Dominant, Scorecard, Topic, WritingSample
from ownwords.serve.app_state import AppState


def routes(state: AppState) -> list[BaseRoute]:
    """The one address: the scorecard, or what is to be done where there is none."""
    folder = state.workspace.root

    async def score(_: Request) -> JSONResponse:
        return JSONResponse(await state.run(lambda: _said(folder, bool(state.own_model))))

    return [Route("/api/score", score)]


def _said(folder: Path, has_model: bool) -> dict[str, Any]:
    card = files.read(folder)
    if card is None:
        # Of another version of ownwords, or damaged: measuring again mends either.
        is_there = (folder / files.DATA).exists()
        return {"card": None, "has_model": has_model, "unreadable": is_there}
    return {"card": _harmless(as_shown(card)), "has_model": has_model, "unreadable": False}


def _harmless(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Every text on one line and without what would reorder the words around it."""
    if isinstance(value, str):
        return say_of_posts.plain(value)
    if isinstance(value, dict):
        return {name: _harmless(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless(each) for each in value]
    return value


def as_shown(card: Scorecard) -> dict[str, Any]:
    """A scorecard, put into words."""
    verdict, about = card.verdict, card.about
    return {
        "name": say.name(card),
        "sentence": verdict.sentence,
        "because": list(verdict.because),
        "is_bad": say.is_bad(verdict),
        "headline": [
            {"figure": figure, "label": label, "note": note}
            for figure, label, note in say.headline(card)
        ],
        "about": f"{say.learned_from(about)} {say.judged_on(about)}",
        "samples": {
            "how": say.how_sampled(card),
            "rows": [_sample(one) for one in say.in_turn(card.samples)],
        },
        "foresight": _part(card, "foresight", panels.foresight(card))
        | {
            "meaning": say.what_bits_mean(card.ours) if card.ours else "",
            "how": say.WHAT_BARS_MEAN if card.ours else "",
        },
        "voice": _part(card, "voice", panels.voice(card)) | {"how": say.how_voice(card)},
        "fluency": _part(card, "fluency", panels.fluency(card))
        | {
            "how": say.how_fluency(card),
            "examples": [{"what": what, "text": text} for what, text in panels.examples(card)],
        },
        "copying": _part(card, "copying", panels.copying(card))
        | {"runs": [_run(passage, how) for passage, how in panels.copied_passages(card)]},
        "dominant": _dominant(card.dominant) if card.dominant else None,
        "making": {
            "rows": say.made_of(card),
            "plan": list(card.plan),
            "notes": list(card.notes),
        },
        "made": (
            f"Measured by ownwords {say_of_posts.plain(about.version, 30)}"
            f" on {say_of_posts.day(about.made_on)}."
        ),
        "model": say_of_posts.plain(about.model, 200),
    }


def _part(card: Scorecard, topic: Topic, drawn: list[Panel]) -> dict[str, Any]:
    finding = next((one.sentence for one in card.verdicts if one.about == topic), "")
    return {
        "finding": finding,
        "panels": [asdict(panel) | {"top": panel.top} for panel in drawn],
    }


def _sample(one: WritingSample) -> dict[str, Any]:
    return {
        "beginning": say.beginning(one),
        "where": say.where_from(one),
        "tuned": say.in_two(say.paragraphs(one.tuned)),
        "base": None if one.base is None else say.in_two(say.paragraphs(one.base)),
    }


def _run(run: CopiedPassage, how: str) -> dict[str, str]:
    if not run.text:
        return {"said": f"{how}: nothing.", "text": ""}
    words = say_of_posts.count(run.words, "word")
    return {
        "said": f"{how}: {words} in",
        "title": say_of_posts.title_of(run.title) if run.title else "one of your posts",
        "url": run.url,
        "day": say_of_posts.day(run.day) if run.day else "",
        "text": f"… {say_of_posts.plain(run.text, 900)} …",
    }


def _dominant(one: Dominant) -> dict[str, Any]:
    return {
        "title": say_of_posts.title_of(one.title),
        "url": one.url,
        "day": say_of_posts.day(one.day) if one.day else "",
        "rows": [
            {
                "how": row.how.capitalize(),
                "words": say_of_posts.count(row.words),
                "share": say_of_posts.percent(row.share),
                "bits": say.bits(row.bits) if row.bits is not None else "",
            }
            for row in one.rows
        ],
        "said": say.effect_of_decision(one),
    }
