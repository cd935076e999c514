"""Baselines: probabilities that sum to one, figures worked out by hand, compression."""

import lzma
import math
import random

import pytest

from ownwords.evaluation.baselines import baselines, xz_bytes
from ownwords.evaluation.ngram import KneserNey
from ownwords.evaluation.ppm import END, PPM, SYMBOLS, symbols

E = chr(END)
ALL = [chr(code) for code in range(SYMBOLS)]


def sentences(seed: int, count: int) -> list[bytes]:
    generator = random.Random(seed)
    words = ["the", "mill", "stands", "by", "a", "river", "and", "Mühle", "turns", "slowly"]
    return [
        " ".join(generator.choice(words) for _ in range(generator.randrange(1, 30))).encode()
        for _ in range(count)
    ]


def test_ppm_by_hand() -> None:
    ppm = PPM(order=1)
    ppm.learn([b"aab"])  # events: E>a a>a a>b b>E

    # A symbol is counted from the longest context down to the first that knew it:
    #   E>a: contexts "E" and "" new: both count a.
    #   a>a: "a" new, counts a; "" knows a (1), becomes 2, stop.
    #   a>b: "a" counts b; "" counts b.
    #   b>E: "b" counts E; "" counts E.
    # "": a 2, b 1, E 1 (n 4, q 3). "a": a 1, b 1 (n 2, q 2).
    def p(context: str, symbol: str) -> float:
        text = context + symbol
        return ppm.probability(text, len(text) - 1)

    assert p("a", "a") == pytest.approx(1 / 4)
    assert p("a", "b") == pytest.approx(1 / 4)
    # Escape 2/4; in "" without a and b only E is left: (2 - 1) / 2.
    assert p("a", E) == pytest.approx(1 / 2 * 1 / 2)
    # Both escapes, then one of the 254 symbols not seen.
    assert p("a", "z") == pytest.approx(1 / 2 * 1 / 2 / 254)
    # "b" knows E alone: (2 - 1) / 2; escape 1/2; "" without E: a 2, b 1, n 3, q 2.
    assert p("b", E) == pytest.approx(1 / 2)
    assert p("b", "a") == pytest.approx(1 / 2 * 3 / 6)
    assert p("b", "b") == pytest.approx(1 / 2 * 1 / 6)
    # An unknown context: the empty one at once.
    assert p("z", "a") == pytest.approx(3 / 8)
    static = ppm.nats(b"ab", adaptive=False)
    assert static == pytest.approx(-math.log(p(E, "a") * p("a", "b") * p("b", E)))
    # Adapting: E>a makes "E" a 2 and nothing else; a>b makes "a" b 2; p(E|b) is as before.
    assert ppm.nats(b"ab") == pytest.approx(static)
    # Twice the same: the second b comes from "a": a 1, b 2, of 3.
    text = b"abab"
    wanted = p(E, "a") * p("a", "b") * p("b", "a") * (3 / 6) * p("b", E)
    # After b>a: "b" knows E 1, a 1, so E is 1/4 there.
    wanted *= (1 / 4) / p("b", E)
    assert ppm.nats(text) == pytest.approx(-math.log(wanted))


def test_ppm_updates_no_order_below_the_one_that_knew_the_symbol() -> None:
    ppm = PPM(order=1)
    ppm.learn([b"aaab"])
    # The second a>a is known to "a" (then 2), so "" still has a 2, b 1, E 1, and not a 3.
    assert ppm.probability("za", 1) == pytest.approx(3 / 8)
    # "a": a 2, b 1; n 3, q 2.
    assert ppm.probability("aa", 1) == pytest.approx(3 / 6)
    assert ppm.probability("ab", 1) == pytest.approx(1 / 6)


def test_ppm_sums_to_one_in_every_context() -> None:
    ppm = PPM(order=3)
    ppm.learn(sentences(1, 40))
    ppm.learn([bytes(range(256))])  # a context that has seen every symbol there is
    for context in ("", "t", "th", "the", " mi", "xyz", E, E + "th", "\x00\x01", "\xff", "e s"):
        total = math.fsum(ppm.probability(context + symbol, len(context)) for symbol in ALL)
        assert total == pytest.approx(1, abs=1e-12), context
        assert min(ppm.probability(context + symbol, len(context)) for symbol in ALL) > 0


def test_an_untrained_ppm_is_uniform_over_the_symbols() -> None:
    assert PPM().nats(b"x", adaptive=False) == pytest.approx(2 * math.log(SYMBOLS))


def test_scoring_does_not_change_the_counts() -> None:
    ppm = PPM()
    ppm.learn(sentences(1, 30))
    before = {context: dict(counts) for context, counts in ppm._contexts.items()}
    new = b"quite another thing, quite another thing, quite another thing"
    first = ppm.nats(new)
    assert ppm._contexts == before
    assert ppm.nats(new) == first
    assert first < 0.6 * ppm.nats(new, adaptive=False)


def test_kneser_ney_by_hand() -> None:
    model = KneserNey([b"ab", b"ab", b"cb"], order=2)

    # Too few grams to estimate discounts from: .5 for once, .75 for twice, 1 for more.
    # Bigrams: Ea 2, Ec 1, ab 2, cb 1, bE 3. Lower: a after {E} 1, c after {E} 1, b after {a, c} 2,
    # E after {b} 1; of 5 types. Freed there: .5 + .5 + .75 + .5 = 2.25.
    def lower(symbol: str) -> float:
        discounted = {"a": 0.5, "c": 0.5, "b": 1.25, E: 0.5}.get(symbol, 0)
        return (discounted + 2.25 / SYMBOLS) / 5

    def p(context: str, symbol: str) -> float:
        return model.probability(context + symbol, len(context))

    assert p("", "b") == pytest.approx(lower("b"))
    assert p(E, "a") == pytest.approx((2 - 0.75 + (0.75 + 0.5) * lower("a")) / 3)
    assert p(E, "z") == pytest.approx((0.75 + 0.5) * lower("z") / 3)
    assert p("b", E) == pytest.approx((3 - 1 + 1 * lower(E)) / 3)
    assert p("z", "b") == pytest.approx(lower("b"))
    assert model.nats(b"ab") == pytest.approx(-math.log(p(E, "a") * p("a", "b") * p("b", E)))


def test_kneser_ney_sums_to_one_in_every_context() -> None:
    for order in (1, 2, 5):
        model = KneserNey([*sentences(1, 200), b"", b"x"], order)
        for context in ("", "t", "the", " mil", "zzz", E, E + "th", f"{E}the mill", "\xff"):
            total = math.fsum(model.probability(context + symbol, len(context)) for symbol in ALL)
            assert total == pytest.approx(1, abs=1e-12), (order, context)
            assert min(model.probability(context + symbol, len(context)) for symbol in ALL) > 0


def test_discounts_follow_the_paper_where_they_can_be_estimated() -> None:
    from ownwords.evaluation.ngram import _discounts

    y = 100 / (100 + 2 * 40)
    assert _discounts([100, 40, 20, 12]) == pytest.approx(
        (1 - 2 * y * 40 / 100, 2 - 3 * y * 20 / 40, 3 - 4 * y * 12 / 20)
    )
    assert _discounts([100, 40, 0, 12]) == (0.5, 0.75, 1.0)
    for times in ([1, 100, 1, 100], [100, 1, 100, 1], [5, 5, 5, 500]):
        assert all(0 < discount < n for n, discount in enumerate(_discounts(times), 1)), times


def test_a_higher_order_helps_and_every_baseline_fits_its_training_text() -> None:
    training = [text.decode() for text in sentences(1, 150)]
    new = [text.decode() for text in sentences(2, 6)]
    foreign = ["0123456789 #### 0246813579 ;;;; {}{}{}"] * 2
    same_kind, unknown = baselines(training, new), baselines(training, foreign)
    assert [baseline.name for baseline in same_kind] == ["xz", "PPM", "Kneser-Ney"]
    for same, foreign_baseline in zip(same_kind, unknown, strict=True):
        assert same.score.bits_per_byte < 0.6 * foreign_baseline.score.bits_per_byte, same.name
        assert same.score.bytes == sum(len(text.encode()) for text in new)
    by_name = {baseline.name: baseline.score.bits_per_byte for baseline in same_kind}
    assert by_name["PPM"] < by_name["xz"]
    # Ten words, each as likely as any other, and spaces: no model can do better than that.
    floor = sum((len(t.split()) - 1) * math.log2(10) for t in new) / same_kind[0].score.bytes
    assert by_name["PPM"] > floor
    assert by_name["Kneser-Ney"] > floor


def test_xz_uses_the_whole_text_as_its_window() -> None:
    noise = random.Random(3).randbytes(150_000).hex().encode()
    assert xz_bytes(noise + noise[:1000]) - xz_bytes(noise) < 100
    text = b"\n".join(sentences(4, 300))
    plain = len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    assert abs(xz_bytes(text) - plain) < 100


def test_symbols_begin_and_end_a_document() -> None:
    assert symbols("é".encode()) == f"{E}\xc3\xa9{E}"
