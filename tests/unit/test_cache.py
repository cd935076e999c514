"""Reading with a KV cache equals reading without one, whatever the chunks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from families import TINY, some_ids, tiny
from ownwords.core.errors import OwnwordsError
from ownwords.models.decoder import CausalLM
from ownwords.models.kv_cache import KVCacheRows

MODELS = {name: tiny(name, torch.float64) for name in TINY}


def _alone(model: CausalLM, ids: Tensor) -> Tensor:
    with torch.no_grad():
        hidden: Tensor = model(ids)
    return hidden


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("pieces", [[1] * 40, [40], [12, *[1] * 28], [3, 9, 1, 20, 7], [39, 1]])
def test_chunked_reading_equals_one_forward(name: str, pieces: list[int]) -> None:
    model, ids = MODELS[name], some_ids(2, 40)
    cache = model.new_cache(2, 40)
    with torch.no_grad():
        outputs = [model(piece, cache=cache) for piece in torch.split(ids, pieces, dim=1)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), _alone(model, ids))


@pytest.mark.parametrize("name", TINY)
def test_a_ragged_batch_equals_single_texts(name: str) -> None:
    model, lengths = MODELS[name], [11, 2, 19, 6]
    ids = some_ids(4, 19 + 20)
    cache = model.new_cache(4, 39)
    padded = ids[:, :19].clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = 96 - row  # what the padding is must not matter
    with torch.no_grad():
        prompt = model(padded, cache=cache, lengths_B=torch.tensor(lengths))
        steps = [
            model(
                torch.stack([ids[row, n + step] for row, n in enumerate(lengths)])[:, None],
                cache=cache,
            )
            for step in range(20)
        ]
    for row, length in enumerate(lengths):
        text = ids[row : row + 1, : length + 20]
        expected = _alone(model, text)[0]
        torch.testing.assert_close(prompt[row, :length], expected[:length])
        torch.testing.assert_close(torch.cat(steps, dim=1)[row], expected[length:])


@settings(max_examples=25)
@given(name=st.sampled_from(sorted(TINY)), data=st.data())
def test_ragged_chunks_equal_single_texts(name: str, data: st.DataObject) -> None:
    model, ids = MODELS[name], some_ids(3, 60, seed=5)
    cache = model.new_cache(3, 60)
    outputs: list[list[Tensor]] = [[], [], []]
    for tokens in data.draw(st.lists(st.integers(1, 15), min_size=1, max_size=4)):
        counts = data.draw(st.lists(st.integers(0, tokens), min_size=3, max_size=3))
        piece = torch.zeros(3, tokens, dtype=torch.long)
        for row, count in enumerate(counts):
            start = cache.lengths[row]
            piece[row, :count] = ids[row, start : start + count]
        with torch.no_grad():
            hidden = model(piece, cache=cache, lengths_B=torch.tensor(counts))
        for row, count in enumerate(counts):
            outputs[row].append(hidden[row, :count])
    for row, length in enumerate(cache.lengths):
        if length:
            expected = _alone(model, ids[row : row + 1, :length])[0]
            torch.testing.assert_close(torch.cat(outputs[row]), expected)


@pytest.mark.parametrize("name", TINY)
def test_a_text_can_be_cut_anywhere_and_continued_by_another(name: str) -> None:
    model, ids = MODELS[name], some_ids(3, 40)
    cache = model.new_cache(2, 40)
    with torch.no_grad():
        model(ids[:2], cache=cache)
        cache.cut(0, 13)
        cache.copy(1, 0, 30)
        cache.cut(1, 4)
        cache.cut(1, 9)  # nothing beyond is there any more
        assert cache.lengths == [30, 4]
        output = model(ids[2:].expand(2, -1)[:, :10], cache=cache)
    for row, prefix in enumerate((ids[1, :30], ids[1, :4])):
        text = torch.cat((prefix, ids[2, :10]))[None]
        torch.testing.assert_close(output[row], _alone(model, text)[0, -10:])


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("rows", [[0, 1], [2], [3, 0], [0, 2, 3], [0, 1, 2, 3]])
def test_a_subset_of_rows_can_be_read(name: str, rows: list[int]) -> None:
    model, ids, lengths = MODELS[name], some_ids(4, 40), [11, 0, 7, 7]
    cache = model.new_cache(4, 40)
    with torch.no_grad():
        model(ids[:, :11], cache=cache, lengths_B=torch.tensor(lengths))
        output = model(ids[rows, 20:29], cache=KVCacheRows(cache, rows))
        assert cache.lengths == [n + 9 * (row in rows) for row, n in enumerate(lengths)]
        step = model(ids[:, 39:], cache=cache)
    for row, length in enumerate(lengths):
        text = torch.cat((ids[row, :length], ids[row, 20 : 29 if row in rows else 20]))
        expected = _alone(model, torch.cat((text, ids[row, 39:]))[None])[0]
        torch.testing.assert_close(step[row], expected[-1:])
        if row in rows:
            torch.testing.assert_close(output[rows.index(row)], expected[-10:-1])


def test_a_cache_can_have_lower_precision() -> None:
    model, ids = tiny("qwen3"), some_ids(1, 30)
    cache = model.new_cache(1, 30, dtype=torch.bfloat16)
    with torch.no_grad():
        output = torch.cat(
            [model(piece, cache=cache) for piece in torch.split(ids, 10, dim=1)], dim=1
        )
    expected = _alone(model, ids)
    assert output.dtype == torch.float32
    assert 0 < (output - expected).norm() < 0.02 * expected.norm()


def test_a_cache_keeps_no_gradients() -> None:
    model, ids = tiny("gemma3"), some_ids(1, 12)
    cache = model.new_cache(1, 12)
    for piece in torch.split(ids, [8, 1, 3], dim=1):
        model(piece, cache=cache)
    assert not any(tensor.requires_grad for tensor in cache.keys_BKSD + cache.values_BKSD)


def test_an_overflow_is_refused_in_a_sentence() -> None:
    model = MODELS["llama"]
    with pytest.raises(OwnwordsError, match=r"cache of 65 tokens .* context is 64"):
        model.new_cache(1, 65)
    cache = model.new_cache(2, 8)
    with pytest.raises(OwnwordsError, match="holds 2 texts, and 3 were given"):
        model(some_ids(3, 4), cache=cache)
    with pytest.raises(OwnwordsError, match="text of 9 tokens does not fit a cache made for 8"):
        model(some_ids(2, 9), cache=cache)
    with pytest.raises(OwnwordsError, match=r"lengths \[5, 1\] do not fit"):
        model(some_ids(2, 4), cache=cache, lengths_B=torch.tensor([5, 1]))
    with pytest.raises(OwnwordsError, match="packed documents cannot be read into a cache"):
        model(some_ids(2, 4), cache=cache, documents_BT=some_ids(2, 4))
    assert cache.lengths == [0, 0]
