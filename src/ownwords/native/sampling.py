"""Samples the next token in C++ with `ownwords_sample` of the compiled library."""

import ctypes
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ownwords.native.bindings import NativeLibrary, interface, load_library

NO_NUMBERS: Final = interface().constants["SAMPLE_NOT_FINITE"]
_NO_MEMORY = interface().constants["SAMPLE_NO_MEMORY"]
_byte: Callable[..., ctypes.c_char] = ctypes.c_char.from_buffer
_byref = ctypes.byref
_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)
_PARAMS = (
    *("temperature", "top_p", "min_p", "typical_p"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty"),
)


class SamplingSettings(Protocol):
    """The sampling parameters; inference/sampling.py explains them."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def typical_p(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def no_repeat_ngram_size(self) -> int: ...
    @property
    def bias(self) -> Mapping[int, float]: ...


class GuardIndex(Protocol):
    """An index of the copy guard in C++, at the address `at`; see native/copy_guard.py."""

    at: int


class NativeSampler:
    """Samples tokens with one request's parameters."""

    def __init__(
        self,
        library: NativeLibrary,
        sampling: SamplingSettings,
        vocabulary: int,
        guard: GuardIndex | None,
    ) -> None:
        self._sample = library.sample
        self._guard = guard  # keeps the memory at its address alive
        self._guard_at = guard.at if guard else None
        self._vocabulary = vocabulary
        self._bias_ids = np.array([*sampling.bias], np.int32)
        self._bias = np.array([*sampling.bias.values()], np.float64)
        self._params = interface().structs["SamplingParams"](
            **{name: getattr(sampling, name) for name in _PARAMS},
            vocabulary=vocabulary,
            top_k=min(sampling.top_k, vocabulary),
            no_repeat_ngram_size=min(sampling.no_repeat_ngram_size, 1 << 62),
            bias_count=len(self._bias_ids),
            bias_ids=self._bias_ids.ctypes.data,
            bias=self._bias.ctypes.data,
        )
        self._params_at = ctypes.addressof(self._params)

    def __call__(
        self,
        logits: npt.NDArray[np.float32],
        history: npt.NDArray[np.int32],
        length: int,
        uniform: float,
        banned: Collection[int] | npt.NDArray[np.int32],
        prompt: int,
    ) -> int:
        """Sample the id after the first `length` ids of the history.

        Returns a negative SampleError of api.h on failure; raises MemoryError without memory.
        `logits` is [vocabulary], `uniform` a random number between 0 and 1. The first
        `prompt` ids do not count for the frequency and presence penalties.
        """
        if logits.shape != (self._vocabulary,) or not 0 <= length <= len(history):
            raise ValueError(f"{logits.shape} scores, {length} of {len(history)} ids")
        banned_count = len(banned)
        # Rebinding the names keeps any copies alive during the call.
        logits, logits_at = pointer(logits, _FLOAT)
        history, history_at = pointer(history, _INT) if length else (history, None)
        banned, banned_at = pointer(banned, _INT) if banned_count else (banned, None)
        token: int = self._sample(
            self._params_at,
            logits_at,
            history_at,
            length,
            max(0, prompt),
            banned_at,
            banned_count,
            self._guard_at,
            uniform,
        )
        if token == _NO_MEMORY:
            raise MemoryError
        return token


def pointer(
    numbers: Collection[int] | npt.NDArray[Any], dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], object]:
    """Convert to a contiguous array of this dtype; return it with its address for ctypes."""
    if not isinstance(numbers, np.ndarray):
        numbers = np.array([*numbers], dtype)
    elif numbers.dtype is not dtype and numbers.dtype != dtype:
        numbers = numbers.astype(dtype)
    try:
        # Five times as fast as numbers.ctypes.data.
        return numbers, _byref(_byte(numbers))
    except (TypeError, ValueError, BufferError):  # read-only or not contiguous
        numbers = np.ascontiguousarray(numbers)
        return numbers, numbers.ctypes.data


def native_sampler(
    sampling: SamplingSettings, vocabulary: int, guard: GuardIndex | None = None
) -> NativeSampler | None:
    """Create the C++ sampler; None without the compiled library."""
    library = load_library()
    return None if library is None else NativeSampler(library, sampling, vocabulary, guard)
