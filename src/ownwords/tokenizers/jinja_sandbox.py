"""The Jinja sandbox of chat templates, with the functions that transformers gives them."""

# ruff: noqa: ANN401 - a template passes whatever it likes

import json
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """Renders `{% generation %}` blocks, which mark the assistant's text for training, as is."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def sandbox() -> ImmutableSandboxedEnvironment:
    """An environment in which a template reaches neither Python nor files."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().astimezone().strftime(str(form)),
    }
    return environment


def _tojson(value: Any, ensure_ascii: bool = False, **layout: Any) -> str:
    """As JSON without Jinja's own escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **layout)


def _raise(message: object) -> None:
    raise TemplateError(str(message))
