"""Learning-rate schedule: linear warmup, constant, linear decay (WSD).

The constant part lets runs of different lengths share their trunk, and most of the gain comes
during the decay. Hägele et al. 2024, arXiv 2405.18392.
"""

from ownwords.training.settings import ScheduleConfig


def lr_scale(step: float, steps: int, config: ScheduleConfig) -> float:
    """The learning rate of a step as a fraction of its peak; the first step is 0.

    It reaches `final_lr_fraction` after the last step, so no step has zero. A shortened run may be
    between two steps of the schedule.
    """
    warmup, decay = config.warmup_fraction * steps, config.decay_fraction * steps
    rising = (step + 1) / warmup if step + 1 < warmup else 1.0
    left = max(0, steps - step)
    falling = left / decay if left < decay else 1.0
    if left == 0:
        falling = 0.0
    final = config.final_lr_fraction
    return min(rising, final + (1 - final) * falling)
