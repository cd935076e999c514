"""The base's training: an open-ended run at a constant rate, and runs that decay the rate."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from bench.machine import BackgroundWork

import mix
from ownwords.core.errors import ConfigError, WorkspaceError
from ownwords.core.progress import Progress
from ownwords.core.workspace import write_atomically
from ownwords.inference.text_generation import generation_config
from ownwords.models import bundle
from ownwords.models.configs.llama import config_for_budget
from ownwords.models.decoder import CausalLM, build
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training.batches import Batches
from ownwords.training.checkpoint import Checkpoint, Run
from ownwords.training.device import choose
from ownwords.training.distributed import SINGLE_PROCESS
from ownwords.training.loop import TrainJob, train
from ownwords.training.metrics import LossModule, SampleWriter, bits_per_byte
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.settings import DataConfig, LoopConfig, OptimConfig, Recipe, ScheduleConfig
from ownwords.training.token_dataset import TokenDataset

OPTIONS: tuple[tuple[str, float, str], ...] = (
    ("parameters", 16e6, "of the model"),
    ("context", 512, "tokens of a row"),
    ("rows", 32, "of a step"),
    ("modern_share", 0.5, "of the rows, from modern prose"),
    ("muon_lr", 0.02, "Muon's rate"),
    ("expected_tokens", 200e6, "for which weight decay is set"),
)
_SETTINGS = "settings.json"
_TEXTS = "mix.json"  # in a run's folder: the keys of the texts that it began with
_START = "start"  # the model that a run starts from, if not from random weights
_STEPS = 1_000_000  # of the run at a flat rate: more than it will ever take
_WARMUP = 100  # steps
_EVALUATE = 4_000_000  # tokens between two evaluations
_DECAY_MEMORY = 0.3  # of the expected tokens: the time scale of weight decay (arXiv 2405.13698)
_ROWS_AT_ONCE = 8
_CHECKPOINT_S = 600.0
_SAMPLES_S = 1e9


@dataclass(frozen=True)
class BaseSettings:
    """The settings that a base's run starts with and keeps."""

    parameters: float
    context: int
    rows: int
    modern_share: float
    muon_lr: float
    expected_tokens: float

    @property
    def step_tokens(self) -> int:
        return self.rows * self.context


def settings(folder: Path, changed: Mapping[str, float]) -> BaseSettings:
    """Return the settings of a folder's run, or a new one's; ConfigError if they would change."""
    path = folder / _SETTINGS
    values = {name: default for name, default, _ in OPTIONS}
    if path.exists():
        values = json.loads(path.read_text(encoding="utf-8"))
        for name, value in changed.items():
            if value != values[name]:
                raise ConfigError(
                    f"the run in {folder} was started with {name} = {values[name]:g}, not"
                    f" {value:g}",
                    hint="leave the option out, or give another --folder",
                )
    else:
        values |= changed
        write_atomically(path, json.dumps(values, indent=2))
    integers = {name: int(values[name]) for name in ("context", "rows")}
    return BaseSettings(**{**values, **integers})


def start_from(folder: Path, source: Path, layers: int | None = None) -> int:
    """Store the model that a run starts from, with the mix's tokenizer; return its parameter count.

    With `layers` it is made deeper than `source`.
    """
    start = folder / _START
    if (folder / "runs" / "flat").exists() and not start.exists():
        raise ConfigError(
            f"the run in {folder} has begun already, with random weights",
            hint="give another --folder",
        )
    if not start.exists():
        loaded = bundle.load(source)
        old, new = tokenizers.Tokenizer(loaded.tokenizer_files), mix.tokenizer(folder)
        loaded.check_tokenizer(old)
        state = loaded.model.float().state_dict()
        state["embedding.weight"] = translated(state["embedding.weight"], old, new)
        depth = layers or loaded.config.layers
        model = build(
            replace(loaded.config, vocabulary=new.vocabulary_size, layers=depth),
        )
        model.load_state_dict(deepened(state, loaded.config.layers, depth))
        bundle.save(start, model, new, provenance=loaded.provenance)
    return sum(parameter.numel() for parameter in bundle.load(start).model.parameters())


def translated(embedding: torch.Tensor, old: Tokenizer, new: Tokenizer) -> torch.Tensor:
    """Return the embedding for another vocabulary: new tokens are means of the old ones in them."""
    known = {old.decode_bytes([i]): i for i in range(old.vocabulary_size)}
    names = {i: name for name, i in new.special.items()}

    def pieces(token: int) -> list[int]:
        if token in names:
            return [old.special[names[token]]]
        data = new.decode_bytes([token])
        if data in known:
            return [known[data]]
        try:
            return old.encode(data.decode())
        except UnicodeDecodeError:  # a part of a character
            return [known[bytes([byte])] for byte in data]

    return torch.stack([embedding[pieces(token)].mean(0) for token in range(new.vocabulary_size)])


def deepened(
    state: Mapping[str, torch.Tensor], layers: int, wanted: int
) -> dict[str, torch.Tensor]:
    """Return the weights of a deeper model that computes the same until its copies have learned.

    The new layers are copies of those they follow, with outputs of zero (arXiv 2401.02415).
    """
    if wanted < layers:
        raise ConfigError(f"the model has {layers} layers, and cannot be cut to {wanted}")
    deeper = {name: tensor for name, tensor in state.items() if not name.startswith("blocks.")}
    former = -1
    for layer in range(wanted):
        source = layer * layers // wanted
        for name, tensor in state.items():
            if name.startswith(f"blocks.{source}."):
                part = name.split(".", 2)[2]
                silent = source == former and part in ("attention.output.weight", "mlp.down.weight")
                deeper[f"blocks.{layer}.{part}"] = tensor * 0 if silent else tensor
        former = source
    return deeper


class Trial(NamedTuple):
    """The results of a short run, in bits per byte of held-out texts."""

    parameters: int
    seconds: float
    modern: float
    books: float


class Pretraining:
    """The base's run in a folder."""

    def __init__(self, folder: Path, chosen: BaseSettings, progress: Progress) -> None:
        self.folder, self.settings, self.progress = folder, chosen, progress
        self.mix, self.tokenizer = mix.load(folder), mix.tokenizer(folder)
        self.device = choose("cpu")
        self._start = folder / _START
        self._background = BackgroundWork()

    def close(self) -> None:
        """Release the machine's locks."""
        self._background.close()

    def train(self) -> None:
        """Train at a flat rate from the newest checkpoint until interrupted."""
        job = self._job(self._run("flat"), self.settings, _STEPS, 0)
        train(job)

    def finish(self, tokens: float | None, modern_share: float | None, context: int | None) -> Path:
        """Train from the newest checkpoint while the rate decays to 0; return the model."""
        first = self.settings
        trunk = self._run("flat").checkpoints.newest(self.progress.note)
        if trunk is None or not trunk.step:
            raise WorkspaceError(
                f"{self.folder} holds no trained weights",
                hint="run `python base/build.py train` first",
            )
        if trunk.step < _WARMUP:  # the rate must have risen before it can fall
            raise WorkspaceError(
                f"the run in {self.folder} is still in its warm-up: {trunk.step} of {_WARMUP}"
                " steps",
                hint="go on with `python base/build.py train` until they are done",
            )
        length = context or first.context
        chosen = replace(
            first,
            context=length,
            rows=max(1, first.step_tokens // length),
            modern_share=first.modern_share if modern_share is None else modern_share,
        )
        wanted = trunk.step * first.step_tokens / 4 if tokens is None else tokens
        decay = max(1, round(wanted / first.step_tokens))
        name = f"finish-{trunk.step}-{decay}-{chosen.modern_share:g}-{length}"
        job = self._branch(trunk, name, chosen, decay)
        outcome = train(job)
        bundle.save(
            self.folder / "model",
            job.model,
            self.tokenizer,
            generation=generation_config(),
            provenance={
                "kind": "pretrain",
                "base_name": "",
                "recipe": {
                    "optim": asdict(job.settings.optim),
                    "schedule": asdict(job.settings.schedule),
                    "train": asdict(job.settings.train),
                },
                "settings": asdict(chosen),
                "start": self._read_before(),
                "texts": self.mix.counts,
                "run": name,
                "outcome": {
                    "steps": outcome.steps,
                    "best_step": outcome.best_step,
                    "tokens": outcome.tokens,
                    "seconds": outcome.seconds,
                    "validation_bits_per_byte": outcome.bits_per_byte,
                },
            },
        )
        return self.folder / "model"

    def trial(self, tokens: float, last_share: float) -> Trial:
        """Train briefly; the second half has a falling rate, and another share of modern prose."""
        steps = max(2, round(tokens / self.settings.step_tokens))
        name = "-".join(f"{value:g}" for value in asdict(self.settings).values()).replace("+", "")
        flat = self._run(f"trial-{name}")
        train(self._job(flat, self.settings, steps // 2, 0, brief=True))
        trunk = flat.checkpoints.load(steps // 2)
        last = replace(self.settings, modern_share=last_share)
        branch = f"{flat.folder.name}-{last_share:g}"
        job = self._branch(trunk, branch, last, steps - steps // 2, brief=True)
        reports = cast("HeldOutReport", job.sample)
        outcome = train(job)
        parameters = sum(parameter.numel() for parameter in job.model.parameters())
        modern = outcome.bits_per_byte or 0.0
        return Trial(parameters, outcome.seconds, modern, reports.books(job.model))

    def _branch(
        self,
        trunk: Checkpoint,
        name: str,
        chosen: BaseSettings,
        decay: int,
        brief: bool = False,
    ) -> TrainJob:
        """Return a run that continues another's checkpoint while the rate falls to 0."""
        run = self._run(name)
        job = self._job(run, chosen, trunk.step + decay, decay, brief)
        if not run.checkpoints.steps():
            done = trunk.step / job.settings.train.steps
            begun = replace(trunk.record, evaluations=[], stopped="", progress=done)
            run.checkpoints.save(trunk.step, trunk.groups, begun)
        return job

    def _read_before(self) -> Mapping[str, float]:
        """Return tokens, seconds and Muon's highest rate of the model that the run started from."""
        if not self._start.exists():
            return {}
        provenance = bundle.load(self._start).provenance
        outcome = cast("Mapping[str, float]", provenance["outcome"])
        before = cast("Mapping[str, float]", provenance.get("start") or {})
        rate = provenance["recipe"]["optim"]["muon_lr"]
        return {
            **{name: outcome[name] + before.get(name, 0) for name in ("tokens", "seconds")},
            "muon_lr": max(rate, before.get("muon_lr", 0.0)),
        }

    def _run(self, name: str) -> Run:
        """Return the run of that name. Raises ConfigError if it began with other texts."""
        run = Run.new(self.folder / "runs", name)
        path = run.folder / _TEXTS
        if path.exists() and json.loads(path.read_text(encoding="utf-8")) != self.mix.datasets:
            raise ConfigError(
                f"the run in {run.folder} began with other texts than {self.folder} holds now",
                hint="prepare the mix as it was, or give another --folder",
            )
        write_atomically(path, json.dumps(self.mix.datasets))
        return run

    def _job(
        self, run: Run, chosen: BaseSettings, steps: int, decay: int, brief: bool = False
    ) -> TrainJob:
        """Return a run of `steps`; a brief one is evaluated only at its end, on last weights."""
        model = self._model(chosen)
        optim = optim_config(model.config.width, chosen)
        watched = {
            name: self.mix.open(self.folder, name) for name in ("held-out modern", "held-out books")
        }
        tokens = chosen.step_tokens
        data = DataConfig(replay=chosen.modern_share)
        return TrainJob(
            model=model,
            batches=Batches(
                self.mix.open(self.folder, "books"),
                rows=chosen.rows,
                context=chosen.context,
                seed=1,
                config=data,
                replay=self.mix.open(self.folder, "modern"),
            ),
            settings=Recipe(
                data=data,
                optim=optim,
                schedule=ScheduleConfig(
                    warmup_fraction=min(_WARMUP, steps - decay) / steps,
                    decay_fraction=decay / steps,
                ),
                train=LoopConfig(
                    steps=steps,
                    batch_size=chosen.rows,
                    sequence_length=chosen.context,
                    micro_batch_size=_ROWS_AT_ONCE * self.settings.context // chosen.context,
                    precision="autocast",
                    evaluations=1 if brief else max(1, round(steps * tokens / _EVALUATE)),
                    patience=0,
                    checkpoint_every_s=_CHECKPOINT_S,
                ),
            ),
            run=run,
            device=self.device,
            validation=watched["held-out modern"],
            progress=self.progress,
            sample=HeldOutReport(self, watched["held-out books"], chosen),
        )

    def _model(self, chosen: BaseSettings) -> CausalLM:
        """Return the model to train, which waits for running benchmarks before each loss."""
        model = self._initial(chosen)
        loss = model.loss

        def after_others(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - what `loss` takes
            self._background.give_way()
            return loss(*args, **more)

        model.loss = after_others  # type: ignore[method-assign]
        return model

    def _initial(self, chosen: BaseSettings) -> CausalLM:
        if self._start.exists():
            saved = bundle.load(self._start)
            model = build(
                replace(saved.config, context=chosen.context), device=self.device.torch_device
            )
            model.load_state_dict(saved.model.state_dict())
            return model
        config = config_for_budget(
            round(chosen.parameters), self.tokenizer.vocabulary_size, chosen.context
        )
        model = build(config, device=self.device.torch_device)
        model.init_weights(1)
        return model


class HeldOutReport:
    """Writes bits per byte of held-out books, and a text, to `samples.txt` at each evaluation."""

    def __init__(self, owner: Pretraining, books: TokenDataset, chosen: BaseSettings) -> None:
        self._owner, self._books, self._chosen = owner, books, chosen
        self._write = SampleWriter(owner.tokenizer, 160, _SAMPLES_S)

    def __call__(self, model: CausalLM) -> str:
        bits = self.books(model)
        return f"held-out books: {bits:.4f} bits per byte\n{self._write(model)}"

    def books(self, model: CausalLM) -> float:
        """Return the bits per byte of the held-out books."""
        return bits_per_byte(
            LossModule(model),
            self._books,
            rows=_ROWS_AT_ONCE,
            context=self._chosen.context,
            device=self._owner.device,
            precision="autocast",
            world=SINGLE_PROCESS,
        )


def optim_config(width: int, chosen: BaseSettings) -> OptimConfig:
    """Return the plan's rates, and a weight decay for the expected number of tokens."""
    memory = _DECAY_MEMORY * chosen.expected_tokens / chosen.step_tokens  # steps
    return OptimConfig(
        kind="muon",
        muon_lr=chosen.muon_lr,
        learning_rate=PLAN_CONSTANTS.embedding_lr(width),
        beta2=PLAN_CONSTANTS.beta2(chosen.step_tokens, chosen.expected_tokens),
        weight_decay=1 / (chosen.muon_lr * memory),
    )


def curve_table(folder: Path) -> str:
    """Return each run's evaluations: step, tokens, bits per byte of modern prose and of books."""
    lines = ["run | step | modern | books", "---|---:|---:|---:"]
    for path in sorted((folder / "runs").glob("*/metrics.jsonl")):
        books = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:  # a line that was being written at a power failure
                continue
            note = str(event.get("message", ""))
            if "held-out books: " in note:
                books = note.rpartition("held-out books: ")[2].split()[0]
            values = event.get("values") or {}
            if "validation_bits_per_byte" in values:
                lines.append(
                    f"{path.parent.name} | {values['step']:.0f}"
                    f" | {values['validation_bits_per_byte']:.4f} | {books}"
                )
    return "\n".join(lines)
