"""The formulas and constants the plan rests on: one table, each figure with its source.

What experiments refit is `PlanConstants`; nothing elsewhere in the plan is a number of its own.

Letters: N parameters, D bytes of text read (again counted again), U bytes of different text.
"""

import math
from dataclasses import dataclass, field, fields

from ownwords.models.configs.config import ModelConfig

LOG = "docs/log.md"
SPEED = "docs/performance.md"
ESTIMATE = "estimate"  # reasoned, and not measured yet


def _constant(value: float, source: str) -> float:
    """A constant with its source."""
    constant: float = field(default=value, metadata={"source": source})
    return constant


@dataclass(frozen=True)
class PlanConstants:
    """Every constant of the plan. `source(name)` says where one comes from."""

    # --- what a model of a size learns from so much text, in bits per byte ------------------------
    loss_floor: float = _constant(0.72, LOG)  # bits per byte no model of this kind goes below
    size_scale: float = _constant(28.0, LOG)  # how much a small model costs: scale / N^power
    size_power: float = _constant(0.30, LOG)  # see size_scale; Hoffmann et al. have .34
    text_scale: float = _constant(19.0, LOG)  # how much little text costs: scale / D^power
    text_power: float = _constant(0.20, LOG)  # see text_scale; Hoffmann et al. have .28
    repeats: float = _constant(15.4, "arXiv 2305.16264")  # R*: what reading again is worth fades so
    # N*: what more parameters are worth fades so
    oversize: float = _constant(5.3, "arXiv 2305.16264")
    # Parameters a byte of different text can use before their worth fades
    parameters_per_byte: float = _constant(1.0, ESTIMATE)
    # The expected score at best, as a share of the law's
    spread_low: float = _constant(0.76, ESTIMATE)
    # And at worst: texts differ in how hard they are
    spread_high: float = _constant(1.16, ESTIMATE)
    enough: float = _constant(0.003, ESTIMATE)  # a larger model must gain this share to be taken
    # Readings after which a small text is only learned by heart
    epochs_limit: float = _constant(12, LOG)

    # --- tokenizer ------------------------------------------------------------------------------
    bytes_below: float = _constant(40_000, ESTIMATE)  # bytes of text below which a token is a byte
    token_bytes_256: float = _constant(1.0, LOG)  # bytes a token at a vocabulary of bytes
    # Bytes a token gained with each doubling of it
    token_bytes_growth: float = _constant(0.64, LOG)

    # --- batch and rates ------------------------------------------------------------------------
    # Tokens a step = scale * D_tokens^power
    batch_scale: float = _constant(0.58, "arXiv 2503.04715")
    batch_power: float = _constant(0.571, "arXiv 2503.04715")  # see batch_scale
    # Tokens a step, at least: fewer leave the units idle
    batch_min: float = _constant(1024, ESTIMATE)
    batch_max: float = _constant(2**19, "arXiv 2503.04715")  # tokens a step, at most
    # A run of fewer steps takes smaller batches instead
    steps_least: float = _constant(150, ESTIMATE)
    adamw_scale: float = _constant(1.79, "arXiv 2503.04715")  # rate = scale * N^-a * D_tokens^b
    adamw_size_power: float = _constant(-0.713, "arXiv 2503.04715")  # see adamw_scale
    adamw_text_power: float = _constant(0.307, "arXiv 2503.04715")  # see adamw_scale
    adamw_lr_max: float = _constant(5e-3, "arXiv 2503.04715")  # the law's rate, at most
    muon_lr: float = _constant(0.02, LOG)  # Muon's peak rate, of matrices
    # AdamW's beside Muon, at a width of 256; as 1 / width
    embedding_lr_at_256: float = _constant(5e-3, LOG)
    embedding_lr_max: float = _constant(1e-2, LOG)  # and not above
    embedding_lr_min: float = _constant(3e-4, ESTIMATE)  # nor below
    beta2_share: float = _constant(0.1, ESTIMATE)  # and no more than this share of what is read
    beta2_tokens: float = _constant(1e7, "arXiv 2507.07101")  # half-life of AdamW's second moment
    tau: float = _constant(0.75, LOG)  # epochs weights remember; arXiv 2405.13698 has the rule
    weight_decay_min: float = _constant(0.01, ESTIMATE)  # weight decay, at least
    weight_decay_max: float = _constant(2.0, LOG)  # weight decay, at most
    warmup_fraction: float = _constant(0.01, LOG)  # share of the steps in which the rate rises
    decay_fraction: float = _constant(0.6, LOG)  # share of the steps in which it falls
    decay_fraction_short: float = _constant(0.7, LOG)  # the same in a short run
    short_steps: float = _constant(2000, ESTIMATE)  # steps below which a run is short
    # Of the average, as a share of the steps
    half_life: float = _constant(0.02, "arXiv 2411.18704")
    # Steps from which there is anything to average
    half_life_steps: float = _constant(200, ESTIMATE)

    # --- keeping a small corpus from being learned by heart --------------------------------------
    dropout: float = _constant(0.1, LOG)  # dropout where text is read again and again
    dropout_epochs: float = _constant(10, LOG)  # readings from which there is dropout
    # Weight decay of the embedding where there is dropout
    embedding_weight_decay: float = _constant(1.0, LOG)

    least_bytes: float = _constant(2000, ESTIMATE)  # bytes of text below which nothing is learned
    least_steps: float = _constant(20, ESTIMATE)  # steps below which nothing is learned

    # --- starting from a base -------------------------------------------------------------------
    tune_lr_factor: float = _constant(0.25, LOG)  # a base's peak rates, times this
    # Times the law's rate, where nobody knows the base's
    tune_lr_factor_unknown: float = _constant(0.1, ESTIMATE)
    tune_lr_max: float = _constant(3e-4, ESTIMATE)  # AdamW's rate for a base of others, at most
    tune_epochs: float = _constant(4, LOG)  # readings of one author's text, at most
    tune_dropout: float = _constant(0.0, LOG)  # dropout of a model that is tuned
    tune_decay_fraction: float = _constant(0.9, LOG)  # share of the steps in which the rate falls
    # Tokens of a row on a CPU, if the base looks back so far
    tune_context: float = _constant(512, LOG)
    tune_replay: float = _constant(0.3, LOG)  # share of rows of the base's own text
    # Tokens a base writes itself, where no text of its own is given
    replay_tokens: float = _constant(100_000, ESTIMATE)
    replay_time_share: float = _constant(0.1, ESTIMATE)  # of the seconds, at most, for that
    tune_gain: float = _constant(0.064, LOG)  # bits saved by tuning on tune_gain_bytes, as a share
    tune_gain_bytes: float = _constant(268_000, LOG)  # see tune_gain
    tune_gain_power: float = _constant(0.3, ESTIMATE)  # how the gain grows with the text
    tune_gain_most: float = _constant(0.2, ESTIMATE)  # and no more than this
    # A LoRA's rate, times that of all weights
    lora_lr_factor: float = _constant(10, "thinkingmachines.ai/blog/lora")

    # --- speed, where nothing could be measured ---------------------------------------------------
    assumed_cpu_flops: float = _constant(1.2e11, SPEED)  # flops/s of training on a CPU
    assumed_gpu_flops: float = _constant(4e13, ESTIMATE)  # the same on a GPU
    # Seconds a layer's step takes, however small
    assumed_cpu_layer_s: float = _constant(1e-3, SPEED)
    assumed_gpu_layer_s: float = _constant(6e-4, ESTIMATE)  # the same on a GPU

    # --- time and memory ------------------------------------------------------------------------
    measure_share: float = _constant(0.04, ESTIMATE)  # of the seconds, at most, to measure speed
    # But so long: a plan on assumed speeds wastes minutes
    measure_least_s: float = _constant(5, LOG)
    measure_most_s: float = _constant(20, ESTIMATE)  # and never longer
    start_s: float = _constant(3.0, ESTIMATE)  # to start: Python, PyTorch
    close_s: float = _constant(1.0, ESTIMATE)  # to save what was made
    evaluate_share: float = _constant(0.06, ESTIMATE)  # of the seconds, at most, for evaluations
    # Share of the evaluations that may pass without a better
    patience: float = _constant(0.35, ESTIMATE)
    # Of the seconds, kept back: checkpoints, loading, noise
    unforeseen: float = _constant(0.03, ESTIMATE)
    compile_cpu_s: float = _constant(22, SPEED)  # to compile a model on a CPU
    compile_gpu_s: float = _constant(60, SPEED)  # and on a GPU
    compile_gain_float32: float = _constant(1.0, SPEED)  # times as fast, in float32
    compile_gain_cpu: float = _constant(1.2, SPEED)  # the same in bfloat16 on a CPU
    compile_gain_fused: float = _constant(0.7, LOG)  # the same, in place of the part in C++
    compile_gain_gpu: float = _constant(1.4, SPEED)  # the same on a GPU
    memory_share: float = _constant(0.7, ESTIMATE)  # of the free memory that training may take
    memory_base: float = _constant(4e8, ESTIMATE)  # bytes of Python and PyTorch alone
    # Weight, gradient, two moments, average, and a copy to save
    bytes_a_parameter: float = _constant(24, ESTIMATE)
    bytes_a_value: float = _constant(4, ESTIMATE)  # of what is kept for the way back

    def source(self, name: str) -> str:
        """Where a constant comes from."""
        known = {one.name: str(one.metadata["source"]) for one in fields(self)}
        return known[name]

    # --- what a run may be expected to reach ----------------------------------------------------

    def text_worth(self, read: float, different: float) -> float:
        """Bytes of new text that reading so much of so little is worth (Muennighoff et al.)."""
        if read <= different:
            return read
        again = read / different - 1
        return different * (1 + self.repeats * -math.expm1(-again / self.repeats))

    def size_worth(self, size: float, different: float) -> float:
        """Parameters that count, of a model larger than its text can use (the same)."""
        useful = self.parameters_per_byte * different
        if size <= useful:
            return size
        more = size / useful - 1
        return useful * (1 + self.oversize * -math.expm1(-more / self.oversize))

    def bits_per_byte(self, size: float, read: float, different: float) -> float:
        """On text of the same kind that was held out; 8 where nothing is learned."""
        size = max(1.0, self.size_worth(size, max(1.0, different)))
        read = max(1.0, self.text_worth(read, max(1.0, different)))
        return min(
            8.0,
            self.loss_floor
            + self.size_scale / math.pow(size, self.size_power)
            + self.text_scale / math.pow(read, self.text_power),
        )

    def tuned_share(self, different: float) -> float:
        """What is left of a base's bits per byte after tuning on so much text."""
        gain = self.tune_gain * math.pow(different / self.tune_gain_bytes, self.tune_gain_power)
        return 1 - min(self.tune_gain_most, gain)

    # --- tokens, batch, rates -------------------------------------------------------------------

    def vocabulary(self, different: float) -> int:
        """Tokens of BPE for so much text; 0: a token is a byte."""
        if different < self.bytes_below:
            return 0
        for below, size in (
            (1.2e5, 512),
            (2e5, 1024),
            (2e6, 2048),
            (5e7, 4096),
            (5e8, 8192),
            (5e9, 16384),
        ):
            if different < below:
                return size
        return 32768

    def bytes_per_token(self, vocabulary: int) -> float:
        """Of English; text at hand is counted instead."""
        doublings = math.log2(max(vocabulary, 261) / 261)
        return self.token_bytes_256 + self.token_bytes_growth * doublings

    def batch_tokens(self, tokens_read: float) -> float:
        """Tokens a step for a run that reads so many."""
        wanted = self.batch_scale * math.pow(tokens_read, self.batch_power)
        return min(self.batch_max, max(self.batch_min, wanted))

    def adamw_lr(self, size: float, tokens_read: float) -> float:
        """The Step Law's peak rate."""
        rate = self.adamw_scale * math.pow(size, self.adamw_size_power)
        return min(self.adamw_lr_max, rate * math.pow(tokens_read, self.adamw_text_power))

    def embedding_lr(self, width: int) -> float:
        """AdamW's rate for embeddings and norms, beside Muon."""
        wanted = self.embedding_lr_at_256 * 256 / width
        return min(self.embedding_lr_max, max(self.embedding_lr_min, wanted))

    def beta2(self, batch_tokens: float, tokens_read: float) -> float:
        """AdamW's second moment forgets half in a fixed number of tokens, not of steps."""
        half_life = min(self.beta2_tokens, self.beta2_share * tokens_read)
        return min(0.9999, max(0.9, math.pow(2, -batch_tokens / max(half_life, 1.0))))

    def weight_decay(self, rate: float, steps_per_epoch: float) -> float:
        """What lets weights forget within tau epochs: 1 / (rate * steps a reading * tau)."""
        wanted = 1 / max(rate * steps_per_epoch * self.tau, 1e-12)
        return min(self.weight_decay_max, max(self.weight_decay_min, wanted))

    # --- time -----------------------------------------------------------------------------------

    def measuring_s(self, seconds: float) -> float:
        """How long speed is measured in a run of so many seconds."""
        wanted = max(self.measure_share * seconds, self.measure_least_s)
        return min(wanted, self.measure_most_s)

    # --- memory ---------------------------------------------------------------------------------

    def training_bytes(self, shape: ModelConfig, size: int, rows: int, context: int) -> float:
        """Peak memory of a model of `size` parameters, trained so many rows at once."""
        heads = shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
        values = 6 * shape.width + heads + 4 * shape.hidden
        logits = 3 * max(256 * shape.vocabulary, 2**22)
        return (
            self.memory_base
            + self.bytes_a_parameter * size
            + self.bytes_a_value * (rows * context * values * shape.layers + logits)
            + 6.0 * rows * context * context  # who may look at whom, where documents are packed
        )


PLAN_CONSTANTS = PlanConstants()


def optimizer_flops(shape: ModelConfig) -> float:
    """Of a step of Muon: 5 rounds of Newton and Schulz on every matrix of the blocks.

    A round on a matrix of m by n, m the shorter side, is two products of m * m * n and one of
    m * m * m. https://kellerjordan.github.io/posts/muon/
    """
    inner, outer = shape.width, shape.hidden
    sides = [(inner, outer)] * 3
    sides += [(inner, shape.head_dim * shape.heads)] * 2
    sides += [(inner, shape.head_dim * shape.kv_heads)] * 2
    each = 0.0
    for one, other in sides:
        short, long = min(one, other), max(one, other)
        each += 5 * (4.0 * short * short * long + 2.0 * short**3)
    return shape.layers * each
