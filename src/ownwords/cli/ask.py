"""`ownwords ask`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.output import are_terminals
from ownwords.cli.parameters import Device, described, flag, refuse_options
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import Progress

if TYPE_CHECKING:
    from ownwords.ask.answer import Answer
    from ownwords.ask.encoder import BackgroundVectors
    from ownwords.ask.search import ArchiveSearcher
    from ownwords.ask.servers import EndpointBackend, LLMBackend

_PASSAGES, _MOST_PASSAGES = 8, 50
_STDIN = "-"
_ADVICE = (
    "No model runs on this machine, so these are the passages. For an answer in words, run Ollama,"
    " LM Studio or llama.cpp, or name a model with --model."
)
_BY_WORDS = (
    "The search compares words. Your posts may use others: rephrase the question, or search by"
    " meaning as well: {}."
)
_FIRST_VECTORS_S = 1.5  # to wait for the vectors of new posts before a question is answered
HELP = "Ask your archive, one question per line. An empty line or Ctrl-D ends."


def ask(
    *question: Annotated[
        str,
        Parameter(
            name="QUESTION",
            allow_leading_hyphen=True,  # for "-"
            help="The question; - reads it from standard input. [default: prompts for questions]",
        ),
    ],
    workspace: Annotated[
        Path | None,
        Parameter(help="The workspace. [default: this folder, or the only NAME.ownwords here]"),
    ] = None,
    model: Annotated[
        str,
        described(
            "The model that writes the answer: a model directory, a GGUF file, the name of a"
            " base or of a model that runs here, or an address (http://127.0.0.1:8080/v1#NAME)."
            " [default: what Ollama, llama.cpp, LM Studio or vLLM run here, once you allowed it]",
        ),
    ] = "",
    no_model: Annotated[
        bool,
        flag("Show the passages only."),
    ] = False,
    embed: Annotated[
        str,
        described(
            "The model that searches by meaning: minilm, multilingual or hf:ORG/NAME"
            " (downloaded once), a folder of sentence-transformers, the address of an endpoint, or"
            " none to search by words only. [default: minilm if it is installed]",
        ),
    ] = "",
    device: Device = "auto",
    passages: Annotated[int, Parameter(help="The number of passages.")] = _PASSAGES,
    seed: Annotated[int, Parameter(help="The random seed of the answer.")] = 1,
    json: Annotated[
        bool,
        flag("Answer, citations and passages as one JSON object on stdout."),
    ] = False,
    quiet: Annotated[
        bool,
        flag("Show no progress."),
    ] = False,
) -> None:
    """Answer a question from your posts, with citations, or show the matching passages."""
    from ownwords.ask.encoder import BackgroundVectors, embed_missing, open_embedder
    from ownwords.ask.index import SearchIndex
    from ownwords.ask.search import ArchiveSearcher
    from ownwords.core.workspace import resolve_workspace

    if not 1 <= passages <= _MOST_PASSAGES:
        raise ConfigError(f"--passages must be from 1 to {_MOST_PASSAGES}, not {passages}")
    if model and no_model:
        raise ConfigError("--model and --no-model exclude each other", hint="give only one of them")
    text = _question_text(question, json)
    place = resolve_workspace(workspace, Path.cwd())
    embedder = open_embedder(embed)
    with SearchIndex(place.archive) as index:
        with _watched(quiet) as progress:
            index.refresh(progress)
            if embedder is not None and embed:
                embed_missing(index, embedder, progress)
        searcher = ArchiveSearcher(index, embedder)
        backend, advice = (None, "") if no_model else _backend(model, device, may_ask=not json)
        if advice and json:
            print(advice, file=sys.stderr)
        asking = _AskSession(searcher, backend, passages, seed, advice, as_json=json, quiet=quiet)
        vectors = BackgroundVectors(index, embedder) if embedder and not embed else None
        try:
            if vectors:
                vectors.wait(_FIRST_VECTORS_S)
            if text:
                asking.put(text)
            else:
                print(HELP, file=sys.stderr)
                asking.talk(_line)
        finally:
            if vectors:
                vectors.stop()
        if vectors and not quiet and not json and (missing := vectors.missing()):
            _finish(vectors, missing)


class _AskSession:
    """Answers questions from one archive and prints the answers."""

    def __init__(
        self,
        searcher: "ArchiveSearcher",
        backend: "LLMBackend | None",
        passages: int,
        seed: int,
        advice: str,
        *,
        as_json: bool,
        quiet: bool,
    ) -> None:
        self._searcher, self._backend = searcher, backend
        self._passages, self._seed, self._advice = passages, seed, advice
        self._as_json, self._quiet = as_json, quiet

    def put(self, question: str) -> None:
        """Answer one question."""
        from ownwords.ask.answer import answer

        if self._as_json:
            from ownwords.cli.output import print_json

            result = answer(
                question, self._searcher, self._backend, limit=self._passages, seed=self._seed
            )
            print_json(result.to_dict())
            return
        from ownwords.cli.ask_view import AskView
        from ownwords.cli.output import stdout

        view = AskView(stdout())
        try:
            with self._waiting() as stop:

                def on_text(sentence: str) -> None:
                    if sentence:
                        stop()
                        view.stream(sentence)

                result = answer(
                    question,
                    self._searcher,
                    self._backend,
                    on_text=on_text,
                    limit=self._passages,
                    seed=self._seed,
                )
            view.show(result, self._advice_for(result))
        finally:
            view.end()

    def _advice_for(self, result: "Answer") -> str:
        if result.nearest and not self._searcher.embedder:
            from ownwords.ask.encoder import INSTALL

            return _BY_WORDS.format(INSTALL)
        return self._advice if result.passages and not result.answer else ""

    def talk(self, line: Callable[[], str]) -> None:
        """Answer one question after another until an empty line or the end of input."""
        while True:
            try:
                question = line().strip()
            except (EOFError, KeyboardInterrupt):
                print(file=sys.stderr)
                return
            if not question:
                return
            try:
                self.put(question)
            except KeyboardInterrupt:  # ends this answer only
                print("(ended)", file=sys.stderr)
            except OwnwordsError as error:
                print(str(error), file=sys.stderr)

    @contextmanager
    def _waiting(self) -> Iterator[Callable[[], None]]:
        """Show which model is reading, on a terminal, until there is something to print."""
        if self._backend is None or self._quiet or not sys.stderr.isatty():
            yield lambda: None
            return
        from rich.text import Text

        from ownwords.cli.output import stderr

        status = stderr().status(Text(f"{self._backend.name} is reading the passages"))
        status.start()
        try:
            yield status.stop
        finally:
            status.stop()


def _finish(vectors: "BackgroundVectors", missing: int) -> None:
    """Make the vectors that the answer had to do without, where somebody can see and end it."""
    if not sys.stderr.isatty():
        return
    print(
        f"The search by meaning did not know {missing:,} passages yet. It reads them now, once;"
        " Ctrl-C ends it, and the next question continues.",
        file=sys.stderr,
    )
    with suppress(KeyboardInterrupt), _watched(quiet=False) as progress:
        vectors.finish(progress)


def _question_text(question: Sequence[str], as_json: bool) -> str:
    """The question; empty if the user will be prompted for questions."""
    refuse_options(question, "ownwords ask")
    text = " ".join(question).strip()
    if text == _STDIN:
        if sys.stdin is None:  # closed by the parent process
            raise OwnwordsError("there is no standard input to read", hint="give the question")
        text = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    elif not question and not as_json and _is_talk():
        return ""
    if not text:
        raise ConfigError(
            "ownwords ask needs a question", hint='ownwords ask "What did I say about backups?"'
        )
    return text


def _is_talk() -> bool:
    return are_terminals(sys.stdin, sys.stdout)


def _backend(model: str, device: str, *, may_ask: bool) -> tuple["LLMBackend | None", str]:
    """What writes the answers, or None and why; a server that nobody named needs consent."""
    from ownwords.ask import servers
    from ownwords.ask.servers import EndpointConsent, consent_file

    if model:
        return servers.open_backend(model, folder_of=_base, device=device), ""
    backend = servers.default_backend()
    if backend is None:
        return None, _ADVICE
    consent = EndpointConsent.read()
    decided = backend.url in (*consent.allowed, *consent.refused)
    if not decided and may_ask and are_terminals(sys.stdin, sys.stderr):
        consent = consent.with_decision(backend.url, _may_send(backend))
    if backend.url in consent.allowed:
        return backend, ""
    why = f" ({consent_file()} refuses it)" if backend.url in consent.refused else ""
    return None, (
        f"{backend.name} answers at {backend.url}, and nothing was sent to it{why}. To have it"
        f" write the answer, name it: --model {backend.option}"
    )


def _may_send(backend: "EndpointBackend") -> bool:
    """Ask the user whether a server that runs on this machine may get passages."""
    from rich.prompt import Confirm
    from rich.text import Text

    from ownwords.cli.output import stderr

    console = stderr()
    console.print(
        Text(
            f"{backend.name} answers at {backend.url}. It can write the answers, and gets your"
            " questions and the passages of your posts that match them. This is asked once."
        )
    )
    try:
        return Confirm.ask("Send them", console=console, default=False)
    except EOFError:
        return False


def _base(name: str) -> Path | None:
    """The folder of a base of that name."""
    from ownwords.base import catalogue

    try:
        return catalogue.find(name)
    except OwnwordsError:
        return None


@contextmanager
def _watched(quiet: bool) -> Iterator[Progress]:
    if quiet:
        yield Progress()
        return
    from ownwords.cli.progress_bars import ProgressBars

    with closing(ProgressBars()) as bars:
        yield Progress(bars)


def _line() -> str:
    with suppress(ImportError):  # enables editing and history
        import readline  # noqa: F401
    return input("? ")
