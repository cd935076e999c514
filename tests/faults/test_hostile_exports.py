"""Files that would exhaust memory, take forever, or lead out of their folder."""

import gzip
import io
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser

from ownwords.archive import readability, untrusted_files
from ownwords.archive.document import RawDocument, SkippedItem
from ownwords.archive.look import look
from ownwords.archive.sources import load_source
from ownwords.archive.untrusted_files import open_packed
from ownwords.core.errors import SourceError

MIB = 1 << 20


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def pack(path: Path, kind: str, size: int) -> Path:
    """A zip or tar with one member of that size."""
    content = (b"0123456789abcdef" * 4096)[: size % 65536] + bytes(range(256)) * (size // 256)
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("input/db.sqlite", content)
    else:
        with tarfile.open(path, "w") as tar:
            info = tarfile.TarInfo("input/db.sqlite")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_large_member_is_streamed(kind: str, tmp_path: Path) -> None:
    def drain(path: Path) -> None:
        with open_packed(path) as members, members.open("input/db.sqlite") as file:
            while file.read(1 << 16):
                pass

    small, large = (pack(tmp_path / f"{n}.{kind}", kind, n * MIB) for n in (4, 16))
    drain(small)  # what is made once
    assert peak_of(lambda: drain(large)) < 1.5 * peak_of(lambda: drain(small)) + 4 * MIB


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_too_large_a_file_is_refused_before_it_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack(tmp_path / f"a.{kind}", kind, 8 * MIB)
    monkeypatch.setattr(untrusted_files, "MAX_MEMBER_BYTES", 2 * MIB)

    def read() -> None:
        with open_packed(path) as members, pytest.raises(SourceError, match="over 2 MiB"):
            members.read("input/db.sqlite")

    assert peak_of(read) < MIB


def test_a_zip_with_a_false_size_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("posts.csv", b"post_id\n" * 200_000)
    data = bytearray(path.read_bytes())
    size = (200_000 * 8).to_bytes(4, "little")
    for lie in (7, 1 << 30):
        offset = data.rfind(size)  # in the central directory, which is what counts
        lying = data[:offset] + lie.to_bytes(4, "little") + data[offset + 4 :]
        path.write_bytes(lying)

        def read() -> None:
            with pytest.raises(SourceError), open_packed(path) as members:
                members.read("posts.csv")

        assert peak_of(read) < 32 * MIB


def tar_member(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    header = tarfile.TarInfo(name)
    header.size, header.type = len(content), kind
    return header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def pax_member(size: int, kind: bytes, name: str) -> bytes:
    return tar_member("pax", f"{size} {name}=".encode().ljust(size - 1, b"x") + b"\n", kind)


def long_named(size: int) -> bytes:
    return tar_member("././@LongLink", b"a" * size, tarfile.GNUTYPE_LONGNAME) + PLAIN


def sparse_file(size: int) -> bytes:
    version = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
    content = b"%d\n" % (size // 4) + b"0\n" * (size // 2)  # the map of its parts
    return tar_member("pax", version, tarfile.XHDTYPE) + tar_member("a.md", content)


PLAIN = tar_member("a.md", b"")
MANY = 32 << 10  # bytes of each of many headers
TARS: dict[str, Callable[[int], bytes]] = {
    "one long name": long_named,
    "many long names": lambda size: long_named(MANY) * (size // MANY),
    "one record": lambda size: pax_member(size, tarfile.XHDTYPE, "comment") + PLAIN,
    "many records for all": lambda size: b"".join(
        pax_member(MANY, tarfile.XGLTYPE, f"key{n}") + PLAIN for n in range(size // MANY)
    ),
    "a sparse file": sparse_file,
    "folders": lambda size: tar_member("folder", b"", tarfile.DIRTYPE) * (size // 512),
}


@pytest.mark.parametrize("kind", TARS)
def test_the_headers_of_a_tar_do_not_fill_the_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_files, "MAX_MEMBERS", 1000)
    monkeypatch.setattr(untrusted_files, "_MAX_NAME_CHARACTERS", MIB, raising=False)

    def peak(size: int) -> int:
        path = tmp_path / f"{size}.tar.gz"
        path.write_bytes(gzip.compress(TARS[kind](size) + bytes(1024), 1))

        def read() -> None:
            with suppress(SourceError), open_packed(path):
                pass

        return peak_of(read)

    assert peak(32 * MIB) < 1.5 * peak(8 * MIB) + MIB


def depth(tree_of: LexborHTMLParser) -> int:
    deepest, node = 0, tree_of.css_first("i")
    while node is not None:
        deepest, node = deepest + 1, node.parent
    return deepest


@pytest.mark.parametrize("tag", ["div", "b", "ul><li"])
def test_html_nesting_is_limited_for_the_parser(tag: str) -> None:
    """Parsing time grows with the square of the depth."""
    depths = {
        depth(readability.parse_page((f"<{tag}>" * n + "<i>word</i>").encode()))
        for n in (1_000, 2_000, 50_000)
    }
    assert len(depths) == 1
    assert max(depths) < 1_000


def test_nested_pages_keep_their_text(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<div>" * 100_000 + "<p>All is here.</p>", encoding="utf-8")
    (document,) = [d for d in load_source("html").read(tmp_path) if isinstance(d, RawDocument)]
    assert "All is here." in document.body


def test_links_out_of_the_folder_are_refused_counted_and_reported(tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("root:x:0:0 should never be read\n" * 9, encoding="utf-8")
    folder = tmp_path / "notes"
    (folder / "below").mkdir(parents=True)
    (folder / "a.md").write_text("# Hats\n\nThey are warm.\n", encoding="utf-8")
    (folder / "b.md").symlink_to(outside)
    (folder / "below" / "c.md").symlink_to(folder / "a.md")  # within: as good as a copy
    (folder / "d.md").symlink_to(tmp_path / "nowhere")
    report = look([folder], workspace=tmp_path / "w")
    assert {post.id for post in report.posts} == {"notes:a.md", "notes:below/c.md"}
    excluded = {item.ref: item.reason for item in report.excluded}
    assert excluded["b.md"] == "a link to a file outside of the folder; not followed"
    assert "cannot be read" in excluded["d.md"]
    assert b"should never be read" not in (tmp_path / "w" / "archive.sqlite").read_bytes()


def test_an_unpacked_export_is_confined_to_its_folder_too(tmp_path: Path) -> None:
    posts = tmp_path / "export" / "posts"
    posts.mkdir(parents=True)
    (tmp_path / "secret.html").write_text("<p>Never read.</p>", encoding="utf-8")
    (posts.parent / "posts.csv").write_text("post_id,is_published\n1.a,true\n", encoding="utf-8")
    (posts / "1.a.html").symlink_to(tmp_path / "secret.html")
    items = list(load_source("substack").read(posts.parent))
    assert not any(isinstance(item, RawDocument) for item in items)
    assert any(isinstance(item, SkippedItem) and "outside" in item.reason for item in items)


def test_a_reason_of_the_system_is_not_called_damage(tmp_path: Path) -> None:
    with (
        pytest.raises(SourceError, match=r"gone\.zip cannot be read: No such file"),
        untrusted_files.open_packed(tmp_path / "gone.zip"),
    ):
        pass
