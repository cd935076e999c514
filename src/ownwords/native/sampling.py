"""Choosing a token in C++: `ownwords_next` of the compiled library, called at little cost."""

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ownwords.native import bindings

NO_NUMBERS = -1
_OUT_OF_MEMORY = -3

_P, _L, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_byte: Callable[..., ctypes.c_char] = ctypes.c_char.from_buffer
_byref = ctypes.byref
_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)


class SamplingParams(Protocol):
    """The settings, as inference/sampling.py explains them."""

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


class Guard(Protocol):
    """An index in C++; native/copy_guard.py."""

    at: int


class _Settings(ctypes.Structure):
    """As in source/engine/sampling.cpp."""

    _fields_ = (
        *((name, _D) for name in ("temperature", "top_p", "min_p", "typical_p")),
        *((name, _D) for name in ("repetition", "frequency", "presence")),
        *((name, _L) for name in ("vocabulary", "top_k", "no_repeat", "biases")),
        ("bias_ids", _P),
        ("bias", _P),
    )


class NativeSampler:
    """One request's settings, ready to be passed on."""

    def __init__(
        self,
        function: Callable[..., int],
        sampling: SamplingParams,
        vocabulary: int,
        guard: Guard | None,
    ) -> None:
        self._function = function
        self._guard = guard  # kept, as only its place is passed on
        self._guard_at = guard.at if guard else None
        self._vocabulary = vocabulary
        self._bias_ids = np.array([*sampling.bias], np.int32)
        self._bias = np.array([*sampling.bias.values()], np.float64)
        self._settings = _Settings(
            sampling.temperature,
            sampling.top_p,
            sampling.min_p,
            sampling.typical_p,
            sampling.repetition_penalty,
            sampling.frequency_penalty,
            sampling.presence_penalty,
            vocabulary,
            min(sampling.top_k, vocabulary),
            min(sampling.no_repeat_ngram_size, 1 << 62),
            len(self._bias_ids),
            self._bias_ids.ctypes.data,
            self._bias.ctypes.data,
        )
        self._at = ctypes.addressof(self._settings)

    def __call__(
        self,
        logits: npt.NDArray[np.float32],
        history: npt.NDArray[np.int32],
        length: int,
        uniform: float,
        banned: Collection[int] | npt.NDArray[np.int32],
        prompt: int,
    ) -> int:
        """The id after the first `length` of the history, or one of the numbers below 0."""
        if logits.shape != (self._vocabulary,) or not 0 <= length <= len(history):
            raise ValueError(f"{logits.shape} scores, {length} of {len(history)} ids")
        bans = len(banned)
        # Kept by name until the call is over, as they may be copies.
        logits, logits_at = pointer(logits, _FLOAT)
        history, history_at = pointer(history, _INT) if length else (history, None)
        banned, bans_at = pointer(banned, _INT) if bans else (banned, None)
        chosen = self._function(
            self._at,
            logits_at,
            history_at,
            length,
            max(0, prompt),
            bans_at,
            bans,
            self._guard_at,
            uniform,
        )
        if chosen == _OUT_OF_MEMORY:
            raise MemoryError
        return chosen


def pointer(
    numbers: Collection[int] | npt.NDArray[Any], dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], object]:
    """The numbers as C++ reads them, and where they are."""
    if not isinstance(numbers, np.ndarray):
        numbers = np.array([*numbers], dtype)
    elif numbers.dtype is not dtype and numbers.dtype != dtype:
        numbers = numbers.astype(dtype)
    try:
        # A fifth of the time that numbers.ctypes.data takes.
        return numbers, _byref(_byte(numbers))
    except (TypeError, ValueError, BufferError):  # not to be written to, or not in one piece
        numbers = np.ascontiguousarray(numbers)
        return numbers, numbers.ctypes.data


def function(name: str, arguments: Sequence[type]) -> Callable[..., int] | None:
    """A function of the compiled library that gives a whole number, or None if it is not there."""
    found = bindings.load_library()
    if found is None:
        return None
    try:
        loaded = getattr(found.loaded, f"ownwords_{name}")
    except AttributeError:
        return None
    loaded.argtypes, loaded.restype = list(arguments), _L
    return loaded  # type: ignore[no-any-return]


@cache
def _function() -> Callable[..., int] | None:
    return function("next", [_P, _P, _P, _L, _L, _P, _L, _P, _D])


def native_sampler(
    sampling: SamplingParams, vocabulary: int, guard: Guard | None = None
) -> NativeSampler | None:
    """The choice in C++, or None where the compiled library is not there."""
    found = _function()
    return None if found is None else NativeSampler(found, sampling, vocabulary, guard)
