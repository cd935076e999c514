"""Exports that lie about themselves or lead out of their folder."""

import zipfile
from pathlib import Path

import pytest

from ownwords.archive import untrusted_files
from ownwords.archive.document import RawDocument, SkippedItem
from ownwords.archive.sources import load_source
from ownwords.archive.untrusted_files import open_packed
from ownwords.core.errors import SourceError


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
        with pytest.raises(SourceError), open_packed(path) as members:
            members.read("posts.csv")


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
