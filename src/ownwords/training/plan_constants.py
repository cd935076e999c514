"""The formulas and constants of the plan: one table, each constant with its source.

Experiments refit `PlanConstants`; the rest of the plan has no constants of its own.

Letters: N parameters, D bytes of text read (repetitions included), U bytes of unique text.
"""

import math
from dataclasses import dataclass, field, fields

from ownwords.models.configs.config import ModelConfig

LOG = "docs/log.md"
SPEED = "docs/performance.md"
ESTIMATE = "estimate"  # by reasoning, not measured yet


def _constant(value: float, source: str) -> float:
    """A constant with its source."""
    constant: float = field(default=value, metadata={"source": source})
    return constant


@dataclass(frozen=True)
class PlanConstants:
    """Every constant of the plan. `source(name)` returns where a constant comes from."""

    # --- scaling law: expected loss by model size and text, in bits per byte --------------------
    loss_floor: float = _constant(0.72, LOG)  # the loss that no model of this kind goes below
    size_scale: float = _constant(28.0, LOG)  # loss from limited size: scale / N^power
    size_power: float = _constant(0.30, LOG)  # see size_scale; Hoffmann et al. have .34
    text_scale: float = _constant(19.0, LOG)  # loss from limited text: scale / D^power
    text_power: float = _constant(0.20, LOG)  # see text_scale; Hoffmann et al. have .28
    repeats: float = _constant(15.4, "arXiv 2305.16264")  # R*: decay of the worth of repetitions
    # N*: decay of the worth of excess parameters
    oversize: float = _constant(5.3, "arXiv 2305.16264")
    # Parameters per byte of unique text; the worth of more of them decays
    parameters_per_byte: float = _constant(1.0, ESTIMATE)
    # The best expected loss, as a fraction of the law's
    spread_low: float = _constant(0.76, ESTIMATE)
    # The worst expected loss: texts differ in difficulty
    spread_high: float = _constant(1.16, ESTIMATE)
    enough: float = _constant(0.003, ESTIMATE)  # least relative gain of a larger model
    # Epochs after which a small text is only memorised
    epochs_limit: float = _constant(12, LOG)

    # --- tokenizer ------------------------------------------------------------------------------
    bytes_below: float = _constant(40_000, ESTIMATE)  # with less text, each byte is a token
    token_bytes_256: float = _constant(1.0, LOG)  # bytes per token with a byte vocabulary
    # Bytes per token gained with each doubling of the vocabulary
    token_bytes_growth: float = _constant(0.64, LOG)

    # --- batch size and learning rates ----------------------------------------------------------
    # Tokens per step = scale * D_tokens^power
    batch_scale: float = _constant(0.58, "arXiv 2503.04715")
    batch_power: float = _constant(0.571, "arXiv 2503.04715")  # see batch_scale
    # Tokens per step, at least: with fewer the matrix units idle
    batch_min: float = _constant(1024, ESTIMATE)
    batch_max: float = _constant(2**19, "arXiv 2503.04715")  # tokens per step, at most
    # A run of fewer steps uses smaller batches instead
    steps_least: float = _constant(150, ESTIMATE)
    adamw_scale: float = _constant(1.79, "arXiv 2503.04715")  # rate = scale * N^-a * D_tokens^b
    adamw_size_power: float = _constant(-0.713, "arXiv 2503.04715")  # see adamw_scale
    adamw_text_power: float = _constant(0.307, "arXiv 2503.04715")  # see adamw_scale
    adamw_lr_max: float = _constant(5e-3, "arXiv 2503.04715")  # the law's rate, at most
    muon_lr: float = _constant(0.02, LOG)  # Muon's peak learning rate, for matrices
    # AdamW's learning rate beside Muon at width 256, proportional to 1 / width
    embedding_lr_at_256: float = _constant(5e-3, LOG)
    embedding_lr_max: float = _constant(1e-2, LOG)  # at most
    embedding_lr_min: float = _constant(3e-4, ESTIMATE)  # at least
    beta2_share: float = _constant(0.1, ESTIMATE)  # but at most this share of the tokens read
    beta2_tokens: float = _constant(1e7, "arXiv 2507.07101")  # half-life of AdamW's second moment
    tau: float = _constant(0.75, LOG)  # timescale of the weights in epochs; rule: arXiv 2405.13698
    weight_decay_min: float = _constant(0.01, ESTIMATE)  # weight decay, at least
    weight_decay_max: float = _constant(2.0, LOG)  # weight decay, at most
    warmup_fraction: float = _constant(0.01, LOG)  # share of the steps in which the rate rises
    decay_fraction: float = _constant(0.6, LOG)  # share of the steps in which it decays
    decay_fraction_short: float = _constant(0.7, LOG)  # the same in a short run
    short_steps: float = _constant(2000, ESTIMATE)  # steps below which a run is short
    # Half-life of the EMA, as a share of the steps
    half_life: float = _constant(0.02, "arXiv 2411.18704")
    # Steps from which there is an EMA
    half_life_steps: float = _constant(200, ESTIMATE)

    # --- regularization: keep a small corpus from being memorised --------------------------------
    dropout: float = _constant(0.1, LOG)  # dropout if the text is read many times
    dropout_epochs: float = _constant(10, LOG)  # epochs above which there is dropout
    # Weight decay of the embedding if there is dropout
    embedding_weight_decay: float = _constant(1.0, LOG)

    least_bytes: float = _constant(2000, ESTIMATE)  # bytes of text below which nothing is learned
    least_steps: float = _constant(20, ESTIMATE)  # steps below which nothing is learned

    # --- starting from a base -------------------------------------------------------------------
    tune_lr_factor: float = _constant(0.25, LOG)  # a base's peak rates, times this
    # Times the law's rate, if the base's is unknown
    tune_lr_factor_unknown: float = _constant(0.1, ESTIMATE)
    tune_lr_max: float = _constant(3e-4, ESTIMATE)  # AdamW's rate if the base's is unknown, at most
    tune_epochs: float = _constant(4, LOG)  # epochs over one author's text, at most
    tune_dropout: float = _constant(0.0, LOG)  # dropout in fine-tuning
    tune_decay_fraction: float = _constant(0.9, LOG)  # share of the steps in which the rate decays
    # Tokens per row on a CPU, if the base's context is as long
    tune_context: float = _constant(512, LOG)
    # Weight of a text's first token: what the base has read begins otherwise than a blog's posts
    tune_opening_weight: float = _constant(20, LOG)
    # Times the embedding's learning rate, for the token that texts begin with
    tune_start_lr_scale: float = _constant(40, LOG)
    tune_replay: float = _constant(0.3, LOG)  # share of rows that are replay text
    # Tokens of replay text that the base writes, if none is given
    replay_tokens: float = _constant(100_000, ESTIMATE)
    replay_time_share: float = _constant(0.1, ESTIMATE)  # of the time, at most, to write it
    tune_gain: float = _constant(0.064, LOG)  # relative loss reduction with tune_gain_bytes of text
    tune_gain_bytes: float = _constant(268_000, LOG)  # see tune_gain
    tune_gain_power: float = _constant(0.3, ESTIMATE)  # how the gain grows with the text
    tune_gain_most: float = _constant(0.2, ESTIMATE)  # the gain, at most

    # --- LoRA: measured with Gemma 3 270M and five authors of 124 to 736 kB ----------------------
    lora_parameters: float = _constant(5e7, LOG)  # of a base, from which a LoRA is trained
    lora_rank: float = _constant(16, "thinkingmachines.ai/blog/lora")
    # Bytes of text from which the LoRA has four times the rank
    lora_text: float = _constant(1e7, "thinkingmachines.ai/blog/lora")
    lora_lr_once: float = _constant(7.6e-4, LOG)  # rate of one epoch; proportional to 1 / epochs
    lora_lr_min: float = _constant(2e-4, LOG)  # at least
    lora_lr_max: float = _constant(1e-3, LOG)  # at most
    lora_beta2: float = _constant(0.99, LOG)
    lora_batch: float = _constant(2048, LOG)  # tokens per step
    lora_steps: float = _constant(40, ESTIMATE)  # a run of fewer steps uses smaller batches instead
    lora_warmup_fraction: float = _constant(0.03, LOG)  # share of the steps in which the rate rises
    # Over one author's text, at most: five forget more of the base than they learn
    lora_epochs: float = _constant(2.5, LOG)
    lora_context: float = _constant(1024, ESTIMATE)  # tokens per row on a CPU, at most
    # Bytes that a LoRA may take where fewer rows at once cost nearly no time
    lora_memory: float = _constant(1.4e9, ESTIMATE)
    # Bytes of held-out text on which the base is measured before the plan
    glance_bytes: float = _constant(4_000, ESTIMATE)
    timed_context: float = _constant(256, ESTIMATE)  # tokens of the rows of a LoRA that are timed

    # --- speed, if nothing could be measured ------------------------------------------------------
    assumed_cpu_flops: float = _constant(1.2e11, SPEED)  # flops/s of training on a CPU
    assumed_gpu_flops: float = _constant(4e13, ESTIMATE)  # the same on a GPU
    # Fixed seconds per layer and step
    assumed_cpu_layer_s: float = _constant(1e-3, SPEED)
    assumed_gpu_layer_s: float = _constant(6e-4, ESTIMATE)  # the same on a GPU

    # --- time and memory ------------------------------------------------------------------------
    measure_share: float = _constant(0.04, ESTIMATE)  # of the time, to measure speed
    # Seconds for that, at least: a plan with assumed speeds wastes minutes
    measure_least_s: float = _constant(5, LOG)
    measure_most_s: float = _constant(20, ESTIMATE)  # seconds for that, at most
    start_s: float = _constant(3.0, ESTIMATE)  # seconds to start Python and PyTorch
    close_s: float = _constant(1.0, ESTIMATE)  # seconds to save the model
    evaluate_share: float = _constant(0.06, ESTIMATE)  # of the time, at most, for evaluations
    # Share of the evaluations without progress before stopping
    patience: float = _constant(0.35, ESTIMATE)
    # Share of the time reserved for checkpoints, loading, noise
    unforeseen: float = _constant(0.03, ESTIMATE)
    compile_cpu_s: float = _constant(22, SPEED)  # seconds to compile a model on a CPU
    compile_gpu_s: float = _constant(60, SPEED)  # the same on a GPU
    compile_gain_float32: float = _constant(1.0, SPEED)  # speedup from compiling, in float32
    compile_gain_cpu: float = _constant(1.2, SPEED)  # the same in bfloat16 on a CPU
    compile_gain_fused: float = _constant(0.7, LOG)  # the same, instead of the C++ kernels
    compile_gain_gpu: float = _constant(1.4, SPEED)  # the same on a GPU
    memory_share: float = _constant(0.7, ESTIMATE)  # of the free memory, at most, for training
    memory_base: float = _constant(4e8, ESTIMATE)  # bytes of Python and PyTorch alone
    # Weight, gradient, two moments, EMA, and a copy to save
    bytes_a_parameter: float = _constant(24, ESTIMATE)
    bytes_a_value: float = _constant(4, ESTIMATE)  # of a saved activation

    def source(self, name: str) -> str:
        """Where a constant comes from."""
        known = {one.name: str(one.metadata["source"]) for one in fields(self)}
        return known[name]

    # --- expected loss --------------------------------------------------------------------------

    def text_worth(self, read: float, different: float) -> float:
        """Bytes of unique text that are worth as much as repeated text (Muennighoff et al.)."""
        if read <= different:
            return read
        again = read / different - 1
        return different * (1 + self.repeats * -math.expm1(-again / self.repeats))

    def size_worth(self, size: float, different: float) -> float:
        """Effective parameters of a model larger than its text can use (the same paper)."""
        useful = self.parameters_per_byte * different
        if size <= useful:
            return size
        more = size / useful - 1
        return useful * (1 + self.oversize * -math.expm1(-more / self.oversize))

    def bits_per_byte(self, size: float, read: float, different: float) -> float:
        """Expected bits per byte on held-out text of the same kind; at most 8."""
        size = max(1.0, self.size_worth(size, max(1.0, different)))
        read = max(1.0, self.text_worth(read, max(1.0, different)))
        return min(
            8.0,
            self.loss_floor
            + self.size_scale / math.pow(size, self.size_power)
            + self.text_scale / math.pow(read, self.text_power),
        )

    def tuned_share(self, different: float) -> float:
        """The loss after fine-tuning on so much text, as a fraction of the base's."""
        gain = self.tune_gain * math.pow(different / self.tune_gain_bytes, self.tune_gain_power)
        return 1 - min(self.tune_gain_most, gain)

    # --- tokenizer, batch size, learning rates --------------------------------------------------

    def vocabulary(self, different: float) -> int:
        """The BPE vocabulary size for so much unique text; 0: each byte is a token."""
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
        """Estimated bytes per token of English text, for use before tokens are counted."""
        doublings = math.log2(max(vocabulary, 261) / 261)
        return self.token_bytes_256 + self.token_bytes_growth * doublings

    def batch_tokens(self, tokens_read: float) -> float:
        """The batch size in tokens for a run that reads `tokens_read` tokens."""
        wanted = self.batch_scale * math.pow(tokens_read, self.batch_power)
        return min(self.batch_max, max(self.batch_min, wanted))

    def lora_lr(self, epochs: float) -> float:
        """The peak learning rate of a LoRA that is trained for so many epochs."""
        wanted = self.lora_lr_once / max(epochs, 1e-3)
        return min(self.lora_lr_max, max(self.lora_lr_min, wanted))

    def adamw_lr(self, size: float, tokens_read: float) -> float:
        """AdamW's peak learning rate by the Step Law (arXiv 2503.04715)."""
        rate = self.adamw_scale * math.pow(size, self.adamw_size_power)
        return min(self.adamw_lr_max, rate * math.pow(tokens_read, self.adamw_text_power))

    def embedding_lr(self, width: int) -> float:
        """AdamW's peak learning rate for embeddings and norms, beside Muon."""
        wanted = self.embedding_lr_at_256 * 256 / width
        return min(self.embedding_lr_max, max(self.embedding_lr_min, wanted))

    def beta2(self, batch_tokens: float, tokens_read: float) -> float:
        """AdamW's beta2, whose half-life is a fixed number of tokens rather than of steps."""
        half_life = min(self.beta2_tokens, self.beta2_share * tokens_read)
        return min(0.9999, max(0.9, math.pow(2, -batch_tokens / max(half_life, 1.0))))

    def weight_decay(self, rate: float, steps_per_epoch: float) -> float:
        """The weight decay with a timescale of tau epochs: 1 / (rate * steps per epoch * tau)."""
        wanted = 1 / max(rate * steps_per_epoch * self.tau, 1e-12)
        return min(self.weight_decay_max, max(self.weight_decay_min, wanted))

    # --- time -----------------------------------------------------------------------------------

    def measuring_s(self, seconds: float) -> float:
        """Seconds to spend on measuring speed in a run of `seconds`."""
        wanted = max(self.measure_share * seconds, self.measure_least_s)
        return min(wanted, self.measure_most_s)

    # --- memory ---------------------------------------------------------------------------------

    def training_bytes(
        self,
        shape: ModelConfig,
        size: int,
        rows: int,
        context: int,
        rank: int = 0,
        *,
        bf16: bool = False,
    ) -> float:
        """Peak memory in bytes of training `size` parameters with `rows` rows at once.

        With a LoRA (`rank` above 0) the weights are frozen: they have no gradient and no moments.
        With `bf16` they are bfloat16, as are the activations that the compiled block saves.
        """
        heads = shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
        values = 6 * shape.width + heads + 4 * shape.hidden
        logits = 3 * max(256 * shape.vocabulary, 2**22)
        weights = self.bytes_a_parameter * size
        if rank:
            weights = (2 if bf16 else self.bytes_a_value) * size
            weights += self.bytes_a_parameter * rank * lora_sides(shape)
        if rank and bf16:
            values = 4 * shape.width + heads + 2 * shape.hidden
            saved = 2.0 * rows * context * values * shape.layers
            return self.memory_base + weights + saved + self.bytes_a_value * logits
        return (
            self.memory_base
            + weights
            + self.bytes_a_value * (rows * context * values * shape.layers + logits)
            + 6.0 * rows * context * context  # the attention mask of packed documents
        )


PLAN_CONSTANTS = PlanConstants()


def lora_sides(shape: ModelConfig) -> int:
    """The sum of the sides of all matrices of the blocks: the parameters of a LoRA of rank 1."""
    heads, kv_heads = shape.head_dim * shape.heads, shape.head_dim * shape.kv_heads
    attention = 2 * (shape.width + heads) + 2 * (shape.width + kv_heads)
    return shape.layers * (attention + 3 * (shape.width + shape.hidden))


def optimizer_flops(shape: ModelConfig) -> float:
    """FLOPs of a Muon step: 5 Newton-Schulz iterations on every matrix of the blocks.

    An iteration on an m by n matrix, m the shorter side, is two products of m * m * n and one of
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
