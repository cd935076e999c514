"""The contract of every source, tested on an export shaped like the real thing."""

import importlib.util
import random
import shutil
import zipfile
from collections import Counter
from datetime import UTC
from pathlib import Path
from types import ModuleType

import pytest

import damage
from exports import NON_ASCII
from items import documents, skipped
from ownwords.archive import sources
from ownwords.archive.document import ExpectedCount, SourceItem
from ownwords.archive.look import look
from ownwords.archive.segments import parse_body
from ownwords.archive.store import Archive
from ownwords.core.errors import OwnwordsError, SourceError

needs_pypdf = pytest.mark.skipif(importlib.util.find_spec("pypdf") is None, reason="needs pypdf")
every_source = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[needs_pypdf] if name == "pdf" else [])
        for name in sources.SOURCE_NAMES
    ],
)


def export_of(name: str) -> ModuleType:
    return importlib.import_module(f"exports.{name}")


def items_of(name: str, path: Path) -> list[SourceItem]:
    return list(sources.load_source(name).read(path))


@every_source
def test_an_export_is_recognised_and_read_whole(name: str, tmp_path: Path) -> None:
    export = export_of(name)
    path = export.write(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    found = sources.detect_source(path)
    assert found.name == name
    assert len(found.label) > 5
    items = items_of(name, path)
    read = documents(items).values()
    published = [d for d in read if d.status == "published"]
    days = {d.ref: d.date.date().isoformat() if d.date else "" for d in published}
    assert {d.ref: (d.title.strip(), days[d.ref]) for d in published} == export.PUBLISHED
    assert all(d.date is None or d.date.tzinfo is UTC for d in read)
    left_out = Counter(d.status for d in read if d.status != "published")
    assert left_out == vars(export).get("LEFT_OUT", {})
    texts = ["\n".join(s.text for s in parse_body(d.body, d.markup).segments) for d in published]
    assert any(NON_ASCII in text for text in texts)
    expected = sum(item.documents for item in items if isinstance(item, ExpectedCount))
    assert len(read) / 2 <= expected <= len(read) * 2 + 6
    assert items_of(name, path) == items
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    "name", ["blogger", "epub", "ghost", "medium", "publii", "substack", "wordpress"]
)
def test_an_export_reads_the_same_packed_and_unpacked(name: str, tmp_path: Path) -> None:
    path = export_of(name).write(tmp_path)
    folder, packed = tmp_path / "folder", tmp_path / "packed.zip"
    if zipfile.is_zipfile(path):
        shutil.unpack_archive(path, folder, "zip")
    elif path.is_dir():
        shutil.copytree(path, folder)
    else:
        folder.mkdir()
        shutil.copy(path, folder)
    shutil.make_archive(str(packed.with_suffix("")), "zip", folder)
    expected = documents(items_of(name, path))
    for form in (folder, packed):
        assert sources.detect_source(form).name == name
        assert documents(items_of(name, form)) == expected


@every_source
def test_neither_comments_nor_deleted_posts_are_read(name: str, tmp_path: Path) -> None:
    export = export_of(name)
    path = export.write(tmp_path)
    comments = sum(i.count for i in skipped(items_of(name, path)) if i.what == "comment")
    assert comments == vars(export).get("OTHERS", 0)
    workspace = tmp_path / "made.ownwords"
    lines = tmp_path / "documents.jsonl"
    report = look([path], workspace=workspace, export=lines)
    for output in (workspace / "report.html", lines, workspace / "choices.toml"):
        text = output.read_text(encoding="utf-8")
        assert "TRASHCANARY" not in text
        assert "INTRUDER" not in text
    assert "TRASHCANARY" not in str(report.to_dict())
    with Archive(workspace / "archive.sqlite") as archive:
        texts = [document.text() for document in archive.documents()]
    assert len(texts) == len(export.PUBLISHED)
    assert not any("TRASHCANARY" in text or "INTRUDER" in text for text in texts)


@every_source
def test_a_damaged_file_is_one_clear_sentence(name: str, tmp_path: Path) -> None:
    path = export_of(name).write(tmp_path)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    generator, damages = random.Random(name), vars(export_of(name)).get("DAMAGES", 12)
    for file in files:
        data = file.read_bytes()
        cut_off = [data[:cut] for cut in (0, 1, len(data) // 3, len(data) - 1)]
        for damaged in (
            *cut_off,
            *(damage.of_file(file, data, generator) for _ in range(damages // len(files) + 1)),
        ):
            file.write_bytes(damaged)
            sources.load_source(name).detect(path)
            try:
                items_of(name, path)
            except SourceError as error:
                assert error.message
                assert "\n" not in error.message
        file.write_bytes(data)


@pytest.mark.parametrize("name", ["markdown", "html", "text"])
def test_folders_are_walked_safely(name: str, tmp_path: Path) -> None:
    suffix = {"markdown": ".md", "html": ".html", "text": ".txt"}[name]
    folder = tmp_path / "notes"
    folder.mkdir()
    with pytest.raises(SourceError, match="holds no"):
        items_of(name, folder)
    (folder / f"a{suffix}").write_text("<p>Hats are worn on heads.</p>", encoding="utf-8")
    (folder / f"binary{suffix}").write_bytes(b"\0\1" * 99)
    (folder / f"large{suffix}").write_bytes(b"x" * 99)
    (folder / "again").symlink_to(folder)
    (folder / f"gone{suffix}").symlink_to(folder / "nowhere")
    (folder / f"self{suffix}").symlink_to(f"self{suffix}")
    (folder / f"outside{suffix}").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("INTRUDER")
    (folder / f"copy{suffix}").symlink_to(folder / f"a{suffix}")  # within: as good as a copy
    items = items_of(name, folder)
    assert documents(items).keys() == {f"a{suffix}", f"copy{suffix}", f"large{suffix}"}
    left_out = {item.ref for item in skipped(items) if item.ref}
    names = ("binary", "gone", "outside", "self")
    assert left_out == {"again", *(name + suffix for name in names)}


def test_an_unknown_source_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(SourceError, match=r"picture\.png is a picture"):
        sources.detect_source(path)
    (tmp_path / "data.bin").write_bytes(bytes(100))
    with pytest.raises(SourceError, match=r"data\.bin is not of a kind") as caught:
        sources.detect_source(tmp_path / "data.bin")
    assert "WordPress" in caught.value.hint
    with zipfile.ZipFile(tmp_path / "new.zip", "w"):
        pass
    with pytest.raises(SourceError, match=r"nothing to read .*: it is empty"):
        sources.detect_source(tmp_path / "new.zip")
    with pytest.raises(OwnwordsError, match="does not exist"):
        sources.detect_source(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("letter.rtf", "save it as plain text"),
        ("book.mobi", "as EPUB"),
        ("notes.zip", "unpack it"),
        ("diary", "ends in .txt or .md"),
    ],
)
def test_an_almost_readable_source_comes_with_advice(
    tmp_path: Path, name: str, advice: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"PK\x03\x04 or whatever")
    with pytest.raises(SourceError, match="not of a kind") as caught:
        sources.detect_source(path)
    assert advice in caught.value.hint


def test_a_folder_of_single_exports_names_one_of_them(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        sources.detect_source(tmp_path)
    assert caught.value.hint == "the folder is empty"
    feed = export_of("feed").write(tmp_path)
    with pytest.raises(SourceError) as caught:
        sources.detect_source(tmp_path)
    assert str(feed) in caught.value.hint
