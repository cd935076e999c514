"""A feed is fetched from the host the user named, and from no other."""

from pathlib import Path

import httpx
import pytest

from fake_jobs import until
from ownwords.archive.document import RawDocument
from ownwords.archive.look import look
from ownwords.archive.sources import feed
from ownwords.core.errors import SourceError
from ownwords.core.progress import Progress
from ownwords.core.workspace import Workspace
from ownwords.serve import intake as fetching
from ownwords.serve.app_state import AppState
from ownwords.serve.intake import fetch_feed
from ownwords.serve.jobs import JobManager, JobRequest

ITEM = (
    "<item><title>Post {n}</title><link>https://b.example/{n}</link>"
    "<description>{text}</description></item>"
)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PAUSE_S", 0)


def rss(*numbers: int, generator: str = "", following: str = "") -> str:
    items = "".join(ITEM.format(n=n, text=f"Words of the post number {n}. " * 5) for n in numbers)
    link = f'<atom:link rel="next" href="{following}"/>' if following else ""
    return (
        '<?xml version="1.0"?><rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>'
        f"<title>B</title><link>https://b.example/</link>{generator}{link}{items}</channel></rss>"
    )


class Host:
    """Answers from a table of addresses and records the requests."""

    def __init__(
        self, pages: dict[str, str | int], redirects: dict[str, str] | None = None
    ) -> None:
        self.pages, self.redirects = pages, redirects or {}
        self.requests: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        url = str(request.url)
        self.requests.append(url)
        if url in self.redirects:
            return httpx.Response(301, headers={"Location": self.redirects[url]})
        page = self.pages.get(url, 404)
        return httpx.Response(page) if isinstance(page, int) else httpx.Response(200, text=page)


def fetched(host: Host, tmp_path: Path, url: str, name: str = "b.example") -> dict[str, object]:
    return fetch_feed(url, name, tmp_path / "out" / name, Progress(), httpx.MockTransport(host))


def posts_in(found: dict[str, object]) -> int:
    return sum(isinstance(item, RawDocument) for item in feed.read(Path(str(found["path"]))))


def test_a_site_names_its_feed_and_wordpress_its_further_pages(tmp_path: Path) -> None:
    page = '<html><link rel="alternate" type="application/rss+xml" href="/feed/"></html>'
    made_by = "<generator>https://wordpress.org/?v=6.5</generator>"
    host = Host(
        {
            "https://b.example/": page,
            "https://b.example/feed/": rss(5, 4, generator=made_by),
            "https://b.example/feed/?paged=2": rss(3, 2, generator=made_by),
            "https://b.example/feed/?paged=3": rss(1, generator=made_by),
        }
    )
    posts = fetched(host, tmp_path, "https://b.example/")
    assert (posts_in(posts), posts["name"]) == (5, "b.example")
    assert host.requests[-1] == "https://b.example/feed/?paged=4"
    report = look([Path(str(posts["path"]))], workspace=tmp_path / "w.ownwords")
    assert report.totals.posts == 5


def test_a_feed_that_names_its_next_page_is_read_to_the_end(tmp_path: Path) -> None:
    host = Host(
        {
            "https://b.example/feed": rss(3, following="?page=2"),
            "https://b.example/feed?page=2": rss(2, following="https://b.example/feed?page=3"),
            "https://b.example/feed?page=3": rss(1),
        }
    )
    assert posts_in(fetched(host, tmp_path, "https://b.example/feed")) == 3


def test_a_feed_that_repeats_itself_ends(tmp_path: Path) -> None:
    host = Host({"https://b.example/feed": rss(1, following="/feed")})
    assert posts_in(fetched(host, tmp_path, "https://b.example/feed")) == 1
    assert len(host.requests) == 2


@pytest.mark.parametrize(
    "target", ["https://evil.example/feed", "http://127.0.0.1:9/", "file:///etc/passwd", "//x.y/z"]
)
def test_no_redirect_link_or_page_leads_to_another_host(target: str, tmp_path: Path) -> None:
    feed_at = f'<html><link rel="alternate" type="application/atom+xml" href="{target}"></html>'
    for host in (
        Host({}, {"https://b.example/": target}),
        Host({"https://b.example/": feed_at}),
    ):
        with pytest.raises(SourceError, match=r"nothing was fetched from there|not the address"):
            fetched(host, tmp_path, "https://b.example/")
        assert all("b.example" in url for url in host.requests)
    elsewhere = Host({"https://b.example/f": rss(1, following=target)})
    assert posts_in(fetched(elsewhere, tmp_path, "https://b.example/f")) == 1
    assert elsewhere.requests == ["https://b.example/f"]


@pytest.mark.parametrize(
    "url", ["https://other.example/", "ftp://b.example/", "b.example", "http://["]
)
def test_the_address_must_belong_to_the_named_host(url: str, tmp_path: Path) -> None:
    host = Host({})
    with pytest.raises(SourceError):
        fetched(host, tmp_path, url)
    assert not host.requests


def test_its_www_is_the_same_host(tmp_path: Path) -> None:
    host = Host(
        {"https://www.b.example/feed": rss(1)},
        {"http://b.example/feed": "https://www.b.example/feed"},
    )
    assert posts_in(fetched(host, tmp_path, "http://b.example/feed")) == 1


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ({}, "status 404"),
        ({"https://b.example/": "<html>no feed</html>"}, "names none"),
        ({"https://b.example/": "<rss></rss>"}, "holds no posts"),
    ],
)
def test_an_invalid_feed_is_reported_and_leaves_no_files(
    pages: dict[str, str | int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SourceError) as raised:
        fetched(Host(pages), tmp_path, "https://b.example/")
    assert message in raised.value.message
    assert not list(tmp_path.rglob("*.xml"))


def test_too_much_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_MAX_PAGE_BYTES", 100)
    with pytest.raises(SourceError, match="is over"):
        fetched(Host({"https://b.example/": rss(1)}), tmp_path, "https://b.example/")


def test_a_fetched_feed_becomes_one_source(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w.ownwords")
    with workspace.opened():
        workspace.choices.touch()
    state = AppState(workspace)
    out = workspace.root / "uploads" / "ab" / "b.example"
    out.mkdir(parents=True)
    (out / "feed-001.xml").write_text(rss(1))
    printed = {"path": str(out), "name": "b.example", "label": "a feed"}
    state._on_job_done("fetch", printed)
    state._on_job_done("fetch", printed)  # as after a restart of the server
    (source,) = state.sources.sources()
    assert source.how == "feed"
    state.sources.remove(source.id)
    state._on_job_done("fetch", printed)
    assert state.sources.sources() == []


def test_a_missing_network_is_one_sentence(tmp_path: Path) -> None:
    """In a process of its own, as in production, to an address where nobody listens."""
    jobs = JobManager(
        Workspace(tmp_path / "w.ownwords"),
        arguments_of=lambda _: ["http://127.0.0.1:1/feed", "127.0.0.1", str(tmp_path / "out")],
    )
    job = jobs.start(JobRequest("fetch", url="http://127.0.0.1:1/feed", host="127.0.0.1"))
    (job,) = until(lambda: not jobs.running() and jobs.jobs())
    assert job.status == "failed"
    assert job.error is not None
    assert "127.0.0.1:1/feed cannot be reached" in job.error.message
