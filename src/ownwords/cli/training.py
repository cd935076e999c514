"""`ownwords pretrain` and `finetune`: read, plan, confirm, train, report."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from ownwords.cli.options import (
    DEFAULTS,
    CommonOptions,
    NoTrim,
    Settings,
    SourcePath,
    TrainingDevice,
    require_package,
    with_help,
)
from ownwords.cli.output import confirm, relative_path
from ownwords.core.config import Resolved, settings_of
from ownwords.core.progress import Progress
from ownwords.view.blocks import Line, Pairs, Paragraph
from ownwords.view.terminal import BOLD, DIM, TerminalWriter

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.training.plan import Plan, PlannedValue
    from ownwords.training.trained_model import TrainedModel

_SAMPLES, _SAMPLE_TOKENS = 2, 80
_EARLY = "Training ended early: more steps no longer helped on held-out posts."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@with_help
class TrainingOptions:
    """The options of a verb that trains.

    Args:
        minutes: Minutes for everything, from reading to the saved model.
        plan: Show the plan and stop.
        out: Folder for the model. [default: model in the workspace]
    """

    minutes: float = 10.0
    device: TrainingDevice = "auto"
    plan: bool = False
    out: Path | None = None


TRAINING = TrainingOptions()


def pretrain(
    *paths: SourcePath, options: TrainingOptions = TRAINING, common: CommonOptions = DEFAULTS
) -> None:
    """Read the paths, plan, train from scratch, save the best model."""
    require_package("torch", "training a model")
    _train(paths, common, options)


@with_help
def finetune(
    *paths: SourcePath,
    base: str = "",
    lora: bool = False,
    no_trim: NoTrim = False,
    options: TrainingOptions = TRAINING,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, plan, fine-tune the base, save the best mix of base and tuned weights.

    Args:
        base: The model to start from: a directory, or a name from `ownwords base`. [default: the
            built-in one]
        lora: Train a small adapter instead of all weights, as the plan does anyway for a large
            base.
    """
    require_package("torch", "training a model")
    from ownwords.base import catalogue

    folder = catalogue.find(base)
    _train(paths, common, options, folder, by_lora=lora or None, trims=not no_trim)


def _train(
    paths: Sequence[Path],
    common: CommonOptions,
    options: TrainingOptions,
    base: Path | None = None,
    *,
    by_lora: bool | None = None,
    trims: bool = False,
) -> None:
    from ownwords.archive.corpus import read_corpus
    from ownwords.archive.look import look
    from ownwords.base import catalogue
    from ownwords.base.trimming import TRIMMED, trim
    from ownwords.make.pipeline import plan_training
    from ownwords.make.stages import check_minutes
    from ownwords.training.device import choose
    from ownwords.training.distributed import init_distributed
    from ownwords.training.recipes import TrainRequest

    began = command_start()
    check_minutes(options.minutes)
    world = init_distributed(choose(options.device).torch_device)
    if not world.is_first:  # only the first process asks and shows anything
        common = replace(common, yes=True, quiet=True)
    workspace = common.workspace_for(paths)
    resolved = common.resolve({}, workspace.root)
    with common.watched() as (progress, ask):
        # One process of each machine reads; the others load what it stored.
        with world.in_rank_order():
            if world.local_rank == 0:
                look(
                    paths,
                    workspace=workspace.root,
                    settings=resolved.settings,
                    progress=progress,
                    ask=ask,
                )
        texts = read_corpus(workspace.archive)
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
            base_title=catalogue.display_name(base),
            began=began,
        )
        if base and trims and world.size == 1:
            own, out = (text.text for text in texts.train), workspace.runs / TRIMMED / base.name
            base = trim(base, own, out, progress=progress)
        planned = plan_training(base, texts, request, by_lora=by_lora)
        if world.is_first and not (common.json and not options.plan):
            common.show(
                plan_figures(planned.plan), lambda console: print_plan(planned.plan, console)
            )
        asks = ask is not None and not options.plan
        if options.plan or not world.broadcast(
            not asks or confirm("Train with this plan?", default=True)
        ):
            world.close()
            return
        made = planned.train()
        samples = _write_samples(made, progress, options.device) if world.is_first else []
    if world.is_first:
        figures = {
            "model": str(made.folder),
            "run": str(made.run.folder),
            "bits_per_byte": made.bits_per_byte,
            "share": made.share,
            "bits_per_byte_before": made.before,
            "judged": list(made.judged),
            "outcome": asdict(made.outcome),
            "samples": samples,
            **plan_figures(made.plan),
        }
        common.show(figures, lambda console: _print_made(made, samples, console))


def command_start() -> float:
    """Return when the user began to wait, by time.perf_counter(), including Python's own start."""
    from ownwords.training.plan_constants import PLAN_CONSTANTS

    return time.perf_counter() - PLAN_CONSTANTS.start_s


def training_settings(resolved: Resolved[Settings]) -> dict[str, object]:
    """Return the training settings that the user set; the plan derives the others."""
    from ownwords.training.settings import Recipe

    keys = {setting.key for setting in settings_of(Recipe())}
    return {
        setting.key: setting.default
        for setting in settings_of(resolved.settings)
        if setting.key in keys and resolved.origins[setting.key] != "default"
    }


def plan_figures(plan: "Plan") -> dict[str, Any]:
    """Return the plan as `--json` prints it."""
    return {
        "plan": [asdict(number) for number in plan.reasons],
        "recipe": asdict(plan.recipe),
        "expected": asdict(plan.expected),
    }


def _write_samples(made: "TrainedModel", progress: Progress, device: str) -> list[str]:
    """Return texts by the saved model, loaded from its folder as a user would."""
    from ownwords.inference.model import Model

    with progress.stage("Writing samples"):
        model = Model.load(made.folder, device=device)
        return model.write_several("", seeds=range(1, _SAMPLES + 1), max_tokens=_SAMPLE_TOKENS)


# --- on the terminal ------------------------------------------------------------------------------


def print_plan(plan: "Plan", console: "Console") -> None:
    """Print every number with its reason and source; mark those the user set."""
    writer = TerminalWriter(console)
    sections: dict[str, list[tuple[str, Line]]] = {}
    for number in plan.reasons:
        section, _, name = number.key.partition(".")
        reason = f"{number.reason} ({number.source})" if number.source else number.reason
        reason = "as you set it" if number.origin == "setting" else reason
        text = f"{_value(number)}: {reason}" if reason else _value(number)
        sections.setdefault(section, []).append((name, text))
    writer.heading("The plan")
    for section, rows in sections.items():
        writer.space()
        writer.blocks([Paragraph(line=section, style="quiet"), Pairs(rows=rows)])
    expected = plan.expected.sentences()
    writer.section("What to expect", [Paragraph(line=sentence) for sentence in expected])
    writer.space()


def _value(number: "PlannedValue") -> str:
    if isinstance(number.value, bool):
        return "yes" if number.value else "no"
    if isinstance(number.value, int):
        return f"{number.value:,}"
    return f"{number.value:g}" if isinstance(number.value, float) else str(number.value)


def _print_made(made: "TrainedModel", samples: Sequence[str], console: "Console") -> None:
    """Print the result, the forecast's errors, samples, and what to do next."""
    writer, outcome = TerminalWriter(console), made.outcome
    writer.space()
    if made.bits_per_byte is None:
        writer.line("The model is trained. No text was held out, so its quality is unknown.", BOLD)
    else:
        before = "" if made.before is None else f"; the base had {made.before:.3f}"
        writer.line(f"{made.bits_per_byte:.3f} bits per byte on held-out posts{before}", BOLD)
    writer.space()
    sentences = [*made.judged, *([_EARLY] if outcome.stopped == "early" else [])]
    if made.bits_per_byte is not None:
        sentences.append(_saved_weights(made))
    if outcome.rollbacks:
        times = "once" if outcome.rollbacks == 1 else f"{outcome.rollbacks} times"
        sentences.append(
            f"The loss diverged {times}; training went back to a checkpoint and halved the learning"
            " rate."
        )
    for sentence in sentences:
        writer.line(sentence)
    writer.section("Samples", [Paragraph(line=f"“{' '.join(text.split())}”") for text in samples])
    writer.heading("The model")
    folder = relative_path(made.folder)
    writer.copied(folder)
    writer.copied(f"For other tools: ownwords export {shlex.quote(folder)} --to gguf")
    writer.copied(f"All figures: {relative_path(made.run.folder)}")
    writer.line("To train longer, give more --minutes: this starts a new run.", DIM)


def _saved_weights(made: "TrainedModel") -> str:
    if not made.share:
        return "Training did not help on held-out posts, so the base's own weights are saved."
    way = f", mixed with {1 - made.share:.0%} of the base's" if made.share < 1 else ""
    return f"The saved weights are from step {made.outcome.best_step:,}{way}."
