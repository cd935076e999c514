"""Runs the stages of `ownwords make`, from a blog to a scored model; finished stages are cached.

After a kill at any moment the same request resumes: a training from its checkpoint, any other stage
from its beginning.
"""

from typing import TYPE_CHECKING

from ownwords.archive import corpus
from ownwords.archive.store import Archive
from ownwords.core.progress import Progress
from ownwords.make.make_request import MakeRequest
from ownwords.make.result import MakeCallbacks, MakeResult
from ownwords.make.stages import MakeStages, announce_parts
from ownwords.models.model_library import ModelLibrary

if TYPE_CHECKING:
    from ownwords.archive.analysis import AskAuthor
    from ownwords.training.plan import Plan


def make(
    request: MakeRequest,
    *,
    progress: Progress | None = None,
    ask: "AskAuthor | None" = None,
    callbacks: MakeCallbacks | None = None,
) -> MakeResult:
    """Read, train, write a paragraph, compare and score; finished stages are only reported again.

    `ask` is called about posts that stand out; without it the stated defaults apply. Raises
    OwnwordsError if a stage is impossible; finished stages are kept. A KeyboardInterrupt carries a
    sentence that says what is saved.
    """
    request.check()
    progress = progress or Progress()
    stages = MakeStages(request, progress, callbacks or MakeCallbacks())
    announce_parts(progress, request, stages.cache)
    progress.begin("read")
    report = stages.read_texts(ask)
    with stages.lock(), Archive(stages.workspace.archive) as archive:
        progress.begin("plan")
        texts = corpus.load_corpus(archive)
        stages.choose_base(texts)
        stages.trim_base(texts)
        trained = stages.train(texts, report)
        progress.begin("write")
        paragraph = stages.write_paragraph(trained, report)
        progress.begin("compare")
        scratch = stages.train_from_scratch(texts, report)
        progress.begin("score")
        card = stages.score(texts, report, trained, scratch)
        ModelLibrary(stages.workspace.root).keep(request.name)
    return MakeResult(
        workspace=stages.workspace.root,
        model=stages.model,
        report=report,
        trained=trained,
        paragraph=paragraph,
        compared=scratch,
        scorecard=card,
        seconds=stages.seconds("train", "write", "compare", "score"),
        is_new=stages.is_new,
    )


def plan(
    request: MakeRequest,
    *,
    progress: Progress | None = None,
    ask: "AskAuthor | None" = None,
    callbacks: MakeCallbacks | None = None,
) -> "Plan":
    """Make the training's plan without training; an unfinished training's plan is loaded."""
    request.check()
    stages = MakeStages(request, progress or Progress(), callbacks or MakeCallbacks())
    stages.read_texts(ask)
    with stages.lock(), Archive(stages.workspace.archive) as archive:
        texts = corpus.load_corpus(archive)
        stages.choose_base(texts)
        stages.trim_base(texts)
        return stages.plan(texts).plan
