"""A process that behaves like `ownwords make --json` without making anything.

`fake_make.py HOW make PATHS… --workspace FOLDER …`: HOW is what it does, one of `MANNERS`; "as
told" is what stands in the workspace's file `manner`. It writes what it was given and told to
`given.json` in the workspace, and holds the making's lock.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from ownwords.core.progress import Event, JsonLines, Progress, reporting_job
from ownwords.core.workspace import try_lock

MANNERS = ("waits", "ends", "fails", "falls", "is deaf")


def metric(step: int, total: int = 40, time_: float = 0.0, **values: float) -> Event:
    values_shown = {"step": float(step), **values}
    return Event(time_ or time.time(), "train", "metric", step, total, "steps", values=values_shown)


def lock(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    if not try_lock(handle):
        sys.exit(json.dumps({"error": {"message": "it is locked", "hint": ""}}))
    return handle


def say(text: str, *, aside: bool = False) -> None:
    stream = sys.stderr if aside else sys.stdout
    stream.write(text + "\n")
    stream.flush()


def main(manner: str, arguments: list[str]) -> int:
    with reporting_job(Progress(), os.environ):
        return pretend(manner, arguments)


def pretend(manner: str, arguments: list[str]) -> int:
    workspace = Path(arguments[arguments.index("--workspace") + 1])
    if manner == "as told":
        manner = (workspace / "manner").read_text()
    (workspace / "given.json").write_text(
        json.dumps({"arguments": arguments, "env": dict(os.environ)})
    )
    lock(workspace / "runs" / "make" / ".lock")
    say("Measuring", aside=True)
    if manner == "fails":
        say("ownwords: the blog holds no text", aside=True)
        say(json.dumps({"error": {"message": "the blog holds no text", "hint": "write some"}}))
        return 2
    if manner == "falls":
        say("about to fall", aside=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if manner == "is deaf":
        interrupts = (workspace / "interrupts").open("wb", buffering=0)
        signal.signal(signal.SIGINT, lambda *_: interrupts.write(b"x"))
    run = workspace / "runs" / "finetune-aaaa"
    run.mkdir(exist_ok=True)
    lock(run / ".lock")
    log = JsonLines(run / "metrics.jsonl")
    log(Event(time.time(), "train", "start", total=40, unit="steps"))
    log(metric(10, loss=1.4, bits_per_byte=2.0, tokens_per_s=500.0, rate=0.1))
    (workspace / "begun").touch()
    try:
        while manner != "ends":
            time.sleep(0.02)
    except KeyboardInterrupt:
        log(Event(time.time(), "train", "done", 10, 40, "steps", message="stopped"))
        message = "interrupted: stopped after step 10 of 40; everything is saved"
        say(json.dumps({"error": {"message": message, "hint": ""}}))
        return 130
    log(Event(time.time(), "train", "done", 40, 40, "steps"))
    say(json.dumps({"workspace": str(workspace)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
