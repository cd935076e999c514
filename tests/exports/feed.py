"""An RSS feed saved from a blog, with an excerpt, a reply by somebody else, and a draft."""

from pathlib import Path

from exports import NON_ASCII

HOME = "https://hats.example.org"
PUBLISHED = {
    f"entry/{HOME}/?p=1": ("Fish & hats", "2020-01-31"),
    f"entry/{HOME}/?p=2": ("Coats", "2021-06-03"),
    f"entry/{HOME}/?p=3": ("Only a beginning", "2022-02-03"),
}
LEFT_OUT = {"draft": 1}
OTHERS = 1

RSS = f"""<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet href="/feed.xsl" type="text/xsl"?>
<!-- A comment before <anything> -->
<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"
  xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:app="http://www.w3.org/2007/app"
  xmlns:thr="http://purl.org/syndication/thread/1.0">
<channel>
<title>Hats &amp; Heads</title><link>{HOME}/</link><description>Of hats</description>
<item><title>Fish &amp; hats</title><link>{HOME}/2020/01/hats/</link>
<guid isPermaLink="false">{HOME}/?p=1</guid><pubDate>Fri, 31 Jan 2020 10:00:00 +0000</pubDate>
<dc:creator>Ann Author</dc:creator><category>Hats</category><category>Fish</category>
<description>A hat is&amp;#8230;</description>
<content:encoded><![CDATA[<p>A hat is a roof one wears. {NON_ASCII}</p>
<blockquote><p>A quoted line.</p></blockquote>
<pre><code>hat  = 1 &lt; 2
<!ENTITY shows="nothing">
</code></pre>
<p>See <a href="/2021/06/coats/">coats</a>.</p>
<p>The post <a href="{HOME}/2020/01/hats/">Fish</a> appeared first on
<a href="{HOME}">Hats</a>.</p>
]]></content:encoded></item>
<item><title>Coats</title><link>{HOME}/2021/06/coats/</link>
<guid isPermaLink="false">{HOME}/?p=2</guid><pubDate>Wed, 02 Jun 2021 23:30:00 -0200</pubDate>
<description>&lt;p&gt;After
&lt;a href="{HOME}/2020/01/hats/"&gt;hats&lt;/a&gt;, coats.&lt;/p&gt;</description>
</item>
<item><title>Only a beginning</title><link>{HOME}/2022/02/beginning/</link>
<guid isPermaLink="false">{HOME}/?p=3</guid><pubDate>Thu, 03 Feb 2022 08:00:00 GMT</pubDate>
<description>It was a dark and stormy night, and then [&amp;#8230;]</description></item>
<item><title>Re: hats</title><link>{HOME}/2020/01/hats/#c1</link><guid>{HOME}/c/1</guid>
<thr:in-reply-to ref="{HOME}/?p=1"/><description>INTRUDER was here.</description></item>
<item><title>Not yet</title><guid>{HOME}/?p=4</guid>
<app:control><app:draft>yes</app:draft></app:control>
<description>&lt;p&gt;TRASHCANARY&lt;/p&gt;</description></item>
</channel></rss>
"""


def write(folder: Path) -> Path:
    """Write the feed as a server sends it."""
    path = folder / "feed.xml"
    path.write_text(RSS, encoding="utf-8")
    return path
