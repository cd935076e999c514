"""Samples written while a model trains, within a share of the time."""

import time
from collections.abc import Sequence

from ownwords.inference.text_generation import build_request, stream_request
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models.decoder import CausalLM
from ownwords.tokenizers.tokenizer import Tokenizer


class SampleWriter:
    """Writes samples while a model trains, for about `seconds` seconds in total at most."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, seconds: float) -> None:
        self._tokenizer, self._max_tokens, self._seconds_left = tokenizer, max_tokens, seconds

    def __call__(self, model: CausalLM) -> Sequence[str]:
        if self._seconds_left <= 0:
            return ()
        began = time.perf_counter()
        request = build_request(self._tokenizer, "", max_tokens=self._max_tokens)
        text = "".join(stream_request(TorchEngine(model), self._tokenizer, request))
        self._seconds_left -= time.perf_counter() - began
        return (text,)
