"""The language server, as editors use it: with a client of the protocol, with Neovim and Emacs."""

import ast
import asyncio
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("pygls")

from lsprotocol import types as lsp
from pygls.io_ import run_async
from pygls.lsp.client import LanguageClient

from ownwords.drafts.check import AuthorStyle, Check
from ownwords.drafts.mark_choices import MarksFile
from ownwords.serve.language_server import EditorServer

FOREIGN = "In order to leverage best practices, users should configure appropriate settings."
TEXT = f"# Kettles 🎉\n\nIt was late, and I was tired 🎉, prior to the rain.\n\n{FOREIGN}\n"
COMMAND = [sys.executable, "-m", "ownwords", "lsp"]
URI = "file:///draft.md"


@pytest.fixture
def workspace(sample_blog: Path, tmp_path: Path) -> Path:
    """A workspace of its own in a folder above the editor's."""
    shutil.copytree(sample_blog, tmp_path / "blog.ownwords")
    (tmp_path / "drafts").mkdir()
    return tmp_path / "blog.ownwords"


class Editor:
    """A client of the protocol, and what the server has shown."""

    def __init__(self) -> None:
        self.client = LanguageClient("test", "1")
        self.published = list[lsp.PublishDiagnosticsParams]()
        self.edits = list[lsp.WorkspaceEdit]()
        self.opened = list[str]()
        self.messages = list[str]()

        def applied(params: lsp.ApplyWorkspaceEditParams) -> lsp.ApplyWorkspaceEditResult:
            self.edits.append(params.edit)
            return lsp.ApplyWorkspaceEditResult(applied=True)

        def shown(params: lsp.ShowDocumentParams) -> lsp.ShowDocumentResult:
            self.opened.append(params.uri)
            return lsp.ShowDocumentResult(success=True)

        for feature, answer in (
            (lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, self.published.append),
            (lsp.WORKSPACE_APPLY_EDIT, applied),
            (lsp.WINDOW_SHOW_DOCUMENT, shown),
            (lsp.WINDOW_SHOW_MESSAGE, lambda params: self.messages.append(params.message)),
        ):
            self.client.feature(feature)(lambda params, answer=answer: answer(params))

    async def marks(self, version: int, after: int = 0) -> list[lsp.Diagnostic]:
        """Wait for the marks of a version, beyond so many lists that came before."""
        for _ in range(1200):
            found = [each for each in self.published[after:] if each.version == version]
            if found:
                return list(found[-1].diagnostics)
            await asyncio.sleep(0.05)
        raise AssertionError(self.messages)

    async def change(self, version: int, text: str) -> list[lsp.Diagnostic]:
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(version, URI),
                [lsp.TextDocumentContentChangeWholeDocument(text)],
            )
        )
        return await self.marks(version)

    async def actions(self, where: lsp.Range) -> dict[str, lsp.CodeAction]:
        params = lsp.CodeActionParams(
            lsp.TextDocumentIdentifier(URI), where, lsp.CodeActionContext([])
        )
        found = await self.client.text_document_code_action_async(params)
        return {action.title: action for action in found or ()}

    async def command(self, action: lsp.CodeAction) -> object:
        # pygls' client reads an action with a command as a command.
        called = ast.literal_eval(str(action.command))
        return await self.client.workspace_execute_command_async(
            lsp.ExecuteCommandParams(called["command"], called["arguments"])
        )


async def connect(client: LanguageClient) -> None:
    """Connect the client with a server in a thread of its own."""
    here, there = socket.socketpair()
    server = EditorServer(None).server
    Thread(target=server.start_io, args=[there.makefile("rb"), there.makefile("wb")]).start()
    there.close()
    reader, writer = await asyncio.open_connection(sock=here)
    client.protocol.set_writer(writer)
    read = run_async(client._stop_event, reader, client.protocol, logging.getLogger())
    client._async_tasks.append(asyncio.create_task(read))


def edit(
    folder: Path,
    work: Callable[[Editor], Awaitable[None]],
    text: str = TEXT,
    language: str = "markdown",
    *,
    command: Sequence[str] = (),
    inline: bool = False,
) -> None:
    """Open a text in an editor whose folder this is, and work with it."""

    async def run() -> None:
        editor = Editor()
        if command:
            await editor.client.start_io(*command, cwd=folder)
        else:
            await connect(editor.client)
        inlines = lsp.InlineCompletionClientCapabilities() if inline else None
        capabilities = lsp.ClientCapabilities(
            text_document=lsp.TextDocumentClientCapabilities(inline_completion=inlines),
            window=lsp.WindowClientCapabilities(
                show_document=lsp.ShowDocumentClientCapabilities(support=True)
            ),
        )
        await editor.client.initialize_async(
            lsp.InitializeParams(capabilities, root_uri=folder.as_uri())
        )
        editor.client.initialized(lsp.InitializedParams())
        item = lsp.TextDocumentItem(URI, language, 1, text)
        editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        await work(editor)
        await editor.client.shutdown_async(None)
        if command:
            editor.client.exit(None)
        else:  # the answer to "exit" would end this process
            editor.client.protocol.writer.close()
        await editor.client.stop()

    asyncio.run(asyncio.wait_for(run(), 120))


def marked(text: str, found: list[lsp.Diagnostic]) -> dict[str, str]:
    """The words that are marked, by kind; positions are in UTF-16."""
    lines = [line.encode("utf-16-le") for line in text.split("\n")]
    return {
        str(each.code): lines[each.range.start.line][
            2 * each.range.start.character : 2 * each.range.end.character
        ].decode("utf-16-le")
        for each in found
    }


def test_a_text_is_marked_explained_and_mended(workspace: Path) -> None:
    async def work(editor: Editor) -> None:
        found = await editor.marks(1)
        assert marked(TEXT, found) == {
            "stock_phrase": "prior to",
            "unlike you": FOREIGN,
        }, editor.messages
        severities = {str(each.code): each.severity for each in found}
        assert severities["unlike you"] == lsp.DiagnosticSeverity.Information
        assert severities["stock_phrase"] == lsp.DiagnosticSeverity.Hint

        phrase, sentence = sorted(found, key=lambda each: each.range.start.line)
        hover = await editor.client.text_document_hover_async(
            lsp.HoverParams(lsp.TextDocumentIdentifier(URI), sentence.range.start)
        )
        assert hover
        value = hover.contents.value
        assert "language model" in value

        actions = await editor.actions(phrase.range)
        document = actions["Write “before”"].edit.document_changes[0]
        assert document.text_document.version == 1
        (change,) = document.edits
        assert (change.range, change.new_text) == (phrase.range, "before")

        seen = len(editor.published)
        await editor.command(actions["Never mark “prior to” again"])
        assert "stock_phrase" not in marked(TEXT, await editor.marks(1, seen))
        seen = len(editor.published)
        await editor.command((await editor.actions(sentence.range))["Keep this sentence as it is"])
        assert await editor.marks(1, seen) == []
        decided = MarksFile(workspace / "marks.toml")()
        assert (decided.words, decided.sentences) == (("prior to",), (FOREIGN,))
        # What was decided by hand holds, too.
        (workspace / "marks.toml").write_text('[[rule]]\ninstead_of = "tired"\nwrite = "worn"\n')
        changed = TEXT.replace("late", "early")
        assert marked(changed, await editor.change(2, changed))["rule"] == "tired"

    edit(workspace.parent / "drafts", work)


def test_only_what_changed_is_judged_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, check = list[str](), AuthorStyle.check

    def counted(style: AuthorStyle, text: str) -> Check:
        judged.append(text)
        return check(style, text)

    monkeypatch.setattr(AuthorStyle, "check", counted)
    paragraphs = [f"We sat in the kitchen, {n} of us. {FOREIGN}" for n in range(5)]

    async def work(editor: Editor) -> None:
        await editor.marks(1)
        assert len(judged) == 5
        paragraphs[3] += " And then it stopped."
        await editor.change(2, "\n\n".join(paragraphs))
        assert judged[5:] == [paragraphs[3]]

    edit(workspace.parent, work, "\n\n".join(paragraphs))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("plaintext", f"{FOREIGN}\r\n\r\nAnd so on."),
        (
            "markdown",
            f"---\ntitle: {FOREIGN}\n---\n\n> {FOREIGN}\n\n```\n{FOREIGN}\n```\n\n{FOREIGN}\n",
        ),
        (
            "html",
            f"<html><head><title>{FOREIGN}</title></head>\n<body>\n    <pre>{FOREIGN}</pre>\n"
            f"    <blockquote><p>{FOREIGN}</p></blockquote>\n    <p>{FOREIGN}</p>\n</body>\n",
        ),
        (
            "restructuredtext",
            f".. note to self: {FOREIGN}\n\nKettles\n=======\n\n.. code-block:: python\n\n"
            f"   {FOREIGN}\n\nLike this::\n\n    {FOREIGN}\n\n:author: {FOREIGN}\n\n{FOREIGN}\n",
        ),
    ],
)
def test_only_prose_is_marked(workspace: Path, language: str, text: str) -> None:
    async def work(editor: Editor) -> None:
        (mark,) = await editor.marks(1)
        assert marked(text, [mark]) == {"unlike you": FOREIGN}
        last = text[: text.rindex(FOREIGN)].count("\n")
        assert mark.range.start.line == last

    edit(workspace.parent, work, text, language)


@pytest.mark.parametrize("inline", [False, True])
def test_the_model_ends_a_sentence(workspace: Path, *, inline: bool) -> None:
    pytest.importorskip("torch")
    import model_directories
    from ownwords.models import bundle
    from ownwords.tokenizers.bpe import ByteTokenizer

    model = model_directories.model("qwen3", vocab_size=300)
    bundle.save(workspace / "model", model, ByteTokenizer())

    async def work(editor: Editor) -> None:
        document = lsp.TextDocumentIdentifier(URI)
        end, middle = lsp.Position(0, 13), lsp.Position(0, 5)
        context = lsp.InlineCompletionContext(lsp.InlineCompletionTriggerKind.Invoked)
        for position in (end, middle):
            plain = await editor.client.text_document_completion_async(
                lsp.CompletionParams(document, position)
            )
            inlined = await editor.client.text_document_inline_completion_async(
                lsp.InlineCompletionParams(context, document, position)
            )
            assert bool(plain) == (position == end and not inline)
            assert bool(inlined) == (position == end)

    edit(workspace.parent, work, "The gutter 🎉\nand so on", inline=inline)


def test_passages_about_a_selection_are_opened(workspace: Path) -> None:
    question = "the gutter"

    async def work(editor: Editor) -> None:
        await editor.marks(1)
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(0, len(question)))
        actions = await editor.actions(whole)
        passages = await editor.command(actions["Ask my posts about this"])
        assert "gutter" in str(passages).lower()
        assert editor.opened
        # Without a model that can, notes stay as they are, and the reason is shown.
        await editor.command(actions["Write sentences from these notes"])
        assert not editor.edits
        assert "no model here can write from notes" in editor.messages[-1]

    edit(workspace.parent, work, question)


NEOVIM = """
local id = vim.lsp.start_client({ name = "ownwords", cmd = vim.fn.json_decode(vim.env.SERVER) })
vim.lsp.buf_attach_client(0, id)
vim.wait(60000, function() return #vim.diagnostic.get(0) >= 2 end)
local is_phrase = function(mark) return mark.code == "stock_phrase" end
local mark = vim.tbl_filter(is_phrase, vim.diagnostic.get(0))[1]
local words = vim.api.nvim_buf_get_text(0, mark.lnum, mark.col, mark.end_lnum, mark.end_col, {})
local found, place = {}, { mark.lnum + 1, mark.col }
local params = vim.lsp.util.make_given_range_params(place, place)
params.context = { diagnostics = {} }
for _, answer in pairs(vim.lsp.buf_request_sync(0, "textDocument/codeAction", params, 10000)) do
  found = answer.result
end
vim.lsp.util.apply_workspace_edit(found[1].edit, "utf-16")
vim.fn.writefile({ words[1], found[1].title }, "found.txt")
vim.cmd("write")
vim.lsp.stop_client(id)
vim.wait(2000, function() return vim.lsp.client_is_stopped(id) end)
vim.cmd("quitall!")
"""
EMACS = """
(let ((default-directory "/usr/share/emacs/site-lisp/elpa/"))
  (when (file-exists-p default-directory) (normal-top-level-add-subdirs-to-load-path)))
(require 'eglot)
(setq eglot-sync-connect 60)
(find-file "draft.txt")
(eglot--connect '(text-mode) (cons 'transient default-directory) 'eglot-lsp-server
                (json-parse-string (getenv "SERVER") :array-type 'list) "plaintext")
(eglot--managed-mode 1)
(let ((tries 0))
  (while (and (< (length (flymake-diagnostics)) 2) (< (setq tries (1+ tries)) 600))
    (accept-process-output nil 0.1)))
(with-temp-file "found.txt"
  (insert (with-current-buffer "draft.txt"
            (mapconcat (lambda (each) (buffer-substring (flymake-diagnostic-beg each)
                                                        (flymake-diagnostic-end each)))
                       (flymake-diagnostics) "\n"))))
(ignore-errors (eglot-shutdown-all))
"""


def run_editor(folder: Path, *command: str) -> list[str]:
    environment = {**os.environ, "SERVER": json.dumps(COMMAND), "XDG_STATE_HOME": str(folder)}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (folder / "found.txt").exists(), done.stdout + done.stderr
    return (folder / "found.txt").read_text("utf-8").splitlines()


@pytest.mark.skipif(not shutil.which("nvim"), reason="needs Neovim")
def test_neovim_shows_marks_and_applies_an_edit(workspace: Path) -> None:
    folder = workspace.parent / "drafts"
    (folder / "draft.md").write_text(TEXT, "utf-8")
    (folder / "test.lua").write_text(NEOVIM)
    found = run_editor(
        folder, "nvim", "--clean", "--headless", "draft.md", "-c", "luafile test.lua"
    )
    assert found == ["prior to", "Write “before”"]
    assert (folder / "draft.md").read_text("utf-8") == TEXT.replace("prior to", "before")


def has_eglot() -> bool:
    return bool(shutil.which("emacs")) and any(
        path.exists() and [*path.glob(name)]
        for path, name in (
            (Path("/usr/share/emacs"), "2[9]*/lisp/progmodes/eglot.elc"),
            (Path("/usr/share/emacs/site-lisp/elpa"), "eglot-*"),
        )
    )


@pytest.mark.skipif(not has_eglot(), reason="needs Emacs with eglot")
def test_emacs_shows_marks(workspace: Path) -> None:
    folder = workspace.parent / "drafts"
    (folder / "draft.txt").write_text(TEXT, "utf-8")
    (folder / "test.el").write_text(EMACS, "utf-8")
    found = run_editor(folder, "emacs", "-Q", "--batch", "-l", "test.el")
    assert sorted(found) == sorted(["prior to", FOREIGN])


def test_without_posts_the_editor_is_told(tmp_path: Path) -> None:
    async def work(editor: Editor) -> None:
        assert await editor.marks(1) == []
        assert "ownwords look" in editor.messages[0]

    edit(tmp_path, work, command=[*COMMAND, "--workspace", "none"])
