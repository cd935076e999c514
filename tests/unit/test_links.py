import pytest

from ownwords.archive.document import RawDocument
from ownwords.archive.ingest import LinkResolver

HATS = RawDocument(
    "post/1", "Hats", "", "html", url="https://www.example.org/2020/hats/", aliases=("post/1",)
)
NOTE = RawDocument("notes/A Note.md", "A Note", "", "markdown", aliases=("A Note", "notes/a note"))
CAPS = RawDocument("post/7", "Caps", "", "html", aliases=("/?p=7",))
NAMES = LinkResolver()
for id_, document in (("blog:post/1", HATS), ("blog:post/7", CAPS), ("vault:note", NOTE)):
    NAMES.add(id_, document)
NAMES.add_home("https://example.org")


@pytest.mark.parametrize(
    ("href", "base", "state", "target"),
    [
        ("https://example.org/2020/hats", "", "internal", "blog:post/1"),
        ("http://www.example.org/2020/hats/#the-brim", "", "internal", "blog:post/1"),
        ("/2020/hats/?utm_source=x", "https://example.org/about/", "internal", "blog:post/1"),
        ("../hats/index.html", "https://example.org/2020/coats/", "internal", "blog:post/1"),
        ("ref:post/1", "", "internal", "blog:post/1"),
        ("ref:A%20Note", "", "internal", "vault:note"),
        ("A%20Note.md", "notes/other.md", "internal", "vault:note"),
        ("ref:post/99", "", "dead", ""),
        ("https://example.org/2019/gone/", "", "dead", ""),
        ("missing.md", "notes/other.md", "dead", ""),
        ("https://example.org/tags/hats/", "", "site", ""),
        ("https://example.org/", "", "site", ""),
        ("/media/posts/1/hat.jpg", "https://example.org/", "site", ""),
        ("https://example.org/2020/", "", "site", ""),
        ("https://example.org/2020/03/", "", "site", ""),
        ("https://example.org/?p=7", "", "internal", "blog:post/7"),
        ("/?utm_source=x&p=7#brim", "https://example.org/", "internal", "blog:post/7"),
        ("https://example.org/?p=8", "", "site", ""),
        ("https://elsewhere.net/2020/hats/", "", "external", ""),
        ("mailto:me@example.org", "", "other", ""),
        ("#the-brim", "https://example.org/2020/hats/", "other", ""),
        ("http://[", "", "other", ""),
        ("", "https://example.org/2020/hats/", "other", ""),
    ],
)
def test_where_a_link_leads(href: str, base: str, state: str, target: str) -> None:
    assert NAMES.resolve(href, base) == (state, target)


def test_an_invalid_home_address_is_ignored() -> None:
    resolver = LinkResolver()
    for home in ("http://[", "", "https://hats.example"):
        resolver.add_home(home)
    assert resolver.hosts == frozenset({"hats.example"})
