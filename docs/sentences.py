"""Collects the sentences of the page, and compares them with the catalogue of a language.

`python docs/sentences.py de` prints the missing ones as JSON, to be filled in and added to
src/ownwords/serve/pages/languages/de.json, and on the error stream the entries that no sentence
needs any more.
"""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import ownwords
from ownwords.drafts.voice_card import GROUPS
from ownwords.evaluation.manner import measures
from ownwords.language.words import in_all_languages

SOURCE = Path(ownwords.__file__).parent
PAGES = SOURCE / "serve" / "pages"
LANGUAGES = PAGES / "languages"
# The modules whose sentences the page shows. Of all others it shows only progress and errors.
SERVER = (
    "archive/advice.py",
    "archive/analysis.py",
    "archive/file_list.py",
    "archive/ingest.py",
    "archive/log_detection.py",
    "archive/look.py",
    "archive/markup.py",
    "archive/report.py",
    "archive/report_view.py",
    "archive/safe_xml.py",
    "archive/selection.py",
    "archive/sources/",
    "archive/style_outliers.py",
    "archive/text_repair.py",
    "archive/threads.py",
    "archive/untrusted_files.py",
    "ask/answer.py",
    "ask/citations.py",
    "ask/dates.py",
    "ask/search.py",
    "base/catalogue.py",
    "base/estimates.py",
    "drafts/check.py",
    "drafts/rewriting.py",
    "evaluation/fluency.py",
    "evaluation/scorecard_view.py",
    "evaluation/scoring.py",
    "evaluation/verdict.py",
    "evaluation/voice.py",
    "make/pipeline.py",
    "make/stages.py",
    "serve/api/",
    "serve/app.py",
    "serve/app_state.py",
    "serve/jobs.py",
    "serve/security.py",
    "training/plan.py",
    "training/plan_constants.py",
    "training/run.py",
    "view/format.py",
    "view/html.py",
)
TEXTS = ("archive/advice.toml",)
NAMES = ("archive/dropped_elements.toml",)  # of which the keys are shown
PLACE = re.compile(r"\{\d+\}")
_COUNTED = re.compile(r"""\bcount\((?:[^()"`]|\((?:[^()]|\([^()]*\))*\))*, "([a-z ]+)"\)""")
_WORDS = re.compile(r"^an? [A-Za-z]|[A-Za-z’']{2,}\W? +\W?[\w{]|\} [a-z]{2,}|[a-z]{2,} \{")
_LABEL = re.compile(r"[A-Z][a-z]+|once|twice")
_MARKUP = re.compile(
    r"[<\n=|\\]|\(\?|-src |-title|filename"
    r"|\) AND \(|^(SELECT |PRAGMA |[.#]\w|[a-z]+, [-.a-z]+(, |$))"
    r"|^(arXiv [\d., ]+$|# |a one |swatch |verdict |shares titled)"
    r"|^(--?\w+ |curl |ollama |llama-cli |ownwords |pip install \S+$)"
)
_SHOWN = re.compile(r"Error$|_error$|\b(note|stage|invalid|not_found|conflict|forbidden)$")
_VIEWS = ("_view.py", "html.py", "serve/jobs.py", "view/format.py")


def sentences() -> set[str]:
    """Return every sentence, with numbered places: "Delete {1}?", and "{1} post" for a count."""
    found: set[str] = set()
    for path in PAGES.glob("*.js"):
        found.update(_of_script(path.read_text("utf-8")))
    for path in PAGES.glob("*.html"):
        found.update(_of_page(path.read_text("utf-8")))
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        if name.startswith(SERVER):
            found.update(_of_module(tree, has_labels=name.endswith(_VIEWS)))
        elif not name.startswith(("cli/", "native/")):
            for node in _shown(tree):
                found.update(_of_module(node, has_labels=False))
    for name in TEXTS:
        found.update(_of_table(tomllib.loads((SOURCE / name).read_text("utf-8"))))
    for name in NAMES:
        found.update(tomllib.loads((SOURCE / name).read_text("utf-8")))
    counted = {each.label for code in in_all_languages("voice") for each in measures(code)}
    found.update([*GROUPS.values(), *(label for label in counted if label[0] != "“")])
    return {each for each in found if re.search("[A-Za-z]", PLACE.sub("", each))}


def _of_table(value: object) -> Iterator[str]:
    """Yield the texts of a TOML file, with numbered places."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _of_table(each)
    else:
        yield _text_of(ast.Constant(str(value)))


# --- the page's own code ----------------------------------------------------------------------


def _of_script(source: str) -> Iterator[str]:
    """Yield the texts in t`...`, and the nouns that are counted."""
    for match in re.finditer(r"(?<![\w$.`])t`", source):
        yield _template(source, match.end())[0]
    for match in _COUNTED.finditer(source):
        yield f"{{1}} {match[1]}"


def _template(source: str, at: int) -> tuple[str, int]:
    """Return the template literal that begins at `at`, with numbered places, and its end."""
    parts, number = [], 0
    while source[at] != "`":
        if source.startswith("${", at):
            number += 1
            parts.append(f"{{{number}}}")
            at = _place_end(source, at + 2)
        elif source[at] == "\\":
            parts.append({"n": "\n"}.get(source[at + 1], source[at + 1]))
            at += 2
        else:
            parts.append(source[at])
            at += 1
    return "".join(parts), at + 1


def _place_end(source: str, at: int) -> int:
    """Return the end of a place, whose code may have braces, strings and further templates."""
    depth = 1
    while depth:
        if source[at] == "`":
            at = _template(source, at + 1)[1]
            continue
        if source[at] in "\"'":
            at = source.index(source[at], at + 1)
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        at += 1
    return at


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts += [value for name, value in attrs if name in ("title", "aria-label") and value]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def _of_page(source: str) -> list[str]:
    page = _Page()
    page.feed(source)
    return [text for text in page.texts if text and text != "ownwords"]


# --- the server ---------------------------------------------------------------------------------


def _shown(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the calls that show a sentence, and what the variables and functions in them return."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _SHOWN.search(ast.unparse(node.func))
    ]
    yield from calls
    names = {part.id for call in calls for part in ast.walk(call) if isinstance(part, ast.Name)}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if name in names:
                yield value
            case ast.FunctionDef(name=name, returns=ast.Name("str")) if name in names:
                yield from (part for part in ast.walk(node) if isinstance(part, ast.Return))


def _of_module(tree: ast.AST, *, has_labels: bool) -> Iterator[str]:
    """Yield strings of several words, single words in a view, and nouns that are counted."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case (  # a docstring, or a type in quotation marks
                ast.Expr(value=ast.Constant() as other)
                | ast.arg(annotation=ast.Constant() as other)
                | ast.FunctionDef(returns=ast.Constant() as other)
            ):
                skipped.add(id(other))
            case ast.keyword(arg="class_" | "units"):
                skipped.update(id(part) for part in ast.walk(node))
            case ast.JoinedStr():
                skipped.update(id(part) for part in ast.walk(node) if part is not node)
                # But a string within a place is a sentence of its own.
                for place in node.values:
                    if isinstance(place, ast.FormattedValue):
                        skipped.difference_update(id(part) for part in ast.walk(place.value))
            case ast.Call(func=ast.Name("SkippedItem"), args=[ast.Constant(str(kind)), *_]):
                yield f"{{1}} {kind}"  # the report counts them
            case ast.Call(func=ast.Name("count" | "noun") | ast.Attribute(attr="count")):
                if len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
                    yield f"{{1}} {node.args[1].value!s}"
            case _:
                pass
    for node in ast.walk(tree):
        text = "" if id(node) in skipped else _text_of(node).strip()
        if not _MARKUP.search(text) and (
            _WORDS.search(text) or (has_labels and _LABEL.fullmatch(text))
        ):
            yield text


def _text_of(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            numbers = iter(range(1, 10))  # it may be filled by `format`
            return re.sub(r"\{\w*\}", lambda _: f"{{{next(numbers)}}}", text)
        case ast.JoinedStr(values=values):
            places = iter(range(1, len(values) + 1))
            return "".join(
                str(part.value) if isinstance(part, ast.Constant) else f"{{{next(places)}}}"
                for part in values
            )
    return ""


def lacking(language: str) -> tuple[list[str], list[str]]:
    """Return the sentences that a catalogue lacks, and its entries that no sentence needs."""
    path = LANGUAGES / f"{language}.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    wanted = sentences()
    return sorted(wanted - known.keys()), sorted(known.keys() - wanted)


if __name__ == "__main__":
    missing, unused = lacking(sys.argv[1] if len(sys.argv) > 1 else "")
    print(json.dumps(dict.fromkeys(missing, ""), indent=0, ensure_ascii=False))
    for line in unused:
        print(f"not needed: {line}", file=sys.stderr)
