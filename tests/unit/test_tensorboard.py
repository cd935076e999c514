import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress
from ownwords.training.metrics import TensorBoard

# What packages of others warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


def read(folder: Path) -> Any:  # noqa: ANN401 - without types
    """What TensorBoard itself reads there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_tensorboard_reads_every_figure_at_its_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with closing(TensorBoard(tmp_path / "curves")) as curves:
        progress = Progress(curves)
        with progress.stage("training", 300, "steps") as stage:
            for step in (100, 200):
                stage.advance(100)
                stage.metric(step=step, bits_per_byte=800 / step, gradient_norm=float("inf"))
            stage.note("the rate was lowered")
            stage.metric(validation_bits_per_byte=4.5)
    events = read(tmp_path / "curves")
    assert set(events.Tags()["scalars"]) == {
        "training/bits_per_byte",
        "training/validation_bits_per_byte",
    }
    points = events.Scalars("training/bits_per_byte")
    assert [(point.step, point.value) for point in points] == [(100, 8.0), (200, 4.0)]
    (point,) = events.Scalars("training/validation_bits_per_byte")
    assert (point.step, point.value) == (200, 4.5)
    (note,) = events.Tensors("notes/text_summary")
    assert note.step == 200
    assert note.tensor_proto.string_val == [b"the rate was lowered"]


def test_without_the_package_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(OwnwordsError, match="not installed") as raised:
        TensorBoard(tmp_path / "curves")
    assert "ownwords[tensorboard]" in raised.value.hint
    assert not (tmp_path / "curves").exists()
