import json
import lzma
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import families
import foreign_tokenizers
import ownwords
from ownwords.archive import corpus
from ownwords.archive.corpus import TextCollection, TrainingText
from ownwords.archive.store import Archive
from ownwords.core.errors import ConfigError
from ownwords.core.progress import Event, Progress
from ownwords.inference.text_generation import encode_prompt, generation_config
from ownwords.models import bundle, fused, lora
from ownwords.models.decoder import CausalLM, build
from ownwords.models.directory import ADAPTER
from ownwords.models.quantize import quantize
from ownwords.models.weights import write_tensors
from ownwords.native import bindings
from ownwords.tokenizers import bpe
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.training import (
    metrics,
    recipes,
    step_time,
    throughput,
    token_dataset,
    trained_model,
)
from ownwords.training.device import choose
from ownwords.training.distributed import SINGLE_PROCESS
from ownwords.training.loop import TrainJob
from ownwords.training.metrics import LossModule
from ownwords.training.plan import read_plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.recipes import (
    TrainRequest,
    plan_finetuning,
    plan_pretraining,
)
from ownwords.training.step_time import DeviceSpeeds, StepTimeModel
from ownwords.training.token_dataset import TokenDataset, build_dataset
from ownwords.training.trained_model import TrainedModel

TINY: Mapping[str, object] = {
    "model.parameters": 40_000,
    "model.context_length": 32,
    "train.batch_size": 8,
    "train.steps": 24,
    "train.evaluations": 3,
    "train.precision": "float32",
}
TUNED = {key: value for key, value in TINY.items() if not key.startswith("model.")} | {
    "train.sequence_length": 32
}
QUICK = TUNED | {"train.steps": 2, "train.evaluations": 1}  # learns nothing
TRAIN = [
    TrainingText(f"t{i}", f"The cat number {i} sat on the mat and sang. " * 8) for i in range(12)
]
HELD_OUT = [
    TrainingText(f"v{i}", f"The cat number {i} sat on the mat and slept. " * 4) for i in (40, 41)
]
OTHERS = [
    TrainingText(f"o{i}", f"Zwei mal {i} ist nicht {i}, sagt der Hund. " * 8) for i in range(12)
]
HELD_OTHERS = [TrainingText("w", "Zwei mal 90 ist nicht 90, sagt der Hund. " * 8)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        throughput, "measure_speeds", lambda device, *_, **__: throughput.assumed_speeds(device)
    )


@pytest.fixture(scope="module")
def shared_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            throughput, "measure_speeds", lambda device, *_, **__: throughput.assumed_speeds(device)
        )
        return pretrain(TRAIN, HELD_OUT, work(tmp_path_factory.mktemp("base"))).folder


@pytest.fixture
def base(shared_base: Path, tmp_path: Path) -> Path:
    return shutil.copytree(shared_base, tmp_path / "base" / "model")


def work(folder: Path, fixed: Mapping[str, object] = TINY, **more: object) -> TrainRequest:
    return TrainRequest(folder, 600, fixed, device="cpu", **more)  # type: ignore[arg-type]


def pretrain(*options: Any) -> TrainedModel:  # noqa: ANN401
    return plan_pretraining(*options).train()


def finetune(*options: Any, **more: Any) -> TrainedModel:  # noqa: ANN401
    return plan_finetuning(*options, **more).train()


def add_replay(base: Path, texts: list[TrainingText]) -> None:
    packed = lzma.compress(token_dataset.DIVIDER.join(text.text for text in texts).encode())
    (base / token_dataset.REPLAY).write_bytes(packed)


def weights(trained: TrainedModel) -> bytes:
    return (trained.folder / "model.safetensors").read_bytes()


def bits(folder: Path, texts: list[TrainingText]) -> float:
    loaded = bundle.load(folder)
    dataset = build_dataset(texts, tokenizers.Tokenizer(loaded.tokenizer_files))
    return metrics.bits_per_byte(
        LossModule(loaded.model),
        dataset,
        rows=8,
        context=32,
        device=choose("cpu"),
        precision="float32",
        world=SINGLE_PROCESS,
    )


def test_a_trained_model_records_its_provenance(tmp_path: Path) -> None:
    planned = plan_pretraining(TRAIN, HELD_OUT, work(tmp_path, corpus="key of it"))
    trained = planned.train()
    assert trained.bits_per_byte is not None
    assert trained.bits_per_byte < 6  # 8 before anything is learned
    assert bits(trained.folder, HELD_OUT) == pytest.approx(trained.bits_per_byte, rel=1e-4)

    loaded = bundle.load(trained.folder)
    assert generation_config().items() <= loaded.generation.items()
    assert loaded.provenance["corpus"] == "key of it"
    recipe = loaded.provenance["recipe"]
    assert isinstance(recipe, dict)
    assert recipe["train"]["steps"] == 24
    assert "bits per byte on whole held-out texts" in loaded.card
    assert "| train.batch_size | 8 | as you set it | setting |" in loaded.card
    assert read_plan((trained.run.folder / "plan.toml").read_text()) == trained.plan
    assert planned.plan == trained.plan
    assert trained.plan.expected.sentences()
    assert trained.judged


def test_a_base_removed_after_the_plan_leaves_its_licence(base: Path, tmp_path: Path) -> None:
    (base / "README.md").write_text("---\nlicense: gemma\nbase_model: google/tiny\n---\n")
    (base / "NOTICE").write_text("Terms apply.")
    request = work(tmp_path / "w", QUICK)
    planned = plan_finetuning(base, OTHERS, HELD_OTHERS, request)
    shutil.rmtree(base)
    tuned = bundle.load(planned.train().folder)
    assert "\nlicense: gemma\n" in tuned.card
    assert tuned.provenance["derived_from"] == {"model": "google/tiny", "license": "gemma"}


def test_the_same_command_resumes_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = pretrain(TRAIN, HELD_OUT, work(tmp_path / "one"))

    with pytest.raises(PowerCut):
        pretrain(TRAIN, HELD_OUT, work(tmp_path / "two", progress=Progress(cut_at_an_evaluation)))
    assert not (tmp_path / "two" / "model").exists()

    def nothing(*_: object, **__: object) -> DeviceSpeeds:
        raise AssertionError("a run that is planned is not measured again")

    monkeypatch.setattr(throughput, "measure_speeds", nothing)
    second = pretrain(TRAIN, HELD_OUT, work(tmp_path / "two"))
    assert weights(second) == weights(undisturbed)
    again = replace(work(tmp_path / "two"), seconds=600.0)  # the same time, as another type
    assert weights(pretrain(TRAIN, HELD_OUT, again)) == weights(undisturbed)
    assert len(list((tmp_path / "two" / "runs").iterdir())) == 1


@pytest.mark.parametrize("steps", [None, 24])
def test_steps_that_are_set_are_done_whatever_the_time(
    steps: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[TrainJob] = []

    def stop(job: TrainJob) -> None:
        jobs.append(job)
        raise PowerCut

    now = 1000.0
    monkeypatch.setattr(recipes, "run_training_loop", stop)
    monkeypatch.setattr(recipes, "time", SimpleNamespace(perf_counter=lambda: now))
    fixed = {key: value for key, value in TINY.items() if key != "train.steps"}
    fixed |= {"train.steps": steps} if steps else {}
    request = work(tmp_path, fixed, began=now)
    planned = plan_pretraining(TRAIN, HELD_OUT, request)
    now += 3600  # until the user has read the plan and says yes
    with pytest.raises(PowerCut):
        planned.train()
    loop, seconds = jobs[0].settings.train, jobs[0].seconds
    assert seconds == (None if steps else pytest.approx(0.97 * 600 - 1))
    assert loop.max_steps == steps if steps else loop.max_steps >= loop.steps


def test_held_out_texts_teach_nothing_and_without_them_nothing_is_claimed(tmp_path: Path) -> None:
    fixed = {**TINY, "model.vocab_size": 300, "train.steps": 2}
    alone = pretrain(iter(TRAIN), iter([]), work(tmp_path / "alone", fixed))
    assert alone.bits_per_byte is None
    assert "No text was held out" in bundle.load(alone.folder).card
    trained = pretrain(TRAIN, HELD_OUT, work(tmp_path, fixed))
    expected = bpe.train([text.text for text in TRAIN], 300)
    assert ownwords.load(trained.folder).tokenizer.fingerprint() == expected.fingerprint()


def test_a_base_is_finetuned_and_a_lora_saved_merged_and_apart(base: Path, tmp_path: Path) -> None:
    before = bits(base, HELD_OTHERS)

    add_replay(base, TRAIN)
    full = finetune(base, OTHERS, HELD_OTHERS, work(tmp_path / "full", TUNED))
    assert full.plan.recipe.data.replay == PLAN_CONSTANTS.tune_replay
    assert full.bits_per_byte is not None
    assert full.bits_per_byte < before
    assert bits(full.folder, HELD_OTHERS) == pytest.approx(full.bits_per_byte, rel=1e-4)
    assert full.share in (1.0, 0.85, 0.7, 0.5, 0.3)

    tuned = finetune(base, OTHERS, HELD_OTHERS, work(tmp_path / "lora", TUNED), by_lora=True)
    assert tuned.bits_per_byte is not None
    assert tuned.bits_per_byte < before
    alone = bundle.load(base).model
    lora.merge_stored(alone, tuned.folder / ADAPTER)
    quantize(alone)  # as it is stored
    saved = dict(bundle.load(tuned.folder).model.named_parameters())
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(saved[name], parameter, atol=1e-5, rtol=1e-4)
    with pytest.raises(ConfigError, match="replace its base"):
        finetune(base, OTHERS, HELD_OTHERS, work(tmp_path / "base", TUNED))


def test_a_lora_learns_notes_beside_the_texts(base: Path, tmp_path: Path) -> None:
    pairs = [replace(text, id=f"{text.id}/0", prompt="Notes:\n- hat\nText:\n") for text in OTHERS]
    tuned = finetune(base, OTHERS, HELD_OTHERS, work(tmp_path, QUICK), by_lora=True, pairs=pairs)
    assert tuned.plan.recipe.data.replay == PLAN_CONSTANTS.lora_pairs
    assert bundle.load(tuned.folder).provenance["writes_from_notes"] is (tuned.share > 0)


def test_a_model_whose_base_has_the_notes_adapter_writes_from_notes_untrained(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained_model, "best_share", lambda *_: (0.0, 1.0, 1.0))
    path = tmp_path / "notes.safetensors"
    attached = lora.attach(bundle.load(base).model, lora.AdapterConfig(2), seed=1)
    write_tensors(path, lora.stored_tensors(attached))
    fixed = {**QUICK, "data.replay": 0}
    made = finetune(base, OTHERS, HELD_OTHERS, work(tmp_path, fixed), by_lora=True, adapter=path)
    assert made.share == 0
    assert bundle.load(made.folder).provenance["writes_from_notes"] is True


@pytest.mark.parametrize("slow_probes", [0, 1, 2])
def test_a_busy_moment_does_not_decide_what_a_lora_learns(
    slow_probes: int, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assumed, probes = throughput.assumed_speeds(choose("cpu")), list[DeviceSpeeds]()

    def probe(*_: object, **__: object) -> DeviceSpeeds:
        factor = 1e-6 if len(probes) < slow_probes else 0.9
        step_times = {
            name: StepTimeModel(each.layer_s / factor, each.flops_per_s * factor, is_measured=True)
            for name, each in assumed.step_times.items()
        }
        probes.append(replace(assumed, step_times=step_times))
        return probes[-1]

    monkeypatch.setattr(throughput, "measure_speeds", probe)
    fixed = {key: value for key, value in TUNED.items() if key != "train.steps"}
    plan = plan_finetuning(base, OTHERS, HELD_OTHERS, work(tmp_path, fixed), by_lora=True).plan
    assert len(probes) == min(2, 1 + slow_probes)
    assert plan.recipe.train.steps >= PLAN_CONSTANTS.least_steps
    assert plan.expected.seconds <= 600


def test_the_speed_of_a_training_counts_for_later_plans(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(step_time, "_FILE", "speeds.json")
    monkeypatch.setattr(step_time, "MIN_PARAMETERS", 1)
    finetune(base, OTHERS, HELD_OTHERS, work(tmp_path, TUNED), by_lora=True)
    measured = step_time.best_flops(is_lora=True)
    assert measured and not step_time.best_flops(is_lora=False)
    # A single slow one may have shared the machine; a faster one counts at once, then the best.
    assert step_time.best_flops(2 * measured, is_lora=True) == 2 * measured
    for slower in (0.5, 0.1):
        step_time.remember_flops(slower * measured, is_lora=True)
    (speed,) = PLAN_CONSTANTS.assumed_speeds("cpu", is_lora=True).step_times.values()
    assert speed.flops_per_s == measured
    for _ in range(6):  # a processor that has become slower for good
        step_time.remember_flops(measured / 2, is_lora=True)
    assert step_time.best_flops(is_lora=True) == pytest.approx(measured / 2, rel=1e-3)
    (tmp_path / "home" / "speeds.json").write_text("{damaged")
    assert not step_time.best_flops(is_lora=True)


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_bfloat16_base_needs_no_float32_copy_under_a_lora(
    is_fast: bool, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "has_fast_bf16", lambda: is_fast)
    stored = bundle.load(base)
    narrow = tmp_path / "narrow"
    tokenizer = tokenizers.Tokenizer(stored.tokenizer_files)
    bundle.save(narrow, stored.model, tokenizer, dtype=torch.bfloat16)
    dtypes: list[torch.dtype] = []
    attach = lora.attach

    def attached(model: CausalLM, *given: Any, **named: Any) -> lora.LoraAdapter:  # noqa: ANN401
        weight = next(model.parameters())
        if not weight.is_meta:  # as where only FLOPs are counted
            dtypes.append(weight.dtype)
        return attach(model, *given, **named)

    monkeypatch.setattr(lora, "attach", attached)
    tuned = finetune(
        narrow,
        OTHERS,
        HELD_OTHERS,
        work(tmp_path / "lora", {k: v for k, v in QUICK.items() if k != "train.precision"}),
        by_lora=True,
    )
    kept = fused.keeps_bf16(torch.zeros(1, dtype=torch.bfloat16))
    expected = torch.bfloat16 if kept else torch.float32
    assert dtypes == [expected]
    assert next(bundle.load(tuned.folder).model.parameters()).dtype == torch.bfloat16


def test_only_the_authors_texts_teach_how_a_text_begins(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[TokenDataset] = []

    def build_and_keep(*given: Any, **named: Any) -> TokenDataset:  # noqa: ANN401
        built.append(build_dataset(*given, **named))
        return built[-1]

    monkeypatch.setattr(recipes, "build_dataset", build_and_keep)
    replay = [TrainingText(f"r{i}", f"A title\n\nThe rest of {i}. " * 9) for i in range(20)]
    add_replay(base, replay)
    plan_finetuning(base, OTHERS, HELD_OTHERS, work(tmp_path / "w", TUNED))
    openings = {}
    for dataset in built:
        openings[dataset.documents] = [dataset.document(i) for i in range(dataset.documents)]
    tokenizer = ByteTokenizer()
    start, end = tokenizer.start, tokenizer.end
    for ids in openings[len(OTHERS)]:
        assert (ids[0], ids[-1]) == (start, end)
    for text, ids in zip(replay, openings[len(replay)], strict=True):
        assert bytes(ids.tolist()).decode() == text.text.removeprefix("A title\n\n")


def test_a_missing_library_is_reported(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "library_problem", lambda: "kernels.so is missing: install again")
    notes: list[str] = []
    progress = Progress(lambda event: notes.append(event.message))
    plan_finetuning(base, OTHERS, HELD_OTHERS, work(tmp_path / "w", TUNED, progress=progress))
    assert any("kernels.so is missing: install again" in note for note in notes)


@pytest.mark.parametrize("helps", [False, True])
def test_prompts_of_a_tuned_model_begin_as_its_documents_did(
    helps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_tokenizer = tokenizers.Tokenizer(foreign_tokenizers.files_of("SmolLM"))
    config = replace(families.TINY["llama"], vocabulary=base_tokenizer.vocabulary_size)
    model = build(config)
    model.init_weights(7)
    bundle.save(tmp_path / "base", model, base_tokenizer)
    if not helps:  # then the base's own weights are saved
        monkeypatch.setattr(trained_model, "best_share", lambda *_: (0.0, 1.0, 1.0))
    request = work(tmp_path / "w", TUNED if helps else QUICK)
    trained = finetune(tmp_path / "base", OTHERS, HELD_OTHERS, request, by_lora=True)
    tokenizer = ownwords.load(trained.folder).tokenizer
    assert tokenizer.fingerprint() == base_tokenizer.fingerprint()
    begins = encode_prompt(tokenizer, "ab")[0] == tokenizer.start
    assert begins == helps  # an untouched base follows its own file


def test_the_best_mix_is_found_in_few_tries() -> None:
    for best in (0.0, 0.3, 0.7, 0.85, 1.0):
        tried: list[float] = []

        def bits(best: float = best, tried: list[float] = tried) -> float:
            return 1 + (tried[-1] - best) ** 2

        share, here, base_bits = trained_model.best_share(tried.append, bits)
        assert (share, here, base_bits) == (best, 1.0, 1 + best**2)
        assert tried[-1] == best  # the model is left there


class PowerCut(Exception):  # noqa: N818
    pass


def cut_at_an_evaluation(event: Event) -> None:
    if event.kind == "metric" and event.values.get("validation_bits_per_byte"):
        raise PowerCut


def test_the_run_of_a_base_follows_from_its_files_alone(base: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(base, tmp_path / "moved")
    threads = torch.get_num_threads()
    fixed = {**TUNED, "data.replay": 0.0}
    runs = []
    for folder, count in ((base, 1), (moved, 2)):
        torch.set_num_threads(count)
        try:
            planned = plan_finetuning(folder, OTHERS, HELD_OTHERS, work(tmp_path / "w", fixed))
        finally:
            torch.set_num_threads(threads)
        runs.append(planned.run.folder)
    assert runs[0] == runs[1]
    data = (moved / "model.safetensors").read_bytes()
    (moved / "model.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    replanned = plan_finetuning(moved, OTHERS, HELD_OTHERS, work(tmp_path / "w", fixed))
    assert replanned.run.folder != runs[0]


def test_the_learning_rate_follows_from_the_highest_a_base_has_seen(
    base: Path, tmp_path: Path
) -> None:
    stored = base / "ownwords.json"
    provenance = json.loads(stored.read_text())
    last = provenance["recipe"]["optim"]["muon_lr"]
    fixed = {**TUNED, "data.replay": 0.0}
    for start, highest in (({}, 1), ({"muon_lr": last / 2}, 1), ({"muon_lr": last * 3}, 3)):
        stored.write_text(json.dumps({**provenance, "start": start}))
        request = work(tmp_path / f"{highest}-{len(start)}", fixed)
        plan = plan_finetuning(base, OTHERS, HELD_OTHERS, request).plan
        expected = PLAN_CONSTANTS.tune_lr_factor * last * highest
        assert plan.recipe.optim.muon_lr == pytest.approx(expected, rel=0.02)


def test_a_sample_of_held_out_texts_is_deterministic() -> None:
    texts = [TrainingText(str(i), "x" * (100 + i)) for i in range(40)]
    texts_sampled = list(TextCollection.read(texts).sample(1000))
    assert texts_sampled == list(TextCollection.read(list(reversed(texts))).sample(1000))[::-1]
    assert 700 < sum(len(text.text) for text in texts_sampled) <= 1000
    assert len(list(TextCollection.read(texts).sample(1))) == 1


def test_texts_of_an_archive_are_titles_and_own_words(tmp_path: Path) -> None:
    folder = tmp_path / "blog"
    folder.mkdir()
    for i in range(30):
        words = " ".join(f"word{(i * 7 + k * k) % 97}" for k in range(150))
        body = (
            f"---\ntitle: Post {i}\n---\n\n{words}\n\n> somebody else {i}\n\n```\ncode {i}\n```\n"
        )
        (folder / f"{i}.md").write_text(body)
    ownwords.look(folder, workspace=tmp_path / "w")
    with Archive(tmp_path / "w" / "archive.sqlite") as archive:
        loaded = corpus.load_corpus(archive)
        sides = [list(loaded.train), list(loaded.validation), list(loaded.test)]
        assert sides[0] == list(loaded.train)  # gone through again
        assert corpus.load_corpus(archive).key == loaded.key
    ids = [text.id for side in sides for text in side]
    assert len(ids) == len(set(ids)) == 30
    assert all(sides)
    for text in sides[0]:
        first, _, body = text.text.partition("\n\n")
        assert first.startswith("Post ")
        assert "word" in body
        assert "somebody" not in body
        assert "code" not in body
    assert 0.9 < loaded.own_share < 1


def test_a_capped_text_is_cut_at_a_segment() -> None:
    from ownwords.archive.document import Document, Segment

    parts = [Segment("prose", "one two three"), Segment("quote", "no"), Segment("prose", "four")]
    document = Document("d", " A  title ", (Segment("heading", "A title"), *parts))
    assert corpus.training_text(document, 99) == "A title\n\none two three\n\nfour"
    assert corpus.training_text(document, 5) == "A title\n\none two three"
