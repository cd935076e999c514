"""Parse posts and compute their features, in other processes once there are many posts.

The workers are programs of their own, not `multiprocessing`'s: that works from any thread and in a
daemon, and does not run the caller's main module again. A worker ends when its pipe is closed, so
none outlives this process. What a worker does not answer, because it failed or was killed, is
parsed here.
"""

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, NamedTuple

import msgspec

from ownwords.archive.document import Document, Markup, ParsedBody, RawDocument, SourceItem
from ownwords.archive.features import encode_features, extract_features
from ownwords.archive.segments import parse_body
from ownwords.core.errors import SourceError

_ALONE_CHARACTERS = 3_000_000  # parsed here first: they take about as long as starting workers
_BATCH_CHARACTERS = 1 << 18
_AHEAD = 2  # batches for each worker
_MOST_WORKERS = 4  # more would wait for this process, which reads and stores
_LENGTH_BYTES = 8


class ParsedPost(msgspec.Struct, array_like=True):
    """A post's parsed body, and its encoded features."""

    body: ParsedBody
    features: bytes


class Entry(NamedTuple):
    """An item of a source; `key` is a document's content key, `new` the document to parse."""

    item: SourceItem
    key: str = ""
    new: RawDocument | None = None


Outcome = ParsedPost | str  # or the reason why a post is left out
_Request = list[tuple[bytes, Markup]]  # in UTF-8, but with the lone surrogates of broken exports
_Worker = subprocess.Popen[bytes]
_Answer = Future[list[Outcome] | None] | None  # None: parse the posts here


def parse_post(body: str, markup: Markup) -> Outcome:
    """Parse a body and compute its features, or say why there is nothing to store."""
    try:
        parsed = parse_body(body, markup)
    except SourceError as error:
        return error.message
    if not parsed.segments:
        return "no text"
    return ParsedPost(parsed, encode_features(extract_features(Document("", "", parsed.segments))))


class ParserPool:
    """Parses the documents of sources in order. Its workers end with the context."""

    def __init__(self) -> None:
        self._characters = 0
        self._is_closing = False
        self._workers: list[_Worker] = []
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None  # one to talk to each worker

    def __enter__(self) -> "ParserPool":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        for worker in self._workers:
            worker.kill()
        if self._threads:
            self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            with suppress(OSError), worker:  # closing a pipe may write what is left in it
                pass

    def parse(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, Outcome | None]]:
        """Yield every entry in order, with the outcome of its new document."""
        pending: deque[tuple[list[Entry], _Answer]] = deque()
        for batch in _batches(entries):
            pending.append((batch, self._submit([entry.new for entry in batch if entry.new])))
            while len(pending) > _AHEAD * len(self._workers):
                yield from _outcomes(*pending.popleft())
        while pending:
            yield from _outcomes(*pending.popleft())

    def _submit(self, documents: Sequence[RawDocument]) -> _Answer:
        self._characters += sum(len(document.body) for document in documents)
        if not documents or self._characters < _ALONE_CHARACTERS:
            return None
        if self._threads is None:
            from ownwords.core.hardware import usable_cores  # noqa: PLC0415 (small blogs need none)

            if (cores := min(usable_cores(), _MOST_WORKERS)) < 2:
                return None
            self._workers = [_start_worker() for _ in range(cores)]
            for worker in self._workers:
                self._idle.put(worker)
            self._threads = ThreadPoolExecutor(cores)
        return self._threads.submit(self._ask, documents)

    def _ask(self, documents: Sequence[RawDocument]) -> list[Outcome] | None:
        """The outcomes from the next idle worker; None if it has ended, and another takes over."""
        request = [(d.body.encode("utf-8", "surrogatepass"), d.markup) for d in documents]
        worker, answer = self._idle.get(), b""
        with suppress(OSError):  # a broken pipe
            _send(worker.stdin, request)
            answer = _receive(worker.stdout)
        if not (answer or self._is_closing):
            worker = _start_worker()
            self._workers.append(worker)
        self._idle.put(worker)
        return msgspec.msgpack.decode(answer, type=list[Outcome]) if answer else None


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    characters = 0
    for entry in entries:
        batch.append(entry)
        if isinstance(entry.item, RawDocument):
            characters += len(entry.item.body)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    yield batch


def _outcomes(batch: list[Entry], answer: _Answer) -> Iterator[tuple[Entry, Outcome | None]]:
    received = answer.result() if answer else None
    outcomes = iter(received or ())
    for entry in batch:
        if not entry.new:
            yield entry, None
        elif received:
            yield entry, next(outcomes)
        else:
            yield entry, parse_post(entry.new.body, entry.new.markup)


def _start_worker() -> _Worker:
    # -P keeps the current folder off sys.path. What fails in a worker fails here again, visibly.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _send(pipe: IO[bytes] | None, message: object) -> None:
    assert pipe
    data = msgspec.msgpack.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes] | None) -> bytes:
    """The next message; empty if the other process has ended."""
    assert pipe
    length = int.from_bytes(pipe.read(_LENGTH_BYTES))
    data = pipe.read(length)
    return data if len(data) == length else b""


def _work() -> None:
    """Answer the requests on standard input until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends this one
    while request := _receive(sys.stdin.buffer):
        posts = msgspec.msgpack.decode(request, type=_Request)
        _send(
            sys.stdout.buffer,
            [parse_post(body.decode("utf-8", "surrogatepass"), markup) for body, markup in posts],
        )


if __name__ == "__main__":
    _work()
