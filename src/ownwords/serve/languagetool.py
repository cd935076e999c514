"""LanguageTool's HTTP API for editors: the marks of a text as matches.

Offsets and lengths are in UTF-16 code units, as LanguageTool's are. Matches never quote the posts,
because the API needs no key on this machine.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.core.version import __version__
from ownwords.drafts.mark_choices import UNLIKE
from ownwords.drafts.marks import Mark
from ownwords.drafts.rewriting import MARKS
from ownwords.language.words import language_of
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, invalid
from ownwords.serve.json_api import decode_fields, json_response, parse_json
from ownwords.serve.security import form_fields

CHECK: Final = "/v2/check"
LANGUAGES: Final = "/v2/languages"
_MAX_CHARS = 100_000
_CONTEXT = 40  # characters on either side of a match
_LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish"} | {
    f"{code}-{place}": f"{name} ({place})"
    for code, name, places in (
        ("en", "English", ("US", "GB", "AU", "CA", "NZ", "ZA")),
        ("de", "German", ("DE", "AT", "CH")),
    )
    for place in places
}
_VARIANTS = {"en": "en-US", "de": "de-DE"}  # unless the client prefers another
_SOFTWARE = {
    "name": "ownwords",
    "version": __version__,
    "buildDate": "",
    "apiVersion": 1,
    "premium": False,
    "premiumHint": "",
    "status": "",
}
_DESCRIPTIONS = {
    UNLIKE: "A sentence unlike yours",
    "long_sentence": "Longer than your sentences",
    "stock_phrase": "A phrase that you never use",
}


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes under /v2."""
    turn = asyncio.Lock()  # editors send many requests at once, and the page shares the threads

    async def check(request: Request) -> Response:
        fields = form_fields(await request.body(), request.scope["query_string"])
        async with turn:
            return json_response(await state.run_long(partial(_check, state, fields)))

    async def languages(_: Request) -> Response:
        return json_response(
            [
                {"name": name, "code": code[:2], "longCode": code}
                for code, name in _LANGUAGES.items()
            ]
        )

    return [Route(CHECK, check, methods=["GET", "POST"]), Route(LANGUAGES, languages)]


@dataclass(frozen=True)
class Annotation:
    """A part of a text: text, or markup with what it stands for."""

    text: str = ""
    markup: str = ""
    interpretAs: str = ""  # noqa: N815 - its name in the API


@dataclass(frozen=True)
class AnnotatedText:
    """The parameter `data`, with either a text or its parts."""

    text: str = ""
    annotation: tuple[Annotation, ...] = ()


class PlainText(NamedTuple):
    """A text without markup, and where each character was before, in UTF-16 code units."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, parts: Sequence[Annotation]) -> "PlainText":
        """Replace markup by what it stands for."""
        text, starts, ends, at = "", list[int](), list[int](), 0
        for part in parts:
            for character in part.text:
                starts.append(at)
                at += _units(character)
                ends.append(at)
            after = at + _units(part.markup)
            starts += [at] * len(part.interpretAs)
            ends += [after] * len(part.interpretAs)
            text += part.text + part.interpretAs
            at = after
        return cls(text, starts, ends)


def _units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


def _check(state: AppState, fields: Mapping[str, str]) -> dict[str, Any]:
    if "text" in fields:
        data = AnnotatedText(fields["text"])
    elif "data" in fields:
        data = decode_fields(AnnotatedText, parse_json(fields["data"].encode()))
    else:
        raise invalid("Missing 'text' or 'data' parameter")
    plain = PlainText.of(data.annotation or [Annotation(data.text)])
    if len(plain.text) > _MAX_CHARS:
        message = f"Your text exceeds the limit of {_MAX_CHARS} characters"
        raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
    code = fields.get("language", "auto")
    if code == "auto":
        found = language_of([plain.text])
        preferred = fields.get("preferredVariants", "").split(",")
        variants = (each for each in preferred if each in _LANGUAGES and each[:2] == found)
        code = next(variants, _VARIANTS.get(found, found))
    marks: Sequence[Mark] = ()
    is_known = False
    if state.workspace.archive.exists():
        marker = state.learned.marker()
        is_known = code.lower().partition("-")[0] == marker.language
        # Browser add-ons ask a second time for marks on the text as a whole: there are none.
        if is_known and fields.get("mode") != "textLevelOnly":
            marks = marker.marks(plain.text, partial(_is_wanted, fields))
    language = {"name": _LANGUAGES.get(code, code), "code": code}
    detected = {**language, "confidence": float(is_known), "source": ""}
    return {
        "software": _SOFTWARE,
        "warnings": {"incompleteResults": False},
        "language": {**language, "detectedLanguage": detected},
        "matches": list(_matches(plain, marks)),
    }


def _is_wanted(fields: Mapping[str, str], kind: str) -> bool:
    def names(what: str, name: str) -> bool:
        return name in map(str.strip, fields.get(what, "").split(","))

    if names("disabledRules", _rule(kind)):
        return False
    if names("enabledRules", _rule(kind)) or names("enabledCategories", _category(kind)):
        return True
    is_off = names("disabledCategories", _category(kind))
    return not (is_off or fields.get("enabledOnly") == "true")


def _rule(kind: str) -> str:
    return "OWNWORDS_" + kind.upper().replace(" ", "_")


def _category(kind: str) -> str:
    return "TYPOGRAPHY" if kind in MARKS else "STYLE"


def _matches(plain: PlainText, marks: Sequence[Mark]) -> Iterator[dict[str, Any]]:
    text = plain.text
    for start, end, kind, message, sentence, replacement, _ in marks:
        marked = text[start:end]
        offset, length = plain.starts[start], plain.ends[end - 1] - plain.starts[start]
        if replacement is not None and length != _units(marked):
            continue  # it would remove markup
        before = "..." * (start > _CONTEXT) + text[max(0, start - _CONTEXT) : start]
        after = text[end : end + _CONTEXT] + "..." * (end + _CONTEXT < len(text))
        description = _DESCRIPTIONS.get(kind, f"Your own {kind}")
        category = _category(kind)
        yield {
            "message": message,
            "shortMessage": description,
            "replacements": [] if replacement is None else [{"value": replacement}],
            "offset": offset,
            "length": length,
            "context": {
                "text": re.sub(r"[\r\n]", " ", before + marked + after),
                "offset": _units(before),
                "length": _units(marked),
            },
            "sentence": sentence,
            "type": {"typeName": "Hint"},
            "rule": {
                "id": _rule(kind),
                "description": description,
                "issueType": "typographical" if kind in MARKS else "style",
                "category": {"id": category, "name": category.capitalize()},
                "isPremium": False,
            },
            "ignoreForIncompleteSentence": False,
            "contextForSureMatch": 0,
        }
