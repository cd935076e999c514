"""The command line: its verbs, streams, settings, errors and exit statuses."""

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import ownwords
from ownwords.archive import look
from ownwords.archive.report import Report
from ownwords.archive.settings import ArchiveConfig, LookSettings
from ownwords.ask import encoder
from ownwords.cli.main import build, main
from ownwords.core import packages
from ownwords.core.errors import SourceError
from ownwords.core.packages import install_command
from ownwords.core.progress import Progress
from ownwords.inference.model import describe_cpu_engine
from unit import sample_report

TESTS = Path(__file__).resolve().parents[1]
CLONE = TESTS.parent
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and pseudo-terminals")


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    ours = ("OWNWORDS_", "NO_COLOR", "FORCE_COLOR", "TTY_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    plain = {"PYTHONIOENCODING": "utf-8", "COLUMNS": "80", "PYTHONPATH": str(TESTS)}
    return inherited | plain | dict(more or {})


def test_heavy_imports_are_lazy() -> None:
    heavy = ["torch", "numpy", "lxml", "selectolax", "ftfy", "feedparser", "markdown_it"]
    code = "from ownwords.cli.main import main; main(['--help'])"
    code += f"\nimport sys; print([name for name in {heavy} if name in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    assert process.stdout.splitlines()[-1] == "[]"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == ownwords.__version__


BASE_VERBS = ("list", "add", "remove")
VERBS = [name for name in build() if not name.startswith("-")]


@pytest.mark.parametrize("verb", [*VERBS, *(f"base {name}" for name in BASE_VERBS)])
def test_every_verb_explains_itself_with_an_example(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*verb.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert text.count(f"  ownwords {verb}") >= 2 or verb == "base"
    options = ["--workspace"] if verb != "base" else []
    options += ["--yes", "--json", "--quiet"] if verb not in ("base", "mcp", "lsp") else []
    assert all(f"{option} " in text for option in options)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_the_doctor_says_the_same_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--set", "archive.drafts=true"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["cpu"]["usable_cores"] >= 1
    assert report["settings"]["archive.drafts"] == {"value": True, "origin": "--set"}
    assert report["settings"]["archive.hidden"]["origin"] == "default"
    assert main(["doctor", "--quiet", "--set", "archive.drafts=true"]) == 0
    text, errors = capsys.readouterr()
    assert errors == ""
    for word in ("Processor", "Memory", "torch", "archive.drafts = True (--set)"):
        assert word in text
    assert describe_cpu_engine()[0] in " ".join(text.split())


# The verbs are called as they are; what `look` does is played by a function.


class Play:
    """Stands in for `look`, and calls a function in its place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.body: Callable[[Progress], object] = lambda _: None
        self.archive: ArchiveConfig | None = None
        monkeypatch.setattr(look, "look", self.look)
        monkeypatch.setattr(encoder, "open_embedder", lambda _: None)
        for name in [name for name in os.environ if name.startswith("OWNWORDS_")]:
            monkeypatch.delenv(name)

    def look(
        self, paths: object, *, settings: LookSettings, progress: Progress, **_: object
    ) -> Report:
        self.archive = settings.archive
        with progress.stage("Reading", total=1, unit="posts"):
            self.body(progress)
        return replace(sample_report.one_post(), name="Дневник")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return Play(monkeypatch)


def test_results_go_to_stdout_and_progress_to_stderr(
    play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play.body = lambda progress: progress.note("half way")
    assert main(["look", "x"]) == 0
    output = capsys.readouterr()
    assert "Дневник" in output.out
    assert "half way" in output.err
    assert main(["look", "x", "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["name"] == "Дневник"
    assert "half way" in output.err
    assert main(["look", "x", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_an_ascii_output_is_escaped(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--json"], []):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii", write_through=True))
        assert main(["look", "x", *arguments]) == 0
        assert raw.getvalue().isascii()
        assert not arguments or json.loads(raw.getvalue())["name"] == "Дневник"


def test_settings_come_from_files_and_flags(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "blog.ownwords"
    work.mkdir()
    (tmp_path / "ownwords.toml").write_text("[archive]\nhidden = true\nprivate = true\n")
    (work / "ownwords.toml").write_text("[archive]\nprivate = false\npages = false\n")
    monkeypatch.chdir(tmp_path)
    assert main(["look", "blog", "--no-hidden", "--set", "archive.drafts=true", "--json"]) == 0
    assert play.archive
    found = play.archive.drafts, play.archive.hidden, play.archive.private, play.archive.pages
    assert found == (True, False, False, False)


@pytest.mark.parametrize("arguments", ["make blog", "export model --to gguf"])
def test_a_missing_package_is_named_with_what_to_install(
    arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda x: None if x == "torch" else find(x))
    assert main(arguments.split()) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert "which is not installed" in first
    assert hint == f"hint: {install_command('train')}"


def test_a_package_that_is_missed_on_the_way_is_named_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # so that importing it fails
    monkeypatch.setattr("ownwords.base.catalogue.entries", lambda: __import__("torch"))
    assert main(["base", "list"]) == 2
    assert install_command("train") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("direct", "what"),
    [
        ({"url": "file:///no/such/folder", "dir_info": {}}, "ownwords[train]"),
        ({"url": "file:///a%20folder/ownwords-0.1.whl"}, "/a folder/ownwords-0.1.whl[train]"),
        ({"url": CLONE.as_uri(), "dir_info": {"editable": True}}, f"{CLONE}[train]"),
        (
            {"url": "https://code.example/ownwords", "vcs_info": {"vcs": "git"}},
            "ownwords[train] @ git+https://code.example/ownwords",
        ),
        (None, f"{CLONE}[train]"),  # it was not installed, or from an index: here it is a clone
    ],
)
def test_what_is_missing_is_installed_from_where_ownwords_came(
    direct: object, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a release its name alone is found nowhere."""
    text = None if direct is None else json.dumps(direct)
    monkeypatch.setattr(
        packages, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text)
    )
    packages._origin.cache_clear()
    monkeypatch.setattr(sys, "prefix", "/nowhere")
    assert install_command("train") == f'pip install "{what}"'
    packages._origin.cache_clear()


class OutOfMemoryError(RuntimeError):
    """Named like PyTorch's."""


def failing(error: BaseException) -> Callable[[Progress], object]:
    def body(_: Progress) -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SourceError("no\nposts \x1b[31m", hint="look"), "ownwords: no posts ?[31m"),
        (OSError(28, "full", "x.sqlite"), "ownwords: x.sqlite: the disk is full"),
        (PermissionError(13, "no", "x"), "ownwords: x: permission denied"),
        (MemoryError(), "ownwords: there is not enough memory"),
        (OutOfMemoryError(), "ownwords: there is not enough memory"),
    ],
)
def test_errors_of_the_environment_are_one_sentence(
    error: BaseException, message: str, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play.body = failing(error)
    assert main(["look", "x"]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.splitlines()[0]) == ("", message)


@pytest.mark.parametrize("error", [ZeroDivisionError(), FileNotFoundError(2, "no", "/nowhere")])
def test_a_bug_shows_its_traceback_and_how_to_report_it(
    error: BaseException, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play.body = failing(error)
    assert main(["look", "x", "--json"]) == 1
    output = capsys.readouterr()
    assert "Traceback" in output.err
    assert output.err.splitlines()[-1].startswith("ownwords: this is a bug: report it")
    assert "bug" in json.loads(output.out)["error"]["message"]


# --- with real pipes, signals and terminals ------------------------------------------------------


def command(body: str, *arguments: str) -> list[str]:
    """A process in which `look` runs this code instead of reading."""
    code = (
        "import sys, time\n"
        "from ownwords.archive import look\n"
        "from ownwords.archive.analysis import PostQuestion\n"
        "from ownwords.ask import encoder\n"
        "from unit import sample_report\n"
        "def played(paths, *, progress, ask, **_):\n"
        f"    {body}\n"
        "    return sample_report.one_post()\n"
        "look.look, encoder.open_embedder = played, lambda _: None\n"
        "from ownwords.cli.main import run; run()"
    )
    return [sys.executable, "-c", code, "look", "x", *arguments]


@POSIX
def test_a_closed_pipe_prints_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = subprocess.run(
            command("pass", "--json"),
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (process.returncode, process.stderr) == (141, b"")


@POSIX
def test_ctrl_c_ends_with_a_clean_line_and_status_130() -> None:
    body = "print('ready', file=sys.stderr, flush=True); time.sleep(30)"
    process = subprocess.Popen(
        command(body, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(),
    )
    assert process.stderr
    assert process.stderr.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "ownwords: interrupted"
    assert "Traceback" not in err
    assert json.loads(out)["error"]["message"] == "interrupted"


ASKS = (
    "answer = ask(PostQuestion('a', 'A long post', 'Which?', {'cap': 'x', 'keep': 'y'}, 'keep'))"
    " if ask else 'nobody'; progress.note('chosen: ' + answer)"
)


@POSIX
@pytest.mark.parametrize(
    ("typed", "arguments", "status", "expected"),
    [
        ("7\n1\n", [], 0, "chosen: cap"),
        ("\x04", [], 130, "ownwords: interrupted"),
        ("", ["--yes"], 0, "chosen: nobody"),
    ],
)
def test_questions_are_asked_only_on_a_terminal(
    typed: str, arguments: list[str], status: int, expected: str
) -> None:
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen(
        command(ASKS, *arguments),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=environment({"TERM": "xterm", "NO_COLOR": "1"}),
    )
    os.close(slave)
    os.write(master, typed.encode("ascii"))
    out, _ = process.communicate(timeout=30)
    output = b""
    with suppress(OSError):  # how Linux says that the other end is closed
        while piece := os.read(master, 65536):
            output += piece
    os.close(master)
    assert process.returncode == status
    assert expected in output.decode("utf-8")
    assert b"A long post" not in out
    assert ("A long post" in output.decode("utf-8")) == (not arguments)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lok"], 'unknown command "lok". Did you mean "look"?'),
        (["make", "blog", "--minutes", "x"], 'invalid value for --minutes: unable to convert "x"'),
        (["look", "blog", "--yes=3"], "invalid value for --yes"),
        (["look", "--drfts", "x"], "unknown option: --drfts. Did you mean --drafts?"),
        (["look"], "ownwords look needs a PATH"),
        (["doctor", "now"], "ownwords doctor does not take 'now'"),
        (
            ["doctor", "--set", "archive.draft=1"],
            '--set: there is no setting "archive.draft"; did you mean',
        ),
        (["doctor", "--config", "none.toml"], "the settings file none.toml does not exist"),
    ],
)
def test_bad_input_gets_one_sentence_and_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    output = capsys.readouterr()
    first, *hints = output.err.splitlines()
    assert first.startswith(f"ownwords: {message}")
    assert len(hints) <= 1
    assert all(hint.startswith("hint: ") for hint in hints)
    assert output.out == ""
    assert main([*words, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].startswith(message)
    assert set(error) == {"message", "hint"}


@POSIX
def test_with_all_three_streams_closed_it_still_works(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Some words of mine.", encoding="utf-8")
    program = [sys.executable, "-m", "ownwords", "look", "a.txt", "--yes"]
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *program], cwd=tmp_path, check=False
    )
    assert closed.returncode == 0
    assert (tmp_path / "a.ownwords" / "report.html").exists()
