"""An EPUB 3 book that EPUB 2 readers open too: cover, contents, copyright page, notes, chapters."""

import zipfile
from pathlib import Path

from exports import NON_ASCII

PUBLISHED = {
    "OEBPS/text/ch1.xhtml": ("On hats", "2020-01-31"),
    "OEBPS/text/ch 2.xhtml": ("Coats", "2020-01-31"),
    "OEBPS/text/ch3.xhtml": ("Of Books, part 3", "2020-01-31"),
}

CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/>
</rootfiles></container>"""
PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:opf="http://www.idpf.org/2007/opf">
<dc:title>Of Books</dc:title><dc:creator>Ann Author</dc:creator><dc:language>en</dc:language>
<dc:date opf:event="modification">2023-01-01</dc:date><dc:date>2020-01-31</dc:date>
<dc:subject>Clothes</dc:subject></metadata>
<manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="cover" href="text/cover.xhtml" media-type="application/xhtml+xml"/>
<item id="legal" href="text/legal.xhtml" media-type="application/xhtml+xml"/>
<item id="c1" href="text/ch1.xhtml" media-type="application/xhtml+xml"/>
<item id="c2" href="text/ch%202.xhtml" media-type="application/xhtml+xml"/>
<item id="c3" href="text/ch3.xhtml" media-type="application/xhtml+xml"/>
<item id="n" href="text/notes.xhtml" media-type="application/xhtml+xml"/>
<item id="gone" href="text/gone.xhtml" media-type="application/xhtml+xml"/>
</manifest>
<spine toc="ncx"><itemref idref="cover"/><itemref idref="nav"/><itemref idref="legal"/>
<itemref idref="c1"/><itemref idref="c2"/><itemref idref="c3"/><itemref idref="n" linear="no"/>
<itemref idref="gone"/></spine></package>"""
NCX = """<?xml version="1.0"?><!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN"
 "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" version="2005-1"><navMap>
<navPoint id="a"><navLabel><text>On hats</text></navLabel>
<content src="text/ch1.xhtml"/>
</navPoint>
</navMap></ncx>"""


def page(inner: str, kind: str = "") -> str:
    """A file of the book, with what trips readers of HTML: an empty title, entities, a DTD."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN"'
        ' "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">\n<html'
        ' xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><head>'
        f'<title/><script src="x.js"/></head><body><section epub:type="{kind}">{inner}</section>'
        "</body></html>"
    )


FILES = {
    "META-INF/container.xml": CONTAINER,
    "META-INF/encryption.xml": '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"'
    ' xmlns:enc="http://www.w3.org/2001/04/xmlenc#"><enc:EncryptedData><enc:EncryptionMethod'
    ' Algorithm="http://www.idpf.org/2008/embedding"/><enc:CipherData><enc:CipherReference'
    ' URI="OEBPS/font.otf"/></enc:CipherData></enc:EncryptedData></encryption>',
    "OEBPS/book.opf": PACKAGE,
    "OEBPS/nav.xhtml": page(
        '<nav epub:type="toc"><h1>Contents</h1><ol>'
        '<li><a href="text/ch1.xhtml#top">On hats</a></li>'
        '<li><a href="text/ch%202.xhtml">Coats</a></li></ol></nav>'
    ),
    "OEBPS/toc.ncx": NCX,
    "OEBPS/text/cover.xhtml": page('<img src="../cover.jpg" alt="Of Books"/>', "cover"),
    "OEBPS/text/legal.xhtml": page("<p>Copyright 2020. INTRUDER Press.</p>", "copyright-page"),
    "OEBPS/text/ch1.xhtml": page(
        f'<h1>On hats</h1><a id="top"/><p>A&nbsp;hat &mdash; a roof. {NON_ASCII}</p>'
        "<blockquote><p>A quoted line.</p></blockquote><pre>hat = 1 &lt; 2</pre>"
        '<p>See <a href="ch%202.xhtml#x">coats</a>.</p>',
        "chapter",
    ),
    "OEBPS/text/ch 2.xhtml": page(
        '<h2>2</h2><p>After <a href="ch1.xhtml">hats</a>, coats.</p>', "chapter"
    ),
    "OEBPS/text/ch3.xhtml": page("<p>Without a heading, a chapter all the same.</p>"),
    "OEBPS/text/notes.xhtml": page("<p>A note by INTRUDER.</p>"),
}


def write(folder: Path) -> Path:
    """Write the book."""
    path = folder / "book.epub"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("mimetype", "application/epub+zip")
        for name, text in FILES.items():
            packed.writestr(name, text, zipfile.ZIP_DEFLATED)
    return path
