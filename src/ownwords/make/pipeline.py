"""From a blog to a model of it that was scored: stage after stage, none done twice.

Killed at any moment, the same order goes on where it was: a training from its checkpoint, anything
else from the beginning of its stage.
"""

from typing import TYPE_CHECKING

from ownwords.archive.store import Archive
from ownwords.core.progress import Progress
from ownwords.make.callbacks import MakeCallbacks
from ownwords.make.make_request import MakeRequest
from ownwords.make.result import MakeResult
from ownwords.make.stages import MakeStages
from ownwords.training import corpus

if TYPE_CHECKING:
    from ownwords.archive.analysis import AskAuthor
    from ownwords.training.plan import Plan


def make(
    order: MakeRequest,
    *,
    progress: Progress | None = None,
    ask: "AskAuthor | None" = None,
    callbacks: MakeCallbacks | None = None,
) -> MakeResult:
    """Read, train, write a paragraph, compare, score; what is done already is only told again.

    `ask` is called about posts that stand out; without it the stated defaults apply. Raises
    OwnwordsError for what cannot be, what was finished then being kept; KeyboardInterrupt says what
    that is.
    """
    order.check()
    making = MakeStages(order, progress or Progress(), callbacks or MakeCallbacks())
    report = making.read(ask)
    with making.alone(), Archive(order.place.archive) as archive:
        texts = corpus.load_corpus(archive)
        trained = making.train(texts, report)
        paragraph = making.write(trained, report)
        compared = making.compare(texts, report)
        weighed = making.weigh(texts, report, trained)
        card = making.score(archive, texts, report, trained, paragraph, compared, weighed)
    return making.result(report, trained, paragraph, compared, card)


def plan(
    order: MakeRequest, *, progress: Progress | None = None, ask: "AskAuthor | None" = None
) -> "Plan":
    """The plan of the training alone: the one under way, or the one there would be."""

    order.check()
    making = MakeStages(order, progress or Progress(), MakeCallbacks())
    making.read(ask)
    with making.alone(), Archive(order.place.archive) as archive:
        texts = corpus.load_corpus(archive)
        return making.plan_training(texts, order.base, making.tuning_s).plan
