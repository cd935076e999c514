"""The forecast of a run before it starts, and its comparison with the outcome."""

from dataclasses import dataclass

from ownwords.core.progress import duration


@dataclass(frozen=True)
class Forecast:
    """The expected outcome of a plan; bits per byte are on held-out text."""

    bits_low: float
    bits_high: float
    seconds: float  # of the whole run, from start to saved model
    tokens: int
    epochs: float
    memory_bytes: int
    tokens_per_s: float
    held_out_bytes: int  # bytes read at each evaluation

    def sentences(self) -> tuple[str, ...]:
        """The forecast as sentences for the user."""
        return (
            f"About {duration(self.seconds)}, including start and saving: {number(self.tokens)}"
            f" tokens at {number(self.tokens_per_s)} a second, which reads the text"
            f" {times(self.epochs)}.",
            f"{self.bits_low:.2f} to {self.bits_high:.2f} bits per byte on held-out texts, and"
            f" about {size(self.memory_bytes)} of memory.",
        )


@dataclass(frozen=True)
class ActualResult:
    """The outcome of a run; `bits_per_byte` is None if no text was held out."""

    bits_per_byte: float | None
    seconds: float
    tokens: int
    memory_bytes: int
    stopped_early: bool = False


def compare_forecast(expected: Forecast, actual: ActualResult) -> tuple[str, ...]:
    """Compare the forecast with the outcome, in one sentence per figure."""
    sentences = []
    bits = actual.bits_per_byte
    low, high = expected.bits_low, expected.bits_high
    if bits is not None:
        if low <= bits <= high:
            judged = "as expected"
        elif bits < low:
            judged = f"better than expected, by {low - bits:.2f}"
        else:
            judged = f"worse than expected, by {bits - high:.2f}"
        sentences.append(f"Bits per byte: {bits:.3f}, expected {low:.2f} to {high:.2f}: {judged}.")
    early = ", because it stopped early" if actual.stopped_early else ""
    sentences.append(
        f"Time: {duration(actual.seconds)}, expected {duration(expected.seconds)}"
        f" ({_off(actual.seconds, expected.seconds)}{early})."
    )
    sentences.append(
        f"Tokens: {number(actual.tokens)}, expected {number(expected.tokens)}"
        f" ({_off(actual.tokens, expected.tokens)}{early})."
    )
    if actual.memory_bytes:
        peak, forecast = actual.memory_bytes, expected.memory_bytes
        sentences.append(
            f"Memory: {size(peak)} at most, expected {size(forecast)} ({_off(peak, forecast)})."
        )
    return tuple(sentences)


def _off(real: float, expected: float) -> str:
    share = real / max(expected, 1e-9) - 1
    if abs(share) < 0.005:
        return "as expected"
    return f"{abs(share):.0%} {'more' if share > 0 else 'less'}"


def times(count: float) -> str:
    """A count of times in words: "once", "twice", "0.4 times", "12 times"."""
    if 0.95 <= count < 1.05:
        return "once"
    if 1.95 <= count < 2.05:
        return "twice"
    return f"{count:.1f} times" if count < 9.95 else f"{count:.0f} times"


def number(count: float) -> str:
    """Format a number to three significant figures: 261, 1,540, 12.3 million."""
    for unit, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g}{name}"
    return f"{float(f'{count:.3g}'):,.0f}" if count >= 100 else f"{count:.3g}"


def size(count: float) -> str:
    """Format a number of bytes: 268 kB, 1.2 GB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} bytes"
