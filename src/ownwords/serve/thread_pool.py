"""A thread pool for work that would block the event loop: the disk, SQLite, search."""

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
    """Daemon threads that run tasks in order from a bounded queue.

    Unlike with ThreadPoolExecutor, the interpreter does not wait for the threads at exit.
    """

    def __init__(self, name: str, threads: int, queue_size: int) -> None:
        self._queue_size = queue_size
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name} {number}", daemon=True)
            for number in range(1, threads + 1)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result; TooManyRequestsError if the queue is full.

        Cancelling does not stop work that has started.
        """
        if self._tasks.qsize() >= self._queue_size:
            raise TooManyRequestsError("too many requests are waiting", _RETRY_AFTER_S)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._tasks.put((work, future))
        return await future

    def close(self) -> None:
        """End the threads after their current tasks."""
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            _run(*task)
            del task  # frees the result before waiting for the next task


def _run(work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        return
    result: object = None
    error: BaseException | None = None
    try:
        result = work()
    except StopIteration as stop:  # a future refuses StopIteration, and the caller would hang
        error = RuntimeError("an iterator ended too early")
        error.__cause__ = stop
    except BaseException as raised:
        error = raised

    def resolve() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    try:
        future.get_loop().call_soon_threadsafe(resolve)
    except RuntimeError:  # the event loop is closed
        return
