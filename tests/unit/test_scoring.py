"""Small real models are scored: one that copies, one that babbles; figures are cached."""

import math
import random
import shutil
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import families
from ownwords.archive.corpus import Corpus, TextCollection, TrainingText
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.core.progress import Event, Progress
from ownwords.evaluation import bits_per_byte, scoring
from ownwords.evaluation.scorecard import BASE, OURS, Scorecard
from ownwords.evaluation.scored_model import ScoredModel
from ownwords.evaluation.scoring import (
    ScoreConfig,
    score_model,
)
from ownwords.evaluation.verbatim import longest_copied
from ownwords.evaluation.verdict import COPIES, GIBBERISH
from ownwords.inference import copy_guard
from ownwords.inference.model import Model
from ownwords.models import bundle, lora
from ownwords.models.configs.llama import Qwen3Config
from ownwords.models.decoder import CausalLM, build
from ownwords.models.weights import write_tensors
from ownwords.tokenizers import bpe

assert families  # its import sets one thread

SMALL = ScoreConfig(
    passages=32,
    seeds=3,
    prompts=2,
    prompt_words=3,
    max_tokens=70,
    base_samples=1,
    more_seeds=0,
)
# Each stands once in what is learned from, so that every word says which one follows.
WORDS = [
    head + tail
    for head in ("har", "mil", "bro", "sta", "wen", "lor", "cas", "pid", "gru", "fen", "tal", "mo")
    for tail in ("ber", "low", "ken", "dish", "ton", "ly", "gate", "mer", "ing", "ster", "ver", "p")
]
random.Random(9).shuffle(WORDS)


def post(number: int, chosen: list[str]) -> TrainingText:
    sentences = [" ".join(chosen[at : at + 9]).capitalize() for at in range(0, len(chosen), 9)]
    title = f"Post {number}"
    return TrainingText(
        f"post/{number}",
        f"{title}\n\n{'. '.join(sentences)}.",
        title,
        f"2009-05-0{number % 9 + 1}",
        f"https://blog.example/{number}/",
    )


def corpus_of(
    train: list[TrainingText], validation: list[TrainingText], test: list[TrainingText]
) -> Corpus:
    read = TextCollection.read
    return Corpus(read(train), read(validation), read(test))


def posts() -> Corpus:
    rng = random.Random(4)
    train = [post(n, WORDS[45 * n : 45 * n + 45]) for n in range(3)]
    held_out_posts = [post(n, rng.sample(WORDS, 45)) for n in range(10, 17)]
    return corpus_of(train, held_out_posts[:2], held_out_posts[2:])


# Of whole words, so that a small model learns them soon.
TOKENIZER = bpe.train([text.text for text in posts().train] * 3, 600)


def network() -> CausalLM:
    model = build(
        Qwen3Config(
            vocabulary=TOKENIZER.vocabulary_size,
            context=32,
            width=48,
            layers=2,
            heads=2,
            head_dim=24,
            hidden=96,
        )
    )
    model.init_weights(3)
    return model


def overfitted(texts: list[str], steps: int = 100) -> CausalLM:
    """A model that memorised a few texts."""
    model = network()
    rows = [torch.from_numpy(ids) for ids in bits_per_byte.encode(TOKENIZER, texts)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        windows = []
        for row in rows:
            # Also from the start, as a new text begins.
            at = 0 if rng.random() < 0.25 else int(rng.integers(0, len(row) - 33))
            windows.append(row[at : at + 33])
        ids_BT = torch.stack(windows)
        logits = model.logits(model(ids_BT[:, :-1]))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids_BT[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


@pytest.fixture(autouse=True, scope="module")
def _without_reference() -> Iterator[None]:
    """The comparison with other authors has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "Lexicon", SimpleNamespace(load=lambda: None))
        foreign = SimpleNamespace(vocabulary=SimpleNamespace(words=("ja", "nein")))
        patch.setattr(scoring, "ReferenceAuthors", SimpleNamespace(of=lambda _: foreign))
        yield


@dataclass(frozen=True)
class Folders:
    copying: Path
    babbling: Path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("models")
    learned = [text.text for text in posts().train]
    documents = (np.array(ids) for ids in bits_per_byte.encode(TOKENIZER, learned))
    blocks = copy_guard.build(documents, TOKENIZER).to_bytes()
    provenance = {
        "compared": ["Time: 12 s, expected 12 s."],
        "base_name": "shipped",
    }
    bundle.save(
        root / "copying", overfitted(learned), TOKENIZER, copy_guard=blocks, provenance=provenance
    )
    bundle.save(root / "babbling", network(), TOKENIZER)
    return Folders(root / "copying", root / "babbling")


@pytest.fixture(scope="module")
def copying(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> tuple[Scorecard, Path]:
    """The scorecard of the copying model beside a babbling one, and its workspace."""
    workspace = tmp_path_factory.mktemp("copying.ownwords")
    return run_scoring(folders, workspace, posts()), workspace


def run_scoring(
    folders: Folders, workspace: Path, of: Corpus, progress: Progress | None = None
) -> Scorecard:
    return score_model(
        folders.copying,
        of,
        folders.babbling,
        base_name="a babbler",
        workspace=workspace,
        config=SMALL,
        progress=progress,
    )


def test_where_time_is_short_less_is_measured_and_said(folders: Folders, tmp_path: Path) -> None:
    config = replace(SMALL, seeds=12, more_seeds=20, max_tokens=12, seconds=0.0)
    card = score_model(folders.copying, posts(), None, workspace=tmp_path, config=config)
    assert len(card.samples) == 8 and card.ours is not None and card.memorised is not None
    assert any("8 of 34 samples" in note for note in card.notes)
    # What was written is not written again where there is time.
    full = replace(config, seconds=math.inf)
    more = score_model(folders.copying, posts(), None, workspace=tmp_path, config=full)
    assert more.samples[:8] == card.samples and len(more.samples) == 14
    assert more.fluency and more.fluency.repeated.samples.of == 34
    assert not any("of 34 samples" in note for note in more.notes)


def training_texts() -> list[str]:
    return [text.text for text in posts().train]


def test_an_overfitted_model_is_found_to_copy(copying: tuple[Scorecard, Path]) -> None:
    card, _ = copying
    assert card.verdict.kind == COPIES
    memorised = card.memorised
    assert memorised is not None
    assert memorised.training.value > 0.5 > memorised.held_out.value == 0
    assert "word for word" in card.verdict.because[0]


def test_the_copy_guard_applies_to_the_samples(copying: tuple[Scorecard, Path]) -> None:
    card, _ = copying
    memorised = card.memorised
    assert memorised is not None and memorised.guarded is not None
    assert memorised.guarded.words < copy_guard.WORDS < memorised.unguarded.words
    for sample in card.samples:
        _, words, _ = longest_copied([sample.tuned], training_texts())
        assert words < copy_guard.WORDS


def test_an_untrained_model_is_found_to_babble(folders: Folders, tmp_path: Path) -> None:
    card = score_model(folders.babbling, posts(), None, workspace=tmp_path, config=SMALL)
    assert card.verdict.kind == GIBBERISH
    assert card.about.base == ""
    assert all(sample.base is None for sample in card.samples)
    assert card.memorised is not None and card.memorised.guarded is None


def test_gains_are_paired(copying: tuple[Scorecard, Path], folders: Folders) -> None:
    card, _ = copying
    assert sorted(row.name for row in card.bits) == sorted([OURS, BASE])
    rows = {row.name: row for row in card.bits}
    test = posts().test
    scores = []
    for folder in (folders.copying, folders.babbling):
        loaded = bundle.load(folder)
        scores.append(bits_per_byte.score(loaded.model, TOKENIZER, [text.text for text in test]))
    ours, base = scores
    assert rows[OURS].bits == pytest.approx(ours.bits_per_byte, rel=1e-5)
    assert rows[BASE].gain == pytest.approx(base.bits_per_byte - ours.bits_per_byte, rel=1e-5)
    gain = ours.advantage(base)
    assert gain is not None
    assert (rows[BASE].gain_low, rows[BASE].gain_high) == pytest.approx((gain.low, gain.high))
    low, high = rows[OURS].low, rows[OURS].high
    assert low is not None and high is not None
    assert low < ours.bits_per_byte < high


def test_samples_are_the_first_seeds_with_equal_draws_for_both_models(
    copying: tuple[Scorecard, Path], folders: Folders
) -> None:
    card, _ = copying
    new = [sample for sample in card.samples if not sample.prompt]
    prompted = [sample for sample in card.samples if sample.prompt]
    assert [sample.seed for sample in new] == [1, 2, 3]
    assert len(prompted) == 2
    held_out = {sample.title: sample.text for sample in posts().test}
    for sample in prompted:
        assert held_out[sample.title].startswith(sample.prompt)
        assert len(sample.prompt.split("\n\n")[1].split()) == SMALL.prompt_words
    ours, base = Model.load(folders.copying), Model.load(folders.babbling)
    assert "".join(ours.write("", max_tokens=SMALL.max_tokens, seed=2)) == new[1].tuned
    assert "".join(base.write("", max_tokens=SMALL.max_tokens, seed=1)) == new[0].base
    assert new[1].base is None


def test_a_second_scoring_measures_nothing(
    copying: tuple[Scorecard, Path], folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, workspace = copying

    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(bundle, "load", refuse)
    monkeypatch.setattr(Model, "load", refuse)
    monkeypatch.setattr(scoring, "longest_copied", refuse)
    rescored = run_scoring(folders, workspace, posts())
    assert rescored == replace(card, about=replace(card.about, made_on=rescored.about.made_on))


def test_one_model_is_in_memory_at_a_time(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[tuple[Path, weakref.ref[CausalLM]]] = []
    load = bundle.load

    def recorded(folder: Path, **options: Any) -> bundle.Bundle:  # noqa: ANN401
        model = load(folder, **options)
        assert all(of == folder or former() is None for of, former in loaded)
        loaded.append((folder, weakref.ref(model.model)))
        return model

    monkeypatch.setattr(bundle, "load", recorded)
    run_scoring(folders, tmp_path, posts())
    assert {folder for folder, _ in loaded} == {folders.copying, folders.babbling}


def test_all_work_is_counted_at_the_start_and_cached_work_as_done(
    copying: tuple[Scorecard, Path], folders: Folders
) -> None:
    events: list[Event] = []
    run_scoring(folders, copying[1], posts(), Progress(events.append))
    begun, *_, done = (event for event in events if event.stage == "Scoring")
    assert (begun.kind, done.kind) == ("start", "done")
    assert (begun.total or 0) > 2 * SMALL.max_tokens * (SMALL.seeds + SMALL.prompts)
    assert done.done == done.total == begun.total


def test_only_figures_changed_by_a_new_post_are_measured_again(
    copying: tuple[Scorecard, Path], folders: Folders, tmp_path: Path
) -> None:
    card, workspace = copying
    shutil.copytree(workspace, tmp_path / "w")
    more = posts()
    more = replace(more, train=TextCollection.read([*more.train, post(3, WORDS[135:144])]))
    events: list[Event] = []
    changed = run_scoring(folders, tmp_path / "w", more, Progress(events.append))
    assert changed.row(OURS) == card.row(OURS)
    assert changed.samples == card.samples
    stages = {event.stage for event in events if event.kind == "start"}
    assert "Testing what it knows by heart" in stages
    assert not any("held-out posts" in stage or "samples:" in stage for stage in stages), stages


def test_without_held_out_posts_the_remaining_figures_are_reported(
    folders: Folders, tmp_path: Path
) -> None:
    alone = corpus_of(list(posts().train), [], [])
    card = score_model(folders.copying, alone, None, workspace=tmp_path, config=SMALL)
    assert card.bits == ()
    assert card.ours is None
    assert card.verdict.kind == COPIES
    assert any("No post was held out" in note for note in card.notes)


def test_scoring_without_any_post_is_an_error(folders: Folders, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no posts here that the model learned from"):
        score_model(
            folders.copying,
            corpus_of([], [], []),
            None,
            workspace=tmp_path,
            config=SMALL,
        )


def test_damaged_weights_are_reported_and_not_scored(tmp_path: Path) -> None:
    broken = network()
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    bundle.save(tmp_path / "broken", broken, TOKENIZER)
    subject = ScoredModel(tmp_path / "broken", "")
    with pytest.raises(OwnwordsError, match="are not finite"):
        subject.score(training_texts(), ["a", "b", "c"])


def test_what_the_adapter_before_training_brings_is_not_gained(
    folders: Folders, tmp_path: Path
) -> None:
    begun, path = network(), tmp_path / "a.safetensors"
    adapter = lora.attach(begun, lora.AdapterConfig(4), seed=1)
    torch.manual_seed(2)
    for layer in adapter.layers.values():
        torch.nn.init.normal_(layer.up)
    write_tensors(path, lora.stored_tensors(adapter))
    adapter.merge()
    adapter.detach()
    rows = []
    for name, provenance in (("without", {}), ("with", {"base_adapter": "an adapter"})):
        bundle.save(tmp_path / name, begun, TOKENIZER, provenance=provenance)
        card = score_model(
            tmp_path / name,
            posts(),
            folders.babbling,
            base_adapter=path,
            workspace=tmp_path,
            config=SMALL,
        )
        rows.append(card.base)
    alone, together = rows
    assert alone and together and alone.gain and abs(alone.gain) > 0.001
    assert together.gain == pytest.approx(0, abs=1e-6)


def test_a_blog_changed_since_training_is_reported(folders: Folders, tmp_path: Path) -> None:
    model = tmp_path / "model"
    loaded = bundle.load(folders.babbling)
    bundle.save(model, loaded.model, TOKENIZER, provenance={"corpus": "then"})
    now = replace(posts(), key="now")
    card = score_model(model, now, None, workspace=tmp_path / "w", config=SMALL)
    assert any("read again" in note for note in card.notes)
    same = replace(posts(), key="then")
    card = score_model(model, same, None, workspace=tmp_path / "w", config=SMALL)
    assert not any("read again" in note for note in card.notes)


def test_scoring_is_expected_to_take_as_long_as_the_model_takes_to_read_and_write() -> None:
    def expected(held_out: int, trained_per_s: float, *, has_base: bool = True) -> float:
        config = ScoreConfig(seconds=210.0)
        return config.expected_s(held_out, trained_per_s, has_base=has_base)

    slow, fast = expected(50_000, 1_000.0), expected(50_000, 2_000.0)
    assert slow == pytest.approx(2 * fast)
    assert expected(100_000, 2_000.0) > fast > expected(50_000, 2_000.0, has_base=False) > 0
    assert expected(50_000, 10.0) == 210  # what does not fit is left out
