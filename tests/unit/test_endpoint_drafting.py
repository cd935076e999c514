"""Drafts by a model on a server: what it writes is cleaned, judged, and lost by no failure."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fake_endpoint import FakeEndpoint, breaks_off, chunk, event, fake_endpoint, is_silent, sends
from ownwords.archive.look import look
from ownwords.ask import servers
from ownwords.ask.servers import Endpoint, EndpointError
from ownwords.cli.main import main
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.drafts.check import Check, CheckedSentence, Range, WrittenBefore
from ownwords.drafts.drafting import DraftLine, Notes
from ownwords.drafts.endpoint_drafting import EndpointWriter, written_prose
from ownwords.drafts.rewriting import Habits, rewrite

BLOG = Path(__file__).resolve().parents[2] / "examples" / "blog"
NOTES = "# Lost\ncount 14 umbrellas at Leeds station\nnot collected\n\nrain at Crewe in March"
FIRST = "We counted 14 umbrellas at Leeds station. They were not collected."
SECOND = "It was rain all day at Crewe in March."
UMBRELLAS = "# Lost\ncount 14 umbrellas at Leeds station\nnot collected"
RANGE = Range(0.9, 0.5, 1.0)


class FakeStyle:
    """A judge that finds a fault in a text that has its word."""

    def check(self, text: str) -> Check:
        marked = CheckedSentence(text, 0, len(text), 0.1, True, ("you never write it",))
        return Check(
            sentence="It is so.",
            is_long_enough=True,
            yours=0.2 if "do not" in text else 0.8,
            above=0.99 if "dearest" in text else 0.5,
            machine=0.95 if "Furthermore" in text else 0.1,
            own_machine=0.0,
            own=RANGE,
            others=RANGE,
            sentences=(marked,) if "leverage" in text else (),
            written_before=(WrittenBefore("a b c d e f g h i j", "1", "Old", "", ""),)
            if "copied" in text
            else (),
        )


@contextmanager
def writing(
    monkeypatch: pytest.MonkeyPatch,
    *replies: Any,  # noqa: ANN401
    **more: Any,  # noqa: ANN401
) -> Iterator[tuple[EndpointWriter, FakeEndpoint]]:
    with fake_endpoint(monkeypatch, replies=list(replies), pieces=40) as fake:
        more.setdefault("learn", FakeStyle)
        more.setdefault("card", lambda words: "Card. " * words)
        yield EndpointWriter(Endpoint(fake.url, "Ollama", model="m"), **more), fake


def drafted(writer: EndpointWriter, notes: str = NOTES, **how: Any) -> list[DraftLine]:  # noqa: ANN401
    return [*writer.paragraphs(Notes.parse(notes), **how)]


def test_a_draft_is_written_paragraph_by_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(monkeypatch, FIRST, SECOND) as (writer, fake):
        lines = drafted(writer, seed=3)
        first, second = fake.bodies()
    assert "".join(f"{line.before}{line}" for line in lines) == f"Lost\n\n{FIRST}\n\n{SECOND}"
    assert not any(line.doubts for line in lines)
    system, asked = (message["content"] for message in second["messages"])
    assert system == first["messages"][0]["content"]  # so that a server reads it once
    assert system.endswith("Card. " * 1200)
    assert "- rain at Crewe in March" in asked and FIRST in asked and "umbrellas\n" not in asked
    with writing(monkeypatch, SECOND) as (writer, fake):
        assert drafted(writer, begun=lines[:1]) == lines
        assert len(fake.bodies()) == 1
        with pytest.raises(OwnwordsError, match="have changed"):
            drafted(writer, begun=lines[1:])


@pytest.mark.parametrize(
    "wrapped",
    [
        "<think>Who counts? 15 of them.</think>\n\n{}",
        "So 15 it is.</think>{}",
        "```markdown\n{}\n```",
        "Sure! Here's the paragraph:\n\n{}",
        "Here is a paragraph in the author's voice: {}",
        "**Paragraph:** {}",
        "Perhaps not in the text: {}",
        "# Lost\n\n{}\n\n---\nLet me know if you want it shorter!",
        "“{}”",
        "{}\n\nNote: I kept the number.",
        "{} And then the\x3c|im_end|>",
    ],
)
def test_what_stands_around_an_answer_is_dropped(
    wrapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(monkeypatch, wrapped.format(SECOND)) as (writer, _):
        (line,) = drafted(writer, "rain at Crewe in March")
    assert (line.text, line.kept, line.doubts) == (SECOND, True, ())


@pytest.mark.parametrize(
    "text", [FIRST, "Here is where I live: a lane in Leeds.", "“We will not,” he said."]
)
def test_prose_is_left_as_it_is(text: str) -> None:
    assert written_prose(text) == text


def test_the_best_of_several_tries_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = "We counted 41 umbrellas at Leeds station."
    machine, far = f"Furthermore, {FIRST[0].lower()}{FIRST[1:]}", f"My dearest. {FIRST}"
    for bad, problem in ((lost, "14"), (machine, "machine"), (far, "far")):
        with writing(monkeypatch, bad, FIRST, "Never asked for.") as (writer, fake):
            (line,) = drafted(writer, UMBRELLAS)
            assert line.text == FIRST, problem
            assert len(fake.bodies()) == 2
            assert len({body["seed"] for body in fake.bodies()}) == 2


def test_what_cannot_be_shown_to_be_kept_is_mended_once_and_then_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = "We leverage 41 umbrellas at Leeds station with Hale. They were not collected."
    with writing(monkeypatch, lost) as (writer, fake):
        (line,) = drafted(writer, UMBRELLAS)
        remarks = fake.bodies()[-1]["messages"][-1]["content"]
        assert len(fake.bodies()) == 8 + 2
    assert line.kept and line.text == lost
    assert [str(doubt) for doubt in line.doubts] == [
        "perhaps not in the text: count 14 umbrellas at Leeds station",
        "not in the notes: 41",
        "not in the notes: hale",
    ]
    assert all(str(doubt) in remarks for doubt in line.doubts) and "you never write it" in remarks
    with writing(monkeypatch, *[lost] * 8, FIRST) as (writer, fake):
        (line,) = drafted(writer, UMBRELLAS)
        assert (line.text, line.doubts, len(fake.bodies())) == (FIRST, (), 9)
    with writing(monkeypatch, f"{FIRST} They were copied.") as (writer, _):
        (line,) = drafted(writer, UMBRELLAS)
    assert [str(doubt) for doubt in line.doubts] == ["copied from “Old”: a b c d e f g h i j"]


def test_what_is_in_no_note_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    padding = "This can lead to a rich variety of thoughtful outcomes for everybody involved."
    with writing(monkeypatch, f"{FIRST} {padding}") as (writer, fake):
        (line,) = drafted(writer, UMBRELLAS)
        assert (line.text, line.doubts, len(fake.bodies())) == (FIRST, (), 1)
    with writing(monkeypatch, padding) as (writer, _):
        (line,) = drafted(writer, UMBRELLAS)
        assert not line.kept  # nothing that was written is of these notes
    german = "Vierzehn Schirme lagen am Ende noch immer unbeachtet auf dem Bahnsteig."
    with writing(monkeypatch, german) as (writer, _):
        (line,) = drafted(writer, "14 Schirme, Bahnsteig, keiner kam")
        assert line.text == german  # only the forms of English words are known


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (is_silent, "did not finish its answer: timed out"),
        (breaks_off("We counted 14 umb"), "did not finish its answer"),
        (sends(b"data: {not json\n\n"), "did not answer with JSON"),
        ((404, {"error": {"message": "model 'm' not found"}}), "model 'm' not found"),
        ((500, {"error": "out of memory"}), "out of memory"),
    ],
)
def test_a_failing_server_gives_one_sentence_and_loses_nothing(
    reply: Any,  # noqa: ANN401
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if reply is is_silent:
        monkeypatch.setattr(servers, "_SILENCE_S", 3.0)
    with writing(monkeypatch, FIRST, reply) as (writer, _):
        lines = writer.paragraphs(Notes.parse(NOTES))
        assert next(lines).text == FIRST
        with pytest.raises(EndpointError, match=why):
            next(lines)
    with writing(monkeypatch, "We counted 14.", reply) as (writer, _):
        (line,) = drafted(writer, UMBRELLAS)  # the first try is better than none
        assert line.text == "We counted 14." and line.doubts


@pytest.mark.parametrize(
    "rubbish", ["", "%%% 3 { ] ~~ 9", "Sure!", "<think>Hm", "no end, and so on"]
)
def test_a_paragraph_without_a_usable_answer_stays_a_note(
    rubbish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(monkeypatch, rubbish, rubbish, rubbish, SECOND) as (writer, fake):
        first, second = drafted(writer)
        assert len(fake.bodies()) == 4
    assert str(first) == "[count 14 umbrellas at Leeds station\nnot collected]"
    assert second.text == SECOND


def test_a_model_that_thinks_beyond_its_limit_gets_a_longer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thinking = event({"choices": [{"delta": {"reasoning": "hm"}}]}) + chunk("", "length")
    with writing(monkeypatch, sends(thinking), FIRST) as (writer, fake):
        assert drafted(writer, UMBRELLAS)[0].text == FIRST
        short, long = (body["max_tokens"] for body in fake.bodies())
    assert long > short + 1000


def test_the_card_is_shortened_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = (400, {"error": "the prompt exceeds the available context size"})
    with writing(monkeypatch, refusal, refusal, FIRST) as (writer, fake):
        assert drafted(writer, UMBRELLAS)[0].text == FIRST
        assert [prompt.count("Card.") for prompt in fake.prompts()] == [1200, 600, 300]
    with writing(monkeypatch, refusal) as (writer, _), pytest.raises(OwnwordsError, match="long"):
        drafted(writer)


def test_each_try_is_shown_as_it_grows_and_leaving_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str]] = []

    def on_text(number: int, text: str) -> None:
        seen.append((number, text))
        if number == 2:
            raise KeyboardInterrupt

    with writing(monkeypatch, "One. Two.", FIRST, on_text=on_text) as (writer, fake):
        with pytest.raises(KeyboardInterrupt):
            drafted(writer)
        assert len(fake.bodies()) == 2
    assert seen[0] == (1, "One. Two.")


def test_without_a_judge_the_facts_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn() -> Any:  # noqa: ANN401
        raise CorpusError("drafts can be checked in English only")

    with writing(monkeypatch, "We counted 14.", FIRST, learn=learn) as (writer, _):
        assert drafted(writer, UMBRELLAS)[0].text == FIRST


# ---- sentences of a draft

DRAFT = "Copper does not rust at all, and we do not paint it. We do not know who found that out."
BETTER = "Copper doesn't rust at all, so nobody here has to paint it, as we don't."


def rewritten(writer: EndpointWriter, text: str = DRAFT) -> tuple[list[str], str]:
    found = rewrite(text, Habits([]), endpoint=writer)
    return [each.after for each in found.sentences], found.problem


def test_a_sentence_is_rewritten_where_the_model_finds_the_same_meaning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = DRAFT.split(". ", maxsplit=1)[0] + ".", "We do not know who found that out."
    anew, kept = (
        "Copper doesn't rust at all, and we don't paint it.",
        "We don't know who found that out.",
    )
    with writing(monkeypatch, anew, "SAME.", kept, "Same") as (writer, fake):
        assert rewritten(writer) == ([anew, kept], "")
        assert second not in fake.prompts()[1] and anew in fake.prompts()[1]
    differs = "The second leaves out who paints it."
    with writing(monkeypatch, anew, differs) as (writer, fake):
        assert rewritten(writer)[0] == [first, second]
    lost = "Copper doesn't rust at all, and 40 of us don't paint it."
    with writing(monkeypatch, lost) as (writer, fake):  # the facts are judged before it is asked
        assert rewritten(writer)[0] == [first, second]
        assert len(fake.bodies()) == 6


def test_a_server_that_dies_in_the_middle_leaves_the_rest_of_the_draft(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    anew = "Copper doesn't rust at all, and we don't paint it."
    with writing(monkeypatch, anew, "SAME", breaks_off("We d")) as (writer, fake):
        texts, problem = rewritten(writer)
        assert (
            texts == [anew, "We do not know who found that out."]
            and "did not finish its answer" in problem
        )
        assert len(fake.bodies()) == 3
    with writing(monkeypatch, breaks_off("C")) as (writer, _), pytest.raises(EndpointError):
        rewritten(writer)


# ---- the verbs


def test_the_verb_prints_what_was_written_before_a_server_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, notes = tmp_path / "blog.ownwords", tmp_path / "notes.txt"
    look([BLOG], workspace=place)
    notes.write_text(NOTES, "utf-8")
    with fake_endpoint(monkeypatch, replies=[FIRST, breaks_off("It was")]) as fake:
        arguments = ["draft", str(notes), "--with", fake.url, "--model", "m"]
        arguments += ["--workspace", str(place)]
        capsys.readouterr()
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == f"Lost\n\n{FIRST}\n"
        assert "Writing with m at" in printed.err and "did not finish its answer" in printed.err
        fake.replies[:] = [FIRST, breaks_off("It was")]
        assert main([*arguments, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (
            found["text"] == f"Lost\n\n{FIRST}" and "did not finish its answer" in found["problem"]
        )
        draft = tmp_path / "draft.md"
        draft.write_text("I can't say.", "utf-8")
        fake.replies[:] = ["It is said."]
        capsys.readouterr()
        rewriting = ["rewrite", str(draft), "--with", fake.url, "--workspace", str(place)]
        assert main(rewriting) == 0
        assert capsys.readouterr().out == "I can't say.\n"
