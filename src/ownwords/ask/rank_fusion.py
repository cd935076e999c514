"""Reciprocal rank fusion of several rankings, whose scores need not be comparable."""

from collections.abc import Iterable, Sequence

# Cormack, Clarke and Buettcher 2009, "Reciprocal rank fusion outperforms Condorcet".
K = 60


def reciprocal_rank_fusion(
    rankings: Iterable[Sequence[int]], k: int = K
) -> list[tuple[int, float]]:
    """Each id with the sum of 1 / (k + rank) over the rankings that contain it, best first.

    Only the first occurrence in a ranking counts. Ids with equal sums keep their order.
    """
    sums: dict[int, float] = {}
    for ranking in rankings:
        for place, id_ in enumerate(dict.fromkeys(ranking), 1):
            sums[id_] = sums.get(id_, 0.0) + 1 / (k + place)
    return sorted(sums.items(), key=lambda entry: -entry[1])
