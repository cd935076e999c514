"""The reader: a tiny one of random weights, and what the one in the package has learned."""

from pathlib import Path

import numpy as np
import pytest

from ownwords.ask import encoder, reader
from ownwords.ask.encoder import SentenceModel
from ownwords.ask.reader import PACKAGED, Reader, Window
from ownwords.models import bert
from ownwords.models.safetensors_header import encode_header
from ownwords.native.bindings import load_library
from sentence_folders import CONFIG, TINY, folder_in

JOINED = 1
SHAPES = {"attention.qkv": (36, 12), "attention.output": (12, 12), "mlp.up": (20, 12)} | {
    "mlp.down": (12, 20)
}


def tiny_reader(folder: Path, model: SentenceModel) -> Path:
    """Write a reader of rank 2 with random weights for the folder's model."""
    lot = np.random.default_rng(4)
    tensors = {"passage_type": lot.normal(size=12), "closeness": np.array([3.0])}
    tensors |= {"outputs.weight": lot.normal(size=(2, 12)), "outputs.bias": lot.normal(size=2)}
    tensors["shares"] = np.array([0.5, 1.0, 2.0])
    for part, (outputs, inputs) in SHAPES.items():
        name = f"blocks.{CONFIG.layers - JOINED}.{part}"
        tensors |= {f"{name}.a": lot.normal(size=(2, inputs))}
        tensors |= {f"{name}.b": lot.normal(size=(outputs, 2)) * 0.3}
    header = [(name, "F16", array.shape) for name, array in tensors.items()]
    metadata = {"encoder": model.name.rpartition(" ")[2], "layers": str(JOINED)}
    data = b"".join(array.astype("<f2").tobytes() for array in tensors.values())
    path = folder / "reader.safetensors"
    path.write_bytes(encode_header(header, metadata) + data)
    return path


LONG = "the rain fell on my garden in the rain of the bus on my bus in the rain."
WINDOWS = [
    Window("my garden", "the rain fell. my kettle broke", ((0, 14), (15, 30))),
    Window("", "a bus", ((0, 5),)),
    Window(
        "",
        "the rain fell on my garden in the rain of the bus on my bus in the rain. a bus",
        ((0, 72), (73, 78)),
    ),
    Window("the rain", "", ()),
]


def test_a_reader_is_used_only_for_the_weights_that_it_was_trained_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SentenceModel(folder_in(tmp_path), TINY)
    assert model.reader is None
    path = tiny_reader(tmp_path, model)
    monkeypatch.setattr(encoder, "is_for", lambda digest: reader.is_for(digest, path))
    monkeypatch.setattr(Reader.__init__, "__defaults__", (path,))
    model = SentenceModel(tmp_path, TINY)
    before = model.embed(["my kettle broke"])
    assert model.reader is not None
    readings = model.reader.read("my bus", WINDOWS)
    assert np.array_equal(model.embed(["my kettle broke"]), before)
    assert [len(each.sentences) for each in readings] == [2, 1, 2, 0]
    assert readings[2].sentences[1] == -np.inf  # beyond the tokens that the model reads
    assert readings[2].shares()[1] < 1e-9
    assert all(np.isfinite(each.answers) for each in readings)
    # What is read does not depend on what else is read.
    assert [model.reader.read("my bus", [each])[0] for each in WINDOWS] == readings


def test_the_compiled_library_reads_as_numpy_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_reader(tmp_path, SentenceModel(folder_in(tmp_path), TINY))
    monkeypatch.setattr(encoder, "is_for", lambda digest: True)
    monkeypatch.setattr(Reader.__init__, "__defaults__", (path,))
    answers = []
    for load in (load_library, lambda: None):
        monkeypatch.setattr(bert, "load_library", load)
        model = SentenceModel(tmp_path, TINY)
        assert model.reader is not None
        answers.append([each.answers for each in model.reader.read("my bus", WINDOWS)])
    assert np.allclose(answers[0], answers[1], atol=0.05)


def test_the_package_s_reader_is_small_and_for_minilm() -> None:
    assert PACKAGED.stat().st_size < 1_500_000
