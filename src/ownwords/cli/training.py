"""What `ownwords pretrain` and `ownwords finetune` share: read, plan, ask, train, tell."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ownwords.cli.all_settings import Settings
from ownwords.cli.options import Common
from ownwords.cli.output import stderr, stdout
from ownwords.cli.training_report import print_made, print_plan
from ownwords.cli.training_view import watching
from ownwords.core.config import Resolved, settings_of
from ownwords.core.errors import ConfigError, InUseError
from ownwords.core.progress import Progress
from ownwords.core.workspace import Workspace

if TYPE_CHECKING:
    from ownwords.archive.analysis import AskAuthor
    from ownwords.training.corpus import Corpus, CorpusSplit
    from ownwords.training.plan import Plan
    from ownwords.training.recipes import PlannedTraining, TrainedModel, TrainRequest
    from ownwords.training.shards import TrainingText

    _Texts = Iterable[TrainingText]
    PlanFunction = Callable[[_Texts, _Texts, TrainRequest, _Texts | None], PlannedTraining]

Texts = Annotated[
    Path,
    Parameter(
        name="PATH",
        required=True,
        help="A blog, an export, a feed or a folder of texts, as `ownwords look` takes them.",
    ),
]
SAMPLES, _SAMPLE_TOKENS = 2, 80
_MOST_MINUTES = 10_000_000  # nineteen years
_PATIENCE_S = 1800.0  # of the other processes of a training, while the first reads the texts


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options of a verb that trains."""

    minutes: Annotated[
        float, Parameter(help="For all of it, from the first word read to the saved model.")
    ] = 10.0
    device: Annotated[
        str, Parameter(help="cpu, cuda, rocm, mps, xpu; auto is the best there is.")
    ] = "auto"
    plan: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Show the plan and stop there. [default: no]"
        ),
    ] = False
    out: Annotated[
        Path | None, Parameter(help="Folder for the model. [default: model in the workspace]")
    ] = None
    sharded: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Of several processes (torchrun) each holds a share of the weights (FSDP), not a"
            " copy. [default: no]",
        ),
    ] = False
    tensorboard: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Also write curves for TensorBoard, to runs/tensorboard. [default: no]",
        ),
    ] = False


TRAINING = TrainingOptions()


def train(
    paths: Sequence[Path],
    common: Common,
    options: TrainingOptions,
    plan_training: "PlanFunction",
    *,
    kind: str,
    replay: Path | None = None,
) -> "TrainedModel | None":
    """Read the paths into the workspace, plan to train on them, train and show the result.

    None where only the plan was wanted.
    """
    from ownwords.training.plan_constants import PLAN_CONSTANTS
    from ownwords.training.recipes import TrainRequest

    # Starting Python and PyTorch is part of the user's wait.
    began = time.perf_counter() - PLAN_CONSTANTS.start_s
    if not options.minutes > 0:
        raise ConfigError(f"--minutes should be more than 0, and is {options.minutes:g}")
    if options.minutes > _MOST_MINUTES:
        raise ConfigError(f"--minutes should be {_MOST_MINUTES:,} at most")
    place = Workspace(common.workspace) if common.workspace else Workspace.default_for(paths[0])
    resolved = common.resolve({}, workspace=place.root)
    with watching(common) as (progress, ask, view), ExitStack() as stack:
        texts, base_text = stack.enter_context(
            reading(
                paths,
                replay,
                place,
                resolved.settings,
                progress if _is_first() else Progress(),
                ask,
                patience_s=_PATIENCE_S if int(os.environ.get("WORLD_SIZE", "1")) > 1 else 0.0,
            )
        )
        stack.enter_context(_curves(options.tensorboard, place, kind, progress))

        request = TrainRequest(
            workspace=place.root,
            seconds=options.minutes * 60,
            fixed=fixed(resolved),
            progress=progress,
            device=options.device,
            mode="fsdp" if options.sharded else "ddp",
            own_share=texts.own_share,
            corpus=texts.key,
            out=options.out,
            began=began,
        )
        planned = plan_training(texts.train, texts.validation, request, base_text)
        plan = planned.plan
        if _is_first() and not (options.plan or common.json):
            print_plan(plan, stdout())
        if options.plan or (ask and not _may_begin()):
            if _is_first() and (options.plan or common.json):
                common.show(plan_figures(plan), lambda console: print_plan(plan, console))
            return None
        made = planned.train()
        samples = _samples(made, progress) if _is_first() else []
    if _is_first():
        figures = made_figures(made, samples)
        common.show(figures, lambda console: print_made(made, samples, view.run.history, console))
    return made


def fixed(resolved: Resolved[Settings]) -> dict[str, object]:
    """What the user set of a training's settings, by whichever way; the plan derives the rest."""
    from ownwords.training.settings import Recipe

    ours = {setting.key for setting in settings_of(Recipe())}
    return {
        setting.key: setting.default
        for setting in settings_of(resolved.settings)
        if setting.key in ours and resolved.origins[setting.key] != "default"
    }


def plan_figures(plan: "Plan") -> dict[str, Any]:
    """The plan as `--json` has it."""
    return {
        "plan": [asdict(one) for one in plan.reasons],
        "recipe": asdict(plan.recipe),
        "expected": asdict(plan.expected),
    }


def made_figures(made: "TrainedModel", samples: Sequence[str]) -> dict[str, Any]:
    """All figures of a training, as `--json` has them."""
    return {
        "model": str(made.folder),
        "run": str(made.run.folder),
        "bits_per_byte": made.bits_per_byte,
        "share": made.share,
        "bits_per_byte_before": made.before,
        "judged": list(made.judged),
        "outcome": asdict(made.outcome),
        "samples": list(samples),
        **plan_figures(made.plan),
    }


@contextmanager
def reading(
    paths: Sequence[Path],
    replay: Path | None,
    place: Workspace,
    settings: Settings,
    progress: Progress,
    ask: "AskAuthor | None",
    *,
    patience_s: float,
) -> "Iterator[tuple[Corpus, CorpusSplit | None]]":
    """What is to be learned from, and the base's own text; both read as `ownwords look` does.

    Where another process is reading the same it waits so long, the rest being quick.
    """
    from ownwords.archive.store import Archive
    from ownwords.training import corpus

    with ExitStack() as stack:
        _read(paths, place, settings, progress, ask, patience_s)
        texts = corpus.load_corpus(stack.enter_context(Archive(place.archive)))
        base_text = None
        if replay:
            beside = Workspace(place.root / "replay.ownwords")
            _read([replay], beside, settings, progress, None, patience_s)
            base_text = corpus.load_corpus(stack.enter_context(Archive(beside.archive))).train
        yield texts, base_text


def _read(
    paths: Sequence[Path],
    place: Workspace,
    settings: Settings,
    progress: Progress,
    ask: "AskAuthor | None",
    patience_s: float,
) -> None:
    from ownwords.archive.look import look

    ends = time.monotonic() + patience_s
    while True:
        try:
            look(
                paths,
                workspace=place.root,
                archive=settings.archive,
                provenance=settings.provenance,
                split=settings.split,
                progress=progress,
                ask=ask,
            )
        except InUseError:  # by another process, which may be quicker
            if time.monotonic() >= ends:
                raise
            time.sleep(0.5)
        else:
            return


@contextmanager
def _curves(wanted: bool, place: Workspace, kind: str, progress: Progress) -> Iterator[None]:
    """Curves for TensorBoard meanwhile, where they are wanted."""
    if not (wanted and _is_first()):
        yield
        return
    from ownwords.training.tensorboard import TensorBoard

    name = f"{kind}-{datetime.now():%Y-%m-%d-%H%M%S}"
    with closing(TensorBoard(place.runs / "tensorboard" / name)) as curves:
        progress.subscribers.append(curves)
        try:
            yield
        finally:
            progress.subscribers.remove(curves)


def _samples(made: "TrainedModel", progress: Progress) -> list[str]:
    """What the model writes now, read back from its folder as everybody will read it."""
    from ownwords.inference.model import Model

    with progress.stage("Writing samples"):
        model = Model.load(made.folder)
        return model.write_several("", seeds=range(1, SAMPLES + 1), max_tokens=_SAMPLE_TOKENS)


def _may_begin() -> bool:
    """Whether the author wants it so; KeyboardInterrupt where the input ends."""
    from rich.prompt import Confirm

    try:
        return Confirm.ask("Train like this?", console=stderr(), default=True)
    except EOFError:
        raise KeyboardInterrupt from None


def _is_first() -> bool:
    """Whether this is the process that speaks, of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"
