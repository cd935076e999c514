"""What the verbs that train share: read, plan, confirm, train, report."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ownwords.cli.all_settings import Settings
from ownwords.cli.options import CommonOptions
from ownwords.cli.output import stderr, stdout
from ownwords.cli.parameters import TrainingDevice, flag
from ownwords.cli.training_report import print_made, print_plan
from ownwords.cli.training_view import watching
from ownwords.core.config import Resolved, settings_of
from ownwords.core.errors import InUseError
from ownwords.core.progress import Progress
from ownwords.core.workspace import Workspace

if TYPE_CHECKING:
    from ownwords.archive.analysis import AskAuthor
    from ownwords.training.corpus import Corpus, CorpusSplit, TrainingText
    from ownwords.training.distributed import Mode, World
    from ownwords.training.plan import Plan
    from ownwords.training.recipes import PlannedTraining, TrainedModel, TrainRequest

    Texts = Iterable[TrainingText]

_SAMPLES, _SAMPLE_TOKENS = 2, 80


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options of a verb that trains."""

    minutes: Annotated[
        float, Parameter(help="Minutes for everything, from reading to the saved model.")
    ] = 10.0
    device: TrainingDevice = "auto"
    plan: Annotated[bool, flag("Show the plan and stop.")] = False
    out: Annotated[
        Path | None, Parameter(help="Folder for the model. [default: model in the workspace]")
    ] = None
    sharded: Annotated[
        bool,
        flag("With torchrun: shard the weights over the processes (FSDP) instead of copying them."),
    ] = False
    tensorboard: Annotated[
        bool, flag("Also write curves for TensorBoard, to runs/tensorboard.")
    ] = False


TRAINING = TrainingOptions()


def train(
    paths: Sequence[Path],
    common: CommonOptions,
    options: TrainingOptions,
    plan_training: "Callable[[Texts, Texts, TrainRequest, Texts | None], PlannedTraining]",
    *,
    kind: str,
    replay: Path | None = None,
) -> "TrainedModel | None":
    """Read the paths, plan, confirm, train, show the result; None where only the plan is wanted."""
    from ownwords.make.make_request import check_minutes
    from ownwords.training.device import choose
    from ownwords.training.distributed import init_distributed
    from ownwords.training.recipes import TrainRequest

    began = command_start()
    check_minutes(options.minutes)
    mode: Mode = "fsdp" if options.sharded else "ddp"
    world = init_distributed(choose(options.device).torch_device, mode)
    if not world.is_first:  # only the first process asks and shows anything
        common = replace(common, yes=True, quiet=True)
    workspace = common.workspace_for(paths)
    resolved = common.resolve({}, workspace.root)
    with watching(common) as (progress, ask, view), ExitStack() as stack:
        texts, base_text = stack.enter_context(
            reading(
                paths,
                replay,
                workspace,
                resolved.settings,
                progress,
                ask,
                world=world,
            )
        )
        if options.tensorboard and world.is_first:
            stack.enter_context(_tensorboard(workspace, kind, progress))

        request = TrainRequest(
            workspace=workspace.root,
            seconds=options.minutes * 60,
            fixed=training_settings(resolved),
            progress=progress,
            device=options.device,
            world=world,
            own_share=texts.own_share,
            corpus=texts.key,
            out=options.out,
            began=began,
        )

        planned = plan_training(texts.train, texts.validation, request, base_text)
        plan = planned.plan
        if world.is_first and not (options.plan or common.json):
            print_plan(plan, stdout())
        if options.plan or not world.broadcast(ask is None or _confirmed()):
            if world.is_first and (options.plan or common.json):
                common.show(plan_figures(plan), lambda console: print_plan(plan, console))
            world.close()
            return None
        made = planned.train()
        samples = _write_samples(made, progress, options.device) if world.is_first else []
    if world.is_first:
        history = view.run.history
        common.show(
            made_figures(made, samples),
            lambda console: print_made(made, samples, history, console),
        )
    return made


def command_start() -> float:
    """When the user began to wait, by time.perf_counter(): Python's own start counts, too."""
    from ownwords.training.plan_constants import PLAN_CONSTANTS

    return time.perf_counter() - PLAN_CONSTANTS.start_s


def training_settings(resolved: Resolved[Settings]) -> dict[str, object]:
    """The training settings that the user set in any way; the plan derives the others."""
    from ownwords.training.settings import Recipe

    keys = {setting.key for setting in settings_of(Recipe())}
    return {
        setting.key: setting.default
        for setting in settings_of(resolved.settings)
        if setting.key in keys and resolved.origins[setting.key] != "default"
    }


def plan_figures(plan: "Plan") -> dict[str, Any]:
    """The plan as `--json` prints it."""
    return {
        "plan": [asdict(number) for number in plan.reasons],
        "recipe": asdict(plan.recipe),
        "expected": asdict(plan.expected),
    }


def made_figures(made: "TrainedModel", samples: Sequence[str]) -> dict[str, Any]:
    """All figures of a training, as `--json` prints them."""
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
    workspace: Workspace,
    settings: Settings,
    progress: Progress,
    ask: "AskAuthor | None",
    *,
    timeout_s: float = 0.0,
    world: "World | None" = None,
) -> "Iterator[tuple[Corpus, CorpusSplit | None]]":
    """The author's texts and the base's own text, both read as `ownwords look` reads them.

    Waits up to `timeout_s` for another process that is reading the same workspace. Of several
    processes that train together one on each machine reads, the others take what it has stored.
    """
    from ownwords.archive.look import look
    from ownwords.archive.store import Archive
    from ownwords.training import corpus

    def read(sources: Sequence[Path], workspace: Workspace, ask: "AskAuthor | None") -> None:
        ends = time.monotonic() + timeout_s
        while True:
            try:
                look(
                    sources,
                    workspace=workspace.root,
                    archive=settings.archive,
                    provenance=settings.provenance,
                    split=settings.split,
                    progress=progress,
                    ask=ask,
                )
            except InUseError:
                if time.monotonic() >= ends:
                    raise
                time.sleep(0.5)
            else:
                return

    beside = Workspace(workspace.root / "replay.ownwords")
    with world.in_rank_order() if world else nullcontext():
        if world is None or world.local_rank == 0:
            read(paths, workspace, ask)
            if replay:
                read([replay], beside, None)
    with ExitStack() as stack:
        texts = corpus.load_corpus(stack.enter_context(Archive(workspace.archive)))
        base_text = None
        if replay:
            base_text = corpus.load_corpus(stack.enter_context(Archive(beside.archive))).train
        yield texts, base_text


@contextmanager
def _tensorboard(workspace: Workspace, kind: str, progress: Progress) -> Iterator[None]:
    """Write the events to TensorBoard meanwhile."""
    from ownwords.training.metrics import TensorBoard

    name = f"{kind}-{datetime.now():%Y-%m-%d-%H%M%S}"
    with closing(TensorBoard(workspace.runs / "tensorboard" / name)) as curves:
        progress.subscribers.append(curves)
        try:
            yield
        finally:
            progress.subscribers.remove(curves)


def _write_samples(made: "TrainedModel", progress: Progress, device: str) -> list[str]:
    """Texts by the saved model, loaded from its folder as any user would."""
    from ownwords.inference.model import Model

    with progress.stage("Writing samples"):
        model = Model.load(made.folder, device=device)
        return model.write_several("", seeds=range(1, _SAMPLES + 1), max_tokens=_SAMPLE_TOKENS)


def _confirmed() -> bool:
    """Ask whether to train; KeyboardInterrupt where the input ends."""
    from rich.prompt import Confirm

    try:
        return Confirm.ask("Train with this plan?", console=stderr(), default=True)
    except EOFError:
        raise KeyboardInterrupt from None
