import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser as HTMLParser

from ownwords.archive import report_view as summary
from ownwords.archive.report import Report, SplitCounts
from ownwords.view import blocks, html
from ownwords.view import format as say
from ownwords.view.html import join, tag
from sound_page import check_sound
from unit import sample_report

REPORTS = [pytest.param(report, id=name) for name, report in sample_report.every()]


def document(report: Report) -> str:
    return html.document(summary.report_view(report))


def read(report: Report) -> HTMLParser:
    return HTMLParser(document(report))


def words(report: Report) -> str:
    body = read(report).body
    assert body is not None
    return re.sub(r"\s+", " ", body.text(separator=" "))


@pytest.mark.parametrize("report", REPORTS)
def test_the_page_is_sound_and_loads_and_runs_nothing(report: Report) -> None:
    check_sound(document(report), {post.url for post in report.posts}.__contains__)


@pytest.mark.parametrize("report", REPORTS)
def test_headings_descend_by_one_and_landmarks_are_there(report: Report) -> None:
    tree = read(report)
    order = [int(level) for level in re.findall(r"<h([1-6])[ >]", document(report))]
    assert order[0] == 1
    assert order.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(order))
    for landmark in ("header", "nav", "main", "footer"):
        assert len(tree.css(f"body > {landmark}")) == 1


@pytest.mark.parametrize("report", REPORTS)
def test_charts_have_names_and_tables_have_headers(report: Report) -> None:
    tree = read(report)
    for chart in tree.css("svg:not([aria-hidden])"):
        assert chart.attributes["role"] == "img"
        assert chart.css("title") and chart.css("desc")
    for table in tree.css("table"):
        assert table.css_matches("caption") and table.css('th[scope="col"]')
        for row in table.css("tbody tr"):
            assert row.css_matches('th[scope="row"]')


def test_one_dominant_post_is_the_headline_and_can_be_changed() -> None:
    tree = read(sample_report.sample())
    lede = tree.css_first(".lede")
    assert lede is not None
    assert lede.text().startswith("One post is 54% of your prose: “The Count of")
    decisions = tree.css_first("#decisions")
    assert decisions is not None
    assert "Left out" in decisions.text()
    assert "choices.toml" in decisions.text()
    assert "ownwords look /home/ida/shavings" in decisions.text()


def test_every_finding_is_shown() -> None:
    report = sample_report.sample()
    page_text = words(report)
    for text in (
        *(dump.first_line for dump in report.dumps),
        *(item.reason for item in report.excluded),
        *report.advice.sentences,
        *report.notes,
    ):
        assert say.plain(text) in page_text, text
    assert report.fingerprint[:12] in page_text


def test_hostile_titles_are_text() -> None:
    page = document(sample_report.hostile())
    tree = HTMLParser(page)
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    titles = [element.text() for element in tree.css("#lengths .title")]
    assert sample_report.HOSTILE[0] in titles
    assert sample_report.HOSTILE[1] in titles
    assert [a.attributes["href"] for a in tree.css("#lengths a") if a.text() == titles[2]]


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "", "//host/x", " https://x", "file:///x"]
)
def test_only_web_addresses_become_links(url: str) -> None:
    assert "<a" not in _linked(url)
    assert 'href="https://x.example/"' in _linked("https://x.example/")


def _linked(url: str) -> str:
    line = blocks.Span("title", "title", url=url)
    section = blocks.Section("here", "Here", [blocks.Paragraph(line=line)])
    view = blocks.View(kind="report", title="", kicker="", heading="", sections=[section])
    return html.document(view).partition("<main")[2]


@given(st.text(), st.text())
def test_any_text_survives_the_markup(text: str, attribute: str) -> None:
    element = HTMLParser(tag("p", text, title=attribute)).css_first("p")
    assert element is not None
    assert element.text().strip() == say.plain(text).strip()
    assert element.attributes["title"] in {say.plain(attribute), None}
    assert join(text, text) is not None


def test_colours_can_be_read_in_every_light() -> None:
    style = re.search(r"<style>(.*?)</style>", document(sample_report.one_post()), flags=re.S)
    assert style is not None
    light, dark = (
        dict(re.findall(rf"--(\w+): [^;]*var\(--{side}, (#\w+)\)", style[1]))
        for side in ("light", "dark")
    )
    paper = dict(
        re.findall(r"--(\w+): (#[0-9a-f]{3,6})[;\s]", style[1].partition("@media print")[2])
    )
    for colours in (light, dark, paper):
        for text in ("ink", "quiet", "accent"):
            for ground in ("paper", "raised"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        assert contrast(colours["ink"], colours["mark"]) >= 4.5


def contrast(first: str, second: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def test_long_lists_are_cut_and_say_so() -> None:
    report = sample_report.huge()
    page = document(report)
    assert len(page.encode("utf-8")) < 1_000_000
    text = words(report)
    assert "10,000" in text
    assert "9,990 others together" in text
    assert "And 9,800 more; ownwords look --json lists all." in text


def test_empty_things_say_so_or_vanish() -> None:
    text = words(sample_report.nothing())
    assert "The archive holds no words yet." in text
    assert "Where the words are" not in text
    text = words(sample_report.one_post())
    assert "One post, 500 words." in text
    assert "Duplicate text" not in text
    text = words(sample_report.without_dates())
    assert "None of your texts has a date" in text
    assert "No two texts share a long passage." in text


def test_numbers_and_nouns() -> None:
    shares = [say.percent(share) for share in (0, 0.002, 0.544, 0.9999, 1)]
    assert shares == ["0%", "<1%", "54%", ">99%", "100%"]
    assert say.count(12_345) == "12,345"
    assert [say.count(n, "post") for n in (0, 1, 2_000)] == ["0 posts", "1 post", "2,000 posts"]
    assert say.count(2, "entry") == "2 entries"
    assert say.count(2, "characters") == "2 characters"
    assert [say.size(n) for n in (1, 812, 171_400, 4_123_456)] == [
        *("1 byte", "812 bytes", "171 kB", "4.12 MB")
    ]
    assert say.day("2014-03-09") == "9 March 2014"
    assert say.day("sometime") == "sometime"
    assert say.sentence("the same text") == "The same text."
    assert say.sentence("") == ""


def lede_of(own: int, words: int, days: tuple[str, str] = ("", ""), pages: int = 0) -> str:
    report = sample_report.plain_report(["One", "Two", "Three"])
    report.totals.own_words = report.totals.training_words = own
    report.split = SplitCounts({"train": 2, "test": 1}, {"train": own - own // 5, "test": own // 5})
    report.totals.words, report.totals.pages = words, pages
    report.totals.first_day, report.totals.last_day = days
    return " ".join(summary.lede(report))


def test_the_first_sentence_is_true() -> None:
    assert lede_of(0, 50).startswith("None of 50 words is your own.")
    assert "learns" not in lede_of(0, 50)
    assert "A model learns from 1,200 words; 300 are held out to judge it." in lede_of(1_500, 1_500)
    assert "1,500 words of your own in 3 posts." in lede_of(1_500, 1_500)
    assert "in 3 posts and 1 page." in lede_of(1_500, 1_500, pages=1)
    day = "2020-05-01"
    assert "in 3 posts, written on 1 May 2020." in lede_of(9, 9, (day, day))
    undated = sample_report.plain_report(["One", "Two", "Three"])
    undated.posts[0].day = ""
    assert "posts, the dated ones written between" in summary.lede(undated)[0]
    report = sample_report.one_post()
    report.totals.own_words = report.totals.training_words = 100
    assert summary.lede(report)[0] == "One post, 500 words, 100 of them your own."
