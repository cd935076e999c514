"""A model with its tokenizer, as in the Python API, and the choice of its engine."""

import importlib.util
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.core.packages import install_command
from ownwords.inference import copy_guard, native_engine
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.engine import Engine, Logits, WeightFormat
from ownwords.inference.generation import (
    BatchScheduler,
    GenerationRequest,
    GenerationState,
    generate,
)
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import (
    DEFAULT_SAMPLING,
    IncrementalDetokenizer,
    encode_prompt,
    eos_token_ids,
    split_last_word,
    stop_token_ids,
)
from ownwords.models import directory
from ownwords.models.configs.config import ModelConfig
from ownwords.models.directory import COPY_GUARD
from ownwords.models.gguf.reading import model_directory
from ownwords.native import bindings
from ownwords.tokenizers import tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

DEVICES = ("auto", "cpu", "cuda", "rocm", "mps", "xpu")
# A machine without any of these has no CUDA; /dev/dxg is WSL's, /dev/kfd is ROCm's.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "C:/Windows/System32/nvcuda.dll")
MAX_THREADS = 1024
_BATCH = 16  # texts that are generated together


class Model:
    """A loaded model, from `ownwords.load`; `stop_ids` are added to the tokenizer's own."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        guard: CopyGuard | None = None,
        stop_ids: Iterable[int] = (),
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.guard = guard
        self.stop_ids = frozenset(stop_ids)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "auto",
        weights: WeightFormat = "stored",
        threads: int | None = None,
        adapter: Path | None = None,
    ) -> "Model":
        """Load a model directory or GGUF file with the tokenizer saved in it.

        "auto" selects CUDA if it works and has enough memory, otherwise the CPU: the native engine
        if it is compiled, otherwise PyTorch. "int8" quantizes the weights as
        `models.quantize` does, including the embedding. A copy guard in the directory applies to
        everything that the model writes. `adapter` is a stored LoRA to add to the weights.
        """
        # Each takes up to half a second for Gemma 3 270M, and loading weights rarely holds the GIL.
        with (
            directory.open_directory(model_directory(folder)) as readable,
            ThreadPoolExecutor(1) as other,
        ):
            files = directory.read(readable)
            reading = other.submit(tokenizer.Tokenizer, files.tokenizer_files)
            engine = load_engine(
                *(readable, files.config),
                device=device,
                weights=weights,
                threads=threads,
                adapter=adapter,
            )
            own_tokenizer = reading.result()
            files.check_tokenizer(own_tokenizer)
            path = readable / COPY_GUARD
            fingerprint = files.fingerprint or own_tokenizer.fingerprint()
            guard = copy_guard.load(path, fingerprint) if path.exists() else None
        return cls(engine, own_tokenizer, guard, eos_token_ids(files.generation))

    def write(
        self,
        prompt: str,
        *,
        max_tokens: int = 400,
        seed: int = 1,
        stops: Sequence[str] = (),
        quote: bool = False,
        **sampling: Any,  # noqa: ANN401 - SamplingParams checks them
    ) -> Generator[str]:
        """Continue the prompt by up to `max_tokens` tokens; yield whole characters as they come.

        The text ends earlier if the model ends the document, and before any of `stops`. The same
        seed gives the same text. `quote` disables the copy guard. `sampling` are fields of
        `inference.sampling.SamplingParams`, such as `temperature=0.5`.
        """
        params = replace(DEFAULT_SAMPLING, **sampling)
        return self.stream(
            self.request(prompt, max_tokens=max_tokens, seed=seed, sampling=params, quote=quote),
            stops,
        )

    def write_several(
        self,
        prompt: str,
        *,
        seeds: Sequence[int],
        max_tokens: int = 400,
        stops: Sequence[str] = (),
        quote: bool = False,
        sentence: bool = False,
        on_tokens: Callable[[int], object] = bool,
        scheduler: BatchScheduler | None = None,
        **sampling: Any,  # noqa: ANN401 - as above
    ) -> list[str]:
        """Return a text for each seed, as `write` would, but generated in batches.

        `sentence` ends each with its first sentence. `on_tokens` is called with the number of
        tokens of each step. A `scheduler` keeps what it has read from call to call.
        """
        params = replace(DEFAULT_SAMPLING, **sampling)
        request = self.request(prompt, max_tokens=max_tokens, sampling=params, quote=quote)
        requests = [replace(request, seed=seed) for seed in seeds]
        return self.generate_texts(
            requests, stops, sentence=sentence, on_tokens=on_tokens, scheduler=scheduler
        )

    def request(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int,
        seed: int = 1,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        quote: bool = False,
        completes_word: bool = False,
    ) -> GenerationRequest:
        """Return the request that continues a prompt, given as text or as ids.

        With `completes_word`, the prompt's last word is not read, and the text begins with it.
        """
        tokenizer, opening = self.tokenizer, None
        if completes_word and isinstance(prompt, str):
            prompt, opening = split_last_word(tokenizer, prompt)
        if tokenizer.gaps:  # never sample ids without a token
            never = dict.fromkeys(tokenizer.gaps, float("-inf"))
            sampling = replace(sampling, bias={**sampling.bias, **never})
        return GenerationRequest(
            ids=encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            vocabulary=tokenizer.vocabulary_size,
            seed=seed,
            stop_ids=stop_token_ids(tokenizer) | self.stop_ids,
            guard=None if quote else self.guard,
            opening=opening,
        )

    def stream(self, request: GenerationRequest, stops: Sequence[str] = ()) -> Generator[str]:
        """Generate the text of a request piece by piece, in whole characters, up to a stop string.

        Invalid stop strings raise here, not when the first piece is requested.
        """
        detokenizer = IncrementalDetokenizer(self.tokenizer, request.ids, stops)

        def pieces() -> Generator[str]:
            for token in generate(self.engine, request):
                if text := detokenizer.feed(token):
                    yield text
                if detokenizer.stop is not None:
                    return
            if text := detokenizer.finish():
                yield text

        return pieces()

    def generate_texts(
        self,
        requests: Sequence[GenerationRequest],
        stops: Sequence[str] = (),
        *,
        sentence: bool = False,
        on_tokens: Callable[[int], object] = bool,
        scheduler: BatchScheduler | None = None,
    ) -> list[str]:
        """Return the text of each request, as `stream` would, but generated in batches.

        The other arguments are those of `write_several`.
        """
        if not requests:
            return []
        detokenizers = [
            IncrementalDetokenizer(self.tokenizer, request.ids, stops, sentence=sentence)
            for request in requests
        ]
        texts = [""] * len(requests)
        length = max(len(request.ids) + request.max_tokens for request in requests)
        own = None
        if scheduler is None:
            own = scheduler = self.scheduler(min(len(requests), _BATCH), length)
        places: dict[GenerationState, int] = {}
        try:
            for place, request in enumerate(requests):
                places[scheduler.submit(request)] = place
            while places:
                outputs = scheduler.step()
                on_tokens(sum(token is not None for _, token in outputs))
                for state, token in outputs:
                    if state.error:
                        raise state.error
                    place = places[state]
                    detokenizer = detokenizers[place]
                    if token is not None:
                        texts[place] += detokenizer.feed(token)
                    if state.finish_reason:
                        texts[place] += detokenizer.finish()
                    if state.finish_reason or detokenizer.stop is not None:
                        scheduler.cancel(state)
                        del places[state]
        finally:
            for state in places:  # after an exception
                scheduler.cancel(state)
            if own:
                own.close()
        return texts

    def scheduler(self, rows: int, length: int) -> BatchScheduler:
        """Create a scheduler of this model for several calls; the caller closes it."""
        return BatchScheduler(self.engine, rows=rows, length=length)

    def score(
        self, prompt: str, texts: Sequence[str], scheduler: BatchScheduler | None = None
    ) -> list[float]:
        """Return the bits that the model assigns to each of the texts after a prompt."""
        prefix = encode_prompt(self.tokenizer, prompt)
        continuations = [self.tokenizer.encode(text) for text in texts]
        if scheduler:
            return scheduler.score(prefix, continuations)
        longest = len(prefix) + max(map(len, continuations), default=0)
        with closing(self.scheduler(1, longest)) as own:
            return own.score(prefix, continuations)

    def logits(self, ids: Sequence[int]) -> Logits:
        """Return the next-token logits after each of the ids, [ids, vocabulary].

        Raises OwnwordsError for ids outside the vocabulary and for more ids than the context holds.
        """
        if len(ids) > self.engine.context:
            raise OwnwordsError(
                f"{len(ids)} tokens do not fit the model's context ({self.engine.context})"
            )
        cache = self.engine.cache(1, max(1, len(ids)))
        try:
            return cache.forward({0: ids}, all_positions=True)
        finally:
            cache.close()


# --- engines --------------------------------------------------------------------------------------


def choose_device(device: str, folder: Path) -> str:
    """Return the device for the model of a directory; imports PyTorch only if necessary."""
    if device == "cpu" or (device == "auto" and not has_driver()):
        return "cpu"
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    # Twice the weights, because bfloat16 may become float32.
    return hardware.choose_device(device, memory_bytes=hardware.MIN_MEMORY + 2 * weights)


def has_driver() -> bool:
    """Return whether this machine has the driver of a GPU for CUDA or ROCm."""
    return any(Path(driver).exists() for driver in _DRIVERS)


def load_engine(
    folder: Path,
    config: ModelConfig,
    *,
    device: str = "auto",
    weights: WeightFormat = "stored",
    threads: int | None = None,
    adapter: Path | None = None,
) -> Engine:
    """Load the weights of an open model directory; see `Model.load`."""
    if device.partition(":")[0] not in DEVICES:
        raise OwnwordsError(
            f"there is no device {device!r}", hint=f"the devices are {', '.join(DEVICES)}"
        )
    if weights not in get_args(WeightFormat):
        raise OwnwordsError(
            f"weights cannot be {weights!r}",
            hint=f"choose from {', '.join(get_args(WeightFormat))}",
        )
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise OwnwordsError(f"threads ({threads}) must be from 1 to {MAX_THREADS}")
    try:
        device = choose_device(device, folder)
        if device == "cpu":
            engine = native_engine.load(
                folder, config, weights=weights, threads=threads, adapter=adapter
            )
            if engine is not None:
                return engine
        from ownwords.inference.torch_engine import TorchEngine  # noqa: PLC0415 - a second
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        reason = f"{device} needs PyTorch" if device != "cpu" else bindings.library_problem()
        raise OwnwordsError(
            f"nothing here can run this model: {reason}, and PyTorch is not installed",
            hint=f"{install_command('train')}; `ownwords doctor` shows details",
        ) from error
    return TorchEngine.load(folder, device=device, weights=weights, adapter=adapter)


def describe_cpu_engine() -> tuple[str, str]:
    """Return the name of the CPU engine, and the reason if it is not the native one."""
    if (library := bindings.load_library()) is not None:
        return f"native engine, {library.isa.label}", ""
    has_torch = importlib.util.find_spec("torch") is not None
    return "PyTorch" if has_torch else "", bindings.library_problem()
