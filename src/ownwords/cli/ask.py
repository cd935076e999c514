"""`ownwords ask`."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.output import are_terminals
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import Progress

if TYPE_CHECKING:
    from ownwords.ask.answer import Answer
    from ownwords.ask.index import SearchIndex
    from ownwords.ask.llm_backends import EndpointBackend, LLMBackend
    from ownwords.ask.search import ArchiveSearcher
    from ownwords.core.workspace import Workspace

_PASSAGES, _MOST_PASSAGES = 8, 50
_STDIN = "-"
_LIKE_AN_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?", re.DOTALL)
_ADVICE = (
    "No model runs on this machine, so these are the passages themselves. With Ollama, LM Studio or"
    " llama.cpp running, or a model named with --model, the answer is put into words."
)
_BY_WORDS = (
    "Your posts were searched by their words. They may say it in others: ask it another way, or"
    " search by meaning, too, with --embed minilm."
)
HELP = "Ask your archive, a question a line. An empty line, or Ctrl-D, ends it."


def ask(
    *question: Annotated[
        str,
        Parameter(
            name="QUESTION",
            allow_leading_hyphen=True,  # - is one
            help="What you want to know; - reads it from standard input. [default: asks you, one"
            " question after another]",
        ),
    ],
    workspace: Annotated[
        Path | None,
        Parameter(help="What to ask. [default: this folder, or the only NAME.ownwords here]"),
    ] = None,
    model: Annotated[
        str,
        Parameter(
            show_default=False,
            help="Who puts the answer into words: a model directory, a GGUF file, the name of a"
            " base or of a model that runs here, or an address (http://127.0.0.1:8080/v1#NAME)."
            " [default: what Ollama, llama.cpp, LM Studio or vLLM run here, once you allowed it]",
        ),
    ] = "",
    no_model: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Only show the passages. [default: no]"),
    ] = False,
    embed: Annotated[
        str,
        Parameter(
            show_default=False,
            help="Search by meaning, too: minilm, a folder of sentence-transformers, or an"
            " endpoint's address. [default: by words alone]",
        ),
    ] = "",
    passages: Annotated[int, Parameter(help="Look at so many passages.")] = _PASSAGES,
    seed: Annotated[int, Parameter(help="The luck of the answer.")] = 1,
    judge: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Ask nothing; say how well this archive is searched. [default: no]",
        ),
    ] = False,
    json: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Answer, citations and passages as one JSON object on stdout. [default: no]",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Show no progress. [default: no]"),
    ] = False,
) -> None:
    """Answer from the archive, with what the answer rests on; or show the passages."""
    from ownwords.ask.embedders import embed_missing, open_embedder
    from ownwords.ask.index import SearchIndex
    from ownwords.ask.search import ArchiveSearcher
    from ownwords.core.resolve import resolve_workspace

    if not 1 <= passages <= _MOST_PASSAGES:
        raise ConfigError(f"--passages should be from 1 to {_MOST_PASSAGES}, and is {passages}")
    if model and no_model:
        raise ConfigError("--model and --no-model cannot both be", hint="leave out one of them")
    text = "" if judge else _given(question, json)
    place = resolve_workspace(workspace, Path.cwd())
    embedder = open_embedder(embed)
    with SearchIndex(place.archive) as index:
        with _watched(quiet) as progress:
            index.refresh(progress)
            if embedder is not None:
                embed_missing(index, embedder, progress)
            if judge:
                _judge(place, index, ArchiveSearcher(index, embedder), progress, as_json=json)
                return
        searcher = ArchiveSearcher(index, embedder)
        backend, advice = (None, "") if no_model else _backend(model, may_ask=not json)
        if advice and json:
            print(advice, file=sys.stderr)
        asking = _AskSession(searcher, backend, passages, seed, advice, as_json=json, quiet=quiet)
        if text:
            asking.put(text)
        else:
            print(HELP, file=sys.stderr)
            asking.talk(_line)


class _AskSession:
    """Questions put to one archive, and their answers printed."""

    def __init__(
        self,
        searcher: "ArchiveSearcher",
        writer: "LLMBackend | None",
        passages: int,
        seed: int,
        advice: str,
        *,
        as_json: bool,
        quiet: bool,
    ) -> None:
        self._searcher, self._writer = searcher, writer
        self._passages, self._seed, self._advice = passages, seed, advice
        self._as_json, self._quiet = as_json, quiet

    def put(self, question: str) -> None:
        """Answer one question."""
        from ownwords.ask.answer import answer

        if self._as_json:
            from ownwords.cli.output import print_json

            told = answer(
                question, self._searcher, self._writer, limit=self._passages, seed=self._seed
            )
            print_json(told.to_dict())
            return
        from ownwords.cli.ask_view import AskView
        from ownwords.cli.output import stdout

        view = AskView(stdout())
        try:
            with self._waiting() as stop:

                def hears(sentence: str) -> None:
                    if sentence:
                        stop()
                        view.hears(sentence)

                told = answer(
                    question,
                    self._searcher,
                    self._writer,
                    on_text=hears,
                    limit=self._passages,
                    seed=self._seed,
                )
            view.show(told, self._advice_for(told))
        finally:
            view.end()

    def _advice_for(self, told: "Answer") -> str:
        if told.nearest and not self._searcher.embedder:
            return _BY_WORDS
        return self._advice if told.passages and not told.answer else ""

    def talk(self, line: Callable[[], str]) -> None:
        """Answer question after question, until the lines end or one is empty."""
        while True:
            try:
                said = line().strip()
            except (EOFError, KeyboardInterrupt):
                print(file=sys.stderr)
                return
            if not said:
                return
            try:
                self.put(said)
            except KeyboardInterrupt:  # of this answer, not of the whole
                print("(ended)", file=sys.stderr)
            except OwnwordsError as error:
                print(str(error), file=sys.stderr)

    @contextmanager
    def _waiting(self) -> Iterator[Callable[[], None]]:
        """Who is at work, while nothing can be shown yet; on a terminal, and gone in the end."""
        if self._writer is None or self._quiet or not sys.stderr.isatty():
            yield lambda: None
            return
        from rich.text import Text

        from ownwords.cli.output import stderr

        status = stderr().status(Text(f"{self._writer.name} reads the passages"))
        status.start()
        try:
            yield status.stop
        finally:
            status.stop()


def _given(question: Sequence[str], as_json: bool) -> str:
    """The question; empty where somebody is there to be asked for one."""
    if misspelt := next(filter(_LIKE_AN_OPTION.fullmatch, question), None):
        raise ConfigError(f"unknown option: {misspelt}", hint="ownwords ask --help")
    text = " ".join(question).strip()
    if text == _STDIN:
        if sys.stdin is None:  # as where whoever started this closed it
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


def _backend(model: str, *, may_ask: bool) -> tuple["LLMBackend | None", str]:
    """What writes the answers, or None and why; a server that nobody named needs consent."""
    from ownwords.ask import llm_backends
    from ownwords.ask.consent import EndpointConsent, consent_file

    if model:
        return llm_backends.open_backend(model, folder_of=_base), ""
    backend = llm_backends.default_backend()
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


def _judge(
    place: "Workspace",
    index: "SearchIndex",
    searcher: "ArchiveSearcher",
    progress: Progress,
    *,
    as_json: bool,
) -> None:
    from ownwords.archive.store import Archive
    from ownwords.ask.retrieval_eval import evaluate_retrieval

    with Archive(place.archive) as archive:
        judgement = evaluate_retrieval(index, archive, searcher, progress)
    if as_json:
        from ownwords.cli.output import print_json

        print_json(judgement.to_dict())
    else:
        print(judgement.as_text())


@contextmanager
def _watched(quiet: bool) -> Iterator[Progress]:
    if quiet:
        yield Progress()
        return
    from ownwords.cli.progress_bars import ProgressBars

    with closing(ProgressBars()) as bars:
        yield Progress(bars)


def _line() -> str:
    with suppress(ImportError):  # lines can then be edited, and earlier ones called back
        import readline  # noqa: F401
    return input("? ")
