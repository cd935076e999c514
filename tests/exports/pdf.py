"""A folder of PDFs: running headers and page numbers, divided words, and a scanned page."""

from collections.abc import Sequence
from pathlib import Path

from exports import NON_ASCII, write_folder

PUBLISHED = {
    "2020-01-31 hats.pdf": ("On hats", "2020-01-31"),
    "coats.pdf": ("Coats and capes", "2021-06-02"),
}
DAMAGES = 1  # a process reads each

# A PDF has its letters from left to right, as they are on the page.
_ARABIC = NON_ASCII.rpartition(" ")[2]
_AS_SHOWN = NON_ASCII.replace(_ARABIC, _ARABIC[::-1])

Line = tuple[float, float, float, str]  # x, y, size, text


def pdf(pages: Sequence[Sequence[Line]], title: str = "", day: str = "20210602") -> bytes:
    """Return a PDF whose font maps codes to the characters in the order of their first use."""
    characters = list(dict.fromkeys("".join(line[3] for page in pages for line in page)))
    codes = {character: f"{code:04x}" for code, character in enumerate(characters, 1)}
    pairs = "\n".join(f"<{codes[c]}> <{c.encode('utf-16-be').hex()}>" for c in characters)
    cmap = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
        "1 begincodespacerange <0000> <ffff> endcodespacerange\n"
        f"{len(characters)} beginbfchar\n{pairs}\nendbfchar\nendcmap end end"
    )
    streams = [cmap]
    for page in pages:
        shown = (
            f"BT /F {size} Tf 1 0 0 1 {x} {y} Tm <{''.join(codes[c] for c in text)}> Tj ET"
            for x, y, size, text in page
        )
        streams.append("\n".join(shown))
    kids = " ".join(f"{8 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type0 /BaseFont /A /Encoding /Identity-H"
        " /DescendantFonts [4 0 R] /ToUnicode 6 0 R >>",
        "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /A /DW 500 /CIDSystemInfo"
        " << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>",
        f"<< /Title ({title}) /CreationDate (D:{day}120000Z) >>",
    ]
    for number, stream in enumerate(streams):
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        if number:
            objects.append(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842]"
                f" /Contents {5 + 2 * number} 0 R /Resources << /Font << /F 3 0 R >> >> >>"
            )
    data, offsets = b"%PDF-1.7\n", []
    for number, each in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{each}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
    end += (
        f"<< /Size {len(objects) + 1} /Root 1 0 R /Info 5 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    )
    return data + end.encode()


def lines(*texts: str, top: float = 740, x: float = 72) -> list[Line]:
    return [(x, top - 14 * n, 11, text) for n, text in enumerate(texts)]


def framed(number: int, page: Sequence[Line]) -> list[Line]:
    """A page with a running header and its number."""
    return [(72, 800, 9, "INTRUDER of hats"), *page, (290, 40, 9, str(number))]


HATS = pdf(
    [
        framed(
            1,
            [
                (72, 770, 18, "On hats"),
                *lines(
                    "A hat is a roof that one wears, and most roofs in our town are wider than",
                    "they are high. My grandfather had a bowler with so small a brim, rain won-",
                    "dered what it was for. He called it well-known among the gulls of the town.",
                ),
                *lines(f"It was felt. {_AS_SHOWN}", top=680),
                *lines(
                    "This goes on over the page, because it has much more to say than a", top=640
                ),
            ],
        ),
        framed(2, lines("single page can hold, ended well-", "known.")),
        framed(3, []),
        framed(4, lines("The end of it.")),
    ],
    day="20200131",
)
COATS = pdf([lines("A coat is a house with sleeves."), []], title="Coats and capes")


def write(folder: Path) -> Path:
    """Write the folder."""
    return write_folder(folder / "pdfs", {"2020-01-31 hats.pdf": HATS, "coats.pdf": COATS})
