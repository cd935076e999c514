import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.document import Markup, ParsedBody
from ownwords.archive.segments import parse_body
from ownwords.core.errors import SourceError

Found = list[tuple[str, str]]


def segments_of(body: str, markup: Markup = "html") -> Found:
    return [(segment.kind, segment.text) for segment in parse_body(body, markup).segments]


def detailed(body: str, markup: Markup = "html") -> list[tuple[str, str, str]]:
    return [(s.kind, s.text, s.detail) for s in parse_body(body, markup).segments]


def blocks(*cases: object) -> ParsedBody:
    return parse_body(json.dumps(cases), "blocks")


# ---- prose


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>One  \n two&nbsp; three</p><p>Four</p>", ["One two three", "Four"]),
        ("<p>a<br>b<br/>c</p>", ["a\nb\nc"]),
        ("<p>a<br>\n<br>b</p>", ["a", "b"]),
        ("loose <b>bo</b>ld <div>in a div</div> after", ["loose bold", "in a div", "after"]),
        ("<p>&nbsp;</p><p></p><p>\u200b</p><hr id='read-more'><img width=0 height=0>", []),
        ("<p>so <code>x  = 1</code> is <kbd>fine</kbd></p>", ["so x = 1 is fine"]),
        ("<p>he said <q>no</q></p>", ["he said “no”"]),
        ("<p>unclosed <b>bold<p>next</div></section>", ["unclosed bold", "next"]),
        ("<frameset><body style='display:none'>kept<plaintext>", ["kept"]),
        ("<table><tr><td><p>A page</p><p>in a cell</p></td></tr></table>", ["A page", "in a cell"]),
        ("<pre class='wp-block-verse'>Roses\n  red\n\nviolets</pre>", ["Roses\nred", "violets"]),
    ],
)
def test_prose(html: str, expected: list[str]) -> None:
    assert segments_of(html) == [("prose", text) for text in expected]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        # Imports without paragraphs keep the newlines that their author typed.
        (
            "One\ntwo <i>x</i>\r\n \r\nthree<br />\nfour\n<!--more-->\nfive\n\n<ul>\n<li>six</ul>",
            ["prose One\ntwo x", "prose three\nfour", "prose five", "list - six"],
        ),
        # In written HTML newlines are spaces, and blank lines part loose text.
        ("<p>a\n\nb</p>c\nd\n\ne", ["prose a b", "prose c d", "prose e"]),
        (
            "<ol><li>do<pre>  x\n    y</pre></li><li>done</li></ol>",
            ["list 1. do", "code   x\n    y", "list 2. done"],
        ),
        (
            "<table><caption>Hats</caption><thead><tr><th>Hat</th><th>Head</th></tr></thead><tr>"
            "<td>top<br>hat</td><td><p>a</p><p>b</p></td></tr><tr><td></td><td></td></tr></table>",
            ["caption Hats", "table Hat | Head\ntop hat | a b"],
        ),
        (
            "<pre>[gallery ids='1']</pre><p><code>[gallery]</code></p>",
            ["code [gallery ids='1']", "prose [gallery]"],
        ),
    ],
)
def test_kinds_of_blocks(html: str, expected: list[str]) -> None:
    assert [f"{kind} {text}" for kind, text in segments_of(html)] == expected


# ---- headings, lists, quotes, code


def test_headings_have_their_level() -> None:
    html = "<h2>Of <em>hats</em><br>and <a href='/g'>gloves</a></h2><h6></h6>"
    assert detailed(html) == [("heading", "Of hats and gloves", "2")]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<ul><li>a</li><li><p>b</p></li><li></li></ul>", "- a\n- b"),
        ("<ol start=9><li>a<li>b</ol>", "9. a\n10. b"),
        ("<ul><li>a<ol><li>b<ul><li>c</ul></ol>d</li></ul>", "- a\n  1. b\n    - c\n  d"),
        ("<ul><li>a<br>b<p>c</p></li></ul>", "- a\n  b\n  c"),
        ("<dl><dt>Hat<dd>worn on heads</dl>", "- Hat\n  worn on heads"),
        ("<ul><li><h3>a</h3>b</li></ul>", "- a\n  b"),
    ],
)
def test_a_list_is_one_segment_of_lines(html: str, expected: str) -> None:
    assert segments_of(html) == [("list", expected)]


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<blockquote><p>a</p><p>b</p><footer>— Ann</footer></blockquote>", ["a\n\nb\n\n— Ann"]),
        ("<blockquote>So it is – <cite>Ann</cite></blockquote>", ["So it is – Ann"]),
        (
            "<figure><blockquote>a</blockquote> <figcaption>— Ann</figcaption></figure>",
            ["a", "— Ann"],
        ),
        ("<blockquote><h3>a</h3><ul><li>b</li></ul></blockquote>", ["a\n\n- b"]),
        ("<blockquote>a<blockquote>b</blockquote>c</blockquote>", ["a\n\nb\n\nc"]),
    ],
)
def test_quotes_hold_all_their_parts_and_who_is_quoted(html: str, texts: list[str]) -> None:
    assert segments_of(html) == [("quote", text) for text in texts]


@pytest.mark.parametrize(
    ("html", "text", "language"),
    [
        (
            "<pre class='language-python'><code>\n\n    if a &lt; b:\n\treturn\n\n</code></pre>",
            "    if a < b:\n\treturn",
            "python",
        ),
        ("<pre>a<br>  b</pre>", "a\n  b", ""),
        ("<div class='language-ruby'><div class='highlight'><pre>x</pre></div></div>", "x", "ruby"),
        ("<pre class='brush: php; gutter: true'>x</pre>", "x", "php"),
        (
            "<table><tr><td class='linenos'><pre>1\n2</pre><td><pre>a\nb</pre></td></tr></table>",
            "a\nb",
            "",
        ),
    ],
)
def test_code_keeps_its_shape_and_language(html: str, text: str, language: str) -> None:
    assert detailed(html) == [("code", text, language)]


# ---- what is dropped


HIDDEN = {
    "<script>CANARY()</script>": "script",
    "<style>.CANARY{}</style>": "style",
    "<noscript><p>CANARY</p></noscript>": "shown only without scripts",
    "<template><p>CANARY</p></template>": "template",
    "<svg><title>CANARY</title><text>CANARY</text></svg>": "drawing",
    "<math><mi>CANARY</mi></math>": "formula",
    "<iframe src='x'>CANARY</iframe>": "embedded frame",
    "<video>CANARY</video>": "video",
    "<button>CANARY</button>": "form",
    "<form><label>CANARY <input></label></form>": "form",
    "<p hidden>CANARY</p>": "hidden element",
    "<span aria-hidden='true'>CANARY</span>": "hidden element",
    "<p style='color:red; DISPLAY : none'>CANARY</p>": "hidden element",
    "<span style='font-size:0px'>CANARY</span>": "hidden element",
    "<span style='opacity:0'>CANARY</span>": "hidden element",
    "<p style='position:absolute; left:-9999px'>CANARY</p>": "hidden element",
    "<span style='color: transparent'>CANARY</span>": "hidden element",
    "<p style='clip-path:inset(50%)'>CANARY</p>": "hidden element",
    "<div class='post__toc'><ul><li>CANARY</li></ul></div>": "table of contents",
    "<ul id='toc'><li><a href='#c'>CANARY</a></li></ul>": "table of contents",
    "<nav>CANARY</nav>": "navigation",
    "<publii-amp><p>CANARY</p></publii-amp>": "AMP-only part",
    "<!-- CANARY -->": "comment in the markup",
    "<title>CANARY</title>": "page title",
}


@pytest.mark.parametrize("hidden", HIDDEN)
def test_invisible_elements_are_dropped_and_counted(hidden: str) -> None:
    reading = parse_body(f"<div>before {hidden}<p>after</p></div>", "html")
    assert [s.text for s in reading.segments] == ["before", "after"]
    assert reading.dropped == {HIDDEN[hidden]: 1}


@pytest.mark.parametrize(
    "fragment",
    [
        "<span style='font-size:0.9em'>seen</span>",
        "<span style='opacity:0.5'>seen</span>",
        "<span class='sr-only'>seen</span>",
        "<p style='margin-left:-120px'>seen</p>",
        "<publii-non-amp>seen</publii-non-amp>",
        "<details><summary>seen</summary></details>",
        "<!-- wp:paragraph --><p>seen</p><!-- /wp:paragraph --><!--more-->",
        f"<form>{'seen ' * 200}</form>",
    ],
)
def test_visible_text_is_kept(fragment: str) -> None:
    reading = parse_body(fragment, "html")
    assert "seen" in reading.segments[0].text
    assert reading.dropped == {}


# ---- shortcodes


def test_shortcodes_are_removed_and_their_captions_and_code_kept() -> None:
    html = (
        'a [gallery ids="1,2"]b [caption id="x" width="3"]<a href="/f"><img></a> A hat[/caption]'
        '[embed]https://x.example[/embed] [su_box title="T"]kept[/su_box] [b]bold[/b]\n\n'
        '[code lang="js"]if (a < b) {\n  [gallery]\n}[/code]'
    )
    assert detailed(html) == [
        ("prose", "a b", ""),
        ("caption", "A hat", ""),
        ("prose", "kept bold", ""),
        ("code", "if (a < b) {\n  [gallery]\n}", "js"),
    ]
    assert parse_body(html, "html").dropped == {"plugin shortcode": 4}


@pytest.mark.parametrize(
    "text",
    [
        "He [sic] said [so] and [1] then [video].",
        "An [x] box, a [/slash], an [a = b] and [[gallery]].",
        "See [gallery](x) and [toc][1].",
    ],
)
def test_words_in_brackets_are_not_shortcodes(text: str) -> None:
    assert segments_of(f"<p>{text}</p>") == [("prose", text)]


# ---- Markdown


def test_markdown() -> None:
    text = """# Of *hats* {#hats}

It is "so" -- `a  b`, ~~not~~ <b>raw</b>
on.

---READMORE---

- a
- [ ] b

1. c

> Said.

```python
def f():
    pass
```

    indented

| a | b |
|---|---|
| 1 | 2 |
"""
    assert detailed(text, "markdown") == [
        ("heading", "Of hats", "1"),
        ("prose", 'It is "so" -- a b, not raw on.', ""),
        ("list", "- a\n- [ ] b", ""),
        ("list", "1. c", ""),
        ("quote", "Said.", ""),
        ("code", "def f():\n    pass", "python"),
        ("code", "indented", ""),
        ("table", "a | b\n1 | 2", ""),
    ]


def test_markdown_images_give_their_title_as_a_caption_after_the_paragraph() -> None:
    text = (
        'Look ![alt](#DOMAIN_NAME#a.png =640x480 "A hat") here.\n\n![alt](b.png "Two")\n![c](c.png)'
    )
    assert segments_of(text, "markdown") == [
        ("prose", "Look here."),
        ("caption", "A hat"),
        ("caption", "Two"),
    ]


def test_template_tags_and_comments_are_removed_from_markdown_but_not_from_code() -> None:
    text = """Hi {{ site.name }}{% include x.html a="b" %} %%gone%% 100%% sure {{< youtube id >}}.

{{< figure src="a.png" caption="A hat" >}}

{% highlight ruby linenos %}
puts "{{ a }}" if 1 < 2
{% endhighlight %}

{% raw %}{{ kept }}{% endraw %} `{{ kept }} %%too%%`

{: .wide}

```
{% kept %} {{< kept >}}
```
{% comment %}gone{% endcomment %}
"""
    assert detailed(text, "markdown") == [
        ("prose", "Hi 100%% sure .", ""),
        ("caption", "A hat", ""),
        ("code", 'puts "{{ a }}" if 1 < 2', "ruby"),
        ("prose", "{{ kept }} {{ kept }} %%too%%", ""),
        ("code", "{% kept %} {{< kept >}}", ""),
    ]
    dropped = {"template tag": 2, "plugin shortcode": 1, "comment in the markup": 2}
    assert parse_body(text, "markdown").dropped == dropped


def test_footnotes_stay_and_their_marks_go() -> None:
    text = "Hats[^1] are worn.\n\n[^1]: On heads."
    assert segments_of(text, "markdown") == [("prose", "Hats are worn."), ("list", "1. On heads.")]
    assert parse_body(text, "markdown").dropped == {"footnote mark": 2}


def test_callouts_are_the_authors_own_words() -> None:
    text = "> [!note]\n> Mine.\n>\n> Too.\n\n> [!quote] Ann\n> Hers."
    assert segments_of(text, "markdown") == [
        ("prose", "Mine."),
        ("prose", "Too."),
        ("quote", "[!quote] Ann Hers."),
    ]


@pytest.mark.parametrize(
    ("info", "language"),
    [
        ("{.ruby #id}", "ruby"),
        ('{.python .numberLines startFrom="5"}', "python"),
        ('js {linenos=table,hl_lines=["8"]}', "js"),
    ],
)
def test_fences_name_their_language_in_many_forms(info: str, language: str) -> None:
    assert detailed(f"~~~~ {info}\n```\nx\n```\n~~~~", "markdown") == [
        ("code", "```\nx\n```", language)
    ]


def test_code_and_quotes_in_template_tags_are_code_and_quotes() -> None:
    text = """{% codeblock lang:ruby %}
puts {{ a }}
{% endcodeblock %}
{{< mermaid >}}
A-->B
{{< /mermaid >}}
{% blockquote Ann %}
Hers, *all* {{ of }} it.
{% endblockquote %}
{{< figure src='a' caption='Mine' >}}"""
    assert detailed(text, "markdown") == [
        ("code", "puts {{ a }}", "ruby"),
        ("code", "A-->B", ""),
        ("quote", "Hers, all it.", ""),
        ("caption", "Mine", ""),
    ]


def test_indented_code_is_unchanged_but_paragraphs_of_items_are_not_code() -> None:
    text = "a\n\n    {{ b }} {% c %} %%d%%\n\n- e\n\n      {{ f }}\n\n    g {{ h }}\n\n\t{:toc} i\n"
    assert segments_of(text, "markdown") == [
        ("prose", "a"),
        ("code", "{{ b }} {% c %} %%d%%"),
        ("list", "- e"),
        ("code", "{{ f }}"),
        ("list", "g\ni"),
    ]
    step = "1. Step\n\n    {% highlight sh %}\n    ls {{ x }}\n    {% endhighlight %}\n"
    assert detailed(step, "markdown") == [("list", "1. Step", ""), ("code", "    ls {{ x }}", "sh")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In `x` and {{ }} or style={{ color: 'red' }} as {{{}}}.", None),
        ("Print %%d and %%s, for %%i in (*) do echo %%i.", None),
        ("A map {:a 1} in a == b == c.", None),
        ("Sums of $$5 and *that* is $$6.", "Sums of $$5 and that is $$6."),
        ("Sums $$a_1 *b* \\\\ c_2 < d$$ cost $5 and $6.", "$$a_1 *b* \\\\ c_2 < d$$"),
        ("Some ==marked words== here {: .cls #id}", "Some marked words here"),
        ("In Svelte it begins with {#if}", None),
        ("Yours,\n~ Ann", "Yours, ~ Ann"),
    ],
)
def test_lookalikes_of_templates_are_kept(text: str, expected: str | None) -> None:
    [(kind, read)] = segments_of(text, "markdown")
    assert kind == "prose"
    assert (expected or text.replace("`", "")) in read


# ---- what the makers of editors put around the words


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>a<sup><a href='#b-1'>1</a></sup> b</p>", [("prose", "a b")]),
        ("<p>a<a href='#_ftn1'>[1]</a> see <a href='#s3'>3</a></p>", [("prose", "a see 3")]),
        ("<ol><li>note <a href='#x-link'>↩︎</a></li></ol>", [("list", "1. note")]),
        ("<h2>Hats<a class='headerlink' href='#hats'>¶</a></h2>", [("heading", "Hats")]),
        ("<p><ruby>漢字<rp>(</rp><rt>かんじ</rt><rp>)</rp></ruby>を</p>", [("prose", "漢字を")]),
        (
            "<table class='tr-caption-container'><tr><td><img></td></tr>"
            "<tr><td class='tr-caption'>A hat</td></tr></table>",
            [("caption", "A hat")],
        ),
        (
            "<figure><a href='/x'><div class='kg-bookmark-content'><div>Theirs</div></div></a>"
            "<figcaption>Mine</figcaption></figure>",
            [("quote", "Theirs"), ("caption", "Mine")],
        ),
        (
            "<div class='preformatted-block'><label class='hide-text'>Text</label>"
            "<pre class='text'>O rose\n thou</pre></div>",
            [("prose", "O rose\nthou")],
        ),
        ("[youtube https://x.example/1]a [quote]b[/quote]", [("prose", "a"), ("quote", "b")]),
        ("<!--kg-card-begin: html--><p>a</p><!--kg-card-end: html-->", [("prose", "a")]),
    ],
)
def test_html_of_common_editors_is_parsed(html: str, expected: Found) -> None:
    assert segments_of(html) == expected


# ---- Publii's blocks


def test_blocks() -> None:
    reading = blocks(
        {"type": "publii-paragraph", "content": "An <b>open tag", "config": {}},
        {
            "type": "publii-header",
            "content": "Head",
            "config": {"headingLevel": 3, "link": {"url": "/h?a=1&b", "noFollow": True}},
        },
        {"type": "publii-list", "content": "<li>a</li><li>b</li>", "config": {"listType": "ol"}},
        {"type": "publii-quote", "content": {"text": "Said<br>so", "author": "Ann"}},
        {"type": "publii-code", "content": "\n  a < b && c\n", "config": {"language": "c"}},
        {"type": "publii-html", "content": "<publii-script>x</publii-script><p>raw"},
        {
            "type": "publii-image",
            "content": {"image": "i.png", "alt": "ALT", "caption": "A hat"},
            "config": {"link": {"url": "/i"}},
        },
        {"type": "publii-gallery", "content": {"images": [{"caption": "One"}, {"caption": ""}]}},
        {"type": "publii-separator", "content": False, "config": {"type": "dots"}},
        {"type": "publii-toc", "content": {"title": "T", "toc": "x"}},
        {"type": "publii-embed", "content": "https://x.example"},
        {"type": "publii-paragraph", "content": ""},
    )
    assert [(s.kind, s.text, s.detail) for s in reading.segments] == [
        ("prose", "An open tag", ""),
        ("heading", "Head", "3"),
        ("list", "1. a\n2. b", ""),
        ("quote", "Said\nso\n\n— Ann", ""),
        ("code", "  a < b && c", "c"),
        ("prose", "raw", ""),
        ("caption", "A hat", ""),
        ("caption", "One", ""),
    ]
    assert reading.dropped == {"script": 1, "table of contents": 1, "embedded frame": 1}


def test_unknown_and_broken_blocks_are_skipped_and_counted() -> None:
    reading = blocks(
        {"type": "publii-poll", "content": "x"},
        {"type": "publii-quote", "content": "x"},
        {"type": "publii-paragraph", "content": ["x"]},
        {"type": "publii-header", "content": "kept", "config": {"headingLevel": "big", "link": 3}},
        {"type": ["publii-paragraph"]},
        None,
    )
    assert [(s.kind, s.text, s.detail) for s in reading.segments] == [("heading", "kept", "2")]
    assert reading.dropped == {
        "unreadable block publii-poll": 1,
        "unreadable block publii-quote": 1,
        "unreadable block publii-paragraph": 1,
        "unreadable block": 2,
    }


def test_a_block_cannot_hide_the_next() -> None:
    opened = [
        {"type": "publii-html", "content": c} for c in ("<div hidden>", "<!--", "<pre>", "<a href=")
    ]
    reading = blocks(*opened, {"type": "publii-paragraph", "content": "seen"})
    assert [(s.kind, s.text) for s in reading.segments] == [("prose", "seen")]


@pytest.mark.parametrize(
    "body", ["{}", "<p>html</p>", "[" * 100_000, "[1" + "0" * 5000 + "]", "\ud800"]
)
def test_broken_block_json_is_a_clear_error(body: str) -> None:
    with pytest.raises(SourceError, match="blocks"):
        parse_body(body, "blocks")


def test_empty_bodies_have_no_segments() -> None:
    for markup in ("html", "markdown", "text", "blocks"):
        for body in ("", " \n"):
            assert parse_body(body, markup) == ParsedBody(())


# ---- plain text


def test_plain_text_is_never_read_as_markup() -> None:
    text = "One  line,\r\n  and <b>another</b> [gallery].\n \n\nA # new & *one*\x0c\tend\n"
    assert segments_of(text, "text") == [
        ("prose", "One line,\nand <b>another</b> [gallery]."),
        ("prose", "A # new & *one*\nend"),
    ]


WRAPPED = """\
It was a long way down to the harbour, and a longer one back up again in
the rain, as everybody who had ever tried it with a barrow was well-
known to say. Nobody had asked the barrow. It stood by the wall with its
one wheel in the air, and waited for the summer, which was to come late.

   The letter which my aunt had left on the table said nothing at all of
hats. It said that she had gone, and would be back when it was over, and
that the cat knew where to find the key, which was in the usual place of
keys.
"""


def test_hard_wrapped_text_is_unwrapped_and_verse_is_not() -> None:
    verse = "O Rose thou art sick.\nThe invisible worm,\nThat flies in the night"
    items = "1. bread\n2. salt\n3. a hat"
    columns = "hat     3\nglove   4"
    body = "\n\n".join([WRAPPED, WRAPPED, verse, items, columns])
    first, second, *verses = segments_of(body, "text")[2:]
    assert first[1].startswith("It was a long way down to the harbour, and a longer one back up ag")
    assert "was well-known to say" in first[1]
    assert "the usual place of keys." in second[1]
    assert "\n" not in first[1] + second[1]
    listed = WRAPPED.partition("\n\n")[0] + "\n- bread\n- salt"
    assert segments_of(WRAPPED + "\n\n" + listed, "text")[-1][1].endswith("\n- bread\n- salt")
    dashed = segments_of(WRAPPED.replace("one wheel in", "- one wheel in") * 2, "text")
    assert "\n" not in dashed[0][1]
    assert verses == [("prose", text) for text in (verse, items, "hat 3\nglove 4")]


@pytest.mark.parametrize(
    "body",
    [
        "\n".join(f"A line of this and that, {'so ' * (n % 19)}it ended." for n in range(40)),
        *(
            "\n".join(line.format(n) for n in range(40))
            for line in (
                "Verse {} begins with capitals, as every line of verse has to",
                "item {}   of   columns   kept   apart   by   runs   of   blanks",
                "> what somebody wrote in a letter, cut at seventy columns {}",
            )
        ),
        "\n".join(["吾輩は猫である。名前はまだ無い。" * 4] * 40),
    ],
)
def test_lines_that_their_author_broke_stay_broken(body: str) -> None:
    lines = [" ".join(line.split()) for line in body.split("\n")]
    assert segments_of(body, "text") == [("prose", "\n".join(lines))]


# ---- logs

LOG = [f"2024-01-02 03:04:{n:02} host app[{n}]: request {n} took 12 ms" for n in range(12)]


@pytest.mark.parametrize(
    ("body", "markup"),
    [
        ("<p>See:</p><pre>{0}</pre><p>That.</p>", "html"),
        ("<p>See:</p><p>{1}</p><p>That.</p>", "html"),
        ("<p>See:</p>{2}<p>That.</p>", "html"),
        ("See:\n\n{0}\n\nThat.", "markdown"),
        ("See:\n\n```\n{0}\n```\n\nThat.", "markdown"),
        ("See:\n{0}\nThat.", "text"),
    ],
)
def test_logs_are_recognised_in_every_markup(body: str, markup: Markup) -> None:
    paragraphs = "".join(f"<p>{line}</p>" for line in LOG)
    body = body.format("\n".join(LOG), "<br>".join(LOG), paragraphs)
    expected = [("prose", "See:"), ("log", "\n".join(LOG)), ("prose", "That.")]
    assert segments_of(body, markup) == expected


# ---- cleaning


def test_segments_are_repaired_and_the_repairs_counted() -> None:
    html = "<p>Itâ€™s</p><pre>\tcaf&Atilde;&copy;\u200b</pre><h2>A\u200fb caf&Atilde;&copy;</h2>"
    reading = parse_body(html, "html")
    assert [s.text for s in reading.segments] == ["It’s", "\tcafÃ©", "Ab café"]
    assert reading.dropped == {
        "encoding errors repaired": 2,
        "zero-width characters": 1,
        "text-direction marks": 1,
    }


def test_lone_surrogates_are_replaced() -> None:
    assert (
        blocks({"type": "publii-paragraph", "content": "a\ud800b"}).segments[0].text == "a\ufffdb"
    )
    assert segments_of("a\ud83d\ude00\ud800", "markdown") == [("prose", "a😀\ufffd")]
    assert parse_body("a\udfff", "text").dropped == {"broken characters replaced": 1}


@pytest.mark.parametrize(
    "html",
    [
        "<p>Read as Latin-1 instead of UTF-8 it is cafÃ©.</p>",
        "<pre># cafÃ©</pre>",
        "<p>You see <code>cafÃ©</code> then.</p>",
    ],
)
def test_damage_shown_as_an_example_is_not_repaired(html: str) -> None:
    reading = parse_body(html + "<p>cafÃ©</p>", "html")
    assert "cafÃ©" in reading.segments[0].text
    assert reading.segments[1].text == "café"
    assert reading.dropped == {"encoding errors repaired": 1}


# ---- whatever comes

TAGS = """
<p> </p> <ul> <li> </ul> <ol> <dl> <dd> <blockquote> </blockquote> <pre> </pre> <code> <h2> <br> <q>
<table> <tr> <td> </table> <a·href=x> </a> <cite> </cite> <footer> <figure> <figcaption>
<div> </div> <img·title=t> <form> <b> </b> <!-- --> <svg> </svg> <plaintext> <xmp>
[caption·a='1'] [/caption] [code] [/code] [gallery] [^1] [^1]: [!note] ---READMORE--- &nbsp; &#0;
``` ` > # * _ ~~~ - 1. | %% {% %} {{ }} {{< >}} {%highlight·x%} {%endhighlight%} {%raw%} {:toc}
â€™ &#xd800;
"""
FRAGMENTS = st.sampled_from(
    [
        *HIDDEN,
        *(tag.replace("·", " ") for tag in TAGS.split()),
        *LOG,
        "\u200b",
        "\x1b[1m",
        "\n",
        "\n\n",
        "    ",
        " words of the author ",
    ]
)
WILD = st.one_of(st.text(), st.text(alphabet="<>/abp[]&;!-`*_#|\n {}%\"'=\x00\ud800"))
BODIES = st.lists(st.one_of(FRAGMENTS, WILD), max_size=30).map("".join)
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


@given(body=BODIES, markup=st.sampled_from(["html", "markdown", "text"]))
def test_no_body_fails_and_every_segment_is_clean(body: str, markup: Markup) -> None:
    reading = parse_body(body, markup)
    assert reading == parse_body(body, markup)
    for segment in reading.segments:
        assert segment.text.strip()
        assert not UNSEEN.search(segment.text)
        if segment.kind not in ("code", "log", "table"):
            assert "\t" not in segment.text
            assert segment.text == segment.text.strip()
        if segment.kind in ("prose", "list", "table"):
            assert "\n\n" not in segment.text
    assert all(count > 0 for count in reading.dropped.values())


@given(st.lists(FRAGMENTS, max_size=20).map("".join))
def test_hidden_text_is_never_included(body: str) -> None:
    reading = parse_body("<p>x</p>" + body.replace("<xmp>", "").replace("<plaintext>", ""), "html")
    text = "".join(s.text for s in reading.segments if s.kind not in ("code", "log"))
    assert "CANARY()" not in text
    assert ".CANARY" not in text
