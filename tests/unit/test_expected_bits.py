from dataclasses import replace
from pathlib import Path

import pytest

from ownwords.base import catalogue, expected_bits
from ownwords.base.catalogue import Entry
from ownwords.base.expected_bits import BaseCurve, ExpectedBits, TuningTask, choose_base
from ownwords.base.known_bases import KNOWN_BASES

BOX = Entry("shipped", Path("box"), "shipped", "shipped", 20_000_000, 10_000_000, "qwen3", None)
GEMMA = Entry(
    "gemma3-270m",
    Path("gemma"),
    "added",
    "google/gemma-3-270m",
    253_000_000,
    268_000_000,
    "gemma3_text",
    None,
)
BLOG = TuningTask(seconds=600, text_bytes=124_000)


def _curve(name: str) -> BaseCurve:
    return next(curve for curve in ExpectedBits.load().bases if curve.name == name)


def test_every_curve_belongs_to_an_available_base() -> None:
    repositories = {base.name: base.repository for base in KNOWN_BASES} | {
        catalogue.SHIPPED: "shipped"
    }
    for curve in ExpectedBits.load().bases:
        assert repositories[curve.name] == curve.source
    assert ExpectedBits.load().flops_per_s() > 0


def test_a_graphics_card_is_expected_only_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curves = ExpectedBits.load()
    card_s, processor_s = curves.flops_per_s("cuda"), curves.flops_per_s("cpu")
    for has_driver, expected in ((True, card_s), (False, processor_s)):
        monkeypatch.setattr(expected_bits, "has_driver", lambda has=has_driver: has)
        assert curves.flops_per_s("auto") == expected


def test_the_best_installed_base_that_fits_the_minutes_is_chosen() -> None:
    for name in ("gemma3-270m", "my-gemma"):  # whatever it was called when it was added
        chosen = choose_base(BLOG, [BOX, replace(GEMMA, name=name)])
        assert chosen is not None
        assert (chosen.name, chosen.folder) == (name, "gemma")
        bits = BLOG.bits(_curve("gemma3-270m"))
        assert chosen.sentences == (
            f"From Gemma 3 270M in 10 min: about {bits:.2f} bits per byte, on a typical blog.",
        )
    for short in (replace(BLOG, seconds=40), replace(BLOG, memory_bytes=2e9)):
        chosen = choose_base(short, [BOX, GEMMA])
        assert chosen is not None
        assert chosen.name == "shipped"
    broken = replace(GEMMA, problem="its weights are damaged")
    chosen = choose_base(BLOG, [BOX, broken])
    assert chosen is not None
    assert chosen.name == "shipped"


def test_the_cost_of_a_better_base_is_reported() -> None:
    task, gemma = replace(BLOG, seconds=60), _curve("gemma3-270m")
    minutes = task.minutes_for(gemma)
    assert minutes is not None
    chosen = choose_base(task, [BOX])
    assert chosen is not None
    ours, better = task.bits(_curve("shipped")), task.bits(gemma, 60 * minutes)
    assert better < ours
    assert chosen.sentences == (
        f"From the base in the box in 60 s: about {ours:.2f} bits per byte, on a typical blog.",
        f"With gemma3-270m and {minutes:.0f} min: about {better:.2f} instead of {ours:.2f}. Get it:"
        " `ownwords base add gemma3-270m`.",
    )
    chosen = choose_base(replace(BLOG, seconds=40), [BOX, GEMMA])
    assert chosen is not None
    assert "Get it" not in chosen.sentences[1]
    polish = choose_base(replace(BLOG, is_english=False), [BOX])
    assert polish is not None
    assert "Get it: `ownwords base add gemma3-270m`" in polish.sentences[1]


def test_more_time_and_more_text_never_promise_less() -> None:
    for curve in ExpectedBits.load().bases:
        bits = [
            replace(BLOG, seconds=seconds, text_bytes=text).bits(curve)
            for seconds, text in ((0, 1e5), (60, 1e5), (600, 1e5), (600, 1e6), (6000, 1e7))
        ]
        assert bits == sorted(bits, reverse=True)
        assert bits[0] == curve.english.bits_per_byte


def test_without_a_measured_base_none_is_chosen() -> None:
    assert choose_base(BLOG, [replace(BOX, name="mine", source="/home/me/model")]) is None
