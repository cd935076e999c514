"""A Blogger blog as Google Takeout exports it, and as older exports did; with edge cases."""

from pathlib import Path
from xml.sax.saxutils import escape

from exports import NON_ASCII

PUBLISHED = {
    "post/101": ("Hats & caps", "2019-12-14"),
    "post/102": ("Zażółć gęślą", "2020-02-29"),
    "page/103": ("About", "2018-01-01"),
}
LEFT_OUT = {"draft": 1, "trashed": 1, "scheduled": 1}
OTHERS = 2

HOME = "https://hats.blogspot.com"
BLOG = "tag:blogger.com,1999:blog-77"
HEAD = f"""<?xml version='1.0' encoding='utf-8'?>
<feed xmlns='http://www.w3.org/2005/Atom' xmlns:blogger='http://schemas.google.com/blogger/2018'>
  <id>{BLOG}</id>
  <title>Hats &amp; Heads</title>
"""
TAIL = "</feed>\n"


def entry(
    identity: str,
    title: str,
    body: str,
    *,
    kind: str = "POST",
    status: str = "LIVE",
    day: str = "2019-12-14",
    file: str = "",
    author: str = "Ann Author",
    more: str = "",
) -> str:
    return f"""  <entry>
    <id>{BLOG}.{identity}</id>
    <blogger:type>{kind}</blogger:type>
    <blogger:status>{status}</blogger:status>
    <author><name>{author}</name><uri></uri><blogger:type>BLOGGER</blogger:type></author>
    <title>{escape(title)}</title>
    <content type='html'>{escape(body)}</content>
    <blogger:metaDescription/>
    <blogger:created>{day}T09:00:00Z</blogger:created>
    <published>{day}T10:00:00.001Z</published>
    <updated>2023-01-01T00:00:00Z</updated>
    <blogger:filename>{file}</blogger:filename>
    <link/>
    {more}
  </entry>
"""


_HATS = f"""<p>{NON_ASCII}: I like hats.</p><blockquote>A quoted line of another's.</blockquote>
<pre>a &lt; b</pre><p>See <a href="{HOME}/2020/02/zazolc.html">the other</a> and
<a href="https://hats.example.net/other.html">elsewhere</a>.</p>"""
_CANARY = "<p>TRASHCANARY should be read by nobody.</p>"
_LABEL = f"<category scheme='{BLOG}' term='Hats'/><category scheme='{BLOG}' term='Zażółć'/>"
ENTRIES = [
    entry("post-101", "Hats & caps", _HATS, file="/2019/12/hats.html", more=_LABEL),
    entry(
        "post-201",
        "",
        "INTRUDER was here",
        kind="COMMENT",
        author="Someone",
        more=f"<blogger:parent>{BLOG}.post-101</blogger:parent>",
    ),
    entry(
        "post-102",
        "Zażółć gęślą",
        f'Lines<br/>with <a href="{HOME}/p/about.html">a page</a>.',
        day="2020-02-29",
        file="/2020/02/zazolc.html",
    ),
    entry("post-202", "", "INTRUDER again", kind="COMMENT", status="PENDING", author="Other"),
    entry(
        "post-103",
        "About",
        f'<p>Start with <a href="{HOME}/2019/12/hats.html">hats</a>.</p>',
        kind="PAGE",
        day="2018-01-01",
        file="/p/about.html",
    ),
    entry("post-104", "A draft", _CANARY, status="DRAFT"),
    entry("post-105", "Thrown away", _CANARY, status="SOFT_TRASHED", file="/2019/12/thrown.html"),
    entry("post-106", "To come", _CANARY, status="SCHEDULED", day="2099-01-01"),
]


def write(folder: Path) -> Path:
    """Writes a Takeout folder into `folder` and returns it."""
    blog = folder / "Takeout" / "Blogger" / "Blogs" / "Hats & Heads"
    blog.mkdir(parents=True)
    (blog / "feed.atom").write_text(HEAD + "".join(ENTRIES) + TAIL, encoding="utf-8")
    (blog / "settings.csv").write_text("blog_name\nHats & Heads\n", encoding="utf-8")
    return folder / "Takeout"


_KIND = "http://schemas.google.com/blogger/2008/kind#"


def _old_entry(identity: str, kind: str, title: str, body: str, more: str = "") -> str:
    return f"""<entry><id>{BLOG}.{identity}</id><published>2009-05-06T23:30:00.000-07:00</published>
<category scheme='http://schemas.google.com/g/2005#kind' term='{_KIND}{kind}'/>{more}
<title type='text'>{escape(title)}</title><content type='html'>{escape(body)}</content>
<author><name>Ann Author</name><email>noreply@blogger.com</email></author></entry>
"""


def write_old(folder: Path) -> Path:
    """The single XML file that Blogger's own export button made."""
    path = folder / "blog-05-06-2015.xml"
    link = f"<link rel='alternate' type='text/html' href='{HOME}/2009/05/old.html'/>"
    label = "<category scheme='http://www.blogger.com/atom/ns#' term='Old'/>"
    draft = (
        "<app:control xmlns:app='http://purl.org/atom/app#'><app:draft>yes</app:draft>"
        "</app:control>"
    )
    path.write_text(
        "<?xml version='1.0' encoding='UTF-8'?><?xml-stylesheet href='x.css' type='text/css'?>"
        f"<feed xmlns='http://www.w3.org/2005/Atom'><id>{BLOG}.archive</id>"
        "<title type='text'>Old hats</title>"
        + _old_entry("layout", "template", "Template", "<html>INTRUDER</html>")
        + _old_entry("settings.BLOG_NAME", "settings", "The name", "Old hats")
        + _old_entry("post-1", "post", "An old post", "<p>Old words.</p>", link + label)
        + _old_entry("post-2", "post", "An old draft", _CANARY, draft)
        + _old_entry("page-3", "page", "Old about", "<p>Me.</p>")
        + _old_entry("post-4", "comment", "", "INTRUDER")
        + "</feed>",
        encoding="utf-8",
    )
    return path
