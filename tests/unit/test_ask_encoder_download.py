"""An encoder from a hub is there whole, or not at all, and is downloaded once."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fake_hub import NAME, FakeServer, serving
from ownwords.ask.encoder import SentenceModel, encoder_folder, open_embedder
from ownwords.core.errors import ConfigError, OwnwordsError
from sentence_folders import folder_in

pytest.importorskip("tokenizers")
pytest.importorskip("huggingface_hub")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    # huggingface_hub waits between its tries: here for nothing.
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    with serving(monkeypatch) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


def test_an_encoder_is_downloaded_once_without_what_could_run(
    server: FakeServer, tmp_path: Path
) -> None:
    original = folder_in(tmp_path / "model")
    (original / "modeling_tiny.py").write_text("raise SystemExit")
    (original / "pytorch_model.bin").write_bytes(b"a pickle")
    server.publish(original)
    embedder = open_embedder(f"hf:{NAME}")
    assert embedder is not None
    texts = ["my kettle broke", "the rain fell"]
    assert np.array_equal(embedder.embed(texts), SentenceModel(original).embed(texts))
    assert embedder.name.startswith("tiny-model ")
    assert not server.downloaded() & {"modeling_tiny.py", "pytorch_model.bin"}
    requests = len(server.requests)
    again = open_embedder(f"hf:{NAME}")
    assert again is not None
    assert again.name == embedder.name
    assert len(server.requests) == requests


def test_an_unsupported_or_missing_encoder_leaves_no_folder(
    server: FakeServer, tmp_path: Path
) -> None:
    with pytest.raises(OwnwordsError, match=f"{NAME} could not be downloaded from http://127"):
        encoder_folder(NAME)
    original = folder_in(tmp_path / "model")
    (original / "modules.json").write_text("[]")
    server.publish(original)
    with pytest.raises(OwnwordsError, match="lists nothing"):
        encoder_folder(NAME)
    assert not [path for path in (tmp_path / "home" / "encoders").iterdir() if path.name[0] != "."]


@pytest.mark.parametrize("name", ["", "tiny", "../x/y", "a/b/c", "a b/c", "https://x/y"])
def test_what_is_no_name_of_a_model_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="is not the name of a model"):
        open_embedder(f"hf:{name}")
    assert not list(tmp_path.iterdir())
