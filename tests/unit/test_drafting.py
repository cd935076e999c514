"""A draft passes off as written only what keeps its notes; everything else stays a note."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("torch")

import torch

import small_bases
from families import TINY
from ownwords.base import catalogue
from ownwords.cli.main import main
from ownwords.cli.mcp import _Tools
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace
from ownwords.drafts import drafting
from ownwords.drafts.drafting import DraftLine, Notes
from ownwords.inference.model import Model
from ownwords.models import bundle, lora
from ownwords.models.decoder import build
from ownwords.models.lora import AdapterConfig
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weights import write_tensors
from ownwords.tokenizers.bpe import ByteTokenizer

NOTE = "count 14 umbrellas at Leeds station, not collected"
KEPT = "We counted 14 umbrellas at Leeds station, and they were not collected."


class ScriptedModel(Model):
    """A model that writes given sentences, and finds the letter "w" the likeliest."""

    def __init__(self, *written: str) -> None:
        self.tokenizer = ByteTokenizer()
        self.engine = MagicMock(context=2048)
        self.written = written

    def write_several(self, prompt: str, **_: Any) -> list[str]:  # noqa: ANN401
        return list(self.written)

    def scheduler(self, rows: int, length: int) -> Any:  # noqa: ANN401
        return MagicMock(length=length)

    def score(self, prompt: str, texts: Sequence[str], scheduler: object = None) -> list[float]:
        return [8.0 * len(text) - 4 * text.count("w") for text in texts]


def lines_of(model: Model, notes: str) -> list[DraftLine]:
    return [*drafting.write_lines(model, Notes.parse(notes))]


@pytest.mark.parametrize(
    "written",
    [
        "We counted 40 umbrellas at Leeds station, and they were not collected.",
        "We counted 14 umbrellas at the station, and they were not collected.",
        "We counted 14 umbrellas at Leeds station, and they were collected.",
        "We counted 14 umbrellas at Leeds station, and Hale had not collected them.",
        "We did not count 14 at Leeds.",
        "We counted 14 umbrellas at Leeds station, “not collected”.",
        "We counted 14 umbrellas at Leeds station, and they were not collected",
        'We counted 14 "umbrellas" at Leeds station, and they were not collected.',
        KEPT.replace(".", ", and so it was with many of the others, too, as so often" * 4 + "."),
    ],
)
def test_what_loses_or_adds_a_fact_is_not_written(written: str) -> None:
    (line,) = lines_of(ScriptedModel(written), NOTE)
    assert not line.kept and str(line) == f"[{NOTE}]"
    (line,) = lines_of(ScriptedModel(written, KEPT), NOTE)
    assert line.kept and str(line) == KEPT


@pytest.mark.parametrize(
    ("note", "better", "worse"),
    [
        # The likelier, the one that adds no word, and that without the word of a later line.
        ("we at Leeds", "That was how we was at Leeds.", "Then, there is so very we at Leeds."),
        (NOTE, "We also count 14 umbrellas at Leeds station, not collected.",
         "We sadly count 14 umbrellas at Leeds station, not collected."),
        (f"{NOTE}\nrain at Crewe", "At dusk I count 14 umbrellas at Leeds station, not collected.",
         "At rain I count 14 umbrellas at Leeds station, not collected."),
    ],
)  # fmt: skip
def test_of_two_that_keep_the_facts_the_one_that_adds_less_wins(
    note: str, better: str, worse: str
) -> None:
    for written in ((better, worse), (worse, better)):
        assert lines_of(ScriptedModel(*written), note)[0].text == better


def test_a_sentence_with_half_of_the_words_or_that_stands_already_is_not_written() -> None:
    notes = "rain all morning on the roof and pavement"
    half, more = "The rain was on the roof.", "All morning the rain was on the roof."
    known = KEPT.replace("they", "Hale and they")  # of the next line
    assert lines_of(ScriptedModel(known), f"{NOTE}\nHale at Crewe")[0].kept
    assert not lines_of(ScriptedModel(half), notes)[0].kept
    assert lines_of(ScriptedModel(half, more), notes)[0].text == more
    first, second = lines_of(ScriptedModel(KEPT), f"{NOTE}\n{NOTE}")
    assert first.kept and not second.kept


def test_links_and_quotations_are_kept() -> None:
    note = "Hale said “we keep it”, see https://example.org/a?b=1"
    for written in ("Hale said “we keep it”.", "Hale said so, see https://example.org/a?b=1."):
        assert not lines_of(ScriptedModel(written), note)[0].kept
    kept = "Hale said “we keep it” (see https://example.org/a?b=1)."
    assert lines_of(ScriptedModel(kept), note)[0].kept
    assert lines_of(ScriptedModel("Kurbo#269 says so."), "kurbo#269 says so")[0].kept


def test_notes_are_read_with_title_bullets_and_paragraphs() -> None:
    read = Notes.parse("\n# Lost\n- one\n* two\n\n\n3. three\nfour\n")
    assert read == Notes("Lost", (("one", "two"), ("three", "four")))


def test_what_is_jotted_down_is_read_as_words_and_sentences() -> None:
    read = Notes.parse(
        "- text in code -> changes w/o effort - a breeze\n"
        "- few hours. ended up 20+ hours; e.g. C++ & Rust, 5 + 3 = 8\n"
        '- she said "one. two = 2" (a; x/b/c), ~14 times\n\n...\n'
    )
    assert read.paragraphs == (
        (
            "text in code, so changes without effort - a breeze",
            "few hours",
            "ended up 20+ hours",
            "for example C++ and Rust, 5 + 3 = 8",
            'she said "one. two = 2" (a; x/b/c), about 14 times',
        ),
    )


def test_the_line_after_one_that_stays_a_note_begins_a_sentence() -> None:
    prompts: list[str] = []

    class Listening(ScriptedModel):
        def write_several(self, prompt: str, **_: Any) -> list[str]:  # noqa: ANN401
            prompts.append(prompt)
            return [KEPT]

    _, line = lines_of(Listening(), f"Hale at Crewe\n{NOTE}")
    assert line.kept and prompts[-1].endswith("Text:\nHale at Crewe.")


def test_the_verb_refuses_a_model_that_has_not_learned_notes_and_leaves_what_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer, notes = ByteTokenizer(), tmp_path / "notes.txt"
    notes.write_text(f"# Lost\n{NOTE}\n\nnobody there", encoding="utf-8")
    network = build(replace(TINY["qwen3"], vocabulary=tokenizer.vocabulary_size, context=512))
    network.init_weights(1)
    arguments = ["draft", str(notes), "--model", str(tmp_path / "model"), "--json"]
    bundle.save(tmp_path / "model", network, tokenizer)
    assert main(arguments) == 2
    assert "has not learned to write from notes" in capsys.readouterr().out
    bundle.save(tmp_path / "model", network, tokenizer, provenance={"writes_from_notes": True})
    assert drafting.has_learned(tmp_path / "model")
    assert main([*arguments, "--seed", "3"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["text"] == f"Lost\n\n[{NOTE}]\n\n[nobody there]"
    assert result["lines"][0] == {
        "before": "Lost\n\n",
        "note": NOTE,
        "text": NOTE,
        "kept": False,
        "doubts": [],
    }


def test_a_base_with_the_notes_adapter_drafts_until_the_workspace_has_a_model_that_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path))
    monkeypatch.setattr(catalogue, "ADAPTERS", tmp_path / "adapters")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("nobody there", encoding="utf-8")
    own = tmp_path / "blog.ownwords" / "model"

    def drafted(*options: str) -> tuple[int, str]:
        status = main(["draft", "notes.txt", *options])
        printed = capsys.readouterr()
        assert (printed.out == "[nobody there]\n") is (status == 0)
        return status, printed.err

    assert "ownwords base add smollm2-135m" in drafted()[1]
    small_bases.write(tmp_path / "bases" / "other")
    assert drafted()[0] == 2
    small_bases.write(tmp_path / "bases" / "tiny")
    adapter = lora.attach(small_bases.model(), AdapterConfig(2), seed=1)
    (tmp_path / "adapters" / "tiny").mkdir(parents=True)
    write_tensors(tmp_path / "adapters/tiny/notes.safetensors", lora.stored_tensors(adapter))
    base = "Writing with tiny, which has read none of your posts"
    assert drafted()[1].startswith(f"{base}.\n")
    assert _Tools(Workspace(own.parent)).draft("nobody there") == "[nobody there]"
    small_bases.write(own)
    assert drafted()[1].startswith(f"{base}; the model in blog.ownwords/model has not learned")
    assert drafted("--model", str(own))[0] == 2
    assert drafted("--workspace", "mistyped.ownwords")[0] == 2
    provenance = {"writes_from_notes": True}
    bundle.save(own, small_bases.model(), ByteTokenizer(), provenance=provenance)
    assert drafted()[1].startswith("Writing with the model in blog.ownwords/model.\n")
    assert drafted("--quiet") == (0, "")


@pytest.mark.parametrize("on_terminal", [False, True])
def test_the_verb_shows_each_line_as_it_is_written(
    on_terminal: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on_terminal)
    notes, seen = tmp_path / "notes.txt", list[str]()
    notes.write_text("# Lost\nHale at Crewe\nnobody there", encoding="utf-8")
    provenance = {"writes_from_notes": True}
    bundle.save(tmp_path / "model", small_bases.model(), ByteTokenizer(), provenance=provenance)

    def write_several(*_: object, **__: object) -> list[str]:
        seen.append(capsys.readouterr().out)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(Model, "write_several", write_several)
    arguments = ["draft", str(notes), "--model", str(tmp_path / "model")]
    assert main(arguments) == 130
    assert seen == ["", "Lost\n\n[Hale at Crewe]"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["qwen3", "gpt2"])  # GPT-2's matrices are stored transposed
def test_a_stored_adapter_adds_what_it_was_stored_from(
    family: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    tokenizer = ByteTokenizer()
    config = replace(TINY[family], vocabulary=tokenizer.vocabulary_size)
    models = [build(config, dtype=dtype) for _ in range(2)]
    for model in models:
        model.init_weights(1)
    bundle.save(tmp_path / "base", models[0], tokenizer)
    adapter = lora.attach(models[0], AdapterConfig(2), seed=1)
    stored = {}
    for name, layer in adapter.layers.items():
        layer.up.data.normal_(generator=torch.Generator().manual_seed(1))
        for kind, matrix in (("down", layer.down), ("up", layer.up * layer.scale)):
            scale = matrix.detach().abs().amax(1) / 127
            rows = (matrix.detach() / scale[:, None]).round()
            stored[f"{name}.{kind}"] = rows.char()
            stored[f"{name}.{kind}.scale"] = scale
    write_tensors(tmp_path / "a.safetensors", stored)
    adapter.merge()
    adapter.detach()
    lora.merge_stored(models[1], tmp_path / "a.safetensors")
    loaded = bundle.load(tmp_path / "base", adapter=tmp_path / "a.safetensors").model
    for one, other, read in zip(*(m.parameters() for m in (*models, loaded)), strict=True):
        assert (one - other).abs().max() <= 0.02 * one.abs().max()
        torch.testing.assert_close(read, other)
    shallower = build(replace(config, layers=config.layers - 1))
    shallower.init_weights(1)
    bundle.save(tmp_path / "other", shallower, tokenizer)
    with pytest.raises(ModelError, match="not an adapter for this model"):
        bundle.load(tmp_path / "other", adapter=tmp_path / "a.safetensors")


def test_a_draft_that_was_broken_off_goes_on_as_if_it_had_not_been() -> None:
    notes = Notes.parse("# Lost\nHale at Crewe\n" + NOTE + "\n\n14 umbrellas at Leeds")
    asked: list[tuple[str, object]] = []

    class Listening(ScriptedModel):
        def write_several(self, prompt: str, **how: Any) -> list[str]:  # noqa: ANN401
            asked.append((prompt, how["seeds"]))
            return super().write_several(prompt, **how)

    model = Listening(KEPT, "There were 14 umbrellas at Leeds.")
    whole = [*drafting.write_lines(model, notes)]
    assert "".join(f"{line.before}{line}" for line in whole) == (
        f"Lost\n\n[Hale at Crewe] {KEPT}\n\nThere were 14 umbrellas at Leeds."
    )
    first, asked = asked, []
    assert [*drafting.write_lines(model, notes, begun=whole[:2])] == whole
    assert asked == first[2:]
    with pytest.raises(OwnwordsError, match="have changed"):
        next(drafting.write_lines(model, notes, begun=whole[1:]))
