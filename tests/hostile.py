"""The command line against damaged input, archives and models, and against kills.

    python tests/hostile.py inputs   --count 1000
    python tests/hostile.py archives --count 40
    python tests/hostile.py models   --count 300
    python tests/hostile.py kills    --count 20 [--load]

Every call must end with status 0 or with one sentence and status 2; a traceback, any other end, or
a minute of computing counts as a failure. An archive that was damaged must open again after `look`
has read the source, and hold the same texts as before. A `make` that was killed must come to the
same model, scorecard and samples as one that was not. `--seed` repeats a series; the exit status
is 1 after a failure.
"""

import argparse
import importlib
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import damage
import model_directories
import tiny_make
from ownwords.archive import sources
from ownwords.cli.main import main as ownwords
from ownwords.models import bundle
from ownwords.tokenizers.bpe import ByteTokenizer

HERE = Path(__file__).parent
# Of computing: on a busy machine a call may take many times that.
HANGS_S, WAITS_S = 60, 900
ARCHIVE_CALLS = (
    ("look", "{site}", "--workspace", "{workspace}", "--yes", "--export", "{export}"),
    ("ask", "Who thought of the gutter?", "--workspace", "{workspace}", "--no-model"),
    ("make", "{site}", "--workspace", "{workspace}", "--plan", "--yes"),
    ("score", "{workspace}"),
)


@dataclass
class Result:
    """The end of one call of the command."""

    status: int | None  # None: it was ended after HANGS_S or WAITS_S
    output: str
    seconds: float  # of computing

    @property
    def failure(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if self.status is None:
            return f"did not end: {self.seconds:.0f} s of computing"
        if "Traceback" in self.output:
            at = self.output.index("Traceback")
            return "traceback: " + self.output[max(0, at - 200) : at + 1000]
        if self.status not in (0, 2):
            return f"status {self.status}: {self.output.strip()[-200:]}"
        return ""


@dataclass
class Series:
    """The calls of one series so far."""

    ends: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def add(self, kind: str, result: Result) -> Result:
        """Count a call, and print it if it failed."""
        self.slowest_s = max(self.slowest_s, result.seconds)
        self.ends[
            {0: "accepted", 2: "refused with a sentence"}.get(result.status or 0, "other")
        ] += 1
        if result.failure:
            self.fail(f"{kind}: {result.failure}")
        return result

    def expect_success(self, arguments: Sequence[str]) -> None:
        """A call before any damage, without which the series would prove nothing."""
        result = call(arguments)
        if result.status != 0:
            raise SystemExit(f"{' '.join(arguments)} fails without any damage: {result.output}")

    def fail(self, sentence: str) -> None:
        self.failures.append(sentence)
        print("FAILED", sentence, flush=True)


def call(arguments: Sequence[str]) -> Result:
    """Run the command in a forked child, which has everything imported."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        for number in (1, 2):
            os.dup2(write_end, number)
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding="utf-8")
        signal.setitimer(signal.ITIMER_PROF, HANGS_S)
        signal.alarm(WAITS_S)
        status = 70
        try:
            status = ownwords(list(arguments))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        output = pipe.read().decode("utf-8", "replace")
    _, ended, used = os.wait4(child, 0)
    status = os.waitstatus_to_exitcode(ended)
    is_hung = status in (-signal.SIGPROF, -signal.SIGALRM)
    return Result(None if is_hung else status, output, used.ru_utime + used.ru_stime)


def inputs(count: int, generator: random.Random, folder: Path) -> Series:
    """One file of an export damaged, for each kind of source in turn; then `look`."""
    series = Series()
    exports = {}
    for name in sources.SOURCE_NAMES:
        (folder / name).mkdir()
        path = importlib.import_module(f"exports.{name}").write(folder / name)
        files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
        exports[name] = path, {file: file.read_bytes() for file in files}
    for number in range(count):
        name = sources.SOURCE_NAMES[number % len(sources.SOURCE_NAMES)]
        path, contents = exports[name]
        file = generator.choice(sorted(contents))
        file.write_bytes(damage.of_file(file, contents[file], generator))
        workspace = folder / "w.ownwords"
        arguments = ["look", str(path), "--workspace", str(workspace), "--yes", "--quiet"]
        series.add(f"input {number}, {name}, {file.name}", call(arguments))
        file.write_bytes(contents[file])
        shutil.rmtree(workspace, ignore_errors=True)
    return series


def archives(count: int, generator: random.Random, folder: Path) -> Series:
    """A byte of archive.sqlite flipped; then each verb that reads it, and `look` to mend it."""
    series = Series()
    site = tiny_make.write_blog(folder / "blog")
    workspace = folder / "w.ownwords"
    exported = folder / "texts.jsonl"
    names = {"site": str(site), "workspace": str(workspace), "export": str(exported)}
    calls = [[part.format(**names) for part in arguments] for arguments in ARCHIVE_CALLS]
    look, *further = calls
    for arguments in calls[:3]:  # `score` has no model to score
        series.expect_success(arguments)
    archive = workspace / "archive.sqlite"
    original, texts = archive.read_bytes(), exported.read_bytes()
    for number in range(count):
        changed = bytearray(original)
        at = generator.randrange(len(changed))
        changed[at] ^= 1 << generator.randrange(8)
        for order in (further, [look]):
            for arguments in order:
                archive.write_bytes(changed)
                series.add(f"archive {number}, byte {at}, {arguments[0]}", call(arguments))
        mended = call(further[0])
        if mended.status != 0 or exported.read_bytes() != texts:
            series.fail(
                f"archive {number}, byte {at}: `look` did not mend it: {mended.output[-200:]}"
            )
    return series


def models(count: int, generator: random.Random, folder: Path) -> Series:
    """One file of a model directory damaged, a family at a time; then `write` and `export`."""
    series = Series()
    directories = {}
    for family in model_directories.CONFIGS:
        model = model_directories.model(family, vocab_size=300)
        bundle.save(folder / family, model, ByteTokenizer())
        directories[folder / family] = {p: p.read_bytes() for p in (folder / family).iterdir()}
        series.expect_success(_write(folder / family))
    for number in range(count):
        directory = sorted(directories)[number % len(directories)]
        contents = directories[directory]
        file = generator.choice(sorted(contents))
        file.write_bytes(damage.of_file(file, contents[file], generator))
        label = f"model {number}, {directory.name}, {file.name}"
        series.add(label + ", write", call(_write(directory)))
        into = folder / "exported.gguf"
        export = ["export", str(directory), "--to", "gguf", "--into", str(into)]
        series.add(label + ", export", call(export))
        into.unlink(missing_ok=True)
        file.write_bytes(contents[file])
    return series


def _write(directory: Path) -> list[str]:
    return ["write", "It was", "--model", str(directory), "--max-tokens", "4", "--seed", "1"]


def kills(count: int, generator: random.Random, folder: Path, *, load: bool) -> Series:
    """SIGKILL at random moments of a whole `make`, until it ends by itself."""
    series = Series()
    script = [sys.executable, str(HERE / "make_kills.py"), "box", str(folder)]
    with ExitStack() as stack:
        if load:
            for _ in range(2 * (os.cpu_count() or 1)):
                busy = multiprocessing.Process(target=_busy, daemon=True)
                busy.start()
                stack.callback(busy.kill)
        began = time.monotonic()
        calm = subprocess.run([*script, "calm"], capture_output=True, text=True, check=True)
        whole_s = time.monotonic() - began
        killed = 0
        while killed < count:
            process = subprocess.Popen([*script, "killed"], stdout=subprocess.PIPE, text=True)
            try:
                output, _ = process.communicate(timeout=whole_s * generator.uniform(0.1, 1.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
                series.ends["killed"] += 1
                continue
            _compare(series, calm.stdout, output, process.returncode)
            shutil.rmtree(folder / "killed")
        last = subprocess.run([*script, "killed"], capture_output=True, text=True, check=False)
        _compare(series, calm.stdout, last.stdout, last.returncode)
    return series


def _compare(series: Series, calm: str, killed: str, status: int) -> None:
    series.ends["came to an end"] += 1
    if status != 0 or json.loads(killed) != json.loads(calm):
        series.fail(
            f"a killed `make` ended with status {status} and not as one that was not killed"
        )


def _busy() -> None:
    while True:
        sum(range(10_000))


def main() -> int:
    """Run one series and print its counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("series", choices=["inputs", "archives", "models", "kills"])
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", action="store_true", help="kills: keep all cores busy meanwhile")
    chosen = parser.parse_args()
    runs: dict[str, Callable[[int, random.Random, Path], Series]] = {
        "inputs": inputs,
        "archives": archives,
        "models": models,
        "kills": lambda *arguments: kills(*arguments, load=chosen.load),
    }
    with tempfile.TemporaryDirectory() as folder:
        series = runs[chosen.series](chosen.count, random.Random(chosen.seed), Path(folder))
    ends = ", ".join(f"{n} {kind}" for kind, n in series.ends.most_common())
    print(f"{chosen.count} {chosen.series}: {ends}; slowest call {series.slowest_s:.1f} s")
    failed = len(series.failures)
    print(f"{max(0, chosen.count - failed)} passed, {failed} failed")
    return int(bool(series.failures))


if __name__ == "__main__":
    sys.exit(main())
