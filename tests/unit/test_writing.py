import pytest
import torch

from families import TINY, some_ids, tiny
from ownwords.core.errors import OwnwordsError
from ownwords.inference.sampling import Sampling
from ownwords.inference.writing import continue_ids, generate, write
from ownwords.models.decoder import CausalLM
from ownwords.models.family import build
from ownwords.models.qwen3 import Qwen3Config
from ownwords.tokenizers.bytes import Bytes

GREEDY = Sampling(temperature=0)


def slowly(network: CausalLM, ids: list[int], tokens: int) -> list[int]:
    """Greedy without a cache: the whole text read again for each token."""
    room = min(network.config.context, len(ids) + tokens)
    held, new = list(ids), []
    with torch.inference_mode():
        for _ in range(tokens):
            if len(held) > room:
                held = held[-(room // 2) :]
            new.append(int(network.logits(network(torch.tensor([held])))[0, -1].argmax()))
            held.append(new[-1])
    return new


def bytes_model(seed: int = 3, context: int = 64) -> CausalLM:
    size = Bytes().vocabulary_size
    network = build(
        Qwen3Config(
            vocabulary=size, context=context, width=16, layers=2, heads=2, kv_heads=1, hidden=24
        )
    )
    network.init_weights(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
            parameter.add_(0.3 * noise)
    return network.eval()


@pytest.mark.parametrize("name", TINY)
def test_greedy_text_is_that_of_the_whole_text_read_each_time(name: str) -> None:
    network = tiny(name).double().eval()
    ids = some_ids(3, 9)
    # 9 + 80 tokens: beyond the context of 64, so that the later half is read again.
    found = continue_ids(network, ids, 80)
    for row, new in zip(ids.tolist(), found.tolist(), strict=True):
        assert new == slowly(network, row, 80)
        assert new == list(generate(network, row, tokens=80, sampling=GREEDY, seed=1))


@pytest.mark.parametrize("length", [63, 64, 65, 200])
def test_a_prompt_as_long_as_the_context_and_longer_goes_on(length: int) -> None:
    network = tiny("qwen3").double().eval()
    row = some_ids(1, length)[0].tolist()
    assert list(generate(network, row, tokens=5, sampling=GREEDY, seed=1)) == slowly(
        network, row, 5
    )
    assert continue_ids(network, torch.tensor([row]), 0).shape == (1, 0)


def test_the_same_seed_writes_the_same_and_another_something_else() -> None:
    network, tokenizer = bytes_model(), Bytes()
    texts = [
        "".join(write(network, tokenizer, "Ça alors ", tokens=40, seed=seed, temperature=2.0))
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_pieces_are_whole_characters_and_together_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokenizer = bytes_model(), Bytes()
    said = "für 日本 🦊!"
    planned = iter(tokenizer.encode(said))
    monkeypatch.setattr(
        "ownwords.inference.writing.choose", lambda *_: torch.tensor([next(planned)])
    )
    pieces = list(write(network, tokenizer, "x", tokens=len(said.encode())))
    assert pieces == list(said)


def test_bytes_that_are_no_text_still_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokenizer = bytes_model(), Bytes()
    planned = iter([*b"\xf0\x9f", *b"a\xc3"])
    monkeypatch.setattr(
        "ownwords.inference.writing.choose", lambda *_: torch.tensor([next(planned)])
    )
    assert "".join(write(network, tokenizer, "x", tokens=4)) == "\ufffda\ufffd"


@pytest.mark.parametrize("stop", ["start", "end"])
def test_it_stops_where_the_document_does(stop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokenizer = bytes_model(), Bytes()
    planned = iter([104, 105, getattr(tokenizer, stop), 33])
    monkeypatch.setattr(
        "ownwords.inference.writing.choose", lambda *_: torch.tensor([next(planned)])
    )
    assert "".join(write(network, tokenizer, "x", tokens=4)) == "hi"


def test_the_text_begins_with_the_start_token_and_the_penalty_sees_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, tokenizer = bytes_model(), Bytes()
    seen: list[list[int]] = []
    assert tokenizer.start is not None

    def spy(
        logits: torch.Tensor, how: Sampling, seeds: list[int], drawn: int, ids: list[list[int]]
    ) -> torch.Tensor:
        seen.append(list(ids[0]))
        return torch.tensor([98 + drawn])

    monkeypatch.setattr("ownwords.inference.writing.choose", spy)
    pieces = write(network, tokenizer, "ab", tokens=4, repetition_penalty=1.1)
    assert "".join(pieces) == "bcde"
    assert seen == [[tokenizer.start, *b"ab", *b"bcd"[:n]] for n in range(4)]


def test_an_empty_prompt_begins_a_document_where_the_model_knows_how() -> None:
    network = bytes_model()
    assert isinstance("".join(write(network, Bytes(), "", tokens=3)), str)
    with pytest.raises(OwnwordsError, match="nothing to begin with"):
        generate(network, [], tokens=3, sampling=GREEDY, seed=1)


def test_reading_leaves_training_and_the_reader_as_they_were() -> None:
    network = bytes_model().train()
    pieces = write(network, Bytes(), "x", tokens=5, temperature=0)
    for _ in range(2):
        next(pieces)
        # Between two pieces the world is that of whoever reads them.
        assert network.training
        assert not torch.is_inference_mode_enabled()
        loss, _ = network.loss(some_ids(1, 4), some_ids(1, 4))
        torch.autograd.backward(loss)


def test_no_more_tokens_than_asked_for_are_read_ahead() -> None:
    network = bytes_model()
    assert list(generate(network, [1], tokens=0, sampling=GREEDY, seed=1)) == []
    pieces = generate(network, [1], tokens=10**9, sampling=GREEDY, seed=1)
    assert len([next(pieces) for _ in range(3)]) == 3
