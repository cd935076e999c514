"""A large int8 head in two planes: the scores that matter equal those of the full product."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from families import read
from native_levels import isas, library_at
from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import ForwardInput, LogitRange
from ownwords.inference.generation import GenerationRequest, generate
from ownwords.inference.native_engine import NativeEngine
from ownwords.inference.sampling import SamplingParams, sample_token
from ownwords.models.configs.llama import LlamaConfig
from ownwords.models.quantization_scheme import INT8
from ownwords.models.weight_mapping import StoredWeight, weight_shapes
from ownwords.native.bindings import NativeLibrary, load_library
from ownwords.native.build import Isa

if load_library() is None:
    pytest.skip("the part in C++ is not built", allow_module_level=True)

VOCABULARY, WIDTH = 17_003, 1024  # 17 MB of codes, enough to be kept in two planes
Codes = NDArray[np.int8]
Scales = NDArray[np.float32]


def random_codes(seed: int = 0) -> tuple[Codes, Scales]:
    """Rows like those of real models: of similar size, none of them round."""
    drawn = np.random.default_rng(seed)
    codes = drawn.normal(0, 36, (VOCABULARY, WIDTH)).round().clip(-128, 127).astype(np.int8)
    return codes, (drawn.uniform(0.5, 1.5, VOCABULARY) * 0.002).astype(np.float32)


def engine_of(
    head: tuple[Codes, Scales],
    *,
    embedding: tuple[Codes, Scales] | None = None,
    threads: int = 2,
    spread: float = 0.0,
    final: float = 1.0,
    library: NativeLibrary | None = None,
) -> NativeEngine:
    """One layer, which adds nothing where `spread` is 0; without an embedding the head is tied."""
    drawn = np.random.default_rng(3)
    config = LlamaConfig(
        vocabulary=VOCABULARY,
        context=300,
        width=WIDTH,
        layers=1,
        heads=2,
        kv_heads=1,
        head_dim=8,
        hidden=16,
        tied=embedding is None,
    )
    stored = []
    for name, shape in weight_shapes(config).items():
        if name in ("embedding.weight", "head.weight"):
            codes, scales = head if name == "head.weight" else embedding or head
            stored.append(StoredWeight(name, shape, "I8", codes, scheme=INT8, scales=scales))
            continue
        numbers = np.full(shape, final if name == "final_norm.weight" else 1.0)
        if len(shape) == 2:
            adds = name.endswith(("output.weight", "down.weight"))
            numbers = drawn.normal(0, spread if adds else 0.05, shape)
        stored.append(StoredWeight(name, shape, "F32", numbers.astype(np.float32)))
    library = library or load_library()
    assert library is not None
    return NativeEngine(library, config, stored, ("int8", "int8"), weights="int8", threads=threads)


@pytest.fixture(scope="module")
def parts() -> tuple[tuple[Codes, Scales], tuple[Codes, Scales]]:
    return random_codes(0), random_codes(1)


def near_agrees(engine: NativeEngine, ids: Sequence[int], margins: Sequence[float]) -> int:
    """Assert the promised bounds; returns the largest number of computed scores."""
    cache, most = engine.cache(1, 4), 0
    for token in ids:
        (scores,) = read(cache, [0], [[token]])
        for margin in margins:
            for among in (VOCABULARY, 9_001, 3):
                cache.truncate(0, 0)
                (limited_scores,) = read(cache, [0], [[token]], near=(margin, among))
                wanted = scores[:among] >= scores[:among].max() - margin
                np.testing.assert_array_equal(
                    limited_scores[:among][wanted], scores[:among][wanted]
                )
                is_scored = limited_scores > -np.inf
                np.testing.assert_array_equal(limited_scores[is_scored], scores[is_scored])
                most = max(most, int(is_scored.sum()))
        cache.truncate(0, 0)
    return most


@pytest.mark.parametrize("isa", isas())
def test_scores_and_embeddings(isa: Isa, parts: tuple[tuple[Codes, Scales], ...]) -> None:
    """Against NumPy: the layer adds nothing, so a score is a product of two rows."""
    codes, scales = parts[0]
    weights = codes.astype(np.float64) * scales[:, None]
    cache = engine_of(parts[0], library=library_at(isa)).cache(8, 4)
    ids = [0, 5, 16, VOCABULARY - 1, 9_000, 77, 78, 4_096]
    for count in (1, 2, 3, 8):  # which go different ways
        outputs = read(cache, range(count), [[token] for token in ids[:count]])
        rows_ND = weights[ids[:count]]
        expected = rows_ND / np.sqrt((rows_ND**2).mean(1, keepdims=True)) @ weights.T
        assert np.sqrt(((outputs - expected) ** 2).mean() / (expected**2).mean()) < 8e-3
        for row in range(count):
            cache.truncate(row, 0)
    singly = [read(cache, [row], [[token]])[0] for row, token in enumerate(ids)]
    for row in range(8):
        cache.truncate(row, 0)
    np.testing.assert_array_equal(read(cache, range(8), [[token] for token in ids]), singly)


@pytest.mark.parametrize("threads", [1, 5])
def test_near_scores(parts: tuple[tuple[Codes, Scales], ...], threads: int) -> None:
    engine = engine_of(parts[0], embedding=parts[1], threads=threads, spread=0.3)
    assert near_agrees(engine, [3, 800, 16_999], [0.0, 0.3]) < VOCABULARY // 4


@pytest.mark.parametrize("isa", isas())
def test_near_scores_at_every_isa_that_runs_here(
    isa: Isa, parts: tuple[tuple[Codes, Scales], ...]
) -> None:
    library = library_at(isa)
    engine = engine_of(parts[0], embedding=parts[1], spread=0.3, library=library)
    assert near_agrees(engine, [3, 800], [0.0, 0.3]) < VOCABULARY // 4


def test_hostile_heads(parts: tuple[tuple[Codes, Scales], ...]) -> None:
    codes, scales = parts[0]
    drawn = np.random.default_rng(5)
    nothing = np.zeros_like(codes)
    equal = np.repeat(codes[:1], VOCABULARY, axis=0)
    # What a row says stands in its low halves alone, beside one number that is huge.
    hidden = (codes // 12).astype(np.int8)
    hidden[:, 7] = -128
    negative = scales * drawn.choice([-1, 1], VOCABULARY).astype(np.float32)
    none = np.zeros_like(scales)
    ids = [1, 12_345]
    for head in (
        (nothing, scales),
        (equal, scales),
        (equal, np.full_like(scales, 0.001)),
        (hidden, scales),
        (codes, negative),
        (codes, none),
    ):
        engine = engine_of(head, embedding=parts[1], spread=0.3)
        near_agrees(engine, ids, [0.0, 0.3])
        near_agrees(engine_of(head), ids, [0.0])  # each row is most like itself


def test_no_numbers(parts: tuple[tuple[Codes, Scales], ...]) -> None:
    """Non-finite scores are reported as such, and not left out."""
    cache = engine_of(parts[0], embedding=parts[1], final=3e38, spread=0.3).cache(1, 4)
    (scores,) = read(cache, [0], [[5]])
    assert not np.isfinite(scores).all()
    cache.truncate(0, 0)
    np.testing.assert_array_equal(read(cache, [0], [[5]], near=(0.0, VOCABULARY))[0], scores)
    with pytest.raises(OwnwordsError, match="not finite numbers"):
        sample_token(scores, SamplingParams(temperature=0), uniform=0.5)


def generate_ids(
    engine: NativeEngine, sampling: SamplingParams, seed: int, **more: object
) -> list[int]:
    request = GenerationRequest(ids=[seed], max_tokens=100, sampling=sampling, seed=seed, **more)  # type: ignore[arg-type]
    return [drawn.id for drawn in generate(engine, request)]


SAMPLINGS = (
    SamplingParams(temperature=0),
    SamplingParams(min_p=0.02),
    SamplingParams(temperature=0.6, min_p=0.05),
    SamplingParams(temperature=1.3, min_p=0.3, top_k=40),
)


def test_texts_are_the_same(
    parts: tuple[tuple[Codes, Scales], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of draws: the same with all scores and without."""
    engine = engine_of(parts[0], embedding=parts[1], spread=0.3)
    settings = [(sampling, seed) for sampling in SAMPLINGS for seed in (1, 2)]
    texts_limited = [generate_ids(engine, sampling, seed) for sampling, seed in settings]
    padded = generate_ids(engine, SAMPLINGS[1], 3, vocabulary=5_000)
    monkeypatch.setattr(SamplingParams, "logit_margin", None)
    exhaustive = [generate_ids(engine, sampling, seed) for sampling, seed in settings]
    assert texts_limited == exhaustive
    assert len({token for text in texts_limited for token in text}) > 100
    assert padded == generate_ids(engine, SAMPLINGS[1], 3, vocabulary=5_000)


class BanningGuard:
    """A guard that forbids the likeliest tokens now and then."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def banned(self, history: Sequence[int]) -> list[int]:
        return self.ids if len(history) % 3 else []


def test_banned_tokens_are_replaced_by_others(
    parts: tuple[tuple[Codes, Scales], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(parts[0], embedding=parts[1], spread=0.3)
    likely = np.argsort(engine.cache(1, 4).forward([ForwardInput(0, [7])])[0])[-50:].tolist()
    guard = BanningGuard(likely)
    text_limited = generate_ids(engine, SAMPLINGS[1], 7, guard=guard)
    monkeypatch.setattr(SamplingParams, "logit_margin", None)
    assert text_limited == generate_ids(engine, SAMPLINGS[1], 7, guard=guard)


def test_near_through_the_contract(parts: tuple[tuple[Codes, Scales], ...]) -> None:
    engine = engine_of(parts[0], embedding=parts[1], spread=0.3)
    cache = engine.cache(2, 4)
    near = LogitRange(0.0, VOCABULARY)
    (limited_scores,) = cache.forward([ForwardInput(0, [9], near)])
    assert np.isneginf(limited_scores).any()
    cache.truncate(0, 0)
    both = cache.forward([ForwardInput(0, [9], near), ForwardInput(1, [9])])
    assert not np.isneginf(both).any()  # of several texts all are found
    assert limited_scores.argmax() == both[0].argmax()


@pytest.mark.parametrize("margin", [-1.0, float("nan")])
def test_no_margin_is_all(parts: tuple[tuple[Codes, Scales], ...], margin: float) -> None:
    cache = engine_of(parts[0], embedding=parts[1], spread=0.3).cache(1, 4)
    (scores,) = read(cache, [0], [[9]])
    for among in (VOCABULARY, 0, -5, 1 << 40):
        cache.truncate(0, 0)
        (limited,) = read(cache, [0], [[9]], near=(margin, among))
        np.testing.assert_array_equal(limited, scores)


def test_logit_margins_exclude_only_tokens_that_are_never_chosen() -> None:
    drawn = np.random.default_rng(11)
    for number in range(2_000):
        scores = drawn.normal(0, 3, 400).astype(np.float32)
        temperature = float(drawn.choice([0.0, 0.3, 1.0, 2.0]))
        sampling = SamplingParams(
            temperature=temperature,
            min_p=float(drawn.choice([0.01, 0.2, 1.0])),
            top_k=int(drawn.choice([0, 5])),
        )
        assert sampling.logit_margin is not None
        limited_scores = np.where(scores >= scores.max() - sampling.logit_margin, scores, -np.inf)
        uniform = (number + 0.5) / 2_000
        token = sample_token(limited_scores.astype(np.float32), sampling, uniform=uniform)
        assert token == sample_token(scores, sampling, uniform=uniform)
    for needs_all in (
        SamplingParams(),
        SamplingParams(min_p=0.1, top_p=0.9),
        SamplingParams(min_p=0.1, typical_p=0.9),
        SamplingParams(temperature=0, bias={3: 1.0}),
        SamplingParams(temperature=0, repetition_penalty=1.1),
    ):
        assert needs_all.logit_margin is None
