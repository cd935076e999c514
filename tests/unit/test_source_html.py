from pathlib import Path

import pytest

from exports import html as export
from items import skipped
from ownwords.archive import readability
from ownwords.archive.document import RawDocument, SiteInfo
from ownwords.archive.sources import html


def documents(path: Path) -> dict[str, RawDocument]:
    return {item.ref: item for item in html.read(path) if isinstance(item, RawDocument)}


def read_one(folder: Path, page: str | bytes, name: str = "page.html") -> RawDocument:
    path = folder / name
    path.write_bytes(page.encode() if isinstance(page, str) else page)
    (document,) = documents(path).values()
    return document


def test_articles_are_extracted_without_the_surrounding_page(tmp_path: Path) -> None:
    posts = documents(export.write(tmp_path))
    assert not [ref for ref, post in posts.items() if "INTRUDER" in post.body]
    hats = posts["2020/01/31/hats/index.html"]
    assert "<footer>Ann Other</footer></blockquote>" in hats.body  # of the quote, not of the page
    assert '<span class="comment"># a hat</span>' in hats.body  # of the code, not of a reader
    assert posts["2021/coats.html"].tags == ("Clothes",)


def test_removed_elements_are_counted(tmp_path: Path) -> None:
    items = list(html.read(export.write(tmp_path)))
    counts = {(i.what, i.reason.split(":")[0]): i.count for i in skipped(items)}
    assert counts["comment", "other people's words"] == 3
    assert counts["page", "a listing page"] == 3
    assert counts["page", "an error page"] == 1
    assert counts["block", "it repeats on at least half of the pages"] == 7
    assert SiteInfo("Hats and Heads") in items


def test_in_a_small_folder_nothing_counts_as_a_repeated_footer(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.html").write_text(
            f"<main><h1>{name}</h1><p>The same line.</p></main>", encoding="utf-8"
        )
    assert all("The same line." in post.body for post in documents(tmp_path).values())


@pytest.mark.parametrize(
    "around",
    [
        "<article>{}</article>",
        "<main>{}</main><aside>INTRUDER</aside>",
        '<div class="post-content">{}</div><div class="widget">INTRUDER</div>',
        '<main><article>{}</article><article class="card"><p>INTRUDER</p></article></main>',
        '<div id="nav">INTRUDER</div>{}<div id="footer">INTRUDER</div>',
        '<div class="e-content">{}<form>INTRUDER</form></div>',
        "<nav>INTRUDER</nav><header>INTRUDER</header>{}<footer>INTRUDER</footer>",
    ],
)
def test_where_the_article_is(tmp_path: Path, around: str) -> None:
    text = "<p>Some words of an article, and then some more of them to be sure.</p>"
    page = f"<html><body>{around.format(text)}<script>INTRUDER</script></body></html>"
    body = read_one(tmp_path, page).body
    assert "Some words" in body
    assert "INTRUDER" not in body


@pytest.mark.parametrize(
    ("head", "inner", "title"),
    [
        ('<meta property="og:title" content="A"><title>B | C</title>', "", "A"),
        ("<title>Hats | The Blog</title>", "<h1>Hats</h1>", "Hats"),
        ("<title>Hats | The Blog</title>", "<header><h1>The Blog</h1></header>", "Hats"),
        ("<title>Half-time - a story</title>", "", "Half-time - a story"),
        ("", "<h2>Under a heading</h2>", "Under a heading"),
        ("", "", "my page"),
    ],
)
def test_the_title(tmp_path: Path, head: str, inner: str, title: str) -> None:
    page = f"<html><head>{head}</head><body>{inner}<p>Text.</p></body></html>"
    assert read_one(tmp_path, page, "2020-01-31-my-page.html").title == title


@pytest.mark.parametrize(
    "head",
    [
        '<meta property="article:published_time" content="2020-01-31T10:00:00Z">',
        '<script type="application/ld+json">[{"datePublished": "2020-01-31"}]</script>',
        '<script type="application/ld+json">{broken</script><time datetime="2020-01-31">',
        '<meta name="dc.date" content="January 31, 2020">',
        "<!-- date: 2020-01-31 -->",
        '<time datetime="nonsense">x</time><meta name="date" content="2020-01-31">',
    ],
)
def test_the_date(tmp_path: Path, head: str) -> None:
    date = read_one(tmp_path, f"<html><head>{head}</head><body><p>Text.</p></body></html>").date
    assert date is not None
    assert date.date().isoformat() == "2020-01-31"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("<meta charset=iso-8859-2><p>żółw".encode("iso-8859-2"), "żółw"),
        ("<meta charset=latin1><p>“Hat”".encode("cp1252"), "“Hat”"),
        ("\ufeff<meta charset=cp1252><p>żółw".encode(), "żółw"),
        ("<meta charset=punycode><p>żółw".encode(), "żółw"),
        ("<meta charset=shift_jis><p>日本語".encode("shift_jis"), "日本語"),
    ],
)
def test_the_encoding(tmp_path: Path, data: bytes, text: str) -> None:
    assert text in read_one(tmp_path, data).body


@pytest.mark.parametrize(
    "inner",
    [
        "<main>"
        + "".join(f"<p><a href='/{n}'>A title {n}</a> 2020</p>" for n in range(9))
        + "</main>",
        "".join(
            f"<article><h2><a href='/{n}'>T</a></h2><p>Begins so</p></article>" for n in range(4)
        ),
    ],
)
def test_a_listing_page_is_not_a_post(tmp_path: Path, inner: str) -> None:
    (tmp_path / "all.html").write_text(inner, encoding="utf-8")
    (tmp_path / "post.html").write_text("<p>Text.</p>", encoding="utf-8")
    assert list(documents(tmp_path)) == ["post.html"]


def test_comments_are_counted_one_by_one() -> None:
    def count(inner: str) -> int:
        return readability.remove_comments(readability.parse(inner))

    assert count(
        '<div id="comments"><div class="comment">a</div><div class="comment">b</div></div>'
    )
    assert count('<ol class="comment-list"><li>a<ol><li>b</li></ol></li></ol>') == 2
    assert count('<div id="disqus_thread"><noscript>Please enable it</noscript></div>') == 0
    assert count('<div id="respond"><p>Leave a reply</p></div>') == 0
    assert count('<section class="comments"><p>No comments yet</p></section>') == 0
    assert count(f'<section class="comments"><p>{"word " * 30}</p></section>') == 1


@pytest.mark.parametrize(
    "address", ["http://[", "https://", "/hats/", "javascript:x", "http://a b/"]
)
def test_a_relative_canonical_address_is_ignored(tmp_path: Path, address: str) -> None:
    assert read_one(tmp_path, f'<link rel=canonical href="{address}"><p>Text.</p>').url == ""


def test_permalink_signs_are_not_part_of_headings(tmp_path: Path) -> None:
    heading = '{}<a class="headerlink" href="#x" title="Permanent link">&para;</a>'
    document = read_one(
        tmp_path,
        f"<!doctype html><title>Hats</title><main><h1>{heading.format('On hats')}</h1><p>Mine.</p>"
        f"<h2>{heading.format('More')}</h2><p>More of mine.</p></main>",
    )
    assert document.title == "On hats"
    assert "¶" not in document.body
    assert "<h2>More</h2>" in document.body


def test_a_post_of_links_with_words_about_them_is_a_post(tmp_path: Path) -> None:
    line = "<p><a href='/x'>A find</a>: I liked this one for its long and winding sentences.</p>"
    (tmp_path / "links.html").write_text(f"<main>{line * 9}</main>", encoding="utf-8")
    assert list(documents(tmp_path)) == ["links.html"]
