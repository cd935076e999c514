"""Writes docs/reference.md and what README.md and how-it-works.md quote; --check: is it up to date?

The reference is not in the repository: it says what the code says. --print shows it.
"""

import ast
import contextlib
import dataclasses
import difflib
import inspect
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

from rich.console import Console

import ownwords
from ownwords.archive import report
from ownwords.archive.look import look
from ownwords.archive.report_view import report_view
from ownwords.cli.main import build
from ownwords.cli.options import FILE, Settings
from ownwords.cli.output import EXIT_STATUSES
from ownwords.core import hardware
from ownwords.core.config import as_toml
from ownwords.core.validation import expected
from ownwords.view.terminal import print_view

REFERENCE = Path(__file__).parent / "reference.md"
README = Path(__file__).resolve().parents[1] / "README.md"
EXPLAINED = Path(__file__).parent / "how-it-works.md"
SOURCE = Path(ownwords.__file__).parent
NAMED = (ast.ClassDef, ast.FunctionDef)

SHOWN_FROM, SHOWN_TO = "<!-- what `look` prints -->", "<!-- up to here -->"
# The parts of it shown: from a line that holds the first, to before one that holds the second.
EXCERPTS = (("The Hundred Steps", "From this much text"),)

HEAD = """\
# Reference

Written from the code by `make docs`.
"""

ORDER = f"""\
A setting gets its value from the last of these that gives it one:

1. the default below;
2. `{FILE}` in the current folder;
3. `{FILE}` in the workspace;
4. the file named with `--config`;
5. `--set archive.drafts=true`, as often as needed;
6. a flag of its own, where it has one: `--drafts`, `--no-drafts`.

A name that does not exist is an error, wherever it stands. In a file, `[archive]` stands on a line
of its own, with `drafts = true` below it. Outside of files, a list is written `a,b`. Relative paths
start at the current folder. `ownwords doctor` shows which settings are changed, and by what.
"""

ENVIRONMENT = """\
| variable | meaning |
|---|---|
| `OWNWORDS_HOME` | the folder for added bases, in place of the system's own for such things |
| `HF_ENDPOINT` | the hub that `ownwords base add ORG/NAME` asks, in place of huggingface.co |
| `HF_TOKEN` | who asks it, for models whose licence has to be accepted first |
| `OWNWORDS_API_KEY` | the key for an endpoint that is named with `--model` or `--embed` |
| `OPENAI_API_KEY` | the same for api.openai.com, where there is no other |
| `NO_COLOR` | set to anything: no colours |
| `TERM=dumb` | plain lines instead of bars |
| `COLUMNS` | the width to write for |
"""

ERROR = """\
Where something goes wrong, the object is `{"error": {"message": "...", "hint": "..."}}`, and the
same sentence stands on stderr.
"""


def main(arguments: list[str]) -> int:
    stale = 0
    if arguments == ["--print"]:
        print(reference())
        return 0
    pages = [(README, readme), (EXPLAINED, explained)]
    if arguments != ["--check"]:
        pages.append((REFERENCE, reference))
    for path, text_of in pages:
        text = text_of()
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        if there == text:
            continue
        if arguments != ["--check"]:
            path.write_text(text, encoding="utf-8", newline="\n")
            continue
        stale = 1
        lines = difflib.unified_diff(there.splitlines(), text.splitlines(), "written", "now", n=0)
        print("\n".join(list(lines)[:20]), file=sys.stderr)
        print(f"{path.name} is stale: run python docs/generate.py", file=sys.stderr)
    return stale


def explained() -> str:
    """how-it-works.md with the line at which each named place stands now."""

    def placed(match: re.Match[str]) -> str:
        path, name = match[1], match[2]
        return f"`{path}:{line_of(SOURCE / path, name.split('.'))} {name}`"

    return re.sub(r"`([\w/]+\.py):\d+ ([\w.]+)`", placed, EXPLAINED.read_text(encoding="utf-8"))


def line_of(path: Path, names: list[str]) -> int:
    """The line of a class, function or method."""
    node: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    for name in names:
        below = ast.iter_child_nodes(node)
        node = next(n for n in below if isinstance(n, NAMED) and n.name == name)
    assert isinstance(node, NAMED)
    return node.lineno


def readme() -> str:
    """README.md with what `ownwords look` prints put in, shortened at the lines of dots."""
    before, _, rest = README.read_text(encoding="utf-8").partition(SHOWN_FROM)
    _, _, after = rest.partition(SHOWN_TO)
    lines = demo()
    output_lines: list[str] = []
    for beginning, end in EXCERPTS:
        first = next(n for n, line in enumerate(lines) if beginning in line)
        last = next((n for n in range(first, len(lines)) if end and end in lines[n]), len(lines))
        output_lines += ["  ...", ""] if output_lines else []
        output_lines += lines[first:last]
    text = "\n".join(output_lines).rstrip()
    command = "ownwords look examples/blog --workspace demo.ownwords"
    return f"{before}{SHOWN_FROM}\n```text\n$ {command}\n{text}\n```\n{SHOWN_TO}{after}"


def demo() -> list[str]:
    """What it prints of the sample blog, on a terminal of 80 columns."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(README.parent):
        result = look([Path("examples/blog")], workspace=Path(folder) / "demo.ownwords")
    result.workspace = "demo.ownwords"
    result.command = "ownwords look examples/blog --workspace demo.ownwords"
    page = io.StringIO()
    console = Console(file=page, width=80, color_system=None, legacy_windows=False)
    print_view(report_view(result), console, f"{result.workspace}/report.html")
    return [line.rstrip() for line in page.getvalue().splitlines()]


def reference() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            "## Commands\n",
            *(commands()),
            "## Exit statuses\n",
            table("status", "meaning", ((str(s), text) for s, text in EXIT_STATUSES.items())),
            "## Settings\n",
            ORDER,
            *(settings()),
            "## Environment\n",
            ENVIRONMENT,
            "## `look --json`\n",
            ERROR,
            *shapes([report], "Report"),
            "## `doctor --json`\n",
            "The object is a Machine, with `settings`: for each name its `value` and `origin`.\n",
            *shapes([hardware], "Machine"),
            "## From Python\n",
            *(face()),
        ]
    )


def commands() -> Iterator[str]:
    app = build()
    verbs = [name for name in app if not name.startswith("-")]
    for words in ([], *([verb] for verb in verbs)):
        page = io.StringIO()
        console = Console(file=page, width=80, color_system=None, legacy_windows=False)
        app([*words, "--help"], console=console, result_action="return_value")
        lines = "\n".join(line.rstrip() for line in page.getvalue().splitlines())
        name = " ".join(["ownwords", *words])
        yield f"### `{name}`\n\n```text\n$ {name} --help\n{lines.strip()}\n```\n"


def settings() -> Iterator[str]:
    for section in dataclasses.fields(Settings):
        kind = get_type_hints(Settings)[section.name]
        comments = comments_of(kind)
        types = get_type_hints(kind, include_extras=True)
        yield f"### `{section.name}`\n\n{inspect.getdoc(kind)}\n"
        yield "| setting | what it takes | default | meaning |\n|---|---|---|---|"
        for field in dataclasses.fields(kind):
            default = as_toml(getattr(kind(), field.name))
            cells = (
                f"`{section.name}.{field.name}`",
                expected(types[field.name]),
                f"`{default}`",
                comments[field.name],
            )
            yield row(*cells)
        yield ""


def shapes(modules: list[ModuleType], first: str) -> Iterator[str]:
    """The dataclasses of the modules, the outermost first."""
    kinds = [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type)
        and dataclasses.is_dataclass(kind)
        and kind.__module__ == module.__name__
    ]
    for kind in sorted(kinds, key=lambda kind: kind.__name__ != first):
        comments = comments_of(kind)
        yield f"### {kind.__name__}\n\n{inspect.getdoc(kind)}\n"
        yield "| field | type | meaning |\n|---|---|---|"
        for node in fields_of(kind):
            assert isinstance(node.target, ast.Name)
            name = node.target.id
            yield row(f"`{name}`", f"`{ast.unparse(node.annotation)}`", comments[name])
        yield ""


def face() -> Iterator[str]:
    for name in sorted(getattr(ownwords, "__all__", ())):
        value = getattr(ownwords, name)
        if callable(value):
            yield f"### `{name}`\n\n```python\n{signature(name, value)}\n```\n"
            yield f"{inspect.getdoc(value)}\n"
        else:
            yield f"### `{name}`\n\n`{value!r}`\n"
    yield "What is not listed here may change without notice."
    yield ""


def signature(name: str, value: object) -> str:
    """As the source writes it: what `inspect` prints differs between versions of Python."""
    (node,) = ast.parse(inspect.getsource(value)).body  # type: ignore[arg-type]
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"def {name}({ast.unparse(node.args)}){returns}"
    return f"class {name}"


def fields_of(kind: type) -> list[ast.AnnAssign]:
    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    return [item for item in node.body if isinstance(item, ast.AnnAssign)]


def comments_of(kind: type) -> dict[str, str]:
    """For each field of a dataclass the comment behind it, or the lines of comment above it."""
    lines = inspect.getsource(kind).splitlines()
    comments = {}
    for node in fields_of(kind):
        assert isinstance(node.target, ast.Name) and node.end_lineno
        behind = lines[node.end_lineno - 1].partition("  # ")[2]
        above: list[str] = []
        number = node.lineno - 2
        while lines[number].lstrip().startswith("# "):
            above.insert(0, lines[number].strip()[2:])
            number -= 1
        comments[node.target.id] = behind or " ".join(above)
    return comments


def table(left: str, right: str, rows: Iterator[tuple[str, str]]) -> str:
    return "\n".join([f"| {left} | {right} |", "|---|---|", *(row(*cells) for cells in rows), ""])


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
