"""What holds for every page that ownwords writes as a file."""

import re
from collections.abc import Callable

from lxml import etree
from selectolax.lexbor import LexborHTMLParser as HTMLParser

_VOID = re.compile(r"<(meta|br)( [^>]*)?>")


def check_sound(page: str, is_link: Callable[[str], object]) -> None:
    """Check that all tags close, names are unique, and nothing is loaded or run."""
    as_xml = re.sub(r"<style>.*?</style>", "", page.removeprefix("<!DOCTYPE html>\n"), flags=re.S)
    as_xml = _VOID.sub(r"<\1\2/>", as_xml).replace("&nbsp;", " ")
    assert etree.fromstring(as_xml.encode("utf-8")).tag == "html"
    tree = HTMLParser(page)
    policy = tree.css_first('meta[http-equiv="Content-Security-Policy"]')
    assert policy is not None
    assert (policy.attributes["content"] or "").startswith("default-src 'none'; style-src")
    assert not tree.css("script, link, img, iframe, object, embed, form, base, audio, video, use")
    style = tree.css_first("style")
    assert style is not None
    assert not re.search(r"@import|url\(|https?:", style.text())
    for element in tree.css("*"):
        for name, value in element.attributes.items():
            assert not name.startswith("on"), (name, value)
            assert name not in {"src", "srcset", "action", "xlink:href"}
            if "url(" in (value or ""):
                assert name == "fill" and re.fullmatch(r"url\(#[a-z0-9-]+\)", value or "")
            if name == "href":
                assert element.tag == "a"
                assert (value or "").startswith("#") or is_link(value or ""), value
    ids = [element.attributes["id"] for element in tree.css("[id]")]
    assert len(ids) == len(set(ids))
    for element in tree.css("[aria-labelledby]"):
        assert set((element.attributes["aria-labelledby"] or "").split()) <= set(ids)
    for link in tree.css('a[href^="#"]'):
        assert (link.attributes["href"] or "")[1:] in ids
