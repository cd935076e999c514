"""The server's figures in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters since the start of the server; to be used on its event loop only."""

    def __init__(self) -> None:
        self.requests_in_flight = 0
        self._counters: Counter[str] = Counter()

    def response(self, status: int) -> None:
        """Count a response."""
        self._counters[f'ownwords_requests_total{{status="{status}"}}'] += 1

    def tokens(self, model: str, count: int) -> None:
        """Count generated tokens."""
        self._counters[f"ownwords_tokens_generated_total{_model(model)}"] += count

    def page(self, queues: Iterable[tuple[str, int, int]]) -> str:
        """Format all metrics; `queues` holds (model name, waiting, running requests)."""
        samples = {**self._counters, "ownwords_requests_in_flight": self.requests_in_flight}
        for name, waiting, running in queues:
            samples[f"ownwords_texts_waiting{_model(name)}"] = waiting
            samples[f"ownwords_texts_running{_model(name)}"] = running
        lines: dict[str, None] = {}
        for sample in sorted(samples):
            name = sample.partition("{")[0]
            lines[f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"] = None
            lines[f"{sample} {samples[sample]}"] = None
        return "\n".join(lines) + "\n"


def _model(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{model="{escaped}"}}'
