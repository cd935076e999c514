"""`ownwords write` on the command line."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch

from ownwords.cli import write as verb
from ownwords.cli.main import main
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import resolve_model
from ownwords.inference import copy_guard
from ownwords.inference.model import Model
from ownwords.models import bundle
from ownwords.models.configs.llama import Qwen3Config
from ownwords.models.decoder import build
from ownwords.models.directory import COPY_GUARD
from ownwords.native import bindings
from ownwords.tokenizers.bpe import ByteTokenizer

torch.set_num_threads(1)  # where it computes, it does so on models too small for two
WRITE = (sys.executable, "-m", "ownwords", "write", "a")
GREEDY = ("--temperature", "0", "--max-tokens", "12", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of printable words, in a workspace."""
    tokenizer = ByteTokenizer()
    network = build(
        Qwen3Config(
            vocabulary=tokenizer.vocabulary_size,
            context=96,
            width=32,
            layers=2,
            heads=2,
            head_dim=16,
            hidden=48,
            tied=False,
        )
    )
    network.init_weights(3)
    # So that what it writes is letters and spaces, and shows on any terminal.
    letters = [*range(ord("a"), ord("z") + 1), ord(" ")]
    head = network.get_parameter("head.weight")
    hidden = np.random.default_rng(1).standard_normal(head.shape).astype(np.float32)
    hidden[[i for i in range(len(hidden)) if i not in letters]] = 0
    head.data = head.data.new_tensor(hidden)
    model_folder = tmp_path_factory.mktemp("here") / "blog.ownwords" / "model"
    model_folder.parent.mkdir()
    bundle.save(model_folder, network, tokenizer)
    return model_folder


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder.parent.parent)
    return folder.parent.parent


@pytest.mark.parametrize("temperature", [None, 1.7])
def test_the_prompt_is_shown_and_written_on(
    temperature: float | None, here: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    expected = "".join(Model.load(folder).write("the trouble", max_tokens=30, seed=5, **more))
    plain = "".join(Model.load(folder).write("the trouble", max_tokens=30, seed=5))
    options = [f"--{name}={value}" for name, value in more.items()]
    assert main(["write", "the", "trouble", "--max-tokens", "30", "--seed", "5", *options]) == 0
    output = capsys.readouterr()
    assert output.out == f"the trouble{expected}\n"
    assert output.err == ""  # no terminal there
    assert (expected == plain) == (temperature is None)


def test_several_texts_equal_those_of_their_seeds(
    here: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Model.load(folder)
    expected = ["".join(model.write("a", max_tokens=20, seed=seed)) for seed in (7, 8, 9)]
    command = ["write", "a", "--samples", "3", "--seed", "7", "--max-tokens", "20"]
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [item["text"] for item in result["texts"]] == expected
    assert [item["seed"] for item in result["texts"]] == [7, 8, 9]
    assert (result["prompt"], result["copy_guard"]) == ("a", False)
    assert Path(result["model"]).resolve() == folder.resolve()
    assert result["engine"]
    assert main(command) == 0
    parts = zip((7, 8, 9), expected, strict=True)
    assert capsys.readouterr().out == "".join(f"--- seed {s}\na{text}\n" for s, text in parts)


def test_without_a_seed_texts_differ(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["write", "a", "--json", "--temperature", "2", "--max-tokens", "20"]

    def written(*more: str) -> dict[str, Any]:
        assert main([*command, *more]) == 0
        (text,) = json.loads(capsys.readouterr().out)["texts"]
        return dict(text)

    first = written()
    assert written("--seed", str(first["seed"])) == first
    assert written()["text"] != first["text"]


@pytest.mark.parametrize("typed", ["été passé", "été passé\r\n"])
def test_a_dash_reads_standard_input(
    typed: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["write", "été passé", *GREEDY]) == 0
    expected = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(typed.encode())))
    assert main(["write", "-", *GREEDY]) == 0
    assert capsys.readouterr().out == expected


def test_a_prompt_that_is_not_text_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"caf\xe9")))
    assert main(["write", "-"]) == 2
    error = capsys.readouterr().err
    assert "standard input is not UTF-8: unexpected end of data at byte 3" in error
    assert "hint: convert it" in error
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["write", "-"]) == 2
    assert "there is no standard input" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_and_a_closed_stdout_are_not_bugs(here: Path) -> None:
    command = [*WRITE, *GREEDY]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # as on most machines
    run = partial(
        subprocess.run, stderr=subprocess.PIPE, text=True, check=False, cwd=here, env=environment
    )
    with Path("/dev/full").open("w") as full:
        process = run(command, stdout=full)
    assert (process.returncode, process.stderr) == (2, "ownwords: the disk is full\n")
    process = run(["sh", "-c", '"$@" >&-', "sh", *command])
    assert (process.returncode, process.stderr) == (0, "")


def test_it_ends_before_a_stop(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["write", "a", "--json", *GREEDY]) == 0
    (text,) = json.loads(capsys.readouterr().out)["texts"]
    stop = text["text"][4:7]
    end = text["text"].index(stop)
    assert main(["write", "a", "--json", *GREEDY, "--stop", "QQ", "--stop", stop]) == 0
    (text_stopped,) = json.loads(capsys.readouterr().out)["texts"]
    assert text_stopped["text"] == text["text"][:end]


def test_long_quotes_need_an_option(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded = tmp_path / "model"
    guarded.mkdir()
    for path in folder.iterdir():
        (guarded / path.name).write_bytes(path.read_bytes())
    command = ["write", "the", "--json", "--temperature", "0", "--max-tokens", "30"]
    command += ["--model", str(guarded)]
    assert main(command) == 0
    text = json.loads(capsys.readouterr().out)["texts"][0]["text"]
    tokenizer = ByteTokenizer()
    learned = np.array(tokenizer.encode("the" + text), np.int64)
    guard = copy_guard.build([learned], tokenizer, longest=6)
    (guarded / COPY_GUARD).write_bytes(guard.to_bytes())
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    full_text = "the" + result["texts"][0]["text"]
    assert result["copy_guard"]
    assert "the" + text != full_text
    assert not any(full_text[i : i + 6] in "the" + text for i in range(len(full_text) - 5))
    assert main([*command, "--quote"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["texts"][0]["text"], result["copy_guard"]) == (text, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokns", "5"], "unknown option: --tokns"),
        (["--max-tokens", "0"], "--max-tokens must be 1 or more"),
        (["--temperature", "-1"], "temperature must be"),
        (["--weights", "int5"], "int8"),
        (["--device", "abacus"], "there is no device"),
        (["--device", "cuda:99"], "PyTorch finds no device 'cuda:99' here"),
        (["--stop", ""], "stop strings"),
        (["--model", "nowhere"], "nowhere does not exist"),
    ],
)
def test_errors_are_reported(
    arguments: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["write", "x", *arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""


@pytest.mark.parametrize("text", ["-5 degrees", "-- said he"])
def test_a_prompt_can_begin_with_a_dash(
    text: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["write", text, *GREEDY]) == 0
    assert capsys.readouterr().out.startswith(text)


def test_the_model_is_resolved_from_its_path(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OwnwordsError, match="there is no model here"):
        resolve_model(None, tmp_path)
    (tmp_path / "new.ownwords").mkdir()
    with pytest.raises(OwnwordsError, match="holds no model yet"):
        resolve_model(tmp_path / "new.ownwords", tmp_path)
    for name in ("one.ownwords", "two.ownwords"):
        model_folder = tmp_path / name / "model"
        model_folder.mkdir(parents=True)
        (model_folder / "config.json").write_bytes((folder / "config.json").read_bytes())
        assert resolve_model(tmp_path / name, tmp_path) == model_folder
        assert resolve_model(model_folder, tmp_path) == model_folder
        if name == "one.ownwords":
            assert resolve_model(None, tmp_path) == model_folder
            assert resolve_model(None, tmp_path / name) == model_folder
    with pytest.raises(OwnwordsError, match=r"2 models here: one\.ownwords, two\.ownwords"):
        resolve_model(None, tmp_path)
    (tmp_path / "model.gguf").touch()
    assert resolve_model(tmp_path / "model.gguf", tmp_path) == tmp_path / "model.gguf"
    (tmp_path / "model.bin").touch()
    with pytest.raises(OwnwordsError, match="is a file") as raised:
        resolve_model(tmp_path / "model.bin", tmp_path)
    assert "or a GGUF file" in raised.value.hint


def test_control_characters_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = ["a\x1b[2J", "\tb\n", "\x9b1m", "é\x07"]
    verb.show_pieces(pieces)
    assert capsys.readouterr().out == "".join(pieces) + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    verb.show_pieces(pieces)
    assert capsys.readouterr().out == "a?[2J b\n?1mé?\n"


ENDLESS = [*WRITE, "--max-tokens", "10000000", "--temperature"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_keeps_the_text_so_far(here: Path) -> None:
    with subprocess.Popen(
        [*ENDLESS, "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        out, err = first + process.stdout.read(), process.stderr.read()
        status = process.wait()
    assert status == 130
    assert out.endswith(b"\n")
    assert out.count(b"\n") == 1
    assert err == b"ownwords: interrupted\n"


@pytest.mark.skipif(not bindings.load_library(), reason="the part in C++ is not there")
def test_torch_is_not_waited_for(here: Path) -> None:
    code = (
        "import sys; from ownwords.cli.main import main;"
        f" status = main(['write', 'a', *{GREEDY!r}]);"
        " print(status, [name for name in ('torch', 'rich') if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=here,
        env=os.environ,
    )
    assert process.stdout.splitlines()[-1] == "0 []"
