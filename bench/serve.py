"""The server under load: many streams at once, disconnecting readers, flat memory.

    python bench/serve.py                       the built-in model, everything: three minutes
    python bench/serve.py --model FOLDER        another model
    python bench/serve.py --seconds 10 --gone 100       a quick run
    python bench/serve.py --only streams gone   some parts: rates, streams, gone

Everything goes through HTTP, as for any client: `ownwords serve` is a separate process, and so is
each half of its readers. In "rates", 1 and 8 streams take turns of ROUND_S seconds; the ratio of
the medians must be at least 3. "streams" keeps 64 running: as soon as a text ends, its reader
requests another. "gone" makes 1,000 requests and disconnects in the middle of each text. At the
end, no text may still be generated, and the process may not have grown: its memory in the last
quarter of the time is compared with that in the second.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

STREAMS, GONE_AT_ONCE = 64, 32
ROUNDS, ROUND_S, FEW, MANY = 5, 4.0, 1, 8
TOKENS = 200
SPREAD = 16  # of lengths and prompts, so that texts do not all end together
GROWTH = 1.03  # the largest ratio of memory between two quarters
PROMPTS = (
    "The old house",
    "In the morning we",
    "She had never",
    "Of all the letters",
    "It was late",
)
READERS = 2  # processes


@dataclass
class Load:
    """The results of the readers of one process."""

    tokens: int = 0
    texts: int = 0
    seconds: float = 0.0
    first_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


async def read_one(port: int, model: str, number: int, load: Load, *, leave_after: int = 0) -> None:
    """Request a text and read it to its end, or disconnect after some pieces."""
    body = {
        "model": model,
        "prompt": PROMPTS[number % len(PROMPTS)] + " " * (number % SPREAD),
        "max_tokens": TOKENS + number % SPREAD * 8,
        "seed": number,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + data)
        status = await reader.readline()
        if b" 200 " not in status:
            remainder = await reader.read(2000)
            load.errors.append(f"{status!r} {remainder[-200:]!r}")
            return
        pieces, last = 0, b""
        while line := await reader.readline():
            if line.startswith(b"data: "):
                if not pieces:
                    load.first_s.append(time.perf_counter() - began)
                pieces += 1
                if line.startswith(b"data: [DONE]"):
                    break
                last = line
                if pieces == leave_after:
                    load.texts += 1
                    return
        else:
            load.errors.append(f"a stream broke off after {pieces} pieces: {last[-200:]!r}")
            return
        usage = json.loads(last[6:]).get("usage")
        if not usage:
            load.errors.append(f"a stream ended without its usage: {last[-200:]!r}")
            return
        load.tokens += usage["completion_tokens"]
        load.texts += 1
    except (OSError, asyncio.IncompleteReadError) as error:
        load.errors.append(repr(error))
    finally:
        writer.close()


async def keep_reading(port: int, model: str, streams: int, seconds: float, first: int) -> Load:
    """Keep some readers busy, one text after another, for a time."""
    load = Load()
    counter = iter(range(first, sys.maxsize))
    began = time.perf_counter()

    async def reader() -> None:
        while True:
            await read_one(port, model, next(counter), load)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(reader() for _ in range(streams)))
    load.seconds = time.perf_counter() - began
    return load


async def go_away(port: int, model: str, times: int, first: int) -> Load:
    """Request and disconnect in the middle; some immediately, some after many pieces."""
    load = Load()
    gate = asyncio.Semaphore(GONE_AT_ONCE // READERS)

    async def read_and_leave(number: int) -> None:
        async with gate:
            await read_one(port, model, number, load, leave_after=1 + number * 7 % 40)

    began = time.perf_counter()
    await asyncio.gather(*(read_and_leave(first + number) for number in range(times)))
    load.seconds = time.perf_counter() - began
    return load


# --- the processes -----------------------------------------------------------------------------


@contextmanager
def serving(model: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Start a server, yield its port and process id, and end it by Ctrl-C."""
    command = [sys.executable, "-m", "ownwords", "serve", "--port", "0", "--no-key"]
    if model:
        command += ["--model", model]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.search(r":(\d+)/", line)
            if not match:
                raise SystemExit(f"the server said {line!r} instead of its address")
            yield int(match[1]), process.pid
        finally:
            process.send_signal(signal.SIGINT)
            began = time.perf_counter()
            status = process.wait(20)
            print(f"Ctrl-C: ended with {status} after {time.perf_counter() - began:.2f} s")


def readers(port: int, model: str, kind: str, amount: float, streams: int) -> list[Load]:
    """Return what READERS processes measured; one process for fewer streams."""
    count = min(READERS, streams)
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, __file__, "--reader", kind, "--port", str(port)),
                *("--amount", str(amount), "--streams", str(streams // count)),
                *("--first", str(number * 1_000_000), "--model", model),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    loads = []
    for process in processes:
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"a reader ended with {process.returncode}")
        loads.append(Load(**json.loads(output)))
    return loads


class Memory:
    """The resident memory of a process, sampled twice a second while work runs."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/statm")
        self.megabytes: list[float] = []

    def look(self) -> None:
        pages = int(self._path.read_text("ascii").split()[1])
        self.megabytes.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def quarters(self) -> tuple[float, float]:
        """Return the medians of the second and the last quarter."""
        part = max(1, len(self.megabytes) // 4)
        return (
            statistics.median(self.megabytes[part : 2 * part] or self.megabytes),
            statistics.median(self.megabytes[-part:]),
        )


def run_readers(
    pid: int, port: int, model: str, kind: str, amount: float, streams: int
) -> tuple[Memory, list[Load]]:
    """Return the readers' loads, and the server's memory meanwhile."""
    memory = Memory(pid)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(readers, port, model, kind, amount, streams)
        while not running.done():
            memory.look()
            time.sleep(0.5)
        return memory, running.result()


def metric(port: int, name: str) -> float:
    """Return the sum of a metric over all its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        page = answer.read().decode()
    values = re.findall(rf"^ownwords_{name}(?:{{[^}}]*}})? ([\d.e+]+)$", page, re.MULTILINE)
    if not values:
        raise SystemExit(f"the server has no metric {name}")
    return sum(map(float, values))


# --- what is measured --------------------------------------------------------------------------


def pace(port: int, model: str, streams: int) -> float:
    """Return tokens/s of the server with that many readers, in the middle of ROUND_S seconds."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(readers, port, model, "keep", ROUND_S, streams)
        time.sleep(ROUND_S / 3)  # until the readers have begun
        tokens_before, began = metric(port, "tokens_generated_total"), time.perf_counter()
        time.sleep(ROUND_S / 2)
        more, took = (
            metric(port, "tokens_generated_total") - tokens_before,
            time.perf_counter() - began,
        )
        errors = [error for load in running.result() for error in load.errors]
    if errors:
        raise SystemExit(f"of {streams} streams: {errors[0]}")
    return more / took


def rates(port: int, model: str) -> bool:
    """Measure tokens/s of one stream and of eight together, in turns."""
    speeds: dict[int, list[float]] = {FEW: [], MANY: []}
    for _ in range(ROUNDS):
        for streams, paces in speeds.items():
            paces.append(pace(port, model, streams))
    single, eight = (statistics.median(paces) for paces in speeds.values())
    details = "; ".join(
        f"{s}: " + " ".join(f"{r:.0f}" for r in paces) for s, paces in speeds.items()
    )
    print(
        f"rates     one stream {single:.0f} tokens/s, eight {eight:.0f}: {eight / single:.2f} times"
    )
    print(f"          rounds {details}", flush=True)
    return eight >= 3 * single


def streams(port: int, model: str, pid: int, seconds: float) -> bool:
    """Keep 64 streams running at once."""
    before = metric(port, "tokens_generated_total")
    memory, loads = run_readers(pid, port, model, "keep", seconds, STREAMS)
    tokens = metric(port, "tokens_generated_total") - before
    first = sorted(s for load in loads for s in load.first_s)
    texts = sum(load.texts for load in loads)
    print(
        f"streams   {STREAMS} for {seconds:.0f} s: {texts} texts to their end,"
        f" {tokens / seconds:.0f} tokens/s; first piece after {statistics.median(first):.2f} s, 95%"
        f" within {first[len(first) * 95 // 100]:.2f} s"
    )
    return is_healthy(memory, loads)


def test_leaving(port: int, model: str, pid: int, times: int) -> bool:
    """Test readers who disconnect: nothing of them may remain."""
    memory, loads = run_readers(pid, port, model, "gone", times // READERS, GONE_AT_ONCE)
    texts_read = sum(load.texts for load in loads)
    took = max(load.seconds for load in loads)
    time.sleep(1)
    writing, waiting = metric(port, "texts_running"), metric(port, "texts_waiting")
    before = metric(port, "tokens_generated_total")
    time.sleep(1)
    still = metric(port, "tokens_generated_total") - before
    print(
        f"gone      {texts_read} readers left in {took:.0f} s; then {writing:.0f} writing,"
        f" {waiting:.0f}"
        f" waiting, {still:.0f} tokens in the next second"
    )
    return is_healthy(memory, loads) and not (writing or waiting or still)


def is_healthy(memory: Memory, loads: Sequence[Load]) -> bool:
    """Print errors and memory; return whether both are as they should be."""
    errors = [error for load in loads for error in load.errors]
    second, last = memory.quarters()
    print(
        f"          errors {len(errors)}; memory {second:.1f} MB, in the end {last:.1f} MB",
        flush=True,
    )
    for error in errors[:5]:
        print(f"          {error}")
    return not errors and last <= second * GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gone", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=["rates", "streams", "gone"])
    parser.add_argument("--reader", choices=["keep", "gone"], help=argparse.SUPPRESS)
    for name, kind in (("port", int), ("amount", float), ("streams", int), ("first", int)):
        parser.add_argument(f"--{name}", type=kind, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.reader:
        work = (
            keep_reading(args.port, args.model, args.streams, args.amount, args.first)
            if args.reader == "keep"
            else go_away(args.port, args.model, int(args.amount), args.first)
        )
        print(json.dumps(vars(asyncio.run(work))))
        return
    good = []
    with tempfile.TemporaryDirectory() as folder, serving(args.model, Path(folder)) as (port, pid):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as answer:
            model = json.load(answer)["data"][0]["id"]
        readers(port, model, "keep", 1.0, 1)  # loads the model
        if "rates" in args.only:
            good.append(rates(port, model))
        if "streams" in args.only:
            good.append(streams(port, model, pid, args.seconds))
        if "gone" in args.only:
            good.append(test_leaving(port, model, pid, args.gone))
    if not all(good):
        raise SystemExit("not all of this is as it should be")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from bench.machine import measuring

    with measuring():
        main()
