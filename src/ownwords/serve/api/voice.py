"""The Voice page: how the author writes, the card for other models, decisions about marks."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from starlette.routing import BaseRoute

from ownwords.core.validation import Meta, encode
from ownwords.drafts.mark_choices import MarkChoices
from ownwords.drafts.voice_card import GROUPS, voice_card
from ownwords.evaluation.manner import Habit
from ownwords.serve.app_state import AppState
from ownwords.serve.json_api import ApiCall, json_route

_MARGIN = 1.04  # of a scale


@dataclass(frozen=True)
class VoiceRequest:
    """The body of a POST to /api/voice."""

    about: Annotated[str, Meta(max_length=2000)] = ""
    words: Annotated[int, Meta(ge=300, le=5000)] = 1200


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes of the page."""
    return [
        json_route(state, "POST", "/api/voice", voice),
        json_route(state, "GET", "/api/marks", marks),
        json_route(state, "POST", "/api/marks", decide),
    ]


@dataclass(frozen=True)
class MarksRequest:
    """The body of a POST to /api/marks: one decision.

    `kept` are the edits that were undone in a text: kind, before, after. `accept` and `decline`
    name a proposal in the same way; `remove` names a list of marks.toml and a value in it.
    """

    text: Annotated[str, Meta(max_length=100)] = ""
    kept: tuple[tuple[str, str, str], ...] | None = None
    accept: tuple[str, str, str] | None = None
    decline: tuple[str, str, str] | None = None
    remove: tuple[Literal["sentences", "silenced", "words", "rule", "marked"], str] | None = None


def marks(state: AppState, _: ApiCall) -> dict[str, Any]:
    """Return what the author decided about marks, and what is proposed."""
    return _decided(state.marks_file())


def decide(state: AppState, call: ApiCall) -> dict[str, Any]:
    """Write one decision to marks.toml; return all of them."""
    asked = call.body(MarksRequest)

    def update(choices: MarkChoices) -> MarkChoices:
        if asked.kept is not None:
            choices = choices.kept_forms(asked.text, asked.kept)
        if asked.accept:
            choices = choices.accept(*asked.accept)
        if asked.decline:
            choices = choices.decline(*asked.decline)
        return choices.remove(*asked.remove) if asked.remove else choices

    return _decided(state.marks_file.change(update))


def _decided(choices: MarkChoices) -> dict[str, Any]:
    found = encode(replace(choices, choice=(), declined=()))
    return {**found, "proposals": choices.proposals()}


def voice(state: AppState, call: ApiCall) -> dict[str, Any]:
    """Return the card as data, as text, and as SKILL.md."""
    asked = call.body(VoiceRequest)
    card = voice_card(state.archive(), asked.about, asked.words)
    own = card.portrait
    habits = [each for each in own.habits if each.own or any(each.others)]
    groups = {name: [_drawn(each) for each in habits if each.group == name] for name in GROUPS}
    return {
        "portrait": {**{name: getattr(own, name) for name in _SHOWN}, "groups": groups},
        "headings": GROUPS,
        "passages": card.passages,
        "text": card.text,
        "skill": card.skill,
    }


_SHOWN = (
    *("words", "posts", "sentences", "paragraphs"),
    *("favourites", "avoided", "machine_words", "phrases"),
)


def _drawn(habit: Habit) -> dict[str, Any]:
    """Return a habit with its figures, and their places on a scale from 0 to 1."""
    fewest, low, middle, high, most = habit.quantiles
    end = _MARGIN * max(habit.own, most, habit.machines or 0.0) or 1.0
    return {
        "label": habit.label,
        "is_marked": habit.is_marked,
        "own": habit.said(habit.own),
        "others": habit.said(middle),
        "machines": None if habit.machines is None else habit.said(habit.machines),
        "per": "" if habit.is_length else habit.per,
        "places": [each / end for each in (habit.own, fewest, low, middle, high, most)],
        "machines_place": None if habit.machines is None else habit.machines / end,
    }
