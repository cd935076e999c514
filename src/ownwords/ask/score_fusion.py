"""Fuses the scores of a search by words and one by vectors into one ranking.

Fusion by rank (reciprocal rank fusion) gives the first hit of either search the same weight, even
if only a stray word of the question matched. Here the words count for as much as they tell: a
convex combination of scores (Bruch et al. 2023, "An analysis of fusion functions for hybrid
retrieval") whose weight depends on how rare the words of the question are.
"""

import numpy as np

from ownwords.ask.vector_store import Floats, Ids

Ranking = list[tuple[int, float]]  # ids of chunks and their scores, best first

RANKED = 60  # chunks of a ranking
# What the best match of words adds to a cosine if each stands in one passage only: of 0.2 to 0.8,
# on 44 questions in other words about five archives, 0.2 to 0.4 found the most (docs/log.md).
_WORDS_WEIGHT = 0.3


def fuse(by_text: Ranking, passages: Ids, cosines: Floats, rarity: float) -> Ranking:
    """Rank the best of both: cosine + 0.3 * rarity² * text score / best text score.

    `passages` are the ids with a vector, in order; a passage without one counts as the last of the
    best by cosine. `rarity`, from 0 to 1, is that of the question's words: words that many passages
    have rank little, since questions in other words than the post's consist of them.
    """
    if not len(passages):
        return by_text
    best = nearest(passages, cosines, RANKED)
    least = best[-1][1]
    known = dict(best)
    ids = [id_ for id_, _ in by_text]
    places = np.minimum(np.searchsorted(passages, ids), len(passages) - 1)
    for id_, place in zip(ids, places.tolist(), strict=True):
        known[id_] = float(cosines[place]) if passages[place] == id_ else least
    weight = _WORDS_WEIGHT * rarity**2
    top = by_text[0][1] if by_text else 1.0
    text = {id_: score / top for id_, score in by_text}
    fused = [(id_, cosine + weight * text.get(id_, 0.0)) for id_, cosine in known.items()]
    return sorted(fused, key=lambda entry: (-entry[1], entry[0]))


def nearest(passages: Ids, cosines: Floats, limit: int) -> Ranking:
    """The passages with the highest cosines, best first, equal ones by id."""
    if not len(passages) or limit < 1:
        return []
    if limit < len(passages):
        places = np.argpartition(-cosines, limit - 1)[:limit]
    else:
        places = np.arange(len(passages))
    places = places[np.lexsort((passages[places], -cosines[places]))]
    return list(zip(passages[places].tolist(), cosines[places].tolist(), strict=True))
