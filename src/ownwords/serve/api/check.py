"""The Check page: how much a draft sounds like the author, and which sentences do not."""

from dataclasses import dataclass
from typing import Annotated

from starlette.routing import BaseRoute

from ownwords.archive.corpus import load_corpus
from ownwords.core.validation import Meta
from ownwords.drafts.check import AuthorStyle, Check
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import invalid
from ownwords.serve.json_api import ApiCall, json_route


@dataclass(frozen=True)
class CheckRequest:
    """The body of a POST to /api/check."""

    text: Annotated[str, Meta(max_length=200_000)] = ""


def routes(state: AppState) -> list[BaseRoute]:
    """The route of the Check page."""
    learned: dict[str, AuthorStyle] = {}  # of the posts as they are, by the corpus's key

    def check(state: AppState, call: ApiCall) -> Check:
        """Check a draft."""
        text = call.body(CheckRequest).text
        if not text.strip():
            raise invalid("there is no draft", hint="paste one, then check it")
        corpus = load_corpus(state.archive())
        style = learned.get(corpus.key)
        if style is None:
            style = AuthorStyle.of(corpus)
            learned.clear()
            learned[corpus.key] = style
        return style.check(text)

    return [json_route(state, "POST", "/api/check", check)]
