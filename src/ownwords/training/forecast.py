"""What a run is expected to reach, said before it; and how right that was, said after it."""

from dataclasses import dataclass

from ownwords.core.progress import duration


@dataclass(frozen=True)
class Forecast:
    """What the plan says beforehand; bits a byte are those of text held out."""

    bits_low: float
    bits_high: float
    seconds: float  # of the whole run, from start to saved model
    tokens: int
    epochs: float
    memory_bytes: int
    tokens_per_s: float
    held_out_bytes: int  # read at each evaluation: all there is, or as much as time allows

    def sentences(self) -> tuple[str, ...]:
        """The same in plain words."""
        said = [
            f"About {duration(self.seconds)}, start and saving included: {number(self.tokens)}"
            f" tokens at {number(self.tokens_per_s)} a second, which reads the text"
            f" {times(self.epochs)}.",
            f"From {self.bits_low:.2f} to {self.bits_high:.2f} bits a byte on texts held out, and"
            f" about {size(self.memory_bytes)} of memory.",
        ]
        return tuple(said)


@dataclass(frozen=True)
class ActualResult:
    """What a run came to; `bits_per_byte` is None where no text was held out."""

    bits_per_byte: float | None
    seconds: float
    tokens: int
    memory_bytes: int
    stopped_early: bool = False
    shortened: bool = False  # for the machine turned out slower than measured


def compare_forecast(expected: Forecast, happened: ActualResult) -> tuple[str, ...]:
    """How right the plan was, one sentence a figure."""
    said = []
    bits = happened.bits_per_byte
    low, high = expected.bits_low, expected.bits_high
    if bits is not None:
        if low <= bits <= high:
            judged = "as expected"
        elif bits < low:
            judged = f"better than expected, by {low - bits:.2f}"
        else:
            judged = f"worse than expected, by {bits - high:.2f}"
        said.append(f"Bits a byte: {bits:.3f}, expected {low:.2f} to {high:.2f}: {judged}.")
    early = ", for it stopped early" if happened.stopped_early else ""
    fewer = early or (", for the machine became slower" if happened.shortened else "")
    said.append(
        f"Time: {duration(happened.seconds)}, expected {duration(expected.seconds)}"
        f" ({_off(happened.seconds, expected.seconds)}{early})."
    )
    said.append(
        f"Tokens: {number(happened.tokens)}, expected {number(expected.tokens)}"
        f" ({_off(happened.tokens, expected.tokens)}{fewer})."
    )
    if happened.memory_bytes:
        held, room = happened.memory_bytes, expected.memory_bytes
        said.append(f"Memory: {size(held)} at most, expected {size(room)} ({_off(held, room)}).")
    return tuple(said)


def _off(real: float, expected: float) -> str:
    share = real / max(expected, 1e-9) - 1
    if abs(share) < 0.005:
        return "as expected"
    return f"{abs(share):.0%} {'more' if share > 0 else 'less'}"


def times(count: float) -> str:
    """How often, in words: "once", "twice", "0.4 times", "12 times"."""
    if 0.95 <= count < 1.05:
        return "once"
    if 1.95 <= count < 2.05:
        return "twice"
    return f"{count:.1f} times" if count < 9.95 else f"{count:.0f} times"


def number(count: float) -> str:
    """To three figures: 261, 1,540, 12.3 million."""
    for unit, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g}{name}"
    return f"{float(f'{count:.3g}'):,.0f}" if count >= 100 else f"{count:.3g}"


def size(count: float) -> str:
    """Bytes to read: 268 kB, 1.2 GB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} bytes"
