"""The command line in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import ownwords
from ownwords.cli.main import main
from ownwords.inference.engine_loader import describe_cpu_engine

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and pseudo-terminals")

# The verbs are called as they are; what `look` does is played by a few lines.
PLAY = """
import sys, time, types
from pathlib import Path
from dataclasses import asdict
from ownwords.archive.analysis import PostQuestion
from ownwords.archive.report import Report
from ownwords.core.errors import SourceError

def look(paths, *, workspace, archive, provenance, split, progress, ask, export):
    with progress.stage("Reading", total=1, unit="posts"):
        {body}
    notes = [repr(asdict(archive))]
    return Report(
        name="Дневник", fingerprint="f", version="1", created_on="2020-01-01", notes=notes
    )

def print_view(report, console, page):
    console.print(report.name)
    for note in report.notes:
        console.print(note, markup=False, soft_wrap=True)

stage = types.ModuleType("ownwords.archive.look")
stage.look = look
sys.modules["ownwords.archive.look"] = stage
content = types.ModuleType("ownwords.archive.report_view")
content.report_view = lambda report: report
sys.modules["ownwords.archive.report_view"] = content
from ownwords.view import terminal
terminal.print_view = print_view
from ownwords.ask import encoder
encoder.open_embedder = lambda name: None  # an encoder may be installed
from ownwords.cli.main import run
run()
"""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    ours = ("OWNWORDS_", "NO_COLOR", "FORCE_COLOR", "TTY_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return inherited | {"PYTHONIOENCODING": "utf-8", "COLUMNS": "80"} | dict(more or {})


def call(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return run_command([sys.executable, "-m", "ownwords", *arguments], env, cwd)


def run_command(
    command: list[str], env: Mapping[str, str] | None, cwd: Path | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        env=environment(env),
        cwd=cwd,
        timeout=60,
        check=False,
    )


def command(body: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", PLAY.replace("{body}", body), *arguments]


def play(
    body: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    return run_command(command(body, *arguments), env, cwd)


@pytest.mark.parametrize(
    "code",
    [
        "import ownwords",
        "from ownwords.cli.main import main; main(['--help'])",
    ],
)
def test_heavy_imports_are_lazy(code: str) -> None:
    heavy = ["torch", "numpy", "lxml", "selectolax", "ftfy", "feedparser", "markdown_it"]
    code += f"\nimport sys; print([name for name in {heavy} if name in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    assert process.stdout.splitlines()[-1] == "[]"


def test_the_version_is_printed() -> None:
    process = call("--version")
    assert (process.returncode, process.stdout.strip()) == (0, ownwords.__version__)


@pytest.mark.parametrize("verb", ["look", "doctor"])
def test_every_verb_explains_itself_with_an_example(verb: str) -> None:
    process = call(verb, "--help")
    assert process.returncode == 0
    assert f"Example: ownwords {verb}" in process.stdout
    for option in ("--workspace", "--config", "--set", "--yes", "--json", "--quiet"):
        assert option in process.stdout
    assert max(map(len, process.stdout.splitlines())) <= 80
    assert "\x1b" not in process.stdout


def test_an_unknown_ownwords_variable_is_refused() -> None:
    process = call("doctor", env={"OWNWORDS_ARCHIVE_DRAFTS": "1"})
    assert process.returncode == 2
    assert "did you mean OWNWORDS_ARCHIVE__DRAFTS?" in process.stderr


def test_the_doctor_says_one_json_object() -> None:
    process = call("doctor", "--json", "--set", "archive.drafts=true")
    report = json.loads(process.stdout)
    assert process.returncode == 0
    assert report["cpu"]["usable_cores"] >= 1
    assert report["settings"]["archive.drafts"] == {"value": True, "origin": "--set"}
    assert report["settings"]["archive.hidden"]["origin"] == "default"


def test_the_doctor_prints_a_page() -> None:
    process = call("doctor", "--quiet", "--set", "archive.drafts=true")
    assert (process.returncode, process.stderr) == (0, "")
    for word in ("Processor", "Memory", "GFLOP/s", "torch", "archive.drafts = True (--set)"):
        assert word in process.stdout
    assert describe_cpu_engine()[0] in " ".join(process.stdout.split())


def test_the_doctor_names_the_engine_and_the_reason() -> None:
    process = call("doctor", "--json", env={"OWNWORDS_ISA": "none"})
    writing = json.loads(process.stdout)["writing"]
    assert writing["engine"] == "PyTorch"
    assert writing["why"] == "the part in C++ is switched off by OWNWORDS_ISA=none"
    (native,) = (
        part for part in json.loads(process.stdout)["parts"] if part["name"] == "Part in C++"
    )
    assert native["problem"] == writing["why"]


def test_results_go_to_stdout_and_progress_to_stderr() -> None:
    process = play("progress.note('half way'); time.sleep(1.1)", "look", "x")
    assert (process.returncode, process.stdout.splitlines()[0]) == (0, "Дневник")
    assert "half way" in process.stderr
    assert "Reading: done in" in process.stderr

    process = play("progress.note('half way')", "look", "x", "--json")
    assert json.loads(process.stdout)["name"] == "Дневник"
    assert "half way" in process.stderr

    process = play("progress.note('half way')", "look", "x", "--quiet")
    assert process.stderr == ""


def test_json_is_escaped_for_an_ascii_output() -> None:
    process = play("pass", "look", "x", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert process.stdout.isascii()
    assert json.loads(process.stdout)["name"] == "Дневник"
    assert play("pass", "look", "x", env={"PYTHONIOENCODING": "ascii"}).returncode == 0


def test_settings_come_from_files_the_environment_and_flags(tmp_path: Path) -> None:
    work = tmp_path / "blog.ownwords"
    work.mkdir()
    (tmp_path / "ownwords.toml").write_text("[archive]\nhidden = true\nprivate = true\n")
    (work / "ownwords.toml").write_text("[archive]\nprivate = false\npages = false\n")
    process = play(
        "pass",
        "look",
        "blog",
        "--no-hidden",
        "--json",
        env={"OWNWORDS_ARCHIVE__DRAFTS": "true"},
        cwd=tmp_path,
    )
    (note,) = json.loads(process.stdout)["notes"]
    for expected in ("'drafts': True", "'hidden': False", "'private': False", "'pages': False"):
        assert expected in note


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("raise SourceError('no\\nposts \\x1b[31m', hint='look')", 2, "ownwords: no posts ?[31m"),
        ("raise OSError(28, 'full', 'x.sqlite')", 2, "ownwords: x.sqlite: the disk is full"),
        ("raise PermissionError(13, 'no', 'x')", 2, "ownwords: x: permission denied"),
        ("raise MemoryError", 2, "ownwords: there is not enough memory for this"),
        (
            "raise type('OutOfMemoryError', (RuntimeError,), {})('of PyTorch')",
            2,
            "ownwords: there is not enough memory for this",
        ),
    ],
)
def test_errors_of_the_environment_are_one_sentence(body: str, status: int, message: str) -> None:
    process = play(body, "look", "x")
    assert (process.returncode, process.stdout) == (status, "")
    assert process.stderr.splitlines()[0] == message


@pytest.mark.parametrize("body", ["1 / 0", "Path('/nowhere/at/all').read_text()"])
def test_a_bug_shows_its_traceback_and_how_to_report_it(body: str) -> None:
    process = play(body, "look", "x", "--json")
    assert process.returncode == 1
    assert "Traceback" in process.stderr
    assert process.stderr.splitlines()[-1].startswith("ownwords: this is a bug; please report it")
    assert "bug" in json.loads(process.stdout)["error"]["message"]


@POSIX
def test_a_closed_pipe_prints_no_error() -> None:
    for arguments in (["look", "x"], ["look", "x", "--json"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            process = subprocess.run(
                command("pass", *arguments),
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
    for extra in ([], ["--json"]):
        process = subprocess.Popen(
            command(body, "look", "x", *extra),
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
        assert not extra or json.loads(out)["error"]["message"] == "interrupted"


ASKS = (
    "answer = ask(PostQuestion('a', 'A long post', 'Which?', {'cap': 'x', 'keep': 'y'}, 'keep'))"
    " if ask else 'nobody'; progress.note('chosen: ' + answer)"
)


@POSIX
@pytest.mark.parametrize(
    ("typed", "arguments", "status", "expected"),
    [
        ("1\n", [], 0, "chosen: cap"),
        ("\n", [], 0, "chosen: keep"),
        ("7\n1\n", [], 0, "chosen: cap"),
        ("\x04", [], 130, "ownwords: interrupted"),
        ("", ["--yes"], 0, "chosen: nobody"),
        ("", ["--json"], 0, "chosen: nobody"),
    ],
)
def test_questions_are_asked_only_on_a_terminal(
    typed: str, arguments: list[str], status: int, expected: str
) -> None:
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen(
        command(ASKS, "look", "x", *arguments),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=environment({"TERM": "xterm", "NO_COLOR": "1"}),
    )
    os.close(slave)
    os.write(master, typed.encode("ascii"))
    out, _ = process.communicate(timeout=30)
    output = b""
    try:
        while piece := os.read(master, 65536):
            output += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(master)
    assert process.returncode == status
    assert expected in output.decode("utf-8")
    assert b"A long post" not in out
    assert ("A long post" in output.decode("utf-8")) == (not arguments)


def test_without_a_terminal_no_question_is_asked() -> None:
    assert "chosen: nobody" in play(ASKS, "look", "x").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lok"], "ownwords has no 'lok'; did you mean look?"),
        (["zzz"], "ownwords has no 'zzz'; it has make, look, "),
        (["make", "blog", "--minutes", "x"], "--minutes should be a number, and is 'x'"),
        (["tune", "blog", "--trials", "few"], "--trials should be a whole number, and is 'few'"),
        (["look", "blog", "--yes=3"], "--yes is a switch and takes no value"),
        (["look", "--drfts", "x"], "unknown option: --drfts. Did you mean --drafts?"),
        (["look"], "ownwords look needs a PATH"),
        (["look", "x", "--export"], "--export needs a value"),
        (["doctor", "now"], "ownwords doctor takes no 'now'"),
        (
            ["doctor", "--set", "archive.draft=1"],
            '--set: there is no setting "archive.draft"; did you mean',
        ),
        (["doctor", "--set", "archive.drafts=perhaps"], "--set: archive.drafts"),
        (["doctor", "--config", "none.toml"], "the settings file none.toml does not exist"),
        (["export"], "ownwords export needs a MODEL"),
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
