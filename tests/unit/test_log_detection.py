import base64
import json
import random

import pytest

from ownwords.archive.document import Segment
from ownwords.archive.log_detection import log_reason, separate_logs
from scripts import ROOT

CHANCE = random.Random(7)


def _lines(make: object, count: int = 40) -> str:
    assert callable(make)
    return "\n".join(str(make(n)) for n in range(count))


DUMPS = {
    "syslog": _lines(lambda n: f"Jan {n % 28 + 1:2} 03:{n % 60:02}:59 host sshd[{n}]: Accepted"),
    "iso": _lines(lambda n: f"2024-01-02T03:04:{n % 60:02}.123Z worker-{n} did something"),
    "apache": _lines(lambda n: f'9.8.7.{n} - - [10/Oct/2000:13:55:{n % 60:02} -0700] "GET / 200'),
    "kernel": _lines(lambda n: f"[    {n}.123456] usb 1-1: new device"),
    "levels": _lines(lambda n: f"npm WARN deprecated package{n}@1.0 use another"),
    "java": "Exception in thread main\n"
    + _lines(lambda n: f"\tat com.example.Thing{n}.run(Thing.java:{n + 10})"),
    "traceback": _lines(lambda n: f'  File "/srv/app/m{n}.py", line {n}, in go\n    return go()'),
    "numbers": _lines(lambda n: " ".join(f"{CHANCE.random():.6f}" for _ in range(8))),
    "hexdump": _lines(
        lambda n: f"{n * 16:08x}  " + " ".join(f"{CHANCE.randrange(256):02x}" for _ in range(16))
    ),
    "base64": base64.encodebytes(CHANCE.randbytes(900)).decode(),
    "columns": _lines(lambda n: " ".join(str(CHANCE.randrange(10, 99)) for _ in range(16))),
    "pattern": _lines(
        lambda n: f"node{n} cpu={n}% mem={n * 3}MB rx={n * 7}/s tx={n * 11}/s up={n}d"
    ),
}

SOURCE_CODE = {
    "python": (ROOT / "tests" / "growth.py").read_text("utf-8"),
    "c": (ROOT / "tests" / "native" / "test_product.cpp").read_text("utf-8")[:2000],
    "sql": (ROOT / "examples" / "blog" / "schema.sql").read_text("utf-8"),
    "html": "<ul>\n"
    + _lines(lambda n: f'  <li><a href="/p/{n}">Post {n}</a></li>', 12)
    + "\n</ul>",
}

NOT_DUMPS = {
    **SOURCE_CODE,
    "json": json.dumps({f"key{n}": {"port": 8000 + n, "on": True} for n in range(7)}, indent=2),
    "poem": _lines(lambda n: ["The night is long,", "O long, long,", "and far", ""][n % 4], 12),
    "contents": _lines(lambda n: f"{n}.{n % 4} {'About gardens ' * (n % 5 + 1)} ..... {n * 7}", 30),
    "session": "$ git status\nOn branch main\nnothing to commit\n$ ls -l\ntotal 8\n"
    "-rw-r--r-- 1 me me 120 Jan 12 10:30 a.md\n-rw-r--r-- 1 me me 98 Jan 13 10:31 b.md\n$ exit",
    "dialogue": _lines(lambda n: f"{'ANNA' if n % 2 else 'BERT'}: I said it {n} times!", 30),
    "chapters": _lines(lambda n: f"00:{n:02}:{n * 7 % 60:02} What we said about the {n}th hat", 20),
    "timeline": _lines(lambda n: f"2019-03-{n % 28 + 1:02} Moved the {n}th box to the attic", 20),
    "birthdays": _lines(lambda n: f"{n % 28 + 1:02}.03.1990 - Anna of the {n}th floor", 30),
    "diary": _lines(
        lambda n: f"2021-03-{n % 28 + 1:02} 14:30 We went out {'and on ' * (n % 5)}home"
    ),
    "chat": _lines(lambda n: f"12/03/2021, 14:{n:02} - Anna: so I said{' and said' * (n % 7)}!"),
    "addresses in sentences": _lines(
        lambda n: (
            f"I gave number {n} the address 10.0.0.{n}, because nobody {'had ' * (n % 5)}asked."
        )
    ),
    "rules": _lines(lambda n: "=" * (n + 1), 30),
    "prose": "It rained, and nobody minded; the river was up by noon. " * 12,
    "hindi": "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती। वह 3 दिन का था।\n" * 9,
    "words that look like numbers": _lines(lambda n: "a cafe added a faded facade", 20),
    "empty": "",
    "spaces": " \n" * 700,
}


@pytest.mark.parametrize("name", DUMPS)
def test_machine_output_is_recognised_with_a_reason(name: str) -> None:
    assert log_reason(DUMPS[name])


@pytest.mark.parametrize("name", NOT_DUMPS)
def test_human_text_is_not_a_log(name: str) -> None:
    assert log_reason(NOT_DUMPS[name]) is None


CONSTANTS = _lines(lambda n: f"  0x{n * 7919:08x}, 0x{n * 104729:08x}, 0x{n * 15485863:08x},")


@pytest.mark.parametrize(
    ("text", "language", "kind"),
    [
        (SOURCE_CODE["c"], "c", "code"),
        (CONSTANTS, "", "code"),
        (DUMPS["hexdump"], "", "log"),
        (DUMPS["syslog"], "bash", "log"),
    ],
)
def test_code_that_is_a_log_becomes_one_and_constants_do_not(
    text: str, language: str, kind: str
) -> None:
    assert [s.kind for s in separate_logs([Segment("code", text, language)])] == [kind]


def test_a_log_within_prose_is_separated_and_the_prose_kept() -> None:
    log = DUMPS["syslog"].split("\n")[:12]
    before, after = Segment("prose", "It broke:\nsee here"), Segment("prose", "So I wept.")
    pieces = [
        [before, *(Segment("prose", line) for line in log), after],
        [before, Segment("prose", "\n".join(log)), after],
    ]
    for segments in pieces:
        assert separate_logs(segments) == [before, Segment("log", "\n".join(log)), after]
    joined = Segment("prose", "\n".join([before.text, *log, after.text]))
    assert separate_logs([joined]) == [before, Segment("log", "\n".join(log)), after]


def test_a_line_or_two_between_do_not_part_a_log() -> None:
    log = DUMPS["syslog"].split("\n")
    log[10] = "  continued on a line of its own"
    assert separate_logs([Segment("prose", "\n".join(log))]) == [Segment("log", "\n".join(log))]


def test_two_logs_with_prose_between_stay_two() -> None:
    log = Segment("prose", DUMPS["syslog"])
    between = [Segment("prose", text) for text in ("That was Monday.", "And then", "came this:")]
    kinds = [s.kind for s in separate_logs([log, *between, log])]
    assert kinds == ["log", "prose", "prose", "prose", "log"]


def test_other_lines_and_short_log_quotations_stay_prose() -> None:
    log_lines = [Segment("prose", line) for line in DUMPS["syslog"].split("\n")[:7]]
    assert separate_logs(log_lines) == log_lines
    listed = [Segment("list", DUMPS["syslog"])]
    assert separate_logs(listed) == listed
    essay = [Segment("prose", f"In 19{n} I bought hat number {n}, and wore it.") for n in range(30)]
    assert separate_logs(essay) == essay
