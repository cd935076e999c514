"""An engine of a few lines of NumPy that counts its reads, for tests of code using engines.

What follows depends on the last three tokens, through numbers drawn from them, or is the next id.
"""

from collections.abc import Sequence

import numpy as np

from ownwords.inference.engine import Logits, RowInputs, WeightFormat, check_token_ids


class CountingEngine:
    name = "counting"
    weights: WeightFormat = "f32"

    def __init__(
        self, vocabulary: int = 50, context: int = 256, *, counts_up: bool = False
    ) -> None:
        self.vocabulary = vocabulary
        self.context = context
        self.counts_up = counts_up
        self.reads: list[RowInputs] = []
        self.caches = 0  # that are open
        self.at_once = 0  # the most rows of one read
        self.fails: Exception | None = None  # at the next read
        self.text: Sequence[int] = ()  # by heart: after n tokens comes the one at n

    @property
    def tokens(self) -> int:
        return sum(len(ids) for inputs in self.reads for ids in inputs.values())

    def scores_after(self, ids: Sequence[int]) -> np.ndarray:
        if not self.counts_up:
            return np.random.default_rng(ids).normal(size=self.vocabulary)
        scores = np.zeros(self.vocabulary)
        scores[(ids[-1] + 1) % self.vocabulary] = 9
        return scores

    def cache(self, rows: int, length: int) -> "CountingCache":
        self.caches += 1
        return CountingCache(self, rows, length)


class CountingCache:
    def __init__(self, engine: CountingEngine, rows: int, length: int) -> None:
        self.rows, self.length = rows, length
        self._engine = engine
        self._held: list[list[int]] = [[] for _ in range(rows)]

    def cached_length(self, row: int) -> int:
        return len(self._held[row])

    def forward(self, inputs: RowInputs, *, all_positions: bool = False) -> Logits:
        engine = self._engine
        engine.reads.append(inputs)
        engine.at_once = max(engine.at_once, len(inputs))
        if engine.fails is not None:
            error, engine.fails = engine.fails, None
            raise error
        for ids in inputs.values():
            check_token_ids(ids, engine.vocabulary)
        scores = []
        for number, ids in inputs.items():
            row = self._held[number]
            before = len(row)
            row.extend(ids)
            assert len(row) <= self.length
            for end in range(before + 1 if all_positions else len(row), len(row) + 1):
                scores.append(engine.scores_after(row[max(0, end - 3) : end]))
        array = np.array(scores, np.float32)
        if engine.text:
            array[:] = -1e9
            places = [*map(self.cached_length, inputs)]
            array[range(len(inputs)), [engine.text[position] for position in places]] = 0
        return array

    def truncate(self, row: int, length: int) -> None:
        del self._held[row][length:]

    def copy_prefix(self, source: int, row: int, length: int) -> None:
        self._held[row] = self._held[source][:length]

    def close(self) -> None:
        self._engine.caches -= 1
