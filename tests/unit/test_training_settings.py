from pathlib import Path

import pytest

from ownwords.core.config import resolve
from ownwords.core.errors import ConfigError
from ownwords.training.settings import Recipe

WRONG = {
    "data.replay": "1",
    "optim.learning_rate": "inf",
    "schedule.warmup_fraction": "1.5",
    "train.batch_size": "0",
    "lora.rank": "-1",
    "lora.alpha": "0",
}


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_value_is_refused_with_its_source(key: str, tmp_path: Path) -> None:
    section, _, name = key.partition(".")
    path = tmp_path / "ownwords.toml"
    path.write_text(f"[{section}]\n{name} = {WRONG[key]}\n")
    with pytest.raises(ConfigError) as error:
        resolve(Recipe, toml=[path])
    assert error.value.message.startswith(f"{path.as_posix()}: {key} must be ")
    with pytest.raises(ConfigError) as error:
        resolve(Recipe, sets=[f"{key}={WRONG[key]}"])
    assert error.value.message.startswith(f"--set: {key} must be ")


def test_fractions_of_a_schedule_that_overlap_are_refused_with_their_sources() -> None:
    sets = ["schedule.warmup_fraction=0.5", "schedule.decay_fraction=0.6"]
    with pytest.raises(ConfigError, match=r"--set: schedule: .* add up to more than 1"):
        resolve(Recipe, sets=sets)
