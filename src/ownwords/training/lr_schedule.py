"""Learning-rate schedule: linear warmup, constant, linear decay (WSD).

Runs of different lengths can share the constant part, and the loss falls most during the decay.
Hägele et al. 2024, arXiv 2405.18392.
"""

from ownwords.training.settings import ScheduleConfig


def lr_scale(step: int, steps: int, progress: float, config: ScheduleConfig) -> float:
    """The learning rate of a step as a fraction of the peak; steps count from 0.

    The warmup takes a fraction of the planned `steps`: in a timed run a slow first step, which
    compiles, would otherwise use it up. The decay follows `progress`, the share of the run that
    lies before this step. It reaches `final_lr_fraction` at the end, so it is never zero in a step.
    """
    warmup, decay = config.warmup_fraction * steps, config.decay_fraction
    rising = (step + 1) / warmup if step + 1 < warmup else 1.0
    left = max(0.0, 1 - progress)
    falling = left / decay if left < decay else 1.0
    if left == 0:
        falling = 0.0
    final = config.final_lr_fraction
    return min(rising, final + (1 - final) * falling)
