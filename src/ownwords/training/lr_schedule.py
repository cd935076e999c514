"""Learning-rate schedule: linear warmup, constant, linear decay (WSD).

Runs of different lengths can share the constant part, and the loss falls most during the decay.
Hägele et al. 2024, arXiv 2405.18392.
"""

from ownwords.training.settings import ScheduleConfig


def lr_scale(step: float, steps: int, config: ScheduleConfig) -> float:
    """The learning rate of a step as a fraction of the peak; steps count from 0.

    It reaches `final_lr_fraction` after the last step, so it is never zero in a step. `step` is
    fractional in a shortened run.
    """
    warmup, decay = config.warmup_fraction * steps, config.decay_fraction * steps
    rising = (step + 1) / warmup if step + 1 < warmup else 1.0
    left = max(0, steps - step)
    falling = left / decay if left < decay else 1.0
    if left == 0:
        falling = 0.0
    final = config.final_lr_fraction
    return min(rising, final + (1 - final) * falling)
