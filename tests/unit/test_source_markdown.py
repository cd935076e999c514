from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exports import markdown as export
from exports import write_folder
from items import skipped
from ownwords.archive import dates
from ownwords.archive.document import RawDocument, SiteInfo, SourceNote
from ownwords.archive.sources import markdown


def documents(path: Path) -> dict[str, RawDocument]:
    return {item.ref: item for item in markdown.read(path) if isinstance(item, RawDocument)}


def read_one(folder: Path, text: str, name: str = "note.md") -> RawDocument:
    path = folder / name
    path.write_bytes(text.encode())
    (document,) = documents(path).values()
    return document


def test_a_jekyll_site(tmp_path: Path) -> None:
    root = export.write(tmp_path)
    assert markdown.detect(root) == "a Jekyll site"
    items = list(markdown.read(root))
    assert items[0] == SiteInfo("Hats and Heads")
    hats = documents(root)["_posts/2020-01-31-on-hats.md"]
    assert hats.tags == ("hats", "roofs", "Field Notes", "wear")
    assert "# On hats" not in hats.body
    assert "hat = [[1, 2]]  # [[not-a-link]]" in hats.body
    shoes = documents(root)["_posts/2022-02-03-shoes.markdown"]
    assert shoes.url == "https://hats.example.org/blog/shoes/"
    counted = {item.reason: item.count for item in skipped(items)}
    assert counted["about the project (README, LICENSE and the like), not a post"] == 1
    assert counted["not Markdown (.txt); to read it, give its path as well"] == 1
    assert sum(i.what == "folder" for i in skipped(items)) == 3


def test_broken_front_matter_keeps_the_post_and_its_draft_status(tmp_path: Path) -> None:
    root = export.write(tmp_path)
    posts = documents(root)
    broken = posts["_posts/2022-03-04-broken.md"]
    assert (broken.title, broken.body, broken.tags) == ("Broken: but kept", "Its text.", ("a", "b"))
    assert posts["_posts/2023-01-02-off.md"].status == "draft"
    notes = [item.text for item in markdown.read(root) if isinstance(item, SourceNote)]
    assert len(notes) == 1
    assert notes[0].startswith("The front matter of 2 files is broken")


def test_a_hugo_site(tmp_path: Path) -> None:
    root = export.write(tmp_path, export.HUGO)
    assert markdown.detect(root) == "a Hugo site"
    assert next(iter(markdown.read(root))) == SiteInfo("A Hugo blog")
    posts = documents(root)
    assert set(posts) == {
        "content/posts/hats/index.md",
        "content/posts/coats.md",
        "content/posts/shoes.md",
        "content/about.md",
    }
    hats = posts["content/posts/hats/index.md"]
    assert hats.body == "See [coats](coats) and [shoes](/posts/shoes)."
    assert hats.date == datetime(2020, 1, 31, 10, tzinfo=UTC)
    assert posts["content/posts/shoes.md"].status == "draft"
    assert posts["content/about.md"].kind == "page"


def test_an_obsidian_vault(tmp_path: Path) -> None:
    root = export.write(tmp_path, export.VAULT)
    assert markdown.detect(root) == "an Obsidian vault"
    posts = documents(root)
    assert posts[".trash/Gone.md"].status == "trashed"
    assert set(posts) == {".trash/Gone.md", "Daily/2020-01-31.md", "Hats.md", "Coats.md"}
    assert posts["Coats.md"].body.startswith("---\n\nA rule, then text.")
    daily = posts["Daily/2020-01-31.md"]
    assert daily.title == "2020-01-31"
    assert daily.date == datetime(2020, 1, 31, tzinfo=UTC)
    assert daily.body == (
        "Wrote [Hats](<Hats>), `[[code]]`, [the coats](<Coats>),  and [Coats](<Coats>)."
        "\n\n~~~\n[[fenced]]\n~~~\n\nAbove and [[1]](https://x.org)."
    )


def test_an_eleventy_site(tmp_path: Path) -> None:
    files = {".eleventy.js": "", "posts/hats.md": "---\nslug: caps\n---\nText", "README.md": "x"}
    root = export.write(tmp_path, files)
    assert markdown.detect(root) == "an Eleventy site"
    (hats,) = documents(root).values()
    assert (hats.title, hats.body) == ("hats", "Text")


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("[[A note]]", "[A note](<A%20note>)"),
        ("[[A note|words]]", "[words](<A%20note>)"),
        ("[[A note#Part]]", "[A note > Part](<A%20note>)"),
        ("| [[A note\\|words]] |", "| [words](<A%20note>) |"),
        ("[[50% <b>]]", "[50% <b>](<50%25%20%3Cb%3E>)"),
        ("![[note]]", "[note](<note>)"),
        ("![[a b.PNG|300]]", ""),
        ("`` [[a]] ` ``", "`` [[a]] ` ``"),
        ("[[ -f x ]]", "[[ -f x ]]"),
        ("[[1]](https://x.org)", "[[1]](https://x.org)"),
        ('{{< ref "posts/b.md#c" >}}', "posts/b"),
        ("{% post_url /sub/2020-01-31-a %}", "/sub/2020-01-31-a"),
        ("> ~~~~\n> ~~~ [[a]]\n> ~~~~\n[[b]]", "> ~~~~\n> ~~~ [[a]]\n> ~~~~\n[b](<b>)"),
    ],
)
def test_links_of_notes(text: str, link: str) -> None:
    assert markdown.rewrite_wikilinks(text) == link


@pytest.mark.parametrize(
    ("text", "title", "body"),
    [
        ("# A *great* [link](x) {#id}\n\nText", "A great link", "Text"),
        ("A title\n=====\n\nText", "A title", "Text"),
        ("Begins\n\n# Later\n\nText", "Later", "Begins\n\n\nText"),
        ("```\n# a comment\n```\nText", "my note", "```\n# a comment\n```\nText"),
        ("---\ntitle: T\n---\n# t\n\nText", "T", "Text"),
        ("---\ntitle: T\n---\n# Other\n\nText", "T", "# Other\n\nText"),
        ("---\ntitle: T\n---\nText\n\n# T", "T", "Text\n\n# T"),
        ("---\n---\nText", "my note", "Text"),
        ("---\nText, then nothing", "my note", "---\nText, then nothing"),
        ("{ not json }", "my note", "{ not json }"),
        ("\ufeff---\r\ntitle: T\r\n---\r\nText\r\n", "T", "Text"),
    ],
)
def test_title_and_body(tmp_path: Path, text: str, title: str, body: str) -> None:
    post = read_one(tmp_path, text, "2020-01-31-my-note.md")
    assert (post.title, post.body) == (title, body)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("draft: true", "draft"),
        ("published: false", "draft"),
        ("status: draft", "draft"),
        ("status: private", "private"),
        ("publish: false", "private"),
        ("unlisted: true", "hidden"),
        ("draft: false", "published"),
        ("draft: true\ntags: [a", "draft"),
    ],
)
def test_statuses(tmp_path: Path, head: str, status: str) -> None:
    assert read_one(tmp_path, f"---\n{head}\n---\nText").status == status


@pytest.mark.parametrize(
    "head",
    [
        *("[" * 2_000, "a: &a [x]\nb: &b [*a, *a]\n" * 3, "- a\n- b"),
        *("a: !!timestamp x", "a: !!bool x", 'a: !!int ""'),
    ],
)
def test_malformed_front_matter_is_only_text(tmp_path: Path, head: str) -> None:
    assert read_one(tmp_path, f"---\n{head}\n---\nText").body.endswith("Text")


def test_front_matter_executes_no_code(tmp_path: Path) -> None:
    target = tmp_path / "made"
    head = f"title: !!python/object/apply:os.mkdir ['{target}']"
    assert read_one(tmp_path, f"---\n{head}\n---\nText").body == "Text"
    assert not target.exists()


@pytest.mark.parametrize(
    ("value", "day"),
    [
        ("2020-01-31 22:00:00 -0500", "2020-02-01T03:00:00"),
        ("2020-01-31", "2020-01-31T00:00:00"),
        ("Fri, 31 Jan 2020 10:00:00 +0100", "2020-01-31T09:00:00"),
        ("31st January 2020", "2020-01-31T00:00:00"),
        ("Jan 31, 2020", "2020-01-31T00:00:00"),
        ("2020-01", "2020-01-01T00:00:00"),
        (2020, "2020-01-01T00:00:00"),
        (date(2020, 1, 31), "2020-01-31T00:00:00"),
        (datetime(2020, 1, 31, 1, tzinfo=timezone(timedelta(hours=2))), "2020-01-30T23:00:00"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), None),
        ("31 Smarch 2020", None),
        ("", None),
        (None, None),
    ],
)
def test_dates(value: object, day: str | None) -> None:
    parsed = dates.parse_date(value)
    assert parsed == (datetime.fromisoformat(day).replace(tzinfo=UTC) if day else None)


@pytest.mark.parametrize(
    ("name", "day", "title"),
    [
        ("2020-01-31-hats", "2020-01-31", "hats"),
        ("20200131 hats", "2020-01-31", "hats"),
        ("2020-99-99-hats", None, "hats"),
        ("hats-and_coats", None, "hats and coats"),
        ("2020-01-31", "2020-01-31", "2020-01-31"),
        ("A-b c", None, "A-b c"),
    ],
)
def test_names(name: str, day: str | None, title: str) -> None:
    parsed = dates.date_in_name(name)
    assert (parsed.date().isoformat() if parsed else None) == day
    assert dates.title_from_filename(name) == title


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("posts/2020/01-31-hats", "2020-01-31"),
        ("2020/01/31/hats", "2020-01-31"),
        ("2020/01/31-hats", "2020-01-31"),
        ("2020/01-31/2019-05-06-coats", "2019-05-06"),
        ("backup-2020-01-31/hats", None),
        ("2020/13-31-hats", None),
        ("12020/01-31-hats", None),
        ("2020/01-311", None),
    ],
)
def test_folders_of_years_date_a_post(path: str, day: str | None) -> None:
    parsed = dates.date_in_path(PurePosixPath(path))
    assert (parsed.date().isoformat() if parsed else None) == day


def test_instructions_for_agents_are_no_posts(tmp_path: Path) -> None:
    names = ("Makefile", "CLAUDE.md", "AGENTS.md", ".claude/commands/fix.md", "posts/a.md")
    assert set(documents(write_folder(tmp_path, dict.fromkeys(names, "Text")))) == {"posts/a.md"}


def test_an_error_page_is_no_post_and_one_about_the_author_is_a_page(tmp_path: Path) -> None:
    names = ("404.md", "about.md", "hats.md", "days/403.md", "days/404.md", "days/about.md")
    texts = documents(write_folder(tmp_path, dict.fromkeys(names, "Text")))
    assert set(texts) == set(names) - {"404.md"}  # not one of a numbered series
    pages = {name for name, text in texts.items() if text.kind == "page"}
    assert pages == {"about.md", "days/about.md"}
    for head in ("---\ndate: 2020-01-31\n---\n", "<!-- date: 2020-01-31 -->\n"):
        assert read_one(tmp_path, f"{head}Text", "now.md").kind == "post"


def test_a_folder_mostly_of_html_pages_is_not_detected_as_markdown(tmp_path: Path) -> None:
    for name in ("a.html", "b.html", "README.md"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    assert markdown.detect(tmp_path) is None


@given(st.text(alphabet="-+{}[]:\"'\n abt|!&*#`", max_size=200))
def test_any_front_matter_splits(text: str) -> None:
    for fence in ("---", "+++", ""):
        meta = markdown.parse_front_matter(f"{fence}\n{text}\n{fence}\nBody")
        assert "Body" in meta.body or meta.broken or not fence
        assert meta.status()
        meta.words("tags")
        meta.date()
    assert isinstance(markdown.rewrite_wikilinks(text), str)


def test_generated_jekyll_pages_are_not_posts_and_others_lose_their_tags(tmp_path: Path) -> None:
    root = write_folder(
        tmp_path,
        {
            "_config.yml": "title: Hats",
            "index.html": "---\n---\n<ul>{% for x in site.posts %}<li>{{ x.title }}{% endfor %}",
            "404.html": "---\n---\n<h1>Not here</h1>",
            "_posts/2020-01-31-hats.html": "---\n---\n<p>Mine {{ site.x }}{% include a %}.</p>",
        },
    )
    (post,) = documents(root).values()
    assert post.body == "<p>Mine .</p>"
    reasons = {item.reason for item in skipped(markdown.read(root))}
    assert reasons == {"an error page", "a page made of template tags, not a post"}


def test_obsidian_syntax_is_removed_only_where_it_is_syntax(tmp_path: Path) -> None:
    text = "A ==marked== word. ^a1b2\n\n`a ==b== c` ^x\n\n```\nx ==y== ^z\n```\n\n1 == 2 == 3\n"
    root = write_folder(tmp_path, {".obsidian/app.json": "{}", "note.md": text})
    (note,) = documents(root).values()
    assert note.body == ("A marked word.\n\n`a ==b== c`\n\n```\nx ==y== ^z\n```\n\n1 == 2 == 3")
    assert read_one(tmp_path, text, "alone.md").body == text.strip()
