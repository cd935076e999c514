"""A built blog: posts between menus and footers, comments, listings, an error page."""

from pathlib import Path

from exports import NON_ASCII, write_folder

PUBLISHED = {
    "2020/01/31/hats/index.html": ("On hats", "2020-01-31"),
    "2021/coats.html": ("Coats", "2021-06-02"),
    "2022/shoes.html": ("Shoes & socks", "2022-02-03"),
    "2023/gloves.html": ("Gloves", "2023-03-04"),
    "about.html": ("About", ""),
}
OTHERS = 3

MENU = (
    '<div class="menu"><ul><li><a href="/">Home INTRUDER</a></li>'
    '<li><a href="/about.html">About INTRUDER</a></li></ul></div>'
)
BOX = "<p>INTRUDER is a writer who lives by the sea.</p>"
COMMENTS = (
    '<section id="comments"><h2>Replies</h2><ol class="comment-list"><li class="comment">'
    '<p>INTRUDER agrees.</p><ol class="children"><li class="comment"><p>So does INTRUDER.</p></li>'
    "</ol></li></ol><form><p>INTRUDER, leave a reply</p></form></section>"
)


def page(title: str, head: str, inner: str) -> str:
    """A page of the blog."""
    return (
        f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>{title} | Hats and Heads</title>'
        f"{head}</head><body><header><h1>Hats and Heads</h1></header><nav>INTRUDER menu</nav>{MENU}"
        f"{inner}<footer>INTRUDER footer</footer><script>INTRUDER()</script></body></html>"
    )


FILES = {
    "2020/01/31/hats/index.html": page(
        "On hats",
        '<link rel="canonical" href="https://hats.example.org/2020/01/31/hats/">',
        f"<article><header><h1>On hats</h1></header><p>A hat is a roof one wears. {NON_ASCII}</p>"
        "<blockquote><p>A quoted line.</p><footer>Ann Other</footer></blockquote>"
        '<pre><code class="python">hat = 1  <span class="comment"># a hat</span></code></pre>'
        f'<p>See <a href="../../../../2021/coats.html">coats</a>.</p>{BOX}</article>{COMMENTS}',
    ),
    "2021/coats.html": page(
        "Coats",
        '<meta property="article:published_time" content="2021-06-02T08:00:00+00:00">'
        '<meta property="og:title" content="Coats"><meta property="article:tag" content="Clothes">',
        '<div class="entry-content"><p>After <a href="/2020/01/31/hats/">hats</a>, coats.</p>'
        f'{BOX}</div><div class="comments"><article class="comment">INTRUDER</article></div>',
    ),
    "2022/shoes.html": page(
        "Shoes &amp; socks",
        '<script type="application/ld+json">{"@graph": [{"@type": "BlogPosting",'
        ' "datePublished": "2022-02-03"}]}</script>',
        "<main><h1>Shoes &amp; socks</h1><p>Next to"
        ' <a href="https://hats.example.org/2020/01/31/hats/">hats</a>, shoes.</p>'
        f"{BOX}</main>",
    ),
    "2023/gloves.html": page(
        "Gloves",
        "",
        '<div><h2>Gloves</h2><time datetime="2023-03-04">4 March</time><p>Two, mostly.</p>'
        f"{BOX}</div>",
    ),
    "about.html": page("About", "", f"<main><p>I write about what one wears.</p>{BOX}</main>"),
    "index.html": page(
        "Home",
        '<meta property="og:type" content="website">',
        "".join(
            f'<article><h2><a href="/{n}.html">INTRUDER {n}</a></h2><p>An excerpt.</p></article>'
            for n in range(6)
        ),
    ),
    "tags/hats/index.html": page("hats", "", "<main><p>INTRUDER</p></main>"),
    "page/2/index.html": page("Page 2", "", "<main><p>INTRUDER</p></main>"),
    "style.css": "body { color: INTRUDER }",
    "404.html": page("Not found", "", "<main><p>INTRUDER is not here.</p></main>"),
}


def write(folder: Path) -> Path:
    """Write the folder of the built blog."""
    return write_folder(folder / "built", FILES)
