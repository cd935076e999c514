"""The formulas and constants of the plan: one table, each constant with its source.

Experiments refit `PlanConstants`; the rest of the plan has no constants of its own. "log" is
docs/log.md, "performance" docs/performance.md; an estimate follows from reasoning, not from a
measurement.

Letters: N parameters, D bytes of text read (repetitions included), U bytes of unique text.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass

from ownwords.core import hardware
from ownwords.models.configs.config import ModelConfig
from ownwords.native import bindings
from ownwords.training.settings import Precision
from ownwords.training.step_time import DeviceSpeeds, StepTimeModel, best_flops, lora_sides

LOG = "docs/log.md"
ESTIMATE = "an estimate"  # by reasoning, not measured yet
MEASURED = "measured here"


# Vocabulary sizes, and the bytes of unique text from which the next one is used.
_VOCABULARIES = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_MIN_BYTES = (1.2e5, 2e5, 2e6, 5e7, 5e8, 5e9)


@dataclass(frozen=True)
class PlanConstants:
    """Every constant of the plan, with its meaning and its source."""

    # --- scaling law: expected loss by model size and text, in bits per byte --------------------
    loss_floor: float = 0.72  # of any model of this kind; log
    size_scale: float = 28.0  # loss from limited size: scale / N^power; log
    size_power: float = 0.30  # see size_scale; Hoffmann et al. found 0.34; log
    text_scale: float = 19.0  # loss from limited text: scale / D^power; log
    text_power: float = 0.20  # see text_scale; Hoffmann et al. found 0.28; log
    repeats: float = 15.4  # R*: decay of the value of repetitions; arXiv 2305.16264
    oversize: float = 5.3  # N*: decay of the value of excess parameters; arXiv 2305.16264
    spread_low: float = 0.76  # the best expected loss, as a fraction of the law's; estimate
    spread_high: float = 1.16  # the worst: texts differ in difficulty; estimate
    enough: float = 0.003  # minimum relative gain of a larger model; estimate
    epochs_limit: float = 12  # epochs after which a small text is only memorised; log

    # --- tokenizer ------------------------------------------------------------------------------
    bytes_below: float = 40_000  # bytes of text below which each byte is a token; estimate
    token_bytes_growth: float = 0.64  # bytes per token for each doubling of the vocabulary; log

    # --- batch size and learning rates ----------------------------------------------------------
    batch_scale: float = 0.58  # tokens per step = scale * D_tokens^power; arXiv 2503.04715
    batch_power: float = 0.571  # see batch_scale; arXiv 2503.04715
    batch_min: float = 1024  # tokens per step; with fewer the matrix units idle; estimate
    batch_max: float = 2**19  # tokens per step; arXiv 2503.04715
    steps_least: float = 150  # a run of fewer steps uses smaller batches instead; estimate
    adamw_scale: float = 1.79  # rate = scale * N^-a * D_tokens^b; arXiv 2503.04715
    adamw_size_power: float = -0.713  # see adamw_scale; arXiv 2503.04715
    adamw_text_power: float = 0.307  # see adamw_scale; arXiv 2503.04715
    adamw_lr_max: float = 5e-3  # arXiv 2503.04715
    muon_lr: float = 0.02  # Muon's peak learning rate, for matrices; log
    embedding_lr_at_256: float = 5e-3  # AdamW's rate with Muon at width 256, as 1 / width; log
    embedding_lr_max: float = 1e-2  # log
    embedding_lr_min: float = 3e-4  # estimate
    beta2_share: float = 0.1  # maximum of beta2_tokens, as a share of the tokens read; estimate
    beta2_tokens: float = 1e7  # half-life of AdamW's second moment; arXiv 2507.07101
    tau: float = 0.75  # timescale of the weights in epochs; rule: arXiv 2405.13698; log
    weight_decay_min: float = 0.01  # estimate
    weight_decay_max: float = 2.0  # log
    warmup_fraction: float = 0.01  # share of the steps in which the rate rises; log
    decay_fraction: float = 0.6  # share of the steps in which it decays; log
    decay_fraction_short: float = 0.7  # the same in a short run; log
    short_steps: float = 2000  # steps below which a run is short; estimate

    # --- regularization: keep a small corpus from being memorised --------------------------------
    dropout: float = 0.1  # if the text is read many times; log
    dropout_epochs: float = 10  # epochs above which there is dropout; log
    embedding_weight_decay: float = 1.0  # if there is dropout; log

    least_bytes: float = 2000  # bytes of text below which nothing is learned; estimate
    least_steps: float = 20  # steps below which nothing is learned; estimate

    # --- starting from a base -------------------------------------------------------------------
    tune_lr_factor: float = 0.25  # of a base's peak rates; log
    tune_lr_factor_unknown: float = 0.1  # of the law's rate, if the base's is unknown; estimate
    tune_lr_max: float = 3e-4  # AdamW's rate, if the base's is unknown; estimate
    tune_epochs: float = 4  # maximum number of epochs over one author's text; log
    tune_decay_fraction: float = 0.9  # share of the steps in which the rate decays; log
    tune_context: float = 512  # tokens per row on a CPU, if the base's context is as long; log
    # Weight of a text's first token, because a base's texts begin differently; log
    tune_opening_weight: float = 20.0
    tune_start_lr_scale: float = 40.0  # learning rate of the start token's embedding; log
    tune_replay: float = 0.3  # share of rows that are replay text; log
    lora_pairs: float = 0.2  # share of rows that are notes and the text written from them; log
    tune_gain: float = 0.085  # relative loss reduction with tune_gain_bytes of text; log
    tune_gain_bytes: float = 268_000  # see tune_gain; log
    tune_gain_power: float = 0.3  # how the gain grows with the text; estimate
    tune_gain_most: float = 0.2  # maximum gain; estimate
    tune_gain_low: float = 0.2  # the lowest real gain, as a fraction of the expected one; log
    tune_gain_high: float = 2.2  # the highest: a base is closer to some blogs than to others; log
    tune_spread: float = 0.02  # fraction by which the bits vary with the choice of text; estimate

    # --- LoRA: measured with Gemma 3 270M, SmolLM2 135M and authors of 124 to 1,234 kB -----------
    lora_parameters: float = 5e7  # minimum size of a base to train a LoRA instead; log
    lora_rank: float = 16  # thinkingmachines.ai/blog/lora
    lora_text: float = 1e7  # bytes from which the rank is 4 times as high; the same page
    lora_lr_once: float = 2.4e-3  # rate of one epoch; proportional to 1 / epochs; log
    lora_lr_min: float = 2e-4  # log
    lora_lr_max: float = 1.5e-3  # log
    lora_beta2: float = 0.99  # log
    lora_batch: float = 2048  # tokens per step; log
    lora_steps: float = 40  # a run of fewer steps uses smaller batches instead; estimate
    lora_warmup_fraction: float = 0.03  # share of the steps in which the rate rises; log
    lora_epochs: float = 2.5  # at most: five forget more of the base than they learn; log
    lora_context: float = 1024  # maximum tokens per row on a CPU; estimate
    lora_memory: float = 1.4e9  # maximum bytes: fewer rows at once hardly cost time; estimate
    glance_bytes: float = 4_000  # of held-out text, to measure the base before the plan; estimate
    timed_context: float = 256  # tokens per row when a LoRA's speed is measured; estimate

    # --- speed, if nothing could be measured ------------------------------------------------------
    assumed_vector_share: float = 0.6  # share of the vector rate that training reaches; performance
    assumed_float32_share: float = 0.45  # the same without fast bfloat16; log
    assumed_tile_share: float = 0.2  # the same of the rate of AMX tiles; performance
    assumed_cpu_flops: float = 1.2e11  # FLOP/s of training without the C++ library; performance
    assumed_gpu_flops: float = 4e13  # the same on a GPU; estimate
    assumed_cpu_layer_s: float = 1e-3  # fixed seconds per layer and step; performance
    assumed_gpu_layer_s: float = 6e-4  # the same on a GPU; estimate

    # --- time and memory ------------------------------------------------------------------------
    measure_share: float = 0.04  # share of the time to spend on measuring the speed; estimate
    measure_least_s: float = 5  # minimum for that: a plan with assumed speeds wastes minutes; log
    measure_most_s: float = 20  # maximum for that; estimate
    start_s: float = 3.0  # seconds to start Python and PyTorch; estimate
    close_s: float = 1.0  # seconds to save the model; estimate
    evaluate_share: float = 0.08  # maximum share of the time for evaluations; estimate
    choosing: float = 2  # evaluations after the last step: the base, and interpolated weights
    reading_share: float = 1 / 3  # time to evaluate a token, as a share of training on it
    lora_reading_share: float = 1 / 2  # the same for a LoRA: frozen weights get no gradient
    patience: float = 0.35  # share of the evaluations without progress before stopping; estimate
    unforeseen: float = 0.03  # share of the time for checkpoints, loading, noise; estimate
    memory_share: float = 0.7  # maximum share of the free memory for training; estimate
    memory_base: float = 4e8  # bytes of Python and PyTorch alone; estimate
    bytes_a_parameter: float = 20  # weight, gradient, two moments, and a copy to save; estimate
    bytes_a_value: float = 4  # of a saved activation; estimate

    # --- expected loss --------------------------------------------------------------------------

    def text_worth(self, read: float, different: float) -> float:
        """Bytes of unique text equivalent to the repeated text (Muennighoff et al.)."""
        if read <= different:
            return read
        again = read / different - 1
        return different * (1 + self.repeats * -math.expm1(-again / self.repeats))

    def size_worth(self, size: float, different: float) -> float:
        """Effective parameters of a model larger than its text can use (the same paper)."""
        if size <= different:
            return size
        more = size / different - 1
        return different * (1 + self.oversize * -math.expm1(-more / self.oversize))

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
        """The loss after fine-tuning on this much text, as a fraction of the base's."""
        gain = self.tune_gain * math.pow(different / self.tune_gain_bytes, self.tune_gain_power)
        return 1 - min(self.tune_gain_most, gain)

    # --- tokenizer, batch size, learning rates --------------------------------------------------

    def vocabulary(self, different: float) -> int:
        """The BPE vocabulary size for this much unique text; 0: each byte is a token."""
        if different < self.bytes_below:
            return 0
        return _VOCABULARIES[bisect_right(_MIN_BYTES, different)]

    def bytes_per_token(self, vocabulary: int) -> float:
        """Estimated bytes per token of English text, for use before tokens are counted."""
        doublings = math.log2(max(vocabulary, 261) / 261)
        return 1 + self.token_bytes_growth * doublings

    def batch_tokens(self, tokens_read: float) -> float:
        """The batch size in tokens for a run that reads `tokens_read` tokens."""
        wanted = self.batch_scale * math.pow(tokens_read, self.batch_power)
        return min(self.batch_max, max(self.batch_min, wanted))

    def lora_lr(self, epochs: float) -> float:
        """The peak learning rate of a LoRA trained for `epochs` epochs."""
        wanted = self.lora_lr_once / max(epochs, 1e-3)
        return min(self.lora_lr_max, max(self.lora_lr_min, wanted))

    def adamw_lr(self, size: float, tokens_read: float) -> float:
        """AdamW's peak learning rate by the Step Law (arXiv 2503.04715)."""
        rate = self.adamw_scale * math.pow(size, self.adamw_size_power)
        return min(self.adamw_lr_max, rate * math.pow(tokens_read, self.adamw_text_power))

    def embedding_lr(self, width: int) -> float:
        """AdamW's peak learning rate for embeddings and norms, if Muon trains the matrices."""
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

    def assumed_speeds(
        self, kind: str, precision: Precision = "autocast", *, is_lora: bool = False
    ) -> DeviceSpeeds:
        """The speeds of a kind of device: those of its last training runs, or a guess."""
        if kind != "cpu":
            gpu = StepTimeModel(self.assumed_gpu_layer_s, self.assumed_gpu_flops)
            return DeviceSpeeds(kind, {precision: gpu})
        library, flops = bindings.load_library(), self.assumed_cpu_flops
        is_fast = library is not None and library.has_fast_bf16() == 1
        if library:
            rates = library.rates
            vectors = self.assumed_float32_share * rates.float32
            if is_fast:
                vectors = self.assumed_vector_share * rates.bfloat16
            tiles = self.assumed_tile_share * rates.bfloat16_tiles
            flops = 1e9 * max(vectors, tiles) * hardware.threads(hardware.read_cpu())
        flops = best_flops(flops, is_lora=is_lora)
        precision = "autocast" if is_fast else "float32"
        if is_lora and library is not None and library.has_fast_int16:
            precision = "int16"
        cpu = StepTimeModel(self.assumed_cpu_layer_s, flops)
        return DeviceSpeeds(kind, {precision: cpu})

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
