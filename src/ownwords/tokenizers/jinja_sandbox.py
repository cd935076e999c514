"""A Jinja sandbox for untrusted templates, with limits on calls, output size and time.

Jinja's own sandbox protects the interpreter but not the machine: one line of template can ask for a
terabyte. Here every operation that can grow a value is charged against an allowance, each turn of
a loop and each macro call is charged, and every charge checks the clock. Operations that cannot be
charged are not available: only the filters and methods listed below exist.
"""

# ruff: noqa: ANN401 - a template passes whatever it likes

import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

LONGEST_TEMPLATE = 1 << 18  # characters; the longest of known models have some 20,000
ALLOWANCE = 1 << 25  # characters and elements made while rendering once
LIMIT_S = 5.0
# Limits on lists a template builds: total elements (16 characters of text count as one), nesting.
_MOST_BUILT, _DEEPEST = 1 << 20, 64
_MOST_BITS = 4096  # of an integer operand or power

_FILTERS = """abs capitalize count d default dictsort e escape first float int items last length
    list lower map max min reject rejectattr reverse round safe select selectattr sort string title
    trim unique upper"""
_TEXT_METHODS = """capitalize casefold count endswith find index isalnum isalpha isdigit islower
    isspace isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex
    rpartition rsplit rstrip split splitlines startswith strip swapcase title upper"""
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(_TEXT_METHODS.split()),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    int: frozenset(),
    float: frozenset(),
    bool: frozenset(),
}


class TooMuchError(SecurityError):
    """The template exceeded a limit on output, nesting, numbers or time."""


class _Variables(Namespace):
    """`namespace()`, whose repr omits the contents, because they may be recursive."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Generation(Extension):
    """Renders `{% generation %}` blocks, which mark the assistant's text for training, as is."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Counted(NodeTransformer):
    """Inserts charges into the template's syntax tree where the environment has no hook."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - Jinja's names
        self.generic_visit(node)
        return _calling("joined", node.nodes, node)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _calling("built", [node], node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _calling("built", [node], node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _calling("built", [node], node) if node.ctx == "load" else node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        return self._turning(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._turning(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._turning(node)

    def _turning(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        # Charge the literal text of each turn here: a macro's output is only seen once joined.
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        count: list[nodes.Expr] = [nodes.Const(1 + text)]
        node.body.insert(0, nodes.ExprStmt(_calling("charge", count, node)))
        return node


def _calling(name: str, arguments: list[nodes.Expr], at: nodes.Node) -> nodes.Call:
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
            finalize=self.printed,
            extensions=[loopcontrols, _Generation],
        )
        self.filters = {name: self._counting(FILTERS[name]) for name in _FILTERS.split()}
        self.filters["join"] = self._join
        self.filters["replace"] = self._replace
        self.filters["indent"] = self._indent
        self.filters["tojson"] = self._tojson
        self.globals = {
            "range": self.globals["range"],
            "dict": lambda *given, **named: self.built(dict(*given, **named)),
            "namespace": _Variables,
            "raise_exception": _raise,
            "strftime_now": lambda form: datetime.now().astimezone().strftime(str(form)[:100]),
        }
        self.allow()

    def allow(self) -> None:
        self._left = ALLOWANCE
        self._until = time.monotonic() + LIMIT_S

    def charge(self, amount: int) -> str:
        """Charge an amount against the allowance and check the clock; returns "" to print."""
        self._left -= amount
        if self._left < 0:
            raise TooMuchError("it makes too much text")
        if time.monotonic() > self._until:
            raise TooMuchError(f"it takes longer than {LIMIT_S:g} seconds")
        return ""

    def joined(self, *values: object) -> str:
        """Concatenate the operands of `a ~ b`, charged."""
        return self._joined("", values)

    def built(self, value: object) -> object:
        """Check the size and depth of a list, tuple or dict that the template built; return it."""
        size = 0
        left: list[tuple[object, int]] = [(value, 0)]
        while left:
            entry, depth = left.pop()
            inside: Iterable[object] = ()
            if isinstance(entry, dict):
                inside = (*entry.keys(), *entry.values())
            elif isinstance(entry, list | tuple):
                inside = entry
            size += 1 + (len(entry) // 16 if isinstance(entry, str) else 0)
            if size > _MOST_BUILT or depth > _DEEPEST:
                raise TooMuchError("it builds too large a list")
            left += [(part, depth + 1) for part in inside]
        self.charge(len(value) if isinstance(value, dict | list | tuple) else 1)
        return value

    def printed(self, value: object) -> object:
        """Charge the value of a `{{ }}`; the literal text in loops is charged per turn instead."""
        if isinstance(value, str):
            self.charge(len(value))
        elif isinstance(value, dict | list | tuple):
            self.built(value)
            text = str(value)
            self.charge(len(text))
            return text
        return value

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and obj.__name__ == "join" and args:
            return self._joined(owner, args[0])
        if isinstance(owner, str) and obj.__name__ == "replace":
            return self._replace(owner, *args)
        result = super().call(context, obj, *args, **kwargs)
        self.charge(1 + (len(result) if isinstance(result, str | list) else 0))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "+" and not numbers:
            self.charge(_length(left) + _length(right))
        elif operator == "*" and not numbers:
            for values, times in ((left, right), (right, left)):
                if isinstance(times, int):
                    self.charge(_length(values) * max(times, 0))
        elif operator == "%" and not numbers:
            raise SecurityError("% on text is not known here")
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            if bits * right > _MOST_BITS if operator == "**" else bits > _MOST_BITS:
                raise TooMuchError("it computes too large a number")
        result = super().call_binop(context, operator, left, right)
        return self.built(result) if isinstance(result, list | tuple) else result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind in type(obj).__mro__:
            if kind in _METHODS:
                return attr in _METHODS[kind]
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Return None: `str.format` is not an allowed method, so there is nothing to wrap."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _Counted().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        assert isinstance(tree, nodes.Template)
        return tree

    def _counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # keeps the attributes that tell Jinja which arguments to pass
        def counted(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self.charge(1 + (len(result) if isinstance(result, str | list) else 0))
            return result

        return counted

    def _joined(self, between: str, values: Iterable[object]) -> str:
        texts = []
        for value in values:
            text = value if isinstance(value, str) else str(self.printed(value))
            self.charge(len(text) + len(between))
            texts.append(text)
        return between.join(texts)

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
        if attribute is not None:
            value = [self.getitem(entry, attribute) for entry in value]
        return self._joined(str(d), value)

    def _replace(self, text: object, old: object, new: object, count: int = -1) -> str:
        text, old, new = str(text), str(old), str(new)
        times = text.count(old)
        self.charge(len(text) + len(new) * (times if count < 0 else min(times, count)))
        return text.replace(old, new, count)

    def _indent(
        self, text: object, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        margin = width if isinstance(width, str) else " " * min(width, 100)
        lines = str(text).splitlines()
        self.charge(len(str(text)) + len(margin) * (len(lines) + 1))
        moved = [margin + line if line or blank else line for line in lines[1:]]
        return "\n".join([*((margin if first else "") + line for line in lines[:1]), *moved])

    def _tojson(
        self,
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        self.built(value)
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=None if indent is None else min(indent, 8),
            separators=separators,
            sort_keys=sort_keys,
        )
        self.charge(len(text))
        return text


def _length(value: object) -> int:
    return len(value) if isinstance(value, str | list | tuple | Undefined) else 1


def _raise(message: object) -> None:
    raise TemplateError(str(message))
