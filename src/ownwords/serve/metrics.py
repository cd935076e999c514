"""What the server counts, and how Prometheus reads it."""

import bisect
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ownwords.core.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds to the first token, from what a small model needs to what a person still waits for.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# Of a model by name: texts that wait, texts that have a row.
Pens = Callable[[], Iterable[tuple[str, int, int]]]


class Metrics:
    """Counts from the start of the server on. Only its event loop may call it."""

    def __init__(self) -> None:
        self._started = time.time()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._tokens: Counter[str] = Counter()
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._first_s = 0.0
        self.under_way = 0

    def answered(self, method: str, route: str, status: int) -> None:
        """A request was answered with that status; `route` is the route's own path."""
        self._requests[method, route, status] += 1

    def wrote(self, model: str, tokens: int) -> None:
        """So many tokens were written and handed out."""
        self._tokens[model] += tokens

    def first_token(self, seconds: float) -> None:
        """From a request to its first token."""
        self._buckets[bisect.bisect_left(_BOUNDS, seconds)] += 1
        self._first_s += seconds

    def page(self, queue_lengths: Iterable[tuple[str, int, int]]) -> str:
        """All of it in Prometheus' text format."""
        return "\n".join(self._lines(list(queue_lengths))) + "\n"

    def _lines(self, queue_lengths: list[tuple[str, int, int]]) -> Iterator[str]:
        yield from _head("build_info", "gauge", "The version that answers.")
        yield f'ownwords_build_info{{version="{_escaped(__version__)}"}} 1'
        yield from _head("start_time_seconds", "gauge", "When the server started, since 1970.")
        yield f"ownwords_start_time_seconds {self._started:.3f}"
        yield from _head("requests_total", "counter", "Requests by route and status.")
        for (method, route, status), count in sorted(self._requests.items()):
            labels = f'method="{_escaped(method)}",route="{_escaped(route)}",status="{status}"'
            yield f"ownwords_requests_total{{{labels}}} {count}"
        yield from _head("requests_under_way", "gauge", "Requests not yet answered to the end.")
        yield f"ownwords_requests_under_way {self.under_way}"
        yield from _head("tokens_written_total", "counter", "Tokens written, by model.")
        for model, count in sorted(self._tokens.items()):
            yield f'ownwords_tokens_written_total{{model="{_escaped(model)}"}} {count}'
        yield from _head("first_token_seconds", "histogram", "From a request to its first token.")
        seen = 0
        for bound, count in zip([*_BOUNDS, math.inf], self._buckets, strict=True):
            seen += count
            le = "+Inf" if bound == math.inf else f"{bound:g}"
            yield f'ownwords_first_token_seconds_bucket{{le="{le}"}} {seen}'
        yield f"ownwords_first_token_seconds_sum {self._first_s:.6f}"
        yield f"ownwords_first_token_seconds_count {seen}"
        yield from _head("texts_waiting", "gauge", "Texts that wait for a row, by model.")
        yield from (
            f'ownwords_texts_waiting{{model="{_escaped(n)}"}} {w}' for n, w, _ in queue_lengths
        )
        yield from _head("texts_writing", "gauge", "Texts that have a row, by model.")
        yield from (
            f'ownwords_texts_writing{{model="{_escaped(n)}"}} {s}' for n, _, s in queue_lengths
        )
        if resident := memory_bytes():
            yield from _head("resident_memory_bytes", "gauge", "Memory of this process.")
            yield f"ownwords_resident_memory_bytes {resident}"


def memory_bytes(statm: Path = Path("/proc/self/statm")) -> int:
    """The memory this process holds now, at most so far where that is all there is; 0: unknown."""
    try:
        return int(statm.read_text("ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return _most_so_far()


if sys.platform == "win32":
    _PAGE = 4096

    def _most_so_far() -> int:
        return 0

else:
    import resource

    _PAGE = resource.getpagesize()

    def _most_so_far() -> int:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _head(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP ownwords_{name} {help}", f"# TYPE ownwords_{name} {kind}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
