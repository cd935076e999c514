"""The language server: marks, reasons, edits and completions in any editor.

Judging and writing take place in threads, so that the editor is always answered. A text is judged
after a pause; only its changed paragraphs take time (`TextMarker`).
"""

import asyncio
import os
import re
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from ownwords.ask.passages import best_sentence
from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.version import __version__
from ownwords.core.workspace import has_model, nearest_workspace, resolve_workspace
from ownwords.drafts.mark_choices import UNLIKE, WORD_KINDS, MarkChoices
from ownwords.drafts.marks import Mark
from ownwords.drafts.prose import as_markdown
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.language.words import Lexicon, is_in_the_language
from ownwords.serve.archive_access import OpenWorkspace

PAUSE_S: Final = 0.4
_COMPLETION_TOKENS: Final = 40
_MAX_PROMPT: Final = 20_000  # characters
_PASSAGES: Final = 5
# By the editor's name for the language, else by the suffix.
_MARKUPS = dict.fromkeys(("html", "xhtml", ".html", ".htm"), "html")
_MARKUPS |= dict.fromkeys(("restructuredtext", "rst", ".rst"), "restructuredtext")
_NEWLINE = re.compile(r"\r\n|\n|\r")
_SEVERITIES = {UNLIKE: lsp.DiagnosticSeverity.Information}
_LIKELIEST = replace(DEFAULT_SAMPLING, temperature=0.0)
T = TypeVar("T")


@contextmanager
def protocol_output() -> Iterator[IO[bytes]]:
    """Yield standard output for the protocol alone; anything else printed goes to stderr."""
    sys.stdout.flush()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        yield output


@dataclass
class _Text:
    """A text as the editor has it, with its marks."""

    uri: str
    version: int | None
    text: str
    units: Callable[[str], int]  # the length of a text in the protocol's code units
    marks: list[Mark]

    def __post_init__(self) -> None:
        self._starts = [0, *(found.end() for found in _NEWLINE.finditer(self.text))]

    def position(self, offset: int) -> lsp.Position:
        line = bisect_right(self._starts, offset) - 1
        return lsp.Position(line, self.units(self.text[self._starts[line] : offset]))

    def offset(self, position: lsp.Position) -> int:
        number: int = position.line
        if number >= len(self._starts):
            return len(self.text)
        start = self._starts[number]
        found = _NEWLINE.search(self.text, start)
        line = self.text[start : found.start() if found else len(self.text)]
        place, units = 0, 0
        while place < len(line) and units < position.character:
            units += self.units(line[place])
            place += 1
        return start + place

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(self.position(start), self.position(end))

    def marks_in(self, part: lsp.Range) -> list[Mark]:
        start, end = self.offset(part.start), self.offset(part.end)
        return [mark for mark in self.marks if mark.start <= end and start <= mark.end]

    def edit(self, start: int, end: int, text: str) -> lsp.WorkspaceEdit:
        """Return an edit of this version, which the editor refuses once the text has changed."""
        named = lsp.OptionalVersionedTextDocumentIdentifier(self.uri, self.version)
        change = lsp.TextEdit(self.range(start, end), text)
        return lsp.WorkspaceEdit(document_changes=[lsp.TextDocumentEdit(named, [change])])


class EditorServer:
    """Answers one editor about the texts that are open in it."""

    def __init__(self, workspace: Path | None) -> None:
        self._given = workspace
        self._opened: OpenWorkspace | None = None
        self._turn = asyncio.Lock()
        self._texts: dict[str, _Text] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._asked: object = None  # the latest request for a completion
        self._problem = ""  # that was shown last
        full = lsp.TextDocumentSyncKind.Full  # pygls and the protocol end lines differently
        self.server = LanguageServer("ownwords", __version__, text_document_sync_kind=full)
        for feature, answer, options in (
            (lsp.TEXT_DOCUMENT_DID_OPEN, self._on_open, None),
            (lsp.TEXT_DOCUMENT_DID_CHANGE, self._on_change, None),
            (lsp.TEXT_DOCUMENT_DID_CLOSE, self._on_close, None),
            (lsp.TEXT_DOCUMENT_HOVER, self._on_hover, None),
            (lsp.TEXT_DOCUMENT_CODE_ACTION, self._on_code_action, None),
            (lsp.TEXT_DOCUMENT_COMPLETION, self._on_completion, lsp.CompletionOptions()),
            (lsp.TEXT_DOCUMENT_INLINE_COMPLETION, self._on_inline_completion, None),
        ):
            self.server.feature(feature, options)(partial(answer))
        for name, command in (
            ("keep", self._keep),
            ("allow", self._allow),
            ("draft", self._draft),
            ("ask", self._ask),
        ):
            self.server.command(f"ownwords.{name}")(partial(command))

    def _open(self) -> OpenWorkspace:
        """Return the workspace: the one given, or the nearest one above the editor's folder."""
        if not self._opened:
            root = self.server.workspace.root_path
            here = Path(root) if root else Path.cwd()
            found = resolve_workspace(self._given, here) if self._given else nearest_workspace(here)
            self._opened = OpenWorkspace(found)
        return self._opened

    async def _try(self, work: Callable[[], T]) -> T | None:
        """Run work in a thread; if it fails, say why, once, and return None."""
        try:
            return await asyncio.to_thread(work)
        except OwnwordsError as error:
            said = f"{error.message}; {error.hint}" if error.hint else error.message
            if said != self._problem:
                self._say(said, lsp.MessageType.Warning)
            self._problem = said
            return None

    def _say(self, message: str, kind: lsp.MessageType = lsp.MessageType.Info) -> None:
        self.server.window_show_message(lsp.ShowMessageParams(kind, f"ownwords: {message}"))

    # ---- marks

    async def _on_open(self, params: lsp.DidOpenTextDocumentParams) -> None:
        await self._judge_soon(params.text_document.uri, 0.0)

    async def _on_change(self, params: lsp.DidChangeTextDocumentParams) -> None:
        await self._judge_soon(params.text_document.uri, PAUSE_S)

    async def _on_close(self, params: lsp.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        self._texts.pop(uri, None)
        if task := self._waiting.pop(uri, None):
            task.cancel()

    async def _judge_soon(self, uri: str, pause_s: float) -> None:
        async def judge() -> None:
            await asyncio.sleep(pause_s)
            text = await self._marked(uri)
            if uri in self._waiting:  # it is still open
                found = [_diagnostic(text, mark) for mark in text.marks]
                shown = lsp.PublishDiagnosticsParams(uri, found, text.version)
                self.server.text_document_publish_diagnostics(shown)

        if task := self._waiting.get(uri):
            task.cancel()
        self._waiting[uri] = asyncio.create_task(judge())

    async def _marked(self, uri: str) -> _Text:
        """Return a text as it is now, with its marks."""
        async with self._turn:
            text = self._current(uri)
            known = self._texts.get(uri)
            if known and (known.version, known.text) == (text.version, text.text):
                return known
            document = self.server.workspace.get_text_document(uri)
            suffix = Path(document.path or "").suffix.lower()
            markup = _MARKUPS.get(document.language_id or "") or _MARKUPS.get(suffix, "")
            text.marks = await self._try(partial(self._marks, text.text, markup)) or []
            self._texts[uri] = text
            return text

    def _current(self, uri: str) -> _Text:
        document = self.server.workspace.get_text_document(uri)
        units: Callable[[str], int] = document.position_codec.client_num_units
        return _Text(uri, document.version, document.source, units, [])

    def _marks(self, text: str, markup: str) -> list[Mark]:
        marker = self._open().learned.marker()
        if not is_in_the_language([text], Lexicon.load().frequent):
            return []
        return marker.marks(as_markdown(text, markup), lambda _: True)

    # ---- why, and what to do

    async def _on_hover(self, params: lsp.HoverParams) -> lsp.Hover | None:
        text = await self._marked(params.text_document.uri)
        found = text.marks_in(lsp.Range(params.position, params.position))
        if not found:
            return None
        lines = await self._try(partial(self._reasons, found[0])) or [found[0].message]
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, "\n\n".join(lines))
        return lsp.Hover(content, text.range(found[0].start, found[0].end))

    def _reasons(self, mark: Mark) -> list[str]:
        """Return why a text is marked, and the author's own passage that is closest."""
        lines = [mark.message]
        opened = self._open()
        for passage in opened.pool.searcher().find(mark.sentence, limit=_PASSAGES).passages:
            place = best_sentence(mark.sentence, passage.text)
            if passage.whose == "own" and place:
                quoted = " ".join(passage.text[slice(*place)].split())
                return [
                    *lines,
                    f"The closest passage that you wrote, in “{passage.title}”:",
                    f"> {quoted}",
                ]
        return lines

    async def _on_code_action(self, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        text = await self._marked(params.text_document.uri)
        found = list[lsp.CodeAction]()
        for mark in text.marks_in(params.range):
            found += _actions(text, mark)
        start, end = text.offset(params.range.start), text.offset(params.range.end)
        if text.text[start:end].strip():
            given = {"uri": text.uri, "start": start, "end": end}
            kind = lsp.CodeActionKind.RefactorRewrite
            found += [
                _command("Write sentences from these notes", "draft", kind, given),
                _command("Ask my posts about this", "ask", kind, given),
            ]
        return found

    async def _keep(self, given: dict[str, Any]) -> None:
        about = digest(given["uri"])[:8]
        how = given["sentence"], about, given["kind"], given["before"], given["after"]
        await self._decide(lambda choices: choices.keep(*how))

    async def _allow(self, given: dict[str, Any]) -> None:
        await self._decide(lambda choices: choices.allow(given["kind"], given["before"]))

    async def _decide(self, update: Callable[[MarkChoices], MarkChoices]) -> None:
        """Write a decision to marks.toml, and mark all open texts again."""
        decided = await self._try(lambda: self._open().marks_file.change(update))
        if decided and (proposals := decided.proposals()):
            self._say(f"{len(proposals)} rules are proposed for marks.toml; see Voice on the page")
        self._texts.clear()
        for uri in list(self._waiting):
            await self._judge_soon(uri, 0.0)

    # ---- from notes, and from the posts

    async def _draft(self, given: dict[str, Any]) -> None:
        text, notes = self._selected(given)
        self._say("writing sentences from your notes")

        if (draft := await self._try(lambda: self._open().draft(notes))) is not None:
            end = given["start"] + len(notes.rstrip())
            edit = text.edit(given["start"], end, draft)
            await self.server.workspace_apply_edit_async(
                lsp.ApplyWorkspaceEditParams(edit, "Sentences from notes")
            )

    async def _ask(self, given: dict[str, Any]) -> str:
        """Show the passages of the posts about a selection, and return them."""
        _, question = self._selected(given)

        def search() -> str:
            found = self._open().pool.searcher().find(question[:1000], limit=_PASSAGES).passages
            parts = [f"# From your posts\n\n> {' '.join(question.split())[:300]}\n"]
            parts += [f"## {each.title}\n\n{each.date or ''}\n\n{each.text}\n" for each in found]
            return "\n".join(parts if found else [*parts, "Nothing in your posts is about this.\n"])

        passages = await self._try(search)
        if passages is None:
            return ""
        window = self.server.client_capabilities.window
        if window and window.show_document and window.show_document.support:
            path = Path(tempfile.mkdtemp(prefix="ownwords-")) / "from-your-posts.md"
            await asyncio.to_thread(path.write_text, passages, "utf-8")
            shown = lsp.ShowDocumentParams(path.as_uri(), take_focus=True)
            await self.server.window_show_document_async(shown)
        else:
            self._say(passages)
        return passages

    def _selected(self, given: dict[str, Any]) -> tuple[_Text, str]:
        text = self._current(given["uri"])
        return text, text.text[given["start"] : given["end"]]

    # ---- completion

    async def _on_completion(self, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        if self._has_inline():
            return []
        rest = await self._continuation(params.text_document.uri, params.position)
        if not rest:
            return []
        edit = lsp.TextEdit(lsp.Range(params.position, params.position), rest)
        detail = "the rest of the sentence, by your model"
        return [lsp.CompletionItem(rest.strip(), detail=detail, text_edit=edit, filter_text=" ")]

    async def _on_inline_completion(
        self, params: lsp.InlineCompletionParams
    ) -> list[lsp.InlineCompletionItem]:
        rest = await self._continuation(params.text_document.uri, params.position)
        where = lsp.Range(params.position, params.position)
        return [lsp.InlineCompletionItem(rest, range=where)] if rest else []

    def _has_inline(self) -> bool:
        texts = self.server.client_capabilities.text_document
        return bool(texts and texts.inline_completion)

    async def _continuation(self, uri: str, position: lsp.Position) -> str:
        """Return the rest of the sentence at the end of a line; "" if a later request came."""
        mine = self._asked = object()
        text = self._current(uri)
        offset = text.offset(position)
        before, after = text.text[:offset], text.text[offset:]
        if not before.strip() or not re.match(r"[^\S\r\n]*(?:[\r\n]|\Z)", after):
            return ""

        def check(_: int = 0) -> None:
            if self._asked is not mine:
                raise _SupersededError

        def write() -> str:
            opened = self._open()
            if not has_model(opened.workspace.root):
                return ""
            with opened.writing, suppress(_SupersededError):
                check()
                model = opened.model(opened.own_model())
                request = model.request(
                    before[-_MAX_PROMPT:],
                    max_tokens=_COMPLETION_TOKENS,
                    sampling=_LIKELIEST,
                    completes_word=True,
                )
                return model.generate_texts([request], sentence=True, on_tokens=check)[0]
            return ""

        return await self._try(write) or ""


class _SupersededError(Exception):
    """A later request for a completion has come."""


def _diagnostic(text: _Text, mark: Mark) -> lsp.Diagnostic:
    return lsp.Diagnostic(
        text.range(mark.start, mark.end),
        mark.message,
        _SEVERITIES.get(mark.kind, lsp.DiagnosticSeverity.Hint),
        mark.kind,
        source="ownwords",
    )


def _actions(text: _Text, mark: Mark) -> Iterator[lsp.CodeAction]:
    """Yield what can be done about a mark: its edit first, then what is remembered."""
    kind, here = lsp.CodeActionKind.QuickFix, [_diagnostic(text, mark)]
    before, after = text.text[mark.start : mark.end], mark.replacement
    if after is not None:
        title = f"Write “{after.strip()}”" if after.strip() else f"Delete “{before.strip()}”"
        edit = text.edit(mark.start, mark.end, after)
        yield lsp.CodeAction(title, kind, here, is_preferred=True, edit=edit)
    given = {"kind": mark.kind, "before": before, "after": after or ""}
    about = {**given, "uri": text.uri, "sentence": mark.sentence}
    yield _command("Keep this sentence as it is", "keep", kind, about, here)
    for word in mark.new_words:
        allowed = {"kind": UNLIKE, "before": word}
        yield _command(f"“{word}” is a word of mine", "allow", kind, allowed, here)
    if mark.kind == UNLIKE:
        title = "Never mark sentences as unlike mine"
    elif mark.kind in WORD_KINDS:
        title = f"Never mark “{before}” again"
    else:
        title = f"Never mark this again: {mark.kind.replace('_', ' ')}"
    never = {**given, "before": "" if mark.kind == UNLIKE else before}
    yield _command(title, "allow", kind, never, here)


def _command(
    title: str,
    name: str,
    kind: lsp.CodeActionKind,
    given: dict[str, Any],
    about: list[lsp.Diagnostic] | None = None,
) -> lsp.CodeAction:
    command = lsp.Command(title, f"ownwords.{name}", arguments=[given])
    return lsp.CodeAction(title, kind, about, command=command)
