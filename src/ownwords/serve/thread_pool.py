"""A few threads for what would hold up the event loop: the disk, SQLite, search."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ownwords.serve.errors import TooManyRequestsError

T = TypeVar("T")
_Task = tuple[Callable[[], Any], asyncio.Future[Any]]
_RETRY_AFTER_S = 1


class ThreadPool:
    """Threads that do what is handed in, in order; they end with the program whatever they do."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._waiting = waiting
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        # Not of an executor: the program would wait for its threads before it ends.
        self._threads = [
            threading.Thread(target=self._work, name=f"{name} {number}", daemon=True)
            for number in range(1, threads + 1)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """What the work comes to, or the error it raises; Busy where too much waits already.

        Who stops waiting for it does not stop the work, once it has begun.
        """
        if self._tasks.qsize() >= self._waiting:
            raise TooManyRequestsError("too many requests wait for the archive", _RETRY_AFTER_S)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._tasks.put((work, future))
        return await future

    def close(self) -> None:
        """Begin nothing any more."""
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            _do(*task)
            del task  # what came of it is not kept until the next one


def _do(work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
    if future.cancelled():  # nobody waits for it any more
        return
    try:
        result = _result(work)
    except BaseException as error:  # it is for whoever waits
        _hand_over(future, _set_error, error)
    else:
        _hand_over(future, _set_result, result)


def _result(work: Callable[[], T]) -> T:
    try:
        return work()
    except StopIteration as error:  # no future takes it, and whoever waits would wait for ever
        raise RuntimeError("an iterator came to its end before its time") from error


def _hand_over(
    future: asyncio.Future[Any], how: Callable[[asyncio.Future[Any], Any], None], what: object
) -> None:
    try:
        future.get_loop().call_soon_threadsafe(how, future, what)
    except RuntimeError:  # the loop has ended
        return


def _set_result(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _set_error(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
