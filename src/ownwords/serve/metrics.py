"""The server's metrics in Prometheus' text format."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from ownwords.core.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FIRST_TOKEN_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters since the start of the server; to be used on its event loop only."""

    def __init__(self) -> None:
        self.requests_in_flight = 0
        self._started_at = time.time()
        self._requests: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._first_token_s: defaultdict[str, float] = defaultdict(float)

    def response(self, method: str, route: str, status: int) -> None:
        """Count a response; `route` is the path pattern of the route."""
        self._requests["_total" + _labels(method=method, route=route, status=str(status))] += 1

    def tokens(self, model: str, count: int) -> None:
        """Count generated tokens."""
        self._tokens["_total" + _labels(model=model)] += count

    def first_token(self, seconds: float) -> None:
        """Record a request's time to its first token."""
        for bound in (*_FIRST_TOKEN_BUCKETS_S, float("inf")):
            le = "+Inf" if bound == float("inf") else f"{bound:g}"
            self._first_token_s[f"_bucket{_labels(le=le)}"] += seconds <= bound
        self._first_token_s["_sum"] += seconds
        self._first_token_s["_count"] += 1

    def page(self, queues: Iterable[tuple[str, int, int]]) -> str:
        """Format all metrics; `queues` holds (model name, waiting, running requests)."""
        queues = list(queues)
        families: list[tuple[str, str, str, Mapping[str, float]]] = [
            ("build_info", "gauge", "Version.", {_labels(version=__version__): 1}),
            ("start_time_seconds", "gauge", "Start of the server.", {"": self._started_at}),
            ("requests", "counter", "Requests by route and status.", self._requests),
            ("requests_in_flight", "gauge", "Open requests.", {"": self.requests_in_flight}),
            ("tokens_generated", "counter", "Tokens by model.", self._tokens),
            ("first_token_seconds", "histogram", "Time to first token.", self._first_token_s),
            (
                "texts_waiting",
                "gauge",
                "Queued.",
                {_labels(model=name): n for name, n, _ in queues},
            ),
            (
                "texts_running",
                "gauge",
                "Active.",
                {_labels(model=name): n for name, _, n in queues},
            ),
        ]
        lines = []
        for name, kind, description, samples in families:
            full = f"ownwords_{name}{'_total' if kind == 'counter' else ''}"
            lines += [f"# HELP {full} {description}", f"# TYPE {full} {kind}"]
            lines += [f"ownwords_{name}{suffix} {value:.12g}" for suffix, value in samples.items()]
        return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
