"""What a model writes while it is trained, for whoever watches."""

import time
from collections.abc import Sequence

from ownwords.inference.text_generation import build_request, stream_request
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models.decoder import CausalLM
from ownwords.tokenizers.tokenizer import Tokenizer

_SHARE = 0.01  # of the time, for what is written to be looked at on the way


class SampleWriter:
    """What the model writes on the way, as long as that takes next to no time."""

    def __init__(self, tokenizer: Tokenizer, tokens: int, seconds: float) -> None:
        self._tokenizer, self._tokens = tokenizer, tokens
        self._left_s = _SHARE * seconds

    def __call__(self, model: CausalLM) -> Sequence[str]:
        if self._left_s <= 0:
            return ()
        began = time.perf_counter()
        request = build_request(self._tokenizer, "", max_tokens=self._tokens)
        text = "".join(stream_request(TorchEngine(model), self._tokenizer, request))
        self._left_s -= time.perf_counter() - began
        return (text,)
