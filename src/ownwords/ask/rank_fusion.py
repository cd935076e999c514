"""One ranking of several, by the places in each: what their scores are need not compare."""

from collections.abc import Iterable, Sequence

# Cormack, Clarke and Buettcher 2009, "Reciprocal rank fusion outperforms Condorcet": so large that
# what two rankings have near the top beats what one of them has first.
K = 60


def reciprocal_rank_fusion(
    rankings: Iterable[Sequence[int]], k: int = K
) -> list[tuple[int, float]]:
    """Every id with the sum of 1 / (k + place) over the rankings it is in, the best first.

    Where an id stands in a ranking twice, its first place counts. Ids of equal sums come in the
    order in which they first appear.
    """
    sums: dict[int, float] = {}
    for ranking in rankings:
        for place, id_ in enumerate(dict.fromkeys(ranking), 1):
            sums[id_] = sums.get(id_, 0.0) + 1 / (k + place)
    return sorted(sums.items(), key=lambda entry: -entry[1])
