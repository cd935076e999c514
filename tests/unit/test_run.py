"""The folder of a run: found by its key, locked by one process, its files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ownwords.core.errors import WorkspaceError
from ownwords.core.progress import Progress
from ownwords.training.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.new(tmp_path / "runs", "a1b2")


def test_a_run_is_found_by_its_key(run: Run, tmp_path: Path) -> None:
    run.write_config("[train]\nsteps = 3  # --set\n")
    reopened = Run.new(tmp_path / "runs", "a1b2")
    assert reopened.folder == run.folder
    assert reopened.config.read_text("utf-8") == "[train]\nsteps = 3  # --set\n"
    assert Run.new(tmp_path / "runs", "c3").folder != run.folder


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "../x", "a\\b", "x" * 101])
def test_a_key_with_a_path_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot be the name of a run"):
        Run.new(tmp_path, key)
    assert not list(tmp_path.iterdir())


def test_events_are_recorded_while_the_run_is_open(run: Run) -> None:
    lines_seen: list[str] = []
    outer = Progress(lambda event: lines_seen.append(event.message))
    for word in ("first", "second"):
        with run.opened(outer) as progress:
            progress.note(word)
    outer.note("after")
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert [line["message"] for line in lines] == ["first", "second"]
    assert lines_seen == ["first", "second", "after"]
    with run.opened(outer, writes=False) as progress:
        progress.note("by another rank")
    assert len(run.metrics.read_text().splitlines()) == 2


def test_a_run_is_locked_until_its_process_ends(run: Run) -> None:
    program = (
        "import sys, pathlib; from ownwords.training.run import Run;"
        "from ownwords.core.progress import Progress\n"
        "with Run(pathlib.Path(sys.argv[1])).opened(Progress()):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(run.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with (
            pytest.raises(WorkspaceError, match=r"another process is training the run .*a1b2"),
            run.opened(Progress()),
        ):
            pass
        with run.opened(Progress(), writes=False):  # another rank of the same training
            pass
        process.kill()
    with run.opened(Progress()):
        pass


def test_samples_are_appended_and_harmless(run: Run) -> None:
    run.add_samples(10, ["One.\nTwo.", "\x1b[2J"])
    run.add_samples(20, ["Three."])
    assert run.samples.read_text("utf-8") == (
        "\n--- step 10\nOne.\nTwo.\n\n--- step 10\n?[2J\n\n--- step 20\nThree.\n"
    )


@pytest.mark.parametrize("damaged", [None, "", "[]", '{"k": "x"}', '{"rows": 0}', "\0"])
def test_a_run_remembers_how_many_rows_fit(damaged: str | None, run: Run) -> None:
    if damaged is not None:
        (run.folder / "limits.json").write_text(damaged)
    assert run.micro_batch_limit(16) == 16
    run.limit_micro_batch(4)
    assert Run(run.folder).micro_batch_limit(16) == 4
    assert Run(run.folder).micro_batch_limit(2) == 2
