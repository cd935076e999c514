"""The learning rate over a run: up, flat, down.

The flat part lets runs of different lengths share their trunk, and most of what is gained is gained
on the way down. Hägele et al. 2024, arXiv 2405.18392.
"""

from ownwords.training.settings import ScheduleConfig


def scale(step: float, steps: int, config: ScheduleConfig) -> float:
    """The share of the peak rate in that step, the first being 0: never zero within a run.

    The last step is the last before `final`, which is reached when the run is over. A run that was
    shortened stands between two steps of its plan.
    """
    up, down = config.warmup_fraction * steps, config.decay_fraction * steps
    rising = (step + 1) / up if step + 1 < up else 1.0
    left = max(0, steps - step)
    falling = left / down if left < down else 1.0
    if left == 0:
        falling = 0.0
    return min(rising, config.final_lr_fraction + (1 - config.final_lr_fraction) * falling)
