"""A folder of documents from Word and LibreOffice: styles, lists, tracked changes, comments."""

from pathlib import Path

from exports import NON_ASCII, write_zip

PUBLISHED = {
    "2020-01-31 hats.docx": ("On hats", "2020-01-31"),
    "coats.odt": ("Coats & capes", "2021-06-02"),
}
OTHERS = 2

_PARTS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def paragraph(text: str, style: str = "", more: str = "") -> str:
    properties = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{properties}{more}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def relations(**targets: str) -> str:
    entries = "".join(
        f'<Relationship Id="{kind}" Type="{_PARTS}/{kind}" Target="{target}"'
        f' TargetMode="{"External" if kind == "hyperlink" else "Internal"}"/>'
        for kind, target in targets.items()
    )
    schema = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{schema}">{entries}</Relationships>'


def item(text: str, list_id: int) -> str:
    return paragraph(
        text, more=f'<w:numPr><w:ilvl w:val="0"/><w:numId w:val="{list_id}"/></w:numPr>'
    )


# Word's styles have English names in every language, and ids in the language of the program.
STYLES = "".join(
    f'<w:style w:styleId="{id_}"><w:name w:val="{name}"/><w:basedOn w:val="{base}"/></w:style>'
    for id_, name, base in (
        ("Titel", "Title", "Standard"),
        ("berschrift2", "heading 2", "Standard"),
        ("Zitat", "Quote", "Standard"),
        ("MeinZitat", "my own", "Zitat"),
        ("Verzeichnis1", "toc 1", "Standard"),
        ("Standard", "Normal", "Standard"),  # a circle
    )
)
BODY = (
    paragraph("On ", "Titel", '<w:rPr><w:del w:id="1"/></w:rPr>')
    + paragraph("hats", "Titel")
    + paragraph("INTRUDER contents 1", "Verzeichnis1")
    + paragraph(f"A hat is a roof one wears. {NON_ASCII}")
    + '<w:p><w:r><w:t xml:space="preserve">It was </w:t></w:r><w:del><w:r><w:delText>TRASHCANARY'
    "</w:delText></w:r></w:del><w:ins><w:r><w:t>felt</w:t></w:r></w:ins><w:r><w:rPr><w:vanish/>"
    "</w:rPr><w:t>INTRUDER</w:t></w:r><w:r><w:tab/><w:t>&amp; straw</w:t><w:br/><w:t>once.</w:t>"
    '<w:footnoteReference w:id="2"/></w:r></w:p>'
    + paragraph("Kinds", "berschrift2")
    + item("bowler", 1)
    + item("top", 1)
    + item("first", 2)
    + paragraph("A quoted line.", "MeinZitat")
    + "<w:tbl><w:tr><w:tc>"
    + paragraph("size")
    + "</w:tc><w:tc>"
    + paragraph("seven")
    + '</w:tc></w:tr></w:tbl><w:sdt><w:sdtContent><w:p><w:hyperlink r:id="hyperlink" xmlns:r="'
    f'{_PARTS}"><w:r><w:t>Coats</w:t></w:r></w:hyperlink></w:p></w:sdtContent></w:sdt>'
)
DOCX = {
    "_rels/.rels": relations(officeDocument="word/document.xml"),
    "word/_rels/document.xml.rels": relations(
        styles="styles.xml",
        numbering="numbering.xml",
        comments="comments.xml",
        footnotes="/word/footnotes.xml",
        hyperlink="coats.odt",
    ),
    "word/document.xml": f"<w:document {_W}><w:body>{BODY}</w:body></w:document>",
    "word/styles.xml": f"<w:styles {_W}>{STYLES}</w:styles>",
    "word/numbering.xml": f"<w:numbering {_W}>"
    + "".join(
        f'<w:abstractNum w:abstractNumId="{n}"><w:lvl w:ilvl="0"><w:numFmt w:val="{form}"/>'
        f'</w:lvl></w:abstractNum><w:num w:numId="{n}"><w:abstractNumId w:val="{n}"/></w:num>'
        for n, form in ((1, "bullet"), (2, "decimal"))
    )
    + "</w:numbering>",
    "word/comments.xml": f"<w:comments {_W}><w:comment>{paragraph('INTRUDER')}</w:comment>"
    "</w:comments>",
    "word/footnotes.xml": f'<w:footnotes {_W}><w:footnote w:id="0">{paragraph("INTRUDER")}'
    f'</w:footnote><w:footnote w:id="2">{paragraph("Or twice.")}</w:footnote></w:footnotes>',
    "docProps/core.xml": '<p xmlns:dc="x" xmlns:dcterms="y"><dc:creator>Ann Author</dc:creator>'
    "<dcterms:created>2019-01-01T00:00:00Z</dcterms:created></p>",
}

_ODF = "urn:oasis:names:tc:opendocument:xmlns"
_NAMES = (
    f'xmlns:office="{_ODF}:office:1.0" xmlns:text="{_ODF}:text:1.0" xmlns:style="{_ODF}:style:1.0"'
    f' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    f' xmlns:meta="{_ODF}:meta:1.0"'
)
ODT = {
    "mimetype": "application/vnd.oasis.opendocument.text",
    "content.xml": f"<office:document-content {_NAMES}><office:automatic-styles>"
    '<style:style style:name="P1" style:parent-style-name="Quotations"/>'
    '<style:style style:name="T1"><style:text-properties text:display="none"/></style:style>'
    '<text:list-style style:name="L1"><text:list-level-style-number text:level="1"/>'
    "</text:list-style></office:automatic-styles><office:body><office:text>"
    "<text:tracked-changes><text:changed-region><text:deletion><text:p>TRASHCANARY</text:p>"
    "</text:deletion></text:changed-region></text:tracked-changes>"
    '<text:h text:outline-level="1">Coats &amp; capes</text:h>'
    '<text:p>After <text:a xlink:href="2020-01-31%20hats.docx">hats</text:a>,<text:s/>coats'
    "<office:annotation><text:p>INTRUDER</text:p></office:annotation>: warm<text:line-break/>and"
    ' <text:span text:style-name="T1">INTRUDER</text:span>long.<text:note><text:note-citation>1'
    "</text:note-citation><text:note-body><text:p>To the knee.</text:p></text:note-body>"
    '</text:note></text:p><text:h text:outline-level="2">Kinds</text:h>'
    '<text:list text:style-name="L1"><text:list-item><text:p>first</text:p></text:list-item>'
    "<text:list-item><text:p>second</text:p></text:list-item></text:list>"
    '<text:p text:style-name="P1">A quoted line.</text:p></office:text></office:body>'
    "</office:document-content>",
    "meta.xml": f"<office:document-meta {_NAMES}><office:meta><dc:creator>Ann Author</dc:creator>"
    "<meta:creation-date>2021-06-02T10:00:00</meta:creation-date></office:meta>"
    "</office:document-meta>",
}


def write(folder: Path) -> Path:
    """Write the folder."""
    root = folder / "documents"
    root.mkdir()
    write_zip(root / "2020-01-31 hats.docx", DOCX)
    write_zip(root / "coats.odt", ODT)
    (root / "~$20-01-31 hats.docx").write_bytes(b"INTRUDER")
    (root / "secret.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1INTRUDER")
    return root
