"""`ownwords ask`."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ownwords.cli.options import (
    OUTPUT,
    OutputOptions,
    WorkspaceOption,
    text_of,
    with_help,
)
from ownwords.cli.output import (
    StreamingWordWrap,
    are_terminals,
    confirm,
    input_line,
    stderr,
    stdout,
)
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.view import format as say
from ownwords.view.blocks import Block, Code, Item, Items, Paragraph, Span
from ownwords.view.terminal import DIM, TerminalWriter

if TYPE_CHECKING:
    from ownwords.ask.answer import Answer
    from ownwords.ask.passages import Passage, PassageExcerpt
    from ownwords.ask.search import ArchiveSearcher
    from ownwords.ask.servers import Endpoint

_PASSAGES, _MAX_PASSAGES = 8, 50
_MANY = 100  # passages, which take some seconds to read
_ADVICE = (
    "No model runs on this machine, so these are the passages. For an answer in words, run Ollama,"
    " LM Studio or llama.cpp, or name a model with --model."
)
_BY_WORDS = (
    "The search compares words. Your posts may use others: rephrase the question, or search by"
    " meaning as well: {}."
)
HELP = "Ask your archive, one question per line. An empty line or Ctrl-D ends the session."
_QUOTED = 280  # characters
_CODE_LINES = 12
_WHOSE = {
    "quoted": "not your own words: a quotation or machine output",
    "other": "not your own words: someone else's post",
}


@with_help
def ask(
    *question: Annotated[str, Parameter(name="QUESTION", allow_leading_hyphen=True)],
    workspace: WorkspaceOption = None,
    model: str = "",
    no_model: bool = False,
    embed: str = "",
    passages: int = _PASSAGES,
    output: OutputOptions = OUTPUT,
) -> None:
    """Answer a question from your posts, with citations, or show the matching passages.

    Args:
        question: The question; - reads it from standard input. [default: prompts for questions]
        model: The model that writes the answer: the name of a model that runs here, or an address
            (http://127.0.0.1:8080/v1#NAME). [default: the model that Ollama, llama.cpp, LM Studio
            or vLLM runs here, once you have allowed it]
        no_model: Show the passages only.
        embed: The model that searches by meaning: minilm (English) or multilingual, each downloaded
            once, or none to search by words only. [default: minilm or multilingual, once
            downloaded]
        passages: The number of passages.
    """
    from ownwords.ask.encoder import embed_missing, open_embedder
    from ownwords.ask.index import SearchIndex
    from ownwords.ask.search import ArchiveSearcher
    from ownwords.ask.servers import open_backend
    from ownwords.core.workspace import resolve_workspace

    if not 1 <= passages <= _MAX_PASSAGES:
        raise ConfigError(f"--passages must be from 1 to {_MAX_PASSAGES}, not {passages}")
    if model and no_model:
        raise ConfigError("--model and --no-model cannot be combined", hint="give one of them")
    text = _question_text(question, output)
    place = resolve_workspace(workspace, Path.cwd())
    with SearchIndex(place.archive) as index:
        with output.watched() as (progress, _):
            embedder = open_embedder(embed, progress)
            index.refresh(progress)
            if embedder is not None and (missing := len(index.without_vectors(embedder.name))):
                if missing >= _MANY and not output.json:
                    progress.note(
                        f"The search by meaning reads {say.count(missing, 'passage')} first,"
                        " only once. Ctrl-C searches by words now; the reading continues with"
                        " the next question"
                    )
                with suppress(KeyboardInterrupt):  # finished vectors are stored
                    embed_missing(index, embedder, progress)
        backend, advice = None, ""
        if model:
            backend = open_backend(model)
        elif not no_model:
            backend, advice = allowed_backend(output, "--model")
            advice = advice if backend else advice or _ADVICE
        if advice and output.json:
            print(advice, file=sys.stderr)
        searcher = ArchiveSearcher(index, embedder)
        session = _Session(searcher, backend, passages, advice, output)
        if text:
            session.answer(text)
        else:
            print(HELP, file=sys.stderr)
            session.talk()


@dataclass(frozen=True)
class _Session:
    """Answers questions from one archive and prints the answers."""

    searcher: "ArchiveSearcher"
    backend: "Endpoint | None"
    passages: int
    advice: str
    output: OutputOptions

    def answer(self, question: str) -> None:
        from ownwords.ask.answer import answer

        writer = TerminalWriter(stdout())
        flow = StreamingWordWrap.of(writer)

        def on_text(sentence: str) -> None:
            if sentence and not self.output.json:
                if not flow.has_begun:
                    writer.space()
                flow.add(sentence)

        if self.backend and not self.output.quiet and sys.stderr.isatty():
            print(f"{self.backend.name} is reading the passages", file=sys.stderr)
        try:
            result = answer(
                question,
                self.searcher,
                self.backend,
                on_text=on_text,
                limit=self.passages,
            )
        finally:
            flow.end()
        advice = [self.advice] if self.advice and result.passages and not result.answer else []
        if result.kind == "unjudged" and not self.searcher.embedder:
            from ownwords.ask.encoder import INSTALL

            advice.append(_BY_WORDS.format(INSTALL))
        self.output.show(
            result.to_dict(),
            lambda _: print_answer(result, writer, advice, has_text=flow.has_begun),
        )

    def talk(self) -> None:
        """Answer one question after another until an empty line or the end of input."""
        while True:
            try:
                question = input_line("? ").strip()
            except (EOFError, KeyboardInterrupt):
                print(file=sys.stderr)
                return
            if not question:
                return
            try:
                self.answer(question)
            except KeyboardInterrupt:  # ends this answer only
                print("(ended)", file=sys.stderr)
            except OwnwordsError as error:
                print(str(error), file=sys.stderr)


def _question_text(question: Sequence[str], output: OutputOptions) -> str:
    """Return the question; empty if the user will be prompted for questions."""
    text = text_of(question, "ownwords ask").strip()
    if not text and (question or output.json or not are_terminals(sys.stdin, sys.stdout)):
        raise ConfigError(
            "ownwords ask needs a question", hint='ownwords ask "What did I say about backups?"'
        )
    return text


def allowed_backend(output: OutputOptions, option: str) -> tuple["Endpoint | None", str]:
    """Return a model on this machine that may get passages, or None and what to do, if anything.

    The user is asked once about each server. `option` is the one that names a model.
    """
    from ownwords.ask.servers import EndpointConsent, consent_file, default_backend

    if (backend := default_backend()) is None:
        return None, ""
    consent = EndpointConsent.read()
    decided = backend.url in (*consent.allowed, *consent.refused)
    if not decided and output.may_ask:
        TerminalWriter(stderr()).line(
            f"{backend.name} answers at {backend.url}. It can write answers and drafts from your"
            " questions and notes, and from the matching passages of your posts. You are asked only"
            " once."
        )
        consent = consent.with_decision(
            backend.url, confirm("Send questions, notes and passages to it?", default=False)
        )
    if backend.url in consent.allowed:
        return backend, ""
    why = f" (refused in {consent_file()})" if backend.url in consent.refused else ""
    return None, (
        f"{backend.name} answers at {backend.url}, but nothing was sent to it{why}. To let it"
        f" write: {option} {backend.option}"
    )


# --- the answer as blocks -------------------------------------------------------------------------


def print_answer(
    answer: "Answer", writer: TerminalWriter, advice: Sequence[str] = (), *, has_text: bool = False
) -> None:
    """Print an answer with citations or passages, notes and advice; its text unless printed."""
    if answer.answer and not has_text:
        writer.space()
        writer.line(answer.answer)
    if answer.why:
        writer.space()
        writer.line(answer.why, DIM if answer.answer else None)
    cited = [
        _entry(
            cited.passage,
            f"[{number}]",
            [Paragraph(line=f"“{say.plain(cited.quote, _QUOTED)}”")],
            cited.whose,
        )
        for number, cited in enumerate(answer.citations, 1)
    ]
    writer.blocks([Items(rows=cited, style="passages")])
    notes = answer.notes
    if not answer.answer:
        writer.heading(answer.sentence)
        _print_notes(notes, writer)  # before the passages, because they may say what these lack
        notes = ()
    if answer.passages and not answer.citations:
        for number, passage in enumerate(answer.passages, 1):
            heading = Paragraph(line=say.plain(passage.heading, 120), style="quiet")
            excerpt = _excerpt(passage.text, answer.excerpts[passage.id])
            entry = _entry(passage, f"{number}", [heading, *excerpt])
            writer.blocks([Items(rows=[entry], style="passages")])
    _print_notes((*notes, *advice), writer)
    writer.space()


def _print_notes(notes: Sequence[str], writer: TerminalWriter) -> None:
    if notes:
        writer.space()
    writer.blocks(Paragraph(line=note, style="quiet") for note in notes)


def _entry(source: "Passage", label: str, blocks: Iterable[Block], whose: str = "") -> Item:
    """Return a passage or its quote with title, address and whose words they are."""
    return Item(
        title=say.title_of(source.title, 100),
        label=label,
        is_marked=True,
        aside=say.day(source.date[:10]) if source.date else "",
        blocks=[
            block
            for block in (
                Paragraph(line=_WHOSE.get(whose or source.whose, ""), style="follow"),
                *blocks,
                Paragraph(line=say.plain(source.url, 300), style="quiet"),
            )
            if not isinstance(block, Paragraph) or block.line
        ],
    )


def _excerpt(text: str, excerpt: "PassageExcerpt") -> Iterator[Block]:
    """Yield the part of a passage that answers, with its best sentences in bold; code as code."""
    from ownwords.ask.passages import is_code, units

    first, last = excerpt.span
    line: list[Span] = [Span(text="… ", style="quiet")] if text[:first].strip() else []
    for begin, end in units(text):
        if begin < first or end > last:
            continue
        if is_code(text[begin:end]):
            yield Paragraph(line=line)
            line = []
            lines = text[begin:end].split("\n")[1:-1]
            more = ["…"] if len(lines) > _CODE_LINES else []
            yield Code(text="\n".join([*lines[:_CODE_LINES], *more]))
        else:
            style: Literal["strong", "quiet"] = (
                "strong" if (begin, end) in excerpt.matching else "quiet"
            )
            line += [Span(text=say.plain(text[begin:end]), style=style), Span(text=" ")]
    if text[last:].strip():
        line.append(Span(text="…", style="quiet"))
    yield Paragraph(line=line)
