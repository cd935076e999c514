"""Which engine serves a directory, and the error where none can."""

import sys
from pathlib import Path

import pytest

import model_directories as models
from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import WeightFormat
from ownwords.inference.model import describe_cpu_engine, has_driver
from ownwords.models import bundle, directory, fused
from ownwords.models.untrusted_files import ModelError
from ownwords.native import bindings

pytestmark = pytest.mark.skipif(
    bindings.load_library() is None, reason="the part in C++ is not built"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models.write(tmp_path / "m", "qwen3")
    return tmp_path / "m"


def without_the_part_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(bindings.VARIABLE, "none")
    monkeypatch.setattr(fused, "find_library", lambda: None)  # which remembers its answer


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ownwords.inference.torch_engine", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)


def test_the_processor_is_served_by_the_native_engine(folder: Path) -> None:
    engine = models.open_engine(folder, device="cpu", threads=1)
    assert engine.name.startswith("native f32, ")
    files = directory.read(folder)
    assert files.config.vocabulary == engine.vocabulary == 97
    files.check_tokenizer(models.Letters())
    with pytest.raises(ModelError, match="not the one"):
        files.check_tokenizer(models.Letters(97, 0x41))


def test_torch_is_used_without_a_native_library(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = models.open_engine(folder, device="cpu").cache(1, 9).forward({0: [1, 2, 3]})
    without_the_part_in_c(monkeypatch)
    engine = models.open_engine(folder, device="cpu")
    assert engine.name.startswith("torch")
    assert describe_cpu_engine() == ("PyTorch", bindings.library_problem())
    logits = engine.cache(1, 9).forward({0: [1, 2, 3]})
    assert abs(logits - wanted).max() < 1e-4


def test_without_both_engines_the_error_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_torch(monkeypatch)
    with pytest.raises(OwnwordsError, match="cuda needs PyTorch, and PyTorch is not") as no:
        models.open_engine(folder, device="cuda")
    assert "pip install" in str(no.value)
    without_the_part_in_c(monkeypatch)
    with pytest.raises(
        OwnwordsError, match="switched off by OWNWORDS_ISA=none, and PyTorch is not installed"
    ):
        models.open_engine(folder, device="cpu")


@pytest.mark.parametrize(
    "driver", ["/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "C:/Windows/System32/nvcuda.dll"]
)
def test_a_driver_is_found_on_linux_wsl_and_windows(
    driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: path.as_posix() == driver)
    assert has_driver()
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert not has_driver()


def test_invalid_options_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OwnwordsError, match="no device 'gpu'"):
        models.open_engine(folder, device="gpu")
    with pytest.raises(OwnwordsError, match="cannot be 'int3'"):
        models.open_engine(folder, weights="int3")
    for threads in (0, -1, 1025):
        with pytest.raises(OwnwordsError, match="must be from 1 to 1024"):
            models.open_engine(folder, threads=threads)
    with pytest.raises(ModelError, match="is not a folder"):
        models.open_engine(tmp_path / "none")


@pytest.mark.parametrize("compiled", [True, False], ids=["native", "torch"])
def test_quantised_weights_cannot_be_converted(
    compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.model("llama")
    bundle.save(tmp_path / "m", model, models.Letters(), int8=True)
    if not compiled:
        without_the_part_in_c(monkeypatch)
    assert models.open_engine(tmp_path / "m", device="cpu", weights="int8").weights == "int8"
    formats: tuple[WeightFormat, ...] = ("f32", "bf16")
    for weights in formats:
        with pytest.raises(
            ModelError, match=f"holds int8 weights and cannot be loaded as {weights}"
        ):
            models.open_engine(tmp_path / "m", device="cpu", weights=weights)
