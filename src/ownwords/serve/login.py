"""The form where a key is exchanged for a cookie."""

import html
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.serve.auth import SESSION_S, Authenticator
from ownwords.serve.errors import ApiError
from ownwords.serve.middleware import LOGIN
from ownwords.serve.static_files import StaticFile

_MOST_FIELDS = 8
_WRONG = "That was not the key. It is on the line that begins with “key”."
_UNSAID, _SAID = b" hidden></p>", b">%s</p>"  # the place in the form for what went wrong


def routes(authenticator: Authenticator, form: StaticFile) -> Sequence[BaseRoute]:
    """The form, what it sends, and the way out."""

    async def shown(request: Request) -> Response:
        return form.answer(request) if authenticator.is_needed else _home()

    async def tried(request: Request) -> Response:
        if not authenticator.is_needed:
            return _home()
        key = _key_in(await request.body())
        try:
            fits = authenticator.fits(key, request.client.host if request.client else "")
        except ApiError as error:
            said = _saying(form, f"Too many wrong keys: {error.hint}.")
            return said.answer(request, error.status, {"Retry-After": str(error.retry_after_s)})
        if not fits:
            return _saying(form, _WRONG).answer(request, HTTPStatus.UNAUTHORIZED)
        answer = _home()
        answer.set_cookie(
            authenticator.cookie,
            authenticator.begin(),
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def left(request: Request) -> Response:
        authenticator.end(request.headers.get("cookie", ""))
        answer = JSONResponse({})
        answer.delete_cookie(authenticator.cookie, httponly=True, samesite="strict")
        return answer

    return [
        Route(LOGIN, shown, methods=["GET"]),
        Route(LOGIN, tried, methods=["POST"]),
        Route("/logout", left, methods=["POST"]),
    ]


def _key_in(body: bytes) -> str:
    """The key in what the form sent; empty where something else was sent."""
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS)
    except ValueError:  # more than that
        return ""
    return fields.get("key", [""])[0].strip()


def _saying(form: StaticFile, sentence: str) -> StaticFile:
    said = _SAID % html.escape(sentence).encode()
    return replace(form, data=form.data.replace(_UNSAID, said, 1))


def _home() -> Response:
    return RedirectResponse("/", HTTPStatus.SEE_OTHER)
