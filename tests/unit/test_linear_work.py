"""The work on a text grows with its length: none, however odd, takes the square of it."""

import importlib
import shutil
import zipfile
from collections.abc import Callable, Iterable
from functools import cache
from html import escape
from itertools import count
from pathlib import Path

import pytest

from exports import NON_ASCII
from growth import growth
from ownwords.archive import sources
from ownwords.archive.corpus import TrainingText
from ownwords.archive.document import Document, Markup, Segment
from ownwords.archive.features import extract_features
from ownwords.archive.segments import parse_body
from ownwords.ask.citations import AnswerBuilder, parse_answer
from ownwords.ask.passages import units
from ownwords.ask.query import Query
from ownwords.base import catalogue
from ownwords.core.text import sentences
from ownwords.drafts.check import AuthorStyle
from ownwords.drafts.notes import sentences_of_note
from ownwords.drafts.rewriting import Habits, rewrite
from ownwords.evaluation.style import ReferenceAuthors
from ownwords.tokenizers.tokenizer import load
from sample_passages import PASSAGES

PLAIN = "On Monday I went out, and 3 of the lupins weren't there. " * 15
HABITS = Habits([PLAIN])
POSTS = [TrainingText(str(n), PLAIN, "Lupins") for n in range(8)]
COMMON = (
    *(" ", "\n", " \n", "-", "—", "11:11 ", "http://", "(", "[", "<", '"', "“", "'", "1", "1,"),
    *("a", "a ", "a.", "A. ", ". ", "> ", "\n> ", "`", "_"),
)
PIECES = (
    *COMMON,
    *("\t", "\r", "\xa0", "=", "->", "\n- ", "\n\n", "1.", "20", "http://a", "/", "a/", "a-", "a@"),
    *("{", "{{", "{{<", "{% a ", "{#", "<a ", "</", "”", "«", "’", '="', "` `` ", "```\n", "~~~\n"),
    *("*", "**a ", "a_", "$$", "%%", "&", "#", "\n# a", "|", "\n|-|", ":", ": a\n", "…", "é", "日"),
    *("<!--", "<p>", "<div>", "<ul><li>", "<table><tr><td>", "<blockquote>", "<b>", "<div><b id=>"),
    *("<form><div></form>", "<span><div></span>", "<think>", "[^1]: a\n", "a\n: b\n", "==a", "\\"),
    *("\0", "\u200b", "Ã¢", "[caption]", "[a=", "\x1b[", "[[", "](", "![", "[1: ", "On a\n"),
)


def grown(
    call: Callable[[str], object], pieces: Iterable[str], size: int
) -> list[tuple[str, float]]:
    """The pieces whose repetition takes more than in proportion, and how much.

    A beginning may stand before a piece: "# a… " are spaces after "# a".
    """
    found = []
    for each in pieces:
        begin, _, piece = each.rpartition("…")
        if (times := growth(call, piece or each, size, begin)) > 9:
            found.append((each, times))
    return found


def body(markup: Markup) -> Callable[[str], object]:
    return lambda text: parse_body(text, markup)


def features(text: str) -> object:
    return extract_features(
        Document("a", text[:80], (Segment("prose", text), Segment("code", text)))
    )


@cache
def style() -> AuthorStyle:
    return AuthorStyle.learn(POSTS, ReferenceAuthors.load())


def check(text: str) -> object:
    return style().check(text)


def streamed(text: str) -> None:
    builder = AnswerBuilder(PASSAGES, "What do I do?", lambda _: None)
    for at in range(0, len(text), 4):
        builder.add(text[at : at + 4])


def question(text: str) -> object:
    return Query.of(text)


@pytest.mark.parametrize(
    ("call", "pieces"),
    [
        pytest.param(body("html"), PIECES, id="html"),
        pytest.param(body("markdown"), COMMON, id="markdown"),
        pytest.param(body("text"), PIECES, id="text"),
        pytest.param(features, PIECES, id="features"),
        pytest.param(sentences, PIECES, id="sentences"),
        pytest.param(sentences_of_note, PIECES, id="notes"),
        pytest.param(
            lambda text: rewrite(text, HABITS), (*COMMON, "[[", "{{<", "<a ", "`a "), id="rewrite"
        ),
        pytest.param(check, (" ", "\n", "11:11 ", "http://", "# a\n"), id="check"),
        pytest.param(units, ("```a\n", "```\n", "a\n"), id="passage"),
        pytest.param(streamed, ('You do [1: "a"].\n', "]"), id="streamed answer"),
        pytest.param(question, PIECES, id="question"),
        pytest.param(lambda text: parse_answer(text, PASSAGES), COMMON, id="answer"),
        pytest.param(load(catalogue.shipped()).encode, COMMON, id="write"),
    ],
)
def test_work_grows_with_the_text(call: Callable[[str], object], pieces: tuple[str, ...]) -> None:
    assert grown(call, pieces, 1000) == []


def put(path: Path, old: str, new: str) -> int:
    """Put a text in place of another into the files of an export, also in a zip; how often."""
    times = 0
    for file in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
        if zipfile.is_zipfile(file):
            inside = file.with_name(f"{file.name}.d")
            shutil.unpack_archive(file, inside, "zip")
            times += put(inside, old, new)
            Path(shutil.make_archive(str(file), "zip", inside)).replace(file)
            shutil.rmtree(inside)
            continue
        quoted = escape(new, quote=False) if file.suffix in (".xml", ".xhtml") else new
        data = file.read_bytes()
        times += data.count(old.encode())
        file.write_bytes(data.replace(old.encode(), quoted.encode()))
    return times


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("mail", ("On a\n", "\nFrom ")),
        ("markdown", ("\n# a… ", "\n{% link a… ", "\n{{< ref a… ", "\n{{<… ", "[[", "\n# a…_")),
        ("html", ("<div>", "<table><tr><td>", "<ul><li>", "<div><p>a")),
        ("epub", ("<div/>", "[")),
        ("blogger", ("http://a/", "http://")),
        *((name, ()) for name in ("wordpress", "feed", "notion", "office", "text")),
    ],
)
def test_reading_grows_with_the_text(name: str, odd: tuple[str, ...], tmp_path: Path) -> None:
    export = importlib.import_module(f"exports.{name}")
    folders = (tmp_path / str(number) for number in count())
    old = "And a coat is a wall." if name == "mail" else NON_ASCII

    def read(text: str) -> object:
        (folder := next(folders)).mkdir()
        path = export.write(folder)
        assert put(path, old, text)
        return list(sources.load_source(name).read(path))

    assert grown(read, (" ", "11:11 ", "-", '"', *odd), 4000) == []


def test_splitting_a_mailbox_grows_with_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "a.mbox"

    def read(text: str) -> object:
        path.write_text(f"From a 11:11\nFrom: a@x\nSubject: Hats\n\nWords.\n\nFrom {text}")
        return list(sources.load_source("mail").read(path))

    assert grown(read, ("11:11 ",), 20_000) == []
