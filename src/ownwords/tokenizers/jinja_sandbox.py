"""A Jinja sandbox for untrusted templates, with limits on size and time.

Jinja's own sandbox protects the interpreter but not the machine: one line of template can ask for a
terabyte. Here whatever makes a longer value is charged against an allowance, as is each turn of a
loop and each macro call, and every charge checks the clock. What cannot be charged is left out.
"""

# ruff: noqa: ANN401 - a template passes whatever it likes

import functools
import json
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

LONGEST_TEMPLATE = 1 << 18  # characters; the longest of known models have some 20,000
ALLOWANCE = 1 << 25  # characters and elements made while rendering once
LIMIT_S = 5.0
# Limits on what a list holds, the lists in it included (16 characters count as one), and nesting.
_MAX_BUILT, _DEEPEST = 1 << 20, 64
_MAX_BITS = 4096  # of an integer operand or power

_FILTERS = """abs capitalize count d default dictsort e escape first float int items last length
    list lower map max min reject rejectattr reverse round safe select selectattr sort string title
    trim unique upper"""
# Methods whose results can be of any length; `join` and `replace` are charged.
_GROWING = {"center", "encode", "expandtabs", "format", "format_map"}
_GROWING |= {"ljust", "rjust", "to_bytes", "translate", "zfill"}


class _Variables(Namespace):
    def __repr__(self) -> str:  # without the contents, which may be recursive
        return "<Namespace>"


class _Generation(Extension):
    """Renders `{% generation %}` blocks, which mark the assistant's text for training, as is."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Charged(NodeTransformer):
    """Inserts charges into the template's syntax tree where the environment has no hook."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        # The literal text of each turn, as a macro's output is only seen once joined.
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.Concat):
            return _call("concatenate", node.nodes, node)
        if isinstance(node, nodes.List | nodes.Dict | nodes.Tuple):
            is_target = isinstance(node, nodes.Tuple) and node.ctx != "load"
            return node if is_target else _call("check", [node], node)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
            cost: list[nodes.Expr] = [nodes.Const(1 + text)]
            node.body.insert(0, nodes.ExprStmt(_call("charge", cost, node)))
        return node


def _call(name: str, arguments: list[nodes.Expr], at: nodes.Node) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)
    call.set_lineno(at.lineno)
    return call


class JinjaSandbox(ImmutableSandboxedEnvironment):
    """The Jinja environment of one template; `allow` resets its allowance and clock."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=lambda value: self.check(value if isinstance(value, str) else str(value)),
            extensions=[loopcontrols, _Generation],
        )
        self.filters = {name: self._checked(FILTERS[name]) for name in _FILTERS.split()}
        self.filters |= {"join": self._join, "replace": self._replace}
        self.filters |= {"indent": self._indent, "tojson": self._tojson}
        self.globals = {
            **{name: self.globals[name] for name in ("range", "dict")},
            "namespace": _Variables,
            "raise_exception": _raise,
            "strftime_now": lambda form: datetime.now().astimezone().strftime(str(form)[:100]),
        }
        self.allow()

    def allow(self) -> None:
        self._left = ALLOWANCE
        self._until = time.monotonic() + LIMIT_S

    def charge(self, amount: int) -> None:
        """Charge an amount against the allowance and check the clock."""
        self._left -= amount
        if self._left < 0:
            raise SecurityError("it makes too much text")
        if time.monotonic() > self._until:
            raise SecurityError(f"it takes longer than {LIMIT_S:g} seconds")

    def check(self, value: Any) -> Any:
        """Charge a new value, and return it; all that a list or dict holds is limited, too."""
        left: list[tuple[Any, int]] = [(value, 0)] if isinstance(value, dict | list | tuple) else []
        size = 0
        while left:
            entry, depth = left.pop()
            size += 1 + (len(entry) // 16 if isinstance(entry, str) else 0)
            if size > _MAX_BUILT or depth > _DEEPEST:
                raise SecurityError("it builds too large a list")
            if isinstance(entry, dict):
                entry = (*entry.keys(), *entry.values())
            if isinstance(entry, list | tuple):
                left += [(part, depth + 1) for part in entry]
        self.charge(_length(value, 1))
        return value

    def concatenate(self, *values: object) -> str:
        """The text of `a ~ b`."""
        return self._join(values)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and obj.__name__ == "join" and args:
            return self._join(args[0], owner)
        if isinstance(owner, str) and obj.__name__ == "replace":
            return self._replace(owner, *args)
        return self.check(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * (right if operator == "**" else 1) > _MAX_BITS:
                raise SecurityError("it computes too large a number")
        elif not (isinstance(left, int | float) and isinstance(right, int | float)):
            if operator == "%":
                raise SecurityError("% on text is not known here")
            # A number stands for the copies of a text or list: 'ab' * 2.
            first, second = (x if isinstance(x, int) else _length(x, 1) for x in (left, right))
            self.charge(max(0, first * second if operator == "*" else first + second))
        return self.check(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _GROWING and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Leave `format` to `is_safe_attribute`: Jinja would allow it with fields of any width."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > LONGEST_TEMPLATE:
            raise SecurityError(f"it has more than {LONGEST_TEMPLATE:,} characters")
        tree: nodes.Template = _Charged().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def _checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # keeps the attributes that tell Jinja which arguments to pass
        def checked(*args: Any, **kwargs: Any) -> Any:
            return self.check(function(*args, **kwargs))

        return checked

    def _join(self, values: Iterable[Any], d: object = "", attribute: str | None = None) -> str:
        texts = []
        for value in values:
            texts.append(str(value if attribute is None else self.getitem(value, attribute)))
            self.charge(len(texts[-1]) + len(str(d)))
        return str(d).join(texts)

    def _replace(self, text: object, old: object, new: object, count: int = -1) -> str:
        text, old, new = str(text), str(old), str(new)
        self.charge(len(text) + len(new) * text.count(old))
        return text.replace(old, new, count)

    def _indent(self, text: object, width: int | str = 4, *flags: bool, **named: bool) -> str:
        text, margin = str(text), width if isinstance(width, str) else " " * min(width, 100)
        self.charge(len(text) + len(margin) * (len(text.splitlines()) + 1))
        return FILTERS["indent"](text, margin, *flags, **named)  # type: ignore[no-any-return]

    def _tojson(self, value: object, ensure_ascii: bool = False, **layout: Any) -> str:
        if layout.get("indent") is not None:
            layout["indent"] = min(layout["indent"], 8)
        return str(self.check(json.dumps(value, ensure_ascii=ensure_ascii, **layout)))


def _length(value: object, default: int) -> int:
    return len(value) if isinstance(value, str | dict | list | tuple) else default


def _raise(message: object) -> None:
    raise TemplateError(str(message))
