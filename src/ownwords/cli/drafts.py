"""`ownwords voice`, `check`, `draft` and `rewrite`."""

import sys
from collections import deque
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ownwords.cli.ask import allowed_backend
from ownwords.cli.options import (
    OUTPUT,
    OutputOptions,
    WorkspaceOption,
    check_positive,
    text_in,
    with_help,
)
from ownwords.cli.output import print_json, relative_path, stderr
from ownwords.cli.write import MODEL, ModelOptions, show_pieces
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import has_model, path_text, resolve_workspace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ownwords.ask.servers import Endpoint
    from ownwords.drafts.drafting import DraftLine
    from ownwords.drafts.endpoint_drafting import EndpointWriter
    from ownwords.inference.model import Model

OWN = "own"
_CLEARED = "\r\033[K"  # the line of the cursor
DraftFile = Annotated[
    Path | None, Parameter(name="DRAFT", help="A text file. [default: standard input]")
]


@with_help
def voice(
    workspace: WorkspaceOption = None,
    *,
    about: str = "",
    words: int = 1200,
    format: Literal["text", "skill", "modelfile"] = "text",
    output: OutputOptions = OUTPUT,
) -> None:
    """Describe how you write, counted, as instructions for a model or a ghost-writer.

    Args:
        about: The task; the card then quotes passages close to it.
        words: The approximate length of the card.
        format: Write text, a SKILL.md for agents, or a Modelfile for Ollama.
    """
    from ownwords.archive.store import Archive
    from ownwords.core.validation import encode
    from ownwords.drafts.voice_card import voice_card

    check_positive("--words", words)
    with Archive(resolve_workspace(workspace, Path.cwd()).archive) as archive:
        card = voice_card(archive, about, words)
    if output.json:
        print_json(encode(card))
    elif format == "skill":
        print(card.skill, end="")
    else:
        print(card.modelfile() if format == "modelfile" else card.text, end="")


def check(
    draft: DraftFile = None, *, workspace: WorkspaceOption = None, output: OutputOptions = OUTPUT
) -> None:
    """Judge whether a draft is more like your posts than like others' writing, and where not.

    Others are other people and, in English, language models. It counts words and needs no model;
    posts may be in English, German, French or Spanish. Nothing leaves this machine.
    """
    from ownwords.archive.store import Archive
    from ownwords.core.validation import encode
    from ownwords.drafts.check import AuthorStyle, check_view
    from ownwords.view.terminal import TerminalWriter

    text = text_in(draft, "a draft to check")
    place = resolve_workspace(workspace, Path.cwd())
    with Archive(place.archive) as archive:
        found = AuthorStyle.of(archive).check(text)
    output.show(encode(found), lambda console: TerminalWriter(console).blocks(check_view(found)))


@with_help
def draft(
    notes: Annotated[Path | None, Parameter(name="NOTES")] = None,
    *,
    with_: Annotated[str, Parameter(name="--with")] = "",
    options: ModelOptions = MODEL,
    output: OutputOptions = OUTPUT,
) -> None:
    """Write a text from notes, one sentence per line, and show each line as it is written.

    A model on a server writes paragraph by paragraph, from up to eight tries each.

    Args:
        notes: A text file with one line per sentence; a blank line begins a paragraph, and a first
            line that begins with # is the title. [default: standard input]
        with_: The model that writes: one that runs here (ollama:gemma3:4b), the address of a server
            (with --model NAME, or http://127.0.0.1:8080/v1#NAME), or own. [default: the model
            that Ollama, llama.cpp, LM Studio or vLLM runs here, once you have allowed it; otherwise
            own]
    """
    from ownwords.drafts import drafting
    from ownwords.drafts.mark_choices import MarkChoices, MarksFile

    text = text_in(notes, "notes")
    read, seed = drafting.Notes.parse(text), options.first_seed
    lines: list[drafting.DraftLine] = []
    problem, choices = "", MarkChoices()
    with suppress(OwnwordsError):  # there need be none
        choices = MarksFile.beside(resolve_workspace(options.workspace, Path.cwd()).archive)()
    with ExitStack() as opened:
        if endpoint := _endpoint(with_, options, output):
            writer = opened.enter_context(
                _endpoint_writer(endpoint, text, options.workspace, output)
            )
            name, unit, written = endpoint.name, "paragraph", writer.paragraphs(read, seed=seed)
        else:
            folder, model = _load_drafting(options, is_quiet=output.quiet or output.json)
            name, unit = path_text(folder), "line"
            written = drafting.write_lines(model, read, seed=seed)
        is_shown = endpoint is not None and _shows_tries(output)
        pieces = _pieces(drafting.with_rules(written, choices), lines, has_status=is_shown)
        try:
            if output.json:
                deque(pieces, maxlen=0)
            else:
                show_pieces(pieces, has_whole_words=True)
        except OwnwordsError as error:
            if not (output.json and lines):  # what was printed stays
                raise
            problem = str(error)
    if output.json:
        about = {"model": name, "seed": seed} | ({"problem": problem} if problem else {})
        print_json(about | drafting.Draft(tuple(lines)).to_dict())
    elif not output.quiet:
        _print_left(lines, unit)


@with_help
def rewrite(
    text: DraftFile = None,
    *,
    with_: Annotated[str, Parameter(name="--with")] = "",
    without: tuple[int, ...] = (),
    workspace: WorkspaceOption = None,
    output: OutputOptions = OUTPUT,
) -> None:
    """Rewrite a draft by your habits: contractions, spelling, numerals, marks, long sentences.

    Each edit replaces one form by another with the same meaning.

    Args:
        with_: Also let this model rewrite each sentence: ollama:gemma3:4b, or the address of a
            server (http://127.0.0.1:8080/v1#NAME). [default: none]
        without: Undo the edit with this number; may be repeated. [default: none]
    """
    from rich.text import Text

    from ownwords.archive.store import Archive
    from ownwords.ask.servers import open_backend
    from ownwords.core.fingerprint import digest
    from ownwords.drafts import rewriting
    from ownwords.drafts.mark_choices import MarksFile
    from ownwords.drafts.rewriting import Habits

    draft = text_in(text, "a draft to rewrite")
    endpoint = open_backend(with_) if with_ else None
    place = resolve_workspace(workspace, Path.cwd())
    with Archive(place.archive) as archive:
        habits = Habits.of(archive)
    with (
        _endpoint_writer(endpoint, draft, workspace, output) if endpoint else nullcontext()
    ) as writer:
        whole = rewriting.rewrite(draft, habits, writer)
    rewritten = whole.without(without)
    if undone := [whole.edits[number - 1] for number in without if 0 < number <= len(whole.edits)]:
        forms = [(edit.kind, edit.before, edit.after) for edit in undone]
        marks = MarksFile.beside(place.archive)
        marks.change(lambda choices: choices.kept_forms(digest(draft)[:8], forms))
    if output.json:
        print_json(rewritten.to_dict())
        return
    print(str(rewritten).removesuffix("\n"))
    if output.quiet:
        return
    console = stderr()
    for sentence in rewritten.sentences:
        if sentence.is_rewritten:
            console.print(f"- {sentence.before}", style="red", markup=False, highlight=False)
            console.print(f"+ {sentence.after}", style="green", markup=False, highlight=False)
    if rewritten.problem:
        print(f"The other sentences stay as they are: {rewritten.problem}", file=sys.stderr)
    if endpoint:
        print(
            f"Unchanged: {rewritten.unchanged} of {len(rewritten.sentences)} sentences.",
            file=sys.stderr,
        )
    for number, edit in enumerate(rewritten.edits, 1):
        line = Text(f"{number:3} ").append(edit.before or "nothing", "red").append(" -> ")
        console.print(line.append(edit.after or "nothing", "green").append(f"  {edit.because}"))


def _pieces(
    written: "Iterable[DraftLine]", lines: "list[DraftLine]", *, has_status: bool
) -> "Iterator[str]":
    """Yield the text of a draft line by line, and collect the lines.

    With a status on the line of the cursor, each paragraph ends with its blank line.
    """
    for line in written:
        lines.append(line)
        if not has_status:
            yield f"{line.before}{line}"
            continue
        print(_CLEARED, end="", file=sys.stderr, flush=True)
        yield f"{line.before.lstrip()}{line}\n\n"


def _shows_tries(output: OutputOptions) -> bool:
    return sys.stderr.isatty() and not (output.quiet or output.json)


def _print_left(lines: "Sequence[DraftLine]", unit: str) -> None:
    """Say which lines or paragraphs stay as notes, and what may not be kept in the others."""
    if left := sum(not line.kept for line in lines):
        print(f"{left} of {len(lines)} {unit}s stay as notes, in brackets.", file=sys.stderr)
    for number, line in enumerate(lines, 1):
        for doubt in line.doubts:
            print(f"Check {unit} {number}: {doubt}", file=sys.stderr)


def _endpoint(named: str, options: ModelOptions, output: OutputOptions) -> "Endpoint | None":
    """Return the model on a server that is named, or an allowed one here; None for our own."""
    from ownwords.ask.servers import open_backend

    if named == OWN or (options.model and not named):
        return None
    if named:
        endpoint = open_backend(named)
        endpoint.model = str(options.model or endpoint.model)
        return endpoint
    try:
        has_posts = resolve_workspace(options.workspace, Path.cwd()).archive.exists()
    except OwnwordsError:
        has_posts = False
    found, advice = allowed_backend(output, "--with") if has_posts else (None, "")
    if advice and not output.quiet:
        print(advice, file=sys.stderr)
    return found


@contextmanager
def _endpoint_writer(
    endpoint: "Endpoint", about: str, workspace: Path | None, output: OutputOptions
) -> "Iterator[EndpointWriter]":
    """Return a writer with the author's card for a text; print which model gets what."""
    from ownwords.archive.store import Archive
    from ownwords.drafts.check import AuthorStyle
    from ownwords.drafts.endpoint_drafting import TRIES, EndpointWriter
    from ownwords.drafts.voice_card import voice_card

    if not endpoint.model:
        endpoint.list_models()
    is_shown = _shows_tries(output)
    if not (output.quiet or output.json):
        print(
            f"Writing with {endpoint.name}, which receives this text, a description of how you"
            " write, and passages of your posts.",
            file=sys.stderr,
        )

    def on_text(number: int, text: str) -> None:
        if is_shown:
            words = len(text.split())
            print(
                f"{_CLEARED}Try {number} of at most {TRIES + 2}: {words} words",
                end="",
                file=sys.stderr,
            )

    with Archive(resolve_workspace(workspace, Path.cwd()).archive) as archive:

        def card(words: int) -> str:
            return voice_card(archive, about=about, words=words).text

        yield EndpointWriter(endpoint, partial(AuthorStyle.of, archive), card, on_text)


def _load_drafting(options: ModelOptions, *, is_quiet: bool) -> "tuple[Path, Model]":
    """Load the model given, that of the workspace, or a base with its adapter; print which."""
    from ownwords.base import catalogue
    from ownwords.drafts import drafting
    from ownwords.inference.model import Model

    place = options.workspace or Path.cwd()
    own = options.directory if options.model or has_model(place) or not place.exists() else None
    folder = drafting.choose_model(own, is_required=options.model is not None)
    adapter = drafting.adapter_of(folder)
    model = Model.load(folder, device=options.device, adapter=adapter)
    if not is_quiet:
        name = f"the model in {relative_path(folder)}"
        if adapter:
            name = f"{catalogue.display_name(folder)}, which has read none of your posts"
        if own and own != folder:
            name += f"; the model in {relative_path(own)} has not learned to write from notes"
        print(f"Writing with {name}.", file=sys.stderr)
    return folder, model
