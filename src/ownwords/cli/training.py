"""`ownwords pretrain` and `finetune`: read, plan, confirm, train, report."""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from ownwords.cli.options import DEFAULTS, CommonOptions, Settings
from ownwords.cli.output import relative_path, stderr, stdout
from ownwords.cli.parameters import SourcePath, TrainingDevice, described, flag, require_package
from ownwords.cli.training_view import line_chart, watching
from ownwords.core.config import Resolved, settings_of
from ownwords.core.progress import Progress
from ownwords.core.workspace import Workspace
from ownwords.view.terminal import LOUD, QUIET, TerminalWriter

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.archive.analysis import AskAuthor
    from ownwords.archive.corpus import Corpus, TextCollection, TrainingText
    from ownwords.training.distributed import Mode, World
    from ownwords.training.plan import Plan, PlannedValue
    from ownwords.training.recipes import PlannedTraining, TrainedModel, TrainRequest
    from ownwords.training.run import RunHistory

    Texts = Iterable[TrainingText]

_SAMPLES, _SAMPLE_TOKENS = 2, 80
_STOPPED = {
    "done": "",
    "early": "Training ended early: more steps no longer helped on held-out posts.",
    "memorised": "Training ended early: the model began to memorise the texts.",
}


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
    world: "World | None" = None,
) -> "Iterator[tuple[Corpus, TextCollection | None]]":
    """The author's texts and the base's own text, both read as `ownwords look` reads them.

    Of several processes that train together one on each machine reads, the others take what it has
    stored.
    """
    from ownwords.archive import corpus
    from ownwords.archive.look import look
    from ownwords.archive.store import Archive

    def read(sources: Sequence[Path], workspace: Workspace, ask: "AskAuthor | None") -> None:
        look(
            sources,
            workspace=workspace.root,
            archive=settings.archive,
            provenance=settings.provenance,
            split=settings.split,
            progress=progress,
            ask=ask,
        )

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


# --- on the terminal ------------------------------------------------------------------------------


def print_plan(plan: "Plan", console: "Console") -> None:
    """Print every number with its reason and source; mark those the user set."""
    writer = TerminalWriter(console)
    sections: dict[str, list[tuple[str, str]]] = {}
    for number in plan.reasons:
        section, _, name = number.key.partition(".")
        reason = f"{number.reason} ({number.source})" if number.source else number.reason
        reason = "as you set it" if number.origin == "setting" else reason
        text = f"{_value(number)}: {reason}" if reason else _value(number)
        sections.setdefault(section, []).append((name, text))
    writer.heading("The plan")
    for section, rows in sections.items():
        writer.space()
        writer.line(section, QUIET)
        writer.pairs(rows)
    writer.heading("What to expect")
    for sentence in plan.expected.sentences():
        writer.line(sentence)
    writer.space()


def _value(number: "PlannedValue") -> str:
    if isinstance(number.value, bool):
        return "yes" if number.value else "no"
    if isinstance(number.value, int):
        return f"{number.value:,}"
    return f"{number.value:g}" if isinstance(number.value, float) else str(number.value)


def print_made(
    made: "TrainedModel", samples: Sequence[str], history: "RunHistory", console: "Console"
) -> None:
    """Print the result, the curve, how right the plan was, samples, and what to do next."""
    writer = TerminalWriter(console)
    plain = (console.encoding or "").lower().replace("-", "") not in {"utf8", "utf16"}
    outcome, say = made.outcome, writer.line
    writer.space()
    if made.bits_per_byte is None:
        say("The model is trained. No text was held out, so its quality is unknown.", LOUD)
    else:
        before = "" if made.before is None else f"; the base had {made.before:.3f}"
        say(f"{made.bits_per_byte:.3f} bits per byte on held-out posts{before}", LOUD)
    marks = [(float(e.step), e.best) for e in outcome.evaluations if e.best is not None]
    # Steps cut for lack of time are not drawn; steps saved by ending early are.
    steps = outcome.steps if outcome.stopped == "done" else made.plan.recipe.train.steps
    if len(marks) > 1:
        writer.space()
        line = [(point.step, point.smooth) for point in history.points]
        for row in line_chart(line, marks, steps=steps, width=writer.width, height=7, plain=plain):
            writer.put(row)
    writer.space()
    for sentence in made.judged:
        say(sentence)
    if _STOPPED[outcome.stopped]:
        say(_STOPPED[outcome.stopped])
    if made.bits_per_byte is not None:
        say(_saved_weights(made))
    if outcome.setbacks:
        times = "once" if outcome.setbacks == 1 else f"{outcome.setbacks} times"
        say(
            f"The loss diverged {times}; training went back to a checkpoint and halved the learning"
            " rate."
        )
    if samples:
        writer.heading("Samples")
        for sample in samples:
            say(f"“{' '.join(sample.split())}”")
    writer.heading("The model")
    folder = relative_path(made.folder)
    # Each on one line, however long: they are to be copied.
    for text in (
        folder,
        f"For other tools: ownwords export {shlex.quote(folder)} --to gguf",
        f"All figures: {relative_path(made.run.folder)}",
    ):
        console.print(Text(text), soft_wrap=True)
    say("More --minutes start a new run from scratch, with a larger plan.", QUIET)


def _saved_weights(made: "TrainedModel") -> str:
    if not made.share:
        return "Training did not help on held-out posts, so the base's own weights are saved."
    averaged = ", averaged with earlier ones" if made.outcome.averaged else ""
    way = f", {made.share:.0%} of the way from the base" if made.share < 1 else ""
    return f"The saved weights are from step {made.outcome.best_step:,}{averaged}{way}."


# --- the verbs ------------------------------------------------------------------------------------


def pretrain(
    *paths: SourcePath,
    options: TrainingOptions = TRAINING,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, plan, train from scratch, save the best model."""
    require_package("torch", "training a model")
    from ownwords.training import recipes

    train(
        paths,
        common,
        options,
        lambda texts, held_out, request, _: recipes.plan_pretraining(texts, held_out, request),
        kind="pretrain",
    )


def finetune(
    *paths: SourcePath,
    base: Annotated[
        str,
        described(
            "The model to start from, which is not changed: a directory, or a name that `ownwords"
            " base` lists. [default: the one in the box]"
        ),
    ] = "",
    replay: Annotated[
        Path | None,
        Parameter(
            help="Texts like those the base was trained on, mixed in so that it forgets less."
            " [default: none]"
        ),
    ] = None,
    lora: Annotated[
        bool,
        flag(
            "Train a small adapter instead of all weights, as the plan does by itself for a large"
            " base."
        ),
    ] = False,
    no_trim: Annotated[
        bool,
        flag("Keep the whole vocabulary of a large base, not only what your texts need."),
    ] = False,
    options: TrainingOptions = TRAINING,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, plan, fine-tune the base, save the best mix of base and tuned weights."""
    from ownwords.base import catalogue
    from ownwords.base.trimming import TRIMMED, trim

    require_package("torch", "training a model")
    from ownwords.training import recipes

    folder = catalogue.find(base)

    def plan(
        texts: "Texts", held_out: "Texts", request: "TrainRequest", base_text: "Texts | None"
    ) -> "PlannedTraining":
        start = folder
        if not (no_trim or int(os.environ.get("WORLD_SIZE", "1")) > 1):
            own, out = (text.text for text in texts), request.workspace / "runs" / TRIMMED
            start = trim(folder, own, out / folder.name, progress=request.progress).folder
        return recipes.plan_finetuning(
            start, texts, held_out, request, replay=base_text, by_lora=lora or None
        )

    train(
        paths,
        common,
        options,
        plan,
        kind="lora" if lora else "finetune",
        replay=replay,
    )
