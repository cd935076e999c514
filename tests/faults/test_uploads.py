"""Uploads: taken in, or refused with a sentence."""

import gzip
import importlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ownwords.archive import untrusted_files
from ownwords.archive.look import look
from ownwords.archive.settings import ArchiveConfig
from ownwords.core.errors import SourceError
from ownwords.core.workspace import Workspace
from ownwords.serve import intake
from ownwords.serve.api import home as api_home
from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState
from ownwords.serve.settings import ServeSettings

HEADERS = {"Content-Type": "application/octet-stream"}
MUTATIONS = 12


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "here" / "mine.ownwords"


@pytest.fixture
def api(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The server, which inspects here; a test of the process of its own undoes that."""
    monkeypatch.setattr(api_home, "_inspect", intake.inspect_upload)
    state = AppState(Workspace(workspace), ServeSettings(key="", upload_bytes=32 << 20))
    return TestClient(create_app(state), base_url="http://127.0.0.1:8377")


def drop(api: TestClient, name: str, data: bytes | Iterator[bytes]) -> tuple[int, dict[str, Any]]:
    answer = api.post("/api/uploads", params={"name": name}, content=data, headers=HEADERS)
    return answer.status_code, answer.json()


def file_of(name: str, folder: Path) -> Path:
    """An export as one file: a folder is zipped."""
    folder.mkdir(parents=True)
    path: Path = importlib.import_module(f"exports.{name}").write(folder)
    if path.is_file():
        return path
    return Path(shutil.make_archive(str(folder / "packed"), "zip", path))


def left_over(workspace: Path) -> list[Path]:
    return [path for path in (workspace / "uploads").rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["wordpress", "markdown", "epub"])
def test_every_kind_of_export_can_be_uploaded(
    name: str, api: TestClient, workspace: Path, tmp_path: Path
) -> None:
    path = file_of(name, tmp_path / "mine")
    status, source = drop(api, path.name, path.read_bytes())
    assert status == 201, source
    assert source["how"] == "upload"
    assert Path(source["path"]).is_relative_to(workspace)
    assert source["problem"] == ""
    listed = api.get("/api/sources").json()["sources"]
    assert [item["id"] for item in listed] == [source["id"]]
    assert look([Path(source["path"])], workspace=workspace).posts
    headers = {"Content-Type": "application/json"}
    assert api.delete(f"/api/sources/{source['id']}", headers=headers).status_code == 204
    assert not left_over(workspace)
    assert path.exists()


def zipped(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def tarred(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.zip", zipped(**{"../../out.md": b"# x"}), "points outside"),
        ("a.zip", zipped(**{"/etc/out.md": b"# x"}), "points outside"),
        ("a.zip", zipped(**{"a\\..\\..\\out.md": b"# x"}), "points outside"),
        ("a.tar", tarred("../out.md", b"# x"), "points outside"),
        ("a.zip", zipped(**{"a.exe": b"MZ"}), "nothing to read in a.zip: it holds 1 file (1 .exe)"),
        ("a.zip", zipped(**{"a/1.jpg": b"", "a/2.JPG": b"", "b": b""}), "3 files (2 .jpg, 1 wi"),
        ("a.zip", zipped(), "nothing to read in a.zip: it is empty"),
        ("a.pdf", b"%PDF-1.4", "a.pdf is "),
        ("a.md", b"", "is empty"),
        ("a.md", b"---\ntitle: none\n---\n \n", "a.md holds no posts"),
        ("a.md", b"x" * (33 << 20), "at most 33,554,432"),
    ],
)
def test_a_forbidden_upload_is_refused_and_leaves_no_files(
    name: str, data: bytes, message: str, api: TestClient, workspace: Path
) -> None:
    status, answer = drop(api, name, data)
    assert status in (400, 413)
    assert message in answer["error"]["message"]
    assert str(workspace) not in answer["error"]["message"]
    assert not left_over(workspace)
    assert not list(workspace.parent.rglob("out.md"))


@pytest.mark.parametrize(
    "name", ["../../x.md", "..", "/etc/x.md", "", "a\0b.md", ".lock", "x" * 300]
)
def test_no_file_name_leads_out_of_the_workspace(
    name: str, api: TestClient, workspace: Path
) -> None:
    status, source = drop(api, name, b"# A post\n\nWith some words in it.\n")
    if status == 201:
        path = Path(source["path"])
        assert path.is_relative_to(workspace / "uploads")
        assert path.exists()
    else:
        assert not left_over(workspace)


def test_another_site_cannot_upload(api: TestClient, workspace: Path) -> None:
    url = "/api/uploads?name=a.md"
    for headers in (
        {"Content-Type": "multipart/form-data; boundary=x"},
        {**HEADERS, "Origin": "https://evil.example"},
        {**HEADERS, "Sec-Fetch-Site": "cross-site"},
        {**HEADERS, "Host": "evil.example"},
    ):
        assert api.post(url, content=b"# A", headers=headers).status_code in (403, 415, 421)
    assert not workspace.exists()


def test_an_aborted_upload_leaves_no_files(api: TestClient, workspace: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"# A"
        raise OSError("the wire was cut")

    answer = api.post("/api/uploads?name=a.md", content=parts(), headers=HEADERS)
    assert answer.status_code == 500
    assert not left_over(workspace)


def test_an_upload_killed_in_the_middle_is_deleted_a_day_later(
    api: TestClient, workspace: Path
) -> None:
    half = workspace / "uploads" / "abcd" / "posts" / "half.zip"
    status, source = drop(api, "a.md", b"# A\n\nWords of mine.\n")
    assert status == 201
    half.parent.mkdir(parents=True)
    half.write_bytes(b"PK")
    assert drop(api, "b.md", b"# B\n\nMore words.\n")[0] == 201
    assert half.exists()
    for folder in (half.parents[1], Path(source["path"]).parents[1]):
        os.utime(folder, (0, 0))
    assert drop(api, "c.md", b"# C\n\nMore words.\n")[0] == 201
    assert not half.exists()
    assert Path(source["path"]).exists()


def test_a_local_path_is_accepted_only_from_this_machine(workspace: Path, tmp_path: Path) -> None:
    blog = tmp_path / "blog"
    blog.mkdir()
    (blog / "a.md").write_text("# A\n\nWords.\n")
    for host, status in (("127.0.0.1", 201), ("0.0.0.0", 403)):
        settings = ServeSettings(key="k" * 16, host=host)
        app = create_app(AppState(Workspace(workspace), settings))
        client = TestClient(app, base_url="http://127.0.0.1:8377")
        client.headers["Authorization"] = "Bearer " + "k" * 16
        answer = client.post("/api/sources", json={"path": str(blog)})
        assert answer.status_code == status, answer.text
    for path in ("a.md", "~nobody-here/x", str(tmp_path / "none"), "/\0", "/dev/null", ""):
        assert client_at(workspace).post("/api/sources", json={"path": path}).status_code == 400


def client_at(workspace: Path) -> TestClient:
    app = create_app(AppState(Workspace(workspace), ServeSettings(key="")))
    return TestClient(app, base_url="http://127.0.0.1:8377")


def test_json_stays_bounded(api: TestClient) -> None:
    headers = {"Content-Type": "application/json"}
    big = json.dumps({"path": "x" * (5 << 20)})
    assert api.post("/api/sources", content=big, headers=headers).status_code == 413


def test_a_compressed_file_that_was_cut_off_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "posts.tar.gz"
    path.write_bytes(gzip.compress(random.Random(3).randbytes(2000))[:100])
    with pytest.raises(SourceError, match="is not of a kind"):
        intake.inspect_path(path)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_upload_for_which_the_disk_has_no_room_is_refused(
    is_chunked: bool, api: TestClient, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"# A\n\nWords of mine.\n"

    def drop_it() -> tuple[int, dict[str, Any]]:
        return drop(api, "a.md", iter([data]) if is_chunked else data)

    usage = shutil.disk_usage(workspace.parents[1])
    spare = untrusted_files.SPARE_BYTES
    for missing in (1, 0):
        free = usage._replace(free=spare + len(data) - missing)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: free)
        status, answer = drop_it()
        assert status == (400 if missing else 201)
        if missing:
            assert "256 MiB are free" in answer["error"]["message"]
            assert not left_over(workspace)


def test_what_does_not_fit_on_the_disk_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "posts.zip"
    path.write_bytes(zipped(**{"a.md": b"word " * 1000, "b.md": b"word " * 1000}))
    usage = shutil.disk_usage(tmp_path)._replace(free=untrusted_files.SPARE_BYTES + 9_999)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SourceError, match="not enough room"):
        intake.inspect_upload(path, tmp_path / "none", ArchiveConfig())
    monkeypatch.undo()
    assert intake.inspect_upload(path, tmp_path / "none", ArchiveConfig())["has_posts"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("__doc__", "", ""),
        ("_INSPECTION_MINUTES", 0, "a.md takes over 0 minutes to read"),
        ("PYTHON", (sys.executable, "-c", "pass"), "reading a.md ended early"),
    ],
)
def test_an_inspection_is_a_process_whose_end_is_told(
    name: str,
    value: object,
    message: str,
    api: TestClient,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(api_home, name, value)
    status, answer = drop(api, "a.md", b"# A\n\nWords of mine.\n")
    if not message:
        assert (status, answer["label"]) == (201, "a Markdown file")
        return
    assert (status, message in answer["error"]["message"]) == (400, True)
    assert not left_over(workspace)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process")
def test_an_inspection_is_bounded_in_memory() -> None:
    program = (
        "from ownwords.serve import intake\n"
        "intake._MAX_MEMORY_BYTES = 1 << 30\n"
        "intake.inspect_path = lambda *_: bytearray(2 << 30)\n"
        "intake._main('/x/a.zip', 'none', '{}')"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    message = json.loads(answer)["error"]["message"]
    assert message == "a.zip takes more than 1 GiB of memory to read"


def test_inner_zips_with_files_of_the_same_name_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    parts = {f"{n}.zip": zipped(**{"a.md": b"# %d\n\nWords." % n}) for n in (1, 2)}
    path.write_bytes(zipped(**parts))
    with untrusted_files.open_packed(path) as members:
        assert {members.read(name) for name in members.names} == {
            b"# 1\n\nWords.",
            b"# 2\n\nWords.",
        }
    assert len(look([path], workspace=tmp_path / "w").posts) == 2
