"""Model directories: saved and loaded whole, with tokenizer, card, provenance and licence."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import model_directories as models
import small_bases
from model_directories import Letters
from ownwords.core.errors import ConfigError, WorkspaceError
from ownwords.core.workspace import UNFINISHED
from ownwords.inference.export import export
from ownwords.models import atomic_dir, bundle, quantize
from ownwords.models.directory import BaseLicense
from ownwords.models.gguf.container import open_gguf
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers.bpe import ByteTokenizer, train
from ownwords.tokenizers.tokenizer import Tokenizer

NOTHING: tuple[None, dict[str, object]] = (None, {})


def test_a_directory_has_the_files_that_tools_expect(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = models.model("qwen3")
    provenance = {"corpus": "abc", "recipe": {"minutes": 10}, "scores": {"bits_per_byte": 2.5}}
    bundle.save(folder, model, Letters(), provenance=provenance)
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"),
        *("tokenizer_config.json", "README.md", "ownwords.json"),
    }
    config = json.loads((folder / "config.json").read_bytes())
    assert config["model_type"] == "qwen3"
    assert config["torch_dtype"] == "float32"
    assert (config["bos_token_id"], config["eos_token_id"]) == (0, 0)
    said = json.loads((folder / "ownwords.json").read_bytes())
    assert said["format"] == 1
    assert said["tokenizer"]["fingerprint"] == Letters().fingerprint()
    card = (folder / "README.md").read_text("utf-8")
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    assert "\nlicense:" not in card

    loaded = bundle.load(folder)
    assert loaded.provenance == provenance
    assert loaded.tokenizer_files == Letters().files()
    assert loaded.generation == {"bos_token_id": 0, "eos_token_id": 0}
    assert loaded.config == model.config
    loaded.check_tokenizer(Letters())
    for parameter, loaded_parameter in zip(
        model.parameters(), loaded.model.parameters(), strict=True
    ):
        assert torch.equal(parameter, loaded_parameter)


@pytest.mark.parametrize("family", list(models.CONFIGS))
def test_saving_a_loaded_directory_reproduces_it(family: str, tmp_path: Path) -> None:
    first, second = tmp_path / "1" / "model", tmp_path / "2" / "model"
    bundle.save(first, models.model(family), Letters(), dtype=torch.bfloat16)
    bundle.save(second, bundle.load(first).model, Letters())
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


@pytest.mark.parametrize("family", list(models.CONFIGS))
def test_a_quantised_model_round_trips(family: str, tmp_path: Path) -> None:
    model = models.model(family)
    bundle.save(tmp_path / "m", model, Letters(), int8=True)
    quantize.quantize(model)
    loaded = bundle.load(tmp_path / "m")
    ids = torch.arange(12)[None]
    with torch.no_grad():
        assert torch.equal(loaded.model(ids), model(ids))


def test_cards_keep_the_author_s_edits(tmp_path: Path) -> None:
    model = models.model("llama")
    own = "---\nlicense: cc-by-4.0\n---\n\nMine.\n"
    bundle.save(tmp_path / "a", model, Letters(), card=own)
    assert bundle.load(tmp_path / "a").card == own
    bundle.save(tmp_path / "b", model, Letters(), card="Text alone.\n")
    assert bundle.load(tmp_path / "b").card.endswith("---\n\nText alone.\n")


def test_a_tokenizer_too_large_for_the_model_is_refused(tmp_path: Path) -> None:
    model = models.model("llama", vocab_size=90)
    with pytest.raises(ModelError, match=r"has 97 tokens, but the model 90 \(vocab_size"):
        bundle.save(tmp_path / "m", model, Letters())
    assert list(tmp_path.iterdir()) == []
    bundle.save(tmp_path / "m", model, Letters(90))
    loaded = bundle.load(tmp_path / "m")
    with pytest.raises(ModelError, match="has 97 tokens"):
        loaded.check_tokenizer(Letters())
    # Some rows to spare are usual, half of them are another tokenizer's.
    with pytest.raises(ModelError, match="has 44 tokens, but the model 90"):
        loaded.check_tokenizer(Letters(44))


def test_another_tokenizer_of_the_same_size_is_refused(tmp_path: Path) -> None:
    models.write(tmp_path / "m")
    path = tmp_path / "m" / "tokenizer.json"
    reordered = json.dumps(json.loads(path.read_bytes()), indent=3, sort_keys=True)
    path.write_text(reordered, encoding="utf-8")
    loaded = bundle.load(tmp_path / "m")
    loaded.check_tokenizer(Letters())  # the same table, laid out by another program
    with pytest.raises(ModelError, match="the tokenizer is not the one that the model was saved"):
        loaded.check_tokenizer(Letters(first=0x100))


def test_our_own_tokenizers_are_tied_to_their_models(tmp_path: Path) -> None:
    model = models.model("qwen3", vocab_size=512)
    texts = ["one hat", "two hats, and a cap", "a cap and a hat"] * 9
    for name, tokenizer in (("bytes", ByteTokenizer()), ("bpe", train(texts, 300))):
        bundle.save(tmp_path / name, model, tokenizer)
        loaded = bundle.load(tmp_path / name)
        reopened = Tokenizer(loaded.tokenizer_files)
        loaded.check_tokenizer(reopened)
        assert reopened.encode("a hat ☂") == tokenizer.encode("a hat ☂")
    with pytest.raises(ModelError, match="is not the one"):
        loaded.check_tokenizer(ByteTokenizer())
    shutil.copy(tmp_path / "bytes" / "tokenizer.json", tmp_path / "bpe")
    swapped = bundle.load(tmp_path / "bpe")
    with pytest.raises(ModelError, match="is not the one"):
        swapped.check_tokenizer(Tokenizer(swapped.tokenizer_files))


class Missing(Letters):
    def files(self) -> dict[str, bytes]:
        return {"vocab.json": b"{}"}


class Foreign(Letters):
    def files(self) -> dict[str, bytes]:
        return super().files() | {"config.json": b"{}"}


@pytest.mark.parametrize("tokenizer", [Missing(), Foreign()])
def test_a_model_is_saved_with_its_own_tokenizer_only(tokenizer: Letters, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"saved with its tokenizer\.json, and these"):
        bundle.save(tmp_path / "m", models.model("llama"), tokenizer)
    with pytest.raises(ModelError, match=r"'format' in ownwords.json cannot be given"):
        bundle.save(tmp_path / "m", models.model("llama"), Letters(), provenance={"format": 2})
    with pytest.raises(ModelError, match="cannot be written as JSON"):
        bundle.save(tmp_path / "m", models.model("llama"), Letters(), provenance={"x": {1}})


def test_a_foreign_directory_needs_its_tokenizer_too(tmp_path: Path) -> None:
    models.write(tmp_path / "m")
    (tmp_path / "m" / "ownwords.json").unlink()
    loaded = bundle.load(tmp_path / "m")
    assert (loaded.fingerprint, loaded.provenance) == NOTHING
    loaded.check_tokenizer(Letters(first=0x100))  # nobody can know
    (tmp_path / "m" / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer.json; a model without"):
        bundle.load(tmp_path / "m")


def test_an_invalid_model_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a folder"):
        bundle.load(tmp_path / "absent")
    with pytest.raises(ModelError, match=r"has no config\.json"):
        bundle.load(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="an adapter, not a model"):
        bundle.load(tmp_path)
    models.write(tmp_path / "m")
    models.edit(tmp_path / "m" / "config.json", model_type="t5")
    with pytest.raises(ConfigError, match="t5"):
        bundle.load(tmp_path / "m")


def test_a_newer_format_is_reported(tmp_path: Path) -> None:
    models.write(tmp_path / "m")
    models.edit(tmp_path / "m" / "ownwords.json", format=2)
    with pytest.raises(ModelError, match="upgrade ownwords"):
        bundle.load(tmp_path / "m")


def test_a_folder_of_other_files_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    models.write(folder)
    (folder / "thesis.docx").write_bytes(b"mine")
    with pytest.raises(ModelError, match=r"do not belong to a model: 'thesis.docx'"):
        models.write(folder)
    (folder / "thesis.docx").unlink()
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="not replaced"):
        models.write(folder)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelError, match="is a file"):
        models.write(tmp_path / "file")


def test_a_model_replaces_a_model_completely(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model [1]*"
    bundle.save(folder, models.model("llama"), Letters())
    models.shard(folder, 6000)
    bundle.save(folder, models.model("qwen3"), Letters())
    assert bundle.load(folder).config.MODEL_TYPE == "qwen3"
    assert not (folder / "model.safetensors.index.json").exists()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    if sys.platform != "win32":
        umask = os.umask(0)
        os.umask(umask)
        assert folder.stat().st_mode & 0o777 == 0o777 & ~umask


def test_what_another_process_writes_stays_and_what_a_killed_one_left_goes(tmp_path: Path) -> None:
    """Whoever they are: in two containers that share a volume, process numbers say nothing."""
    folder = tmp_path / "model"
    abandoned = tmp_path / f".model.1.{os.getpid()}{UNFINISHED}"
    (abandoned / "model").mkdir(parents=True)
    with atomic_dir.replace_dir(folder) as slow:
        assert not abandoned.exists()
        models.write(folder)
        (slow / "config.json").write_text("{}")
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_a_link_to_a_model_stays_a_link(tmp_path: Path) -> None:
    models.write(tmp_path / "run-1")
    (tmp_path / "best").symlink_to("run-1")
    models.write(tmp_path / "best", "llama")
    assert (tmp_path / "best").is_symlink()
    assert bundle.load(tmp_path / "run-1").config.MODEL_TYPE == "llama"


def test_a_full_disk_is_one_sentence_and_the_old_model_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    models.write(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match=r"the disk is full: .*model could not be written"):
        models.write(folder, "llama")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_cannot_be_moved_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.write(tmp_path / "model")

    def busy(*_: object) -> Path:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "rename", busy)
    with pytest.raises(WorkspaceError, match="model cannot be replaced: Device or resource busy"):
        models.write(tmp_path / "model", "llama")


# A process whose children replace a folder; each is killed at the next thing that it asks of the
# operating system.
_KILLED = """
import os, signal, sys
from pathlib import Path
from ownwords.models import atomic_dir

folder = Path(sys.argv[1])
os.fsync = lambda _: None  # a matter of power cuts, which cannot be had here; it only takes time

def save(text):
    with atomic_dir.replace_dir(folder) as draft:
        for name in ("config", "weights", text):
            atomic_dir.write_file(draft / name, text.encode())

def check():
    files = {path.name: path.read_text() for path in atomic_dir.readable_dir(folder).iterdir()}
    text = files["config"]
    assert files == dict.fromkeys(("config", "weights", text), text), files
    return text

def child(work):
    number = os.fork()
    if not number:
        try:
            work()
        finally:
            os._exit(0)
    return number

def until(step):
    def dying(event, _):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    left = [step]
    sys.addaudithook(dying)
    save("new")

save("old")
seen = []
for step in range(1, 10_000):
    save("old")
    _, status = os.waitpid(child(lambda: until(step)), 0)
    seen.append(check())
    if not os.WIFSIGNALED(status):
        break
assert seen[0] == "old" and seen[-1] == "new"
assert seen == sorted(seen, reverse=True), "new, then old again"
save("old")
assert check() == "old"
left = [path.name for path in folder.parent.iterdir()]
assert left == [folder.name], left
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no such call on Windows")
def test_a_kill_at_any_moment_leaves_the_old_model_or_the_new(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "in" / "model")]
    process = subprocess.run(command, capture_output=True, check=False, text=True)
    assert process.returncode == 0, process.stderr


FRONT = "license: gemma\nbase_model: google/tiny\nlicense_link: https://terms.example\n"
CARD = f"---\n{FRONT}---\n\n# T\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    small_bases.write(tmp_path / "base")
    (tmp_path / "base" / "README.md").write_text(CARD)
    (tmp_path / "base" / "LICENSE.html").write_text("terms")
    (tmp_path / "base" / "NOTICE").write_text("notice")
    return tmp_path / "base"


def test_a_model_made_of_a_base_carries_its_licence_and_so_does_one_made_of_that(
    base: Path, tmp_path: Path
) -> None:
    for name in ("tuned", "again", "again"):  # the last replaces the one before
        license = BaseLicense.of(base)
        bundle.save(
            tmp_path / name, small_bases.model(), ByteTokenizer(), card="# Mine\n", license=license
        )
        base = tmp_path / name
        card = (base / "README.md").read_text()
        assert "\nlicense: gemma\n" in card and "google/tiny and is subject to its license" in card
        assert "https://terms.example" in card and card.count("## License") == 1
        assert "Include LICENSE.html and NOTICE with every copy" in card
        assert (base / "NOTICE").read_text() == "notice"
        provenance = json.loads((base / "ownwords.json").read_bytes())
        assert provenance["derived_from"] == {"model": "google/tiny", "license": "gemma"}


def test_exports_keep_the_licence(base: Path, tmp_path: Path) -> None:
    export(base, "hf", out=tmp_path / "out")
    assert (tmp_path / "out" / "LICENSE.html").read_text() == "terms"
    assert (tmp_path / "out" / "README.md").read_text() == CARD
    export(base, "gguf", out=tmp_path / "one.gguf")
    export(base, "ollama", out=tmp_path / "folder")
    for path in (tmp_path / "one.gguf", tmp_path / "folder" / "base.gguf"):
        with open_gguf(path) as contents:
            assert contents.metadata["general.license"] == "gemma"
            assert contents.metadata["general.base_model.0.name"] == "google/tiny"


@pytest.mark.parametrize("card", ["", "# No front\nlicense: gemma\n", "---\nlicense: mit\n---\n"])
def test_without_conditions_no_license_text_is_added(card: str, base: Path) -> None:
    (base / "README.md").write_text(card)
    assert BaseLicense.of(base) == BaseLicense()
    assert BaseLicense.of(base).on("# Mine\n").endswith("cc-by-4.0\n---\n\n# Mine\n")
    assert BaseLicense.of(base).provenance() == {}
